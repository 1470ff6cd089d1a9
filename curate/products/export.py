"""Products for other tools: the corpus in their formats (`export`) and a search index."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from pydantic import Field, model_validator

from curate.formats.jsonl import json_lines
from curate.steps.contracts import Product, ProductContext, step
from curate.text.buffers import as_large_string
from llmcurate.base.disk.files import remove, replacing
from llmcurate.version import __version__

WARC_COLUMNS = ["id", "url", "date", "lang", "text"]


@step("export")
class Export(Product):
    """Writes the corpus in a format of other tools.

    The files are OUT/jsonl/part-00000.jsonl.zst and so on (reading them gives the same documents),
    OUT/warc/part-00000.warc.gz and so on, OUT/signatures.parquet, or OUT/filter.bloom.
    """

    makes: ClassVar[str] = "export"

    format: Literal["jsonl", "warc", "minhash", "bloom"] = "jsonl"
    """The format: `jsonl`; `warc`, with a conversion record of plain text per document; `minhash`,
    with signatures in the format of datasketch's LeanMinHash; `bloom`, one filter in the format of
    pybloom-live."""
    compression: Literal["zst", "gz", "none"] = "zst"
    """Compression of JSONL: zstd, gzip or none."""
    part_bytes: int = Field(256 << 20, ge=1)
    """Approximate size of each file before compression, in bytes of JSONL or of text in WARC
    records."""
    attributes: bool = False
    """Write `attributes` (scores and edits) to JSONL."""
    key: Literal["url", "text"] = "url"
    """Content of the filter: the URLs or the texts of the documents."""
    false_positives: float = Field(0.001, gt=0, lt=0.5)
    """The rate of false positives of the filter."""
    minhash: dict[str, Any] = {}
    """Settings of dedup_minhash for the signatures, for example {preset: dclm}."""

    @model_validator(mode="after")
    def _settings_of_minhash(self) -> Export:
        if self.minhash:
            self._minhash()
        return self

    def _minhash(self) -> Any:
        from curate.dedup.minhash.near_duplicates import DedupMinhash

        return DedupMinhash(**self.minhash)

    def build(self, context: ProductContext) -> dict[str, int]:
        if self.format == "minhash":
            from curate.dedup.minhash.lean_minhash import write_signatures

            path = context.out / "signatures.parquet"
            return {"documents": write_signatures(path, context.corpus(), self._minhash())}
        if self.format == "bloom":
            return self._filter(context)
        if self.format == "warc":
            return self._warc(context)
        lines = json_lines(context.corpus(None), self.attributes)
        folder = _emptied(context.out, "jsonl")
        documents = size = 0
        line = next(lines, None)
        part = 0
        while line is not None or part == 0:
            ending = "" if self.compression == "none" else f".{self.compression}"
            with ExitStack() as stack:
                target = folder / f"part-{part:05d}.jsonl{ending}"
                raw = stack.enter_context(open(stack.enter_context(replacing(target)), "wb"))
                out = stack.enter_context(self._packed(raw))
                written = 0
                while line is not None and written < self.part_bytes:
                    out.write(line)
                    written += len(line)
                    documents += 1
                    line = next(lines, None)
                size += written
            part += 1
        return {"documents": documents, "bytes": size}

    def _warc(self, context: ProductContext) -> dict[str, int]:
        from curate.formats.warc_writer import WarcWriter

        folder = _emptied(context.out, "warc")
        rows = (row for batch in context.corpus(WARC_COLUMNS) for row in batch.to_pylist())
        documents = size = part = 0
        row = next(rows, None)
        while row is not None or part == 0:
            name = f"part-{part:05d}.warc.gz"
            with replacing(folder / name) as aside, open(aside, "wb") as stream:
                writer = WarcWriter(stream, name, f"llmcurate {__version__}")
                written = 0
                while row is not None and written < self.part_bytes:
                    written += writer.document(**row)
                    documents += 1
                    row = next(rows, None)
                size += written
            part += 1
        return {"documents": documents, "bytes": size}

    def _filter(self, context: ProductContext) -> dict[str, int]:
        from curate.dedup.bloom.pybloom import write_filter

        def keys() -> Iterator[str]:
            for batch in context.corpus(["id", self.key]):
                yield from (key for key in batch.column(self.key).to_pylist() if key is not None)

        documents = sum(1 for _ in keys())
        path = context.out / "filter.bloom"
        inserted = write_filter(path, keys(), documents, self.false_positives)
        return {"documents": documents, "keys": inserted, "bytes": path.stat().st_size}

    def _packed(self, raw: IO[bytes]) -> AbstractContextManager[Any]:
        if self.compression == "gz":
            return gzip.GzipFile("", "wb", 6, raw, mtime=0)
        if self.compression == "zst":
            import zstandard

            return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)
        return nullcontext(raw)


def _emptied(out: Path, name: str) -> Path:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        remove(old, inside=out)
    return folder


@step("search_index")
class SearchIndexProduct(Product):
    """Builds the suffix arrays that `llmcurate search` reads.

    Writes search.json and the arrays, which take five bytes per byte of text.
    """

    makes: ClassVar[str] = "search_index"

    memory_mib: int = Field(2048, ge=64)
    """Memory in MiB for sorting a chunk."""

    def build(self, context: ProductContext) -> dict[str, int]:
        from curate.dedup.suffix_array.search_index import IndexWriter

        writer = IndexWriter(context.out, self.memory_mib << 20)
        for batch in context.corpus():
            writer.add(batch.column("id"), as_large_string(batch.column("text")))
        return dict(writer.close())
