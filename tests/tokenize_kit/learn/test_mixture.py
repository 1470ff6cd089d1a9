"""Samples and weights: drawn alike in any order, and a weight is that many copies."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from tokenize_kit.learn.bpe import train_byte_bpe
from tokenize_kit.learn.mixture import Mixture, SampleDrawn, _limit, text_hashes
from tokenize_kit.learn.options import TrainingOptions, Weights, parse_weights, tempered
from tokenize_kit.learn.training import train_on_corpus, train_tokenizers

ROWS = [
    *[(f"the {k} low lower lowest newer newest, {k * k} times. ", "en") for k in range(60)],
    *[(f"ภาษาไทย {k} ครับ ", "th") for k in range(20)],
    *[(f"der {k} und die {k + 1} Wörter ", "de") for k in range(10)],
    ("no one message which language this is in", None),
]
SCHEMA = pa.schema([("text", pa.string()), ("lang", pa.string())])


def batches(rows, size=7):
    """Return a function that reads these rows as batches."""
    records = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    parts = [records[k : k + size] for k in range(0, len(records), size)]
    return lambda: iter([pa.RecordBatch.from_pylist(part, schema=SCHEMA) for part in parts])


def drawn(rows, size=7, **options):
    return [
        text for text, _ in Mixture(batches(rows, size), TrainingOptions(**options)).documents()
    ]


def size_of(texts):
    return sum(len(text.encode()) for text in texts)


@pytest.mark.parametrize(("most", "limit"), [(5, 1), (14, 1), (15, 2), (19, 2), (20, 3), (99, 3)])
def test_a_sample_has_just_as_many_bytes_as_it_may_and_equal_texts_stay_together(most, limit):
    hashes, sizes = np.array([3, 2, 1, 2], np.uint64), np.array([5, 4, 5, 6])
    assert _limit(hashes, sizes, most) == limit
    with pytest.raises(LlmcurateError, match=r"sample-bytes 4: too few .* at least 5"):
        _limit(hashes, sizes, 4)


def test_values_are_counted_in_the_sample_alone_with_its_last_text():
    rows = [("aaaa", "en"), ("bbbbbbbb", "th"), ("cc", "de")]
    data, offsets = np.frombuffer(b"aaaabbbbbbbbcc", np.uint8), np.array([0, 4, 12, 14])
    hashes = text_hashes(data, offsets, np.uint64(0))
    inside = [rows[k] for k in np.argsort(hashes)[:2]]
    options = TrainingOptions(sample_bytes=size_of(text for text, _ in inside), temperature=1.0)
    assert Mixture(batches(rows), options).weights.by_value.keys() == {lang for _, lang in inside}


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(100, 6000))
def test_the_sample_is_the_same_in_any_order_and_batches(order: random.Random, size, most):
    rows = ROWS * 2
    before = drawn(rows, sample_bytes=most)
    order.shuffle(rows)
    assert sorted(drawn(rows, size, sample_bytes=most)) == sorted(before)
    assert 0 < size_of(before) <= most


def test_a_larger_sample_holds_the_smaller_and_another_seed_is_another_sample():
    small, large = (set(drawn(ROWS, sample_bytes=n)) for n in (800, 2000))
    assert small < large
    assert small != set(drawn(ROWS, sample_bytes=800, seed=1))
    assert drawn(ROWS, sample_bytes=10**9) == [text for text, _ in ROWS]


def test_the_sample_has_nearly_the_size_asked_and_every_share_of_the_corpus():
    rows = [(f"{k} " + "x" * (k % 90), "en" if k % 4 else "th") for k in range(4000)]
    sample = drawn(rows, sample_bytes=60_000)
    assert 59_900 <= size_of(sample) <= 60_000
    thai = {text for text, lang in rows if lang == "th"}
    assert 0.2 < sum(text in thai for text in sample) / len(sample) < 0.3


def by_hand(data, seed):
    """The hash of one text, in Python's own integers."""
    mask = 2**64 - 1

    def stir(value):
        value = value * 0x9E3779B97F4A7C15 & mask
        value = (value ^ value >> 32) * 0xD6E8FEB86659FD93 & mask
        return value ^ value >> 32

    value = len(data)
    for k in range(0, len(data), 8):
        value = stir(value ^ int.from_bytes(data[k : k + 8], "little"))
    return stir(stir(value) ^ stir(seed + 1))


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(0, 2**63 - 1))
@settings(max_examples=100, deadline=None)
def test_hashes_are_those_computed_by_hand(texts, seed):
    data = np.frombuffer(bytearray().join(texts), np.uint8)
    hashes = text_hashes(data, np.cumsum([0, *map(len, texts)]), np.uint64(seed))
    assert hashes.tolist() == [by_hand(text, seed) for text in texts]


