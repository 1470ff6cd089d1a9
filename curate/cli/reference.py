"""Write the index, the schema of recipes, the reference pages and the types of `llmcurate.steps`
(`make reference`)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from curate.cli.settings import settings_classes
from curate.steps.registry import (
    FILE,
    OPTIONS,
    REGISTRY,
    class_schema,
    is_step,
    recipe_schema,
    schema_text,
    type_text,
    with_source,
)
from llmcurate.base.index import FILE as INDEX
from llmcurate.base.index import index_of, index_text
from llmcurate.base.terminal import echo

FOLDER = "docs/reference"
STUB = "curate/api/steps.pyi"
PYTHON = {
    "array": "Sequence[VALUE]",
    "object": "Mapping[str, VALUE]",
    "path": "str | Path",
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
WORDS = ("step", "reader", "command", "packing")  # decorators whose classes the index lists
INTRODUCTION = """\
# Reference of settings

One page per step of a recipe with its settings, then one per other command with its options. `make
reference` generates them. You can write a setting of a step in a recipe (`- c4: {min_sentences:
3}`), on the command line of any recipe (`--set c4.min_sentences=3`), or as an option of the command
that runs the step (`llmcurate filter c4 --min-sentences 3`). [Recipes](../recipes.md) explains how
to write a recipe.
"""


def reference_pages(schema: dict[str, Any]) -> dict[str, str]:
    """Return {file name: page in Markdown} for the steps in the schema and for the commands."""
    # Names in upper case are types of settings.
    steps = {n: d for n, d in schema["$defs"].items() if not n[0].isupper()}
    commands = {
        f"llmcurate {command.command}": class_schema(command)
        for command in settings_classes().values()
    }
    pages = {
        f"{name.replace(' ', '-')}.md": _page(name, definition, name in steps, schema)
        for name, definition in (steps | commands).items()
    }
    parts = [INTRODUCTION]
    for title, chapters in (("Steps", steps), ("Commands", commands)):
        rows = [f"## {title}\n", f"| {title.lower()[:-1]} | |", "|---|---|"]
        rows += [
            f"| [`{name}`]({name.replace(' ', '-')}.md) | {_first_sentence(definition)} |"
            for name, definition in chapters.items()
        ]
        names = "\n".join(name.replace(" ", "-") for name in chapters)
        parts += ["\n".join(rows) + "\n", f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"]
    return {"index.md": "\n".join(parts)} | pages


def _page(name: str, definition: dict[str, Any], is_step: bool, schema: dict[str, Any]) -> str:
    paper = f" Published: {definition['paper']}." if "paper" in definition else ""
    parts = [f"# `{name}`\n\n{definition.get('description', '')}{paper}\n"]
    rows = []
    for key, field in definition["properties"].items():
        value = field.get("default")
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        usual = "empty" if value in ("", [], {}) else "none" if value is None else f"`{shown}`"
        cells = (
            f"`{key}`" if is_step else f"`--{key.replace('_', '-')}`",
            type_text(field, schema),
            usual if "default" in field else "required",
            field.get("description", ""),
        )
        rows.append("| " + " | ".join(_cell(cell) for cell in cells) + " |\n")
    if rows:
        head = f"| {'setting' if is_step else 'option'} | type | default | |\n|---|---|---|---|\n"
        parts.append(head + "".join(rows))
    return "\n".join(parts)


def options_schema() -> dict[str, Any]:
    """Return the options of the commands that run no step, by class."""
    shared = "train.generation_settings"  # the fields of these classes are options too
    definitions = {n: with_source(k, n, shared) for n, k in settings_classes().items()}
    return {"title": "Options of the commands of llmcurate", "$defs": definitions}


def stub(schema: dict[str, Any]) -> str:
    """Return the types of `llmcurate.steps`, from which editors complete steps and settings."""
    parts = [
        "# Written by `make reference`.\n\n"
        "from collections.abc import Mapping, Sequence\nfrom pathlib import Path\n"
        "from typing import Any, Literal\n\nfrom curate.steps.contracts import Settings\n"
    ]
    for name in filter(REGISTRY.get, schema["$defs"]):
        definition = schema["$defs"][name]
        fields = sorted(definition["properties"].items(), key=lambda item: "default" in item[1])
        rows = "".join(
            f"        {key}: {_python_type(field)}{' = ...' * ('default' in field)},\n"
            for key, field in fields
        )
        title = "".join(map(str.capitalize, name.split("_")))
        parts.append(f'class {title}(Settings):\n    """{_first_sentence(definition)}"""\n')
        settings = f"\n        self,\n        *,\n{rows}    " if rows else "self"
        parts.append(f"    def __init__({settings}) -> None: ...\n")
    return "\n".join(parts)


def _python_type(field: dict[str, Any]) -> str:
    if kinds := field.get("anyOf"):
        return " | ".join(dict.fromkeys(map(_python_type, kinds)))
    if "enum" in field:
        return f"Literal[{', '.join(map(json.dumps, field['enum']))}]"
    kind = str(field.get("format" if field.get("format") == "path" else "type"))
    inner = field.get("items" if kind == "array" else "additionalProperties")
    value = _python_type(inner) if isinstance(inner, dict) else "Any"
    return PYTHON.get(kind, "Any").replace("VALUE", value)


def _first_sentence(definition: dict[str, Any]) -> str:
    words = " ".join(definition.get("description", "").split())
    return _cell(re.split(r"(?<=[.:]) (?=[A-Z`])", words)[0])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    index = index_text("curate", WORDS)
    Path(f"curate/{INDEX}").write_text(index, encoding="utf-8")
    echo(f"wrote curate/{INDEX}")
    names = list(index_of("curate")["step"])
    for name in names:
        is_step(name)
    schema = recipe_schema(names)
    Path(f"pipelines/{FILE}").write_text(schema_text(schema), encoding="utf-8")
    echo(f"wrote pipelines/{FILE}")
    Path(f"pipelines/{OPTIONS}").write_text(schema_text(options_schema()), encoding="utf-8")
    echo(f"wrote pipelines/{OPTIONS}")
    Path(STUB).write_text(stub(schema), encoding="utf-8")
    echo(f"wrote {STUB}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    Path(FOLDER).mkdir(parents=True)
    for name, text in reference_pages(schema).items():
        (Path(FOLDER) / name).write_text(text, encoding="utf-8")
    echo(f"wrote {FOLDER}")


if __name__ == "__main__":
    main()
