"""A corpus for other tools: as JSON lines (`export`), and as a search index (`search_index`)."""

from __future__ import annotations

import gzip
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import IO, Any, ClassVar, Literal

from pydantic import Field

from curate.disk.files import replacing
from curate.disk.inside import remove
from curate.formats.jsonl import json_lines
from curate.steps.contracts import Product, ProductContext
from curate.text.buffers import as_large_string


class Export(Product):
    """Writes the corpus as JSON lines.

    OUT/jsonl/part-00000.jsonl.zst and so on; reading them again gives the same documents."""

    name: ClassVar[str] = "export"
    makes: ClassVar[str] = "export"

    compression: Literal["zst", "gz", "none"] = Field(
        "zst", description="Compression of the files: zstd, gzip or none."
    )
    part_bytes: int = Field(
        256 << 20, ge=1, description="Bytes of JSON in each file before compression, about."
    )

    def build(self, context: ProductContext) -> dict[str, Any]:
        folder = context.out / "jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            remove(old, inside=context.out)
        documents = size = 0
        lines = json_lines(context.corpus(None))
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

    def _packed(self, raw: IO[bytes]) -> AbstractContextManager[Any]:
        if self.compression == "gz":
            return gzip.GzipFile("", "wb", 6, raw, mtime=0)
        if self.compression == "zst":
            import zstandard

            return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)
        return nullcontext(raw)


class SearchIndexProduct(Product):
    """Builds the suffix arrays that `llmcurate search` reads.

    search.json and its files: five bytes a byte of text."""

    name: ClassVar[str] = "search_index"
    makes: ClassVar[str] = "search_index"

    memory_mib: int = Field(2048, ge=64, description="Memory in MiB that sorting a chunk may take.")

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.dedup.suffix_array.search_index import IndexWriter

        writer = IndexWriter(context.out, self.memory_mib << 20)
        for batch in context.corpus():
            writer.add(batch.column("id"), as_large_string(batch.column("text")))
        record = writer.close()
        return {k: record[k] for k in ("documents", "bytes")} | {"chunks": len(record["chunks"])}
