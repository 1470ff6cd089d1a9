r"""The files of an n-gram model: the binary file, checked and memory-mapped, and ARPA files.

The binary file has a magic number (8 bytes), version and size of the header (two uint32), the
header as JSON, its xxh3-128, and sections at multiples of 64 bytes: raw little-endian numbers. The
header lists offset, bytes and xxh3-128 of each section.

ARPA files, of llmcurate or KenLM, are the text form: `\data\`, the number of n-grams of each order,
then for each order a section of lines `log10 probability TAB words TAB log10 back-off`, and
`\end\`. Source: ngram-format(5) of SRILM."""

from __future__ import annotations

import json
import re
import struct
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128, xxh3_128_digest, xxh3_128_hexdigest

from curate.scoring.perplexity.sentences import SPECIAL, Unit, Variant, Vocabulary, vocabulary
from curate.scoring.perplexity.table import BUCKET, MOST_SLOTS, NotClosed, Rows, level, tables
from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import UsageError

MAGIC = b"LLMCNGRM"
VERSION = 1
KENLM_MAGIC = b"mmap lm http://kheafield.com/code"
_HEAD = struct.Struct("<8sII")
_MOST_HEADER = 1 << 20
_ALIGN = 64
MOST_ORDER = 6
SECTIONS = {
    "blob": "u1",
    "offsets": "i8",
    "slots": "u8",
    "words": "f4",  # log10 probability and back-off of each word
    "entries": "u8",
    "pieces": "u1",  # a SentencePiece model, or nothing
}


