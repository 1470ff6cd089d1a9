"""`llmcurate verify`: an untouched run passes, and a fault planted in any part of it is found."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from curate.lab.verify import verify as verifying
from curate.lab.verify.tally import CAUSES, Tally
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from tests.curate.command_line import run_here
from tests.curate.conftest import Bench
from tests.curate.lab.verify.conftest import rewrite
from tests.parameters import few

Rows = list[dict[str, Any]]
DOCUMENTS = 400  # all of them


def disagreeing(out: Path) -> set[str]:
    """The libraries that disagree with a run."""
    tallies = verifying.verify(out, DOCUMENTS, 0).tallies
    assert all(t.checked == t.agree + t.explained.total() + t.disagree for t in tallies)
    return {tally.library for tally in tallies if tally.disagree}


def test_an_untouched_run_agrees_with_every_library(finished: Path) -> None:
    verification = verifying.verify(finished, DOCUMENTS, 0)
    assert verification.passed and not verification.disagree
    compared = {(t.library, t.what) for t in verification.tallies if t.agree}
    assert {library for library, _ in compared} == {
        "warcio", "resiliparse", "fasttext", "datasketch", "pydivsufsort", "pybloom-live",
        "tokenizers",
    }  # fmt: skip
    assert ("datasketch", "dedup_minhash: candidate pairs") in compared
    assert [name for name, _ in verification.absent] == ["kenlm"] and not verification.skipped


def test_a_sample_is_the_same_every_time_and_another_seed_draws_another(finished: Path) -> None:
    first, second = (json_values(verifying.verify(finished, 20, 0)) for _ in range(2))
    assert first == second
    from curate.lab.verify.finished_run import FinishedRun

    drawn = [{doc.id for doc in FinishedRun(finished, 20, seed).sample} for seed in (0, 1)]
    assert [len(ids) for ids in drawn] == [20, 20] and drawn[0] != drawn[1]


def first_part(out: Path, folder: str = "corpus") -> Path:
    """The first part of a folder that has rows."""
    return next(p for p in sorted((out / folder).glob("*.parquet")) if pq.read_table(p).num_rows)


def change_document(column: str, value: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Changes one value of the first document of the corpus."""

    def spoil(out: Path) -> None:
        def change(rows: Rows) -> Rows:
            rows[0][column] = value(rows[0][column])
            return rows

        rewrite(first_part(out), change)

    return spoil


def lose_document(out: Path) -> None:
    rewrite(first_part(out), lambda rows: rows[1:])


def flip_signature(out: Path) -> None:
    def change(rows: Rows) -> Rows:
        bands = bytearray(rows[0]["bands"])
        bands[3] ^= 1
        rows[0]["bands"] = bytes(bands)
        return rows

    rewrite(first_part(out, "index/dedup_minhash"), change)


def change_decisions(
    method: str, change: Callable[[Rows], None], wanted: Callable[[dict[str, Any]], bool]
) -> Callable[[Path], None]:
    """Changes the decisions of a method that are as wanted; change: of the list, in place."""

    def spoil(out: Path) -> None:
        def changed(rows: Rows) -> Rows:
            of_method = [r for r in rows if r["method"] == method and wanted(r)]
            others = [r for r in rows if r not in of_method]
            assert of_method
            change(of_method)
            return others + of_method

        rewrite(out / "decisions.parquet", changed)

    return spoil


def dropped(row: dict[str, Any]) -> bool:
    return row["partner_id"] is not None


def set_first(column: str, value: Callable[[Any], Any]) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[0][column] = value(rows[0][column])

    return change


def add_bloom_decision(out: Path) -> None:
    """A document that is dropped though nothing of it was seen before."""
    decided = set(pq.read_table(out / "decisions.parquet", columns=["id"])["id"].to_pylist())
    ids = pq.read_table(first_part(out), columns=["id"])["id"].to_pylist()
    name = next(i for i in ids if i not in decided)

    def change(rows: Rows) -> Rows:
        row = dict.fromkeys(rows[0])
        return [*rows, row | {"id": name, "method": "bloom:dolma-paragraph", "similarity": 1.0}]

    rewrite(out / "decisions.parquet", change)


def flip_token(out: Path) -> None:
    path = out / "tokens-00000.bin"
    tokens = np.fromfile(path, "<u2")
    tokens[5] ^= 1
    tokens.tofile(path)


