"""The format of a file, by its name or its content, and whether it holds documents at all."""

from __future__ import annotations

from curate.errors import UsageError
from curate.formats import delimited
from curate.formats.columns import Columns
from curate.formats.compression import open_input, sniff

FORMATS = {
    "archive": (".warc", ".wet", ".wat", ".arc"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv", ".tab"),
    "html": (".html", ".htm", ".xhtml"),
    "text": (".txt", ".text", ".md", ".rst"),
}
PACKING = (".gz", ".zst", ".zstd", ".lz4")


def format_by_name(name: str) -> str | None:
    """A file's format as its name tells it."""
    lower = name.lower()
    for ending in PACKING:
        lower = lower.removesuffix(ending)
    for kind, endings in FORMATS.items():
        if lower.endswith(endings):
            return kind
    return None


def format_by_content(path: str, columns: Columns) -> str | None:
    """A file's format as its first bytes tell it."""
    from curate.formats.compression import decompressed_chunks

    with open_input(path) as f:
        if f.read(4) == b"PAR1":
            return "parquet"
        f.seek(0)
        head = next(iter(decompressed_chunks(f, None, lambda offset, what: None)), b"")
    header = delimited.names_in(bytes(head[:4096]))
    head = bytes(head[:512]).lstrip()
    if head.startswith((b"WARC/", b"filedesc://")):
        return "archive"
    if head.startswith(b"{"):
        return "jsonl"
    if head[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    return "csv" if "text" in map(columns.name, header) else None


_OUR_PAGE = b'<meta name=generator content="llmcurate">'  # in curate/pages/templates/page.html


def why_no_documents(path: str, kind: str, columns: Columns) -> str | None:
    """Why a file of a known format in a folder holds no documents: its records have no text, or we
    wrote it."""
    if kind == "html":
        with open_input(path) as f:
            return "a page of a report" if _OUR_PAGE in f.read(200) else None
    if kind == "jsonl":
        from curate.formats.jsonl import sample

        with open_input(path) as f:
            codec = sniff(f)
        records = sample(path, codec, 100)
        names = {key for record in records for key in columns.record(record)}
        if names.isdisjoint(("text", "payload")):
            return "no JSON line with a `text` among its first hundred"
    try:
        if kind == "parquet":
            from curate.formats.parquet import read_schema

            read_schema(path, columns)
        if kind == "csv":
            with open_input(path) as f:
                codec = sniff(f)
            delimited.read_header(path, codec, columns)
    except UsageError:
        return "it has no column `text`"
    return None
