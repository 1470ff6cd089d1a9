"""Which tokens stay when a vocabulary is made smaller.

A text none of whose tokens go is encoded as before. In BPE that holds where a token goes only when
no merge that stays needs it: what is made on the way to a token that stays, stays. In Unigram the
best way through a text stays the best; only the penalty of unknown characters, which hangs on the
lowest score, must not move.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from tokenize_kit.change.char_bpe import CharBpe
from tokenize_kit.change.extend_bpe import Text
from tokenize_kit.change.forms import ByteBpe, Pieces
from tokenize_kit.errors import TokenizerError
from tokenize_kit.spm_file import NORMAL


def choose(
    form: ByteBpe | CharBpe | Pieces, counts: np.ndarray, most: int | None, least: int
) -> list[int]:
    """Old ids that stay, in order.

    counts: int64[ids], how often each came up. Tokens that came up less than `least` times go;
    with `most`, the least used go until so many are left. Raises TokenizerError where more than
    `most` have to stay.
    """
    if isinstance(form, ByteBpe):
        fixed = {number for token, number in form.tokens.items() if len(token) == 1}
        others = {token.number for token in form.added}
        kept = _bpe(form.tokens, form.merges, fixed, others, counts, most, least)
    elif isinstance(form, CharBpe):
        fixed = set() if form.byte_fallback else _characters(form, counts)
        kept = _bpe(form.tokens, form.merges, fixed, set(form.others), counts, most, least)
    else:
        kept = _unigram(form, counts, most, least)
    if most is not None and len(kept) > most:
        raise TokenizerError(
            f"keep-used {most}: {len(kept)} tokens have to stay (bytes, characters, special ones)",
            exit_code=2,
        )
    return kept


def _characters(form: CharBpe, counts: np.ndarray) -> set[int]:
    """The ids of the texts' characters, or some would become unknown, and of special tokens'."""
    shown = [text for text, number in form.tokens.items() if counts[number]]
    letters = {letter for text in [*shown, *form.others.values()] for letter in text}
    return {form.tokens[letter] for letter in letters if letter in form.tokens}


def _bpe(
    numbers: Mapping[Text, int],
    merges: Sequence[tuple[Text, Text]],
    fixed: set[int],
    others: set[int],
    counts: np.ndarray,
    most: int | None,
    least: int,
) -> list[int]:
    """Leaves first, the least used one each time; its uses become those of its parts. fixed: of
    numbers, those that stay; others: ids that no merge makes, which stay."""
    made: dict[int, list[list[int]]] = {}
    needed = dict.fromkeys(numbers.values(), 0)
    for left, right in merges:
        # In SentencePiece's models a single character merges though it is no token.
        parts = [numbers[part] for part in (left, right) if part in numbers]
        if (token := numbers.get(left + right)) is None:
            fixed = fixed | set(parts)  # of a token that stays
            continue
        made.setdefault(token, []).append(parts)
        for part in parts:
            needed[part] += 1
    used = {number: int(counts[number]) for number in needed}
    alive = set(needed) | others
    # Of equals the one learned last goes first.
    leaves = [(used[n], -n) for n, uses in needed.items() if not uses and n not in fixed]
    heapq.heapify(leaves)
    while leaves:
        count, number = leaves[0][0], -leaves[0][1]
        if count != used[number]:
            heapq.heapreplace(leaves, (used[number], -number))
            continue
        if count >= least and (most is None or len(alive) <= most):
            break
        heapq.heappop(leaves)
        alive.remove(number)
        for turn, parts in enumerate(made.get(number, [])):
            for part in parts:
                needed[part] -= 1
                used[part] += count if turn == 0 else 0
            for part in dict.fromkeys(parts):
                if not needed[part] and part not in fixed:
                    heapq.heappush(leaves, (used[part], -part))
    return sorted(alive)


def _unigram(form: Pieces, counts: np.ndarray, most: int | None, least: int) -> list[int]:
    scores = {n: score for n, (_, score, kind) in enumerate(form.pieces) if kind == NORMAL}
    fixed = {n for n in range(len(form.pieces)) if n not in scores}
    if scores:
        # They decide what unknown characters and user-defined pieces score.
        fixed |= {min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)}
    if not form.byte_fallback:  # the texts' characters, or some would become unknown
        # Those of special tokens, too: where one is unknown, the library finds the token in text.
        shown = [text for n, (text, _, _) in enumerate(form.pieces) if n not in scores or counts[n]]
        used = {letter for text in shown for letter in text}
        fixed |= {n for n in scores if form.pieces[n][0] in used}
    others = sorted((n for n in scores if n not in fixed), key=lambda n: (-int(counts[n]), n))
    others = [n for n in others if counts[n] >= least]
    if most is not None:
        others = others[: max(0, most - len(fixed))]
    return sorted({*fixed, *others})
