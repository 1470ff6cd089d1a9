"""`llmcurate tokenizer encode`: its options, and what it leaves when it is killed."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.cli.app import invoke
from llmcurate.base.errors import UsageError
from tests.curate.conftest import environment
from tests.parameters import mostly_slow

PRODUCTS = ("tokens-*", "documents-*", "*.bin", "manifest.json", "tokenizer.json", "val/*")


@pytest.fixture(scope="module")
def corpus(shared_bench, make_pages):
    """in.jsonl, and the folder of a tokenizer of it."""
    shared_bench.jsonl("in.jsonl", make_pages(150))
    shared_bench.run([{"tokenizer": {"vocab": 300}}], shared_bench.folder / "in.jsonl", out="tok")
    return shared_bench


def shards(out: Path) -> dict[str, str]:
    paths = {p for pattern in PRODUCTS for p in out.glob(pattern)}
    return {
        str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(paths)
    }


def arguments(out: str, *options: str) -> list[str]:
    line = ["tokenizer", "encode", "in.jsonl", "--tokenizer", "tok", "-o", out, "-q"]
    return [*line, "--workers", "2", *options]


def test_the_options_of_the_command_reach_the_shards(corpus):
    options = "--format nanogpt --val-fraction 0.2 --shuffle 3 --no-eos --json".split()
    done = corpus.command(*arguments("options", *options))
    assert done.returncode == 0, done.stderr
    out = corpus.folder / "options"
    manifest = json.loads((out / "manifest.json").read_bytes())
    chosen = {"format": "nanogpt", "val_fraction": 0.2, "shuffle": 3, "eos": False}
    assert chosen.items() <= manifest.items() and "bos" not in manifest
    train, val = (np.fromfile(out / f"{side}.bin", "<u2") for side in ("train", "val"))
    assert (len(train), len(val)) == (manifest["tokens"], manifest["val"]["tokens"])
    assert f"held out {len(val):,} tokens" in (out / ".run" / "report.html").read_text()
    assert manifest["special_ids"]["<|endoftext|>"] not in train
    record = json.loads((out / ".run" / "run.json").read_bytes())["products"][0]
    assert record["encoder"] == "ours, not gigatoken: the corpus is small"
    assert "encoder" not in manifest


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--format", "parquet"], "format"),
        (["--val-fraction", "1"], "val_fraction"),
        (["--shuffle", "-1"], "shuffle"),
        (["--bos"], "no beginning-of-text token"),
    ],
    ids=["format", "fraction", "seed", "bos"],
)
def test_wrong_options_are_a_one_line_error_with_exit_code_2(corpus, options, says):
    done = corpus.command(*arguments("wrong", *options))
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (corpus.folder / "wrong" / "manifest.json").exists()


@pytest.mark.parametrize("place", mostly_slow(["_commit", "write_atomic"]))
def test_killed_while_encoding_it_ends_with_the_same_bytes(corpus, place):
    options = ["--shuffle", "1", "--val-fraction", "0.2"]
    if not (corpus.folder / "whole").exists():
        assert corpus.command(*arguments("whole", *options)).returncode == 0
    killing = (
        "import os, sys, tokenize_kit.shards.writer as shards\n"
        f"shards.{place} = lambda *a: os.kill(os.getpid(), 9)\n"
        "from curate.cli.app import main; main()"
    )
    out = corpus.folder / f"killed-{place}"
    done = subprocess.run(
        [sys.executable, "-c", killing, *arguments(out.name, *options)],
        cwd=corpus.folder,
        env=environment(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr
    assert not shards(out)
    again = corpus.command(*arguments(out.name, *options))
    assert again.returncode == 0, again.stderr
    assert shards(out) == shards(corpus.folder / "whole")
    assert not list(out.rglob(".shards.partial"))


@pytest.fixture
def stopped(corpus, monkeypatch):
    """stopped(out): what an encode leaves that Ctrl-C ends behind the last document."""
    from tokenize_kit.shards import writer

    encode = functools.partial(writer.encode_shards, sizes=writer.Sizes(save_bytes=2000))
    monkeypatch.setattr(writer, "encode_shards", encode)
    monkeypatch.chdir(corpus.folder)

    def interrupt(*_):
        raise KeyboardInterrupt

    def stop(out):
        with monkeypatch.context() as patch:
            patch.setattr(writer, "encode_json", interrupt)
            assert invoke([*arguments(out, "--workers", "1")]) == 130
        assert not shards(corpus.folder / out)
        return [option for option in arguments(out) if option != "-q"]

    return stop


def test_a_stopped_encode_continues_and_says_how_much_is_not_encoded_again(stopped, corpus, capsys):
    again = stopped("stopped")
    assert invoke(again) == 0
    match = re.search(r"(\d+) documents were encoded before the run", capsys.readouterr().err)
    assert 100 < int(match[1]) <= 150
    assert invoke(arguments("undisturbed")) == 0
    assert shards(corpus.folder / "stopped") == shards(corpus.folder / "undisturbed")


@pytest.mark.parametrize("change", ["settings", "input"])
def test_a_stopped_encode_of_something_else_is_refused_by_name_and_stays(
    stopped, corpus, capsys, change
):
    again = stopped(f"other-{change}")
    changed = [*again, "--no-eos"]
    if change == "input":
        rows = (corpus.folder / "in.jsonl").read_text().splitlines()[:-1]
        (corpus.folder / "fewer.jsonl").write_text("\n".join(rows) + "\n")
        changed = ["fewer.jsonl" if word == "in.jsonl" else word for word in again]
    assert invoke(changed) == 2
    named = {"settings": "eos true, not false", "input": "/fewer.jsonl ("}[change]
    assert named in capsys.readouterr().err
    assert invoke(again) == 0
    assert "documents were encoded before the run" in capsys.readouterr().err


def test_a_stopped_encode_is_removed_once_one_with_other_settings_finishes(corpus, monkeypatch):
    from tokenize_kit.shards import writer

    source, folder = corpus.folder / "in.jsonl", corpus.folder / "stopped-run"
    encode = functools.partial(writer.encode_shards, sizes=writer.Sizes(save_bytes=2000))
    monkeypatch.setattr(writer, "encode_shards", encode)

    def run(**settings):
        shards = {"tokenizer": str(corpus.folder / "tok"), **settings}
        corpus.run(["dedup_exact", {"shards": shards}], source, out=folder.name, workers=1)

    def interrupt(*_):
        raise KeyboardInterrupt

    for settings in ({}, {"eos": False}):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(writer, "encode_json", interrupt)
            run(**settings)
    assert len(list(folder.rglob(".shards.partial"))) == 2
    run(shard_tokens=900)
    assert not list(folder.rglob(".shards.partial"))


@pytest.mark.slow
def test_shards_do_not_depend_on_workers(corpus):
    settings = {"tokenizer": str(corpus.folder / "tok"), "shuffle": 5, "val_fraction": 0.3}
    steps, read = ["dedup_exact", {"shards": settings}], {"partition_bytes": 3000}
    for workers in (1, 3):
        source = corpus.folder / "in.jsonl"
        corpus.run(steps, source, out=f"workers{workers}", workers=workers, read=read)
    single, three = (shards(corpus.folder / f"workers{n}") for n in (1, 3))
    assert single == three and "val/manifest.json" in single


def test_without_the_split_nothing_of_it_stays(corpus):
    out, source = corpus.folder / "split", corpus.folder / "in.jsonl"
    settings = {"tokenizer": str(corpus.folder / "tok"), "val_fraction": 0.3}
    corpus.run([{"shards": settings}], source, out="split")
    held = pq.read_table(out / "val/documents-00000.parquet")["id"].to_pylist()
    kept = pq.read_table(out / "documents-00000.parquet")["id"].to_pylist()
    assert held and sorted([*held, *kept]) == [f"d{k:04d}" for k in range(150)]
    corpus.run([{"shards": settings | {"val_fraction": 0}}], source, out="split")
    assert not list((out / "val").glob("*"))
    assert json.loads((out / "manifest.json").read_bytes())["documents"] == 150


def test_text_that_is_not_utf8_is_refused_by_name(tmp_path, corpus):
    import pyarrow as pa

    from llmcurate.base.errors import LlmcurateError
    from tokenize_kit.shards.writer import encode_shards

    bad = pa.array([b"fine", b"\xff\xfe"], pa.large_binary()).view(pa.large_string())
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), bad], ["id", "text"])
    with pytest.raises(LlmcurateError, match="document b: its text is not UTF-8"):
        encode_shards([batch], corpus.folder / "tok" / "tokenizer.json", tmp_path / "out")


def test_a_column_of_json_lines_says_which_characters_count(corpus):
    texts = ["question answer", "all of it", "none of it"]
    values = [[[9, 15]], [[0, 9]], []]
    rows = [
        {"id": f"r{k}", "text": text, "learn": value}
        for k, (text, value) in enumerate(zip(texts, values, strict=True))
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (corpus.folder / "learn.jsonl").write_text(lines)
    line = ["tokenizer", "encode", "learn.jsonl", "--tokenizer", "tok", "-o", "learn", "-q"]
    done = corpus.command(*line, "--loss-mask", "learn", "--json")
    assert done.returncode == 0, done.stderr
    out = corpus.folder / "learn"
    mask = np.fromfile(out / "loss-00000.mask", np.uint8)
    bounds = np.fromfile(out / "tokens-00000.idx", "<u8").astype(int)
    question, whole, none, _ = np.split(mask, bounds)
    assert question[0] == 0 and question[-1] == 1 and whole.all() and not none.any()
    wrong = corpus.command(*line[:-2], "no", "-q", "--loss-mask", "learnt")
    assert wrong.returncode == 2 and "no column 'learnt'" in wrong.stderr


@pytest.mark.parametrize("form", ["ranges", "json", "booleans"])
def test_ranges_of_a_text_that_a_step_changed_are_refused_by_name(corpus, form):
    """One boolean a document says nothing of characters and stays right."""
    mail = "write to nobody@example.com today, and then again tomorrow"
    masks = {"ranges": [[0, 5]], "json": "[[0, 5]]", "booleans": True}
    texts = enumerate(["a text of no mail", mail])
    rows = [{"id": f"m{k}", "text": text, "learn": masks[form]} for k, text in texts]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (corpus.folder / f"{form}.jsonl").write_text(lines)
    settings = {"tokenizer": str(corpus.folder / "tok"), "loss_mask": "learn"}
    run_arguments = [{"shards": settings}], corpus.folder / f"{form}.jsonl"
    corpus.run(*run_arguments, out=f"as-it-is-{form}")
    steps = ["pii", *run_arguments[0]]
    if form == "booleans":
        corpus.run(steps, run_arguments[1], out=form)
        mask = np.fromfile(corpus.folder / form / "loss-00000.mask", np.uint8)
        assert mask.all()
        return
    with pytest.raises(UsageError, match="document m1: the step pii changed its text, so the ran"):
        corpus.run(steps, run_arguments[1], out=form)
    assert not (corpus.folder / form / "manifest.json").exists()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_refused_long_document_is_named_with_the_setting_that_takes_it(corpus, capsys, form):
    rows = [{"id": "short", "text": "a b"}, {"id": "book", "text": "the cat " * 200}]
    source = corpus.folder / f"books.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    else:
        corpus.jsonl(source.name, rows)

    def encode(*options):
        out = corpus.folder / f"books-{form}-{len(options)}"
        line = ["tokenizer", "encode", str(source), "--tokenizer", str(corpus.folder / "tok")]
        code = invoke([*line, "-o", str(out), "--workers", "1", *options])
        return code, capsys.readouterr().err

    code, says = encode("--set", "read.max_record_bytes=100")
    setting = re.search(
        r"is too long \([\d,]+ bytes\); to read it, set (read.max_record_bytes=\d+) ", says
    )
    assert code == 0 and setting, says
    assert form == "jsonl" or "book is too long (1,600 bytes)" in says
    code, says = encode("--set", setting[1], "--limit", "2")
    assert code == 0 and "refused" not in says
    code, says = encode("--set", "read.max_record_bytes=2", "--limit", "2", "--no-eos")
    assert code == 1 and "no document was read" in says
