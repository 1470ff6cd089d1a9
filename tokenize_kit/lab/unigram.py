"""New pieces for a Unigram model, and their scores."""

from __future__ import annotations

from collections.abc import Iterable

from llmcurate.base.errors import RunFailed
from tokenize_kit.formats.forms import BYTE, CONTROL, NORMAL, SPACE, USER_DEFINED, Pieces

_UNKNOWN = 10.0  # unigram_model.cc: an unknown character scores this much below the rarest piece
_ABOVE = 1 / 64  # a new piece scores at least this much above its old parts
_LEAST = 2_000  # the fewest pieces to train: the fewer, the worse the choice


class Segments:
    """Finds a text's best path: the pieces of a Unigram with the highest sum of scores."""

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
        """Add a piece, which has no id yet."""
        self.scores[text] = (score, len(self.form.pieces))
        self.longest = max(self.longest, len(text))

    def best(self, text: str) -> tuple[float, list[int]]:
        """Return (sum of scores, ids) of the best path through a text with U+2581 for spaces."""
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
    """Learn up to `tokens` pieces from texts that are normalised as the model does. Return (text,
    score, the old ids that spelled the text) of each piece, the likeliest first. A new Unigram is
    trained on the texts, and its pieces that the old model lacks are chosen. A piece's score is
    that of the new Unigram or, if larger, slightly more than the sum of its old ids' scores, so
    that a text equal to the piece is encoded as the piece. Without byte fallback, characters that
    the old model lacks come in the list before the first piece that contains them."""
    from tokenize_kit.learn.bpe import choose_characters
    from tokenize_kit.learn.unigram_pieces import PieceLearner

    learner = PieceLearner((text, 1) for text in texts)
    if not learner.characters:
        raise RunFailed("the corpus has no text to learn from: give documents with text")
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
            usable = False  # the model squeezes runs of spaces
        if usable and text not in form.numbers:
            old, ids = segments.best(text)
            # Whole 1/64, as in training: their sums are exact in float32.
            new.append((text, round(max(score, old + _ABOVE) * 64) / 64, ids))
    return new[:tokens] if form.byte_fallback else _with_characters(form, new, tokens)


def _with_characters(
    form: Pieces, new: list[tuple[str, float, list[int]]], tokens: int
) -> list[tuple[str, float, list[int]]]:
    """Choose up to `tokens` new pieces. If the old model lacks a character of a piece, choose the
    character first: without byte fallback it would be unknown on its own."""
    by_text = {piece[0]: piece for piece in new}
    chosen: dict[str, tuple[str, float, list[int]]] = {}
    for piece in new:
        characters = [c for c in dict.fromkeys(piece[0]) if c in by_text and c not in chosen]
        group = dict.fromkeys([*characters, piece[0]])
        if len(chosen) + len(group) <= tokens:
            chosen |= {text: by_text[text] for text in group}
    return list(chosen.values())


def score_pieces(form: Pieces, pieces: dict[str, float | None]) -> tuple[dict[str, float], int]:
    """Choose the scores of pieces that are added to the Unigram `form`. Return ({text: score}, how
    many scores differ from the given ones). pieces: {text: the score in the Unigram that the piece
    comes from, or None}. The scores of both Unigrams are logarithms of probabilities within their
    vocabularies and are compared unchanged. A piece whose score is None, or below the lowest score
    in `form`, gets this lowest score: a new lowest score would change the score of unknown
    characters. A text equal to a piece must be encoded as the piece. If other pieces spell the text
    with the same or a higher sum of scores, the piece gets this sum plus 1/64."""
    joined = Segments(form)
    least = joined.unknown + _UNKNOWN
    scores: dict[str, float] = {}
    for text in sorted(pieces, key=len):  # paths through a text consist of shorter pieces
        best, _ = joined.best(text)
        own_score = pieces[text]
        score = max(least, float("-inf") if own_score is None else own_score)
        scores[text] = score if score > best else round((best + _ABOVE) * 64) / 64
        joined.add(text, scores[text])
    ordered = {text: scores[text] for text in pieces}
    return ordered, sum(ordered[text] != score for text, score in pieces.items())
