"""Our fastText engine predicts the same as fastText's library."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from curate.scoring.fasttext.classifier import Classifier
from llmcurate.base.errors import UsageError
from tests.curate.scoring.fasttext.conftest import packed, strange
from tests.curate.scoring.fasttext.small_models import KINDS, examples, name

LINES = [text.encode() + b"\n" for _, text in examples(150, seed=7)]
LINES += [line + b"\n" for line in strange()] + strange()


def alike(
    classifier: Classifier,
    lines: list[bytes],
    wanted: list[list[tuple[float, str]]],
) -> None:
    """The same label for every line, and its probability within 1e-4."""
    codes, shares = classifier.best(*packed(lines))
    for row, best in enumerate(wanted):
        names = [classifier.header.names[label] for label in codes[row : row + 1] if label >= 0]
        assert names == [name for _, name in best], lines[row]
        assert all(abs(shares[row] - share) < 1e-4 for share, _ in best)


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_the_best_label_is_fasttexts(
    trained: Callable[..., Path], native_predict: Callable, kind: tuple
) -> None:
    path = trained(*kind)
    wanted = native_predict(path, LINES, 1)
    alike(Classifier(path), LINES, wanted)
    alike(Classifier(path, decoded=0), LINES, wanted)


@pytest.mark.parametrize("loss", ["softmax", "hs", "ova"])
def test_all_labels_have_fasttexts_probabilities(
    trained: Callable[..., Path], native_predict: Callable, loss: str
) -> None:
    path = trained(loss)
    classifier = Classifier(path)
    shares = classifier.probabilities(*packed(LINES))
    for row, best in enumerate(native_predict(path, LINES, -1)):
        wanted = {label: share for share, label in best}
        for label, called in enumerate(classifier.header.names):
            assert shares[row, label] == pytest.approx(wanted.get(called, 0.0), abs=2e-5)
    assert np.array_equal(classifier.probabilities(*packed(LINES), [3, 1]), shares[:, [3, 1]])
    with pytest.raises(IndexError):
        classifier.probabilities(*packed(LINES), [5])


def test_of_many_labels_the_best_is_fasttexts(
    trained: Callable[..., Path], native_predict: Callable
) -> None:
    path = trained("hs", labels=300, minn=2, maxn=3)
    alike(Classifier(path), LINES, native_predict(path, LINES, 1))


def test_labels_do_not_depend_on_earlier_requests(trained: Callable[..., Path]) -> None:
    path = trained("softmax", 2)
    classifier = Classifier(path)
    together = classifier.best(*packed(LINES))
    for row, line in enumerate(LINES):
        label, share = (
            Classifier(path).best(*packed([line])) if row < 3 else classifier.best(*packed([line]))
        )
        assert np.array_equal(label[0], together[0][row])
        assert np.array_equal(share[0], together[1][row])


def test_a_full_memory_of_words_changes_nothing(trained: Callable[..., Path]) -> None:
    from curate.scoring.fasttext.classifier import memory

    path = trained("softmax")
    wide, narrow = Classifier(path), Classifier(path)
    narrow._memory = memory(7, most=1)
    for expected, other in zip(wide.best(*packed(LINES)), narrow.best(*packed(LINES)), strict=True):
        assert np.array_equal(expected, other)
    assert 0 < narrow._memory.used[0] <= 64


def test_a_sample_of_161_languages_has_fasttexts_labels(
    ftz: Path, langid: Path, native_predict: Callable
) -> None:
    with gzip.open(langid, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for number, line in enumerate(file) if number % 20 == 0]
    lines = [text.replace("\n", " ").encode() + b"\n" for text in texts]
    alike(Classifier(ftz), lines, native_predict(ftz, lines, 1))


def test_a_model_with_nan_weights_is_refused(trained: Callable[..., Path], tmp_path: Path) -> None:
    from curate.scoring.fasttext.model_file import read_layout

    path = trained("softmax")
    data = bytearray(path.read_bytes())
    at = read_layout(path)[1].output.at
    data[at : at + 4] = np.float32(np.nan).tobytes()
    (tmp_path / "bad.bin").write_bytes(data)
    with pytest.raises(UsageError, match="contains NaN: fetch or train it again"):
        Classifier(tmp_path / "bad.bin").best(*packed(LINES))


def test_no_line_and_empty_lines_have_no_label(trained: Callable[..., Path]) -> None:
    classifier = Classifier(trained("softmax", minn=0, maxn=0))
    assert classifier.best(*packed([]))[0].shape == (0,)
    codes, shares = classifier.best(*packed([b"", b"  ", b"unseenword"]))
    assert codes.tolist() == [-1, -1, -1]
    assert shares.tolist() == [0, 0, 0]
