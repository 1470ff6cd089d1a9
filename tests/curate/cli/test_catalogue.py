"""`llmcurate recipes` and `steps` list everything; the shell completes the same words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import curate
from curate.cli import completion
from curate.cli.app import invoke, whole_app
from curate.steps.recipe import parse
from curate.steps.registry import REGISTRY, settings_of
from curate.steps.shipped import names
from tests.curate.command_line import completed_here, environment
from tests.parameters import mostly_slow


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints."""
    assert invoke(list(arguments)) == 0
    return capsys.readouterr().out


def process(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program of Python that sees these variables."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_every_recipe_has_a_line_with_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "recipes").splitlines()
    by_name = {line.split()[0]: line for line in lines if line}
    assert set(names()) <= set(by_name)
    assert "Raffel et al. 2020" in by_name["c4"]


def test_a_recipe_is_printed_as_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "recipes", "fineweb")
    assert parse(text, "fineweb.yaml").paper.startswith("Penedo")


def test_every_step_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "steps").splitlines()
    assert set(REGISTRY) <= {line.split()[0] for line in lines if line}


@pytest.mark.parametrize("name", REGISTRY)
def test_a_step_is_shown_with_all_settings_and_an_example_that_runs(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "steps", name)
    shown = re.findall(r"(?m)^  (\w+): ", text.partition("settings:")[2])
    assert shown == settings_of(name)
    (entry,) = yaml.safe_load(re.search(r"(?m)^  (- .*)$", text)[1])
    assert (entry if isinstance(entry, str) else next(iter(entry))) == name


def test_a_step_that_is_not_there_is_a_one_line_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["steps", "gofer_quality"]) == 2
    assert "did you mean 'gopher_quality'?" in capsys.readouterr().err


def test_subcommands_of_every_group_are_completed() -> None:
    root: Any = typer.main.get_command(whole_app())
    groups = {n: c for n, c in root.commands.items() if hasattr(c, "commands")}
    assert {"quality", "dedup", "tokenizer"} <= groups.keys()
    for name, group in groups.items():
        with group.make_context(name, [], resilient_parsing=True) as context:
            offered = [item.value for item in group.shell_complete(context, "")]
        shown = [word for word, command in group.commands.items() if not command.hidden]
        assert offered == shown, name
    assert completed_here("quality", "tr") == ["train"]
    assert "--method" in completed_here("dedup", "--me")


def test_suggested_commands_have_the_options_that_they_name() -> None:
    calls = [
        call
        for file in Path(curate.__file__).parent.rglob("*.py")
        if "suggest(" in (text := file.read_text("utf-8"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "suggest"
    ]
    root, checked = typer.main.get_command(whole_app()), 0
    for call in calls:
        constants = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant)]
        words = [word for word in constants if isinstance(word, str)]
        command: Any = root
        path: list[str] = []
        while hasattr(command, "commands") and words and words[0] in command.commands:
            path.append(words.pop(0))
            command = command.commands[path[-1]]
        if not path:
            continue
        command = getattr(command, "commands", {}).get("default", command)
        if hasattr(command, "offer"):
            command.offer([])
        known = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
        wrong = [word for word in words if word.startswith("-") and word not in known]
        assert not wrong, f"suggest {' '.join(path)}: {wrong}"
        checked += 1
    assert checked > 10


def test_words_are_completed_without_anything_heavy() -> None:
    offered = {
        "run dclm": ["dclm-baseline"],
        "filter c4,gopher_q": ["c4,gopher_quality"],
        "run fineweb in --set dedup_minhash.band": ["dedup_minhash.bands="],
        "filter c4 in --min-sen": ["--min-sentences"],
    }
    code = (
        "import os, sys\nfrom curate.cli.app import main\nsys.argv = ['llmcurate']\n"
        f"for line in {list(offered)}:\n"
        "    words = {'COMP_WORDS': 'llmcurate ' + line, 'COMP_CWORD': str(len(line.split()))}\n"
        "    os.environ.update(words)\n"
        "    try:\n        main()\n    except SystemExit:\n        print(flush=True)\n"
        "heavy = {'numba', 'torch', 'pyarrow', 'numpy', 'duckdb', 'ray'} & set(sys.modules)\n"
        "print(*heavy, file=sys.stderr)"
    )
    done = process(code, _LLMCURATE_COMPLETE="complete_bash")
    assert done.stdout.split() == [word for words in offered.values() for word in words]
    assert done.stderr.split() == []


def test_settings_are_those_of_the_recipe_that_was_typed() -> None:
    class Typed:
        params: dict[str, Any] = {}
        args = ["run", "c4"]

    sections = completion.settings(Typed(), "")  # type: ignore[arg-type]
    assert "read." in sections and "c4." in sections and "pii." not in sections


def test_a_filter_is_offered_once() -> None:
    assert "c4,c4" not in completion.filters("c4,")
    assert "c4,pii" in completion.filters("c4,")


@pytest.mark.parametrize("shell", mostly_slow(["bash", "zsh", "fish"]))
def test_completion_has_a_script_for_the_shell(shell: str) -> None:
    code = "from curate.cli.app import main; main()"
    result = process(code, _LLMCURATE_COMPLETE=f"source_{shell}")
    assert "_LLMCURATE_COMPLETE" in result.stdout or "complete" in result.stdout
