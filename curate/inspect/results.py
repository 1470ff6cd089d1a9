"""The findings of an inspection: NAME.json and NAME.html in OUT, and what the command prints."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

from llmcurate.base.disk.files import make_folder, write_text
from llmcurate.base.terminal.output import echo, echo_json
from llmcurate.base.terminal.progress import say

OPTIONAL = {"optional": True}  # metadata of a field that JSON leaves out where it is None


def check_folder(out: Path | None) -> None:
    """Makes OUT before the work is done; UsageError where it cannot be made."""
    if out is not None:
        make_folder(out)


def values(record: Any) -> Any:
    """JSON values: of a dataclass its fields in their order, unless it has a `dump` of its own."""
    if hasattr(record, "dump"):
        return record.dump()
    if hasattr(record, "_asdict"):  # a named tuple
        return record._asdict()
    if is_dataclass(record):
        return field_values(record)
    if isinstance(record, dict):
        return {name: values(value) for name, value in record.items()}
    return [*map(values, record)] if isinstance(record, (list, tuple)) else record


def field_values(record: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON values."""
    pairs = ((each, getattr(record, each.name)) for each in fields(record))
    return {
        each.name: values(value)
        for each, value in pairs
        if value is not None or "optional" not in each.metadata
    }


class Findings(ABC):
    """The figures of an inspection, for programs, for a terminal and as a page."""

    NAME: ClassVar[str] = "evaluation"  # of the files in OUT

    def dump(self) -> dict[str, Any]:
        """JSON values."""
        return field_values(self)

    @abstractmethod
    def text(self) -> str:
        """Lines for a terminal."""

    @abstractmethod
    def page(self) -> str:
        """NAME.html."""

    def write(self, out: Path) -> list[Path]:
        """Writes OUT/NAME.json and OUT/NAME.html."""
        check_folder(out)
        text = json.dumps(self.dump(), indent=1, ensure_ascii=False) + "\n"
        paths = [out / f"{self.NAME}.json", out / f"{self.NAME}.html"]
        for path, content in zip(paths, (text, self.page()), strict=True):
            write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
        return paths

    def show(self, out: Path | None, as_json: bool, colours: bool = False) -> None:
        """Prints text or one line of JSON, and with OUT writes the files. colours: as of `echo`."""
        if not as_json:
            echo(self.text(), colours)
        if out is not None:
            for path in self.write(out):
                say(f"wrote {path}", as_json)
        if as_json:
            echo_json(self.dump())


@dataclass(frozen=True)
class Computed(Findings):
    """The figures of a package below curate, as it computed them, under the names of their JSON."""

    figures: dict[str, Any]

    def dump(self) -> dict[str, Any]:
        return self.figures
