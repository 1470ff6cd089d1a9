"""The results of an inspection: NAME.json and NAME.html in OUT, and the text for the terminal."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from curate.run.records import command_line
from llmcurate.base.disk.files import make_folder, write_text
from llmcurate.base.messages import json_values
from llmcurate.base.pages import html
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import echo, echo_json, say

COMMAND = 600  # characters of the command on a page


def check_folder(out: Path | None) -> None:
    """Create OUT before the work begins. Raises UsageError if the folder cannot be created."""
    if out is not None:
        make_folder(out)


def made() -> list[tuple[str, str]]:
    """Return (title, value) pairs for the head of a page: the date and the command."""
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    return [("made", now), ("command", plain(command_line(), COMMAND))]


class Findings(ABC):
    """The figures of an inspection as JSON, as lines for the terminal and as a page."""

    NAME: ClassVar[str] = "evaluation"  # name of the files in OUT
    JSON: ClassVar[str | Sequence[str] | None] = None  # fields, as for `json_values`
    TEMPLATE: ClassVar[str]  # of the page
    SHOWN: ClassVar[dict[str, Any]] = {}  # functions and constants for the template

    @abstractmethod
    def text(self) -> str:
        """Return the lines for the terminal."""

    def page(self) -> str:
        """Return the page as HTML, for the file OUT/NAME.html (NAME is a constant of the class)."""
        return html.render(self.TEMPLATE, findings=self, made=made(), **self.SHOWN)

    def write(self, out: Path) -> list[Path]:
        """Write OUT/NAME.json and OUT/NAME.html, and return their paths."""
        check_folder(out)
        text = json.dumps(json_values(self), indent=1, ensure_ascii=False) + "\n"
        paths = [out / f"{self.NAME}.json", out / f"{self.NAME}.html"]
        for path, content in zip(paths, (text, self.page()), strict=True):
            write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
        return paths

    def show(self, out: Path | None, as_json: bool) -> None:
        """Print the text, or one line of JSON. Also write the files if OUT is given."""
        if not as_json:
            echo(self.text())
        if out is not None:
            for path in self.write(out):
                say(f"wrote {path}", as_json)
        if as_json:
            echo_json(json_values(self))


@dataclass(frozen=True)
class Computed(Findings):
    """Results that another package computed. Their JSON is that package's dict `figures`."""

    JSON = "figures"
    figures: dict[str, Any]
