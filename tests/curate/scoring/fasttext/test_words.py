"""Models of whole words give fastText's probabilities to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from curate.scoring.fasttext.classifier import LISTED, Classifier
from tests.curate.scoring.fasttext.conftest import packed, strange
from tests.curate.scoring.fasttext.small_models import KINDS, examples, name

LONG = " ".join(text for _, text in examples(300, seed=9)).encode()
LINES = [line + b"\n" for line in [*strange(), LONG, b"word"]]


@pytest.mark.parametrize("kind", [k for k in KINDS if k[3] == 0], ids=name)
def test_probabilities_are_fasttexts_to_the_last_digit(
    trained: Callable[..., Path], native_predict: Callable, kind: tuple
) -> None:
    assert LONG.count(b" ") > 3 * LISTED
    path = trained(*kind)
    classifier = Classifier(path)
    probabilities = classifier.probabilities(*packed(LINES))
    for row, best in enumerate(native_predict(path, LINES, -1)):
        wanted = {label: share for share, label in best}
        for label, called in enumerate(classifier.header.names):
            # fastText's exponential and ours differ in the last bit of a float32.
            assert probabilities[row, label] == pytest.approx(wanted.get(called, 0.0), abs=2e-7), (
                row
            )
