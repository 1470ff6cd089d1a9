"""docs/architecture.md and docs/modules.md list the existing packages and modules."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "floor_plan.py"))


def test_the_floor_plan_pages_are_up_to_date_with_the_docstrings() -> None:
    for path in SCRIPT["PAGES"]:
        page = path.read_text(encoding="utf-8")
        assert "made by scripts/floor_plan.py" in page
        assert SCRIPT["written"](page) == page, "run python scripts/floor_plan.py"


def test_every_module_says_what_it_is() -> None:
    silent = [
        path
        for package in SCRIPT["PACKAGES"]
        for path in (ROOT / package).rglob("*.py")
        if not SCRIPT["first_sentence"](path)
    ]
    assert silent == []
