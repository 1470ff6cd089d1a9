"""Morphemes: whether tokens end where the parts of a word do, by a lexicon.

As MorphScore (Arnett and Bergen 2025, "Why do language models perform worse for morphologically
complex languages?"): a word of one token is neither right nor wrong, so only words of several
count.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.errors import UsageError
from tokenize_kit.encode.parts import pack
from tokenize_kit.files import read_file
from tokenize_kit.judge.candidate import Candidate

Lexicon = dict[str, tuple[str, ...]]  # a word and its morphemes, two or more


def read_lexicon(path: Path) -> Lexicon:
    """Lines of a word, a tab, and its morphemes with spaces between; words of one are left out.
    Raises LlmcurateError naming the file, and the line whose morphemes are not its word."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"lexicon {path}: not UTF-8 text") from None
    lexicon: Lexicon = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        word, _, rest = line.strip().partition("\t")
        morphemes = tuple(rest.split())
        if "".join(morphemes) != word:
            raise UsageError(
                f"lexicon {path}: line {number}: write a word, a tab, and its morphemes with"
                " spaces between, which together are the word"
            )
        if len(morphemes) > 1:
            lexicon[word] = morphemes
    if not lexicon:
        raise UsageError(f"lexicon {path}: no word of several morphemes in it")
    return lexicon


def morpheme_figures(candidate: Candidate, lexicon: Lexicon) -> dict[str, Any]:
    """`morpheme_words`: of the lexicon; `morpheme_words_whole`: of one token; of the others
    `morpheme_recall`, the share of boundaries between morphemes at which a token ends, and
    `morpheme_precision`, the share of boundaries of tokens that lie there; None where there are
    none. Each word stands behind a space, as within a text."""
    raw = [f" {word}".encode() for word in lexicon]
    data, offsets = pack(raw)
    ids, sizes = candidate.encode(data, offsets)
    starts, ends = candidate.spans(data, offsets, ids, sizes)
    bounds = np.cumsum([0, *sizes])
    whole = kept = gold = cuts = 0
    for row, morphemes in enumerate(lexicon.values()):
        tokens = slice(bounds[row], bounds[row + 1])
        first, last = int(offsets[row]) + 1, int(offsets[row + 1])
        positions = {*starts[tokens].tolist(), *ends[tokens].tolist()}
        inner = {k - first for k in positions if first < k < last}
        if not inner:
            whole += 1
            continue
        between = set(accumulate(len(morpheme.encode()) for morpheme in morphemes[:-1]))
        kept += len(inner & between)
        gold += len(between)
        cuts += len(inner)
    return {
        "morpheme_words": len(lexicon),
        "morpheme_words_whole": whole,
        "morpheme_recall": kept / gold if gold else None,
        "morpheme_precision": kept / cuts if cuts else None,
    }
