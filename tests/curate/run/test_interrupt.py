"""Ctrl-C ends the process in seconds, also while compiled code keeps Python from raising it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from llmcurate.base import terminal

SCRIPT = """
import hashlib, sys, time
from llmcurate.base import terminal
terminal.GRACE_SECONDS = 0.3
try:
    with terminal.prompt_interrupt():
        print("ready", flush=True)
        {body}
except KeyboardInterrupt:
    sys.exit(4)
"""
DEAF = "hashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)"
ATTENTIVE = "time.sleep(60)"


@pytest.mark.parametrize(("body", "status"), [(DEAF, 130), (ATTENTIVE, 4)])
def test_an_interrupt_is_raised_where_it_can_be_and_ends_the_process_where_not(body, status):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=20)[1]
    assert process.returncode == status
    assert time.monotonic() - began < 3
    assert ("run the same command to resume" in error) == (status == 130)


def test_a_caller_with_a_handler_of_its_own_keeps_it():
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with terminal.prompt_interrupt():
            assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGINT, handler)


def test_outside_the_main_thread_nothing_changes():
    seen = []

    def work() -> None:
        with terminal.prompt_interrupt():
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


COMMAND = """
import hashlib, sys, time
from llmcurate.base import terminal
terminal.GRACE_SECONDS = 0.3
terminal.end_on_sigterm()
with terminal.prompt_interrupt():
    print("ready", flush=True)
    {body}
"""


@pytest.mark.parametrize("body", [DEAF, ATTENTIVE])
def test_sigterm_is_a_line_and_an_exit_code(body):
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    error = process.communicate(timeout=20)[1]
    assert process.returncode == 143
    assert error == "llmcurate: stopped by SIGTERM; run the same command to resume\n"


def test_only_a_command_that_resumes_is_said_to_resume(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["llmcurate", "generate", "hi"])
    assert terminal.stopped() == "stopped"
    monkeypatch.setattr(sys, "argv", ["llmcurate", "pretrain", "shards"])
    assert terminal.stopped() == "stopped; run the same command to resume"


COMMANDS = {
    "run": ("run r.yaml in.jsonl -o out -q", "out/ledger.db"),
    "refresh": ("refresh r.yaml in.jsonl -o out -q", "out/runs/*/ledger.db"),
    "tokenizer": ("tokenizer train in.jsonl -o out --vocab 20000 -q", "out/.run/ledger.db"),
    "pretrain": ("pretrain shards -o out --model tiny --steps 9999", "out/.run/ledger.db"),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in COMMANDS])
def test_sigterm_ends_each_command_so_and_the_same_one_continues(bench, make_pages, name):
    bench.jsonl("in.jsonl", make_pages(4000))
    (bench.folder / "r.yaml").write_text("steps: [c4, dedup_exact, dedup_minhash]")
    command, begun = COMMANDS[name]
    if name == "pretrain":
        for before in (
            "tokenizer train in.jsonl -o tokenizer --vocab 300 -q",
            "tokenizer encode in.jsonl -o shards --tokenizer tokenizer/tokenizer.json -q",
        ):
            assert bench.process(*before.split()).returncode == 0
    process = bench.start(*command.split())
    until = time.monotonic() + 60
    while not any(bench.folder.glob(begun)) and time.monotonic() < until:
        time.sleep(0.02)
    process.terminate()
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 143, error
    assert error.endswith("llmcurate: stopped by SIGTERM; run the same command to resume\n")
    if name != "pretrain":  # which would take an hour
        assert bench.process(*command.split()).returncode == 0
