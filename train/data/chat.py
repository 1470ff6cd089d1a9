"""Chat templates: turn conversations into tokens, and mark the tokens that the assistant says. The
ids are those of transformers' ``apply_chat_template``.

A template is Jinja in chat_template.jinja, or in tokenizer_config.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError, TemplateSyntaxError

from llmcurate.base.chat_template import BEGIN, END, Sandbox
from llmcurate.base.disk.files import read_text
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.errors import UsageError
from llmcurate.base.roles import TOKEN_NAMES
from llmcurate.base.tokenizer_file import load_tokenizer, special_ids
from train.data.readers import Flags, Ints

FILE = "chat_template.jinja"
TYPED = "\ufdd2"  # a noncharacter, like BEGIN and END

Message = dict[str, Any]  # role, content, and what the template reads of it, such as tool_calls
Tools = list[Any] | None  # JSON schemas of the functions that a conversation may call


def _plain(marked: str) -> str:
    return re.sub(f"[{BEGIN}{END}{TYPED}]", "", marked)


_PLAIN = """{% if tools %}tools:
{{ tools | tojson }}{{ END }}
{% endif %}
{% for message in messages %}{{ message.role }}:
{% for part in ([message.content] if message.content is string else message.content) %}
{{- part.text or part }}
{%- endfor %}
{%- for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}{{ END }}
{% endfor %}
{% if add_generation_prompt %}assistant:
{% endif %}"""


def plain_template(end: str) -> str:
    """Return a template for models that have none. A message is its role, a colon, a newline, its
    content, its calls of tools as JSON, the special token ``end``, and a newline."""
    return _PLAIN.replace("END", json.dumps(end, ensure_ascii=False))


class Chat:
    """A tokenizer.json and the chat template beside it. Raises ``LlmcurateError`` if the template
    is missing, or if it is wrong; then the error names its file and line."""

    def __init__(self, tokenizer: Path, otherwise: str | None = None) -> None:
        self.tokenizer = load_tokenizer(tokenizer)
        self.special = special_ids(self.tokenizer)
        names = sorted(self.special, key=len, reverse=True)
        self._own = re.compile(f"({'|'.join(map(re.escape, names))})" if names else "(?!)")
        config = tokenizer.parent / "tokenizer_config.json"
        stated = read_json(config) if config.is_file() else {}
        named = {name: stated[name] for name in TOKEN_NAMES.values() if stated.get(name)}
        self.names = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in named.items()
        }
        path = tokenizer.parent / FILE
        self.where = str(path) if path.is_file() else f"{config}: chat_template"
        text = read_text(path) if path.is_file() else stated.get("chat_template")
        self.own = text is not None
        text = text if self.own else otherwise
        if not isinstance(text, str):
            raise UsageError(f"{tokenizer.parent}: no chat template: put {FILE} there")
        self.sandbox = Sandbox()
        try:
            self.template = self.sandbox.template(text)
        except (TemplateError, RecursionError) as error:
            raise self._error(error) from None

    def _error(self, error: Exception) -> UsageError:
        line = f"line {error.lineno}: " if isinstance(error, TemplateSyntaxError) else ""
        return UsageError(f"{self.where}: {line}{' '.join(str(error).split())}")

    def _guard(self, value: Any) -> Any:
        """Return the value with TYPED in each special token that a text in it spells."""
        if isinstance(value, str):
            return self._own.sub(lambda m: m[0][0] + TYPED + m[0][1:], _plain(value))
        if isinstance(value, dict):
            return {self._guard(key): self._guard(held) for key, held in value.items()}
        return [self._guard(held) for held in value] if isinstance(value, list) else value

    def _render(self, messages: Sequence[Message], tools: Tools, *, prompt: bool) -> str:
        """Return the template's text for ``messages``, with marks. BEGIN and END enclose the
        template's generation blocks. TYPED stands within each special token that a message or tool
        spells, so that ``encode`` takes the spelling for plain text."""
        try:
            guarded = {"messages": self._guard(list(messages)), "tools": self._guard(tools)}
            given = {**self.names, **guarded, "add_generation_prompt": prompt}
            return self.sandbox.write(self.template, given)
        except Exception as error:  # whatever its code raises
            raise self._error(error) from None

    def encode(
        self, messages: Sequence[Message], tools: Tools = None, *, prompt: bool = False
    ) -> tuple[Ints, Flags]:
        """Return (ids [tokens], bool [tokens]: True for tokens that the assistant says). These
        tokens are in the template's generation blocks. If the template has no such blocks, they are
        the tokens that each assistant's message adds to the chat, without the beginning of an
        answer and without white space at the end. Special tokens spelled in messages are encoded as
        plain text. ``prompt``: add the beginning of an answer."""
        marked = self._render(messages, tools, prompt=prompt)
        edges = [len(_plain(marked[: m.start()])) for m in re.finditer(f"[{BEGIN}{END}]", marked)]
        if not edges and not prompt:
            edges = self._edges(messages, tools, marked)
        ids, offsets = self._ids(marked.replace(BEGIN, "").replace(END, ""))
        first, last = np.array(offsets, np.int64).reshape(-1, 2).T
        said = np.zeros(len(ids), np.bool_)
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            inside = np.flatnonzero((first < end) & (last > begin))
            if len(inside):
                said[inside[0] : inside[-1] + 1] = True
        return np.array(ids, np.int64), said

    def _edges(self, messages: Sequence[Message], tools: Tools, marked: str) -> list[int]:
        edges = []
        for number, message in enumerate(messages):
            if message["role"] == "assistant":
                before = self._render(messages[:number], tools, prompt=True)
                whole = self._render(messages[: number + 1], tools, prompt=False).rstrip()
                if not (marked.startswith(whole) and whole.startswith(before)):
                    raise UsageError(
                        f"{self.where}: the text of a message depends on later ones, so put"
                        " {% generation %} and {% endgeneration %} around what the assistant says"
                    )
                edges += [len(_plain(before)), len(_plain(whole))]
        return edges

    def _ids(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return a text's ids and their character offsets. If a message spells a special token, the
        text is first split at the special tokens that the template writes, and each part between
        these is encoded by itself, as plain text. If not, the text is encoded in one call."""
        if TYPED not in text:
            self.tokenizer.encode_special_tokens = False
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
            self.tokenizer.encode_special_tokens = True
            return encoded.ids, encoded.offsets
        ids, offsets, size = list[int](), list[tuple[int, int]](), 0
        for part in self._own.split(text):
            plain = part.replace(TYPED, "")
            encoded = self.tokenizer.encode(plain, add_special_tokens=False)
            own = part in self.special
            ids += [self.special[part]] if own else encoded.ids
            places = [(0, len(plain))] if own else encoded.offsets
            offsets += [(size + first, size + last) for first, last in places]
            size += len(plain)
        return ids, offsets

    @property
    def writes_calls(self) -> bool:
        """True if the template writes the assistant's calls of tools."""
        call = {"type": "function", "function": {"name": "find_it", "arguments": {}}}
        asked = {"role": "user", "content": "a"}
        made = {"role": "assistant", "content": "", "tool_calls": [call]}
        return "find_it" in self._render([asked, made], None, prompt=False)

    @property
    def ending(self) -> int | None:
        """The special token with which an answer ends, or None."""
        hello = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]
        ids, said = self.encode(hello)
        last = int(ids[said][-1]) if said.any() else None
        return last if last in self.special.values() else None
