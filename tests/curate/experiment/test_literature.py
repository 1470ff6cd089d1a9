"""pipelines/experiments: recipes and comparisons are valid, and scripts call existing commands."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from curate.formats.inputs import plan_inputs
from curate.run.plan import plan_run
from curate.steps.recipe import load
from tests.curate.cli.documented import mistake
from tests.curate.command_line import app_command

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
    assert any(command[0] == "compare" for command in commands)
    mistakes = [error for command in commands if (error := mistake(command, monkeypatch))]
    assert mistakes == []
    monkeypatch.syspath_prepend(ROOT / "pipelines")
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = import_module(node.module)
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []
    named = {word for command in commands for word in command if word.endswith(".yaml")}
    assert {Path(word).resolve() for word in named} == set(folder.glob("*.yaml"))


def write_input(word: str, below: Path) -> None:
    """Write documents where a word of a command expects a file or a folder below that one."""
    path = Path(word.rpartition("=")[2])
    if below not in path.parents or path.exists():
        return
    file = path if path.suffix else path / "documents.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": str(n), "text": f"Text {n}.", "source": f"Text {n}.", "target": "ab"[n % 2]}
        for n in range(40)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.lab
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_comparisons_of_a_script_are_valid(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in calls(folder, tmp_path)[0]:
        if command[0] == "compare":
            for word in command[: command.index("-o")]:
                write_input(word, tmp_path)
            app_command().main([*command, "--dry-run"], standalone_mode=False)
            assert "placebo: " in capsys.readouterr().out


def test_all_goes_on_after_a_failure_and_ends_with_its_status(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    for name, body in {"a": "echo broken; exit 3", "b": 'cp -r "$(dirname "$0")/." "$2"'}.items():
        (scripts / name / "comparison").mkdir(parents=True)
        (scripts / name / "run.sh").write_text(body, encoding="utf-8")
    gap = {"mean": 0.5, "interval": [0.25, 0.75]}
    figures = {
        "corpora": [{"name": "x", "difference": None}, {"name": "y", "difference": gap}],
        "placebo": {"name": "placebo", "difference": {"mean": -0.25, "interval": None}},
        "power": {"detectable": None},
        "seeds": [0],
    }
    written = scripts / "b" / "comparison" / "comparison.json"
    written.write_text(json.dumps(figures), encoding="utf-8")
    for name in ("all.sh", "summary.py"):
        shutil.copy(ROOT / "pipelines" / "experiments" / name, scripts)
    run = subprocess.run(
        ["sh", str(scripts / "all.sh"), "corpora", str(tmp_path / "out")],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    first, second = run.stdout.splitlines()
    assert first.startswith("a, ") and first.endswith(" s: failed: broken")
    assert second.endswith(" s: y +0.5000 (+0.2500 to +0.7500); placebo -0.2500; seeds: 1")
    assert run.returncode == 1


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
    for word in ("Paper:", "Reads:", "Takes", "run.sh CORPORA OUT"):
        assert word in head.replace("\n# ", " "), word
    assert "xpected" not in head
    assert PAGE.count(f"\n| `{folder.name}`: ") == 1