def tokenizer_of(rows, tmp_path, **options):
    card = train_on_corpus(batches(rows), tmp_path, TrainingOptions(sizes=(600,), **options))[0]
    return (tmp_path / "tokenizer.json").read_bytes(), card


def copies(times, least=2):
    """The tokenizer of ROWS, each as many times as its language says."""
    documents = [(text, 1) for text, lang in ROWS for _ in range(times.get(lang, times["*"]))]
    options = TrainingOptions(sizes=(600,), min_frequency=least)
    return train_byte_bpe(documents, options)[0].tokenizer.to_str(pretty=True).encode()


def test_a_weight_counts_as_that_many_repetitions_of_a_document(tmp_path):
    tokenizer, card = tokenizer_of(ROWS, tmp_path, weights="lang=th:5,en:0,xx:2")
    assert tokenizer == copies({"th": 5, "en": 0, "*": 1})
    values = card.mixture.values
    assert {v: (d.weight, d.documents) for v, d in values.items()} == {
        "": (1, 1),
        "de": (1, 10),
        "en": (0, 60),
        "th": (5, 20),
    }
    assert card.documents == 31
    assert sum(d.share for d in values.values()) == pytest.approx(1, abs=1e-5)
    assert "weights: no document has lang 'xx'" in card.warnings


def test_weights_that_are_no_whole_numbers_keep_their_proportion(tmp_path):
    tokenizer, _ = tokenizer_of(ROWS, tmp_path, weights="lang=th:1.5,*:0.5")
    assert tokenizer == copies({"th": 3, "*": 1}, least=4)


def test_order_and_batches_do_not_change_a_weighted_tokenizer(tmp_path):
    options = {"weights": "lang=th:2.25,de:0.125", "sample_bytes": 2500}
    before, _ = tokenizer_of(ROWS, tmp_path, **options)
    assert tokenizer_of(ROWS[::-1], tmp_path, **options)[0] == before
    assert tokenizer_of(ROWS, tmp_path, **options, seed=7)[0] != before


def test_temperature_gives_shares_of_bytes_to_a_power(tmp_path):
    _, card = tokenizer_of(ROWS[:-1], tmp_path, temperature=3.0)
    values = card.mixture.values
    powers = {value: d.bytes ** (1 / 3) for value, d in values.items()}
    for value, d in values.items():
        assert d.share == pytest.approx(powers[value] / sum(powers.values()), rel=2e-3)
    assert values["en"].weight == 1 < values["th"].weight < values["de"].weight
    assert card.mixture.temperature == 3 and card.mixture.column == "lang"


def test_temperature_one_changes_nothing(tmp_path):
    plain, _ = tokenizer_of(ROWS, tmp_path)
    assert tokenizer_of(ROWS, tmp_path, temperature=1.0, by="lang")[0] == plain


def test_weights_from_a_temperature_stay_within_their_bounds():
    sizes = {"a": 10**15, "b": 1, "c": 0}
    assert tempered("x", sizes, 100.0).by_value == {"a": 1, "b": 1000}
    assert tempered("x", sizes, 0.1).times("b") == 1
    assert tempered("x", {}, 2.0) == Weights("x", {})


