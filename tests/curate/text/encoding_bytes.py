"""The bytes that decoders are compared on: all pairs, longer characters, and damage."""

from __future__ import annotations

import re
from collections.abc import Iterator

# What Chromium 150 does not read as the standard says is left out: pairs of Big5 that stand for a
# letter and a mark; in EUC-JP what follows a broken character of three bytes; in ISO-2022-JP a byte
# behind a broken escape.
WRONG_PAIRS = re.compile(rb"\x88[\x62\x64\xa3\xa5]|\x1b[$(]|\x8f[\xa1-\xfe]")
WRONG = re.compile(rb"\x8f[\xa1-\xfe][^\xa1-\xfe]|\x1b[$(][\x80-\xff\x1b]")


def numbers() -> Iterator[int]:
    """Pseudo-random numbers below 65,536, the same in JavaScript (encoding_bytes.js)."""
    x = 2024
    while True:
        x = (x * 1664525 + 1013904223) % (1 << 32)
        yield x >> 16


def whole() -> bytes:
    """Each byte, each pair, each pair and byte between ISO-2022-JP's escapes, EUC-JP's characters
    of three bytes and a share of gb18030's of four."""
    every = range(256)
    out = [bytes((a, 0x0A)) for a in every]
    pairs = [bytes((a, b)) for a in every for b in every]
    out += [
        pair + b"   \n\x1b$B" + pair + b"\x1b(B\n" for pair in pairs if not WRONG_PAIRS.match(pair)
    ]
    out += [b"\x1b(J%c\x1b(I%c\x1b(B\n\x1b(%c\n\x1b$%c\n" % (a, a, a, a) for a in range(0x1C, 0x80)]
    out += [bytes((0x8F, b, c, 0x20, 0x0A)) for b in range(0xA0, 256) for c in range(0xA1, 255)]
    p = 0
    while p < 1587600:
        out.append(
            bytes((0x81 + p // 12600, 0x30 + p // 1260 % 10, 0x81 + p // 10 % 126, 0x30 + p % 10))
        )
        p += 1 if p < 40000 or 188990 <= p < 189100 else 211
    return b"".join(out)


def damaged() -> list[bytes]:
    """5,000 strings of up to 12 bytes, half of them bytes that decoders look at."""
    one = numbers().__next__
    pool = b"\x1b$(BJI09<A~\x80\x81\x8e\x8f\x90"
    lengths = (1 + one() % 12 for _ in range(5000))
    all_of_them = [
        bytes(pool[one() % 16] if one() % 2 else one() % 256 for _ in range(n)) for n in lengths
    ]
    return [data for data in all_of_them if not WRONG.search(data)]
