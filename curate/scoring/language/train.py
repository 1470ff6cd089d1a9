"""Train a fastText classifier of languages from labelled documents.

The same documents give the same bytes, in whatever order they come: lines are ordered by hash,
one thread trains, the seed is a setting, and the memory of the process begins as zeros. With one
thread fastText 0.9.2 draws random numbers for a tenth of the input matrix only
(`DenseMatrix::uniform` runs block 0 of ten) and trains on whatever the memory held in the rest:
the same lines give another model, or one that diverges. Where the allocator fills what it hands
out, the rest is the same in every run, and zero with glibc.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from curate.scoring.fasttext.model_file import PREFIX
from curate.scoring.language.examples import BATCH, Lines, Training
from curate.scoring.language.model import Model, library, need_library
from curate.scoring.language.scores import Scores
from curate.steps.contracts import CallApart
from llmcurate.base.disk.files import TEMPORARY, clear_temporary, file_digest, replacing, write_text
from llmcurate.base.errors import RunFailed, UsageError

# glibc fills with the complement of 255 (mallopt(3), M_PERTURB), macOS with 0xAA, which as numbers
# is -3e-13.
FILLED = {
    "MALLOC_PERTURB_": "255",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=255",
    "MallocPreScribble": "1",
}


def fit_apart(source: Path, target: Path, training: Training, call_apart: CallApart) -> None:
    """Trains on fastText's own file format, in a process of its own, and writes the model to
    target. RunFailed says why not."""
    need_library()
    payload = {"source": str(source), "target": str(target), "training": asdict(training)}
    call_apart("curate.scoring.language.train:fit", payload, FILLED)


def fit(payload: dict[str, Any]) -> dict[str, Any]:
    """What the process does."""
    source, training = payload["source"], Training(**payload["training"])
    native = library()
    arguments = native.args()
    values = {
        "input": source,
        "output": "",
        "saveOutput": False,
        "model": native.model_name.supervised,
        "loss": getattr(native.loss_name, training.loss),
        "label": PREFIX,
        "lr": training.lr,
        "dim": training.dim,
        "epoch": training.epochs,
        "minCount": training.min_count,
        "minCountLabel": 0,
        "wordNgrams": training.word_ngrams,
        "minn": training.minn,
        "maxn": training.maxn,
        "bucket": training.bucket if training.maxn or training.word_ngrams > 1 else 0,
        "thread": 1,  # several threads write into one matrix in no order
        "seed": training.seed,
        "verbose": 0,
    }
    for key, value in values.items():
        setattr(arguments, key, value)
    model = native.fasttext()
    try:
        native.train(model, arguments)
        if training.quantize:
            cut, again = training.cutoff, training.cutoff > 0
            rest = (training.epochs, training.lr, 1, 0, 2, True)  # dsub 2, norms apart
            model.quantize(source, False, cut, again, *rest)
        model.saveModel(payload["target"])
    except (RuntimeError, ValueError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else "out of memory"
        if "NaN" in reason:
            reason = f"it diverged; set an lr below {training.lr}"
        raise RunFailed(f"training the language model failed: {reason}") from None
    return {}


CARD = "card.json"


def train(
    examples: Iterable[tuple[str, str]],
    folder: Path,
    training: Training,
    call_apart: CallApart,
) -> dict[str, Any]:
    """Trains on (text, label) pairs; leaves language.bin (or .ftz) and card.json in the folder.

    call_apart: for fastText's own training. Returns the card. UsageError with fewer than two
    labels, RunFailed where training diverges.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clear_temporary(folder)
    target = folder / f"language.{'ftz' if training.quantize else 'bin'}"
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder))
        file = stack.enter_context((Path(name) / "lines").open("wb+"))
        lines = Lines(file, training)
        lines.add_all(examples)
        if len(lines.labels_in_training()) < 2:
            labels = ", ".join(sorted(lines.names)) or "none"
            raise UsageError(
                f"a language model needs two labels at least; found: {labels}"
                " (--label names their column)"
            )
        lines.write(Path(name) / "train.txt")
        with replacing(target) as aside:
            fit_apart(Path(name) / "train.txt", aside, training, call_apart)
        scores = _held_out(Model(target), lines)
    card = {"version": 1, **lines.counts(), "settings": asdict(training), "held_out": scores}
    card |= {"file": target.name, "bytes": target.stat().st_size}
    card["sha256"] = file_digest(target)
    write_text(folder / CARD, json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return card


def _held_out(model: Model, lines: Lines) -> dict[str, Any]:
    scores = Scores(model.labels)
    names, labels = list(lines.names), [*model.labels, None]
    rows: list[int] = []
    texts: list[bytes] = []

    def count() -> None:
        ends = np.concatenate(([0], np.cumsum([len(t) for t in texts]))).astype(np.int64)
        packed = np.frombuffer(bytearray().join(texts), np.uint8)
        codes, sure = model.best(packed, ends, np.ones(len(texts), np.bool_))
        expected = [names[lines.label[r]] for r in rows]
        chars = [lines.chars[r] for r in rows]
        scores.add(expected, [labels[c] for c in codes], chars, sure.tolist())
        rows.clear()
        texts.clear()

    for row, line in lines.ordered(held=True):
        rows.append(row)
        texts.append(line)
        if len(rows) == BATCH:
            count()
    count()
    return scores.result()
