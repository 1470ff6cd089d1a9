"""The binary file of an n-gram model: memory-mapped, checked before it is used, no pickle.

magic (8 bytes), version and size of the header (two uint32), the header as JSON, its xxh3-128, and
at multiples of 64 bytes the sections: raw little-endian numbers. The header says of each section
where it is, how many bytes it has and their xxh3-128.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128, xxh3_128_digest, xxh3_128_hexdigest

from curate.scoring.perplexity.sentences import Unit, Variant
from curate.scoring.perplexity.table import BUCKET, MOST_SLOTS
from curate.scoring.perplexity.vocabulary import SPECIAL, Vocabulary
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
    """What a file holds. counts: n-grams of each order; firsts: int64[order + 2], where levels
    begin in entries; word_prob, word_backoff: float32[words]; about: free-form facts."""

    counts: tuple[int, ...]
    variant: Variant
    unit: Unit
    words: Vocabulary
    word_prob: np.ndarray
    word_backoff: np.ndarray
    firsts: np.ndarray
    entries: np.ndarray
    pieces: bytes
    about: dict[str, Any]

    @property
    def order(self) -> int:
        """The longest n-grams."""
        return len(self.counts)


def write_model(path: Path, model: ModelData) -> None:
    """Writes the file aside, syncs and renames it."""
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
    header = json.dumps(
        {
            "counts": list(model.counts),
            "variant": model.variant,
            "unit": model.unit,
            "firsts": model.firsts.tolist(),
            "sections": sections,
            "about": model.about,
        },
        sort_keys=True,
    ).encode()
    with replacing(path) as aside, open(aside, "wb") as f:
        f.write(_HEAD.pack(MAGIC, VERSION, len(header)) + header + xxh3_128_digest(header))
        f.write(b"\0" * (-f.tell() % _ALIGN))
        for array in flat.values():
            f.write(array.data)
            f.write(b"\0" * (-f.tell() % _ALIGN))


def is_kenlm(path: Path) -> bool:
    """Whether the file is a binary of KenLM."""
    try:
        with open(path, "rb") as f:
            return f.read(len(KENLM_MAGIC)) == KENLM_MAGIC
    except OSError as error:
        raise UsageError(f"cannot read the model {path}: {error.strerror}") from None


def read_model(path: Path, whole: bool = False) -> ModelData:
    """The model of a file, its tables memory-mapped. whole: sections are compared with their
    checksums too, which reads all of the file. UsageError where the file is none, or damaged."""
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
                raise _Damaged("is KenLM's binary; give the ARPA file that it was made from")
            raise _Damaged(
                "is no n-gram model of llmcurate; ARPA files: llmcurate perplexity convert"
            )
        _, version, length = _HEAD.unpack(start)
        if version != VERSION:
            raise _Damaged(f"has format version {version}, this llmcurate reads {VERSION}")
        if length > _MOST_HEADER:
            raise _Damaged("the model's header is damaged")
        raw, digest = f.read(length), f.read(16)
    if len(raw) < length or xxh3_128_digest(raw) != digest:
        raise _Damaged("the model's header is damaged, or the file is cut off")
    header = json.loads(raw)
    base = -(-(_HEAD.size + length + 16) // _ALIGN) * _ALIGN
    ends = [a + -(-n // _ALIGN) * _ALIGN for a, n, _ in header["sections"].values()]
    if size != base + max(ends):
        raise _Damaged(f"has {size:,} bytes where {base + max(ends):,} belong; copy it again")
    arrays = {n: _section(path, base, n, header["sections"][n], whole) for n in SECTIONS}
    return _checked(header, arrays)


def _section(path: Path, base: int, name: str, place: list[Any], whole: bool) -> np.ndarray:
    at, length, digest = place
    dtype = np.dtype("<" + SECTIONS[name])
    if at < 0 or length < 0 or at % _ALIGN or length % dtype.itemsize:
        raise _Damaged(f"the section {name} is not where it should be")
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


def _checked(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> ModelData:
    """The model, where the sizes in its header fit each other and the sections."""
    counts, firsts = tuple(map(int, header["counts"])), np.array(header["firsts"], np.int64)
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
        and header["variant"] in ("plain", "ccnet")
        and header["unit"] in ("whitespace", "words", "pieces")
        and (header["unit"] == "pieces") == bool(len(arrays["pieces"]))
    )
    if not sound:
        raise _Damaged("the sizes in the model's header do not fit each other")
    vocabulary = Vocabulary(arrays["blob"], offsets, arrays["slots"])
    pairs = arrays["words"].reshape(-1, 2)
    return ModelData(
        counts, header["variant"], header["unit"], vocabulary,
        np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), firsts,
        arrays["entries"], arrays["pieces"].tobytes(), dict(header["about"]),
    )  # fmt: skip
