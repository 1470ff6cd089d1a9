"""Measures of scores that separate two sets: curves, areas, calibration, thresholds.

`scores` is float64[n], the scores of documents of both sets. `good` is bool[n], True for documents
of the positive set. A document is kept if score >= threshold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BINS = 10
KEPT = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 0.9)
POINTS = 200  # of a curve in evaluation.json and on the page


def kept_count(documents: int, fraction: float) -> int:
    """Return the number of documents in the best `fraction` of them: rounded up, at least one."""
    exact = documents * fraction
    near = round(exact)
    return max(1, near if math.isclose(exact, near, rel_tol=1e-12) else math.ceil(exact))


def threshold_of(scores: np.ndarray, fraction: float) -> float:
    """Return the highest threshold that keeps at least this fraction of the scores."""
    at = len(scores) - kept_count(len(scores), fraction)
    return float(np.partition(scores, at)[at])


def steps(scores: np.ndarray, good: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Try each distinct score as a threshold, in descending order. Return (thresholds: float64[k],
    good documents kept: int64[k], other documents kept: int64[k])."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    right = np.cumsum(good[order], dtype=np.int64)[last]
    return ordered[last], right, last + 1 - right


def roc_auc(scores: np.ndarray, good: np.ndarray) -> float:
    """Return the share of pairs (good, other) in which the good document scores higher. Ties count
    half."""
    _, right, wrong = steps(scores, good)
    x = np.concatenate(([0], wrong)).astype(np.float64)
    y = np.concatenate(([0], right)).astype(np.float64)
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / (x[-1] * y[-1]))


def average_precision(scores: np.ndarray, good: np.ndarray) -> float:
    """Return the sum, over thresholds, of precision times gain in recall (no interpolation)."""
    _, right, wrong = steps(scores, good)
    precision = right / (right + wrong)
    return float(np.sum(np.diff(np.concatenate(([0], right))) * precision) / right[-1])


def calibration(
    scores: np.ndarray, good: np.ndarray
) -> dict[str, float | list[dict[str, float | None]]]:
    """Return {"bins": figures for each tenth of the score (documents, mean score, share of good
    documents), "error": the expected calibration error, the mean |score - share|} (Naeini et al.
    2015)."""
    place = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    rows, error = [], 0.0
    for b in range(BINS):
        inside = place == b
        n = int(inside.sum())
        mean = float(scores[inside].mean()) if n else None
        share = float(good[inside].mean()) if n else None
        if mean is not None and share is not None:
            error += n * abs(mean - share)
        rows.append({"from": b / BINS, "documents": n, "score": mean, "good": share})
    return {"bins": rows, "error": error / len(scores)}


def deciles(scores: np.ndarray, good: np.ndarray) -> list[dict[str, float]]:
    """Return ten groups of documents of equal size, best scores first. Each group has its highest
    and lowest score, its number of documents, and its number of good documents."""
    order = np.argsort(-scores, kind="stable")
    rows = []
    for part in np.array_split(order, BINS):
        if len(part):
            rows.append(
                {
                    "most": float(scores[part[0]]),
                    "least": float(scores[part[-1]]),
                    "documents": len(part),
                    "good": int(good[part].sum()),
                }
            )
    return rows


def kept_fractions(scores: np.ndarray, good: np.ndarray) -> list[dict[str, float]]:
    """Return one row per fraction in KEPT: the threshold that keeps at least this fraction of the
    other (not good) documents, and the shares of other and of good documents above this
    threshold."""
    others, best = np.sort(scores[~good]), np.sort(scores[good])
    rows = []
    for fraction in KEPT:
        threshold = threshold_of(others, fraction)
        recall = 1 - np.searchsorted(best, threshold) / len(best)
        kept = 1 - np.searchsorted(others, threshold) / len(others)
        row = {"keep": fraction, "threshold": threshold, "kept": float(kept)}
        rows.append(row | {"good_kept": float(recall)})
    return rows


def curves(scores: np.ndarray, good: np.ndarray) -> dict[str, list[list[float]]]:
    """Return two curves with few points: `precision_recall`, whose points are [recall, precision],
    and `roc`, whose points are [share of others kept, share of good kept]."""
    _, right, wrong = steps(scores, good)
    recall, false = right / right[-1], wrong / wrong[-1]
    precision = right / (right + wrong)
    # Points are spaced evenly along both axes, so neither end of a curve is one long line.
    length = np.cumsum(np.diff(recall, prepend=0) + np.diff(false, prepend=0))
    at = np.unique(np.searchsorted(length, np.linspace(length[0], length[-1], POINTS)))
    at = np.minimum(at, len(right) - 1)

    def pairs(xs: np.ndarray, ys: np.ndarray) -> list[list[float]]:
        return [
            [round(x, 6), round(y, 6)]
            for x, y in zip(xs[at].tolist(), ys[at].tolist(), strict=True)
        ]

    return {
        "precision_recall": pairs(recall, precision),
        "roc": [[0.0, 0.0], *pairs(false, recall)],
    }


def measure(scores: np.ndarray, good: np.ndarray) -> dict[str, Any] | None:
    """Return all measures as JSON values, or None if all documents are good or none is."""
    positive = int(good.sum())
    if positive in (0, len(good)):
        return None
    return {
        "documents": {"positive": positive, "negative": len(good) - positive},
        "roc_auc": roc_auc(scores, good),
        "average_precision": average_precision(scores, good),
        "calibration": calibration(scores, good),
        "deciles": deciles(scores, good),
        "thresholds": kept_fractions(scores, good),
        "curves": curves(scores, good),
        "agreement": agreement(scores, good),
    }


def agreement(scores: np.ndarray, good: np.ndarray) -> dict[str, Any]:
    """Return how well "score >= 0.5" agrees with `good`: accuracy, F1, and Cohen's kappa, the share
    of agreement beyond chance (Cohen 1960). The 95 % interval of kappa comes from tables of counts
    drawn from a posterior (Dirichlet, with Jeffreys' prior), so that the interval stays wide for a
    few documents that all agree."""
    kept = scores >= 0.5
    counts = np.bincount(2 * kept + good, minlength=4)  # by kept, good
    tables = np.random.default_rng(0).dirichlet(counts + 0.5, 10_000)
    ends = np.quantile(_kappa(tables), (0.025, 0.975))
    return {
        "accuracy": float((kept == good).mean()),
        "f1": float(2 * counts[3] / (counts[1] + counts[2] + 2 * counts[3])),
        "kappa": float(_kappa(counts / len(scores))),
        "kappa_interval": ends.tolist(),
    }


def _kappa(shares: np.ndarray) -> np.ndarray:
    """Return Cohen's kappa. shares[..., 4] are the shares of documents that are neither good nor
    kept, only good, only kept, and both."""
    neither, good, kept, both = np.moveaxis(shares, -1, 0)
    chance = (kept + both) * (good + both) + (neither + good) * (neither + kept)
    return np.asarray((neither + both - chance) / (1 - chance))


def summary(figures: dict[str, Any]) -> str:
    n, agreed = figures["documents"], figures["agreement"]
    low, high = agreed["kappa_interval"]
    return (
        f"{n['positive']} positive, {n['negative']} negative: ROC AUC {figures['roc_auc']:.4f},"
        f" average precision {figures['average_precision']:.4f}, calibration error"
        f" {figures['calibration']['error']:.4f}\n"
        f"as good from 0.5 on: accuracy {agreed['accuracy']:.3f}, F1 {agreed['f1']:.3f},"
        f" Cohen's kappa {agreed['kappa']:.3f} (95 % interval {low:.3f} to {high:.3f})"
    )
