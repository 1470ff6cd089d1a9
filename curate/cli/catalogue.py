"""`llmcurate recipes`, `steps` and `schema`: what there is to run, and what it can be told."""

from __future__ import annotations

import json
from typing import Annotated, Any, Optional

import typer

from curate.cli import completion
from curate.cli.options import DEFAULT, app
from curate.cli.settings import SettingsCommand
from llmcurate.base.terminal import echo

READ = "read"  # the section of a recipe that is no step


@app.command()
def recipes(
    name: Annotated[
        Optional[str],
        typer.Argument(
            help="A shipped recipe, whose YAML is printed.", autocompletion=completion.recipes
        ),
    ] = None,
) -> None:
    """List the shipped recipes, or print one.

    \b
    Examples:
    llmcurate recipes
    llmcurate recipes fineweb > mine.yaml
    """
    from curate.steps.shipped import shipped, text_of
    from llmcurate.base.terminal import table

    if name is not None:
        echo(text_of(name), end="")
        return
    rows = [(recipe.name, recipe.description, recipe.paper) for recipe in shipped()]
    echo("\n".join(table(("recipe", "what it is", "published"), rows, left=(0, 1, 2))))
    echo("\nllmcurate run NAME IN... -o OUT runs one, llmcurate recipes NAME prints its YAML")


@app.command()
def steps(
    name: Annotated[
        Optional[str],
        typer.Argument(help="A step, whose settings are printed.", autocompletion=completion.steps),
    ] = None,
) -> None:
    """List the steps of recipes, or print the settings of one.

    Steps of installed plug-ins are among them.

    \b
    Examples:
    llmcurate steps
    llmcurate steps dedup_minhash
    """
    from curate.steps.registry import REGISTRY, definition_of, step_names
    from llmcurate.base.terminal import table

    if name is not None:
        echo(_step_text(name))
        return
    names = [*REGISTRY, *(n for n in step_names() if n not in REGISTRY)]
    rows = [(n, definition_of(n)["description"]) for n in names]
    echo("\n".join(table(("step", "what it does"), rows, left=(0, 1))))
    echo("\nllmcurate steps NAME prints the settings of one, with an example")


def _step_text(name: str) -> str:
    """A step with its settings, each in a paragraph, and two examples."""
    from textwrap import fill

    from curate.steps.registry import definition_of, shipped_schema

    definition = definition_of(name)
    lines = [f"{name}: {definition['description']}"]
    if paper := definition.get("paper"):
        lines.append(f"published: {paper}")
    setting = _shown_setting(definition)
    item = "" if name == READ else "- "
    lines += ["", "in a recipe:", f"  {item}{_entry(name, setting)}"]
    if name != READ and (command := _command_of(name, setting)):
        lines += ["on the command line:", f"  {command}"]
    lines += ["", "settings:"]
    schema = {"$defs": shipped_schema()["$defs"] | definition.get("$defs", {})}
    for setting, field in definition.get("properties", {}).items():
        lines.append(f"  {setting}: {_facts(field, schema)}")
        if text := field["description"]:
            lines.append(fill(text, 96, initial_indent="      ", subsequent_indent="      "))
    return "\n".join(lines)


def _facts(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Type, limits and default of a setting."""
    from curate.steps.registry import type_text

    kind = type_text(field, schema)
    if "default" not in field:
        return f"{kind}, required"
    value = field["default"]
    if value in (None, "", [], {}):
        return f"{kind}, by default none"
    return f"{kind}, by default {value if isinstance(value, str) else json.dumps(value)}"


def _shown_setting(definition: dict[str, Any]) -> tuple[str, Any] | None:
    """A setting for an example, with its default: the first choice, else the first number."""
    fields = definition.get("properties", {}).items()
    for name, field in sorted(fields, key=lambda entry: "enum" not in entry[1]):
        value = field.get("default")
        if "enum" in field or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            return name, value
    return None


def _entry(name: str, setting: tuple[str, Any] | None) -> str:
    """The step as a recipe has it."""
    return name if setting is None else f"{name}: {{{setting[0]}: {setting[1]}}}"


def _command_of(name: str, setting: tuple[str, Any] | None) -> str | None:
    """A command line that runs the step alone; None where there is none."""
    root = typer.main.get_command(app)
    groups: list[tuple[tuple[str, ...], Any]] = [((), root)]
    while groups:
        words, group = groups.pop(0)
        for word, command in group.commands.items():
            path = words if word == DEFAULT else (*words, word)
            if hasattr(command, "commands"):
                groups.append((path, command))
                continue
            call = _call(command, name) if isinstance(command, SettingsCommand) else None
            if call is None:
                continue
            flag = f"--{setting[0].replace('_', '-')}" if setting else ""
            command.offer(call)
            offered = any(flag in parameter.opts for parameter in command.params)
            option = f"{flag} {setting[1]}" if setting and offered else ""
            return " ".join(filter(None, ("llmcurate", *path, *call, "IN... -o OUT", option)))
    return None


def _call(command: SettingsCommand, name: str) -> list[str] | None:
    """The words with which a command runs the step; None where it does not."""
    from curate.dedup.methods import methods

    if name in command.choices:
        return [name]
    if [step for step, _ in type(command).steps([])] == [name]:
        return []
    for method, of_method in methods().items():
        words = ["--method", method]
        if type(command).steps(words) == of_method and [step for step, _ in of_method] == [name]:
            return words
    return None


@app.command()
def schema() -> None:
    """Print the JSON schema of recipes.

    It holds every step with its settings, those of installed plug-ins too. Editors check recipes
    and complete their keys with it; the shipped recipes name it in their first line.

    \b
    Example:
    llmcurate schema > recipe.schema.json
    """
    from curate.steps.registry import recipe_schema, schema_text

    echo(schema_text(recipe_schema()), end="")
