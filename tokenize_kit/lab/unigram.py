"""Unigram that grows: pieces that a model lacks, with their scores."""

from __future__ import annotations

from collections.abc import Iterable

from llmcurate.base.errors import RunFailed
from tokenize_kit.formats.forms import BYTE, CONTROL, NORMAL, SPACE, USER_DEFINED, Pieces

_UNKNOWN = 10.0  # unigram_model.cc: an unknown character costs so much more than the rarest piece
_ABOVE = 1 / 64  # a new piece is better than its old parts by so much
_LEAST = 2_000  # pieces that are trained at least: the fewer, the worse the choice


class Segments:
    """The best way through a text by the pieces of a Unigram model."""

    def __init__(self, form: Pieces) -> None:
        self.form = form
        self.scores = {
            text: (score, number)
            for number, (text, score, kind) in enumerate(form.pieces)
            if kind in (NORMAL, USER_DEFINED)
        }
        self.longest = max(map(len, self.scores), default=1)
        least = min((score for score, _ in self.scores.values()), default=0.0)
        self.unknown = least - _UNKNOWN
        self.bytes = {
            int(text[3:5], 16): number
            for number, (text, _, kind) in enumerate(form.pieces)
            if kind == BYTE
        }

    def add(self, text: str, score: float) -> None:
        """Another piece, which has no id yet."""
        self.scores[text] = (score, len(self.form.pieces))
        self.longest = max(self.longest, len(text))

    def best(self, text: str) -> tuple[float, list[int]]:
        """(sum of scores, ids) of a text as the model sees it, a space as U+2581."""
        scores = [0.0] + [float("-inf")] * len(text)
        back: list[tuple[int, list[int]]] = [(0, [])] * (len(text) + 1)
        for a in range(len(text)):
            for z in range(a + 1, min(a + self.longest, len(text)) + 1):
                if (piece := self.scores.get(text[a:z])) and scores[a] + piece[0] > scores[z]:
                    scores[z] = scores[a] + piece[0]
                    back[z] = (a, [piece[1]])
            if text[a] not in self.scores and scores[a] + self.unknown > scores[a + 1]:
                scores[a + 1] = scores[a] + self.unknown
                back[a + 1] = (a, self._missing(text[a]))
        ids: list[int] = []
        at = len(text)
        while at:
            at, piece_ids = back[at]
            ids = piece_ids + ids
        return scores[-1], ids

    def _missing(self, character: str) -> list[int]:
        if len(self.bytes) < 256:
            return [self.form.unknown]
        return [self.bytes[byte] for byte in character.encode()]


def learn_pieces(
    form: Pieces, texts: Iterable[str], tokens: int
) -> list[tuple[str, float, list[int]]]:
    """New pieces, likeliest first: (text, score, the old ids of its parts).

    texts: normalised as the model does. A Unigram is trained on them; of its pieces those that the
    old one lacks are taken, with their score there, or a little more than that of their old parts
    together, whichever is more: so each is used where it stands alone. Where there are no bytes to
    fall back to, a piece's characters come before it.
    """
    from tokenize_kit.learn.bpe import choose_characters
    from tokenize_kit.learn.unigram_pieces import OwnLearner

    learner = OwnLearner((text, 1) for text in texts)
    if not learner.characters:
        raise RunFailed("the corpus holds no text to learn from: give documents with text")
    room = max(_LEAST, 2 * tokens + len(learner.characters) // 2)
    kept, _ = choose_characters(learner.characters, room)
    learned = learner.learn(sorted(kept), "", [], room)
    segments = Segments(form)
    special = {text for text, _, kind in form.pieces if kind == CONTROL}
    new = []
    for spelled, score in learned:
        text = spelled.replace(" ", SPACE)
        usable = text not in special
        if form.squeeze and SPACE in text.lstrip(SPACE):
            usable = False
        if form.squeeze and text.startswith(SPACE * 2):
            usable = False  # such runs do not come up
        if usable and text not in form.numbers:
            old, ids = segments.best(text)
            # Whole 1/64, as in training: their sums are exact in float32.
            new.append((text, round(max(score, old + _ABOVE) * 64) / 64, ids))
    return new[:tokens] if form.byte_fallback else _with_characters(form, new, tokens)


def _with_characters(
    form: Pieces, new: list[tuple[str, float, list[int]]], tokens: int
) -> list[tuple[str, float, list[int]]]:
    """So many new pieces, each behind the characters that it has and the model had not: without
    bytes to fall back to, these would be unknown where they stand alone."""
    by_text = {piece[0]: piece for piece in new}
    chosen: dict[str, tuple[str, float, list[int]]] = {}
    for piece in new:
        characters = [c for c in dict.fromkeys(piece[0]) if c in by_text and c not in chosen]
        group = dict.fromkeys([*characters, piece[0]])
        if len(chosen) + len(group) <= tokens:
            chosen |= {text: by_text[text] for text in group}
    return list(chosen.values())


def score_pieces(form: Pieces, pieces: dict[str, float | None]) -> tuple[dict[str, float], int]:
    """(new pieces to their scores in the joined model, how many have another than they came with).

    Scores of both models are logarithms of probabilities, each within its own vocabulary, and are
    compared as they are. None is below the lowest old one, on which the score of unknown characters
    hangs; and where the best way through a piece's text by all others is as good, or it has no
    score, it is put 1/64 above that way, so that each is used where it stands alone.
    """
    joined = Segments(form)
    least = joined.unknown + _UNKNOWN
    scores: dict[str, float] = {}
    for text in sorted(pieces, key=len):  # the ways through a text are made of shorter ones
        best, _ = joined.best(text)
        own_score = pieces[text]
        score = max(least, float("-inf") if own_score is None else own_score)
        scores[text] = score if score > best else round((best + _ABOVE) * 64) / 64
        joined.add(text, scores[text])
    ordered = {text: scores[text] for text in pieces}
    return ordered, sum(ordered[text] != score for text, score in pieces.items())
