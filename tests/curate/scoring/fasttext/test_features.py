"""A line's features and what each adds to a score, against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.scoring.fasttext.classifier import Classifier, features, tree
from curate.scoring.fasttext.features import entries as find_entries
from curate.scoring.fasttext.features import kept_slots, sieve_of, word_slots
from tests.curate.scoring.fasttext import reference
from tests.curate.scoring.fasttext.conftest import packed, strange
from tests.curate.scoring.fasttext.small_models import examples

LINES = [text.encode() + b"\n" for _, text in examples(20, seed=3)] + strange()[:30]
KINDS = [("softmax", 1, 2, 4), ("softmax", 2, 0, 0), ("softmax", 3, 1, 2)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_features_are_those_of_plain_python(trained: Callable[..., Path], kind: tuple) -> None:
    classifier = Classifier(trained(*kind))
    for line in LINES:
        shares, _ = classifier.explain(line, 0)
        wanted = Counter((of, text) for _, of, text in reference.features(classifier, line))
        counts = {(s.kind, s.text): s.times for s in shares}
        assert counts == wanted


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_rows_of_any_bytes_are_those_of_plain_python(
    trained: Callable[..., Path], line: bytes
) -> None:
    classifier = _loaded(trained("softmax", 3, 1, 2))
    out = np.empty((1000, 6), np.int64)
    count = features(classifier._model, np.frombuffer(bytearray(line), np.uint8), out)
    assert out[:count, 0].tolist() == [row for row, _, _ in reference.features(classifier, line)]


_models: dict[Path, Classifier] = {}


def _loaded(path: Path) -> Classifier:
    return _models.setdefault(path, Classifier(path))


@pytest.mark.parametrize(
    "kind",
    [("softmax", 2, 2, 4), ("ova", 1, 2, 4), ("softmax", 1, 2, 4, "packed", 300)],
    ids=str,
)
def test_shares_add_up_to_the_logit(trained: Callable[..., Path], kind: tuple) -> None:
    """Softmax's probabilities follow from the logits' differences, ova's from each alone."""
    classifier = Classifier(trained(*kind), decoded=0)
    for line in LINES[:12]:
        logits = [classifier.explain(line, label)[1] for label in range(len(classifier.labels))]
        shares = classifier.probabilities(*packed([line]))[0]
        if classifier.header.loss == "ova":
            assert shares == pytest.approx(1 / (1 + np.exp(-np.array(logits))), abs=0.01)
        else:
            powers = np.exp(np.array(logits) - max(logits))
            assert shares == pytest.approx(powers / powers.sum(), abs=2e-5)


def test_hs_shares_add_up_and_come_the_greatest_first(trained: Callable[..., Path]) -> None:
    classifier = Classifier(trained("hs"))
    for line in LINES[:5]:
        parts, total = classifier.explain(line, 1)
        assert sum(share.adds for share in parts) == pytest.approx(total)
        sizes = [abs(share.adds) for share in parts]
        assert sizes == sorted(sizes, reverse=True)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 9)), max_size=40))
def test_pruned_ngrams_are_found_by_number_and_the_last_duplicate_counts(
    pairs: list[tuple[int, int]],
) -> None:
    array = np.array(pairs, np.int32).reshape(-1, 2)
    kept, sieve = kept_slots(array), sieve_of(array)
    wanted = dict(pairs)
    assert {n: r for n, r in kept.tolist() if r >= 0} == wanted
    assert all(sieve[ngram & (len(sieve) - 1)] for ngram in wanted)
    assert len(sieve) >= 16 * len(pairs) and sieve.sum() <= len(wanted)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3).map(lambda b: b.replace(b"\0", b"")), max_size=30))
def test_words_are_found_by_their_bytes_and_the_last_duplicate_counts(words: list[bytes]) -> None:
    data = np.frombuffer(bytearray().join(w + b"\0" + bytes(9) for w in words), np.uint8)
    starts, ends = find_entries(data, 0, len(words))
    slots = word_slots(data, starts, ends)
    assert [bytes(data[a:b]) for a, b in zip(starts, ends, strict=True)] == words
    assert set(slots[slots >= 0].tolist()) == set({w: i for i, w in enumerate(words)}.values())


def test_a_line_without_a_feature_adds_nothing(trained: Callable[..., Path]) -> None:
    assert Classifier(trained("softmax", 1, 0, 0)).explain(b"unseenword", 0) == ([], 0.0)


def test_the_tree_is_huffmans() -> None:
    """Counts 8, 4, 2, 1, 1 give codes of 1, 2, 3, 4 and 4 branches."""
    first, second = tree(np.array([8, 4, 2, 1, 1]))
    depth = {len(first) - 1: 0}
    for node in range(len(first) - 1, 4, -1):
        depth[first[node]] = depth[second[node]] = depth[node] + 1
    assert [depth[label] for label in range(5)] == [1, 2, 3, 4, 4]
