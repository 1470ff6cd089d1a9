"""The input formats; each is declared in the module that reads it.

A reader is a module of this package with

    @reader("pdf", endings=(".pdf",))              the format; keywords are fields of `Format`
    read(portion) -> events                        documents (or tables), other records, damage
    slices(file, target) -> [(start, end), ...]    optional: how a large file is cut
    COLUMNS = {name: kind}                         optional: columns besides the standard ones
    why_no_documents(path, columns) -> str | None  optional: why a file in a folder is skipped

The package index (llmcurate/base/index.py) holds these declarations. If it lacks a format, the
sources are searched for `@reader`. A reader is imported when a file of its format is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from llmcurate.base.index import Declared, declared, index_of

if TYPE_CHECKING:  # arrow takes a fifth of a second to import
    from curate.formats.columns import Columns

WORD = "reader"  # the decorator
Read = TypeVar("Read", bound=Callable[..., Any])


def reader(name: str, **facts: Any) -> Callable[[Read], Read]:
    """Declare that the decorated function reads the format `name`; `facts` are fields of `Format`.
    Only the source text is searched for declarations, and the decorator changes nothing."""
    return lambda read: read


@dataclass(frozen=True)
class Format:
    """An input format. `module` is the module that reads it. `endings` are the endings of its
    files' names, and `begins` is a regular expression for the beginning of their unpacked content.
    `pages` is True if documents are web pages, from which the step `extract` makes text. `package`
    is a package that the reader imports; the optional dependency `extra` installs it."""

    name: str
    module: str
    endings: Sequence[str] = ()
    begins: str | None = None
    pages: bool = False
    package: str = ""
    extra: str = ""

    @property
    def reader(self) -> Any:
        return import_module(self.module)

    @property
    def missing(self) -> str | None:
        """Advice to install the package that the reader needs, or None if it is installed."""
        if not self.package or find_spec(self.package) is not None:
            return None
        return f"pip install 'llmcurate[{self.extra}]' reads it"


class _Formats(dict[str, Format]):
    def add(self, found: Iterable[Declared]) -> bool:
        new = [each for each in found if each.name not in self]
        self.update({each.name: Format(each.name, each.module, **each.facts) for each in new})
        return bool(new)

    def add_from_sources(self) -> bool:
        return self.add(declared("curate", WORD).values())

    def __missing__(self, name: str) -> Format:
        if self.add_from_sources():
            return self[name]
        raise KeyError(name)


FORMATS = _Formats()
FORMATS.add(index_of("curate")[WORD].values())
PACKING = (".gz", ".zst", ".zstd", ".lz4", ".bz2", ".xz")
HEAD = 4096  # bytes by which content is recognised


def format_by_name(name: str) -> str | None:
    """Return the format of a file by the ending of its name, or None if no format has it."""
    lower = name.lower()
    for ending in PACKING:
        lower = lower.removesuffix(ending)
    return _first(lambda kind: lower.endswith(tuple(kind.endings)))


def _first(fits: Callable[[Format], bool]) -> str | None:
    for kind in FORMATS.values():
        if fits(kind):
            return kind.name
    return _first(fits) if FORMATS.add_from_sources() else None


def format_by_content(path: str, columns: Columns) -> str | None:
    """Return the format of a file by its first bytes, or None if no format fits."""
    from curate.formats.compression import open_input
    from curate.formats.lines import beginning, without_bom

    with open_input(path) as file:
        head = beginning(file, None)[0]
    head = without_bom(head.lstrip(b"\0"))[:HEAD]
    found = _first(lambda k: k.begins is not None and bool(re.match(k.begins.encode(), head)))
    names_in = FORMATS["csv"].reader.names_in
    return found or ("csv" if "text" in map(columns.name, names_in(head)) else None)


def why_no_documents(path: str, kind: str, columns: Columns) -> str | None:
    """Return why a file in a folder holds no documents and is skipped, or None if it is read."""
    reason = getattr(FORMATS[kind].reader, "why_no_documents", None)
    return reason(path, columns) if reason else None
