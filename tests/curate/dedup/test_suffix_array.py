"""Exact substrings: what is cut, which copy stays, and that neither chunks nor kills change it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_substrings import in_bytes, on_characters, on_lines, on_words, spans_to_cut

from curate.database import database
from curate.dedup.suffix_array import DedupSuffixArray
from curate.dedup.suffix_array_resolve import resolve
from curate.documents import documents
from curate.sketches import Sketches, SketchFile, view
from curate.stage import sketch_rows

Row = dict[str, Any]
TINY = {"room": 1, "bucket": 16}  # chunks of about a window, and files of sixteen places


def decide_here(
    texts: list[str], parts: int = 1, folder: Path | None = None, tiny: bool = False, **choice: Any
) -> tuple[list[str | None], list[Row]]:
    """(texts afterwards, None where dropped; decisions) of the step without a run around it."""
    step = DedupSuffixArray(**{"keep_index": False, **choice})
    size = -(-len(texts) // parts)
    after: list[str | None] = []
    with tempfile.TemporaryDirectory() as own, database(Path(own, "spill")) as db:
        files = []
        batches = []
        for part in range(parts):
            mine = texts[part * size : (part + 1) * size]
            ids = [f"d{part * size + i:03d}" for i in range(len(mine))]
            docs = documents({"id": ids, "text": mine})
            path = Path(own, f"sketch-{part}.parquet")
            pq.write_table(sketch_rows(step, docs.table, part), path)
            files.append(SketchFile(part, path, part))
            batches.append(docs)
        view(db, tuple(files))
        home = folder or Path(own, "own")
        home.mkdir(exist_ok=True)
        path = Path(own, "decisions.parquet")
        resolve(step, Sketches(db, path, home, tuple(files)), **(TINY if tiny else {}))
        decisions = pq.read_table(path)
        for part, docs in enumerate(batches):
            mine = decisions.filter(pc.equal(decisions["part"], part))
            done = step.apply(docs.within(step.label), mine)
            kept = {r["id"]: r["text"] for r in done.split()[0].to_pylist()}
            after += [kept.get(i) for i in docs.table["id"].to_pylist()]
    return after, decisions.to_pylist()


def without(text: str, spans: list[tuple[int, int]]) -> str | None:
    """The text without byte spans; None where nothing but white space would be left."""
    data, out, at = text.encode(), b"", 0
    for a, z in spans:
        out += data[at:a]
        at = z
    left = (out + data[at:]).decode()
    return left if left.strip() or not spans else None


def units_of(text: str, unit: str) -> list[bytes]:
    return (
        [c.encode() for c in text] if unit == "characters" else [bytes([b]) for b in text.encode()]
    )


def expected(
    texts: list[str], window: int, unit: str, boundary: str, none: bool
) -> list[str | None]:
    units = [units_of(t, unit) for t in texts]
    out = []
    for text, of, spans in zip(texts, units, spans_to_cut(units, window, none), strict=True):
        found = on_characters(text, in_bytes(of, spans))
        if boundary == "word":
            found = on_words(text, found)
        elif boundary == "line":
            found = on_lines(text, found)
        out.append(without(text, found))
    return out


# Two letters, several bytes, the separators of other tools, and white space.
ALPHABETS = ["ab", "abc \n", "aé", "日本語a", "\x00\xffa", "😀é\u0301 a"]
one_text = st.sampled_from(ALPHABETS).flatmap(lambda a: st.text(a, max_size=24))
some_texts = st.lists(one_text, min_size=0, max_size=6)


@settings(deadline=None, max_examples=150)
@given(
    some_texts,
    st.integers(1, 9),
    st.sampled_from(["characters", "bytes"]),
    st.sampled_from(["character", "word", "line"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)
def test_what_is_cut_is_what_a_search_for_every_window_finds(
    texts, window, unit, boundary, none, tiny, parts
):
    choice = {"threshold": window, "unit": unit, "boundary": boundary}
    keep = "none" if none else "first"
    after, _ = decide_here(texts, parts, tiny=tiny, keep=keep, **choice)
    assert after == expected(texts, window, unit, boundary, none)
