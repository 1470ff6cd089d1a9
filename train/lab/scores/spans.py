"""The score `spans`: how well models fill in blanked spans of words.

The spans are drawn from the words of a text before it is encoded, so they are the same for all
models and tokenizers. Each model fills them in as it has learned. An encoder reads its mask token
for each token of a span. A model with a denoising objective reads this objective's source and
writes its target. Any other decoder reads the text left of a span."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.tokenizer_file import special_ids
from train.config import TrainConfig
from train.data.readers import Flags, Floats
from train.data.rows import Piece
from train.data.vocabulary import vocabulary
from train.evaluate.judge import Judged, Values, load_judged, stored_values
from train.evaluate.scores import SCORES, Items, Score
from train.lab.objectives.denoise import (
    NOISES,
    Denoising,
    Noise,
    hidden_of,
    random_spans,
    spans_of,
)
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring, batches
from train.model.config import ModelConfig
from train.objective_settings import Causal, Denoiser, FillInTheMiddle, Prefix
from train.objectives.example import IGNORED, Draws, Example, Objective, causal_row
from train.objectives.objectives import kind_of
from train.runs.checkpoint import load_plan, newest

RATE, SPAN = 0.15, 3.0  # share of hidden words, mean words of a span (Raffel et al. 2020, 3.3.4)
# A word with the space before it; longer runs, as in scripts without spaces, are cut.
_WORD = re.compile(r"\s*(?:\S{1,20}(?!\S)|\S{1,4})")


@cache
def cut(text: str) -> tuple[tuple[str, bool], ...]:
    """Return each part of a text and whether it is blanked. The text's hash is the random seed."""
    words, key = _WORD.findall(text), xxhash.xxh3_64_intdigest(text.encode())
    count = np.array(len(words))
    hidden = hidden_of(RATE, count)
    flags = random_spans(
        len(words),
        int(hidden),
        int(spans_of(SPAN, hidden, count)),
        lambda number, stream: np.random.default_rng([key, stream]).random(number),
    )
    edges = np.flatnonzero(np.diff(flags)) + 1
    bounds = [0, *edges.tolist(), len(words)]
    return tuple(
        ("".join(words[first:last]), bool(flags[first]))
        for first, last in pairwise(bounds)
        if last > first
    )


def _documents(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, kw_only=True)
class Blanked(Piece):
    """A piece of text with ``hidden`` [tokens], True for the tokens of blanked spans."""

    hidden: Flags


class Filling(Objective):
    """Predict the hidden tokens of ``Blanked`` pieces, which are texts with blanked spans. Each
    model reads a piece in the form known from its training: with mask tokens, as the source of its
    denoising objective, or as plain text. ``learned``: the settings of the model's training."""

    def __init__(self, judged: Judged, learned: TrainConfig, context: int) -> None:
        kind, model = kind_of(learned), judged.model
        needed = kind.needs(learned.objective, context)
        special = model.special
        size, known = model.config.vocab, special_ids(judged.tokenizer)
        tokens = vocabulary(size, known, judged.tokenizer_file, needed, special.end)
        super().__init__(learned.objective, tokens)
        self.context, self.encoder = context, model.config.form == "encoder"
        self.learned: Denoising | None = None
        if isinstance(learned.objective, Denoiser):
            self.learned = Denoising(learned.objective, tokens)

    def fits(self, hidden: Flags) -> bool:
        """Return True if a piece of text with these hidden tokens fits into a row."""
        if self.learned is None:
            return len(hidden) + self.encoder <= self.context
        marks = sum(role.startswith("sentinel ") for role in self.tokens.special)
        spans = int((hidden & ~np.append(False, hidden[:-1])).sum())
        if 0 < marks < spans:
            return False
        source, target, _ = self.learned.noise.fill(hidden)
        if self.learned.form != "encoder-decoder":
            return len(source) + len(target) + 2 <= self.context
        return max(len(source), len(target)) < self.context

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        (piece,) = pieces
        assert isinstance(piece, Blanked)
        if self.learned is not None:
            return self._denoised(self.learned, piece, context, draws)
        if not self.encoder:
            return causal_row([replace(piece, counted=piece.hidden)], context)[0]
        # A row does not read its last token, so a token is added at the end of the text.
        longer = replace(piece, tokens=np.append(piece.tokens, piece.before))
        row, _ = causal_row([longer], context)
        hidden = np.zeros((1, context), np.bool_)
        hidden[0, 1 : 1 + len(piece.hidden)] = piece.hidden
        targets = np.where(hidden, row.inputs.numpy(), IGNORED)
        inputs = np.where(hidden, self.tokens.special["mask"], row.inputs.numpy())
        tensors = (row.inputs.new_tensor(array) for array in (inputs, targets))
        return replace(row, **dict(zip(("inputs", "targets"), tensors, strict=True)))

    def _denoised(self, learned: Denoising, piece: Blanked, context: int, draws: Draws) -> Example:
        source, target, scored = learned.noise.fill(piece.hidden)
        row = learned.joined([learned.ended(piece, source, target)], context, context)
        before = 0 if learned.form == "encoder-decoder" else len(source) + 1
        row.targets[0, :before] = IGNORED
        row.targets[0, before : before + len(target)][~scored] = IGNORED
        if not scored.all():  # the target is the whole text, whose end is no part of a span
            row.targets[0, before + len(target)] = IGNORED
        return row


