"""Labelled JSONL records, on which a model with a task head is trained.

    classify  {"text": ..., "label": ...}, and "pair" for a second text
    token     {"tokens": [...], "labels": [...]}: words, and a label for each
    span      {"question": ..., "text": ..., "answer": ..., "start": ...}: an answer in the text
    choice    {"context": ..., "choices": [...], "label": ...}: the number of the right choice

``start`` counts characters from 0. Labels are strings, or whole numbers that become strings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.tokenizer_file import load_tokenizer, roles_of, size_of, special_ids
from train.config import TrainConfig
from train.data.feed import Feed
from train.data.packing import key_of
from train.data.readers import Flags, Foreign, Ints, Part
from train.data.rows import Piece, Rows, sides
from train.data.shards import Shards
from train.data.vocabulary import Vocabulary, around_texts, stated_around
from train.model.config import FIXED
from train.model.config import Task as TaskOfModel
from train.objective_settings import Task


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A record of a labelled file. ``texts`` and ``labels`` depend on the task. ``classify``: one
    or two texts, and their label. ``token``: words, and a label for each. ``span``: a question and
    a text, and the answer, which begins at character ``start`` of the text. ``choice``: a context
    and its choices, and the number of the right choice. ``labels`` is empty if the labels are
    unknown. A hash of ``key`` decides if the record is held out."""

    line: int
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    key: str
    start: int = 0


@dataclass(frozen=True)
class Line:
    """A JSON object of a JSONL file, and its line number, counted from 1."""

    number: int
    values: dict[str, Any]

    def text(self, name: str) -> str:
        if name not in self.values:
            names = ", ".join(list(self.values)[:9]) or "no keys"
            raise ValueError(f"no key {name}; the line has {names}")
        return _text(self.values[name], name)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty")
    return _encodable(value, name)


