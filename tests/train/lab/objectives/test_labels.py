"""The loss of answers against a softmax over each text, and what heads are read to say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from train.data.vocabulary import Vocabulary
from train.lab.objectives.labels import LONGEST, Labelled, answers, choice_losses, span_losses
from train.lab.tasks.labelled import LabelledPiece, Window
from train.objective_settings import Task
from train.objectives.example import IGNORED, Draws


def piece(number: int, window: Window) -> LabelledPiece:
    return LabelledPiece(document=number, first=0, before=0, tokens=window.tokens, window=window)


def answer_window(length: int, first: int, last: int, text: range) -> Window:
    characters = np.full((length, 2), -1)
    for place in text:
        characters[place] = 2 * place, 2 * place + 1
    return Window(
        sample=0,
        tokens=np.arange(length),
        segments=np.zeros(length, np.int64),
        places=np.zeros(1, np.int64),
        labels=np.array([first, last]),
        characters=characters,
    )


def test_labels_are_placed_where_the_head_predicts():
    window = Window(
        sample=0,
        tokens=np.array([1, 5, 6, 7]),
        segments=np.array([0, 0, 1, 1]),
        places=np.array([1, 3]),
        labels=np.array([2, 0]),
    )
    objective = Labelled(Task(kind="token"), Vocabulary(size=9))
    row = objective.example([piece(4, window), piece(7, window)], 10, Draws(0, 0))
    n = IGNORED
    assert row.targets.tolist() == [[n, 2, n, 0, n, 2, n, 0, n, n]]
    assert row.inputs.tolist() == [[1, 5, 6, 7, 1, 5, 6, 7, 0, 0]]
    assert row.documents.tolist() == [[4] * 4 + [7] * 4 + [-1] * 2]
    assert row.segments.tolist() == [[0, 0, 1, 1, 0, 0, 1, 1, 0, 0]]
    assert row.counts == {"targets": 4, "tokens": 8} and row.ends is None


def test_the_loss_of_answers_is_a_softmax_over_the_tokens_of_each_text():
    windows = [answer_window(5, 3, 4, range(2, 5)), answer_window(7, 0, 0, range(3, 7))]
    objective = Labelled(Task(kind="span"), Vocabulary(size=9))
    one = objective.example([piece(0, windows[0]), piece(1, windows[1])], 14, Draws(0, 0))
    two = objective.example([piece(1, windows[1])], 14, Draws(0, 0))  # the same text in two rows
    both = type(one)(**{
        name: None if part is None else torch.cat([part, getattr(two, name)])
        for name, part in one._parts()
    })  # fmt: skip
    assert both.counts["targets"] == 3
    logits = torch.randn(2, 14, 2, dtype=torch.float64, requires_grad=True)
    nats = span_losses(logits, both)
    places = [(0, 0, windows[0]), (0, 5, windows[1]), (1, 0, windows[1])]
    reference = torch.stack([
        F.cross_entropy(
            logits[row, first : first + len(window.tokens)].T, torch.from_numpy(window.labels)
        )
        for row, first, window in places
    ])  # fmt: skip
    torch.testing.assert_close(nats, reference)
    (ours,) = torch.autograd.grad(nats.sum(), logits)
    (theirs,) = torch.autograd.grad(reference.sum(), logits)
    torch.testing.assert_close(ours, theirs)
    said = answers(logits[0, 5:12].detach(), windows[1])
    assert said[0, 3] == pytest.approx(float(reference[1].detach()))


def choice_window(lengths: list[int], right: int) -> Window:
    sizes = np.array(lengths)
    return Window(
        sample=0,
        tokens=np.arange(sizes.sum()),
        segments=np.zeros(sizes.sum(), np.int64),
        places=np.cumsum(sizes) - sizes,
        labels=np.array([right]),
        choices=np.repeat(np.arange(len(sizes)), sizes),
    )


def test_the_loss_of_choices_is_a_softmax_over_the_first_tokens_of_a_samples_texts():
    windows = [choice_window([3, 2, 4], 2), choice_window([2, 2], 0)]
    objective = Labelled(Task(kind="choice"), Vocabulary(size=9))
    one = objective.example([piece(0, windows[0]), piece(1, windows[1])], 16, Draws(0, 0))
    two = objective.example([piece(1, windows[1])], 16, Draws(0, 0))  # the same texts in two rows
    both = type(one)(**{
        name: None if part is None else torch.cat([part, getattr(two, name)])
        for name, part in one._parts()
    })  # fmt: skip
    assert both.counts["targets"] == 3
    read = both.documents[0].tolist()
    assert read == [0] * 3 + [1] * 2 + [2] * 4 + [64] * 2 + [65] * 2 + [-1] * 3
    logits = torch.randn(2, 16, 1, dtype=torch.float64, requires_grad=True)
    nats = choice_losses(logits, both)
    places = [(0, 0, windows[0]), (0, 9, windows[1]), (1, 0, windows[1])]
    reference = torch.stack([
        F.cross_entropy(logits[row, first + window.places].T, torch.from_numpy(window.labels))
        for row, first, window in places
    ])  # fmt: skip
    torch.testing.assert_close(nats, reference)
    (ours,) = torch.autograd.grad(nats.sum(), logits)
    (theirs,) = torch.autograd.grad(reference.sum(), logits)
    torch.testing.assert_close(ours, theirs)
    best, _, probability, nats = answers(logits[0, windows[0].places].detach(), windows[0])[0]
    shares = logits[0, windows[0].places, 0].detach().softmax(0)
    assert best == int(shares.argmax()) and probability == pytest.approx(float(shares.max()))
    assert nats == pytest.approx(float(reference[0].detach()))


def test_an_answer_is_the_best_pair_of_places_in_order():
    torch.manual_seed(0)
    for _ in range(20):
        window = answer_window(50, 0, 0, range(6, 48))
        logits = torch.randn(50, 2, dtype=torch.float64)
        first, last, score, _ = answers(logits, window)[0]
        pairs = {
            (a, b): float(logits[a, 0] + logits[b, 1])
            for a in range(6, 48)
            for b in range(a, min(48, a + LONGEST))
        }
        assert pairs[int(first), int(last)] == max(pairs.values()) == pytest.approx(score)
    assert answers(torch.zeros(3, 2).double(), answer_window(3, 0, 0, range(0)))[0, 2] == -np.inf


@pytest.mark.parametrize(
    ("first", "last", "answer"),
    [
        ({}, {}, (0, 0)),  # all equal: the shortest that is first
        ({5: 1.0}, {4: 1.0, 5: 1.0}, (5, 5)),  # not before its beginning
        ({0: 1.0}, {1: 1.0}, (0, 1)),  # from the text's first character
        ({5: 1.0}, {5 + LONGEST - 1: 1.0}, (5, 34)),  # of 30 tokens
        ({5: 1.0}, {5 + LONGEST: 0.9}, (5, 5)),  # not of 31
        ({39: 1.0}, {39: 1.0}, (39, 39)),  # to its last
    ],
)
def test_an_answer_has_30_tokens_at_most_anywhere_in_the_text(first, last, answer):
    logits = torch.zeros(41, 2, dtype=torch.float64)
    for column, values in enumerate((first, last)):
        for place, value in values.items():
            logits[place, column] = value
    found = answers(logits, answer_window(41, 0, 0, range(40)))[0]
    assert tuple(found[:2]) == answer


def test_a_label_is_the_likeliest_with_its_probability():
    window = answer_window(4, 0, 0, range(0))
    window = Window(**{**vars(window), "characters": None, "labels": np.array([1])})
    logits = torch.tensor([[0.1, 2.0, -1.0]], dtype=torch.float64)
    label, _, probability, nats = answers(logits, window)[0]
    assert label == 1 and probability == pytest.approx(float(logits.softmax(-1)[0, 1]))
    assert nats == pytest.approx(-np.log(probability))