SUFFIXES = "suffix-array"
FAULTS: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "an address": (change_document("url", lambda url: url + "x"), {"warcio"}),
    "a date": (change_document("date", lambda date: date.replace(year=1999)), {"warcio"}),
    "a lost document": (lose_document, {"warcio", "tokenizers"}),
    "a text": (
        change_document("text", lambda text: "X" + text[1:]),
        {"resiliparse", "fasttext", "tokenizers"},
    ),
    "a label": (change_document("lang", lambda lang: "de"), {"fasttext"}),
    "a score": (change_document("language.score", lambda score: score - 0.001), {"fasttext"}),
    "a signature": (flip_signature, {"datasketch"}),
    "a near duplicate that stays": (
        change_decisions("minhash", lambda rows: rows.clear(), dropped),
        {"datasketch"},
    ),
    "a similarity": (
        change_decisions("minhash", set_first("similarity", lambda s: s - 0.05), dropped),
        {"datasketch"},
    ),
    "a cut too long": (
        change_decisions(SUFFIXES, set_first("span_end", lambda end: end + 9), dropped),
        {"pydivsufsort"},
    ),
    "a cut behind its text": (
        change_decisions(SUFFIXES, set_first("span_end", lambda end: end + 10**6), dropped),
        {"pydivsufsort"},
    ),
    "a cut too early": (
        change_decisions(
            SUFFIXES,
            set_first("span_start", lambda start: start - 30),
            lambda row: dropped(row) and row["span_start"] > 30,
        ),
        {"pydivsufsort"},
    ),
    "a cut left out": (
        change_decisions(SUFFIXES, lambda rows: rows.clear(), dropped),
        {"pydivsufsort"},
    ),
    "a Bloom decision made up": (add_bloom_decision, {"pybloom-live"}),
    "a Bloom decision left out": (
        change_decisions("bloom:dolma-paragraph", lambda rows: rows.pop(0), lambda row: True),
        {"pybloom-live"},
    ),
    "a token": (flip_token, {"tokenizers"}),
}


QUICK = (  # one of each library
    *("a date", "a lost document", "a text", "a score", "a signature"),
    *("a cut too long", "a Bloom decision made up", "a token"),
)


@pytest.mark.parametrize("fault", few(FAULTS, *QUICK))
def test_a_planted_fault_is_found_by_the_library_it_belongs_to(out: Path, fault: str) -> None:
    spoil, libraries = FAULTS[fault]
    spoil(out)
    assert disagreeing(out) == libraries


def test_the_command_ends_with_1_and_names_the_document(out: Path) -> None:
    assert run_here("verify", out).returncode == 0
    flip_signature(out)
    failed = run_here("verify", out, "--documents", DOCUMENTS, "-o", out.parent / "page")
    assert failed.returncode == 1
    sketches = pq.read_table(first_part(out, "index/dedup_minhash"))
    assert sketches["id"][0].as_py() in failed.stdout
    assert failed.stdout.rstrip().endswith("1 disagreement without a known cause")
    page = (out.parent / "page" / "verify.html").read_text()
    assert "13 of 14 bands equal" in page and "<script" not in page
    stored = json.loads((out.parent / "page" / "verify.json").read_text())
    assert stored["disagree"] == 1 and not stored["passed"]


def test_a_library_that_is_not_installed_is_named_and_fails_nothing(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "pybloom_live" else whole(name),
    )
    verification = verifying.verify(finished, 20, 0)
    assert ("pybloom-live", "pip install 'llmcurate[verify]'") in verification.skipped
    assert verification.passed
    assert "  pybloom-live: pip install 'llmcurate[verify]'" in verification.text()


def test_an_input_that_has_changed_is_not_compared(
    out: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = finished.parent / "web" / "web-00000.warc.gz"
    before = archive.stat()
    os.utime(archive, (0, 0))
    try:
        verification = verifying.verify(out, 20, 0)
    finally:
        os.utime(archive, ns=(before.st_atime_ns, before.st_mtime_ns))
    reasons = dict(verification.skipped)
    assert {"warcio", "resiliparse", "fasttext"} <= reasons.keys()
    assert reasons["warcio"] == f"the input {archive} has changed since the run"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no finished run"):
        verifying.verify(tmp_path, 20, 0)


def test_a_difference_needs_a_cause_of_the_documented_list() -> None:
    with pytest.raises(KeyError):
        Tally("warcio", "records").explain("bad weather")
    page = (Path(__file__).parents[4] / "docs" / "verify.md").read_text(encoding="utf-8")
    listed = [row.split("`")[1] for row in page.splitlines() if row.startswith("| `")]
    assert listed == list(CAUSES)


@pytest.mark.parametrize("choice", [{}, {"unit": "bytes", "boundary": "line"}], ids=str)
def test_windows_that_overlap_their_first_copy_are_no_disagreement(
    bench: Bench, choice: dict[str, str]
) -> None:
    pytest.importorskip("pydivsufsort")
    texts = ["é-" * 40 + "\n" + "one line of them\n" * 9, "x" + "é-" * 30, "one line of them\n" * 7]
    rows = [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)]
    step = {"threshold": 30, "survivor": "longest", "max_removal": 1, **choice}
    bench.run([{"dedup_suffix_array": step}], bench.jsonl("in.jsonl", rows))
    tallies = verifying.verify(bench.folder / "out", 20, 0).tallies
    assert tallies[1].agree > 100 and [t.disagree for t in tallies] == [0, 0]
