"""Objectives that predict answers: what the assistant says in a conversation, or a source's target.

    chat   {"messages": [{"role": "user", "content": ...}, {"role": "assistant", "content": ...}]}
    pairs  {"source": ..., "target": ...}

A conversation can also have ShareGPT's form, {"conversations": [{"from": "human", "value": ...},
{"from": "gpt", "value": ...}]}. A record is one document, never split between rows. Its first token
is an input, but not a target."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.roles import BESIDE, Roles
from llmcurate.base.tokenizer_file import load_tokenizer, roles_of
from train.config import TrainConfig, stages_of
from train.data.chat import FILE, Message, Tools, plain_template
from train.data.chat import Chat as Template
from train.data.feed import Feed
from train.data.readers import Flags, Foreign, Ints
from train.data.rows import Piece, Takes
from train.data.shards import Shards
from train.data.vocabulary import first_of
from train.lab.objectives.denoise import apart
from train.lab.tasks.labelled import Line, read_lines, shards_of, window_lengths
from train.model.config import Task
from train.objective_settings import Chat, Pairs
from train.objectives.example import Draws, Example, Objective, causal_row, learns

Encoded = tuple[Ints, Flags]  # ids, and for each id True if it belongs to an answer


_SPEAKERS = {"human": "user", "gpt": "assistant"}


def _of_sharegpt(message: Any) -> Any:
    """Return a message of ShareGPT, with keys ``from`` and ``value``, in the form of ``chat``."""
    if not isinstance(message, dict) or not {"from", "value"} <= message.keys():
        return message
    speaker = message["from"]
    return {"role": _SPEAKERS.get(str(speaker), speaker), "content": message["value"]}


def conversation_of(line: Line) -> tuple[list[Message], Tools]:
    """Return the messages of a record and its tools, None if it has none. Raises ValueError if
    messages are not texts with roles, or calls of tools."""
    messages = line.values.get("messages", line.values.get("conversations"))
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list of messages, each with role and content")
    tools = _read_json(line.values.get("tools"))
    if not isinstance(tools, list | None):
        raise ValueError("tools must be a list of JSON schemas")
    return [_message(line, _of_sharegpt(message)) for message in messages], tools or None


def _message(line: Line, message: Any) -> Message:
    if not isinstance(message, dict):
        raise ValueError("a message needs role and content")
    message = {name: value for name, value in message.items() if value is not None}
    calls = message.get("tool_calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ValueError("tool_calls must be a list of objects")
    if "role" not in message or not ("content" in message or calls):
        raise ValueError("a message needs role and content")
    Line(line.number, message).text("role")
    content = message.setdefault("content", "")
    for part in content if isinstance(content, list) else [content] if content or not calls else []:
        if isinstance(part, dict) and part.get("type") != "text":
            raise ValueError(f"content has a part of type {part.get('type')}: only text is read")
        text = part.get("text") if isinstance(part, dict) else part
        Line(line.number, {"content": text}).text("content")
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    return message


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call of a tool, in which arguments given as JSON text are an object, as templates
    expect them."""
    values = {name: _call(held) if name == "function" else held for name, held in call.items()}
    return values | {"arguments": _read_json(call["arguments"])} if "arguments" in call else values


