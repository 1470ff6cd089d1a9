"""Where a tokenizer cuts a text, for people to see."""

from __future__ import annotations

import numpy as np

from tokenize_kit.judge.candidate import Candidate

Piece = tuple[str, int]  # text, tokens: more than one where a character is cut, 0 where none


def pieces(candidate: Candidate, text: str) -> list[Piece]:
    """The text in the pieces that tokens stand for, joined where a cut is within a character.

    Joined together the pieces are the text. 0 tokens: the tokenizer leaves this out.
    """
    raw = text.encode("utf-8")
    data = np.frombuffer(raw, np.uint8)
    offsets = np.array([0, len(raw)], np.int64)
    ids, sizes = candidate.encode(data, offsets)
    starts, ends = candidate.spans(data, offsets, ids, sizes)
    whole = np.append((data & 0xC0) != 0x80, True)  # whether a character begins at a byte
    found: list[Piece] = []
    at = waiting = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end <= at and start < at and not waiting and found:  # another part of the same character
            found[-1] = (found[-1][0], found[-1][1] + 1)
            continue
        if start > at and not waiting and whole[start]:
            found.append((raw[at:start].decode("utf-8"), 0))
            at = start
        waiting += 1
        if end > at and whole[end]:
            found.append((raw[at:end].decode("utf-8"), waiting))
            at, waiting = end, 0
    if at < len(raw):
        found.append((raw[at:].decode("utf-8"), waiting))
    elif waiting and found:
        found[-1] = (found[-1][0], found[-1][1] + waiting)
    return found
