"""The package's own table of figures, and the documentation that is printed from it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from curate.formats.inputs import InputPlan
from curate.inspect.forecast.forecast import Prices, find_figures, forecast, package_table
from curate.run.plan import plan_run
from curate.steps.recipe import load
from tests.curate.command_line import run_here

DOC = Path(__file__).resolve().parents[4] / "docs" / "scale.md"
BLOCK = re.compile(r"^```\n\$ llmcurate ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def on_paper(name: str):
    recipe = load(name, ())
    plan = plan_run(recipe, InputPlan((), ()), on_paper=True)
    return forecast(plan, find_figures(recipe, None, None, None), 1000, Prices(), 10**14)


@pytest.mark.parametrize("name", ["fineweb", "ccnet-llama1", "c4", "refinedweb"])
def test_shipped_recipes_have_a_figure_for_everything(name: str) -> None:
    predicted = on_paper(name)
    assert predicted.missing == []
    assert all(s.cpu for s in predicted.stages)


def test_the_one_step_whose_model_is_not_shipped_has_none() -> None:
    (missing,) = on_paper("dclm-baseline").missing
    assert missing.startswith("no figure for step quality")


@pytest.mark.lab
def test_a_filter_from_a_file_has_the_figure_of_a_plain_function(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("def keep(text, metadata):\n    return True\n")
    (tmp_path / "in.jsonl").write_text('{"text": "a text"}\n')
    (tmp_path / "r.yaml").write_text("steps: [{python: rules.py:keep}]")
    printed = _here("run r.yaml in.jsonl -o out --dry-run --as-if 100TB", tmp_path)
    assert "no figure" not in printed
    assert re.search(r"note: python: the figure is that of a function .* rules\.py:keep", printed)


def test_the_table_says_when_and_on_what_it_was_measured() -> None:
    assert re.search(r"\(20\d\d-\d\d-\d\d, .+\)", package_table().source)


def test_the_plan_on_paper_is_what_the_commands_print(tmp_path: Path) -> None:
    blocks = BLOCK.findall(DOC.read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    for command, printed in blocks:
        line, _, wanted = command.partition(" | grep ")
        lines = _here(line, tmp_path).splitlines(keepends=True)
        pattern = re.compile(shlex.split(wanted)[-1]) if wanted else re.compile("")
        assert "".join(text for text in lines if pattern.search(text)) == printed, command


def _here(line: str, folder: Path) -> str:
    done = run_here(*shlex.split(line), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_figures_in_the_prose_are_those_of_the_tables() -> None:
    prose = " ".join(DOC.read_text(encoding="utf-8").split())
    fineweb, ccnet = on_paper("fineweb"), on_paper("ccnet-llama1")
    (sketch,) = [x for s in fineweb.stages for x in s.steps if x.label.endswith(": sketching")]
    seconds = sketch.cpu / sketch.documents
    hours = [predicted.total("cpu") / 3600 / 100 for predicted in (fineweb, ccnet)]
    assert f"takes {hours[0]:.0f} CPU hours per TB of stored WARC, CCNet's {hours[1]:.0f};" in prose
    assert f"take {seconds * 1e3:.2g} ms of CPU per document" in prose
