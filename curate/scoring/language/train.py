"""Train a fastText classifier of languages from labelled documents.

The same documents give the same bytes, in whatever order they come: lines are ordered by hash
(a stretch of one language after another would also teach badly), one thread trains, and the seed
is given.
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

from curate.disk.atomic import TEMPORARY, clear_temporary, replacing, write_text
from curate.disk.digests import file_digest
from curate.errors import UsageError
from curate.scoring.language.examples import BATCH, Lines
from curate.scoring.language.fit import fit_apart
from curate.scoring.language.native import Model
from curate.scoring.language.scores import Scores
from curate.scoring.language.training import Training
from curate.steps.contracts import CallApart

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
            found = ", ".join(sorted(lines.names)) or "none"
            raise UsageError(f"a language model needs two labels at least; found: {found}")
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
    names, found = list(lines.names), [*model.labels, None]
    rows: list[int] = []
    texts: list[bytes] = []

    def count() -> None:
        ends = np.concatenate(([0], np.cumsum([len(t) for t in texts]))).astype(np.int64)
        packed = np.frombuffer(bytearray().join(texts), np.uint8)
        codes, sure = model.best(packed, ends, np.ones(len(texts), np.bool_))
        expected = [names[lines.label[r]] for r in rows]
        chars = [lines.chars[r] for r in rows]
        scores.add(expected, [found[c] for c in codes], chars, sure.tolist())
        rows.clear()
        texts.clear()

    for row, line in lines.ordered(held=True):
        rows.append(row)
        texts.append(line)
        if len(rows) == BATCH:
            count()
    count()
    return scores.result()
