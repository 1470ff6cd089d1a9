"""Extend a tokenizer with tokens learned from a corpus; old ids do not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from tokenize_kit.card import Measured, Sample, measure
from tokenize_kit.change.bpe import CharBpe, learn_byte_tokens, learn_character_tokens, pieces_of
from tokenize_kit.change.original import Original, open_tokenizer
from tokenize_kit.change.verify import Buffers, Encode, Lengths, compare_lengths
from tokenize_kit.encode.parts import pack
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import ByteBpe, Pieces
from tokenize_kit.lab.addition import Addition, GrownCard, Growth, Rows
from tokenize_kit.lab.study import MOST_HELD, HeldOut
from tokenize_kit.lab.unigram import learn_pieces
from tokenize_kit.learn.words import weighted_batches


@dataclass(frozen=True, kw_only=True)
class ExtendedCard(GrownCard):
    """The card of a tokenizer to which tokens learned from texts were added. `least` is the lowest
    count of a merged pair in these texts, None for Unigram."""

    least: int | None
    documents: int
    measured_texts: int
    measured_bytes: int
    bytes_a_token_before: float
    bytes_a_token_after: float
    unknown_before_and_after: list[int] | None
    measured: Measured
    notes: list[str]


def extend(
    path: Path,
    batches: Iterable[Buffers],
    out: Path,
    tokens: int,
    *,
    least: int = 2,
    rows: Rows | None = None,
) -> ExtendedCard:
    """Learn up to `tokens` tokens from texts and add them to a tokenizer. Write the new tokenizer
    into the folder `out` and return its card. BPE gets merges after the old ones; Unigram gets
    pieces that it lacks (unigram.py). New ids begin after the highest old id, special tokens
    included. No special token is added. A tenth of the texts, chosen by hash, is held out from
    learning; both tokenizers are measured on it. `least` is the lowest count at which a pair is
    merged. `rows` are the embeddings to extend too."""
    if tokens < 1:
        raise UsageError(f"{path}: give a vocabulary larger than this tokenizer's")
    original = open_tokenizer(path)
    growth = Growth(original, rows)
    held = _TrainingSplit(original)
    if isinstance(original.form, ByteBpe):
        addition = _learn_bytes(original, original.form, held.split(batches), tokens, least)
    elif isinstance(original.form, CharBpe):
        texts, words = held.split(batches), original.words()
        new, merges, parts = learn_character_tokens(original.form, words, texts, tokens, least)
        addition = Addition(new, parts, merges)
    else:
        pieces = learn_pieces(original.form, held.split(batches), tokens)
        addition = Addition(
            [text for text, _, _ in pieces],
            [ids for _, _, ids in pieces],
            scores=[score for _, score, _ in pieces],
        )
    if not addition.tokens:
        raise RunFailed("the corpus gives no new token: give more text or another corpus")
    file, grown = growth.write(addition, out)
    notes = list(held.notes)
    if len(addition.tokens) < tokens:
        notes.append(
            f"{counted(len(addition.tokens), 'token')} instead of {tokens}: the corpus has no more"
        )
    lengths, unknown = held.measured(original.encode, open_vocabulary(file).encode)
    measured, shown = measure(file, *held.sample())
    card = ExtendedCard(
        **vars(grown),
        least=None if addition.merges is None else least,
        documents=held.learned,
        **vars(lengths),
        unknown_before_and_after=unknown,
        measured=measured,
        notes=notes,
    )
    card.write(out / "tokenizer_card.json", shown)
    return card


class _TrainingSplit:
    def __init__(self, original: Original) -> None:
        self._held = HeldOut()
        self._learned: list[bytes] = []
        self._learned_bytes = 0
        self._prepared = original.prepared
        form = original.form
        self._unknown = form.unknown if isinstance(form, Pieces | CharBpe) else None

    @property
    def learned(self) -> int:
        return self._held.learned or len(self._learned)

    def split(self, batches: Iterable[Buffers]) -> Iterator[str]:
        for data, offsets in batches:
            for a, z in pairwise(offsets.tolist()):
                raw = data[a:z].tobytes()
                if raw and not self._held.hold_out(raw):
                    if self._learned_bytes + len(raw) <= MOST_HELD:
                        self._learned_bytes += len(raw)
                        self._learned.append(raw)
                    yield self._text(raw)
        if not self._held.learned:  # few texts, or a repeated one
            self._learned, self._held.texts = self._held.texts, []
            yield from map(self._text, self._learned)

    def _text(self, raw: bytes) -> str:
        text = raw.decode("utf-8")
        return self._prepared(text) if self._prepared else text

    @property
    def notes(self) -> list[str]:
        note = "measured on the texts learned from: too few to hold some out"
        return [] if self._held.texts else [note]

    def sample(self) -> tuple[Sample, str]:
        sample = Sample()
        for raw in self._held.texts or self._learned:
            sample.add(raw)
        return sample, "held-out texts" if self._held.texts else "the texts learned from"

    def measured(self, before: Encode, after: Encode) -> tuple[Lengths, list[int] | None]:
        """Return (bytes per token of the old and new tokenizer, [unknown tokens of each] or None).
        An unknown token can replace a word, which makes bytes per token look too good."""
        unknown = [0, 0]

        def count_unknown(_: Buffers, *ids_of_both: Buffers) -> None:
            for side, (ids, _sizes) in enumerate(ids_of_both):
                unknown[side] += int((ids == self._unknown).sum())

        batch = pack(self._held.texts or self._learned)
        lengths = compare_lengths(before, after, [batch], count_unknown)
        return lengths, None if self._unknown is None else unknown


def _learn_bytes(
    original: Original, form: ByteBpe, texts: Iterable[str], tokens: int, least: int
) -> Addition:
    plan = original.plan()
    batches = ((data, bounds) for data, bounds, _ in weighted_batches((t, 1) for t in texts))
    new, merges = learn_byte_tokens(form, plan, batches, tokens, least)
    ids, sizes = pieces_of(plan, *pack(new))
    parts = [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])] if new else []
    return Addition(new, parts, merges)
