"""Copies that a dedup does not find because it compares texts as they are, counted on a sample."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from curate.corpus.manifests import part_path, read_kept
from curate.dedup.removal import DedupStep
from curate.documents.documents import NUMBER
from curate.steps.contracts import CorpusStep
from llmcurate.base.disk.units import counted

# Of a sample: texts, characters of each, and the partitions that it is taken from.
TEXTS, MOST_CHARS, PARTS = 500, 20_000, 4


def overlooked(step: CorpusStep, folder: Path, parts: int, decisions: Path) -> str | None:
    """A sentence on how many texts of a sample of those that stay are copies of another one in
    NFKC_Casefold, if there are any. folder: of the stage before the step, with so many partitions.
    """
    if not isinstance(step, DedupStep) or not step.of_texts or step.compare != "raw":
        return None
    from curate.text.compared import nfkc_casefold

    texts = set(islice(_left(folder, parts, decisions), TEXTS))
    more = len(texts) - len(set(map(nfkc_casefold, texts)))
    if not more:
        return None
    return (
        f"{step.label}: in a sample of {counted(len(texts), 'kept text')}, {more:,} differ from"
        " another only in case, width or Unicode form; `compare: nfkc_cf` finds these too"
    )


def _left(folder: Path, parts: int, decisions: Path) -> Iterator[str]:
    """The texts that stay of some partitions, which the number of partitions decides; long ones
    are left out."""
    for part in np.random.default_rng(parts).permutation(parts)[:PARTS].tolist():
        if not part_path(folder, part, "kept").exists():  # a rehearsal has sketches alone
            continue
        of_part = [("part", "==", part), ("drop", "==", True)]
        gone = {*pq.read_table(decisions, columns=["n"], filters=of_part)["n"].to_pylist()}
        for batch in read_kept(folder, part, 100):
            for n, text in zip(*(batch[c].to_pylist() for c in (NUMBER, "text")), strict=True):
                if text and n not in gone and len(text) < MOST_CHARS:
                    yield text
