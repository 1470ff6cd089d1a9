"""Questions in JSONL: a context with its continuation.

{"context": "The sky is", "continuation": " blue"}

The log-likelihood of a continuation is the sum over its tokens, given the context. The model's
answer is right if each token of the continuation is the likeliest. Questions with choices are tasks
of lm-evaluation-harness (harness.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from tokenizers import Tokenizer

from llmcurate.base.disk.files import read_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from train.data.readers import Flags, Floats
from train.data.rows import Piece
from train.evaluate.paired import Figure, interval
from train.loop.evaluate import Scoring, WholePieces, batches
from train.model.decoder import Decoder
from train.objectives.example import Draws, Example, Objective, causal_row
from train.objectives.losses import token_losses_and_hits


@dataclass(frozen=True, kw_only=True)
class Question:
    """A context and its continuation. ``where`` names the question in messages."""

    context: str
    continuation: str
    where: str


_CHOICES = ("choices", "options")
_OF_QUESTIONS = {"context", *_CHOICES}


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
    return isinstance(value, dict) and "text" not in value and not _OF_QUESTIONS.isdisjoint(value)


def read_questions(path: Path) -> list[Question]:
    """Read the questions of a JSONL file. The error for an invalid line names the line."""
    lines = enumerate(read_text(path).split("\n"), 1)
    questions = [_question(line, f"{path}:{number}") for number, line in lines if line.strip()]
    if not questions:
        raise UsageError(f"{path}: has no questions")
    return questions


def last_words(texts: Iterable[str], path: str) -> list[Question]:
    """Return a question for each text with more than one word: its last word is the continuation,
    as in LAMBADA (Paperno et al. 2016). Words end at spaces. Raises ``UsageError`` if no text has
    two words."""
    questions = []
    for number, text in enumerate(texts, 1):
        before, space, word = text.rstrip().rpartition(" ")
        if before:
            where = f"{path}: document {number}"
            questions.append(Question(context=before, continuation=space + word, where=where))
    if not questions:
        raise UsageError(f"{path}: no text has more than one word")
    return questions


def _question(line: str, where: str) -> Question:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: not JSON") from None
    value = value if isinstance(value, dict) else {}
    if key := next((key for key in _CHOICES if key in value), None):
        raise UsageError(f"{where}: has {key}: make it a task of lm-evaluation-harness (--task)")
    context, continuation = value.get("context"), value.get("continuation")
    if not _is_text(context) or not _is_text(continuation):
        raise UsageError(f"{where}: give `context` and `continuation`, both as text")
    if not continuation:
        raise UsageError(f"{where}: an empty continuation cannot be scored")
    return Question(context=context, continuation=continuation, where=where)


def _is_text(value: Any) -> TypeGuard[str]:
    """Return True for a string of valid Unicode. JSON may contain half of a surrogate pair."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def split(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Encode context and continuation together, then return the token ids of each. Spaces at the
    end of the context go to the continuation, because a token begins with the space before it."""
    stripped = context.rstrip()
    whole = tokenizer.encode(context + continuation, add_special_tokens=False).ids
    boundary = len(tokenizer.encode(stripped, add_special_tokens=False).ids)
    boundary = min(boundary, len(whole) - 1)
    return whole[:boundary], whole[boundary:]


class Answers(Objective):
    """The objective that scores continuations. If ``prefix`` is True, the context's tokens also see
    those after them in the context."""

    def __init__(self, prefix: bool) -> None:
        self.prefix = prefix

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        row, places = causal_row(pieces, context)
        if not self.prefix:
            return row
        prefix = torch.zeros(1, context, dtype=torch.bool)
        for piece, place in places:
            assert piece.counted is not None
            # The last token of the context predicts the first scored token.
            length = int(piece.counted.argmax()) + 1
            prefix[0, place.start : place.start + length] = True
        return replace(row, prefix=prefix)


def continuations(
    model: Decoder, pairs: Sequence[tuple[list[int], list[int]]], scoring: Scoring, context: int
) -> tuple[Floats, Flags]:
    """Return for each pair the loss of the continuation in nats, and True if all its tokens are the
    likeliest. ``pairs``: (ids before the continuation, at least one; ids of the continuation, at
    most ``context``). The first ids are left out if a pair has more than ``context`` tokens."""
    pieces = []
    for number, (before, after) in enumerate(pairs):
        ids = [*before, *after][-context - 1 :]
        tokens = np.array(ids[1:], dtype=np.int64)
        scored = np.arange(len(tokens)) >= len(tokens) - len(after)
        pieces.append(Piece(document=number, first=0, before=ids[0], tokens=tokens, counted=scored))
    lengths = np.array([len(piece.tokens) for piece in pieces])
    rows = WholePieces(lengths, context, pieces.__getitem__)
    sums = np.zeros((len(pieces), 2))  # nats, and scored tokens that were the likeliest
    objective = Answers(model.both_ways)
    for _, numbers, values in batches(
        model, rows, rows.count, objective, scoring, token_losses_and_hits
    ):
        np.add.at(sums, numbers, values)
    return sums[:, 0], sums[:, 1] == [len(after) for _, after in pairs]


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
    """Return the model's accuracy, perplexity and log-likelihoods (nats) on ``questions``, with
    intervals. The token id ``begin`` is placed before each text. ``context``: the most tokens that
    the model reads; the start of a longer question is left out."""
    pairs = []
    for question in questions:
        before, after = split(tokenizer, question.context, question.continuation)
        before = [*([] if begin is None else [begin]), *before]
        if len(after) > context or not before:
            problem = (
                f"{counted(len(after), 'token')} to score, the context is {context}"
                if len(after) > context
                else "this tokenizer has no token that begins a text: give a context"
            )
            raise UsageError(f"{question.where}: {problem}")
        pairs.append((before, after))
    nats, exact = continuations(model, pairs, scoring, context)
    sizes = np.array([len(question.continuation.encode()) for question in questions])
    ones, bits = np.ones(len(nats)), nats / math.log(2)
    return {
        "questions": len(nats),
        "accuracy": float(exact.mean()),
        "accuracy_interval": interval(exact, ones, seed),
        "log_likelihood": float(-nats.mean()),
        "log_likelihood_interval": interval(-nats, ones, seed),
        "perplexity": float(np.exp(nats.mean())),
        "bits_per_byte": float(bits.sum() / sizes.sum()),
        "bits_per_byte_interval": interval(bits, sizes, seed),
    }
