"""Questions: log-likelihoods as a pass over one text gives them, answers, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.train.data.feed_settings import MODEL
from tests.train.loop.small_runs import build
from train.evaluate.paired import interval
from train.evaluate.questions import (
    Answers,
    are_questions,
    last_words,
    read_questions,
    score_questions,
    split,
)
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring
from train.objectives.example import Draws

HOW = Scoring(Ranks(device=torch.device("cpu")), 2, "fp32")


@pytest.fixture(scope="module")
def model():
    return build(replace(MODEL, layers=2, context=64))


@pytest.fixture(scope="module")
def tokenizer(small_tokenizer):
    return load_tokenizer(small_tokenizer)


def written(folder, *lines):
    path = folder / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def asked(folder, model, tokenizer, *lines, context=64):
    questions = read_questions(written(folder, *lines))
    return score_questions(model, tokenizer, 0, questions, HOW, context=context)


def log_likelihood(model, tokenizer, context, continuation):
    """Of the continuation's tokens, from one pass over the whole text; and whether each is the
    likeliest."""
    before, after = split(tokenizer, context, continuation)
    ids = torch.tensor([[0, *before, *after]])
    with torch.no_grad():
        logits = model.logits(model.features(ids[:, :-1]))[0].double()[-len(after) :]
    wanted = torch.tensor(after)
    hit = bool((logits.argmax(-1) == wanted).all())
    return -float(F.cross_entropy(logits, wanted, reduction="sum")), hit


def test_an_answer_is_right_where_each_token_is_the_likeliest(tmp_path, model, tokenizer):
    texts = ["the cat sat", "on", "mat the"]
    with torch.no_grad():
        ids = [0, *tokenizer.encode("the cat", add_special_tokens=False).ids]
        logits = model.logits(model.features(torch.tensor([ids])))[0, -1]
    likeliest = next(
        word
        for number in logits.argsort(descending=True).tolist()
        if (word := tokenizer.decode([number])).isascii()
        and word.strip()
        and split(tokenizer, "the cat", word)[1] == [number]
    )
    lines = [{"context": text, "continuation": " mat"} for text in texts]
    lines.append({"context": "the cat", "continuation": likeliest})
    expected = [log_likelihood(model, tokenizer, x["context"], x["continuation"]) for x in lines]
    scores = asked(tmp_path, model, tokenizer, *lines)
    assert scores["accuracy"] == np.mean([hit for _, hit in expected])
    assert scores["log_likelihood"] == pytest.approx(np.mean([x for x, _ in expected]), rel=1e-5)
    low, high = scores["log_likelihood_interval"]
    assert low < scores["log_likelihood"] < high
    assert scores["perplexity"] == pytest.approx(np.exp(-scores["log_likelihood"]))


def test_a_context_that_is_too_long_loses_its_beginning(tmp_path, model, tokenizer):
    long = "the cat sat on the mat " * 8
    line = {"context": long, "continuation": "sat"}
    before, after = split(tokenizer, long, "sat")
    read = [*before, *after][-9:]  # eight inputs predict the last eight
    assert len(after) < 8 < len(before)
    with torch.no_grad():
        logits = model.logits(model.features(torch.tensor([read[:-1]])))[0][-len(after) :]
    expected = -float(F.cross_entropy(logits, torch.tensor(after), reduction="sum"))
    scores = asked(tmp_path, model, tokenizer, line, context=8)
    assert scores["log_likelihood"] == pytest.approx(expected, rel=1e-5)


def test_a_continuation_longer_than_the_context_is_refused(tmp_path, model, tokenizer):
    line = {"context": "the cat", "continuation": " sat on the mat"}
    count = len(split(tokenizer, "the cat", " sat on the mat")[1])
    with pytest.raises(LlmcurateError, match=f":1: {count} tokens to score, the context is 2"):
        asked(tmp_path, model, tokenizer, line, context=2)


def test_spaces_that_end_a_context_are_the_continuation_s(tokenizer):
    assert split(tokenizer, "the cat ", "sat") == split(tokenizer, "the cat", " sat")


def test_a_model_that_reads_prompts_both_ways_reads_contexts_so(tmp_path, model, tokenizer):
    line = {"context": "the cat sat on the mat the cat", "continuation": " sat on"}
    causal = asked(tmp_path, model, tokenizer, line)["log_likelihood"]
    model.both_ways = True
    try:
        both = asked(tmp_path, model, tokenizer, line)["log_likelihood"]
    finally:
        model.both_ways = False
    assert both != causal
    from train.data.rows import Piece

    counted = np.array([False, False, True, True])
    piece = Piece(document=0, first=0, before=0, tokens=np.arange(4), counted=counted)
    prefix = Answers(True).example([piece], 6, Draws(0, 0)).prefix
    assert prefix.tolist() == [[True, True, True, False, False, False]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"context": "a"}, "questions.jsonl:1: give `context`"),
        ({"context": "a", "continuation": ""}, "empty continuation"),
        ({"context": "a", "choices": ["b", "c"], "answer": 0}, "make it a task"),
        ({"question": "a", "options": ["b", "c"], "answer": "b"}, "has options: make it a task"),
        ({"context": "\ud800", "continuation": "b"}, "give `context`"),
    ],
)
def test_a_wrong_question_is_named_by_its_line(tmp_path, line, message):
    with pytest.raises(LlmcurateError, match=message):
        read_questions(written(tmp_path, line))


def test_documents_are_no_questions(tmp_path):
    assert are_questions(written(tmp_path, {"context": "a", "continuation": "b"}))
    assert not are_questions(written(tmp_path, {"text": "a", "context": "b"}))


def test_the_last_word_of_a_text_is_a_question():
    texts = ["the cat sat\n", "mat", "on  the mat"]
    found = [(q.context, q.continuation, q.where) for q in last_words(texts, "a.txt")]
    assert found == [
        ("the cat", " sat", "a.txt: document 1"),
        ("on  the", " mat", "a.txt: document 3"),
    ]
    with pytest.raises(LlmcurateError, match="no text has more than one word"):
        last_words(["mat"], "a.txt")


def test_an_interval_holds_the_figure_and_narrows_with_the_number_of_items():
    draw = np.random.default_rng(0)
    wide, narrow = (
        interval(draw.random(count) < 0.3, np.ones(count), seed=1) for count in (50, 5000)
    )
    assert wide[0] < 0.3 < wide[1] and narrow[0] < 0.3 < narrow[1]
    # Of a share p the 95 % interval is about 4 sqrt(p (1 - p) / n) wide.
    assert narrow[1] - narrow[0] == pytest.approx(4 * (0.3 * 0.7 / 5000) ** 0.5, rel=0.2)
    assert interval(np.ones(1), np.ones(1), seed=1) is None
