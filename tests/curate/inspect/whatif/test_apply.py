"""`whatif --apply` leaves the bytes of a run with these settings and reuses whole stages."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from curate.inspect.whatif.apply import apply
from curate.run.driver import Options
from curate.run.ledger import Ledger
from llmcurate.base.errors import LockHeld, UsageError

WORDS = "the house stands on a hill and the river below it runs clear and cold to be that".split()
STEPS = [
    {"gopher_quality": {"min_words": 30}},
    {"fineweb_quality": {"max_newlines": 0.2}},
    {"c4": {"min_sentences": 2, "min_words_per_line": 4}},
    {"document_length": {"min": 100, "unit": "chars"}},
    {"dedup_exact": {"key": "url", "survivor": "longest"}},
    {"gopher_repetition": {}},
]
FILES, EACH = 3, 120


def rows(seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    pages = []
    for i in range(EACH):
        lines = [
            " ".join(draw.choices(WORDS, k=draw.randint(2, 14))).capitalize() + draw.choice("...,")
            for _ in range(draw.randint(0, 12))
        ]
        text: str | None = "# " * 40 if i % 31 == 0 else "\n".join(lines)
        if i == 5:
            text = None  # refused by the reader
        url = f"http://a.test/{draw.randrange(150)}"
        pages.append({"text": text, "url": url, "lang": draw.choice(["en", None])})
    pages[9]["id"] = "twice"  # in every file, so that ids are settled
    return pages


@pytest.fixture(scope="module")
def home(shared_bench: Any) -> Any:
    bench = shared_bench
    for i in range(FILES):
        bench.jsonl(f"in/{i}.jsonl", rows(i))
    run(bench, "out")
    return bench


def run(bench: Any, out: str, *sets: str) -> None:
    read = {"partition_bytes": 40_000, "batch_rows": 50}
    bench.run(STEPS, bench.folder / "in", out=out, read=read, sets=sets)


@pytest.mark.parametrize("sets", [
    ("gopher_quality.min_words=12", "fineweb_quality.min_end_marks=0.9"),
    ("gopher_repetition.max_top_n_gram_chars={2: 0.1, 3: 0.4}", "dedup_exact.survivor=first"),
    ("c4.min_words_per_line=6",),
    pytest.param(("document_length.min=20", "document_length.max=400"), marks=pytest.mark.slow),
    pytest.param(("c4.min_sentences=5",), marks=pytest.mark.slow),
], ids=lambda sets: sets[0])  # fmt: skip
def test_apply_leaves_the_bytes_of_a_run_with_these_settings(
    home: Any, sets: tuple[str, ...]
) -> None:
    name = "".join(c if c.isalnum() else "_" for c in sets[0])
    outcome = apply(home.folder / "out", sets, home.folder / f"{name}_a", Options(1, quiet=True))
    run(home, f"{name}_r", *sets)
    assert home.bytes_of(f"{name}_a") == home.bytes_of(f"{name}_r")
    records = [json.loads((home.folder / f"{name}_{k}" / "run.json").read_text()) for k in "ar"]
    for stages in zip(*(r["stages"] for r in records), strict=True):
        for key in ("read", "kept", "rejected", "bytes_out", "primary", "reasons", "cut"):
            assert stages[0][key] == stages[1][key], key
    assert outcome.totals().by_rule == records[1]["totals"]["by_rule"]


def test_in_place_it_resumes_and_goes_back_to_the_first_bytes(home: Any) -> None:
    apply(home.folder / "out", ("document_length.max=500",), home.folder / "p", Options(1, True))
    before = home.bytes_of("out")
    assert home.bytes_of("p") != before
    apply(home.folder / "p", ("document_length.max=null",), None, Options(1, quiet=True))
    assert home.bytes_of("p") == before


def test_stages_before_the_change_are_reused_and_the_command_says_so(home: Any) -> None:
    setting = "gopher_repetition.max_top_n_gram_chars={2: 0.15}"
    done = home.command("whatif", "out", "--set", setting, "--apply", "-o", "late")
    assert done.returncode == 0, done.stderr
    assert "reused as they are: gopher_quality" in done.stderr
    assert "so run again: dedup_exact" in done.stderr
    first = next((home.folder / "out" / "stages").glob("00-*"))
    for path in sorted(first.glob("part-*.parquet")):
        assert path.samefile(home.folder / "late" / "stages" / first.name / path.name)


def test_a_changed_input_other_files_and_a_busy_folder_are_refused(bench: Any) -> None:
    path = bench.jsonl("in.jsonl", rows(1))
    steps = [{"document_length": {"min": 30}}]
    bench.run(steps, path)
    out, sets, quiet = bench.folder / "out", ("document_length.min=40",), Options(1, True)
    (bench.folder / "full").mkdir()
    (bench.folder / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        apply(out, sets, bench.folder / "full", quiet)
    with pytest.raises(UsageError, match="needs --set"):
        apply(out, (), None, quiet)
    done = bench.command("whatif", out, "--set", sets[0], "--apply", "-o", "page.html")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    bench.jsonl("in.jsonl", rows(2))
    with pytest.raises(UsageError, match="was changed"):
        apply(out, sets, None, quiet)
    _forget(out)
    with pytest.raises(UsageError, match="is missing"):
        apply(out, sets, None, quiet)


def _forget(out: Path) -> None:
    import shutil

    shutil.rmtree(out / "stages")


def test_a_run_in_use_is_not_copied(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run([{"document_length": {"min": 30}}], bench.jsonl("in.jsonl", rows(1)))
    ledger = Ledger(bench.folder / "out")
    monkeypatch.setattr("os.getpid", lambda: 1)  # somebody else
    try:
        with pytest.raises((LockHeld, UsageError)):
            apply(
                bench.folder / "out",
                ("document_length.min=40",),
                bench.folder / "new",
                Options(1, quiet=True),
            )
    finally:
        monkeypatch.undo()
        ledger.close()
