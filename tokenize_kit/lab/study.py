"""A study of vocabulary sizes from a single training.

BPE learns one token after the other, so a smaller vocabulary is the beginning of a larger one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llmcurate.base.errors import UsageError
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import pack
from tokenize_kit.judge.candidate import Json
from tokenize_kit.judge.tally import Texts, cost
from tokenize_kit.judge.words import Segmentation
from tokenize_kit.learn.bpe import (
    build_tokenizer,
    count_words,
    first_merges,
    lay_out_words,
    learn_merges,
)
from tokenize_kit.learn.options import DEFAULT_PATTERN
from tokenize_kit.pattern.named import Digits, pattern_with

HELD_OUT = 0.1  # share of texts, by hash, that are measured and not learned from
MOST_HELD = 16 << 20  # the most bytes of held-out texts
_BYTES = 256
_RATIOS = ("bytes_a_token", "fertility", "whole_share", "cluster_cut_share", "boundary_f1")


class HeldOut:
    """Divides texts by their hash: most are learned from, the others are held out for measuring. A
    text that would take the held-out texts beyond MOST_HELD bytes is learned from, even if an equal
    text is held out."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.learned = 0
        self._bytes = 0

    def hold_out(self, raw: bytes) -> bool:
        """Return True if the text is held out. Otherwise count it as a text to learn from."""
        digest = hashlib.blake2b(raw, digest_size=8).digest()
        drawn = int.from_bytes(digest, "little") < HELD_OUT * 2.0**64
        if raw and drawn and self._bytes + len(raw) <= MOST_HELD:
            self.texts.append(raw)
            self._bytes += len(raw)
            return True
        self.learned += 1
        return False


def study(
    texts: Iterable[str],
    sizes: Sequence[int],
    *,
    digits: Digits = "single",
    special_tokens: Sequence[str] = ("<|endoftext|>",),
    width: int = 768,
    worth: float = 0.03,
    segmentation: Segmentation | None = None,
) -> dict[str, Any]:
    """Train byte-level BPE of each size on nine tenths of the texts and measure it on the other
    texts.

    `sizes` are numbers of tokens, special tokens included. `width` is that of the model's
    embedding. `segmentation` finds words in scripts without spaces. In the result, `rows` has the
    figures of each size: the size `asked` for and the one reached (`vocab`), `tokens` and ratios,
    `embedding_parameters` (vocabulary x width) and `saved`, the share of tokens saved per doubling
    of the vocabulary since the previous row. `recommended` is the last
    size up to which every step saved `worth` or more. Raises LlmcurateError for invalid sizes and
    for too few texts."""
    least = _BYTES + len(special_tokens) + 1
    ascending = sorted(set(sizes))
    if not ascending or ascending[0] < least:
        raise UsageError(f"vocabularies: give sizes of {least} or more")
    parts = pattern_with(DEFAULT_PATTERN, digits).parts
    held = HeldOut()
    learned = (text for text in texts if not held.hold_out(text.encode("utf-8")))
    counted = count_words(((text, 1) for text in learned), parts)
    if not held.texts or not len(counted):
        raise UsageError("too few texts: some are held out to measure, so give dozens or more")
    banned = [token.encode() for token in special_tokens]
    laid = lay_out_words(*counted.words())
    names, merges = learn_merges(laid, ascending[-1] - len(special_tokens), banned)
    raw = held.texts
    data, offsets = pack(raw)
    held_out = Texts.of(data, offsets, segmentation)
    rows: list[dict[str, Any]] = []
    best = 0
    for size in ascending:
        tokens = size - len(special_tokens)
        if rows and rows[-1]["vocab"] < rows[-1]["asked"]:
            break  # the corpus gave fewer tokens than asked
        tokenizer = build_tokenizer(*first_merges(names, merges, tokens), special_tokens, (), parts)
        counts, ratios = cost(Json(Encoder(tokenizer), Path()), held_out)
        vocab, tokens = min(size, len(names) + len(special_tokens)), counts["tokens"]
        saved = _saved(rows[-1], vocab, tokens) if rows else None
        if best == len(rows) - 1 and saved is not None and saved >= worth:
            best = len(rows)
        row: dict[str, Any] = {"asked": size, "vocab": vocab, "tokens": tokens}
        row |= {name: ratios[name] for name in _RATIOS}
        rows.append(row | {"embedding_parameters": vocab * width, "saved": saved})
    return {
        "learned_from": held.learned,
        "measured_on": len(raw),
        "measured_bytes": len(data),
        "width": width,
        "worth": worth,
        "rows": rows,
        "recommended": rows[best]["vocab"],
        "beyond": best
        == len(rows) - 1,  # every step saved enough: a larger size may be worth it too
    }


def _saved(before: dict[str, Any], vocab: int, tokens: int) -> float:
    if vocab == before["vocab"]:
        return 0.0
    return 1 - (tokens / before["tokens"]) ** (1 / math.log2(vocab / before["vocab"]))
