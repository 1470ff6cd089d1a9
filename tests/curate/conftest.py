"""Fixtures for tests of whole runs: small inputs, runs in this process, output digests."""

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from curate.corpus.sizes import Sizes
from curate.documents.attributes import DocumentsFile
from curate.engines import idle_workers
from curate.engines.local import LocalEngine
from curate.inspect.report import page
from curate.run.driver import carry_out
from curate.run.records import Options, Outcome
from curate.steps.recipe import parse
from tests.curate.command_line import command_line, environment, run_here

SENTENCE = "The river runs past the old mill and nobody works there."
OUTPUTS = ("corpus", "corpus.json", "rejected", "rejected.json", "decisions.parquet")

# The runs of all tests of a process share workers: starting one takes a second.
idle_workers.keep(2)


class Bench:
    """Writes inputs into a folder and runs recipes over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def jsonl(self, name: str, rows: Iterable[dict[str, Any] | str | bytes]) -> Path:
        """One line a row: objects as JSON, str and bytes as they are."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as f:
            for row in rows:
                data = json.dumps(row, ensure_ascii=False) if isinstance(row, dict) else row
                f.write((data.encode() if isinstance(data, str) else data) + b"\n")
        return path

    def run(
        self,
        recipe: str | list[Any],
        *inputs: Path | str,
        out: str = "out",
        workers: int = 1,
        read: dict[str, Any] | None = None,
        sets: tuple[str, ...] = (),
        engine: str = "local",
        slurm: tuple[str, ...] = (),
        sizes: Sizes = Sizes(),
    ) -> Outcome:
        """Runs in this process; recipe: YAML text or a list of steps."""
        if isinstance(recipe, list):
            recipe = json.dumps({"steps": recipe, "read": read or {}})
        parsed = parse(recipe, "recipe.yaml", sets)
        where = {"engine": engine, "slurm": slurm}
        options = Options(workers, quiet=True, sizes=sizes, **where)
        return carry_out(parsed, [str(i) for i in inputs], self.folder / out, options)

    def rows(self, out: str = "out", kind: str = "corpus") -> list[dict[str, Any]]:
        """All rows of OUT/corpus or OUT/rejected, in order, with a column for each score."""
        paths = sorted((self.folder / out / kind).glob("part-*.parquet"))
        return [row for p in paths for row in DocumentsFile(p).read().to_pylist()]

    def ids(self, out: str = "out", kind: str = "corpus") -> list[str]:
        """Ids of OUT/corpus or OUT/rejected, in order."""
        return [row["id"] for row in self.rows(out, kind)]

    def decisions(self, out: str = "out") -> list[dict[str, Any]]:
        """Rows of OUT/decisions.parquet."""
        return pq.ParquetFile(self.folder / out / "decisions.parquet").read().to_pylist()

    def bytes_of(self, out: str = "out") -> dict[str, str]:
        """sha256 of every file of what a run promises to repeat byte by byte."""
        return digests(self.folder / out)

    def command(self, *arguments: Any) -> subprocess.CompletedProcess[str]:
        """Runs the command line in this folder and in this process."""
        return run_here(*arguments, cwd=self.folder)

    def process(self, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs the command line in this folder as a process, for tests of what a process does."""
        defaults: dict[str, Any] = {
            "capture_output": True,
            "text": True,
            "timeout": 120,
            "env": environment(),
        }
        return subprocess.run(command_line(*arguments), cwd=self.folder, **defaults | options)

    def start(self, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
        """Starts the command line in a session of its own."""
        defaults: dict[str, Any] = {
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
        }
        return subprocess.Popen(
            command_line(*arguments), cwd=self.folder, env=environment(), **defaults | options
        )


def digests(out: Path) -> dict[str, str]:
    """sha256 by relative path of corpus/ and rejected/, their manifests, and decisions.parquet."""
    found = {}
    for name in OUTPUTS:
        top = out / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def pages(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Documents that C4 mostly keeps: every 5th repeats a text, every 7th is too short, URLs come
    twice."""
    draw = random.Random(seed)
    words = "the house stands on a hill and the river below it runs clear and cold".split()
    rows: list[dict[str, Any]] = []
    for i in range(count):
        sentences = [" ".join(draw.choices(words, k=9)).capitalize() + "." for _ in range(5)]
        text = rows[-1]["text"] if i % 5 == 4 else "\n".join(sentences)
        rows.append(
            {
                "id": f"d{i:04d}",
                "text": "Too short." if i % 7 == 6 else text,
                "url": f"https://host.test/{i // 2 if i % 3 else i}",
                "date": f"2020-01-{draw.randrange(1, 29):02d}",
                "score": round(draw.random(), 3),
            }
        )
    return rows


@pytest.fixture(scope="module", autouse=True)
def figures_where_they_are_read(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs of a file that names neither report.html nor ["figures"] count nothing for a report:
    the counting took half of the time of a small run."""
    with pytest.MonkeyPatch.context() as patch:
        if not re.search(r'\["figures"\]|report\.html', request.path.read_text("utf-8")):
            patch.setattr(page, "gather", lambda *_: page.Figures())
        yield


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A folder of its own for one test."""
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A folder for all tests of a file."""
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="session")
def make_pages() -> Callable[..., list[dict[str, Any]]]:
    """The function `pages`."""
    return pages


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """Two worker processes, which can import the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        with LocalEngine(2) as local:
            yield local
