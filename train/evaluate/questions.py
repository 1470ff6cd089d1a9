"""Questions in JSONL: a context with its continuation, or with choices and the correct answer.

{"context": "The sky is", "continuation": " blue"}              cloze
{"context": "2 + 2 =", "choices": [" 3", " 4"], "answer": 1}    multiple choice, answers from 0

The log-likelihood of a continuation is the sum over its tokens, given the context. The model's
answer is the likeliest choice, by the plain sum or, since longer choices are less likely, by the
sum divided by the choice's UTF-8 bytes (Gao 2021, "Multiple choice normalization in LM
evaluation").
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from llmcurate.base.disk.files import read_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from train.data.rows import Piece
from train.evaluate.paired import Figure, interval
from train.loop.evaluate import Scoring, WholePieces, batches
from train.model.decoder import Decoder
from train.objectives.example import Draws, Example, Objective, causal_row
from train.objectives.losses import token_losses_and_hits


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question. ``answer`` is the index of the correct choice; a cloze question has None."""

    context: str
    choices: tuple[str, ...]
    answer: int | None
    where: str


def are_questions(path: Path) -> bool:
    """Return True if the first line of a JSONL file is a question and not a document."""
    if path.suffix not in (".jsonl", ".json") or not path.is_file():
        return False
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "context" in value and "text" not in value


def read_questions(path: Path) -> list[Question]:
    """Read the questions of a file, which are all of one kind. An error names the wrong line."""
    questions = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            questions.append(_question(line, f"{path}:{number}"))
            if (questions[0].answer is None) != (questions[-1].answer is None):
                raise UsageError(
                    f"{path}:{number}: cloze and multiple choice in one file: split it in two"
                )
    if not questions:
        raise UsageError(f"{path}: has no questions")
    return questions


def _question(line: str, where: str) -> Question:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: not JSON") from None
    value = value if isinstance(value, dict) else {}
    context, choices = value.get("context"), value.get("choices", [value.get("continuation")])
    if not _is_text(context) or not isinstance(choices, list) or not all(map(_is_text, choices)):
        raise UsageError(
            f"{where}: give `context`, and `continuation` or `choices` with `answer`, in text"
        )
    if not all(choices):
        raise UsageError(f"{where}: an empty continuation cannot be scored")
    answer = None
    if "choices" in value:
        answer = value.get("answer")
        if type(answer) is not int or not 0 <= answer < len(choices) or len(choices) < 2:
            raise UsageError(
                f"{where}: answer is {answer!r}: give the number, from 0, of one of at least"
                " two choices"
            )
    return Question(context=str(context), choices=tuple(choices), answer=answer, where=where)


def _is_text(value: Any) -> bool:
    """Return True for a string of valid Unicode. JSON may hold half of a surrogate pair."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def split(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Encode context and continuation together, then return the token ids of each. Spaces at the
    end of the context become part of the continuation, because a token begins with the space before
    its word."""
    stripped = context.rstrip()
    whole = tokenizer.encode(context + continuation, add_special_tokens=False).ids
    boundary = len(tokenizer.encode(stripped, add_special_tokens=False).ids)
    boundary = min(boundary, len(whole) - 1)
    return whole[:boundary], whole[boundary:]


class Answers(Objective):
    """The objective of scoring a continuation. With ``prefix``, the context is read both ways."""

    def __init__(self, prefix: bool) -> None:
        self.prefix = prefix

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        row, places = causal_row(pieces, context)
        if not self.prefix:
            return row
        prefix = torch.zeros(1, context, dtype=torch.bool)
        for piece, place in places:
            assert piece.counted is not None
            # The last context token predicts the first scored one.
            length = int(piece.counted.argmax()) + 1
            prefix[0, place.start : place.start + length] = True
        return replace(row, prefix=prefix)


