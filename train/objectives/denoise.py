"""A damaged text, put right: the objectives of T5's comparison, and those after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from train.data.part import Ints
from train.data.rows import Piece, Takes, longest
from train.data.vocabulary import Vocabulary
from train.objective_settings import Denoiser, Spans
from train.objectives.example import Draws, Example, Objective, laid_out
from train.objectives.noise import Flags, Noise, SpanNoise

NOISES: dict[type, type[Noise]] = {Spans: SpanNoise}


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
        parts = [(piece, *self.parts(piece, draws)) for piece in pieces]
        if self.form == "encoder-decoder":
            return self._apart(parts, context)
        joined = [
            replace(
                piece,
                tokens=np.concatenate([source, target]),
                counted=np.concatenate([of_source & (self.form == "causal"), of_target]),
            )
            for piece, (source, of_source), (target, of_target) in parts
        ]
        row, places = laid_out(joined, context)
        if self.form == "causal":
            return row
        prefix = torch.zeros(1, context, dtype=torch.bool)
        for (_, place), (_, (source, _), _) in zip(places, parts, strict=True):
            prefix[0, place.start : place.start + len(source) + 1] = True  # and the token before
        return replace(row, prefix=prefix)

    def parts(self, piece: Piece, draws: Draws) -> list[tuple[Ints, Flags]]:
        """The tokens of source and target, and which of them count."""
        text = piece.tokens[:-1] if piece.tokens[-1] == self.end else piece.tokens
        both = self.noise.corrupt(text, lambda count, what: draws.shares(piece, count, what))
        parts = []
        for codes in both:
            codes = np.append(codes, self.end)
            own = codes < 0
            counts = np.ones(len(codes), np.bool_)
            if piece.counted is not None:
                counts[own] = piece.counted[~codes[own]]
            ids = codes.copy()
            ids[own] = text[~codes[own]]
            parts.append((ids, counts))
        return parts

    def _apart(self, parts: list[Any], context: int) -> Example:
        """Sources in one row, targets in another."""
        targets = [
            replace(piece, before=self.end, tokens=target, counted=counts)
            for piece, _, (target, counts) in parts
        ]
        row, _ = laid_out(targets, width(self.settings, context))
        ids, documents = np.zeros((1, context), np.int64), np.full((1, context), -1, np.int64)
        filled = 0
        for piece, (source, _), _ in parts:
            place = slice(filled, filled + len(source))
            ids[0, place], documents[0, place] = source, piece.document
            filled = place.stop
        source, of_source = torch.from_numpy(ids), torch.from_numpy(documents)
        return replace(row, source=source, source_documents=of_source)


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
