"""A sample of a corpus with planted copies: documents, paragraphs and passages.

A plant is a pair: a passage of an original and its copy in another document. Each document is used
for at most one plant.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.direct_input import DirectInput
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import plan_reading
from llmcurate.base.disk.files import drawn_number, replacing
from llmcurate.base.disk.parquet_writer import TableWriter, conform, writing
from llmcurate.base.errors import UsageError

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("url", pa.string()),
        ("date", pa.timestamp("us", tz="UTC")),
        ("source", pa.string()),
        ("lang", pa.string()),
    ]
)
ROWS = 500


def draw(inputs: list[str], read: ReadSettings, most: int, seed: int, path: Path) -> int:
    """Write a sample of at most `most` documents with text to `path`, in input order, and return
    the number of input documents. The sample depends only on `most`, the seed and the input. A
    repeated id gets the suffix `~2`, `~3`, ... Raises UsageError if no document has text."""
    plan = plan_reading(inputs, read)
    direct = DirectInput(plan, read)
    names = (i for batch in direct.batches(["id"]) for i in batch["id"].to_pylist())
    ranked = ((drawn_number(seed, "draw", name, at), at) for at, name in enumerate(names))
    chosen = {at for _, at in heapq.nsmallest(most, ranked)}
    if not chosen:
        raise UsageError("no document of the input has text")
    count = 0
    seen: dict[str, int] = {}
    with sample_writer(path) as writer:
        for batch in direct.batches(None):
            rows = [i for i in range(len(batch)) if count + i in chosen]
            count += len(batch)
            if rows:
                table = conform(pa.Table.from_batches([batch.take(pa.array(rows))]), SCHEMA)
                ids = pa.array([_unique_id(i, seen) for i in table["id"].to_pylist()], pa.string())
                writer.write(table.set_column(0, "id", ids))
    return count


def _unique_id(name: str, seen: dict[str, int]) -> str:
    original = name
    while name in seen:
        seen[original] += 1
        name = f"{original}~{seen[original]}"
    seen[name] = 1
    return name


@contextmanager
def sample_writer(path: Path) -> Iterator[TableWriter]:
    """Yield the writer of a parquet file. An existing file with the same bytes is not replaced."""
    with replacing(path, only_if_changed=True) as aside, writing(aside) as writer:
        writer.write(SCHEMA.empty_table())
        yield writer


def batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(ROWS, columns=columns, use_threads=False)


SIMILARITIES = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
TOLERANCE = 0.01
LEAST, MOST = 600, 40_000  # least and most bytes of a document that is used
NEAR_WORDS = 200  # with fewer words, one word changes the similarity by more than the tolerance
PARAGRAPH = (120, 2000)  # least and most characters
RUN = (300, 1000)  # characters of a pasted passage, both included
RESERVE = 6  # candidates per wanted document: some lack paragraphs or enough words
KINDS = ("exact", *(f"near {s:g}" for s in SIMILARITIES), "paragraph", "substring")

Similarity = Callable[[str, str], float]


@dataclass(frozen=True)
class Sample:
    """A document of the sample: a row of SCHEMA."""

    id: str
    text: str
    url: str | None
    date: datetime | None
    source: str | None
    lang: str | None


@dataclass(frozen=True)
class Region:
    """A passage of a document: bytes `start` to `end` of its text."""

    id: str
    start: int
    end: int


@dataclass(frozen=True)
class Plant:
    """An original and its planted copy, with their measured similarity (None for passages)."""

    kind: str
    original: Region
    copy: Region
    similarity: float | None = None


@dataclass(frozen=True)
class Planted:
    """The copies that are planted in a sample, and the documents that are added or changed."""

    plants: list[Plant]
    new: list[Sample]  # copies that are added as documents
    changed: dict[str, str]  # id -> new text


def plan(
    base: Path,
    without_duplicates: Callable[[Iterable[str]], set[str]],
    each: int,
    seed: int,
    similarity: Similarity,
) -> Planted:
    """Plan copies to add to a sample, up to `each` of every kind. `without_duplicates` returns
    those ids whose documents have no duplicates. Only these are copied, or a method might find
    another duplicate instead of the copy. Raises UsageError if nothing can be copied."""
    rows = _candidates(base, without_duplicates, RESERVE * each * (len(SIMILARITIES) + 5), seed)
    seen = {w.lower() for row in rows[:200] for w in WORD.findall(row.text[:5000])}
    words = [w for w in seen if w.isalpha() and 3 <= len(w) <= 20]
    words.sort(key=lambda w: drawn_number(seed, "word", w))
    if not rows or len(words) < 2:
        raise UsageError(
            f"nothing to plant copies of: every document of {LEAST} to {MOST:,} bytes has"
            " duplicates already"
        )
    planted = Planted([], [], {})
    refused: set[tuple[str, str]] = set()  # (kind, document) that cannot be combined
    # One of each kind in turn, so that a small corpus still gets some plants of every kind.
    for _ in range(each):
        for kind in KINDS:
            for row in rows:
                if (kind, row.id) in refused:
                    continue
                other_rows = [r for r in rows if r is not row]
                used = _plant(kind, row, other_rows, words, seed, similarity, planted)
                if used:
                    rows = [r for r in other_rows if r.id not in used]
                    break
                refused.add((kind, row.id))
    planted.plants.sort(key=lambda p: KINDS.index(p.kind))
    if not planted.plants:
        raise UsageError("nothing could be planted: the documents are too short or too few")
    return planted


def _candidates(
    base: Path, without_duplicates: Callable[[Iterable[str]], set[str]], most: int, seed: int
) -> list[Sample]:
    ids: list[str] = []
    for batch in batches(base, ["id", "text"]):
        size = pc.binary_length(batch["text"])
        fair = pc.and_(pc.greater_equal(size, LEAST), pc.less_equal(size, MOST))
        ids += batch["id"].filter(fair).to_pylist()
    fit = without_duplicates(ids)
    order = sorted((i for i in ids if i in fit), key=lambda i: drawn_number(seed, "order", i))[
        :most
    ]
    rank = {name: n for n, name in enumerate(order)}
    rows: list[Sample] = []
    for batch in batches(base):
        chosen = pc.is_in(batch["id"], pa.array(order, pa.string()))
        rows += [Sample(**row) for row in batch.filter(chosen).to_pylist()]
    return sorted(rows, key=lambda r: rank[r.id])


def _plant(
    kind: str,
    row: Sample,
    other_rows: Sequence[Sample],
    words: Sequence[str],
    seed: int,
    similarity: Similarity,
    planted: Planted,
) -> set[str]:
    key = (seed, row.id)
    if kind == "exact":
        _add_document(kind, row, NearCopy(row.text, 1.0), planted)
        return {row.id}
    if kind.startswith("near"):
        if len(WORD.findall(row.text)) < NEAR_WORDS:
            return set()
        target = float(kind.split()[1])
        copy = near_copy(row.text, target, words, key, similarity)
        if abs(copy.similarity - target) > TOLERANCE:
            return set()
        _add_document(kind, row, copy, planted)
        return {row.id}
    choose = _paragraph if kind == "paragraph" else _run
    span = choose(row.text, key)
    if span is None:
        return set()
    passage = row.text[slice(*span)]
    host = next((r for r in other_rows if len(r.text) >= 2 * len(passage)), None)
    if host is None:
        return set()
    _add_passage(kind, row, host, span, key, planted)
    return {row.id, host.id}


def _add_document(kind: str, row: Sample, copy: NearCopy, planted: Planted) -> None:
    """Add a copy of a document. The copy has no date and sorts last, so that dedup methods prefer
    all other documents to it. Otherwise a third document could be removed in its favour, which
    would count as a false removal."""
    name = f"~planted-{len(planted.new):05d}"
    url = _last_url(name)
    planted.new.append(Sample(name, copy.text, url, None, "~planted", row.lang))
    planted.plants.append(
        Plant(
            kind,
            Region(row.id, 0, len(row.text.encode())),
            Region(name, 0, len(copy.text.encode())),
            copy.similarity,
        )
    )


def _last_url(name: str) -> str:
    """Return a URL that sorts last: its md5 is greater than that of nearly all others."""
    tries = (f"https://planted.invalid/{name[1:]}/{n}" for n in count())
    return next(
        u
        for u in tries
        if hashlib.md5(u.encode(), usedforsecurity=False).digest()[:2] >= b"\xff\xf0"
    )


def _paragraph(text: str, key: object) -> tuple[int, int] | None:
    spans = []
    at = 0
    for line in text.split("\n"):
        inner = line.strip()
        if PARAGRAPH[0] <= len(inner) <= min(PARAGRAPH[1], len(text) // 2):
            start = at + line.index(inner)
            if text.count(inner) == 1:
                spans.append((start, start + len(inner)))
        at += len(line) + 1
    return spans[drawn_number(key, "paragraph") % len(spans)] if spans else None


def _run(text: str, key: object) -> tuple[int, int] | None:
    size = RUN[0] + drawn_number(key, "size") % (RUN[1] - RUN[0] + 1)
    if len(text) < 2 * size:
        return None
    start = drawn_number(key, "start") % (len(text) - size + 1)
    return start, start + size


def _add_passage(
    kind: str,
    row: Sample,
    host: Sample,
    span: tuple[int, int],
    key: object,
    planted: Planted,
) -> None:
    passage, text = row.text[slice(*span)], host.text
    if kind == "paragraph":
        breaks = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        at = breaks[drawn_number(key, "place") % len(breaks)]
        inserted = f"{passage}\n"
    else:
        at = drawn_number(key, "place") % (len(text) + 1)
        inserted = passage
    planted.changed[host.id] = text[:at] + inserted + text[at:]
    start = len(text[:at].encode())
    before = len(row.text[: span[0]].encode())
    size = len(passage.encode())
    planted.plants.append(
        Plant(
            kind,
            Region(row.id, before, before + size),
            Region(host.id, start, start + size),
        )
    )


def write(base: Path, planted: Planted, path: Path) -> None:
    """Write the sample with the plants: changed documents in place, new ones at the end."""
    with sample_writer(path) as writer:
        for batch in batches(base):
            table = pa.Table.from_batches([batch])
            texts = table["text"].to_pylist()
            new = [
                planted.changed.get(name, text)
                for name, text in zip(table["id"].to_pylist(), texts, strict=True)
            ]
            writer.write(table.set_column(1, "text", pa.array(new, pa.large_string())))
        writer.write(pa.Table.from_pylist([*map(asdict, planted.new)], SCHEMA))


# Copies with a chosen similarity of word 5-grams. State n of a copy has n exchanged words; a search
# finds the state whose similarity is nearest to the target.
WORD = re.compile(r"\w+")
NGRAM = 5


def nearest(
    count: int, similarity: Callable[[int], float], target: float, above: bool = False
) -> tuple[int, float]:
    """Return (number, similarity) of the copy whose similarity is nearest to `target`. Each of the
    copies 0 to count - 1 has more changes than the one before, so `similarity(number)` falls. With
    `above`, copies with less than the target similarity are excluded, except for copy 0."""
    similarities: dict[int, float] = {}

    def at(state: int) -> float:
        if state not in similarities:
            similarities[state] = similarity(state)
        return similarities[state]

    states = range(count)
    below = bisect_left(states, True, key=lambda s: at(s) < target)
    beside = [s for s in (below - 1, below) if 0 <= s < count]
    if above:
        beside = beside[:1]
    best = min(beside, key=lambda s: (abs(at(s) - target), s))
    # Of equally near states the first, which has the fewest edits.
    return bisect_left(states, True, key=lambda s: at(s) <= at(best)), at(best)


@dataclass(frozen=True)
class NearCopy:
    text: str
    similarity: float


def near_copy(
    text: str,
    target: float,
    words: Sequence[str],
    key: object,
    similarity: Callable[[str, str], float],
) -> NearCopy:
    """Return a copy of the text in which words are replaced by `words` until its similarity to the
    text is about `target`. First, words that are not near the end are replaced, in an order drawn
    from `key`, while the similarity is at least `target`. Then words at the end are replaced, one
    by one, the last word first. Each of these changes only one more 5-gram (five successive
    words)."""
    spans = [m.span() for m in WORD.finditer(text)]
    tail = min(4 * NGRAM, len(spans) // 4)
    inner = sorted(range(len(spans) - tail), key=lambda n: drawn_number(key, n))

    def exchanged(chosen: Sequence[int]) -> str:
        pieces, at = [], 0
        for n in sorted(chosen):
            start, end = spans[n]
            pieces += [text[at:start], _other(text[start:end], words, key, n)]
            at = end
        return "".join([*pieces, text[at:]])

    def inside(state: int) -> str:
        return exchanged(inner[:state])

    def at_the_end(state: int) -> str:
        return exchanged([*inner[:spread], *range(len(spans) - state, len(spans))])

    spread, _ = nearest(len(inner) + 1, lambda s: similarity(text, inside(s)), target, above=True)
    last, reached = nearest(tail + 1, lambda s: similarity(text, at_the_end(s)), target)
    return NearCopy(at_the_end(last), reached)


def _other(word: str, words: Sequence[str], key: object, n: int) -> str:
    at = drawn_number(key, n, "word") % len(words)
    other = words[at] if words[at].lower() != word.lower() else words[(at + 1) % len(words)]
    return other.capitalize() if word[0].isupper() else other
