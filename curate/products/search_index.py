"""The product `search_index`: suffix arrays of a corpus, for `llmcurate search`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from curate.steps.contracts import Product, ProductContext
from curate.text.buffers import as_large_string


class SearchIndexProduct(Product):
    """search.json and its files: five bytes a byte of text."""

    name: ClassVar[str] = "search_index"
    makes: ClassVar[str] = "search_index"

    memory_mib: int = Field(2048, ge=64, description="what sorting a chunk may take")

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.dedup.suffix_array.search_index import IndexWriter

        writer = IndexWriter(context.out, self.memory_mib << 20)
        for batch in context.corpus():
            writer.add(batch.column("id"), as_large_string(batch.column("text")))
        record = writer.close()
        return {k: record[k] for k in ("documents", "bytes")} | {"chunks": len(record["chunks"])}
