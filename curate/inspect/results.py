"""The results of an inspection: NAME.json and NAME.html in OUT, and what the command prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import make_folder, write_text
from llmcurate.base.terminal.output import echo, echo_json
from llmcurate.base.terminal.progress import say


def check_folder(out: Path | None) -> None:
    """Makes OUT before the work is done; UsageError where it cannot be made."""
    if out is not None:
        make_folder(out)


def write(out: Path, data: dict[str, Any], page: str, name: str = "evaluation") -> list[Path]:
    """OUT/NAME.json and OUT/NAME.html."""
    check_folder(out)
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    paths = [out / f"{name}.json", out / f"{name}.html"]
    for path, content in zip(paths, (text, page), strict=True):
        write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
    return paths


def show(
    data: dict[str, Any],
    text: Callable[[], str],
    page: Callable[[], str],
    out: Path | None,
    as_json: bool,
    name: str = "evaluation",
    colours: bool = False,
) -> None:
    """Prints the results as text or as one line of JSON, and with OUT writes them. colours: as of
    `echo`."""
    if not as_json:
        echo(text(), colours)
    if out is not None:
        for path in write(out, data, page(), name):
            say(f"wrote {path}", as_json)
    if as_json:
        echo_json(data)
