"""Writes the tables of Unicode's text segmentation (UAX #29) from the package `regex`: word breaks
in curate/text/uax29.py, grapheme clusters in tokenize_kit/judge/graphemes.py.

    python scripts/uax29_table.py

`regex` carries the Unicode character database of the version that its page on PyPI names. A new
table of words changes hashes, so raise `version` of the steps that use it and
curate.text.uax29.UNICODE.
"""

from __future__ import annotations

import base64
import sys
import zlib
from importlib.metadata import metadata
from itertools import groupby
from pathlib import Path

import regex

from curate.text import uax29
from tokenize_kit.judge import graphemes

WIDTH = 92
ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "UNICODE = ", "# End of the table.\n"
LETTERS = [chr(code) for code in range(sys.maxunicode + 1)]
# Properties that are bits beside the class.
WORD_BITS = {r"\p{Extended_Pictographic}": uax29.PICTOGRAPH}
GRAPHEME_BITS = {
    r"\p{Extended_Pictographic}": graphemes.PICTOGRAPH,
    r"\p{InCB=Consonant}": graphemes.CONSONANT,
    r"\p{InCB=Linker}": graphemes.LINKER,
    r"[\p{M}\p{InSC=Vowel_Dependent}]": graphemes.DEPENDENT,
}


def classes(names: tuple[str, ...], prefix: str, bits: dict[str, int]) -> list[int]:
    """The class of every code point as a position in `names`, with the bits that it has."""
    numbers = [0] * len(LETTERS)
    patterns = {rf"\p{{{prefix}={name}}}": number for number, name in enumerate(names[1:], 1)}
    for pattern, value in (patterns | bits).items():
        has = regex.compile(pattern).match
        for code, letter in enumerate(LETTERS):
            if has(letter):
                numbers[code] |= value
    return numbers


def run(value: int, length: int) -> bytes:
    """As `by_code_point` reads them: the value, then the length, seven bits a byte, low first."""
    out = bytearray([value])
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length])


def write(module: Path, kinds: list[int]) -> None:
    """The table between BEGIN and END of a module."""
    description = metadata("regex").get_payload() or metadata("regex")["Description"]
    version = str(description).split("supports Unicode ")[1].split(". ")[0]
    out = b"".join(run(value, len(list(same))) for value, same in groupby(kinds))
    packed = base64.b85encode(zlib.compress(out, 9)).decode()
    lines = [f'    "{packed[i : i + WIDTH]}"\n' for i in range(0, len(packed), WIDTH)]
    table = f'{BEGIN}"{version}"\nRUNS = (\n{"".join(lines)})\n'
    begin, rest = module.read_text(encoding="utf-8").split(BEGIN, 1)
    module.write_text(begin + table + END + rest.split(END, 1)[1], encoding="utf-8")


def main() -> None:
    write(ROOT / "curate" / "text" / "uax29.py", classes(uax29.CLASSES, "WB", WORD_BITS))
    module = ROOT / "tokenize_kit" / "judge" / "graphemes.py"
    write(module, classes(graphemes.CLASSES, "GCB", GRAPHEME_BITS))


if __name__ == "__main__":
    main()
