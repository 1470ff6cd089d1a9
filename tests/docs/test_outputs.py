"""The tutorial and the notebooks show the output that their commands give."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

from curate.demo.language import train_demo_model
from curate.demo.web import build_web
from tests.curate.command_line import printed_here

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "run_docs.py"))
TUTORIAL = ROOT / "docs" / "tutorial.md"
SMALL = ("llmcurate run c4 ", "llmcurate explain ", "llmcurate filter ")


@pytest.mark.skipif(find_spec("fasttext") is None, reason="the demo's language model needs it")
def test_the_first_commands_of_the_tutorial_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCRIPT["written"].__globals__, "printed", printed_here)
    build_web(tmp_path / "demo" / "web")
    train_demo_model(tmp_path / "demo" / "language", quiet=True)
    page = TUTORIAL.read_text(encoding="utf-8")
    assert all(f"$ {command}" in page for command in SMALL)
    assert SCRIPT["written"](page, tmp_path, lambda line: line.startswith(SMALL)) == page


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("fasttext") is None, reason="the demo's language model needs it")
def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    page = TUTORIAL.read_text(encoding="utf-8")
    assert SCRIPT["written"](page, tmp_path) == page


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("fasttext") is None, reason="the notebooks train a language model")
@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/notebooks").glob("*.ipynb")), ids=lambda p: p.stem
)
def test_notebooks_give_the_outputs_that_they_hold(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    notebook = path.read_text(encoding="utf-8")
    assert SCRIPT["executed"](notebook, tmp_path) == notebook


def test_changed_output_is_noticed_and_changed_durations_are_not(tmp_path: Path) -> None:
    page = "```console\n$ echo 5 kept, in 2.0 s\n{}\n```\n"
    script = SCRIPT["written"]
    for number, (stands, prints) in enumerate(
        (("5 kept, in 1.0 s", "5 kept, in 1.0 s"), ("4 kept, in 1.0 s", "5 kept, in 2.0 s"))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert script(page.format(stands), folder) == page.format(prints)


def test_lines_that_are_left_out_stay_out() -> None:
    old, new = ["a", "...", "d"], ["a", "b", "c", "d"]
    assert SCRIPT["fitted"](old, new) == old
    assert SCRIPT["fitted"](["a", "..."], new) == ["a", "..."]


def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="false: exit code 1"):
        SCRIPT["written"]("```console\n$ false\n```", tmp_path)
