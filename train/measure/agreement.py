"""How well predictions agree with labels: accuracy, F1 of labels, of entities and of answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

Entity = tuple[int, int, str]  # first word, word behind it, type
_MARKED = re.compile(r"[BIES]-.+|O")


def accuracy(labels: Sequence[str], predicted: Sequence[str]) -> float:
    """The share that is right."""
    pairs = zip(labels, predicted, strict=True)
    return sum(a == b for a, b in pairs) / max(1, len(labels))


def f1(right: int, predicted: int, there: int) -> float:
    """The harmonic mean of right / predicted and right / there; 0 where none is right."""
    return 2 * right / (predicted + there) if right else 0.0


def f1_of_labels(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """F1 of each label that is there or was predicted."""
    true, named = Counter(labels), Counter(predicted)
    right = Counter(a for a, b in zip(labels, predicted, strict=True) if a == b)
    return {name: f1(right[name], named[name], true[name]) for name in sorted(true | named)}


def macro_f1(labels: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean of the F1 of labels, each counted once."""
    each = f1_of_labels(labels, predicted)
    return sum(each.values()) / max(1, len(each))


def marks_entities(names: Sequence[str]) -> bool:
    """Whether labels are O and the marks of entities: B-PER, I-PER, also E- and S-."""
    return any(name != "O" for name in names) and all(_MARKED.fullmatch(name) for name in names)


def entities(labels: Sequence[str]) -> set[Entity]:
    """The entities of a text, by the rules of CoNLL's evaluation (Tjong Kim Sang and De Meulder
    2003): one begins with B- or S-, behind another type, and behind the end of one; I- or E- that
    follow none begin one too.
    """
    spans: set[Entity] = set()
    begun: tuple[int, str] | None = None
    for place, label in enumerate([*labels, "O"]):
        mark, _, kind = label.partition("-")
        goes_on = begun is not None and mark in ("I", "E") and kind == begun[1]
        if begun is not None and not goes_on:
            spans.add((begun[0], place, begun[1]))
            begun = None
        if mark != "O" and begun is None:
            begun = place, kind
        if begun is not None and mark in ("E", "S"):
            spans.add((begun[0], place + 1, begun[1]))
            begun = None
    return spans


def entity_f1(labels: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """F1 of the entities of all texts, right where both bounds and the type are."""
    right = predictions = entries = 0
    for ours, theirs in zip(labels, predicted, strict=True):
        true, named = entities(ours), entities(theirs)
        right += len(true & named)
        predictions, entries = predictions + len(named), entries + len(true)
    return f1(right, predictions, entries)


def normalised(answer: str) -> str:
    """An answer as SQuAD's evaluation compares it (Rajpurkar et al. 2016): lower case, without
    punctuation, articles and extra spaces.
    """
    kept = "".join(char for char in answer.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def exact_match(answer: str, predicted: str) -> bool:
    """Whether two answers are the same once normalised."""
    return normalised(answer) == normalised(predicted)


def answer_f1(answer: str, predicted: str) -> float:
    """F1 of the words of an answer, as SQuAD has it: 1 where neither has a word."""
    ours, theirs = normalised(answer).split(), normalised(predicted).split()
    if not ours or not theirs:
        return float(ours == theirs)
    return f1((Counter(ours) & Counter(theirs)).total(), len(theirs), len(ours))
