"""JSON objects: on a line, in an array, or one behind another over many lines.

`json.dump` of a list and `jq .` write such as are no lines. These are found by their brackets
outside strings, in one pass over chunks; no more than one object is held. Where the file is
damaged, an object ends at what cannot stand in it (a line's end or a NUL in a string, an object
where no value may begin), and the next one begins where a line is indented like its first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from curate.formats.lines import BOM, Held, Line, unheard
from curate.text.decoding import replaced_in

_TOKEN = re.compile(rb'"[^"\\\n\0]*(?:\\[^\n\0][^"\\\n\0]*)*"|["{}\[\]]')
_STRING = re.compile(rb'"[^"\\\n\0]*(?:\\[^\n\0][^"\\\n\0]*)*')
_LEADS = {ord("{"): b":", ord("["): b"[,"}
"""What stands before an object within an object and within a list."""
_INDENT = 64  # bytes at most that stand between a line's beginning and an object
QUOTE, BRACE = b'"{'
_DEEPEST = 1024  # brackets in brackets, as many as orjson reads
_ESCAPED = re.compile(rb"(?i)\\ufffd")
_SPACE = b" \t\r\n"
_BETWEEN = _SPACE + b",[]"


def parse(
    line: bytes, on_replaced: Callable[[int], object] = lambda characters: None
) -> dict[str, Any] | str:
    """The object on a line, or what is wrong with it. on_replaced: told how many U+FFFD stand in it
    for bytes that are no UTF-8, NULs and lone surrogates."""
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
            # Pairs of escapes join to one character, lone halves become U+FFFD.
            halves = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
            text = halves.decode("utf-16", "replace")
            value = json.loads(text)
            if replaced := replaced_in(text, line) - len(_ESCAPED.findall(line)):
                on_replaced(replaced)
        except (ValueError, RecursionError) as error:
            return f"not JSON: {str(error)[:100]}"
    return value if isinstance(value, dict) else f"not a JSON object but {type(value).__name__}"


def objects(
    chunks: Iterable[bytes], limit: int, on_corrupt: Callable[[int, str], object] = unheard
) -> Iterator[Line]:
    """The objects at the top level and in lists there, and pieces between them that are none.
    limit, on_corrupt: as of `Held`."""
    piece, inside = Held(limit, on_corrupt), bytearray()  # brackets that are open
    indent = b""  # of the line that an object begins
    lost = False  # whether the object behind a damaged one is looked for
    opened = rest = b""  # a string that goes on (its bytes are taken); bytes to be looked at again
    before = b""  # what ends the chunks before
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
                yield from piece.given()
                taken = at
                inside.clear()
            match = _TOKEN.search(data, at)
            if match is None:
                break
            start, at = match.span()
            token = data[start]
            if token == QUOTE:
                if not inside:  # where objects are looked for, no string hides them
                    at = start + 1
                elif at == start + 1:  # no end in sight
                    until = _STRING.match(data, start).end()  # type: ignore[union-attr]
                    if data[until : until + 2] in (b"", b"\\"):
                        opened = b'"' + data[until:]
                        break
                    lost, at = True, until
                continue
            back = (before + data[max(0, start - _INDENT) : start])[-_INDENT:]
            if token == BRACE and not (inside and back.strip()[-1:] in _LEADS[inside[-1]]):
                piece.add(data[taken:start])
                yield from piece.given() if inside else _between(piece.given())
                taken, inside = start, bytearray(b"{")
                indent = back[back.rfind(b"\n") + 1 :]
            elif token in _LEADS:
                if inside:
                    inside.append(token)
                    lost = len(inside) > _DEEPEST
            elif inside:
                lost = inside.pop() != token - 2  # as ASCII has brackets
                if not inside and not lost:
                    piece.add(data[taken:at])
                    yield from piece.given()
                    taken = at
        piece.add(data[taken:])
        before = (before + data[-_INDENT:])[-_INDENT:]
    piece.add(rest)
    yield from piece.given() if inside else _between(piece.given())


def _between(pieces: Iterator[Line]) -> Iterator[Line]:
    """What stands between objects, where it is more than what separates them."""
    for offset, data, size in pieces:
        if data is None or data.strip(_BETWEEN + BOM):
            yield offset, data, size


def _begins(indent: bytes) -> re.Pattern[bytes]:
    indent = re.escape(b"" if indent.strip() else indent)
    return re.compile(rb"(?:\n" + indent + rb"|\0|" + BOM + rb")(?=\{)")


def in_lines(head: bytes) -> bool:
    """Whether a file that begins so holds its objects in lines: its first line is one, or what
    begins there is none at all. A list of objects is no line."""
    text = head.lstrip(_SPACE + BOM + b"\0")
    if re.match(rb"\[\s*(?:[{\]]|\Z)", text):
        return False
    line = text.partition(b"\n")[0].strip()
    if line == b"{" or not line.startswith(b"{") or isinstance(parse(line), dict):
        return line != b"{"
    _, first, _ = next(objects([text], len(text)))
    return not (first and isinstance(parse(first), dict))