def _encodable(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:  # it contains half of a surrogate pair
        raise ValueError(f"{name} is not UTF-8") from None
    return value


def _label(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise ValueError("a label must be a word or a whole number")
    return _encodable(str(value), "a label")


def _classify(line: Line, labelled: bool) -> Sample:
    names = ("text", "pair") if "pair" in line.values else ("text",)
    texts = tuple(map(line.text, names))
    labels = (_label(line.values.get("label")),) if labelled else ()
    return Sample(line=line.number, texts=texts, labels=labels, key=texts[0])


def _token(line: Line, labelled: bool) -> Sample:
    words = line.values.get("tokens")
    if not isinstance(words, list) or not words:
        raise ValueError("tokens must be a list of words")
    texts = tuple(_text(word, "tokens") for word in words)
    labels: tuple[str, ...] = ()
    if labelled:
        named = line.values.get("labels")
        if not isinstance(named, list) or len(named) != len(words):
            raise ValueError(f"labels must list {counted(len(words), 'label')}, one for each token")
        labels = tuple(map(_label, named))
    return Sample(line=line.number, texts=texts, labels=labels, key=" ".join(texts))


def _span(line: Line, labelled: bool) -> Sample:
    question, text = line.text("question"), line.text("text")
    if not labelled:
        return Sample(line=line.number, texts=(question, text), labels=(), key=text)
    answer, start = line.text("answer"), line.values.get("start")
    if isinstance(start, bool) or not isinstance(start, int):
        raise ValueError("start must be a whole number: the index of the answer's first character")
    if start < 0 or text[start : start + len(answer)] != answer:
        raise ValueError(f"the answer is not in text at character {start}")
    texts = (question, text)
    return Sample(line=line.number, texts=texts, labels=(answer,), key=text, start=start)


MOST_CHOICES = 64


def _choice(line: Line, labelled: bool) -> Sample:
    """Read a context with choices. The keys may also be those of HellaSwag (ctx, endings) or of
    SWAG (sent1, sent2, ending0, ending1, ...)."""
    values, begin = line.values, ""
    context = next((name for name in ("sent1", "ctx") if name in values), "context")
    choices = values.get("endings", values.get("choices"))
    if context == "sent1":
        begin = f"{line.text('sent2')} " if values.get("sent2") else ""
        choices = [values[name] for n in range(MOST_CHOICES) if (name := f"ending{n}") in values]
    if not isinstance(choices, list) or not 2 <= len(choices) <= MOST_CHOICES:
        raise ValueError(f"choices must be a list of 2 to {counted(MOST_CHOICES, 'text')}")
    texts = (line.text(context), *(begin + _text(choice, "a choice") for choice in choices))
    label = str(values.get("label"))
    if labelled and label not in map(str, range(len(choices))):
        raise ValueError(f"label must be the number of a choice, from 0 to {len(choices) - 1}")
    labels = (label,) if labelled else ()
    return Sample(line=line.number, texts=texts, labels=labels, key=texts[0])


READERS = {"classify": _classify, "token": _token, "span": _span, "choice": _choice}


def read_samples(path: Path, task: str, *, labelled: bool = True) -> list[Sample]:
    """Read the records for ``task`` from a JSONL file. With ``labelled``, each must have labels. An
    ``LlmcurateError`` names the first wrong line."""
    samples = []
    for line in read_lines(path):
        try:
            samples.append(READERS[task](line, labelled))
        except ValueError as error:
            raise UsageError(f"{path}:{line.number}: {error}") from None
    if not samples:
        raise UsageError(f"{path}: no lines: give a JSONL file with a record per line")
    return samples


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the objects of a JSONL file, skipping empty lines. Raises ``LlmcurateError`` if the
    file is unreadable or a line is no JSON object."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    values = json.loads(line)
                except (ValueError, RecursionError):
                    packed = path.suffix in (".gz", ".zst", ".csv", ".parquet")
                    hint = f": give plain JSONL, not {path.suffix}" if packed else ""
                    raise UsageError(f"{path}:{number}: not JSON{hint}") from None
                if not isinstance(values, dict):
                    raise UsageError(f"{path}:{number}: not a JSON object")
                yield Line(number, values)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def labels_of(samples: Sequence[Sample], where: Path) -> tuple[str, ...]:
    """Return the distinct labels, sorted. Raises ``LlmcurateError`` if there are fewer than two."""
    names = sorted({label for sample in samples for label in sample.labels})
    if len(names) < 2:
        raise UsageError(
            f"{where}: {counted(len(names), 'label')}; at least two different labels are needed"
        )
    return tuple(names)


Offsets = list[tuple[int, int]]  # first character and end of each token


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """One model input of a sample; a long sample has several. ``sample``: the sample's number.
    ``tokens`` and ``segments`` (0 or 1) are [tokens]. ``places``: the indices of the tokens to
    label. For each place, ``labels`` has the number of the right label. In the task ``token``,
    ``words`` has the index in the sample of each place's word.

    In the task ``span`` (find an answer), the only place is the first token. ``labels`` are the
    indices of the answer's first and last token, both 0 if the window lacks the answer.
    ``characters`` [tokens, 2] are a token's offsets in the text, -1 for tokens outside it. In the
    task ``choice``, the window has all choices of a sample. ``choices`` [tokens] is the number of
    each token's choice, ``places`` are the first tokens of the choices, and the only label is the
    right choice's number."""

    sample: int
    tokens: Ints
    segments: Ints
    places: Ints
    labels: Ints
    words: Ints | None = None
    characters: Ints | None = None
    choices: Ints | None = None

    @property
    def answers(self) -> int:
        """The number of predictions for this window: one per label; for ``span`` only one."""
        return len(self.labels) if self.characters is None else 1


class Encoder:
    """Encoder of samples. A text is classified at its last token if ``read_last`` is set, else at
    its first token. The tokens around texts are those of our training or, with ``stated``, those
    that the tokenizer states."""

    def __init__(
        self, tokenizer: Path, context: int, *, read_last: bool, stated: bool = False
    ) -> None:
        self.context, self.read_last = context, read_last
        self.tokenizer = load_tokenizer(tokenizer)
        self.end = roles_of(tokenizer, self.tokenizer).end
        self.around = (
            stated_around(self.tokenizer) if stated else around_texts(tokenizer, self.tokenizer)
        )
        self.cut = 0  # number of truncated texts

    def windows(self, task: str, samples: Sequence[Sample], names: Sequence[str]) -> list[Window]:
        """Return the windows of all samples, sample by sample; ``names`` are the labels."""
        numbers = {name: number for number, name in enumerate(names)}
        makers = {"classify": self._classify, "token": self._words, "span": self._span}
        make = (makers | {"choice": self._choices})[task]
        return [w for n, sample in enumerate(samples) for w in make(n, sample, numbers)]

    def _encode(self, text: str) -> tuple[list[int], Offsets]:
        encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def _joined(self, *texts: list[int]) -> tuple[Ints, Ints]:
        before, between, behind, segment = self.around[len(texts) - 1]
        first = [*before, *texts[0], *between] if texts[1:] else list(before)
        last = [*texts[-1], *behind]
        if not first and not last:  # a model needs a token
            last = [self.end or 0]
        segments = np.repeat((0, segment), (len(first), len(last)))
        return np.array(first + last, np.int64), segments

    def room(self, texts: int, choices: int = 1) -> int:
        """Return how many tokens of text fit into a row with ``texts`` texts and their special
        tokens. If the row is divided into ``choices`` equal parts, return how many fit into a
        part."""
        before, between, behind, _ = self.around[texts - 1]
        room = self.context // choices - len(before + between + behind)
        if room < 2:
            raise UsageError(f"context is {self.context}: too short for texts, raise it")
        return room

    def _cut(self, texts: list[list[int]], room: int) -> list[list[int]]:
        self.cut += sum(map(len, texts)) > room
        if len(texts) == 2:  # the longer text is cut to the room that the other leaves
            first, second = texts
            texts = [first[: max(room // 2, room - len(second))], second]
            texts[1] = second[: room - len(texts[0])]
        return [text[:room] for text in texts]

    def _choices(self, number: int, sample: Sample, names: dict[str, int]) -> Iterator[Window]:
        context, *choices = (self._encode(text)[0] for text in sample.texts)
        room = self.room(2, len(choices))
        joined = [self._joined(*self._cut([context, choice], room)) for choice in choices]
        lengths = np.array([len(tokens) for tokens, _ in joined])
        tokens, segments = (np.concatenate(parts) for parts in zip(*joined, strict=True))
        yield Window(
            sample=number,
            tokens=tokens,
            segments=segments,
            places=np.cumsum(lengths) - lengths,
            labels=np.array([int(label) for label in sample.labels] or [0]),
            choices=np.repeat(np.arange(len(choices)), lengths),
        )

    def _classify(self, number: int, sample: Sample, names: dict[str, int]) -> Iterator[Window]:
        texts = [self._encode(text)[0] for text in sample.texts]
        tokens, segments = self._joined(*self._cut(texts, self.room(len(texts))))
        yield Window(
            sample=number,
            tokens=tokens,
            segments=segments,
            places=np.array([len(tokens) - 1 if self.read_last else 0]),
            labels=np.array([names[label] for label in sample.labels] or [0]),
        )

    def _words(self, number: int, sample: Sample, names: dict[str, int]) -> Iterator[Window]:
        ids, characters = self._encode(" ".join(sample.texts))
        ends = np.array([end for _, end in characters], np.int64)
        lengths = np.array([len(word) + 1 for word in sample.texts], np.int64)
        starts = np.cumsum(lengths) - lengths
        first = np.searchsorted(ends, starts, side="right")  # the word's first token
        first = np.minimum(first, max(0, len(ids) - 1))
        labels = np.array([names[label] for label in sample.labels] or [0] * len(first), np.int64)
        room, word, shift = self.room(1), 0, len(self.around[0].before)
        while word < len(first):
            begin = int(first[word])
            last = int(np.searchsorted(first, begin + room, side="left"))
            if begin + room < len(ids) and last > word + 1:
                last -= 1  # a word that may be cut is labelled in the next window
            tokens, segments = self._joined(ids[begin : begin + room])
            yield Window(
                sample=number,
                tokens=tokens,
                segments=segments,
                places=np.minimum(first[word:last] - begin + shift, len(tokens) - 1),
                labels=labels[word:last],
                words=np.arange(word, last),
            )
            word = last

    def _span(self, number: int, sample: Sample, names: dict[str, int]) -> Iterator[Window]:
        room = self.room(2)
        question = self._encode(sample.texts[0])[0][: room // 2]
        ids, characters = self._encode(sample.texts[1])
        size = room - len(question)
        before, between, *_ = self.around[1]
        answer = self._answer(sample, characters)
        step = max(1, size // 2)
        for first in range(0, max(1, len(ids) - size + step), step):
            tokens, segments = self._joined(question, ids[first : first + size])
            shift = len(before + between) + len(question) - first
            inside = answer is not None and first <= answer[0] and answer[1] < first + size
            places = np.full((len(tokens), 2), -1, np.int64)
            part = characters[first : first + size]
            places[first + shift : first + shift + len(part)] = np.array(part).reshape(-1, 2)
            labels = (np.array(answer) + shift) if answer is not None and inside else np.zeros(2)
            yield Window(
                sample=number,
                tokens=tokens,
                segments=segments,
                places=np.zeros(1, np.int64),
                labels=labels.astype(np.int64),
                characters=places,
            )

    def _answer(self, sample: Sample, characters: Offsets) -> tuple[int, int] | None:
        if not sample.labels:
            return None
        begin, end = sample.start, sample.start + len(sample.labels[0])
        inside = [n for n, (first, last) in enumerate(characters) if first < end and last > begin]
        return (inside[0], inside[-1]) if inside else None


@dataclass(frozen=True, kw_only=True)
class LabelledPiece(Piece):
    window: Window


class LabelledRows(Rows):
    def __init__(self, windows: Sequence[Window], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named, takes=window_lengths)
        self.windows = windows

    def pieces(self, row: int) -> list[Piece]:
        return [
            LabelledPiece(**vars(piece), window=self.windows[piece.document - self.first])
            for piece in super().pieces(row)
        ]


def window_lengths(length: Ints, context: int) -> Ints:
    """Return how many positions each window takes: its ``length``, as each token takes one."""
    return length


def shards_of(
    path: Path,
    tokenizer: Path,
    tokens: Sequence[Ints],
    lines: Sequence[int],
    content: str,
    *,
    said: Sequence[Flags] | None = None,
    **more: Any,
) -> Shards:
    """Return encoded documents as shards. ``tokens`` and ``lines`` are the tokens of each document
    and its line number in the file ``path``. ``content`` is a text whose hash becomes the
    fingerprint of the shards. ``said``: for each document, True for the tokens of answers. If
    ``said`` is given, the first token of a document is read but not predicted."""
    loaded = load_tokenizer(tokenizer)
    length = np.array([len(document) for document in tokens], np.int64)
    ids = pa.array([f"{path.name}:{line}" for line in lines])
    joined, start, read = np.concatenate(tokens), np.cumsum(length) - length, int(said is not None)
    part = Part(name=path.name, tokens=joined, start=start, length=length, ids=ids)
    return Shards(
        folder=path,
        vocab_size=size_of(loaded),
        special_ids=special_ids(loaded),
        fingerprint=hashlib.sha256(content.encode()).hexdigest(),
        tokens=[joined],
        shard=np.zeros(len(length), np.int64),
        start=start + read,
        length=length - read,
        bytes=None,
        masks=None if said is None else [np.concatenate(said).astype(np.uint8)],
        answers=said is not None,
        form="labelled",
        tokenizer=tokenizer,
        tokenizer_sha256=file_digest(tokenizer),
        parts=(part,),
        **more,
    )


class Labelled:
    """A file of labelled samples, encoded. ``names``: the labels; if empty, those in the file.
    ``stated``: see ``Encoder``."""

    def __init__(
        self,
        path: Path,
        task: Task,
        tokenizer: Path,
        context: int,
        *,
        names: Sequence[str] = (),
        labelled: bool = True,
        stated: bool = False,
    ) -> None:
        self.path, self.task, self.context = path, task, context
        self.samples = read_samples(path, task.kind, labelled=labelled)
        self.names = FIXED.get(task.kind) or tuple(names) or labels_of(self.samples, path)
        known = set(self.names)
        for sample in self.samples if task.kind not in FIXED else ():
            if unknown := [label for label in sample.labels if label not in known]:
                raise UsageError(f"{path}:{sample.line}: the model has no label {unknown[0]!r}")
        encoder = Encoder(tokenizer, context, read_last=task.reads == "last", stated=stated)
        self.windows = encoder.windows(task.kind, self.samples, self.names)
        content = f"{file_digest(path)} {file_digest(tokenizer)} {context} {task}"
        self.shards = shards_of(
            path,
            tokenizer,
            [window.tokens for window in self.windows],
            [self.samples[window.sample].line for window in self.windows],
            content,
            end=encoder.end,
            begin=next(iter(encoder.around[0].before), None),
            notes=(self._note(encoder),),
        )

    def _note(self, encoder: Encoder) -> str:
        more = len(self.windows) - len(self.samples)
        cut = f", {counted(encoder.cut, 'text')} truncated" if encoder.cut else ""
        extra = f", {counted(more, 'extra window')} for long texts" if more else ""
        labels = "" if self.task.kind in FIXED else f", {counted(len(self.names), 'label')}"
        return f"{self.path.name}: {counted(len(self.samples), 'sample')}{labels}{extra}{cut}"


def split(samples: Sequence[Sample], *, held_out: float, seed: int) -> Flags:
    """Return True for each held-out sample. Raises ``LlmcurateError`` if all texts are equal."""
    draws = np.array([key_of("split", seed, sample.key) for sample in samples], np.uint64)
    if draws.min() == draws.max():
        raise UsageError(
            f"{counted(len(samples), 'sample')}, all with the same text; training and held-out text"
            " need at least two different texts"
        )
    return sides(draws, held_out)


class LabelledFeed(Feed):
    """The training rows of a labelled file. The model's ``tokenizer`` is used unless the settings
    name another. ``names``: the model's labels, or () to collect the labels of the file."""

    def __init__(
        self,
        path: Path | None,
        config: TrainConfig,
        *,
        tokenizer: Path | None = None,
        names: Sequence[str] = (),
    ) -> None:
        task = config.objective
        assert isinstance(task, Task)
        refused = {
            "sources": bool(config.sources),
            "stages": bool(config.stages),
            "eval": bool(config.eval),
            "unique_tokens": config.unique_tokens is not None,
            "teacher": config.teacher is not None,
            f"context_parallel {config.context_parallel}": config.context_parallel > 1,
        }
        for name, is_set in refused.items():
            if is_set:
                raise UsageError(f"{name} with objective {task.kind}: leave one of them out")
        if path is None or not path.is_file():
            raise UsageError(f"{path}: objective {task.kind} needs a JSONL file")
        own = tokenizer if config.tokenizer is None else Path(config.tokenizer)
        if own is None:
            raise UsageError(
                "no tokenizer: give the folder of a model as --model (train one first: a preset"
                " has no weights), or --tokenizer"
            )
        own = own / "tokenizer.json" if own.is_dir() else own
        self.data = Labelled(path, task, own, config.context, names=names)
        self.task = TaskOfModel(kind=task.kind, labels=self.data.names)
        super().__init__(path, config, takes=window_lengths)

    def _open(self, foreign: Foreign) -> None:
        shards, path = self.data.shards, str(self.default)
        self.labels, self.shards, self.first = (
            {path: self.data.path.stem},
            {path: shards},
            {path: 0},
        )
        self.tokenizer, self.fingerprint = shards.tokenizer, shards.fingerprint
        self.vocabulary = Vocabulary(
            size=shards.vocab_size,
            reserved=frozenset(shards.special_ids.values()),
            tokenizer=shards.tokenizer,
        )
        chosen = split(self.data.samples, held_out=self.config.held_out, seed=self.config.seed)
        sample = np.array([window.sample for window in self.data.windows], np.int64)
        aside = chosen[sample]
        self.train = {path: np.flatnonzero(~aside)}
        self.aside = np.flatnonzero(aside)
        self.held_out = {path: self.aside}

    def _rows(self, path: str, context: int, packing: str) -> Rows:
        windows, shards = self.data.windows, self.data.shards
        order = {"packing": packing, "seed": self.config.seed}
        return LabelledRows(windows, shards, self.train[path], context, **order)
