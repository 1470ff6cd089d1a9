"""The index, the schema of recipes and the page of settings: `make reference` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from curate.cli.settings import settings_classes
from curate.steps.registry import FILE, class_schema, is_step, recipe_schema, schema_text, type_text
from llmcurate.base.index import FILE as INDEX
from llmcurate.base.index import index_of, index_text
from llmcurate.base.terminal import echo

PAGE = "docs/reference.md"
WORDS = ("step", "reader", "command", "packing")  # what decorators declare things of curate
INTRODUCTION = """\
# Reference of settings

Every step of a recipe with its settings, then the other commands with their options, made from the
fields of the settings by `make reference`. A setting of a step is written in a recipe
(`- c4: {min_sentences: 3}`), on the command line of any recipe (`--set c4.min_sentences=3`), or as
an option of the command that runs the step (`llmcurate filter c4 --min-sentences 3`). How a recipe
is put together: [recipes](recipes.md).
"""


def reference_page(schema: dict[str, Any]) -> str:
    """The page, in Markdown, of a schema of recipes."""
    # Names in upper case are shapes of single settings.
    steps = {n: d for n, d in schema["$defs"].items() if not n[0].isupper()}
    commands = [f"llmcurate {command.command}" for command in settings_classes().values()]
    parts = [INTRODUCTION, f"Steps: {_links(steps)}.\n", f"Commands: {_links(commands)}.\n"]
    chapters = [("read" if name == "read" else f"`{name}`", d) for name, d in steps.items()]
    chapters += [
        (f"`llmcurate {command.command}`", class_schema(command))
        for command in settings_classes().values()
    ]
    for title, definition in chapters:
        is_step = not title.startswith("`llmcurate ")
        paper = f" Published: {definition['paper']}." if is_step and "paper" in definition else ""
        parts.append(f"## {title}\n\n{definition.get('description', '')}{paper}\n")
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
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
        if rows:
            head = (
                f"| {'setting' if is_step else 'option'} | type | default | |\n|---|---|---|---|\n"
            )
            parts.append(head + "".join(rows))
    return "\n".join(parts)


def _links(names: Iterable[str]) -> str:
    return ",\n".join(f"[{n.removeprefix('llmcurate ')}](#{n.replace(' ', '-')})" for n in names)


def main() -> None:
    """Writes the index, the schema's file and the page, in the current folder."""
    index = index_text("curate", WORDS)
    Path(f"curate/{INDEX}").write_text(index, encoding="utf-8")
    echo(f"wrote curate/{INDEX}")
    names = list(index_of("curate")["step"])
    for name in names:
        is_step(name)
    schema = recipe_schema(names)
    for path, text in ((f"pipelines/{FILE}", schema_text(schema)), (PAGE, reference_page(schema))):
        Path(path).write_text(text, encoding="utf-8")
        echo(f"wrote {path}")


if __name__ == "__main__":
    main()
