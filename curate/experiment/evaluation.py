"""The evaluation texts of an experiment: sampled by document id, checked for overlap, and encoded.
An excerpt of each document is scored: many short excerpts measure more than a few long texts. A
document that shares too many 13-grams with a corpus is not scored, because models may have seen it.
Words are counted as in the step `decontaminate` (Brown et al. 2020, appendix C, has 13-grams)."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from curate.corpus.direct_input import DirectInput
from curate.experiment.corpora import Corpus
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import plan_reading
from curate.products.eval_texts import are_shards
from llmcurate.base.disk.files import text_digest, write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError

WORDS = 13  # per n-gram
DOCUMENTS = 50  # per text if few bytes can be scored; with 50, Student's quantile is near 2
LEAST_EXCERPT = 200  # bytes per document
COLUMNS = ("id", "source", "lang", "text")
_FILE = "overlap.json"


@dataclass(frozen=True)
class Overlap:
    """The overlap of an evaluation text with a corpus."""

    documents: int  # documents that share a 13-gram with the corpus
    left_out: int  # documents that share too many to be scored
    share: float  # mean share of a document's 13-grams that the corpus has


@dataclass(frozen=True)
class TextFigures:
    """The figures of an evaluation text."""

    path: str
    available: int  # documents of the whole text
    available_bytes: int  # bytes of the whole text
    drawn: int  # sampled documents
    left_out: int  # sampled documents that are not scored
    overlap: dict[str, Overlap] | None  # by corpus; None: no words to compare


@dataclass(frozen=True)
class EvalText:
    """The documents sampled from an evaluation text."""

    name: str
    path: str
    documents: pa.Table  # columns id, source, lang, text
    available: int  # documents of the whole text
    available_bytes: int  # bytes of the whole text


def draw_text(
    name: str, path: str, most_bytes: int, excerpt: int, read: ReadSettings | None = None
) -> EvalText:
    """Sample documents of an evaluation text, by the smallest hashes of their ids. At least two are
    drawn, with up to `excerpt` bytes from the beginning of each. All together have at most
    `most_bytes` bytes, unless two have more. Raises UsageError if the text cannot be scored."""
    if are_shards(path):
        raise UsageError(
            f"--on {name}: {path} holds token shards: give the documents, to compare their words"
            " with the corpora"
        )
    read = read or ReadSettings()
    plan = plan_reading([path], read)
    if pages := [file for file in plan.files if file.holds_pages]:
        raise UsageError(f"--on {name}: {pages[0].path} holds web pages: extract their text first")
    drawn: list[tuple[int, int, int, dict[str, str | None]]] = []  # the largest hash first
    available = total = held = 0
    for batch in DirectInput(plan, read).batches(list(COLUMNS)):
        for row in batch.to_pylist():
            if not row["text"].strip():
                continue
            total += len(row["text"].encode())
            row["text"] = beginning(row["text"], excerpt)
            size = len(row["text"].encode())
            key = xxhash.xxh3_64_intdigest(str(row["id"]).encode())
            available, held = available + 1, held + size
            heapq.heappush(drawn, (-key, -available, size, row))
            while held > most_bytes and len(drawn) > 2:
                held -= heapq.heappop(drawn)[2]
    if len(drawn) < 2:
        raise UsageError(
            f"--on {name}: {path} has {counted(available, 'document')} with text: give at least two"
        )
    rows = [row for *_, row in sorted(drawn, key=lambda entry: entry[:2], reverse=True)]
    columns = {c: pa.array([row.get(c) for row in rows], pa.large_string()) for c in COLUMNS}
    return EvalText(name, path, pa.table(columns), available, total)


def beginning(text: str, most_bytes: int) -> str:
    """Return the first bytes of a text, cut at the end of a word if possible."""
    data = text.encode()
    if len(data) <= most_bytes:
        return text
    cut = data[:most_bytes].decode("utf-8", "ignore")
    return cut[: at + 1] if (at := max(cut.rfind(" "), cut.rfind("\n"))) > len(cut) // 2 else cut


def excerpt(text: str, most_bytes: int, key: int) -> str:
    """Return up to `most_bytes` bytes of whole words of a text, from a place that `key` decides."""
    data = text.encode()
    start = key % max(1, len(data) - most_bytes + 1)
    rest = data[start:].decode("utf-8", "ignore")
    if start and (at := rest.find(" ", 0, most_bytes // 2)) >= 0:
        rest = rest[at + 1 :]
    return beginning(rest, most_bytes)


def short_excerpts(text: EvalText, most_bytes: int) -> EvalText:
    """Cut each of n documents to `most_bytes` / n bytes (n counts as at most DOCUMENTS), but not
    below LEAST_EXCERPT bytes. Keep the first excerpts that fit into `most_bytes`, at least two.
    Excerpts begin anywhere in a document: short beginnings would be mostly headings and names."""
    documents = text.documents
    most = max(LEAST_EXCERPT, most_bytes // max(1, min(DOCUMENTS, len(documents))))
    pairs = zip(documents["id"].to_pylist(), documents["text"].to_pylist(), strict=True)
    words = [
        excerpt(whole, most, xxhash.xxh3_64_intdigest(str(name).encode(), seed=1))
        for name, whole in pairs
    ]
    ends = np.cumsum([len(cut.encode()) for cut in words])
    count = max(2, int(np.searchsorted(ends, most_bytes, side="right")))
    position = documents.schema.get_field_index("text")
    shortened = documents.set_column(position, "text", pa.array(words, pa.large_string()))
    return replace(text, documents=shortened.slice(0, count))


def find_overlap(
    texts: Sequence[EvalText],
    corpora: Sequence[Corpus],
    digests: dict[str, str],
    out: Path,
    read: ReadSettings | None = None,
) -> dict[str, dict[str, list[float]]]:
    """Return {corpus: {text: share of each document's 13-grams that occur in the corpus}}. The
    result is cached in OUT/overlap.json under a digest of the corpora and of the texts' words."""
    items = [[str(t.name), *t.documents["text"].to_pylist()] for t in texts]
    key = text_digest(json.dumps([WORDS, digests, items]), "xxh3-128")
    path = out / _FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["key"] == key:
            return dict(stored["shares"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    shares = _overlap(texts, corpora, read or ReadSettings())
    write_text(path, json.dumps({"key": key, "shares": shares}) + "\n")
    return shares


def _overlap(
    texts: Sequence[EvalText], corpora: Sequence[Corpus], read: ReadSettings
) -> dict[str, dict[str, list[float]]]:
    from curate.dedup.decontaminate.items import Item
    from curate.dedup.decontaminate.windows import Cutting, cut_windows, find
    from curate.documents.documents import documents

    items = [
        Item(text.name, str(nth), words)
        for text in texts
        for nth, words in enumerate(text.documents["text"].to_pylist())
    ]
    # `jaccard` compares all 13-grams of every item and skips none as a template.
    windows = cut_windows(items, Cutting("jaccard", WORDS, WORDS, None, 0, None))
    item, gram = windows.pairs
    shares: dict[str, dict[str, list[float]]] = {}
    for corpus in corpora:
        present = np.zeros(len(windows.search.table[3]), np.bool_)
        reader = DirectInput(plan_reading(corpus.inputs, read), read)
        for batch in reader.batches(["id", "text"]):
            docs = documents({"text": batch["text"].to_pylist()})
            present[find(docs, windows.search)[1]] = True
        hits = np.bincount(item, present[gram], minlength=len(items))
        each = iter(np.round(hits / np.maximum(windows.distinct, 1), 6).tolist())
        shares[corpus.name] = {t.name: [next(each) for _ in range(len(t.documents))] for t in texts}
    return shares


def encode_uncontaminated(
    text: EvalText,
    shares: dict[str, dict[str, list[float]]],
    most_overlap: float,
    tokenizers: Mapping[Path, Path | None],
) -> TextFigures:
    """Write the documents that overlap little with every corpus, and return the evaluation text's
    figures. A document may share at most `most_overlap` of its 13-grams with a corpus. `tokenizers`
    is {path to write: tokenizer or None}. With a tokenizer, a folder of encoded shards is written;
    with None, a JSONL file. Raises UsageError if fewer than two documents remain."""
    from tokenize_kit.shards.writer import encode_shards

    by_corpus = {corpus: np.array(of[text.name]) for corpus, of in shares.items()}
    largest = np.max(list(by_corpus.values()), axis=0)
    apart = largest <= most_overlap
    if apart.sum() < 2:
        corpus = max(by_corpus, key=lambda name: float(by_corpus[name].sum()))
        raise UsageError(
            f"--on {text.name}: {corpus} contains its documents: give a text that is in no corpus"
        )
    chosen = text.documents.filter(pa.array(apart))
    # Columns without any value are left out.
    names = [c for c in COLUMNS if chosen[c].null_count < len(chosen)]
    for path, tokenizer in tokenizers.items():
        if tokenizer is None:
            rows = chosen.select(names).to_pylist()
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            write_text(path, "".join(lines))
        else:
            encode_shards(chosen.select(names).to_batches(), tokenizer, path)
    overlap = {
        corpus: Overlap(int((of > 0).sum()), int((of > most_overlap).sum()), float(of.mean()))
        for corpus, of in by_corpus.items()
    }
    left_out = len(apart) - int(apart.sum())
    available = (text.available, text.available_bytes)
    return TextFigures(text.path, *available, len(apart), left_out, overlap)
