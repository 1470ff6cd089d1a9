"""Commands end with the main figures and with the next command, which runs as printed."""

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
def test_the_suggested_next_command_follows_from_the_last_product(made, stages, typed, command):
    made = outcome(*made, stages=stages, files=["tokenizer.json"])
    assert next_command(made, ["in.jsonl"], typed) == command.split()


def test_a_fine_tuned_model_is_followed_by_what_it_is_for():
    def after(task: str) -> str:
        made = outcome("model", files=["tokenizer.json"], records=[task, "in.jsonl"])
        return " ".join(next_command(made, [], "m"))

    assert after("classify") == "predict m in.jsonl -o predicted.jsonl"
    assert after("chat") == "generate Hello --model m --chat"
    assert after("pairs") == "generate --model m"


def test_a_model_without_a_tokenizer_has_no_next_command():
    made = outcome("model", files=["checkpoints/step-0000002/config.json"])
    assert next_command(made, [], "m") == []


def test_several_tokenizers_leave_the_choice_to_the_user():
    assert next_command(outcome("tokenizer", cards=[{}, {}]), ["in"], "tok") == []


def test_the_next_command_is_quoted_as_a_shell_takes_it(capsys):
    suggest("browse", "my out", quiet=False)
    printed = capsys.readouterr().err.removeprefix("next: ")
    assert shlex.split(printed) == ["llmcurate", "browse", "my out"]


def test_a_vocabulary_smaller_than_asked_is_highlighted() -> None:
    says = "90 tokens instead of 400: no other two tokens stand side by side 2 times in a word"
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
    assert line.endswith(
        "1,000 tokens from 5.00 kB of text, 4.50 bytes per token on a sample of it"
    )


def test_a_script_that_compresses_far_worse_is_named():
    thai = {"label": "Thai", "bytes": 100, "tokens": 80}
    measured = {"bytes": 1000, "bytes_a_token": 3.57, "scripts": [LATIN, thai]}
    assert tokenizer(measured=measured)[1] == "look at this: Thai has only 1.25 bytes per token"

    pieces = {**thai, "label": "parts of characters"}
    measured["scripts"] = [LATIN, pieces]
    assert "a larger --vocab" in tokenizer(measured=measured)[1]


def test_a_damaged_input_is_highlighted(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": "A text of words."}, "{not JSON"])
    done = bench.command("filter", "document_length", source, "-o", "out", "--min", "3")
    remark = "look at this: 1 place of the input could not be read, see corrupt.jsonl"
    assert remark in done.stdout.splitlines()


def last_line(done: Any) -> str:
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).splitlines()[-1]


def test_search_suggests_explaining_the_found_document(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"id": "a", "text": "The old mill stands by the river."}])
    bench.command("dedup", source, "-o", "out", "--method", "suffix-array")
    found = bench.command("search", "out", "mill")
    assert last_line(found) == "next: llmcurate explain a --in out"
    assert "next:" not in bench.command("search", "out", "mill", "-q").stderr


def test_tokenizer_eval_takes_named_texts_and_suggests_encode(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": "The old mill stands by the river. " * 9}] * 9)
    bench.command("tokenizer", "train", source, "-o", "tok", "--vocab", "270")
    on = ("--on", f"th={source}")
    done = bench.command("tokenizer", "eval", "tok", *on)
    encode = f"next: llmcurate tokenizer encode {source} --tokenizer tok -o shards"
    assert last_line(done) == encode


@pytest.mark.lab
def test_verify_suggests_browse(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": "A text."}])
    bench.command("filter", "document_length", source, "-o", "out", "--min", "1")
    done = bench.command("verify", "out")
    assert done.stderr.splitlines()[-1] == "next: llmcurate browse out"
    assert bench.command("verify", "out", "-q").stderr == ""


def test_stats_is_quiet(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": "A text."}])
    assert bench.command("stats", source, "-q").stderr == ""


@pytest.mark.lab
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("fetch urls.txt -o out", "would fetch 2 files to out (0 already there)"),
        ("fetch rows.cdxj -o out", "would fetch 1 capture to out"),
        (
            "fetch --index a.test -o out",
            "would fetch the captures of a.test listed by https://index.commoncrawl.org to out",
        ),
        (
            "tokenizer study in.jsonl --vocab 300",
            "would train BPE vocabularies on in.jsonl, sizes 300",
        ),
        ("scaling run in -o out --tokens 1e4 --sizes 32x2", "would train 1 run on in: sizes 32x2"),
        (
            "mix search a=in.jsonl b=in.jsonl --on n=in.jsonl --tokens 9 --total 9 -o out",
            "would train tiny on 32 mixtures of a, b, each 9 tokens",
        ),
    ],
)
def test_a_dry_run_says_what_would_be_done(bench: Any, command: str, says: str) -> None:
    bench.jsonl("in.jsonl", [{"text": "A text."}])
    (bench.folder / "urls.txt").write_text("https://a.test/x.gz\nhttps://a.test/y.gz\n")
    row = (
        '{"url": "https://a.test/", "status": "200", "filename": "a", "offset": "0", "length": "9"}'
    )
    (bench.folder / "rows.cdxj").write_text(f"test,a)/ 20240518015810 {row}\n")
    done = bench.command(*command.split(), "--dry-run")
    assert done.returncode == 0 and done.stdout.startswith(says), done.stderr
    assert "next:" not in done.stderr and not (bench.folder / "out").exists()
