"""Runs from Python, as the docstring of `curate` shows them."""

from __future__ import annotations

import json
from pathlib import Path

from curate import load, run_recipe


def test_a_recipe_runs_with_the_options_that_nobody_gave(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    text = "A sentence that says something. " * 20
    source.write_text("".join(json.dumps({"text": text + end}) + "\n" for end in "ab"))
    recipe = load("wangchanberta-th")
    outcome = run_recipe(recipe, [str(source)], tmp_path / "out")
    assert outcome.totals()["read"] == 2
