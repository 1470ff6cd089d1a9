"""The pages' Jinja2 environment: one set of templates, in which every text is escaped.

Values that are not Markup are escaped, and control characters in them made visible, wherever a
template prints them: text from documents, names and settings alike. Jinja2 loads with the first
page.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmcurate.base.disk import units
from llmcurate.base.disk.files import cache_folder, text_digest
from llmcurate.base.pages import html
from llmcurate.base.terminal import output

FOLDER = Path(__file__).parent / "templates"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(template: str, **values: Any) -> str:
    """The page that a template of `templates/` makes of the values, ready to be written as UTF-8.

    `contents` collects (anchor, title) of the sections that hold anything, for the navigation.
    """
    page: str = (
        _environment().get_template(template).render({"contents": [], "policy": POLICY, **values})
    )
    return page.encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    from llmcurate.base.pages import charts

    def finalize(value: Any) -> Any:
        if value is None:
            return ""
        if isinstance(value, str) and not isinstance(value, Markup):
            return output.visible(value)
        return value

    class Cache(FileSystemBytecodeCache):
        """Compiled templates by their content, and this module's, whose options go into them: what
        one checkout compiled stays beside what others did. It may be deleted at any time."""

        def get_cache_key(self, name: str, filename: Any = None) -> str:
            return text_digest(f"{name}\0{source(name)}\0{options}", "xxh3-128")

        def dump_bytecode(self, bucket: Any) -> None:
            with suppress(OSError):  # a folder that cannot be written costs time only
                super().dump_bytecode(bucket)

    options = Path(__file__).read_text(encoding="utf-8")
    folder = _compiled_folder()
    environment = Environment(
        bytecode_cache=Cache(str(folder)) if folder is not None else None,
        loader=FunctionLoader(source),
        autoescape=True,
        optimized=False,  # folding constants costs more than it saves a page
        auto_reload=False,
        trim_blocks=True,
        undefined=StrictUndefined,
        finalize=finalize,
    )
    environment.filters |= {
        "cut": html.plain,
        "name": html.name,
        "document": html.document,
        "quote": html.quote,
        "detail": html.detail,
        "count": units.format_count,
        "counted": units.counted,
        "number": units.format_measure,
        "bytes": units.format_bytes,
        "scaled": lambda number: units.format_scaled(number).strip(),
        "short": units.format_short,
        "zip": lambda rows, others: list(zip(rows, others, strict=False)),
    }
    environment.globals |= {
        "charts": charts,
        "percent": html.percent,
        "word_diff": html.word_diff,
    }
    return environment


def _compiled_folder() -> Path | None:
    """`templates` in the folder for caches; None where it cannot be made, or belongs to somebody
    else. Compiling costs 0.2 s of every process that writes a page."""
    try:
        folder = cache_folder() / "templates"
        folder.mkdir(parents=True, exist_ok=True)
        is_own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        return folder if is_own else None
    except (OSError, RuntimeError):
        return None


def source(template: str) -> str:
    """A template's text, its lines without indentation, so that pages do not carry it."""
    text = (FOLDER / template).read_text(encoding="utf-8")
    return "\n".join(line.lstrip() for line in text.splitlines())
