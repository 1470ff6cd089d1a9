"""JSON objects: one per line, in an array, or one after the other over many lines.

Objects over many lines (from `json.dump` or `jq .`) are found by their brackets outside strings.
This takes one pass over the chunks, with at most one object in memory. A damaged object ends at the
first character that it cannot contain (a line end in a string, say), and the next object begins on
a line with the same indentation as the first line of the damaged one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from curate.formats.lines import BOM, Held, Line, ignore_damage
from curate.text.decoding import replaced_in

_TOKEN = re.compile(rb'"[^"\\\n\0]*(?:\\[^\n\0][^"\\\n\0]*)*"|["{}\[\]]')
_STRING = re.compile(rb'"[^"\\\n\0]*(?:\\[^\n\0][^"\\\n\0]*)*')
_LEADS = {ord("{"): b":", ord("["): b"[,"}
"""The bytes before an object within an object and within a list."""
_INDENT = 64  # most bytes between the beginning of a line and an object
QUOTE, BRACE = b'"{'
_DEEPEST = 1024  # nested brackets, as many as orjson reads
_ESCAPED = re.compile(rb"(?i)\\ufffd")
_SPACE = b" \t\r\n"
_BETWEEN = _SPACE + b",[]"


def parse(
    line: bytes, on_replaced: Callable[[int], object] = lambda characters: None
) -> dict[str, Any] | str:
    """Return the object on a line, or a text that says what is wrong with the line. `on_replaced`
    is called with the number of U+FFFD that replace invalid UTF-8, NULs and lone surrogates."""
    import orjson

    try:
        value = orjson.loads(line)
        if isinstance(value, dict) and any(
            type(v) is float and abs(v) >= 1 << 63 for v in value.values()
        ):
            value = json.loads(line)  # keeps the digits of a longer integer
    except orjson.JSONDecodeError:
        try:
            value = json.loads(line.decode("utf-8", "replace").replace("\x00", "\ufffd"))
            # Surrogate pairs become one character, lone surrogates U+FFFD.
            halves = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
            text = halves.decode("utf-16", "replace")
            value = json.loads(text)
            if replaced := replaced_in(text, line) - len(_ESCAPED.findall(line)):
                on_replaced(replaced)
        except (ValueError, RecursionError) as error:
            return f"not JSON: {str(error)[:100]}"
    return value if isinstance(value, dict) else f"not a JSON object but {type(value).__name__}"


def objects(
    chunks: Iterable[bytes], limit: int, on_corrupt: Callable[[int, str], object] = ignore_damage
) -> Iterator[Line]:
    """Yield the objects at the top level and in top-level lists, and all bytes between them."""
    piece, inside = Held(limit, on_corrupt), bytearray()  # open brackets
    indent = b""  # of the line where the object begins
    lost = False  # looking for the object after a damaged one
    opened = rest = b""  # an unfinished string (already added); bytes to scan again
    before = b""  # the end of the previous chunks
    for chunk in chunks:
        data, taken, at = opened + rest + chunk, len(opened), 0
        opened = rest = b""
        while True:
            if lost:
                found = _begins(indent).search(data, at)
                if found is None:
                    rest = data[max(taken, len(data) - _INDENT) :]
                    data = data[: len(data) - len(rest)]
                    break
                at, lost = found.end(), False
                piece.add(data[taken:at])
                yield from piece.flush()
                taken = at
                inside.clear()
            match = _TOKEN.search(data, at)
            if match is None:
                break
            start, at = match.span()
            token = data[start]
            if token == QUOTE:
                if not inside:  # no strings outside objects
                    at = start + 1
                elif at == start + 1:  # unfinished
                    until = _STRING.match(data, start).end()  # type: ignore[union-attr]
                    if data[until : until + 2] in (b"", b"\\"):
                        opened = b'"' + data[until:]
                        break
                    lost, at = True, until
                continue
            back = (before + data[max(0, start - _INDENT) : start])[-_INDENT:]
            if token == BRACE and not (inside and back.strip()[-1:] in _LEADS[inside[-1]]):
                piece.add(data[taken:start])
                yield from piece.flush() if inside else _between(piece.flush())
                taken, inside = start, bytearray(b"{")
                indent = back[back.rfind(b"\n") + 1 :]
            elif token in _LEADS:
                if inside:
                    inside.append(token)
                    lost = len(inside) > _DEEPEST
            elif inside:
                lost = inside.pop() != token - 2  # opening bracket + 2 in ASCII
                if not inside and not lost:
                    piece.add(data[taken:at])
                    yield from piece.flush()
                    taken = at
        piece.add(data[taken:])
        before = (before + data[-_INDENT:])[-_INDENT:]
    piece.add(rest)
    yield from piece.flush() if inside else _between(piece.flush())


def _between(pieces: Iterator[Line]) -> Iterator[Line]:
    for offset, data, size in pieces:
        if data is None or data.strip(_BETWEEN + BOM):
            yield offset, data, size


def _begins(indent: bytes) -> re.Pattern[bytes]:
    indent = re.escape(b"" if indent.strip() else indent)
    return re.compile(rb"(?:\n" + indent + rb"|\0|" + BOM + rb")(?=\{)")


def in_lines(head: bytes) -> bool:
    """Return True if a file that begins with `head` is read line by line: its first line is an
    object, or no object begins in `head`. Return False if it begins with a list of objects."""
    text = head.lstrip(_SPACE + BOM + b"\0")
    if re.match(rb"\[\s*(?:[{\]]|\Z)", text):
        return False
    line = text.partition(b"\n")[0].strip()
    if line == b"{" or not line.startswith(b"{") or isinstance(parse(line), dict):
        return line != b"{"
    _, first, _ = next(objects([text], len(text)))
    return not (first and isinstance(parse(first), dict))
