"""Accuracy, F1 of labels and of entities, and SQuAD's exact match and F1, by hand-counted cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.lab.tasks.predict import (
    accuracy,
    answer_f1,
    entities,
    entity_f1,
    exact_match,
    f1_of_labels,
    has_entity_tags,
    macro_f1,
)

LABELS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12)


def test_macro_f1_counts_each_label_once():
    labels, predicted = list("aaaab"), list("aaabb")
    assert accuracy(labels, predicted) == 0.8
    # a: 3 right of 3 predicted and 4 there; b: 1 right of 2 predicted and 1 there.
    assert f1_of_labels(labels, predicted) == pytest.approx({"a": 6 / 7, "b": 2 / 3})
    assert macro_f1(labels, predicted) == pytest.approx((6 / 7 + 2 / 3) / 2)
    assert macro_f1(list("ab"), list("ac")) == pytest.approx(1 / 3)  # c was predicted too


@given(LABELS, st.randoms(use_true_random=False))
def test_all_right_is_one_and_f1_of_labels_is_symmetric(labels, draw):
    assert accuracy(labels, labels) == macro_f1(labels, labels) == 1
    other = draw.sample(labels, len(labels))
    assert f1_of_labels(labels, other) == f1_of_labels(other, labels)


def test_entities_begin_and_end_as_conll_has_them():
    marks = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-PER", "I-PER", "O", "S-ORG", "E-LOC"]
    assert entities(marks) == {
        (0, 2, "PER"), (3, 4, "LOC"), (4, 5, "LOC"), (5, 7, "PER"), (8, 9, "ORG"), (9, 10, "LOC"),
    }  # fmt: skip
    assert entities(["B-PER", "I-PER", "E-PER", "I-PER"]) == {(0, 3, "PER"), (3, 4, "PER")}
    assert entities(["O", "O"]) == set()


def test_an_entity_is_right_with_both_bounds_and_its_type():
    labels = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert entity_f1(labels, [["B-PER", "O", "O", "B-LOC"]]) == 0.5
    assert entity_f1(labels, [["B-LOC", "I-LOC", "O", "O"]]) == 0
    assert entity_f1(labels, labels) == 1
    assert has_entity_tags(["O", "B-PER", "I-PER"])
    assert not has_entity_tags(["NOUN", "O"]) and not has_entity_tags(["O"])


def test_answers_are_compared_as_squad_does():
    assert exact_match("The Eiffel Tower", "eiffel tower!")
    assert not exact_match("Paris", "in Paris")
    assert answer_f1("Paris", "in Paris") == pytest.approx(2 / 3)
    assert answer_f1("a", "the") == 1 and answer_f1("Paris", "") == 0  # nothing of "a" is left
    assert answer_f1("to be or not to be", "to be to") == pytest.approx(2 * 3 / 9)
