"""Seeded damage for fuzz tests, and the outcomes that are allowed.

The property: the right result or an error of one line; no crash, no hang, no traceback, no more
memory than a file of that size may take. `make fuzz` runs these tests with many examples and with
kernels that check every access to an array.
"""

from __future__ import annotations

import copy
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.kernels import compile_time

Result = TypeVar("Result")
ONE_LINE = (LlmcurateError, LlmcurateError, LlmcurateError)
MOST_BYTES, MOST_SECONDS = 400 << 20, 20.0  # of an example, whose files have some kilobytes
# A seed does not shrink: what it damages has nothing to do with its size.
FUZZ = settings(
    deadline=None, max_examples=20, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
SEEDS = st.integers(0, 2**48)
_WORDS = [bytes.fromhex(h) for h in ("00", "ff", "7f", "80", "01", "fe", "0a", "1b", "22", "c0af")]
_NUMBERS = [0, 1, -1, -2, 127, 255, 32767, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1]
_NUMBERS += [-(2**63), -2_000_000_000, 2**40]
_TEXTS = [b"0", b"-1", b"99999999999", b"18446744073709551616", b"1e309", b"NaN", b"9" * 5000, b""]
ODD: list[Any] = [
    None, True, False, "", "x", "../../victim", "/etc/passwd", "\x1b[31m", "\x00", "\ud800", {}, [],
    [[]], {"": None}, *_NUMBERS, 10**40, 0.5, float("nan"), float("inf"), "9" * 400, [None] * 3,
]  # fmt: skip


def _place(draw: random.Random, size: int) -> int:
    """Of a byte: most formats keep their sizes and offsets at the beginning or the end."""
    if size > 600 and draw.random() < 0.6:
        return draw.choice((draw.randrange(300), size - 1 - draw.randrange(300)))
    return draw.randrange(max(size, 1))


def _range(draw: random.Random, size: int) -> tuple[int, int]:
    a = _place(draw, size)
    return a, min(size, a + draw.choice((1, 2, 4, 8, 64, 500, max(1, size // 2))))


def _once(data: bytearray, draw: random.Random) -> bytearray:
    size = len(data)
    a, z = _range(draw, size)
    b, y = _range(draw, size)
    kind = draw.randrange(9)
    if not size:
        return bytearray(draw.choice(_TEXTS))
    if kind == 0:
        data[a] ^= 1 << draw.randrange(8)
    elif kind == 1:
        data[a:z] = draw.choice(_WORDS) * draw.choice((1, z - a))
    elif kind == 2:
        del data[draw.choice((a, size - 1, size // 2)) :]
    elif kind == 3:
        del data[a:z]
    elif kind == 4:
        data[a:a] = data[b:y] * draw.choice((1, 1, 3))
    elif kind == 5:
        data[a : a + y - b] = data[b:y]
    elif kind == 6:
        width = draw.choice((1, 2, 4, 8))
        number = draw.choice((*_NUMBERS, size - 1, size, size + 1))
        number &= (1 << 8 * width) - 1
        data[a : a + width] = number.to_bytes(width, draw.choice(("little", "little", "big")))
    elif kind == 7:
        if places := [m.span() for m in re.finditer(rb"-?\d+", data)]:
            a, z = draw.choice(places)
            data[a:z] = draw.choice(_TEXTS)
    else:
        one, other = bytes(data[a:z]), bytes(data[b:y])
        data[a:z], data[b : b + len(one)] = other, one
    return data


def damaged(data: bytes, seed: int) -> bytes:
    """The bytes with one to four things wrong: bits, cuts, repeats, numbers, parts swapped."""
    draw = random.Random(seed)
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        changed = _once(changed, draw)
    return bytes(changed)


def damaged_tree(tree: Any, seed: int) -> Any:
    """JSON values with one to three of them replaced, left out, renamed, repeated or swapped."""
    draw, changed = random.Random(seed), [copy.deepcopy(tree)]
    for _ in range(draw.choice((1, 1, 2, 3))):
        places: list[tuple[Any, Any]] = []
        waiting: list[Any] = [changed]
        while waiting:
            part = waiting.pop()
            inner = list(part.items() if isinstance(part, dict) else enumerate(part))
            places += [(part, key) for key, _ in inner]
            waiting += [value for _, value in inner if isinstance(value, (dict, list))]
        part, key = draw.choice(places[1:] or places)
        other, place = draw.choice(places)
        kind = draw.randrange(6)
        if kind <= 2:
            part[key] = copy.deepcopy(draw.choice(ODD))
        elif kind == 3:
            del part[key]
        elif kind == 4 and isinstance(part, dict):
            part[draw.choice(("x", f"{key} ", str(key)[1:], ""))] = part.pop(key)
        elif kind == 4:
            part[key:key] = [copy.deepcopy(part[key])] * draw.choice((1, 300))
        else:
            part[key] = copy.deepcopy(other[place])
        if not changed:
            return None
    return changed[0]


def _memory(key: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM the most; 0 where the system does not say."""
    with suppress(OSError):
        found = re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())
        return int(found[1]) << 10 if found else 0
    return 0


def outcome(call: Callable[[], Result], most: int = MOST_BYTES) -> Result | Exception:
    """What the call returns, or its error, which has one line. AssertionError for an error of
    another kind, and for time or memory without measure."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began = _memory("VmRSS"), time.process_time() - compile_time.seconds
    result: Result | Exception
    try:
        result = call()
    except ONE_LINE as error:
        assert_one_line(str(error))
        result = error
    except OSError as error:  # the command line names the file and what is wrong with it
        if not (error.filename and error.strerror):
            raise
        result = error
    assert time.process_time() - compile_time.seconds - began < MOST_SECONDS
    assert _memory("VmHWM") - before < most, f"{(_memory('VmHWM') - before) >> 20} MiB"
    return result


def assert_one_line(message: str) -> None:
    """A message that a person reads: one line, not a page long, and no traceback."""
    assert message.strip() and "\n" not in message.strip() and "Traceback" not in message
    assert len(message) < 3000, message


def contents(folder: Path) -> dict[str, bytes | None]:
    """All that lies below a folder, which no call is to touch."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
