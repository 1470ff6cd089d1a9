"""The nats of documents: what a trained model spends on each document of a text, kept beside it.

From these all figures of a comparison are made, and made anew, without training: RUN/nats.npz has
an array of each text by its name, and what they were computed from.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llmcurate.base.disk.files import write_atomic
from train.data.shards import read_shards
from train.device import autocast
from train.evaluate.judge import open_model, shards_of
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring, Text
from train.loop.start import start_of

FILE = "nats.npz"
_MADE_OF = "made of"

Nats = dict[str, npt.NDArray[np.float64]]


def document_nats(
    run: Path,
    texts: Mapping[str, Path],
    *,
    context: int,
    batch_rows: int = 8,
    precision: str = "auto",
    device: str = "auto",
) -> Nats:
    """The nats of every document of ``texts``, folders of shards by the run's tokenizer, in their
    order: as the run's file has them, or computed by its newest checkpoint and written there.
    Raises ``LlmcurateError``.
    """
    weights = start_of(run).digest
    made_of = {
        name: f"{read_shards(path).fingerprint} {weights} {context}" for name, path in texts.items()
    }
    stored, stored_of = _read(run / FILE)
    nats = {name: stored[name] for name in texts if stored_of.get(name) == made_of[name]}
    missing = [name for name in texts if name not in nats]
    if not missing:
        return nats
    judged = open_model(run, device=device)
    place = judged.model.embedding.weight.device
    how = Scoring(
        batch_rows=batch_rows, ranks=Ranks(device=place), autocast=autocast(place, precision)
    )
    for name in missing:
        text = Text(shards_of(judged, texts[name]), context, judged.begin)
        nats[name] = text.nats(judged.model, how)
    buffer = io.BytesIO()
    np.savez(buffer, **{**nats, _MADE_OF: np.array(json.dumps(made_of))})  # type: ignore[arg-type]
    write_atomic(run / FILE, buffer.getvalue())
    return nats


def _read(path: Path) -> tuple[Nats, dict[str, str]]:
    """The arrays of a file and what each was made of; nothing where there is none, or a damaged
    one, which is made again."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            made_of = json.loads(str(arrays[_MADE_OF]))
            return {name: arrays[name] for name in made_of}, made_of
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile):
        return {}, {}
