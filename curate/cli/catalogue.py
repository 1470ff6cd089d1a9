"""`llmcurate recipes`, `steps` and `schema`: list recipes, steps and their settings."""

from __future__ import annotations

import json
from typing import Annotated, Optional

import typer

from curate.cli import completion
from curate.cli.options import app
from llmcurate.base.terminal import echo, table, width, wrapped

READ = "read"  # a section of a recipe, not a step


@app.command(rich_help_panel="Curate")
def recipes(
    name: Annotated[
        Optional[str],
        typer.Argument(
            help="Print the YAML of this shipped recipe.", autocompletion=completion.recipes
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

    if name is not None:
        echo(text_of(name), end="", as_it_is=True)
        return
    rows = [(recipe.name, recipe.description, recipe.paper) for recipe in shipped()]
    echo("\n".join(table(("recipe", "what it is", "published"), rows, left=(0, 1, 2))))
    echo("\n`llmcurate run NAME IN... -o OUT` runs a recipe, `llmcurate recipes NAME` prints it")


@app.command(rich_help_panel="Curate")
def steps(
    name: Annotated[
        Optional[str],
        typer.Argument(help="Print the settings of this step.", autocompletion=completion.steps),
    ] = None,
) -> None:
    """List the steps of recipes, or print the settings of one.

    The list includes the steps of installed plug-ins.

    \b
    Examples:
    llmcurate steps
    llmcurate steps dedup_minhash
    """
    from curate.steps.registry import REGISTRY, definition_of, step_names

    if name is not None:
        echo(_step_text(name))
        return
    names = [*REGISTRY, *(n for n in step_names() if n not in REGISTRY)]
    rows = [(n, definition_of(n)["description"]) for n in names]
    echo("\n".join(table(("step", "what it does"), rows, left=(0, 1))))
    echo("\n`llmcurate steps NAME` prints the settings of a step, with an example")


def _step_text(name: str) -> str:
    from curate.steps.registry import FILE, definition_of, shipped_schema, type_text

    definition = definition_of(name)
    lines = [f"{name}: {definition['description']}"]
    if paper := definition.get("paper"):
        lines.append(f"published: {paper}")
    fields = definition.get("properties", {})
    choices_first = sorted(fields.items(), key=lambda entry: "enum" not in entry[1])
    numbers = (int, float)  # but not bool
    shown = (n for n, f in choices_first if "enum" in f or type(f.get("default")) in numbers)
    setting = next(((n, fields[n].get("default")) for n in shown), None)
    item = name if name == READ else f"- {name}"
    item += f": {{{setting[0]}: {setting[1]}}}" if setting else ""
    lines += ["", "in a recipe:", f"  {item}"]
    lines += ["", "settings:"]
    schema = {"$defs": shipped_schema(FILE)["$defs"] | definition.get("$defs", {})}
    for key, field in fields.items():
        kind, value = type_text(field, schema), field.get("default")
        default = "none" if value in (None, "", [], {}) else value
        text = default if isinstance(default, str) else json.dumps(default)
        usual = f"by default {text}" if "default" in field else "required"
        lines.append(f"  {key}: {kind}, {usual}")
        if text := field["description"]:
            lines += wrapped(f"      {text}", width(), 6)
    return "\n".join(lines)


@app.command(rich_help_panel="Operate")
def schema() -> None:
    """Print the JSON schema of recipes.

    The schema has every step and setting, including those of installed plug-ins. Editors use it to
    check recipes and to complete keys; the first line of each shipped recipe points to it.

    \b
    Example:
    llmcurate schema > recipe.schema.json
    """
    from curate.steps.registry import recipe_schema, schema_text

    echo(schema_text(recipe_schema()), end="", as_it_is=True)
