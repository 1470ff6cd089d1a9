"""Which tokens stay when a vocabulary is made smaller.

A text none of whose tokens go is encoded as before. In BPE that holds where a token goes only when
no merge that stays needs it: what is made on the way to a token that stays, stays. In Unigram the
best way through a text stays the best; only the penalty of unknown characters, which hangs on the
lowest score, must not move.
"""

from __future__ import annotations

import heapq

import numpy as np

from tokenize_kit.change.forms import ByteBpe, Pieces
from tokenize_kit.errors import TokenizerError
from tokenize_kit.spm_file import NORMAL


def choose(form: ByteBpe | Pieces, counts: np.ndarray, most: int | None, least: int) -> list[int]:
    """Old ids that stay, in order.

    counts: int64[ids], how often each came up. Tokens that came up less than `least` times go;
    with `most`, the least used go until so many are left. Raises TokenizerError where more than
    `most` have to stay.
    """
    if isinstance(form, ByteBpe):
        kept = _bpe(form, counts, most, least)
    else:
        kept = _unigram(form, counts, most, least)
    if most is not None and len(kept) > most:
        raise TokenizerError(
            f"keep-used {most}: {len(kept)} tokens have to stay (bytes, characters, special ones)",
            exit_code=2,
        )
    return kept


def _bpe(form: ByteBpe, counts: np.ndarray, most: int | None, least: int) -> list[int]:
    """Leaves first, the least used one each time; its uses become those of its parts."""
    numbers = form.tokens
    made: dict[int, list[tuple[int, int]]] = {}
    needed = dict.fromkeys(numbers.values(), 0)
    for left, right in form.merges:
        parts = numbers[left], numbers[right]
        made.setdefault(numbers[left + right], []).append(parts)
        for part in parts:
            needed[part] += 1
    used = {number: int(counts[number]) for number in needed}
    fixed = {number for token, number in numbers.items() if len(token) == 1}
    alive = set(needed) | {token.number for token in form.added}
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
