"""pipelines/experiments: recipes can be planned, and run.sh calls existing commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from curate.formats.inputs import plan_inputs
from curate.run.plan import plan_run
from curate.steps.recipe import load
from tests.curate.cli.documented import mistake

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = sorted(path.parent for path in ROOT.glob("pipelines/experiments/*/run.sh"))
RECIPES = sorted(ROOT.glob("pipelines/experiments/*/*.yaml"))
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
END = "-- end of a command --"
# What stands in for the two programs that a script calls: the arguments of one and the source of
# the other are written down.
COMMAND = f'#!/bin/sh\nprintf "%s\\n" "$@" "{END}" >> "$CALLS/commands"\n'
PYTHON = '#!/bin/sh\ncat > "$CALLS/$$.py"\n'


def calls(folder: Path, where: Path) -> tuple[list[list[str]], list[str]]:
    """(arguments of each llmcurate, the source of each Python) that run.sh in a folder runs."""
    programs, written = where / "programs", where / "written"
    for path in (programs, written):
        path.mkdir()
    for name, text in {"llmcurate": COMMAND, "python": PYTHON}.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": str(programs / "python"),
        "DATATROVE": str(programs / "python"),
        "CALLS": str(written),
    }
    script = ["sh", str(folder / "run.sh"), str(where / "corpora"), str(where / "out")]
    subprocess.run(script, env=environment, check=True, stdin=subprocess.DEVNULL)
    commands: list[list[str]] = [[]]
    for line in (written / "commands").read_text(encoding="utf-8").splitlines():
        if line == END:
            commands.append([])
        else:
            commands[-1].append(line)
    sources = [path.read_text(encoding="utf-8") for path in written.glob("*.py")]
    return commands[:-1], sources


@pytest.mark.lab
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_commands_of_a_script_are_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, sources = calls(folder, tmp_path)
    assert any(command[0] == "ablate" for command in commands)
    mistakes = [error for command in commands if (error := mistake(command, monkeypatch))]
    assert mistakes == []
    for source in sources:
        compile(source, folder.name, "exec")
    named = {word for command in commands for word in command if word.endswith(".yaml")}
    assert {Path(word).resolve() for word in named} == set(folder.glob("*.yaml"))


@pytest.mark.lab
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recipe_is_planned(recipe: Path, tmp_path: Path) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_text('{"id": "a", "text": "A document."}\n', encoding="utf-8")
    loaded = load(recipe)
    assert loaded.name == recipe.stem
    assert plan_run(loaded, plan_inputs([str(source)]), on_paper=True).stages


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_experiment_is_listed_on_the_page_and_described(folder: Path) -> None:
    head = (folder / "run.sh").read_text(encoding="utf-8").partition("set -eu")[0]
    for word in ("Paper:", "Expected sign:", "Reads:", "Takes", "run.sh CORPORA OUT"):
        assert word in head.replace("\n# ", " "), word
    assert f"`{folder.name}`" in PAGE
