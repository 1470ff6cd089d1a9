"""Write the labels and characters of the Encoding Standard (curate/text/encodings.npz).

python scripts/encoding_tables.py FOLDER            # a checkout of github.com/whatwg/encoding
python scripts/encoding_tables.py FOLDER --check    # exit status 1 where the file differs

`labels` has lines `label name`. Each encoding has two arrays, both as steps from the one before:
bytes, those of a character as a big-endian number, and characters, a code point, and a second one
times 2^32 where there are two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np

TABLES = Path(__file__).resolve().parents[1] / "curate" / "text" / "encodings.npz"
Table = dict[int, int]  # the code point by the bytes of a character


def index(path: Path) -> dict[int, int]:
    """Code points by pointer of an index file."""
    lines = path.read_text(encoding="utf-8").split("\n")  # comments hold other line ends
    pairs = [line.split()[:2] for line in lines if line.strip() and not line.startswith("#")]
    return {int(pointer): int(code, 16) for pointer, code in pairs}


def pairs(codes: dict[int, int], leads: Iterable[int], trails: Iterable[int]) -> Table:
    """The characters of an index by their two bytes, which are in the order of pointers."""
    both = enumerate(product(leads, trails))
    return {a << 8 | b: codes[pointer] for pointer, (a, b) in both if pointer in codes}


def gb18030(folder: Path) -> Table:
    """Characters of two bytes, and those of four of the first plane: others are counted off."""
    trails = [*range(0x40, 0x7F), *range(0x80, 0xFF)]
    table = pairs(index(folder / "index-gb18030.txt"), range(0x81, 0xFF), trails) | {0x80: 0x20AC}
    starts = sorted(index(folder / "index-gb18030-ranges.txt").items())
    ends = [*(pointer for pointer, _ in starts[1:-1]), 39420]
    for (first, code), end in zip(starts[:-1], ends, strict=True):
        for pointer in range(first, end):
            table[four_bytes(pointer)] = code + pointer - first
    return table | {four_bytes(7457): 0xE7C7}


def four_bytes(pointer: int) -> int:
    """The bytes of a pointer of gb18030."""
    a, b, c, d = pointer // 12600, pointer // 1260 % 10, pointer // 10 % 126, pointer % 10
    return (0x81 + a) << 24 | (0x30 + b) << 16 | (0x81 + c) << 8 | (0x30 + d)


def multi_byte(folder: Path) -> Iterator[tuple[str, Table]]:
    """The encodings of more than one byte."""
    jis0208, jis0212 = (index(folder / f"index-jis{n}.txt") for n in ("0208", "0212"))
    wide = range(0x81, 0xFF)
    yield "euc-kr", pairs(index(folder / "index-euc-kr.txt"), wide, range(0x41, 0xFF))
    yield "gb18030", gb18030(folder)
    trails = [*range(0x40, 0x7F), *range(0xA1, 0xFF)]
    # A letter and a mark: pointers 1133, 1135, 1164, 1166.
    marked = {0x8862: (0xCA, 0x304), 0x8864: (0xCA, 0x30C), 0x88A3: (0xEA, 0x304)}
    marked[0x88A5] = (0xEA, 0x30C)
    two = {pair: mark << 32 | letter for pair, (letter, mark) in marked.items()}
    yield "big5", pairs(index(folder / "index-big5.txt"), wide, trails) | two
    kana = {b: 0xFF61 - 0xA1 + b for b in range(0xA1, 0xE0)}
    trails = [*range(0x40, 0x7F), *range(0x80, 0xFD)]
    # Letters that users of Windows make themselves: pointers 8836 to 10715.
    own = {pointer: 0xE000 - 8836 + pointer for pointer in range(8836, 10716)}
    table = pairs(jis0208 | own, [*range(0x81, 0xA0), *range(0xE0, 0xFD)], trails)
    yield "shift_jis", table | kana | {0x80: 0x80}
    row = range(0xA1, 0xFF)
    third = {0x8F0000 | pair: code for pair, code in pairs(jis0212, row, row).items()}
    halves = {0x8E00 | b: code for b, code in kana.items()}
    euc_jp = pairs(jis0208, row, row) | third | halves
    yield "euc-jp", euc_jp
    yield "euc-jis-2004", euc_jis_2004() | euc_jp
    # The four sets of ISO-2022-JP, by the end of the escape that chooses them.
    ascii_set = {b: b for b in range(0x80) if b not in (0x0E, 0x0F, 0x1B)}
    yield "(B", ascii_set
    yield "(J", ascii_set | {0x5C: 0xA5, 0x7E: 0x203E}
    yield "(I", {b - 0x80: code for b, code in kana.items()}
    yield "$B", pairs(jis0208, range(0x21, 0x7F), range(0x21, 0x7F))


def euc_jis_2004() -> Table:
    """The characters of JIS X 0213:2004 in EUC, as Python has them; browsers know no new ones."""
    table: Table = {}
    row = range(0xA1, 0xFF)
    for lead, (a, b) in product((b"", b"\x8f"), product(row, row)):
        token = lead + bytes((a, b))
        with suppress(UnicodeDecodeError):
            code, *mark = map(ord, token.decode("euc_jis_2004"))
            table[int.from_bytes(token, "big")] = code | (mark[0] << 32 if mark else 0)
    return table


def tables(folder: Path) -> dict[str, np.ndarray]:
    """What the file holds, by name."""
    groups = json.loads((folder / "encodings.json").read_text(encoding="utf-8"))
    encodings = [encoding for group in groups for encoding in group["encodings"]]
    labels = sorted((label, e["name"].lower()) for e in encodings for label in e["labels"])
    lines = "\n".join(f"{label} {name}" for label, name in labels)
    found = dict(multi_byte(folder))
    single = next(g for g in groups if g["heading"] == "Legacy single-byte encodings")
    low = {b: b for b in range(0x80)}
    for name in (encoding["name"].lower() for encoding in single["encodings"]):
        codes = index(folder / f"index-{name.removesuffix('-i')}.txt")
        found[name] = low | {0x80 + pointer: code for pointer, code in codes.items()}
    found["x-user-defined"] = low | {b: 0xF780 - 0x80 + b for b in range(0x80, 0x100)}
    arrays = {"labels": np.frombuffer(lines.encode("ascii"), np.uint8)}
    for name, table in found.items():
        each = {"bytes": sorted(table), "characters": [table[b] for b in sorted(table)]}
        for what, numbers in each.items():
            steps = np.diff(np.array(numbers, np.int64), prepend=0)
            wide = np.abs(steps).max() >> 31
            arrays[f"{name} {what}"] = steps.astype(np.int64 if wide else np.int32)
    return arrays


def main() -> int:
    made = tables(Path(sys.argv[1]))
    if "--check" in sys.argv:
        with np.load(TABLES) as kept:
            same = set(kept.files) == set(made)
            return not (same and all(np.array_equal(kept[n], made[n]) for n in made))
    np.savez_compressed(TABLES, **made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
