"""Fits the weights of curate/extract/blocks.py, and says what they are worth on sites not seen.

    python benchmarks/fit_extract.py [--write]

Truth: 532 real pages, each with a few passages that belong to its main text and a few that do not.
These mark few blocks; the others are marked by what trafilatura makes of the page in three modes:
the share of them that has the block's text (with resiliparse and jusText among them, which are
worse at it, the fit is worse by 0.005). Blocks count by the square root of their length, those
that a passage marks ten times. The figures are of ten folds, all pages of a site in one of them.
--write fits on all pages and writes the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import Page, load_pages, scores, texts_by, write_pages
from curate.extract.blocks import Seen, look_at, main_texts, surroundings_of
from curate.extract.evaluate import squeezed
from curate.extract.features import FEATURES, MASS, SECOND

VOTERS = {  # and how much each one's word is worth
    "trafilatura fast": 1.0,
    "trafilatura precision": 1.0,
    "trafilatura recall": 0.5,
}
FOLDS = 10
INNER = 4
PENALTY = 1e-4  # of squared weights, beside the mean loss
GOLD = 10.0


def fit(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression to labels in [0, 1]."""
    from scipy.optimize import minimize

    weight = (weight / weight.sum()).astype(np.float32)
    y = y.astype(np.float32)

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        z = x @ w.astype(np.float32)
        p = 1 / (1 + np.exp(-z))
        value = float(weight @ (np.logaddexp(0, z) - y * z)) + PENALTY * float(w @ w)
        return value, (x.T @ (weight * (p - y))).astype(np.float64) + 2 * PENALTY * w

    start = np.zeros(x.shape[1])
    weights = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return np.asarray(weights, np.float32)


def labels(page: Page, seen: Seen, votes: list[tuple[float, str]]) -> tuple[np.ndarray, np.ndarray]:
    """(labels in [0, 1], weights) of a page's blocks."""
    texts = [squeezed(t) for t in seen.texts]
    n = len(texts)
    y, weight = np.zeros(n), np.sqrt(seen.measures[:, MASS]).astype(np.float64)
    total = sum(v for v, _ in votes)
    for value, text in votes:
        lines = {squeezed(line.lstrip("-•* |")) for line in text.split("\n")}
        flat = squeezed(text)
        for i, t in enumerate(texts):
            # A short text may stand anywhere; it must be a line of its own.
            y[i] += value / total * (t in flat if len(t) >= 30 else t in lines)
    for passages, label in ((page.without, 0.0), (page.with_, 1.0)):
        for passage in map(squeezed, passages):
            holders = [i for i, t in enumerate(texts) if passage in t]
            if len(holders) == 1:
                y[holders[0]] = label
                weight[holders[0]] *= GOLD
    return y, weight


def fold_of(site: str, folds: int, salt: int = 0) -> int:
    return (zlib.crc32(site.encode()) + salt * 7919) * 2654435761 % 2**32 * folds >> 32


class Data:
    """All pages' blocks as one table; page k's are rows start[k] to start[k + 1]."""

    def __init__(self, pages: list[Page], votes: list[list[tuple[float, str]]]) -> None:
        self.pages = pages
        self.seen = [look_at(p.html) for p in pages]
        labelled = [labels(p, s, v) for p, s, v in zip(pages, self.seen, votes, strict=True)]
        self.x = np.concatenate([s.rows for s in self.seen])
        self.y = np.concatenate([y for y, _ in labelled])
        self.weight = np.concatenate([w for _, w in labelled])
        self.start = np.cumsum([0, *(len(s.texts) for s in self.seen)])

    def rows(self, chosen: np.ndarray) -> np.ndarray:
        """Row numbers of the chosen pages: bool[pages]."""
        parts = [np.arange(self.start[k], self.start[k + 1]) for k in np.flatnonzero(chosen)]
        return np.concatenate(parts)

    def second(self, chances: np.ndarray) -> np.ndarray:
        """float32[blocks, features + SECOND] for chances of the first look."""
        parts = [
            surroundings_of(s, chances[a:z])
            for s, a, z in zip(self.seen, self.start, self.start[1:], strict=False)
        ]
        return np.concatenate([self.x, np.concatenate(parts)], axis=1)

    def fit(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both looks' weights from the chosen pages; the second learns from chances that the first
        gave to pages it was not fitted on."""
        rows = self.rows(chosen)
        chances = np.zeros(len(self.y), np.float32)
        inner = np.array([fold_of(p.site, INNER, 1) for p in self.pages])
        for k in range(INNER):
            seen = self.rows(chosen & (inner != k))
            unseen = self.rows(chosen & (inner == k))
            w = fit(self.x[seen], self.y[seen], self.weight[seen])
            chances[unseen] = probability(self.x[unseen] @ w)
        first = fit(self.x[rows], self.y[rows], self.weight[rows])
        x = self.second(chances)
        return first, fit(x[rows], self.y[rows], self.weight[rows])


def probability(z: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-np.clip(z, -30, 30)))).astype(np.float32)


def opinions(by_name: dict[str, list[str]]) -> list[list[tuple[float, str]]]:
    """(weight, text) by every voter, a list a page, from each one's texts."""
    columns = [[(value, text) for text in by_name[name]] for name, value in VOTERS.items()]
    return [list(votes) for votes in zip(*columns, strict=True)]


def texts_of_unseen_sites(data: Data) -> list[str]:
    """Our texts of all pages, each by weights fitted without the pages of its fold."""
    fold = np.array([fold_of(p.site, FOLDS) for p in data.pages])
    texts = [""] * len(fold)
    for k in range(FOLDS):
        chosen = np.flatnonzero(fold == k)
        pages = pa.array([data.pages[n].html for n in chosen], pa.large_string())
        extracted = main_texts(pages, looks=data.fit(fold != k)).text.to_pylist()
        for n, text in zip(chosen, extracted, strict=True):
            texts[n] = text
    return texts


def write_table(first: np.ndarray, second: np.ndarray) -> None:
    path = Path(__file__).resolve().parents[1] / "curate" / "extract" / "blocks.py"
    begin, end = "# fmt: off\n", "# fmt: on\n"
    lines = []
    for name, values in (("FIRST", first), ("LAST", second)):
        lines.append(f"{name} = (")
        texts = [f"{v:.3f}," for v in values]
        for k in range(0, len(texts), 10):
            lines.append("    " + " ".join(texts[k : k + 10]))
        lines.append(")")
    before, rest = path.read_text().split(begin, 1)
    path.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", action="store_true")
    write = options.parse_args().write
    pages = load_pages()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pages.jsonl"
        write_pages(pages, source)
        data = Data(pages, opinions({name: texts_by(name, source)[0] for name in VOTERS}))
    print(f"{len(pages)} pages, {len(data.y)} blocks, {len(FEATURES)} + {len(SECOND)} features")
    quality = scores(pages, texts_of_unseen_sites(data))
    print("sites not seen:", {k: round(v, 4) for k, v in quality.items()})
    if write:
        write_table(*data.fit(np.ones(len(pages), np.bool_)))


if __name__ == "__main__":
    main()