@dataclass(frozen=True)
class ModelData:
    """The content of a model file."""

    counts: tuple[int, ...]  # number of n-grams of each order
    variant: Variant
    unit: Unit
    words: Vocabulary
    word_prob: np.ndarray  # float32[words], log10
    word_backoff: np.ndarray  # float32[words], log10
    firsts: np.ndarray  # int64[order + 2]: first entry of each order's table
    entries: np.ndarray  # see table.py
    pieces: bytes
    about: dict[str, Any] = field(default_factory=dict)  # facts about the model, in any form

    @property
    def order(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class _Header:
    counts: Sequence[int]
    variant: Variant
    unit: Unit
    firsts: list[int]
    sections: dict[str, list[Any]]
    about: dict[str, Any]


def write_model(path: Path, model: ModelData) -> None:
    """Write the model file. It appears under its name only when it is complete."""
    pairs = np.stack([model.word_prob, model.word_backoff], 1).astype("<f4")
    arrays = {
        "blob": model.words.blob,
        "offsets": model.words.offsets,
        "slots": model.words.slots,
        "words": pairs.reshape(-1),
        "entries": model.entries,
        "pieces": np.frombuffer(model.pieces, np.uint8),
    }
    sections, at = {}, 0
    flat = {n: np.ascontiguousarray(a, "<" + SECTIONS[n]) for n, a in arrays.items()}
    for name, array in flat.items():
        sections[name] = [at, array.nbytes, xxh3_128_hexdigest(array.view(np.uint8).data)]
        at += -(-array.nbytes // _ALIGN) * _ALIGN
    facts = _Header(
        model.counts, model.variant, model.unit, model.firsts.tolist(), sections, model.about
    )
    header = json.dumps(vars(facts), sort_keys=True).encode()
    with replacing(path) as aside, open(aside, "wb") as f:
        f.write(_HEAD.pack(MAGIC, VERSION, len(header)) + header + xxh3_128_digest(header))
        f.write(b"\0" * (-f.tell() % _ALIGN))
        for array in flat.values():
            f.write(array.data)
            f.write(b"\0" * (-f.tell() % _ALIGN))


def is_kenlm(path: Path) -> bool:
    try:
        with open(path, "rb") as f:
            return f.read(len(KENLM_MAGIC)) == KENLM_MAGIC
    except OSError as error:
        raise UsageError(f"cannot read the model {path}: {error.strerror}") from None


def read_model(path: Path, whole: bool = False) -> ModelData:
    """Read a model file, whose tables are memory-mapped. `whole` is True to check the entries too,
    which takes longer. Raises UsageError if the file is damaged or not a model."""
    try:
        return _read(path, whole)
    except OSError as error:
        raise UsageError(f"cannot read the model {path}: {error.strerror or error}") from None
    except _Damaged as error:
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise UsageError(f"{path}: the model's header is damaged") from None


class _Damaged(Exception):
    pass


def _read(path: Path, whole: bool) -> ModelData:
    size = path.stat().st_size
    with open(path, "rb") as f:
        start = f.read(_HEAD.size)
        if len(start) < _HEAD.size or start[:8] != MAGIC:
            if start.startswith(KENLM_MAGIC[:8]):
                raise _Damaged("is a KenLM binary; give the ARPA file that it was made from")
            raise _Damaged(
                "is not an n-gram model of llmcurate; convert ARPA files with"
                " `llmcurate perplexity convert`"
            )
        _, version, length = _HEAD.unpack(start)
        if version != VERSION:
            raise _Damaged(
                f"has format version {version}, but this llmcurate reads version {VERSION}"
            )
        if length > _MOST_HEADER:
            raise _Damaged("the model's header is damaged")
        raw, digest = f.read(length), f.read(16)
    if len(raw) < length or xxh3_128_digest(raw) != digest:
        raise _Damaged("the model's header is damaged, or the file is truncated")
    header = _Header(**json.loads(raw))
    base = -(-(_HEAD.size + length + 16) // _ALIGN) * _ALIGN
    ends = [a + -(-n // _ALIGN) * _ALIGN for a, n, _ in header.sections.values()]
    if size != base + max(ends):
        raise _Damaged(f"has {size:,} bytes, expected {base + max(ends):,}; copy it again")
    arrays = {n: _section(path, base, n, header.sections[n], whole) for n in SECTIONS}
    return _checked(header, arrays)


def _section(path: Path, base: int, name: str, place: list[Any], whole: bool) -> np.ndarray:
    at, length, digest = place
    dtype = np.dtype("<" + SECTIONS[name])
    if at < 0 or length < 0 or at % _ALIGN or length % dtype.itemsize:
        raise _Damaged(f"the section {name} has an invalid position")
    if length == 0:
        return np.empty(0, dtype)
    array = np.memmap(path, dtype, "r", base + at, (length // dtype.itemsize,))
    if whole or name != "entries":
        state = xxh3_128()
        for a in range(0, len(array), 1 << 20):
            state.update(np.ascontiguousarray(array[a : a + (1 << 20)]).data)
        if state.hexdigest() != digest:
            raise _Damaged(f"the section {name} is damaged (its checksum differs); copy it again")
    return np.asarray(array)


def _checked(header: _Header, arrays: dict[str, np.ndarray]) -> ModelData:
    counts, firsts = tuple(map(int, header.counts)), np.array(header.firsts, np.int64)
    offsets, words, order = arrays["offsets"], len(arrays["offsets"]) - 1, len(counts)
    slots = np.diff(firsts)
    sound = (
        1 <= order <= MOST_ORDER
        and len(SPECIAL) <= words <= MOST_SLOTS
        and counts[0] == words
        and len(arrays["words"]) == 2 * words
        and len(arrays["slots"]) % (2 * BUCKET) == 0
        and len(arrays["slots"]) > 2 * words
        and offsets[0] == 0
        and bool((np.diff(offsets) >= 0).all())
        and offsets[-1] == len(arrays["blob"])
        and len(firsts) == order + 2
        and not firsts[:3].any()
        and firsts[-1] * 2 == len(arrays["entries"])
        and bool((slots[2:] > 0).all() and (slots % BUCKET == 0).all())
        and bool((slots <= MOST_SLOTS).all())
        and all(n < s for n, s in zip(counts[1:], slots[2:].tolist(), strict=True))
        and header.variant in ("plain", "ccnet")
        and header.unit in ("whitespace", "words", "pieces")
        and (header.unit == "pieces") == bool(len(arrays["pieces"]))
    )
    if not sound:
        raise _Damaged("the sizes in the model's header contradict each other")
    vocabulary = Vocabulary(arrays["blob"], offsets, arrays["slots"])
    pairs = arrays["words"].reshape(-1, 2)
    return ModelData(
        counts, header.variant, header.unit, vocabulary,
        np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), firsts,
        arrays["entries"], arrays["pieces"].tobytes(), dict(header.about),
    )  # fmt: skip


_COUNT = re.compile(r"ngram (\d{1,9})=(\d{1,15})")
_MOST = 3.4e38  # largest float32
_MOST_LINE = 1 << 20
_BATCH = 50_000
# KenLM's log10 probability of <unk> for a file without <unk>.
_NO_UNK = -100.0


class _Lines:
    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0
        self._file = open(path, "rb")  # noqa: SIM115

    def next(self) -> str:
        raw = self._file.readline(_MOST_LINE)
        self.number += 1
        if not raw:
            raise UsageError(f"{self.path}: ends before \\end\\; it is truncated")
        if len(raw) == _MOST_LINE:
            raise self.wrong("is too long")
        if self.number == 1:
            raw = raw.removeprefix(BOM_UTF8)
        return raw.decode("utf-8", "surrogateescape").strip(" \t\r\n")

    def wrong(self, problem: str) -> UsageError:
        return UsageError(f"{self.path}, line {self.number}: {problem}")

    def close(self) -> None:
        self._file.close()


def read_arpa(path: Path, variant: Variant, unit: Unit, pieces: bytes) -> ModelData:
    """Read an ARPA file. The caller gives `variant`, `unit` and `pieces`, which the file lacks. A
    missing <unk> is added with log10 -100, as in KenLM. Raises UsageError with the number of the
    wrong line."""
    try:
        with closing(_Lines(path)) as lines:
            return _read_arpa(lines, variant, unit, pieces)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _read_arpa(lines: _Lines, variant: Variant, unit: Unit, pieces: bytes) -> ModelData:
    counts = _head(lines)
    words: dict[str, int] = {w.decode(): i for i, w in enumerate(SPECIAL)}
    prob, backoff = [_NO_UNK, 0.0, _NO_UNK], [0.0, 0.0, 0.0]
    seen: set[int] = set()
    for value, parts, back in _ngrams(lines, 1, counts[0]):
        number = words.setdefault(parts[0], len(words))
        if number in seen:
            raise lines.wrong(f"the word {parts[0][:200]!r} appears twice")
        seen.add(number)
        if number == len(prob):
            prob.append(value)
            backoff.append(back)
        else:
            prob[number], backoff[number] = value, back
    if 2 not in seen:
        raise UsageError(f"{lines.path}: has no </s>; give a model of sentences")
    prob[1] = 0.0
    sizes = (len(words), *counts[1:])
    if sum(sizes) > MOST_SLOTS // 2:
        raise UsageError(f"{lines.path}: {sum(sizes):,} n-grams are more than a model can hold")
    if sum((2 * n + 2) * size for n, size in enumerate(counts, 1)) > lines.path.stat().st_size:
        raise UsageError(f"{lines.path}: the ngram counts need more lines than the file has")
    levels = (_level(lines, n, sizes[n - 1], words) for n in range(2, len(sizes) + 1))
    try:
        firsts, entries = tables(sizes, levels, lambda n: np.zeros(n, np.uint64))
    except NotClosed as error:
        names = list(words)
        ngram = " ".join(names[w] for w in error.words.tolist())
        raise UsageError(f"{lines.path}: the n-gram {ngram[:200]!r}: {error.why}") from None
    if lines.next() != "\\end\\":
        raise lines.wrong("expected \\end\\")
    return ModelData(
        sizes, variant, unit, vocabulary([w.encode("utf-8", "surrogateescape") for w in words]),
        np.array(prob, np.float32), np.array(backoff, np.float32), firsts, entries, pieces,
    )  # fmt: skip


def _head(lines: _Lines) -> list[int]:
    for _ in range(1000):  # some files have other lines first
        if lines.next() == "\\data\\":
            break
    else:
        raise UsageError(f"{lines.path} is not an ARPA file: it has no \\data\\")
    counts: list[int] = []
    while line := lines.next():
        match = _COUNT.fullmatch(line)
        if not match or int(match[1]) != len(counts) + 1:
            raise lines.wrong(f"expected `ngram {len(counts) + 1}=COUNT`")
        counts.append(int(match[2]))
    if not 1 <= len(counts) <= MOST_ORDER:
        raise UsageError(
            f"{lines.path}: has order {len(counts)}; orders 1 to {MOST_ORDER} can be read"
        )
    return counts


def _ngrams(lines: _Lines, n: int, count: int) -> Iterator[tuple[float, list[str], float]]:
    line = lines.next()
    while not line:
        line = lines.next()
    if line != f"\\{n}-grams:":
        raise lines.wrong(f"expected \\{n}-grams:")
    for _ in range(count):
        fields = lines.next().replace("\t", " ").split(" ")
        try:
            value = float(fields[0])
            back = float(fields[n + 1]) if len(fields) == n + 2 else 0.0
        except ValueError:
            raise lines.wrong("expected log10 probability, words, log10 back-off") from None
        if len(fields) not in (n + 1, n + 2) or not -_MOST < value <= 0 or not abs(back) < _MOST:
            raise lines.wrong(f"expected a {n}-gram with a log10 probability of at most 0")
        yield value, fields[1 : n + 1], back
    if lines.next():
        raise lines.wrong(f"more {n}-grams than the count in \\data\\")


def _level(lines: _Lines, n: int, count: int, words: dict[str, int]) -> Iterator[Rows]:
    ids: list[list[int]] = []
    values: list[tuple[float, float]] = []

    def rows() -> Rows:
        pairs = np.array(values, np.float32)
        return np.array(ids, np.uint32), pairs[:, 0].copy(), pairs[:, 1].copy()

    for value, parts, back in _ngrams(lines, n, count):
        try:
            ids.append([words[w] for w in parts])
        except KeyError as error:
            raise lines.wrong(f"{error.args[0][:200]!r} is not among the 1-grams") from None
        values.append((value, back))
        if len(ids) == _BATCH:
            yield rows()
            ids, values = [], []
    if ids:
        yield rows()


def write_arpa(path: Path, model: ModelData) -> None:
    """Write the model as an ARPA file, sorted by word ids. Reading the file gives the same
    float32."""
    words = [w.decode("utf-8", "surrogateescape") for w in model.words.words()]
    order = model.order
    with (
        replacing(path) as aside,
        open(aside, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as f,
    ):
        f.write("\\data\\\n")
        f.writelines(f"ngram {n}={c}\n" for n, c in enumerate(model.counts, 1))
        for n in range(1, order + 1):
            f.write(f"\n\\{n}-grams:\n")
            if n == 1:
                ids = np.arange(len(words), dtype=np.uint32)[:, None]
                rows = (ids, model.word_prob, model.word_backoff)
            else:
                try:
                    rows = level(model.entries, model.firsts, model.counts, n)
                except ValueError as error:
                    raise UsageError(f"the model cannot be written: {error}") from None
            for line, value, back in zip(*(r.tolist() for r in rows), strict=True):
                ngram = " ".join([words[w] for w in line])
                end = f"\t{back:.9g}\n" if n < order else "\n"
                f.write(f"{value:.9g}\t{ngram}{end}")
        f.write("\n\\end\\\n")
