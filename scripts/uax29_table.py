"""Writes the table in curate/text/uax29.py: Unicode's word break classes, from the package `regex`.

    python scripts/uax29_table.py

`regex` carries the Unicode character database of the version that its page on PyPI names. A new
table changes hashes, so raise `version` of the steps that use it and curate.text.uax29.UNICODE.
"""

from __future__ import annotations

import base64
import sys
import zlib
from importlib.metadata import metadata
from pathlib import Path

import regex

from curate.text.uax29 import CLASSES, PICTOGRAPH

WIDTH = 92
MODULE = Path(__file__).resolve().parents[1] / "curate" / "text" / "uax29.py"
BEGIN, END = "UNICODE = ", "# End of the table.\n"


def classes() -> list[int]:
    """The class of every code point, with PICTOGRAPH added."""
    text = [chr(c) for c in range(sys.maxunicode + 1)]
    numbers = [0] * len(text)
    for number, name in enumerate(CLASSES[1:], 1):
        has = regex.compile(rf"\p{{WB={name}}}").match
        for code, letter in enumerate(text):
            if has(letter):
                numbers[code] = number
    has = regex.compile(r"\p{Extended_Pictographic}").match
    return [k | PICTOGRAPH if has(letter) else k for k, letter in zip(numbers, text, strict=True)]


def number(value: int) -> bytes:
    """LEB128: seven bits a byte, low ones first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def main() -> None:
    description = metadata("regex").get_payload() or metadata("regex")["Description"]
    version = str(description).split("supports Unicode ")[1].split(". ")[0]
    out, before, at = b"", 0, 0
    for code, kind in enumerate(classes()):
        if kind != before:
            out += number(code - at) + bytes([kind])
            before, at = kind, code
    packed = base64.b85encode(zlib.compress(out, 9)).decode()
    lines = [f'    "{packed[i : i + WIDTH]}"\n' for i in range(0, len(packed), WIDTH)]
    table = f'{BEGIN}"{version}"\nRUNS = (\n{"".join(lines)})\n'
    before, rest = MODULE.read_text(encoding="utf-8").split(BEGIN, 1)
    MODULE.write_text(before + table + END + rest.split(END, 1)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
