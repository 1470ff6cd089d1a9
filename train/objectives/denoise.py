"""A damaged text, put right: the objectives of T5's comparison, and those after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from train.data.rows import Piece, Takes, longest
from train.data.token_file import Ints
from train.data.vocabulary import Vocabulary
from train.objective_settings import (
    Bart,
    BertStyle,
    Continuation,
    Denoiser,
    Deshuffling,
    DroppedTokens,
    MassStyle,
    Spans,
    Ul2,
)
from train.objectives.example import Draws, Example, Objective, laid_out
from train.objectives.noise import Flags, Mixture, Noise, SpanNoise, ids_of
from train.objectives.whole import BartNoise, CutNoise, DropNoise, MaskNoise, ShuffleNoise

NOISES: dict[type, type[Noise]] = {
    Spans: SpanNoise,
    BertStyle: MaskNoise,
    MassStyle: MaskNoise,
    DroppedTokens: DropNoise,
    Deshuffling: ShuffleNoise,
    Continuation: CutNoise,
    Bart: BartNoise,
    Ul2: Mixture,
}


class Denoising(Objective):
    """A text's source is read, and its target is learned, each with an end of text behind it
    (Raffel et al. 2020, section 3.1.4). By the ``form`` of the settings an encoder reads the source
    and a decoder predicts the target; or both stand in one row, whose source is a ``prefix``, which
    is read both ways and not scored, or is learned too (``causal``), as in T5's table 2.

    An end of text that is a piece's last token is not a part of what is damaged.
    """

    sparse = True
    likelihood = False

    def __init__(self, settings: Denoiser, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.noise = NOISES[type(settings)](settings, tokens)
        self.form, self.end = settings.form, tokens.special["end"]

    @staticmethod
    def needs(settings: Denoiser, context: int) -> tuple[str, ...]:
        length = longest(Denoising.takes(settings), context)
        return (*NOISES[type(settings)].needs(settings, length), "end")

    @staticmethod
    def takes(settings: Denoiser) -> Takes:
        def takes(length: Ints, context: int) -> Ints:
            source, target = _lengths(settings, length)
            if settings.form != "encoder-decoder":
                return source + target
            # A row of targets is full when that of sources is.
            room = width(settings, context)
            return np.maximum(source, -(-target * context // room))

        return takes

    @staticmethod
    def both_ways(settings: Denoiser) -> bool:
        return settings.form == "prefix"

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        parts = [self.parts(piece, draws) for piece in pieces]
        if self.form == "encoder-decoder":
            return self._apart(parts, context)
        learned = self.form == "causal"
        joined = [
            replace(
                source,
                tokens=np.concatenate([source.tokens, target.tokens]),
                counted=np.concatenate([_counted(source) & learned, _counted(target)]),
            )
            for source, target in parts
        ]
        row, places = laid_out(joined, context)
        if learned:
            return row
        prefix = torch.zeros(1, context, dtype=torch.bool)
        for (_, place), (source, _) in zip(places, parts, strict=True):
            # The source's last token, which is read, predicts the target's first.
            prefix[0, place.start : place.start + len(source.tokens) + 1] = True
        return replace(row, prefix=prefix)

    def parts(self, piece: Piece, draws: Draws) -> tuple[Piece, Piece]:
        """The source and the target of a piece."""
        text = piece.tokens[:-1] if piece.tokens[-1] == self.end else piece.tokens
        source, target = self.noise.corrupt(text, lambda *asked: draws.shares(piece, *asked))
        return self._ended(piece, text, source), self._ended(piece, text, target)

    def _ended(self, piece: Piece, text: Ints, codes: Ints) -> Piece:
        """What codes stand for, and an end of text."""
        counted = None
        if piece.counted is not None:
            counted = np.append((codes >= 0) | piece.counted[~np.minimum(codes, -1)], True)
        return replace(piece, tokens=np.append(ids_of(codes, text), self.end), counted=counted)

    def _apart(self, parts: Sequence[tuple[Piece, Piece]], context: int) -> Example:
        """Sources in one row, targets in another, which begins each with an end of text."""
        targets = [replace(target, before=self.end) for _, target in parts]
        row, _ = laid_out(targets, width(self.settings, context))
        ids, documents = np.zeros((1, context), np.int64), np.full((1, context), -1, np.int64)
        filled = 0
        for source, _ in parts:
            place = slice(filled, filled + len(source.tokens))
            ids[0, place], documents[0, place] = source.tokens, source.document
            filled = place.stop
        read = {"source": torch.from_numpy(ids), "source_documents": torch.from_numpy(documents)}
        return replace(row, **read)


def _counted(piece: Piece) -> Flags:
    """Which of its tokens are scored."""
    return np.ones(len(piece.tokens), np.bool_) if piece.counted is None else piece.counted


def _lengths(settings: Denoiser, length: Ints) -> tuple[Ints, Ints]:
    """The most positions of source and target, with their ends."""
    source, target = NOISES[type(settings)].lengths(settings, length)
    return source + 1, target + 1


def width(settings: Denoiser, context: int) -> int:
    """Positions of a row of targets where one of sources has ``context``: as many as the longest
    text takes whose source fits, as T5's 114 beside 512; not more than of sources.
    """
    text = longest(lambda length, _: _lengths(settings, length)[0], context)
    return min(context, int(_lengths(settings, np.array([text]))[1][0]))