def score_questions(
    model: Decoder,
    tokenizer: Tokenizer,
    begin: int | None,
    questions: Sequence[Question],
    scoring: Scoring,
    *,
    context: int,
    seed: int = 0,
) -> dict[str, Figure]:
    """Return the model's accuracy and log-likelihoods (nats) on ``questions``, with intervals. The
    token id ``begin`` is placed before each text. A context that is too long loses its start.
    """
    pieces: list[Piece] = []
    for question in questions:
        for choice in question.choices:
            pieces.append(_piece(tokenizer, begin, question, choice, len(pieces), context))
    rows = WholePieces(
        np.array([len(piece.tokens) for piece in pieces]), context, pieces.__getitem__
    )
    sums = np.zeros((len(pieces), 2))  # nats, and scored tokens that were the likeliest
    objective = Answers(model.both_ways)
    for _, numbers, values in batches(
        model, rows, rows.count, objective, scoring, token_losses_and_hits
    ):
        np.add.at(sums, numbers, values)
    scored = np.array([int(piece.counted.sum()) for piece in pieces if piece.counted is not None])
    sizes = np.array([len(c.encode()) for question in questions for c in question.choices])
    nats, exact = sums[:, 0], sums[:, 1] == scored
    if questions[0].answer is None:
        return _cloze(nats, sizes, exact, seed)
    return _choice(questions, nats, sizes, seed)


def _piece(
    tokenizer: Tokenizer,
    begin: int | None,
    question: Question,
    choice: str,
    number: int,
    context: int,
) -> Piece:
    before, after = split(tokenizer, question.context, choice)
    ids = ([] if begin is None else [begin]) + before + after
    if len(after) > context or len(ids) < 2:
        problem = (
            f"{counted(len(after), 'token')} to score, the context is {context}"
            if len(after) > context
            else "this tokenizer has no token that begins a text: give a context"
        )
        raise UsageError(f"{question.where}: {problem}")
    ids = ids[-context - 1 :]
    tokens = np.array(ids[1:], dtype=np.int64)
    scored = np.arange(len(tokens)) >= len(tokens) - len(after)
    return Piece(document=number, first=0, before=ids[0], tokens=tokens, counted=scored)


def _cloze(nats: Any, sizes: Any, exact: Any, seed: int) -> dict[str, Figure]:
    ones, bits = np.ones(len(nats)), nats / math.log(2)
    return {
        "kind": "cloze",
        "questions": len(nats),
        "accuracy": float(exact.mean()),
        "accuracy_interval": interval(exact, ones, seed),
        "log_likelihood": float(-nats.mean()),
        "log_likelihood_interval": interval(-nats, ones, seed),
        "bits_per_byte": float(bits.sum() / sizes.sum()),
        "bits_per_byte_interval": interval(bits, sizes, seed),
    }


def _choice(questions: Sequence[Question], nats: Any, sizes: Any, seed: int) -> dict[str, Figure]:
    counts = np.array([len(question.choices) for question in questions])
    firsts = np.cumsum(counts) - counts
    answers = np.array([question.answer for question in questions])
    ones = np.ones(len(questions))

    def is_correct(scores: Any) -> Any:
        likeliest = [scores[f : f + n].argmax() for f, n in zip(firsts, counts, strict=True)]
        return np.array(likeliest) == answers

    plain, by_bytes = is_correct(-nats), is_correct(-nats / sizes)
    answer_nats = nats[firsts + answers]
    bits, of_bytes = answer_nats / math.log(2), sizes[firsts + answers]
    return {
        "kind": "multiple choice",
        "questions": len(questions),
        "chance": float((1 / counts).mean()),
        "accuracy": float(plain.mean()),
        "accuracy_interval": interval(plain, ones, seed),
        "accuracy_by_bytes": float(by_bytes.mean()),
        "accuracy_by_bytes_interval": interval(by_bytes, ones, seed),
        "log_likelihood": float(-answer_nats.mean()),
        "log_likelihood_interval": interval(-answer_nats, ones, seed),
        "bits_per_byte": float(bits.sum() / of_bytes.sum()),
        "bits_per_byte_interval": interval(bits, of_bytes, seed),
    }
