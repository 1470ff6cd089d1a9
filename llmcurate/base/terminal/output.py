"""Lines, JSON and errors as they leave for a terminal: control characters are made visible.

Documents, file names, URLs and answers of servers are written by strangers. A terminal obeys escape
sequences in them, and marks of direction make a line read otherwise than it is written (Unicode
TR 36). So all that curate prints goes through here (tests/test_architecture.py).
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from typing import Any, TextIO

# Marks of direction can make a page read otherwise than it is written (Unicode TR 36).
DIRECTION = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_COLOURS = re.compile(r"(\x1b\[[0-9;]*m)")
# What JSON lets through and a terminal obeys: DEL, C1, marks of direction, halves of surrogates.
_JSON_RAW = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def _visible(char: str) -> str:
    code = ord(char)
    if char in "\n\t":
        return char
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures
    if code == 0x7F:
        return "\u2421"
    if 0xDC80 <= code < 0xDD00:  # a byte of a file's name that is no UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    if code in DIRECTION or code == 0xFEFF or unicodedata.category(char) in ("Cc", "Zl", "Zp"):
        return f"[U+{code:04X}]"
    return char


def visible(text: str) -> str:
    """The text with control characters, marks of direction and bytes that are no UTF-8 made
    visible. Line ends and tabs stay."""
    # Most texts hold none, which a whole-string test finds at once.
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def one_line(text: object) -> str:
    """The same on one line: line ends and tabs are a space."""
    return visible(re.sub(r"[\t\r\n]+", " ", str(text)))


def echo(text: object = "", colours: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Prints what a command answers, on stdout. colours: whether codes of colours in it are ours;
    whoever puts them in makes the text between them visible."""
    pieces = _COLOURS.split(str(text)) if colours else [str(text)]
    shown = "".join(p if n % 2 else visible(p) for n, p in enumerate(pieces))
    _write(sys.stdout, shown + end, flush)


def echo_json(value: Any, to: TextIO | None = None, default: Any = None) -> None:
    """Prints a value as one line of JSON, on stdout unless a stream is given."""
    line = json_line(json.dumps(value, ensure_ascii=False, default=default))
    _write(to or sys.stdout, line + "\n")


def answer(figures: Any, text: str, as_json: bool, quiet: bool = False) -> None:
    """Prints what a command found out: one line of JSON, else, unless it is quiet, the text."""
    if as_json:
        echo_json(figures)
    elif not quiet:
        echo(text)


def json_line(text: str) -> str:
    """JSON of the same value, whose characters a terminal obeys are escaped."""
    return _JSON_RAW.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def tell(text: object, end: str = "\n") -> None:
    """Prints lines for people on stderr; one line is `terminal.progress.say`'s."""
    _write(sys.stderr, visible(str(text)) + end, flush=True)


def _write(stream: TextIO, text: str, flush: bool = False) -> None:
    """Prints what is safe; what the stream's encoding lacks as Python writes it."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    print(text, end="", file=stream, flush=flush)
