"""The formats that are read, each by a module that says so.

A reader is a module of this package with

    @reader("pdf", endings=(".pdf",))   the format, with fields of `Format` as plain values
    read(portion) -> events             documents (or tables of them), other records, damage
    slices(file, target) -> [(start, end), ...]    how a large file is cut; without it, not at all
    COLUMNS = {name: kind}                         what it states beside what every document has
    why_no_documents(path, columns) -> str | None  why a file in a folder is passed over

of which only `read` must be. The index (llmcurate/base/index.py) holds what decorators say; a file
of no format that it knows makes us look through the sources. A module is imported when a file of
its format is met, and imports the library that it stands on when it reads one. A file's format is
told by its name, else by how its content begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from llmcurate.base.index import Declared, declared, index_of

if TYPE_CHECKING:  # arrow takes a fifth of a second, and who asks for a format may need no reader
    from curate.formats.columns import Columns

WORD = "reader"  # the decorator
Read = TypeVar("Read", bound=Callable[..., Any])


def reader(name: str, **facts: Any) -> Callable[[Read], Read]:
    """Says that a function reads a format, whose fields are these. Sources are asked for it, so the
    function stays as it is."""
    return lambda read: read


@dataclass(frozen=True)
class Format:
    """name: as run.json has it; module: reads it; endings: of file names; begins: a pattern of how
    the unpacked content begins, of which no two fit one file; pages: its documents are web pages,
    of which `extract` makes text; package: what it imports, where that is not installed with
    llmcurate; extra: which brings it."""

    name: str
    module: str
    endings: Sequence[str] = ()
    begins: str | None = None
    pages: bool = False
    package: str = ""
    extra: str = ""

    @property
    def reader(self) -> Any:
        """The module."""
        return import_module(self.module)

    @property
    def missing(self) -> str | None:
        """What to do where the package is not there."""
        if not self.package or find_spec(self.package) is not None:
            return None
        return f"pip install 'llmcurate[{self.extra}]' reads it"


class _Formats(dict[str, Format]):
    """Formats by name: those of the index, and those that the sources have beside them."""

    def take(self, found: Iterable[Declared]) -> bool:
        """Takes up those that are new; returns whether any is."""
        new = [each for each in found if each.name not in self]
        self.update({each.name: Format(each.name, each.module, **each.facts) for each in new})
        return bool(new)

    def take_new(self) -> bool:
        """Takes up what the index lacks."""
        return self.take(declared("curate", WORD).values())

    def __missing__(self, name: str) -> Format:
        if self.take_new():
            return self[name]
        raise KeyError(name)


FORMATS = _Formats()
FORMATS.take(index_of("curate")[WORD].values())
PACKING = (".gz", ".zst", ".zstd", ".lz4", ".bz2", ".xz")
HEAD = 4096  # bytes by which a content is told


def format_by_name(name: str) -> str | None:
    """A file's format as its name tells it."""
    lower = name.lower()
    for ending in PACKING:
        lower = lower.removesuffix(ending)
    return _first(lambda kind: lower.endswith(tuple(kind.endings)))


def _first(fits: Callable[[Format], bool]) -> str | None:
    """The format that fits a file: of those that the index knows, else of all in the sources."""
    for kind in FORMATS.values():
        if fits(kind):
            return kind.name
    return _first(fits) if FORMATS.take_new() else None


def format_by_content(path: str, columns: Columns) -> str | None:
    """A file's format as its first bytes tell it."""
    from curate.formats.compression import open_input
    from curate.formats.lines import beginning, without_mark

    with open_input(path) as file:
        head = beginning(file, None)[0]
    head = without_mark(head.lstrip(b"\0"))[:HEAD]
    found = _first(lambda k: k.begins is not None and bool(re.match(k.begins.encode(), head)))
    names_in = FORMATS["csv"].reader.names_in
    return found or ("csv" if "text" in map(columns.name, names_in(head)) else None)


def why_no_documents(path: str, kind: str, columns: Columns) -> str | None:
    """Why a file of a known format in a folder holds no documents: its records have no text, or we
    wrote it."""
    reason = getattr(FORMATS[kind].reader, "why_no_documents", None)
    return reason(path, columns) if reason else None
