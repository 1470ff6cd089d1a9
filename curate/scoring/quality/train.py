"""Train a quality classifier that separates good documents from ordinary ones.

The same documents, in any order, give the same model file (see scoring/language/train.py). Presets
train on whole documents, prepared as in curate/scoring/quality/model.py; docs/quality.md has their
sources. `dclm` has the settings published with Li et al. 2024 (section 4.4 and appendix), not those
of the script in its repository, whose wordNgrams is 1. `openwebmath` reads texts in the normal form
of the step `math_score`, without formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.direct_input import DirectInput
from curate.formats.read_settings import ReadSettings
from curate.scoring.language.train import Example, Lines, Training, train_on, write_card
from curate.scoring.quality.measures import measure
from curate.scoring.quality.model import GOOD, REST, Classifier, joined_lines
from curate.steps.contracts import CallApart
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.errors import UsageError


class Texts:
    """The texts of some inputs. Every call of `batches` reads the inputs again. If `scores` is
    (least, below), only documents with least <= score < below are used."""

    def __init__(
        self,
        inputs: Sequence[str],
        quiet: bool = False,
        read: ReadSettings | None = None,
        scores: tuple[float, float] | None = None,
    ) -> None:
        self._direct = DirectInput.of_texts(inputs, read, quiet)
        self.scores = scores

    def batches(self) -> Iterator[pa.LargeStringArray]:
        """Yield the texts. Raises UsageError if scores are needed and the input has none."""
        for batch in self._direct.batches(["text", "score"] if self.scores else ["text"]):
            if self.scores is not None:
                try:
                    scores = batch.column("score").cast(pa.float64())
                except (KeyError, pa.ArrowException):
                    raise UsageError("--labels: no column `score` with numbers") from None
                least, below = self.scores
                inside = pc.and_(pc.greater_equal(scores, least), pc.less(scores, below))
                batch = batch.filter(inside)
            yield as_large_string(batch.column("text"))

    @property
    def tally(self) -> dict[str, int]:
        """Numbers of documents in the last reading: read, kept, corrupt."""
        figures = self._direct.tally
        return {name: figures[name] for name in ("read", "kept", "corrupt")}


def score_all(model: Classifier, texts: Texts) -> np.ndarray:
    """Return float64[documents]: the scores. Raises UsageError if the input has no documents."""
    parts = [model.scores(*text_buffers(batch)) for batch in texts.batches()]
    scores = np.concatenate(parts) if parts else np.zeros(0)
    if not len(scores):
        raise UsageError("the input has no document with text")
    return scores


_WORDS = Training(
    dim=100, minn=0, maxn=0, word_ngrams=1, loss="softmax", epochs=5, lr=0.1, held_out=0.1
)
PRESETS = {"dclm": replace(_WORDS, word_ngrams=2), "llama": _WORDS, "gpt3": _WORDS}
PRESETS["openwebmath"] = PRESETS["dclm"]


def _examples(positive: Texts, negative: Texts, preset: str | None) -> Iterator[Example]:
    from curate.scoring.math_score import normal

    for texts, label in ((positive, GOOD), (negative, REST)):
        for batch in texts.batches():
            for text in batch.to_pylist():
                yield normal(text or "") if preset == "openwebmath" else text, label


def train(
    positive: Texts,
    negative: Texts,
    folder: Path,
    training: Training,
    call_apart: CallApart,
    samples: int = 0,
    balance: bool = False,
    preset: str | None = None,
) -> dict[str, Any]:
    """Train on two sets, and write quality.bin (or .ftz) and card.json to the folder. Return the
    model card. `call_apart` is a function that runs fastText's training in a separate process.
    `samples` is the largest number of documents to use of each set, chosen by hash, or 0 for all.
    `balance` is True to use equally many documents of both sets. Raises UsageError if a set has
    nothing to train on, RunFailed if training diverges."""

    def choose(lines: Lines) -> np.ndarray:
        for label, option in ((GOOD, "--positive"), (REST, "--negative")):
            if label not in lines.labels_in_training():
                if positive.scores:
                    side = "from {0:g} on" if label == GOOD else "below {0:g}"
                    option = f"--labels with scores {side.format(positive.scores[0])}"
                raise UsageError(f"nothing to train on: {option} has no document with words")
        rows = lines.order(held=False)
        most = min(_by_label(lines, rows).values()) if balance else len(rows)
        return lines.first(rows, min(most, samples) if samples else most)

    target = folder / f"quality.{'ftz' if training.quantize else 'bin'}"
    examples = _examples(positive, negative, preset)
    lines, rows, scores = train_on(
        examples, target, training, call_apart, choose, _held_out, joined_lines
    )
    return write_card(
        target,
        preset=preset,
        **lines.counts()._asdict(),
        trained=_by_label(lines, rows),
        settings=asdict(training) | {"samples": samples, "balance": balance},
        text="stripped, line ends as blanks",
        held_out=scores,
    )


def _by_label(lines: Lines, rows: np.ndarray) -> dict[str, int]:
    codes = np.frombuffer(lines.label, np.int32)[rows]
    return {n: int((codes == c).sum()) for n, c in sorted(lines.names.items())}


def _held_out(file: Path, lines: Lines) -> object:
    model = Classifier(file, GOOD)
    parts = [
        model.line_scores(packed, ends, np.ones(len(rows), np.bool_))
        for rows, packed, ends in lines.held_out()
    ]
    scores = np.concatenate(parts) if parts else np.zeros(0)
    good = np.frombuffer(lines.label, np.int32)[lines.order(held=True)] == lines.names[GOOD]
    return measure(scores, good)
