"""Encoding of texts in Latin letters by the package gigatoken 0.10. The ids are those that our
kernels give, and encoding is up to three times as fast (benchmarks/bench_tokenizer_encode.py).

Our kernels encode all other texts. In scripts without spaces gigatoken is slower, because it must
merge every new phrase. Besides, gigatoken uses Unicode 17 and `tokenizers` an older version, so
they may treat new characters differently."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import compress, pairwise
from typing import Any

import numpy as np
import psutil

from llmcurate.base.tokenizer_file import panicked
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.normalize import ODD, find_odd
from tokenize_kit.encode.parts import PART_BYTES, Encode, pack
from tokenize_kit.encode.spm import SpmEncoder
from tokenize_kit.formats.tokenizer_json import LETTERS, Unsupported, parts_of, patterns_of
from tokenize_kit.pattern.named import PATTERNS, pattern_with

RELEASE = "0.10."
# Letters up to IPA, Vietnamese letters, signs and arrows, emoji: all that gigatoken may get.
_LATIN = ((0, 0x250), (0x1E00, 0x1F00), (0x2000, 0x2C00), (0x1F300, 0x1FB00))
_SEPARATOR = "\U0010ffff"  # between texts; not in _LATIN, so no text has it
# gigatoken reads this spelling of cl100k as if it ended in `\s++$`, so "a\n " gets other ids.
_WRONG = r"|\s*[\r\n]|\s+(?!\S)|\s+"
# gigatoken's caches have no limit. So its tokenizer is loaded again after LEAST or more bytes of
# text if the memory of the process has grown by GROWTH bytes since the last loading.
LEAST, GROWTH = 32 << 20, 256 << 20


@cache
def latin_table() -> np.ndarray:
    """Return the table by which normalize.find_odd finds texts not to be given to gigatoken:
    uint8[0x110000]. It is 0 for ASCII and for the assigned characters in the ranges _LATIN, without
    marks, numbers and characters that NFC changes; ODD for all other characters."""
    table = np.full(0x110000, ODD, np.uint8)
    for point in (point for bounds in _LATIN for point in range(*bounds)):
        letter = chr(point)
        unsafe = unicodedata.category(letter)[0] in "MN" or unicodedata.category(letter) == "Cn"
        if point < 0x80 or not (unsafe or unicodedata.normalize("NFC", letter) != letter):
            table[point] = 0
    return table


def specification(encoder: Encoder, separator: int) -> str:
    """Return the text of a tokenizer.json for gigatoken. It leaves out special tokens, which
    gigatoken would find in texts, and spells the pattern as gigatoken expects. separator: the id of
    the token put between texts. Raises Unsupported if gigatoken cannot use the pattern."""
    parts = parts_of(encoder.tokenizer)
    model, cut = parts["model"], tuple(patterns_of(parts["pre_tokenizer"]))
    letters = set(LETTERS)
    vocab = {word: k for word, k in model["vocab"].items() if word and letters.issuperset(word)}
    merged = [vocab["".join(m.split(" ") if isinstance(m, str) else m)] for m in model["merges"]]
    if any(_WRONG in pattern for pattern in cut):
        raise Unsupported("it reads this spelling of cl100k's pattern in another way")
    if any(a == b for a, b in pairwise(merged)):
        # gigatoken takes ids for ranks, which is wrong if two merges give one token. A merge that
        # is listed twice is ignored, but makes gigatoken rank merges by their place in the list.
        model["merges"].append(model["merges"][0])
    if cut == pattern_with("o200k", "single").parts:
        # gigatoken only knows o200k with groups of three digits. That gives the same ids if no
        # token has two digits.
        if any(a.isdecimal() and b.isdecimal() for word in vocab for a, b in pairwise(word)):
            raise Unsupported("a pattern with single digits, and a token with several")
        cut = PATTERNS["o200k"].parts
    spelled = [{"Regex": pattern.replace(r"?[\p{L}]+", r"?\p{L}+")} for pattern in cut]
    splits: dict[str, Any] = {
        "type": "Sequence",
        "pretokenizers": [{"type": "Split", "pattern": pattern} for pattern in spelled],
    }
    if cut == PATTERNS["gpt2"].parts:
        splits = {"type": "ByteLevel"}  # gigatoken's name for the pattern
    added = [{"id": separator, "content": _SEPARATOR, "special": True}]
    return json.dumps(
        {"model": model | {"vocab": vocab}, "pre_tokenizer": splits, "added_tokens": added}
    )


class GigatokenEncoder:
    """An encoder that gives the ids of the encoder `ours`; threads may share it."""

    def __init__(self, ours: Encoder) -> None:
        """Load the tokenizer. Raises Unsupported if gigatoken is missing or does not support it."""
        if ours.plan is None or ours.plan.added or ours.plan.form not in (None, "NFC"):
            raise Unsupported("it has only byte-level BPE, and no normal form but NFC")
        try:
            self.release = version("gigatoken")
        except PackageNotFoundError:
            raise Unsupported("it is not installed") from None
        if not self.release.startswith(RELEASE):
            raise Unsupported(f"it is {self.release}, not {RELEASE}*")
        self._ours, self._process = ours, psutil.Process()
        self._separator = max(ours.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self._specification = specification(ours, self._separator)
        try:
            self._idle = [self._load()]
        except BaseException as error:  # gigatoken may panic
            if not (isinstance(error, Exception) or panicked(error)):
                raise
            raise Unsupported(str(error).partition(" Split")[0].partition("\n")[0]) from None

    def _load(self) -> tuple[Any, int, int]:
        from gigatoken.gigatoken_rs import load_hf_json

        return load_hf_json(self._specification), 0, self._process.memory_info().rss

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids: uint32[], number of ids per row: int64[rows]), the same as those of our own
        encoder (the argument `ours` of this class)."""
        own = find_odd(data, offsets, latin_table(), False) | (np.diff(offsets) > PART_BYTES)
        if own.all():
            return self._ours.encode(data, offsets)
        raw = data[offsets[0] : offsets[-1]].tobytes()
        rows = [raw[a:z] for a, z in pairwise((offsets - offsets[0]).tolist())]
        latin = iter(self._encode_latin(list(compress(rows, ~own))))
        others = iter(self._encode_others(list(compress(rows, own))) if own.any() else ())
        ids = [next(others if odd else latin) for odd in own.tolist()]
        return np.concatenate(ids), np.array([len(row) for row in ids])

    def _encode_others(self, rows: list[bytes]) -> list[np.ndarray]:
        ids, sizes = self._ours.encode(*pack(rows))
        return np.split(ids, np.cumsum(sizes)[:-1])

    def _encode_latin(self, rows: list[bytes]) -> list[np.ndarray]:
        """Return the ids of each row. The rows are joined by separators and encoded as one text: a
        call per row takes more time, and gigatoken's calls for several texts need a further
        library."""
        from gigatoken.gigatoken_rs import BytesSource, PadTruncate

        text = BytesSource(_SEPARATOR.encode().join(rows))
        try:
            tokenizer, encoded, memory = self._idle.pop()
        except IndexError:
            tokenizer, encoded, memory = self._load()
        try:
            ids = tokenizer.encode_batch_padded(text, PadTruncate(0), parallel=False)[0][0]
        except BaseException as error:
            if not (isinstance(error, Exception) or panicked(error)):
                raise
            return self._encode_others(rows)
        encoded += sum(map(len, rows))
        if encoded < LEAST or self._process.memory_info().rss - memory < GROWTH:
            self._idle.append((tokenizer, encoded, memory))
        ends = [-1, *np.flatnonzero(ids == self._separator).tolist(), len(ids)]
        return [ids[a + 1 : z] for a, z in pairwise(ends)]


def trusted(
    ours: Encoder | SpmEncoder, sample: Iterable[tuple[np.ndarray, np.ndarray]]
) -> tuple[Encode | None, str]:
    """Return gigatoken's function `encode` and "gigatoken" with its version if it supports this
    tokenizer and gives the ids of `ours` for all texts of the sample. Otherwise return None and the
    reason. sample: (data, offsets) as for `Encode`."""
    try:
        if not isinstance(ours, Encoder):
            raise Unsupported("it encodes only by a tokenizer.json")
        encoder = GigatokenEncoder(ours)
        for texts in sample:
            if not all(map(np.array_equal, encoder.encode(*texts), ours.encode(*texts))):
                raise Unsupported(f"{encoder.release} gives other ids for a sample of the texts")
    except Unsupported as error:
        return None, f"ours, not gigatoken: {error}"
    return encoder.encode, f"gigatoken {encoder.release}"
