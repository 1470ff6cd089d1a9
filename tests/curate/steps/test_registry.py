"""The registry: a file is a filter or a reader, whatever the index says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from curate.cli.reference import WORDS
from llmcurate.base.index import FILE, index_text
from tests.curate.command_line import environment

PROJECT = Path(__file__).resolve().parents[3]
FILTER = '''
import numpy as np
from curate.steps.contracts import Step, step

@step("whispers")
class Whispers(Step):
    """Drops whispers."""

    most: int = 3

    def apply(self, docs):
        sizes = np.array([len(text or "") for text in docs.text.to_pylist()], float)
        return docs.drop(sizes < self.most, "quiet", sizes, self.most)
'''
READER = """
from curate.formats.events import Row
from curate.formats.kinds import reader

@reader("shout", endings=(".shout",), begins="SHOUT")
def read(portion):
    yield Row(text="LOUD")
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages."""
    folder = tmp_path_factory.mktemp("copied")
    for package in ("curate", "llmcurate", "tokenize_kit", "train", "pipelines"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / package, folder / package, ignore=ignored)
    return folder


def kept(packages: Path, out: Path, *arguments: str) -> list[str]:
    """The texts that a command leaves, run with the packages of a folder."""
    start = packages / "llmcurate/base/start.py"
    command = [sys.executable, str(start), "curate.cli.app", *arguments, "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return pq.read_table(out / "corpus")["text"].to_pylist()


def test_the_index_is_what_the_sources_declare() -> None:
    written = (PROJECT / "curate" / FILE).read_text(encoding="utf-8")
    assert written == index_text("curate", WORDS), "run `make reference`"


def test_a_filter_is_one_file(copied: Path, tmp_path: Path) -> None:
    (copied / "curate/filters/whispers.py").write_text(FILTER)
    texts = tmp_path / "in.jsonl"
    texts.write_text('{"text": "pst"}\n{"text": "hello"}\n')
    out = tmp_path / "out"
    assert kept(copied, out, "filter", "whispers", str(texts), "--most", "5") == ["hello"]


def test_a_reader_is_one_file(copied: Path, tmp_path: Path) -> None:
    (copied / "curate/formats/shout.py").write_text(READER)
    text = tmp_path / "in.shout"
    text.write_text("SHOUT")
    assert kept(copied, tmp_path / "out", "filter", "newline_runs", str(text)) == ["LOUD"]
