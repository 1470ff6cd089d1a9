"""The estimate: discounts by hand, against plain Python, contexts that sum to one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.lab.perplexity.train import FALLBACK, counts_of_counts, discounts
from curate.scoring.perplexity.table import level
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.scoring.perplexity.reference_kneser_ney import Reference


def test_discounts_are_chen_and_goodmans() -> None:
    # n1..n4 = 10, 5, 4, 3: Y = 10 / 20; D1 = 1 - 2 Y 5/10, D2 = 2 - 3 Y 4/5, D3 = 3 - 4 Y 3/4.
    assert discounts([10, 5, 4, 3], 2) == pytest.approx((0.5, 0.8, 1.5))
    assert counts_of_counts(np.array([1, 1, 2, 4, 4, 4, 9, 0])).tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize(
    ("counts", "what"), [([5, 0, 1, 1], "adjusted count 2"), ([9, 1, 5, 1], "would be")]
)
def test_too_small_a_corpus_is_one_line_or_the_fallback(counts: list[int], what: str) -> None:
    with pytest.raises(RunFailed, match=what):
        discounts(counts, 3)
    assert discounts(counts, 3, fallback=True) == FALLBACK


@pytest.mark.parametrize("order", [2, 3, 5, 6])
@pytest.mark.parametrize("prune", [(0,), (0, 1), (0, 0, 2)], ids=str)
def test_probabilities_are_those_of_plain_python(
    order: int, prune: tuple[int, ...], tmp_path: Path, train_on: Any, draw_sentences: Any
) -> None:
    if len(prune) > order:
        pytest.skip("more limits than orders")
    lines = draw_sentences(150)
    model = train_on(
        tmp_path, [" ".join(s) for s in lines], order=order, prune=prune, fallback=True
    )
    limits = [*prune, *[prune[-1]] * (order - len(prune))]
    want = Reference(lines, order, limits)
    assert list(model.data.counts[1:]) == [
        len(want.raw[n]) - len(want.pruned[n]) for n in range(2, order + 1)
    ]
    unseen = [["w1", "nobody", "w2"], ["nobody"], *draw_sentences(30, seed=1)]
    texts = [" ".join(s) for s in [*lines[:30], *unseen]]
    scores, _ = model.by_sentence(pa.array(texts, pa.large_string()))
    expected = [want.log10(s) for s in [*lines[:30], *unseen]]
    np.testing.assert_allclose(scores.log10, expected, atol=2e-5)


def prob_of_all(model: Any, context: list[str]) -> float:
    """The probabilities of every word, </s> and <unk> after the beginning of a sentence."""
    ids = {w.decode(): i for i, w in enumerate(model.data.words.words())}
    line = [1, *(ids.get(w, 0) for w in context)]
    return sum(10 ** next_word(model, line, w) for w in range(len(ids)) if w != 1)


def next_word(model: Any, line: list[int], word: int) -> float:
    """log10 of a word after a line, by the definition of back-off."""
    d = model.data
    n, back = min(len(line) + 1, d.order), 0.0
    while n > 1:
        gram = (*line[len(line) - n + 1 :], word)
        if gram in rows(model, n):
            return back + rows(model, n)[gram][0]
        context = gram[:-1]
        if n == 2:
            back += float(d.word_backoff[context[0]])
        else:
            back += rows(model, n - 1).get(context, (0.0, 0.0))[1]
        n -= 1
    return back + float(d.word_prob[word])


def rows(model: Any, n: int) -> dict[tuple[int, ...], tuple[float, float]]:
    d = model.data
    if not hasattr(model, "_rows"):
        model._rows = {}
    if n not in model._rows:
        words, prob, back = level(d.entries, d.firsts, d.counts, n)
        model._rows[n] = {
            tuple(w): (p, b)
            for w, p, b in zip(words.tolist(), prob.tolist(), back.tolist(), strict=True)
        }
    return model._rows[n]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcde"), max_size=6), min_size=2, max_size=12),
    st.integers(2, 4),
    st.sampled_from([(0,), (0, 1)]),
)
def test_every_context_sums_to_one(
    tmp_path_factory: pytest.TempPathFactory,
    train_on: Callable[..., Any],
    lines: list[list[str]],
    order: int,
    prune: tuple[int, ...],
) -> None:
    if not any(lines):
        return
    folder = tmp_path_factory.mktemp("sum")
    model = train_on(folder, [" ".join(s) for s in lines], order=order, prune=prune, fallback=True)
    for words in [[], ["a"], ["b", "a"], lines[0][:3], ["nobody"], *(s[:2] for s in lines)]:
        assert prob_of_all(model, list(words)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("order", [2, 4])
def test_rare_words_give_unknown_ones_no_more_than_what_was_never_seen(
    order: int, tmp_path: Path, train_on: Any, draw_sentences: Any
) -> None:
    lines = [" ".join([*s, f"once{k}", f"twice{k // 2}"]) for k, s in enumerate(draw_sentences(80))]
    model = train_on(tmp_path, lines, order=order, min_count=2, fallback=True)
    words = model.data.words.words()
    assert b"twice1" in words and not [w for w in words if w.startswith(b"once")]
    for n in range(2, order + 1):
        assert not [gram for gram in rows(model, n) if 0 in gram]
    for context in ([], ["w1"], ["nobody"], ["w1", "nobody"]):
        assert prob_of_all(model, context) == pytest.approx(1.0, abs=1e-5)
    assert float(model.data.word_prob[0]) == min(model.data.word_prob.tolist())
    scores, _ = model.by_sentence(pa.array(["a b c d", "w1 w2 w3 w4"], pa.large_string()))
    assert scores.log10[0] < scores.log10[1]


def test_a_corpus_in_small_runs_gives_the_same_bytes(
    tmp_path: Path, train_on: Any, draw_sentences: Any
) -> None:
    lines = [" ".join(s) for s in draw_sentences(1500)]
    train_on(tmp_path, lines, "one.bin", fallback=True)
    train_on(tmp_path, lines, "runs.bin", fallback=True, memory_mib=0)  # runs of 1,024 rows
    assert (tmp_path / "one.bin").read_bytes() == (tmp_path / "runs.bin").read_bytes()
    train_on(tmp_path, lines[::-1], "turned.bin", fallback=True)
    assert (tmp_path / "one.bin").read_bytes() == (tmp_path / "turned.bin").read_bytes()


@pytest.mark.parametrize("prune", [(1,), (0, 2, 1), (0, 0, 0, 0)], ids=str)
def test_a_limit_that_leaves_longer_ngrams_without_parts_is_refused(
    prune: tuple[int, ...], tmp_path: Path, train_on: Any
) -> None:
    with pytest.raises(UsageError, match="prune"):
        train_on(tmp_path, ["a b c"], order=3, prune=prune)


def test_an_empty_corpus_and_one_without_discounts_are_a_one_line_error(
    tmp_path: Path, train_on: Any
) -> None:
    with pytest.raises(RunFailed, match="no word"):
        train_on(tmp_path, ["", " \n\t"], fallback=True)
    with pytest.raises(RunFailed, match="--discount-fallback"):
        train_on(tmp_path, ["a b c a b"])
    assert math.isfinite(train_on(tmp_path, ["a"], fallback=True).data.word_prob[0])
    assert not (tmp_path / ".work").exists()