@dataclass(frozen=True)
class _Windows:
    """Rows with one piece of text each."""

    windows: Sequence[Blanked]
    context: int

    @property
    def count(self) -> int:
        return len(self.windows)

    def width(self, row: int) -> int:
        return self.context

    def pieces(self, row: int) -> list[Piece]:
        return [self.windows[row]]


def windows(hidden: Flags, fits: Callable[[Flags], bool]) -> Iterator[slice]:
    """Yield parts of a text that fit into a row. Each hidden token is in exactly one of them.
    Raises ``LlmcurateError`` if a span does not fit alone."""
    starts = np.flatnonzero(hidden & ~np.append(False, hidden[:-1]))
    if not len(starts):
        return
    if fits(hidden):
        yield slice(0, len(hidden))
    elif len(starts) > 1:
        second = int(starts[len(starts) // 2])
        first_end = int(np.flatnonzero(hidden[:second])[-1]) + 1
        middle = (first_end + second) // 2
        yield from windows(hidden[:middle], fits)
        for part in windows(hidden[middle:], fits):
            yield slice(part.start + middle, part.stop + middle)
    else:
        first, last = int(starts[0]), int(np.flatnonzero(hidden)[-1]) + 1
        left, right = first, len(hidden) - last
        while not fits(hidden[first - left : last + right]):
            if not (left or right):
                raise RunFailed("the context is too short for a span of words: raise --context")
            left, right = (left // 2, right) if left > right else (left, right // 2)
        yield slice(first - left, last + right)


def span_nats(
    judged: Judged, learned: TrainConfig, texts: Sequence[str], context: int, scoring: Scoring
) -> Floats:
    """Return the nats of the blanked spans of each text. ``learned``: the settings of the model's
    training."""
    objective = Filling(judged, learned, context)
    end, pieces, document = judged.model.special.end, list[Blanked](), list[int]()
    before = judged.begin if judged.begin is not None else end
    assert before is not None
    for number, text in enumerate(texts):
        parts = [
            (judged.tokenizer.encode(part, add_special_tokens=False).ids, blank)
            for part, blank in cut(text)
        ]
        ids = np.array([token for own, _ in parts for token in own], np.int64)
        hidden = np.array([blank for own, blank in parts for _ in own], np.bool_)
        for place in windows(hidden, objective.fits):
            begins = place.start == 0 or objective.encoder
            piece = Blanked(
                document=len(pieces),
                first=place.start,
                before=before if begins else int(ids[place.start - 1]),
                tokens=ids[place],
                hidden=hidden[place],
            )
            pieces.append(piece)
            document.append(number)
    by_window = np.zeros(len(pieces))
    rows = _Windows(pieces, context)
    for _, of, values in batches(judged.model, rows, rows.count, objective, scoring):
        np.add.at(by_window, of, values)
    return np.bincount(document, by_window, minlength=len(texts)).astype(np.float64)


class Spans(Score):
    """The score of blanked spans: their loss, in bits per byte of the spans."""

    reads = "texts"
    say = (
        "15 % of the words are blanked, in spans of 3 on average; encoders read a mask for each"
        " token, denoising models what marks a span for them, and other decoders only what stands"
        " left of it"
    )

    def check(self, name: str, model: ModelConfig, train: TrainConfig) -> None:
        learned = train.objective
        fills = model.fills and not model.head.replaced
        if isinstance(learned, Denoiser):
            fills = NOISES[type(learned)].fill is not Noise.fill
        elif model.form == "decoder":
            fills = isinstance(learned, (Causal, Prefix, FillInTheMiddle))
        if not fills:
            other = "give --score FILE, a JSONL file of a fine-tuning task"
            if model.form == "encoder-decoder":
                other = "set pretrain.objective to one that does, such as spans"
            raise UsageError(f"{name}: a model that learns {learned.kind} fills no spans: {other}")

    def items(self, path: Path) -> Items:
        documents = _documents(path)
        sizes = [
            sum(len(part.encode()) for part, blank in cut(document["text"]) if blank)
            for document in documents
        ]
        return Items(np.array(sizes, np.int64), [str(d.get("source") or "") for d in documents])

    def values(self, run: Path, texts: Mapping[str, Path], train: Mapping[str, Any]) -> Values:
        def nats(missing: Sequence[str]) -> Values:
            judged = load_judged(run, device=train.get("device", "auto"))
            checkpoint = newest(run / "checkpoints")
            assert checkpoint is not None
            place = judged.model.embedding.weight.device
            precision = train.get("precision", "auto")
            scoring = Scoring(Ranks(device=place), train["rows"], precision)
            learned = load_plan(checkpoint).train
            read = {name: [d["text"] for d in _documents(texts[name])] for name in missing}
            return {
                name: span_nats(judged, learned, own, train["context"], scoring)
                for name, own in read.items()
            }

        content = {name: file_digest(path) for name, path in texts.items()}
        return stored_values(run, content, f"spans {train['context']}", nats)


SCORES["spans"] = Spans
