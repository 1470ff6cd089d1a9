"""Curves of training runs, averaged over runs that differ by their seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from train.runs.metrics import read_lines

POINTS = 100  # most points of a curve


def loss_curve(folders: list[Path], tokens: int) -> list[tuple[int, float]]:
    """Return points (tokens read so far, mean loss of the runs). ``tokens``: tokens per step."""
    columns = []
    for folder in folders:
        lines = read_lines(folder / "metrics.jsonl")
        losses = [line["loss"] if line.get("loss") is not None else np.nan for line in lines]
        columns.append(losses)
    steps = min(map(len, columns))
    losses = np.nanmean([column[:steps] for column in columns], axis=0)
    stride = -(-steps // POINTS)
    starts = range(0, steps, stride)
    return [
        (min(at + stride, steps) * tokens, float(np.nanmean(losses[at : at + stride])))
        for at in starts
    ]


def text_curve(folders: list[Path], texts: list[str], tokens: int) -> list[tuple[int, float]]:
    """Return points (tokens read, mean bits per byte of ``texts``). ``tokens``: tokens per step."""
    points: dict[int, list[float]] = {}
    for folder in folders:
        for line in read_lines(folder / "metrics.jsonl"):
            scores = [line.get("eval", {}).get(name) for name in texts]
            if scores and None not in scores and all(score["bytes"] for score in scores):
                bits = sum(score["bits_per_byte"] * score["bytes"] for score in scores)
                total = sum(score["bytes"] for score in scores)
                points.setdefault(line["step"] * tokens, []).append(bits / total)
    return [(at, float(np.mean(values))) for at, values in sorted(points.items())]
