"""Command options are generated from the settings of the steps that a command runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from curate.api.command_settings import CommandSettings, Fetch
from curate.cli.app import invoke, whole_app
from curate.cli.reference import FOLDER, STUB, options_schema, reference_pages, stub
from curate.cli.settings import SettingsCommand, setting_options, settings_classes
from curate.dedup.methods import methods
from curate.steps.registry import (
    OPTIONS,
    REGISTRY,
    recipe_schema,
    schema_text,
    settings_of,
    summary_of,
)
from llmcurate.base.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The help of a command."""
    invoke([*arguments, "--help"])
    return capsys.readouterr().out


def all_commands() -> dict[tuple[str, ...], Any]:
    """The commands of the app by the words that call them."""
    import typer

    groups = [((), typer.main.get_command(whole_app()))]
    commands: dict[tuple[str, ...], Any] = {}
    while groups:
        words, group = groups.pop()
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                groups.append(((*words, name), command))
            else:
                commands[(*words, name)] = command
                if hasattr(command, "offer"):
                    command.offer([])
    return commands


def test_options_are_the_settings_of_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, "extract").split())
    for name in settings_of("extract"):
        assert f"--{name.replace('_', '-')}" in text
    assert "blocks, resiliparse, trafilatura" in text and "default: 5,242,880" in text


@pytest.mark.parametrize("method", methods())
def test_a_method_offers_its_own_options_alone(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, "dedup", "--method", method).partition("Options:")[2]
    offered = setting_options(methods()[method], {}, set())
    every = {
        setting for steps in methods().values() for setting in setting_options(steps, {}, set())
    }
    words = text.replace("/", " ").split()
    for setting in every - {"key"}:
        assert (f"--{setting.replace('_', '-')}" in words) == (setting in offered), setting


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dedup", "--method", "exact", "x", "--verify", "0.8"], "--verify needs --method minhash"),
        (["dedup", "x", "--ngram=5"], "--ngram needs --method minhash or bloom"),
        (["filter", "c4", "x", "--min-words", "8"], "--min-words needs the filter gopher_quality"),
        (["filter", "c4", "x", "--nothing", "8"], "No such option"),
        (["extract", "x", "--max-html-bytes", "many"], "--max-html-bytes"),
        (["extract", "x", "-o", "y", "--max-html-bytes", "0"], "max_html_bytes"),
        (["dedup", "x", "-o", "y", "--key", "title"], "key"),
    ],
)
def test_a_wrong_option_is_a_one_line_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


def test_command_options_reach_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "in.jsonl"
    corpus.write_text(json.dumps({"id": "a", "text": "Only one sentence is here."}) + "\n")
    out = tmp_path / "out"
    line = ["filter", "c4,newline_runs", str(corpus), "-o", str(out), "--workers", "1"]
    assert invoke([*line, "--min-sentences", "1", "--no-require-end-mark", "--most", "3"]) == 0
    recipe = (out / "recipe.yaml").read_text()
    assert "min_sentences: 1" in recipe and "require_end_mark: false" in recipe
    assert "most: 3" in recipe and "kept 1 document (" in capsys.readouterr().out


def test_a_list_is_read_as_the_setting_reads_it() -> None:
    from curate.cli.settings import _value

    assert _value([("language", {})], "keep", ["en,de"]) == "en,de"
    assert _value([("language", {})], "keep", ["en", "de"]) == ("en", "de")
    assert _value([("tokenizer", {})], "special_tokens", ["<a>"]) == ("<a>",)
    assert _value([("tokenizer", {})], "special_tokens", []) is None


def test_every_filter_is_in_the_help_of_filter(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "filter").splitlines()
    for name, place in REGISTRY.items():
        if place.startswith("curate.filters."):
            start = " ".join(summary_of(name).split()[:4])
            assert any(line.startswith(f"  {name}  ") and start in line for line in lines), name


def test_every_method_is_in_the_help_of_dedup(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "dedup").splitlines()
    for method in methods():
        assert any(line.startswith(f"  {method}  ") for line in lines), method


def test_help_summaries_are_complete_and_examples_have_a_line_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in [(), *{words[:-1] for words in all_commands() if len(words) > 1}]:
        start = "Commands:" if words else "Curate:"
        summaries = shown(capsys, *words).partition(start)[2].splitlines()
        assert not any(line.endswith("...") for line in summaries), words
    for words in all_commands():
        words = tuple(word for word in words if word != "default")
        for line in shown(capsys, *words).splitlines():
            assert not line.strip().startswith(("Example: ", "Examples: ")), words
            assert line.count("llmcurate ") <= 2, line


def test_help_of_options_is_whole_sentences() -> None:
    for words, command in all_commands().items():
        if isinstance(command, SettingsCommand):
            command.offer([])
        for parameter in command.params:
            text = getattr(parameter, "help", "") or "A sentence."
            sentence = text.split(" [")[0]
            assert sentence[0].isupper() or sentence[0].isdigit() or " " not in words, text


def test_the_reference_pages_are_those_of_the_fields() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / FOLDER).iterdir()}
    schema = recipe_schema(list(REGISTRY))
    assert pages == reference_pages(schema), "run `make reference`"
    assert (ROOT / STUB).read_text(encoding="utf-8") == stub(schema), "run `make reference`"


def test_options_are_shipped_as_their_classes_state_them_and_load_none() -> None:
    shipped = (ROOT / "pipelines" / OPTIONS).read_text(encoding="utf-8")
    assert shipped == schema_text(options_schema()), "run `make reference`"
    code = "import sys; from curate.cli.settings import fields_of; fields_of('Generate')"
    code += "; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.lab
@pytest.mark.parametrize(
    "settings", settings_classes().values(), ids=lambda settings: str(settings.command)
)
def test_a_command_offers_the_fields_of_its_class(
    settings: type[CommandSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = shown(capsys, *settings.command.split()).split()
    for name in settings.model_fields:
        assert f"--{name.replace('_', '-')}" in words, name


def test_a_wrong_value_names_its_option() -> None:
    with pytest.raises(UsageError, match="--parallel is 65: give 64 or less"):
        Fetch.of(parallel=65)


def test_values_are_named_in_upper_case(capsys: pytest.CaptureFixture[str]) -> None:
    for words in all_commands():
        text = shown(capsys, *(word for word in words if word != "default"))
        assert not re.search(r"^ +-\S+(, --\S+)? <|^Usage:.*[<{]|\[\[", text, re.M), words


def test_help_of_a_method_loads_no_step() -> None:
    code = (
        "import sys; from curate.cli.app import invoke\n"
        "invoke(['dedup', '--help'])\n"
        "heavy = {'torch','numba','pyarrow','numpy','duckdb','curate.steps.contracts'}\n"
        "heavy &= set(sys.modules)\n"  # Typer itself may load pydantic to read arguments
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
