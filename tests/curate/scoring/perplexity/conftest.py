"""What tests of n-gram models share: sentences drawn at random, models trained on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from curate.lab.perplexity.train import Smoothing, train
from curate.scoring.perplexity.model import NgramModel


def sentences(count: int, words: int = 60, seed: int = 0) -> list[list[str]]:
    """Sentences in which each word depends on the one before it, frequent words first."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        line, at = [], draw.randrange(words)
        for _ in range(draw.randrange(1, 12)):
            at = (at * 7 + int(draw.paretovariate(0.9))) % words
            line.append(f"w{at}")
        lines.append(line)
    return lines


@pytest.fixture(scope="session")
def draw_sentences() -> Callable[..., list[list[str]]]:
    """The function `sentences`."""
    return sentences


def trained(folder: Path, lines: list[str], name: str = "m.bin", **how: Any) -> NgramModel:
    """A model of whitespace words, or of pieces, opened from its file."""
    variant, unit = how.pop("variant", "plain"), how.pop("unit", "whitespace")
    pieces = how.pop("pieces", b"")
    texts = [pa.array(lines[a : a + 1000], pa.large_string()) for a in range(0, len(lines), 1000)]
    train(lambda: texts, folder, name, Smoothing(**how), variant, unit, pieces)
    return NgramModel.open(folder / name, whole=True)


@pytest.fixture(scope="session")
def train_on() -> Callable[..., NgramModel]:
    """The function `trained`."""
    return trained