def test_the_card_says_what_the_sample_was_drawn_from(tmp_path):
    _, card = tokenizer_of(ROWS, tmp_path, sample_bytes=900, seed=3)
    size = size_of(text for text, _ in ROWS)
    assert card.sample == SampleDrawn(900, 3, "hash of the text", len(ROWS), size)
    assert card.bytes <= 900 and card.documents < len(ROWS) and card.mixture is None
    assert json.loads((tmp_path / "tokenizer_card.json").read_text()) == card.json()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"weights": "th:3"}, "write column=value:weight"),
        ({"weights": "=th:3"}, "write column=value:weight"),
        ({"weights": "lang=th"}, "'th' is not value:weight"),
        ({"weights": "lang=th:many"}, "is not value:weight"),
        ({"weights": "lang=th:1/3"}, "is not value:weight"),
        ({"weights": "lang=th:-1"}, "give 0 to 1000"),
        ({"weights": "lang=th:0.0001"}, "three decimals"),
        ({"weights": "lang=th:1e9"}, "give 0 to 1000"),
        ({"weights": "lang=th:nan"}, "is not value:weight"),
        ({"weights": "lang=th:1,th:2"}, "'th' is given twice"),
        ({"weights": "lang=th:0,*:0"}, "not all of them can be 0"),
        ({"weights": "lang=th:2", "temperature": 2.0}, "give one of them"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"by": "lang"}, "by: only with temperature"),
        ({"sample_bytes": 0}, "sample_bytes is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_wrong_weights_and_samples_are_one_line_that_says_what_to_do(options, message):
    with pytest.raises(LlmcurateError) as caught:
        TrainingOptions(**options)
    assert caught.value.exit_code == 2
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"weights": "tongue=th:2"}, "no document has a column 'tongue'"),
        ({"temperature": 2.0, "by": "tongue"}, "no document has a column 'tongue'"),
        ({"sample_bytes": 5}, r"too few for the documents of this corpus, ask for at least \d\d$"),
    ],
    ids=["column", "by", "sample"],
)
def test_weights_that_do_not_fit_the_corpus_are_reported(tmp_path, options, message):
    with pytest.raises(LlmcurateError, match=message):
        tokenizer_of(ROWS, tmp_path, **options)
    assert not (tmp_path / "tokenizer.json").exists()


def test_values_that_are_not_named_have_the_weight_of_the_star(tmp_path):
    _, card = tokenizer_of(ROWS, tmp_path, weights="lang=en:0,th:0,de:0,*:0.5")
    assert card.documents == 1 and card.mixture.values[""].weight == 0.5


def test_a_corpus_whose_documents_all_have_weight_0_is_refused(tmp_path):
    with pytest.raises(LlmcurateError, match="every document has weight 0"):
        tokenizer_of(ROWS[:60], tmp_path, weights="lang=en:0")


def test_weights_go_by_any_column_of_names_or_numbers(tmp_path):
    batch = pa.RecordBatch.from_pydict({"text": ["ab ab", "cd cd"], "year": [2023, 2024]})
    options = TrainingOptions(sizes=(300,), weights="year=2024:3")
    card = train_on_corpus(lambda: iter([batch]), tmp_path, options)[0]
    assert [d.weight for d in card.mixture.values.values()] == [1, 3]
    nested = pa.RecordBatch.from_pydict({"text": ["ab"], "year": [[1, 2]]})
    with pytest.raises(LlmcurateError, match="weights need a column of text"):
        train_on_corpus(lambda: iter([nested]), tmp_path, options)


def test_empty_batches_and_documents_without_text_are_read(tmp_path):
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    rows = [(None, "en"), ("", "en"), ("ab " * 9, None), ("a\x00\ufffd " * 9, "th")]
    full = list(batches(rows)())
    # A slice, whose offsets do not begin at 0, and null offsets.
    parts = [empty, full[0].slice(0, 1), full[0].slice(1), full[0].slice(2, 0)]
    options = TrainingOptions(sizes=(300,), sample_bytes=10**6, temperature=2.0)
    card = train_on_corpus(lambda: iter(parts), tmp_path, options)[0]
    assert card.documents == 4 and card.sample.documents_of == 4
    assert card.bytes == card.sample.bytes_of == size_of(t or "" for t, _ in rows)


def test_a_value_may_hold_a_colon():
    assert parse_weights("source=http://a:2,b:0.5").by_value == {"http://a": 2, "b": 0.5}


def test_weights_are_thousandths_from_0_to_1000():
    most = parse_weights("lang=th:1000,en:0.001,de:0")
    assert [float(weight) for weight in most.by_value.values()] == [1000, 0.001, 0]
    for wrong in ("1000.001", "0.0005", "-0.001"):
        with pytest.raises(LlmcurateError, match="give 0 to 1000 with three decimals"):
            parse_weights(f"lang=th:{wrong}")


def test_unigram_takes_a_sample(tmp_path):
    rows = ROWS * 3
    options = TrainingOptions(model="unigram", sizes=(420,), sample_bytes=8000)
    card = train_on_corpus(batches(rows), tmp_path, options)[0]
    assert 0 < card.bytes <= 8000 and card.sample.documents_of == len(rows)


def test_texts_without_columns_are_not_weighed(tmp_path):
    with pytest.raises(ValueError, match="use train_on_corpus"):
        train_tokenizers(["text"], tmp_path, TrainingOptions(weights="lang=th:2"))
