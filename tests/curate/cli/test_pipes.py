"""`-` is standard input and output; `--export` writes JSON lines beside the corpus."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from curate.formats.listing import standard_input
from tests.curate.command_line import command_line, environment, run_here
from tests.curate.conftest import pages
from tests.parameters import mostly_slow


@pytest.fixture
def corpus(bench: Any) -> Path:
    return bench.jsonl("in.jsonl", pages(30))


def piped(bench: Any, data: bytes, *arguments: Any) -> subprocess.CompletedProcess[bytes]:
    """A command with standard input."""
    return subprocess.run(
        command_line(*arguments),
        cwd=bench.folder,
        env=environment() | {"TMPDIR": str(bench.folder / "tmp")},
        input=data,
        capture_output=True,
        timeout=120,
    )


@pytest.fixture(autouse=True)
def temporary(bench: Any) -> Any:
    """A folder for temporary files, which is empty behind each command."""
    folder = bench.folder / "tmp"
    folder.mkdir()
    yield
    assert list(folder.iterdir()) == []


def piped_here(
    bench: Any, monkeypatch: pytest.MonkeyPatch, data: bytes, *arguments: Any
) -> subprocess.CompletedProcess[str]:
    """The same in this process; its copy of standard input stays in the test's folder."""
    monkeypatch.setattr("tempfile.tempdir", str(bench.folder))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    return run_here(*arguments, cwd=bench.folder)


def test_what_is_piped_in_comes_out_as_the_corpus_of_a_run(bench: Any, corpus: Path) -> None:
    result = piped(bench, corpus.read_bytes(), "filter", "c4", "-", "-o", "-")
    bench.command("filter", "c4", corpus, "-o", "out", "-q")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    kept = [{**row, "source": "stdin"} for row in bench.rows()]
    assert [(row["id"], row["text"], row["source"]) for row in lines] == [
        (row["id"], row["text"], row["source"]) for row in kept
    ]
    assert b"kept" in result.stderr and result.returncode == 0


def test_the_same_bytes_piped_again_are_the_same_input(
    bench: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = gzip.compress(corpus.read_bytes())
    piped_here(bench, monkeypatch, data, "filter", "c4", "-", "-o", "out", "-q")
    again = piped_here(bench, monkeypatch, data, "filter", "c4", "-", "-o", "out")
    assert "nothing to do in out" in again.stdout


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (b"", ("-o", "out"), "input -: standard input is empty"),
        (b"plain words\n", ("-o", "out"), "input -: unknown format (recognised by content are"),
        (b'{"text": "a"}\n', ("-o", "-", "--export", "jsonl"), "-o - can only write a corpus"),
    ],
)
def test_input_that_cannot_be_piped_is_a_one_line_error(
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    result = piped_here(bench, monkeypatch, data, "filter", "c4", "-", *arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert message in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_reader_of_the_pipe_may_stop_early(bench: Any) -> None:
    rows = [{"id": f"d{i}", "text": f"A text, number {i}. " * 99} for i in range(300)]
    path = bench.jsonl("long.jsonl", rows)
    line = command_line("filter", "document_length", path, "--min", "1", "-o", "-", "-q")
    with subprocess.Popen(
        line,
        cwd=bench.folder,
        env=environment() | {"TMPDIR": str(bench.folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline().startswith(b'{"id":"d0"')
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 1


def test_reading_from_a_terminal_asks_to_pipe_documents_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(Exception, match="standard input is a terminal"):
        standard_input()


@pytest.mark.parametrize("ending", mostly_slow(["jsonl.gz", "jsonl", "jsonl.zst"]))
def test_an_export_holds_the_corpus_and_is_read_back(bench: Any, corpus: Path, ending: str) -> None:
    assert bench.command("filter", "c4", corpus, "-o", "out", "--export", ending).returncode == 0
    assert [p.name for p in (bench.folder / "out/jsonl").iterdir()] == [f"part-00000.{ending}"]
    bench.command("filter", "c4", "out/jsonl", "-o", "again", "-q")
    assert bench.ids("again") == bench.ids("out")
    assert "compression" in (bench.folder / "out/recipe.yaml").read_text()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("filter", "c4", "--export", "parquet"), "choose jsonl, jsonl.gz or jsonl.zst"),
        (("tokenizer", "train", "--export", "jsonl"), "--export needs a command that writes a c"),
    ],
)
def test_an_export_that_cannot_be_is_a_one_line_error(
    bench: Any, corpus: Path, command: tuple[str, ...], message: str
) -> None:
    result = bench.command(*command, corpus, "-o", "out")
    assert result.returncode == 2 and message in result.stderr
