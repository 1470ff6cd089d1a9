"""Generated documents with planted copies, the same for a seed: for runs larger than any real text
at hand, and for tests that need no data.

Words are drawn by Zipf's law, 500 a document, in sentences and lines. Of ten documents, one is a
copy of an earlier one, one is a near copy (one word in 30 is another), one has a passage of an
earlier one in its middle, one has one of 20 lines; every 20th has the URL of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

WORDS_A_DOCUMENT = 500
VOCABULARY = 50_000
GROUP = 2000  # documents made at once; copies are of the same group
_SYLLABLES = "ba ce di fo gu la me ni so tu ra ve zi po ku sha tre lin mor dan".split()


def _vocabulary(seed: int) -> list[str]:
    """Words as they stand in text, in six forms: capital or not, before a blank, ". " or a line
    end; word k in form f is entry f * VOCABULARY + k."""
    draw = np.random.default_rng([seed, 1])
    parts = draw.integers(0, len(_SYLLABLES), (VOCABULARY, 4))
    sizes = draw.integers(1, 5, VOCABULARY)
    words = [
        "".join(_SYLLABLES[p] for p in row[:n])
        for row, n in zip(parts.tolist(), sizes.tolist(), strict=True)
    ]
    forms = [(str, " "), (str, ". "), (str, ".\n")]
    forms += [(str.capitalize, end) for _, end in forms]
    return [f"{change(w)}{end}" for change, end in forms for w in words]


def _drawn(draw: np.random.Generator, chances: np.ndarray, count: int) -> np.ndarray:
    """int64[count, WORDS_A_DOCUMENT]: entries of the vocabulary."""
    shape = (count, WORDS_A_DOCUMENT)
    word = np.searchsorted(chances, draw.random(shape))
    end = draw.random(shape)
    kind = np.where(end < 1 / 50, 2, np.where(end < 1 / 12, 1, 0))
    first = np.ones(shape, np.int64)
    first[:, 1:] = kind[:, :-1] > 0
    return word + VOCABULARY * (kind + 3 * first)


def _ending_a_line(entries: np.ndarray) -> np.ndarray:
    """The same words before a line end."""
    return entries % VOCABULARY + VOCABULARY * (2 + 3 * (entries // VOCABULARY // 3))


def documents(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """id, text, url, date and source of that many documents."""
    vocabulary = _vocabulary(seed)
    weights = 1.0 / np.arange(1, VOCABULARY + 1)
    chances = np.cumsum(weights / weights.sum())
    chances[-1] = 1.0
    boilerplate = _drawn(np.random.default_rng([seed, 2]), chances, 20)[:, :25]
    boilerplate[:, -1] = _ending_a_line(boilerplate[:, -1])
    for start in range(0, count, GROUP):
        draw = np.random.default_rng([seed, 3, start])
        words = _drawn(draw, chances, GROUP)
        for k in range(9, GROUP, 10):
            earlier = draw.integers(0, k - 5, 3)
            words[k] = words[earlier[0]]
            near = words[earlier[1]].copy()
            swap = draw.random(WORDS_A_DOCUMENT) < 1 / 30
            near[swap] = words[k - 1][swap]
            words[k - 1] = near
            words[k - 2, 200:300] = words[earlier[2], 100:200]
            words[k - 3, 399] = _ending_a_line(words[k - 3, 399])
            words[k - 3, 400:425] = boilerplate[draw.integers(0, len(boilerplate))]
        for k, row in enumerate(words[: count - start].tolist()):
            n = start + k
            page = n - 1 if n % 20 == 19 else n
            yield {
                "id": f"d{n:08d}",
                "text": "".join([vocabulary[w] for w in row]).rstrip(),
                "url": f"https://host{page % 997}.test/{page}",
                "date": f"20{10 + n % 15}-01-{1 + n % 28:02d}",
                "source": f"source{n % 3}",
            }


def write_parquet(folder: Path, size: float, part_bytes: float = 256e6) -> tuple[int, int]:
    """Writes documents of about that many bytes of text as parquet files; returns how many
    documents and bytes they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("id", "text", "url", "date", "source")
    schema = pa.schema([(n, pa.string()) for n in names])
    writer: Any = None
    rows: list[dict[str, Any]] = []
    total = parts = 0
    in_part = 0.0

    def flush() -> None:
        writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=GROUP)
        rows.clear()

    for n, row in enumerate(documents(1 << 40), 1):
        if writer is None:
            path = folder / f"in-{parts:05d}.parquet"
            writer = pq.ParquetWriter(path, schema, compression="zstd", compression_level=1)
            parts, in_part = parts + 1, 0.0
        rows.append(row)
        total += len(row["text"].encode())
        in_part += len(row["text"])
        if len(rows) >= GROUP or total >= size:
            flush()
            if in_part >= part_bytes or total >= size:
                writer.close()
                writer = None
        if total >= size:
            return n, total
    raise AssertionError("documents() ended")
