"""Several tokenizers on the same texts, read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenize_kit.judge.boundaries import pieces
from tokenize_kit.judge.candidate import open_candidate, texts_of
from tokenize_kit.judge.parity import add_gini, add_lengths
from tokenize_kit.judge.tally import OTHERS, Tally

EXCERPT = 300  # characters of a text that is shown
Batch = tuple[np.ndarray, np.ndarray, Mapping[str, Sequence[str | None]]]


def compare(
    paths: Sequence[Path],
    batches: Iterable[Batch],
    groups: Sequence[str] = (),
    show: int = 0,
    pattern: str | None = None,
    baseline: int | None = None,
) -> dict[str, Any]:
    """`tokenizers`: a `Tally.result` of each; `shown`: the beginnings of the first `show` texts
    that are not empty, cut by each tokenizer. pattern: how files of ranks are cut. baseline: the
    number of the path against whose tokens every sequence is measured.

    batches: (data: uint8[] valid UTF-8, offsets: int64[rows + 1], labels by group). Memory does not
    grow with the texts. Raises TokenizerError naming a tokenizer that cannot be read.
    """
    tallies = [Tally(open_candidate(path, pattern), groups) for path in paths]
    shown: list[dict[str, Any]] = []
    for data, offsets, labels in batches:
        for tally in tallies:
            tally.add(data, offsets, labels)
        for row in range(len(offsets) - 1):
            if len(shown) >= show:
                break
            text = texts_of(data, offsets[row : row + 2])[0]
            if text:
                cut = [pieces(tally.candidate, text[:EXCERPT]) for tally in tallies]
                shown.append({"cut": len(text) > EXCERPT, "pieces": cut})
    results = [tally.result() for tally in tallies]
    for result in results:
        add_gini(result, OTHERS)
    if baseline is not None:
        add_lengths(results, baseline, groups)
    return {"tokenizers": results, "shown": shown}
