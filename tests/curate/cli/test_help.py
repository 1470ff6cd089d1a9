"""Help: commands in panels, options under headings."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from curate.cli.app import invoke, whole_app
from curate.cli.options import ORDER, PANELS, SHARED, UNDIVIDED
from curate.cli.settings import settings_classes
from tokenize_kit.learn.options import TrainingOptions
from train.config import TrainConfig

ROOT: Any = typer.main.get_command(whole_app())


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The help of a command."""
    invoke([*arguments, "--help"])
    return capsys.readouterr().out


def sections(text: str) -> dict[str, list[str]]:
    """The first words of the rows of a help, by heading."""
    parts = re.split(r"^(\S[^:\n]*):\n", text, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {name: re.findall(r"^  (\S+)", part, re.MULTILINE) for name, part in pairs}


@pytest.mark.lab
def test_every_command_is_in_one_panel(capsys: pytest.CaptureFixture[str]) -> None:
    found = sections(shown(capsys))
    names = [name for panel in PANELS for name in found[panel] if panel != "Tokenizer"]
    assert sorted(names) == sorted(ROOT.commands.keys() - {"tokenizer"})
    assert set(found["Tokenizer"]) == {"tokenizer"}


def test_the_lab_s_commands_are_the_lab_s_panel() -> None:
    for name, command in ROOT.commands.items():
        inner = getattr(command, "commands", {"": command}).values()
        of_lab = all("curate.lab." in each.callback.__module__ for each in inner)
        assert (command.rich_help_panel == "Lab") == of_lab, name


@pytest.mark.lab
def test_the_order_of_commands_names_commands() -> None:
    names = ROOT.commands.keys() | ROOT.commands["tokenizer"].commands.keys()
    assert set(ORDER) <= names and len(set(ORDER)) == len(ORDER)


def test_summaries_fit_80_columns_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [line for line in shown(capsys).splitlines() if line.startswith("  ")]
    assert all(len(line) <= 78 for line in rows)


@pytest.mark.parametrize(
    "command",
    ["pretrain", "tokenizer train", "compare", pytest.param("mix search", marks=pytest.mark.lab)],
)
def test_many_options_are_grouped_under_headings(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sections(shown(capsys, *command.split()))
    headings = [name for name in found if name != "Arguments"]
    assert headings[:2] == ["Output", "Options"] and headings[-2:] == ["Input", "Run"]
    assert len(headings) >= 6 and max(map(len, found.values())) <= 14


def test_few_options_are_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    found = sections(shown(capsys, "explain"))
    assert len(found["Options"]) <= UNDIVIDED and not SHARED.keys() & found.keys()


def test_help_headings_begin_at_existing_settings() -> None:
    for kind in settings_classes().values():
        assert kind.SECTIONS.keys() <= kind.model_fields.keys(), kind
    for settings in (TrainConfig, TrainingOptions):
        assert settings.SECTIONS.keys() <= vars(settings)["__pydantic_fields__"].keys()
