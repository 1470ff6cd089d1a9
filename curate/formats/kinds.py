"""The formats that are read: a line of FORMATS each, and a module that reads it.

A reader is a module of this package with

    read(portion) -> events             documents (or tables of them), other records, damage
    slices(file, target) -> [(start, end), ...]    how a large file is cut; without it, not at all
    COLUMNS = {name: kind}                         what it states beside what every document has
    why_no_documents(path, columns) -> str | None  why a file in a folder is passed over

of which only `read` must be. It is imported when a file of its format is met, and imports
the library that it stands on when it reads one. A file's format is told by its name, else by how
its content begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # arrow takes a fifth of a second, and who asks for a format may need no reader
    from curate.formats.columns import Columns


@dataclass(frozen=True)
class Format:
    """name: as run.json has it; module: of this package, which reads it; endings: of file names;
    begins: how the unpacked content begins; pages: its documents are web pages, of which `extract`
    makes text; package: what it imports, where that is not installed with llmcurate; extra: which
    brings it."""

    name: str
    module: str
    endings: tuple[str, ...] = ()
    begins: bytes | None = None
    pages: bool = False
    package: str = ""
    extra: str = ""

    @property
    def reader(self) -> Any:
        """The module."""
        return import_module(f"curate.formats.{self.module}")

    @property
    def missing(self) -> str | None:
        """What to do where the package is not there."""
        if not self.package or find_spec(self.package) is not None:
            return None
        return f"pip install 'llmcurate[{self.extra}]' reads it"


_XML = rb"(?:<\?xml[^>]{0,200}\?>)?\s*"
_TEX = rb"(?s).{257}ustar|(?:[ \t\r\n]|%[^\n]*\n)*\\document(?:class|style)\b"
# Of two whose beginnings fit, the first counts.
_FORMATS = (
    Format("parquet", "parquet", (".parquet", ".pq"), rb"PAR1"),
    Format("wat", "wat", (".wat",), rb"(?s)\s*WARC/.{0,480}\.warc\.wat"),
    Format("archive", "warc", (".warc", ".wet", ".arc"), rb"\s*(?:WARC/|filedesc://)", pages=True),
    Format("jsonl", "jsonl", (".jsonl", ".ndjson", ".json"), rb"\s*\{"),
    Format("csv", "delimited", (".csv", ".tsv", ".tab")),
    Format(
        "html", "whole", (".html", ".htm", ".xhtml"), rb"(?i)\s*<(?:!doctype html|html)", pages=True
    ),
    Format("text", "whole", (".txt", ".text", ".md", ".rst")),
    Format("wacz", "wacz", (".wacz",), pages=True),
    Format(
        "mediawiki",
        "mediawiki",
        begins=_XML + rb"<mediawiki\b",
        package="mwparserfromhell",
        extra="wiki",
    ),
    Format("stackexchange", "stackexchange", begins=_XML + rb"<posts\b"),
    Format(
        "stackexchange-7z",
        "stackexchange",
        (".7z",),
        rb"7z\xbc\xaf\x27\x1c",
        package="py7zr",
        extra="stackexchange",
    ),
    Format("latex", "latex", (".tar", ".tgz", ".tex"), _TEX),
    Format("pdf", "pdf", (".pdf",), rb"%PDF-", package="pypdfium2", extra="pdf"),
)
FORMATS = {kind.name: kind for kind in _FORMATS}
PACKING = (".gz", ".zst", ".zstd", ".lz4", ".bz2", ".xz")
HEAD = 4096  # bytes by which a content is told


def format_by_name(name: str) -> str | None:
    """A file's format as its name tells it."""
    lower = name.lower()
    for ending in PACKING:
        lower = lower.removesuffix(ending)
    for kind in _FORMATS:
        if lower.endswith(kind.endings):
            return kind.name
    return None


def format_by_content(path: str, columns: Columns) -> str | None:
    """A file's format as its first bytes tell it."""
    from curate.formats.compression import decompressed_chunks, open_input
    from curate.formats.delimited import names_in

    with open_input(path) as file:
        head = next(iter(decompressed_chunks(file, None, lambda offset, what: None)), b"")[:HEAD]
    head = bytes(head).removeprefix(b"\xef\xbb\xbf")
    for kind in _FORMATS:
        if kind.begins is not None and re.match(kind.begins, head):
            return kind.name
    return "csv" if "text" in map(columns.name, names_in(head)) else None


def why_no_documents(path: str, kind: str, columns: Columns) -> str | None:
    """Why a file of a known format in a folder holds no documents: its records have no text, or we
    wrote it."""
    reason = getattr(FORMATS[kind].reader, "why_no_documents", None)
    return reason(path, columns) if reason else None
