"""The golden record: changed bytes are found, timings are ignored."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "golden.py"))


def run_of(folder: Path, byte: bytes = b"a", seconds: float = 1.0, kept: str = "0") -> Any:
    """The digests of a folder that looks like a run's."""
    for name in ("corpus", "rejected"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "part-00000.parquet").write_bytes(byte if name == "corpus" else b"r")
    totals = {"kept_ids": kept, "seconds": seconds}
    (folder / "run.json").write_text(json.dumps({"totals": totals, "figures": {"a": 1}}))
    return GOLDEN["run_parts"](folder)


def test_timings_change_no_digest_and_a_changed_byte_changes_only_its_own(tmp_path: Path) -> None:
    first = run_of(tmp_path)
    assert set(first) == {"corpus", "rejected", "ids", "report"}
    assert run_of(tmp_path, seconds=9.0) == first
    assert {k for k, v in run_of(tmp_path, b"b").items() if v != first[k]} == {"corpus"}
    assert {k for k, v in run_of(tmp_path, kept="1").items() if v != first[k]} == {"ids", "report"}


def test_a_difference_from_the_record_is_named_and_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = {"c4, web": {"corpus": "1", "ids": "2"}}
    assert GOLDEN["compared"](wanted, wanted, "the record") == 0
    got = {"c4, web": {"corpus": "3", "ids": "2"}, "c4, web, killed": {"corpus": "4"}}
    assert GOLDEN["compared"](wanted, got, "the record") == 1
    printed = capsys.readouterr().out
    assert "DIFFERS from the record: c4, web: corpus\n" in printed
    assert "c4, web, killed: not as in the other ways" in printed


def test_cases_are_ten_recipes_three_in_all_ways_and_eight_trainings() -> None:
    cases = [(name, way) for kind, name, way in GOLDEN["cases"]([]) if kind != "pages"]
    assert len(GOLDEN["RECIPES"]) == 10 and len(cases) == 10 + 3 * 3 + 8
    assert {way for name, way in cases if name == "c4"} == {"", "two workers", "killed", "ray"}
