"""Scores: by the definition of back-off, as KenLM gives them, whatever the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.scoring.perplexity import table
from curate.scoring.perplexity.model import NgramModel, numbered_lines
from curate.scoring.perplexity.model_file import write_arpa
from curate.scoring.perplexity.sentences import SPECIAL, VocabularyBuilder, vocabulary
from curate.scoring.perplexity.table import level
from curate.text.buffers import text_buffers

WORD = st.binary(min_size=1, max_size=20)


def strings(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def by_definition(model: NgramModel, ids: list[int]) -> float:
    """The sum of log10 of a sentence: the longest n-gram that is there, and the back-offs."""
    d = model.data
    rows: dict[tuple[int, ...], tuple[float, float]] = {
        (w,): (float(d.word_prob[w]), float(d.word_backoff[w])) for w in range(len(d.words))
    }
    for n in range(2, d.order + 1):
        words, prob, back = level(d.entries, d.firsts, d.counts, n)
        rows |= {
            tuple(w): (float(p), float(b))
            for w, p, b in zip(words.tolist(), prob, back, strict=True)
        }
    line, total = [1, *ids, 2], 0.0
    for i in range(1, len(line)):
        n = min(d.order, i + 1)
        while tuple(line[i - n + 1 : i + 1]) not in rows:
            n -= 1
        total += rows[tuple(line[i - n + 1 : i + 1])][0]
        for k in range(n, min(d.order, i + 1)):
            total += rows.get(tuple(line[i - k : i]), (0, 0))[1]
    return total


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, train_on: Any, draw_sentences: Any) -> Any:
    lines = [" ".join(s) for s in draw_sentences(400, 30)]
    return train_on(tmp_path_factory.mktemp("scores"), lines, order=4, fallback=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30).filter(lambda w: w != 1), max_size=9), max_size=8))
def test_scores_follow_the_definition_of_back_off(model: Any, lines: list[list[int]]) -> None:
    ids = np.array([w for line in lines for w in line], np.uint32)
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
    sums, floats = model.log10(ids, ends)
    want = [by_definition(model, line) for line in lines]
    np.testing.assert_allclose(sums, want, atol=1e-5)
    np.testing.assert_allclose(floats, want, atol=1e-4)


def test_a_sentence_longer_than_a_block_scores_as_its_words_do(
    model: Any, draw_sentences: Any
) -> None:
    words = [w for s in draw_sentences(500, 30, seed=5) for w in s]
    assert len(words) > 2 * table._BLOCK
    ids = model.sentences(strings(" ".join(words))).ids
    sums, _ = model.log10(ids, np.array([len(ids)]))
    assert sums[0] == pytest.approx(by_definition(model, ids.tolist()), abs=1e-3)


def test_a_score_does_not_depend_on_its_neighbours(model: Any, draw_sentences: Any) -> None:
    texts = [" ".join(s) for s in draw_sentences(300, 30, seed=2)]
    together, _ = model.by_sentence(strings(*texts))
    alone = [model.by_sentence(strings(t))[0].log10[0] for t in texts]
    assert together.log10.tolist() == alone


def test_full_buckets_are_followed_into_the_next_ones() -> None:
    slots, first = 8, 0
    entries, values = np.zeros(2 * slots, np.uint64), np.zeros(4 * slots, np.float32)
    firsts = np.array([0, 0, 0, slots], np.int64)
    words = np.array([[w, 3] for w in range(4, 11)], np.uint32)  # seven n-grams in eight slots
    prob = -np.arange(1, 8, dtype=np.float32)
    assert table.insert(entries, values, firsts, words, prob, prob) == -1
    assert table.missing(entries, firsts, words) == -1
    assert table.missing(entries, firsts, np.array([[40, 3]], np.uint32)) == 0
    assert table.insert(entries, values, firsts, words[2:3], prob, prob) == -2
    ids, ends = np.array([[w, 3] for w in range(4, 12)], np.uint32).ravel(), np.arange(2, 17, 2)
    word_log, sums = np.full(50, -20, np.float32), np.empty(8)
    table.score(
        entries, values, firsts, word_log, np.zeros(50, np.float32), ids, ends, sums,
        np.empty(8, np.float32),
    )  # fmt: skip
    assert sums.tolist() == [-20.0 - 20 - k for k in range(1, 8)] + [-60.0]
    assert first == 0


@pytest.mark.parametrize("order", [2, 5])
def test_kenlm_gives_the_same_log10(
    order: int, tmp_path: Path, train_on: Any, draw_sentences: Any
) -> None:
    kenlm = pytest.importorskip("kenlm")
    lines = [" ".join(s) for s in draw_sentences(3000, 400)]
    own = train_on(tmp_path, lines, order=order, fallback=True)
    write_arpa(tmp_path / "m.arpa", own.data)
    config = kenlm.Config()
    config.show_progress, config.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    other = kenlm.Model(str(tmp_path / "m.arpa"), config)
    unseen = [f"{' '.join(s)} nobody <s> w1 </s>" for s in draw_sentences(2000, 500, seed=3)]
    texts = [*lines[:500], *unseen]
    scored, _ = own.by_sentence(strings(*texts))
    want = [sum(s for s, _, _ in other.full_scores(t)) for t in texts if "<s>" not in t]
    np.testing.assert_allclose(scored.log10[:500], want, atol=1e-5)
    # `<s>` in a text is no beginning here but an unknown word, so that text cannot play with it.
    plain_texts = [t.replace("<s>", "nobody").replace("</s>", "nobody") for t in unseen]
    want = [other.score(t) for t in plain_texts]
    np.testing.assert_allclose(scored.log10[500:], want, atol=1e-4)
    assert order == other.order


@settings(max_examples=60, deadline=None)
@given(st.lists(WORD, unique=True, max_size=40), st.lists(WORD, max_size=40))
def test_words_have_the_number_of_their_place_and_others_none(
    words: list[bytes], asked: list[bytes]
) -> None:
    words = [w for w in words if w not in SPECIAL]
    vocab = vocabulary([*SPECIAL, *words])
    assert vocab.words() == [*SPECIAL, *words]
    want = {w: i for i, w in enumerate(words, 3)}
    queries = [*words, *asked, *SPECIAL, b"", b"\0", *(w + b"\0" for w in words)]
    data = np.frombuffer(bytearray().join(queries), np.uint8)
    ends = np.cumsum([len(q) for q in queries])
    starts = ends - [len(q) for q in queries]
    assert vocab.ids(data, starts, ends).tolist() == [want.get(q, 0) for q in queries]


TEXT = st.text("ab ▁é鐵\n\r\t\0\x1c\x1f!\x7f\x85\xa0\u1680\u2003\u2028\u3000\u30a2😀", max_size=80)


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT | st.text(), max_size=6))
def test_words_of_lines_are_those_of_splitlines_and_split(texts: list[str]) -> None:
    lines = [[line.split() for line in t.splitlines() if line.split()] for t in texts]
    distinct = sorted({w.encode() for t in lines for line in t for w in line} - {*SPECIAL})[::2]
    words = vocabulary([*SPECIAL, *distinct])
    want = {w.decode(): i for i, w in enumerate(distinct, 3)}
    data, offsets = text_buffers(pa.array(["skipped", *texts], pa.large_string())[1:])
    ids, ends, rows = numbered_lines(data, offsets, words)
    assert ids.tolist() == [want.get(w, 0) for t in lines for line in t for w in line]
    assert ends.tolist() == np.cumsum([len(line) for t in lines for line in t]).tolist()
    assert rows.tolist() == [0, *np.cumsum([len(t) for t in lines]).tolist()]


def test_lines_longer_than_a_block_of_words_are_numbered() -> None:
    words = vocabulary([*SPECIAL, *(f"word{k}".encode() for k in range(3000))])
    text = "\n".join(" ".join(f"word{k}" for k in range(a, a + 1500)) for a in (0, 1500))
    ids, ends, rows = numbered_lines(*text_buffers(strings(text, "")), words)
    assert ids.tolist() == list(range(3, 3003))
    assert ends.tolist() == [1500, 3000] and rows.tolist() == [0, 2, 2]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(WORD, max_size=30), min_size=1, max_size=5), st.integers(1, 3))
def test_a_growing_vocabulary_is_that_of_a_dict(batches: list[list[bytes]], least: int) -> None:
    growing, names, counts = VocabularyBuilder(), [*SPECIAL], dict.fromkeys(SPECIAL, 0)
    for batch in batches:
        for word in batch:
            if word not in counts:
                names.append(word)
            counts[word] = counts.get(word, 0) + (word not in SPECIAL)
        ends = np.cumsum([len(w) for w in batch], dtype=np.int64)
        starts = ends - np.array([len(w) for w in batch], np.int64)
        numbers = growing.add(np.frombuffer(bytearray().join(batch), np.uint8), starts, ends)
        assert numbers.tolist() == [0 if w in SPECIAL else names.index(w) for w in batch]
    settled, new = growing.settled(least)
    kept = sorted((w for w in names[3:] if counts[w] >= least), key=lambda w: (-counts[w], w))
    assert settled.words() == [*SPECIAL, *kept]
    assert [new[names.index(w)] for w in kept] == list(range(3, 3 + len(kept)))


def test_repeated_words_and_ids_out_of_range_are_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="twice"):
        vocabulary([*SPECIAL, b"a", b"a"])
    with pytest.raises(ValueError, match="below the vocabulary"):
        model.log10(np.array([10**6], np.uint32), np.array([1]))
    with pytest.raises(ValueError, match="ends must rise"):
        model.log10(np.array([3], np.uint32), np.array([2]))
