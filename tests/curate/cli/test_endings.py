"""Commands end with what counts and with the command that comes next, which runs as it is typed."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from curate.cli.execution import next_command
from curate.run.records import product_line
from llmcurate.base.terminal import suggest

CARD = {"vocab": 1000, "bytes": 5000, "model": "bpe", "settings": {}}
LATIN = {"label": "Latin", "bytes": 900, "tokens": 200}


def outcome(*makes: str, stages: int = 0, **of_last: Any) -> Any:
    products = [{"makes": kind} | of_last for kind in makes]
    return SimpleNamespace(products=products, plan=SimpleNamespace(stages=[None] * stages))


def tokenizer(**card: Any) -> list[str]:
    line = product_line({"makes": "tokenizer", "label": "tokenizer", "card": CARD | card})
    return line.split("\n")


@pytest.mark.parametrize(
    ("made", "stages", "typed", "command"),
    [
        ((), 1, "o", "browse o"),
        ((), 1, None, "browse"),
        (("export",), 1, "o", "browse o"),
        (("tokenizer",), 0, "tok", "tokenizer encode in.jsonl --tokenizer tok -o shards"),
        (("tokenizer",), 1, "o", "tokenizer encode o --tokenizer o -o shards"),
        (("tokenizer", "shards"), 1, "o", "pretrain o -o model"),
        (("shards", "model"), 0, "m", "generate --model m"),
        (("search_index",), 0, "s", ""),
    ],
)
def test_what_was_made_last_decides_what_comes_next(made, stages, typed, command):
    assert next_command(outcome(*made, stages=stages), ["in.jsonl"], typed) == command.split()


def test_several_tokenizers_leave_the_choice_to_the_user():
    assert next_command(outcome("tokenizer", cards=[{}, {}]), ["in"], "tok") == []


def test_the_next_command_is_quoted_as_a_shell_takes_it(capsys):
    suggest("browse", "my out", quiet=False)
    printed = capsys.readouterr().err.removeprefix("next: ")
    assert shlex.split(printed) == ["llmcurate", "browse", "my out"]


def test_a_vocabulary_that_the_texts_did_not_fill_stands_out() -> None:
    says = "90 tokens instead of 400: the corpus is too small for more"
    assert tokenizer(warnings=[says], gguf={"refused": "why"})[1:] == [f"look at this: {says}"]


def test_a_run_ends_with_what_counts(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": text} for text in ("A text of words.", "B", "C")])
    done = bench.command("filter", "document_length", source, "-o", "out", "--min", "3")
    kept, rules, remark, report = done.stdout.splitlines()[-4:]
    assert kept.startswith("kept 1 document (33.3 % of 3), 16 B of text from 18 B, in ")
    assert rules == "rules that decide most: document_length.too_short 2 (66.7 %)"
    assert remark == "look at this: document_length dropped 67 % of all documents"
    assert report == "report: out/report.html"
    assert done.stderr.splitlines()[-1] == "next: llmcurate browse out"


def test_json_and_quiet_have_no_next_line(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": "A text."}])
    for flag in ("--json", "-q"):
        done = bench.command("filter", "document_length", source, "-o", "out", "--min", "1", flag)
        assert done.returncode == 0 and "next:" not in done.stdout + done.stderr


def test_a_tokenizers_line_has_its_bytes_per_token():
    measured = {"bytes": 1000, "bytes_a_token": 4.5, "scripts": [LATIN]}
    (line,) = tokenizer(measured=measured)
    assert line.endswith("1000 tokens from 5.00 kB of text, 4.50 bytes per token on a sample of it")


def test_a_script_that_compresses_far_worse_is_named():
    thai = {"label": "Thai", "bytes": 100, "tokens": 80}
    measured = {"bytes": 1000, "bytes_a_token": 3.57, "scripts": [LATIN, thai]}
    assert tokenizer(measured=measured)[1] == "look at this: Thai has only 1.25 bytes per token"


def test_what_llama_cpp_cannot_load_is_said_with_the_option():
    assert tokenizer(gguf={"refused": "why"})[1].endswith(
        "--pattern llama3 makes one that it loads"
    )
    chosen = tokenizer(gguf={"refused": "why"}, settings={"pattern": "o200k"})
    assert chosen[1].endswith("tokenizer_card.md says why")
