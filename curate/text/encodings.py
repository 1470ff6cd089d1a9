"""The labels and decoders of the WHATWG Encoding Standard (https://encoding.spec.whatwg.org).

encodings.npz holds the standard's labels and characters (scripts/encoding_tables.py)."""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))
# Browsers read no UTF-32, but it is found in files of text and tables.
UTF_32 = ((b"\xff\xfe\0\0", "utf-32le"), (b"\0\0\xfe\xff", "utf-32be"))
UTF = ("utf-8", "utf-16le", "utf-16be", "utf-32le", "utf-32be")
# Tokens of an encoding: a run of ASCII, or the bytes of a character or of an error.
_EUC_JP = rb"[\0-\x7f]+|\x8f[\xa1-\xfe](?:.|\Z)|[\x8e\x8f\xa1-\xfe].|."
_TOKENS = {
    "big5": rb"[\0-\x7f]+|[\x81-\xfe].|.",
    "euc-jis-2004": _EUC_JP,
    "euc-jp": _EUC_JP,
    "euc-kr": rb"[\0-\x7f]+|[\x81-\xfe].|.",
    "gb18030": rb"[\0-\x7f]+|[\x81-\xfe](?:[^0-9]|[0-9](?:[\x81-\xfe](?:[0-9]|\Z)|\Z))|.",
    "shift_jis": rb"[\0-\x7f]+|[\x81-\x9f\xe0-\xfc].|.",
}
# Python's codecs, which are faster, and the characters that each gives for bytes that the standard
# decodes otherwise.
_CODECS = {
    "big5": ("big5hkscs", re.compile("[¢£¥•‾∼☉♁／＼､]")),
    "euc-jp": ("euc_jp", re.compile("[~¢£¬‖−〜]")),
    "euc-kr": ("cp949", re.compile("(?!)")),
    "gb18030": ("gb18030", re.compile("[\u1e3f\ue5e5\ue78d-\ue796\ue7c7\ue81e-\ue864]")),
    "shift_jis": ("cp932", re.compile("[\uf8f0-\uf8f3]")),
}
_PART = re.compile(rb"\x1b(\([BJI]|\$[@B])?|[^\x1b]+")
_PAIR = re.compile(rb"[\x21-\x7e].|.", re.S)


class Decoded(NamedTuple):
    """A text, its encoding (the standard's name in lower case), and the number of its U+FFFD that
    stand for invalid bytes."""

    text: str
    encoding: str
    replaced: int

    @property
    def losses(self) -> dict[str, int] | None:
        """Return {encoding: number of characters replaced}, or None if none was replaced."""
        return {self.encoding: self.replaced} if self.replaced else None


def encoding_of(label: str | None) -> str | None:
    """Return the encoding that a label means (the standard's name in lower case), or None."""
    return _labels().get(label.strip("\t\n\f\r ").lower()) if label else None


def decode_as(payload: bytes, encoding: str) -> Decoded:
    """Return the text of `payload` in `encoding`, which is the standard's name in lower case."""
    if encoding in UTF:
        try:
            return Decoded(payload.decode(encoding), encoding, 0)
        except UnicodeDecodeError:
            text, own = payload.decode(encoding, "replace"), payload.decode(encoding, "ignore")
            return Decoded(text, encoding, text.count("\ufffd") - own.count("\ufffd"))
    if encoding == "gbk":  # gb18030 decodes it in the same way
        return decode_as(payload, "gb18030")._replace(encoding="gbk")
    if encoding in _CODECS:
        codec, others = _CODECS[encoding]
        with suppress(UnicodeDecodeError):
            text = payload.decode(codec)
            if not others.search(text):
                return Decoded(text, encoding, 0)
    if encoding == "iso-2022-jp":
        text = "".join(_iso_2022_jp(payload))
    elif pattern := _TOKENS.get(encoding):
        tokens, characters = re.compile(pattern, re.S).findall, _characters(encoding)
        lines = payload.splitlines(keepends=True)  # line by line, to save memory
        text = "".join("".join(map(characters.__getitem__, tokens(line))) for line in lines)
    else:
        text = codecs.charmap_decode(payload, "replace", _charmap(encoding))[0]
    return Decoded(text, encoding, text.count("\ufffd"))


def _table(name: str) -> np.ndarray:
    import numpy as np

    with np.load(Path(__file__).with_name("encodings.npz")) as tables:
        table: np.ndarray = tables[name]
        return table


@cache
def _labels() -> dict[str, str]:
    lines = _table("labels").tobytes().decode("ascii").splitlines()
    return dict(line.split(" ") for line in lines)


@cache
def _charmap(encoding: str) -> str:
    characters = _characters(encoding)
    return "".join(
        characters.get(bytes([byte]), "\ufffe") for byte in range(256)
    )  # U+FFFE: no character


class _Characters(dict[bytes, str]):
    """The characters of an encoding by their bytes. Invalid bytes give U+FFFD; an ASCII character
    at the end of invalid bytes is kept, so that damage removes no markup. Characters of gb18030
    beyond the first plane are computed."""

    of_four_bytes = False

    def __missing__(self, token: bytes) -> str:
        if token.isascii():
            return token.decode("ascii")
        if not self.of_four_bytes or (not 0x30 <= token[-1] <= 0x39 and len(token) < 3):
            return "\ufffd" + (chr(token[-1]) if token[-1] < 0x80 else "")
        if len(token) < 4:
            return "\ufffd"  # the text ends within this character
        a, b, c, d = token
        pointer = ((a - 0x81) * 10 + b - 0x30) * 1260 + (c - 0x81) * 10 + d - 0x30
        return chr(0x10000 + pointer - 189000) if 189000 <= pointer <= 1237575 else "\ufffd"


@cache
def _characters(encoding: str) -> _Characters:
    steps = (_table(f"{encoding} {what}") for what in ("bytes", "characters"))
    keys, codes = (each.cumsum(dtype="int64").tolist() for each in steps)
    found = _Characters()
    found.of_four_bytes = encoding == "gb18030"
    for key, code in zip(keys, codes, strict=True):
        mark = chr(code >> 32) if code >> 32 else ""
        found[key.to_bytes((key.bit_length() + 7) // 8 or 1, "big")] = chr(code & 0xFFFFFFFF) + mark
    return found


def _iso_2022_jp(payload: bytes) -> Iterator[str]:
    chosen, escape = "(B", False
    for part in _PART.finditer(payload):
        if part[1]:  # two escapes in a row could hide text from a filter
            yield "\ufffd" if escape else ""
            chosen, escape = part[1].decode("ascii").replace("@", "B"), True
            continue
        escape = False
        if part[0] == b"\x1b":
            yield "\ufffd"
        elif chosen == "$B":
            yield from (_characters(chosen).get(p, "\ufffd") for p in _PAIR.findall(part[0]))
        else:
            yield codecs.charmap_decode(part[0], "replace", _charmap(chosen))[0]


_HUGE = re.compile(r"&#[0-9]{4000,};?")  # Python reads numbers of at most 4300 digits


def unescape(text: str) -> str:
    """Return `html.unescape` of a text, with U+FFFD for character references of 4000 or more
    digits, for which it may raise an error."""
    return html.unescape(_HUGE.sub("\ufffd", text))