def _read_json(value: Any) -> Any:
    """Return the list or object in a text of JSON. Any other value is returned unchanged."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            found = json.loads(value)
            return found if isinstance(found, dict | list) else value
    return value


def _encoded(template: Template, line: Line) -> Encoded:
    messages, tools = conversation_of(line)
    if any("tool_calls" in message for message in messages) and not template.writes_calls:
        raise ValueError(
            f"the chat template ({template.where}) does not write tool_calls: give one that does"
        )
    return template.encode(messages, tools)


class AnswersFeed(Feed):
    """The training rows of a JSONL file of answers. The model's ``tokenizer`` is used unless the
    settings name another. An ``LlmcurateError`` names the line of a wrong record."""

    def __init__(self, path: Path | None, config: TrainConfig, tokenizer: Path | None) -> None:
        named = tokenizer if config.tokenizer is None else Path(config.tokenizer)
        if named is None:
            raise UsageError("no tokenizer: give the folder of a model, or set tokenizer")
        self.own = named / "tokenizer.json" if named.is_dir() else named
        super().__init__(path, config, takes=window_lengths)

    def _read(self, path: Path, foreign: Foreign) -> Shards:
        room = 1 + min(stage.context for stage in stages_of(self.config))
        tokenizer = load_tokenizer(self.own)
        roles = roles_of(self.own, tokenizer)
        encode, end, note = self._encoder(tokenizer, roles)
        ids, said, lines = list[Ints](), list[Flags](), list[int]()
        records = cut = 0
        for record in read_lines(path):
            try:
                tokens, counts = encode(record)
            except (ValueError, UsageError) as error:
                raise UsageError(f"{path}:{record.number}: {error}") from None
            records, cut = records + 1, cut + (len(tokens) > room)
            if counts[1:room].any():
                ids.append(tokens[:room])
                said.append(counts[:room])
                lines.append(record.number)
        if not ids:
            raise UsageError(f"{path}: no record has an answer within {counted(room - 1, 'token')}")
        beside = (self.own, *(self.own.parent / name for name in BESIDE))
        digests = [file_digest(file) for file in (path, *beside) if file.is_file()]
        read = f"{path.name}: {counted(records, 'record')}, {cut} longer than the context and cut"
        return shards_of(
            path,
            self.own,
            ids,
            lines,
            f"{digests} {room} {self.config.objective} {self.template or ''}".rstrip(),
            said=said,
            end=end,
            begin=next(iter(first_of(roles)), None),
            notes=(f"{read}, {records - len(ids)} left out: no answer in it", *note),
        )

    def _encoder(
        self, tokenizer: Tokenizer, roles: Roles
    ) -> tuple[Callable[[Line], Encoded], int | None, list[str]]:
        """Return a function that encodes a record, the token that ends answers, and notes."""
        asked, end = self.config.objective, roles.end
        spelled = None if end is None else tokenizer.id_to_token(end)
        plain = None if spelled is None else plain_template(spelled)
        if isinstance(asked, Chat):
            template, note = Template(self.own, plain), list[str]()
            if not template.own:
                self.template = plain
                note = [f"the model has no chat template: a plain one is written to OUT/{FILE}"]
            ending = template.ending or end
            return partial(_encoded, template), ending, note
        assert isinstance(asked, Pairs)
        before = first_of(roles)
        if end is None:
            raise UsageError(f"{self.own}: no token ends a text: add one such as <|endoftext|>")
        behind = [end] if asked.form == "encoder-decoder" else []

        def encode(line: Line) -> Encoded:
            source, target = (
                tokenizer.encode(line.text(name), add_special_tokens=False).ids
                for name in ("source", "target")
            )
            ids = np.array([*before, *source, *behind, *target, end], np.int64)
            return ids, np.arange(len(ids)) >= len(ids) - len(target) - 1

        return encode, end, []


@learns(Chat, by=("decoder",))
class Answers(Objective):
    """Predict the tokens of answers from all tokens before them."""

    sparse = True
    likelihood = False

    @staticmethod
    def takes(settings: Any) -> Takes | None:
        return window_lengths

    @classmethod
    def feed(
        cls,
        path: Path | None,
        config: TrainConfig,
        *,
        task: Task | None = None,
        tokenizer: Path | None = None,
    ) -> AnswersFeed:
        return AnswersFeed(path, config, tokenizer)

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        return causal_row(pieces, context)[0]


@learns(Pairs, by=("decoder", "encoder-decoder"))
class Targets(Answers):
    """Predict a target from its source. In an encoder-decoder, the encoder reads the source. A
    decoder reads the source and then the target."""

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        if self.settings.form == "decoder":
            return super().example(pieces, context, draws)
        parts = []
        for piece in pieces:
            assert piece.counted is not None
            first = int(piece.counted.argmax())
            source, target = piece.tokens[:first], piece.tokens[first:]
            start = piece.before if self.settings.start is None else self.settings.start
            parts.append(
                (
                    replace(piece, tokens=source, counted=None),
                    replace(piece, tokens=target, before=start, counted=None),
                )
            )
        return apart(parts, context, context)
