"""Labelled texts in JSON lines: what a model with a head for a task is trained on.

    classify  {"text": ..., "label": ...}, with "pair" where there is a second text
    token     {"tokens": [...], "labels": [...]}: words, and a label of each
    span      {"question": ..., "text": ..., "answer": ..., "start": ...}: where in the text it is

``start`` counts characters. Labels are words or whole numbers, which are words here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A line of a file, in order. ``texts``: what is read, one or two texts, or words. ``labels``:
    of the text, or of each word; of a span its answer; none where they are not known. ``start``:
    of the answer, in characters of the last text. ``key``: what decides on which side of the split
    it is.
    """

    line: int
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    key: str
    start: int = 0


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty")
    return _encodable(value, name)


def _encodable(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise ValueError(f"{name} is not UTF-8") from None
    return value


def _label(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise ValueError("a label must be a word or a whole number")
    return _encodable(str(value), "a label")


def _classify(values: Mapping[str, Any], labelled: bool) -> dict[str, Any]:
    texts = tuple(
        _text(values, name) for name in ("text", "pair") if name == "text" or name in values
    )
    labels = (_label(values.get("label")),) if labelled else ()
    return {"texts": texts, "labels": labels, "key": texts[0]}


def _token(values: Mapping[str, Any], labelled: bool) -> dict[str, Any]:
    words = values.get("tokens")
    if not isinstance(words, list) or not words:
        raise ValueError("tokens must be a list of words")
    texts = tuple(_text({"tokens": word}, "tokens") for word in words)
    labels: tuple[str, ...] = ()
    if labelled:
        named = values.get("labels")
        if not isinstance(named, list) or len(named) != len(words):
            raise ValueError(f"labels must be a list of {len(words)}, one for each of tokens")
        labels = tuple(map(_label, named))
    return {"texts": texts, "labels": labels, "key": " ".join(texts)}


def _span(values: Mapping[str, Any], labelled: bool) -> dict[str, Any]:
    question, text = _text(values, "question"), _text(values, "text")
    if not labelled:
        return {"texts": (question, text), "labels": (), "key": text}
    answer, start = _text(values, "answer"), values.get("start")
    if isinstance(start, bool) or not isinstance(start, int):
        raise ValueError("start must be a whole number, the answer's first character")
    if start < 0 or text[start : start + len(answer)] != answer:
        raise ValueError(f"the answer is not in text at character {start}")
    return {"texts": (question, text), "labels": (answer,), "key": text, "start": start}


READERS: dict[str, Callable[[Mapping[str, Any], bool], dict[str, Any]]] = {
    "classify": _classify,
    "token": _token,
    "span": _span,
}


def read_samples(path: Path, task: str, *, labelled: bool = True) -> list[Sample]:
    """The lines of a file; raises ``LlmcurateError`` naming the first that is none of ``task``.
    ``labelled``: whether labels must be there.
    """
    samples = []
    for number, values in read_lines(path):
        try:
            samples.append(Sample(line=number, **READERS[task](values, labelled)))
        except ValueError as error:
            raise UsageError(f"{path}:{number}: {error}") from None
    if not samples:
        raise UsageError(f"{path}: no lines")
    return samples


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file in JSON lines, each with the number of its line from 1; empty lines
    count as none. Raises ``LlmcurateError``.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    values = json.loads(line)
                except (ValueError, RecursionError):
                    raise UsageError(f"{path}:{number}: not JSON") from None
                if not isinstance(values, dict):
                    raise UsageError(f"{path}:{number}: not a JSON object")
                yield number, values
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def labels_of(samples: Sequence[Sample], where: Path) -> tuple[str, ...]:
    """The labels that occur, sorted; raises ``LlmcurateError`` for a single one."""
    names = sorted({label for sample in samples for label in sample.labels})
    if len(names) < 2:
        raise UsageError(
            f"{where}: {counted(len(names), 'label')}; two different ones at least are needed"
        )
    return tuple(names)
