"""Compile a pattern to a table: from a state and the next code point's class, the table gives the
next state and whether there is a match.

Alternatives are tried in order, as in a backtracking engine; the longest match does not win. So a
state is the ordered list of positions in the pattern that are still alive (Pike's threads), and a
match drops all positions later in the list. The result of a look-ahead depends on the next code
point, so a state also keeps look-aheads and matches that are still undecided. The step for the next
code point decides whether the text before that code point matches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tokenize_kit.pattern.categories import CODE_POINTS
from tokenize_kit.pattern.named import PATTERNS, SCRIPT_BOUNDARIES, pattern_with, script_rows
from tokenize_kit.pattern.parse import (
    Chars,
    Dialect,
    Either,
    Look,
    Node,
    Repeat,
    Sequence,
    UnsupportedPattern,
    parse,
    right_groups,
)

MAX_POSITIONS = 20_000
MAX_STATES = 4_000
MAX_SETS = 60
_PAGE = 256
_MATCH, _CHARS, _LOOK, _SPLIT, _JUMP = range(5)


@dataclass(frozen=True)
class Table:
    """A pattern compiled to a state machine. steps: uint16[states, classes + 1]: 2 * next state,
    plus 1 if the text so far matches. State 0 is dead, state 1 is the first; the last column is for
    the end of the text. ascii: uint8[128], pages: uint8[0x1100], blocks: uint8[blocks, 256]:
    look-up tables for the class of a code point. group: if not 0, a match is split, from its end,
    into groups of this many code points."""

    pattern: str
    steps: np.ndarray
    ascii: np.ndarray
    pages: np.ndarray
    blocks: np.ndarray
    group: int = 0

    @property
    def kernel(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int]:
        """Return the tables for scan.py's kernels, in which a state is the offset of its row."""
        columns = self.steps.shape[1]
        flat = (self.steps >> 1).astype(np.uint32) * 2 * columns | self.steps & 1
        blocks = self.blocks.reshape(-1)
        return flat.reshape(-1), self.ascii, self.pages, blocks, columns, self.group


class _Program:
    """A pattern compiled to a list of instructions, each a tuple (kind, argument, argument). In
    this module, a position in the pattern is the index of an instruction in this list."""

    def __init__(self) -> None:
        self.positions: list[tuple[int, int, int]] = []
        self.sets: list[np.ndarray] = []
        self.numbers: dict[bytes, int] = {}  # of sets, by their bits

    def add(self, kind: int, a: int = 0, b: int = 0) -> int:
        if len(self.positions) >= MAX_POSITIONS:
            raise UnsupportedPattern(f"a pattern of more than {MAX_POSITIONS} positions")
        self.positions.append((kind, a, b))
        return len(self.positions) - 1

    def set(self, members: np.ndarray) -> int:
        for number, other in enumerate(self.sets):
            if other is members:  # repetitions use the same array
                return number
        number = self.numbers.setdefault(np.packbits(members).tobytes(), len(self.sets))
        if number >= MAX_SETS:
            raise UnsupportedPattern(f"a pattern of more than {MAX_SETS} sets of characters")
        if number == len(self.sets):
            self.sets.append(members)
        return number

    def emit(self, node: Node) -> None:
        if isinstance(node, Chars):
            self.add(_CHARS, self.set(node.members))
        elif isinstance(node, Look):
            self.add(_LOOK, self.set(node.members), node.negative)
        elif isinstance(node, Sequence):
            for part in node.parts:
                self.emit(part)
        elif isinstance(node, Either):
            self.either(node)
        else:
            self.repeat(node)

    def either(self, node: Either) -> None:
        ends = []
        for number, part in enumerate(node.parts):
            last = number == len(node.parts) - 1
            split = -1 if last else self.add(_SPLIT)
            self.emit(part)
            if not last:
                ends.append(self.add(_JUMP))
                self.positions[split] = (_SPLIT, split + 1, len(self.positions))
        for end in ends:
            self.positions[end] = (_JUMP, len(self.positions), 0)

    def repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self.emit(node.part)
        if node.most is None:
            split = self.add(_SPLIT)
            self.emit(node.part)
            self.add(_JUMP, split)
            self.positions[split] = (_SPLIT, split + 1, len(self.positions))
            self.guard(node)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self.add(_SPLIT))
            self.emit(node.part)
        over = self.add(_JUMP) if splits and node.possessive else -1
        for split in splits:
            self.positions[split] = (_SPLIT, split + 1, len(self.positions))
        self.guard(node)
        if over >= 0:
            self.positions[over] = (_JUMP, len(self.positions), 0)

    def guard(self, node: Repeat) -> None:
        if node.possessive and isinstance(node.part, Chars) and node.most != node.least:
            # A possessive repetition ends only if the next character is not in its set.
            self.add(_LOOK, self.set(node.part.members), True)


def _classes(sets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    # Work on the few thousand runs of code points with the same sets, not on a million code points.
    changes = [np.flatnonzero(members[1:] != members[:-1]) + 1 for members in sets]
    starts = np.unique(np.concatenate([[0], *changes]))
    signature = np.zeros(len(starts), np.uint64)
    for number, members in enumerate(sets):
        signature |= members[starts].astype(np.uint64) << np.uint64(number)
    kinds, numbers = np.unique(signature, return_inverse=True)
    if len(kinds) > 255:
        raise UnsupportedPattern("a pattern with more than 255 kinds of characters")
    bits = np.arange(len(sets), dtype=np.uint64)
    lengths = np.diff(starts, append=CODE_POINTS)
    classes = np.repeat(numbers.astype(np.uint8), lengths)
    return classes, (kinds[:, None] >> bits & np.uint64(1)).astype(np.bool_)


class _States:
    """The states of a pattern's table, numbered in the order in which they are found. A state is
    the ordered list of the positions in the pattern that matching has reached."""

    def __init__(self, program: _Program, kinds: np.ndarray) -> None:
        self.program, self.kinds = program, kinds
        self.numbers: dict[tuple[int, ...], int] = {(): 0}
        self.lists: list[tuple[int, ...]] = [()]

    def number(self, positions: tuple[int, ...]) -> int:
        if positions not in self.numbers:
            if len(self.lists) >= MAX_STATES:
                raise UnsupportedPattern(f"a pattern of more than {MAX_STATES} states")
            self.numbers[positions] = len(self.lists)
            self.lists.append(positions)
        return self.numbers[positions]

    def reach(self, position: int, positions: list[int], visited: set[int]) -> None:
        stack = [position]
        while stack:
            at = stack.pop()
            if at in visited:
                continue
            visited.add(at)
            kind, a, b = self.program.positions[at]
            if kind == _SPLIT:
                stack += [b, a]
            elif kind == _JUMP:
                stack.append(a)
            else:
                positions.append(at)

    def step(self, positions: tuple[int, ...], kind: int) -> tuple[bool, tuple[int, ...]]:
        """Return (matches, following) for a step from the state `positions`, the places in the
        pattern that matching has reached. matches: True if the text before the next code point
        matches; following: the state after that code point. kind: the code point's class, -1 for
        the end of the text."""
        waiting = list(reversed(positions))
        passed: set[int] = set()
        following: list[int] = []
        visited: set[int] = set()
        while waiting:
            at = waiting.pop()
            if at in passed:
                continue
            passed.add(at)
            kind_of_position, number, negative = self.program.positions[at]
            if kind_of_position == _MATCH:
                return True, tuple(following)
            inside = kind >= 0 and bool(self.kinds[kind, number])
            if kind_of_position == _CHARS and inside:
                self.reach(at + 1, following, visited)
            elif kind_of_position == _LOOK and inside != bool(negative):
                ahead: list[int] = []
                self.reach(at + 1, ahead, set())
                waiting += reversed(ahead)
        return False, tuple(following)


def _compile(pattern: str, dialect: Dialect) -> Table:
    program = _Program()
    program.emit(parse(pattern, dialect))
    program.add(_MATCH)
    numbers, kinds = _classes(program.sets)
    states = _States(program, kinds)
    first: list[int] = []
    states.reach(0, first, set())
    states.number(tuple(first))
    rows: list[list[int]] = []
    while len(rows) < len(states.lists):
        positions = states.lists[len(rows)]
        row = []
        for kind in [*range(len(kinds)), -1]:
            matches, following = states.step(positions, kind)
            row.append(2 * states.number(following) + matches)
        rows.append(row)
    if any(step & 1 for step in rows[1]):
        raise UnsupportedPattern("a pattern that matches the empty text")
    return _table(pattern, rows, numbers)


def _table(pattern: str, rows: list[list[int]], numbers: np.ndarray) -> Table:
    pages = [page.tobytes() for page in numbers.reshape(-1, _PAGE)]
    blocks = {page: number for number, page in enumerate(sorted(set(pages)))}
    if len(blocks) > 255:
        raise UnsupportedPattern("a pattern whose sets are too scattered")
    return Table(
        pattern,
        np.array(rows, np.uint16),
        numbers[:128].copy(),
        np.array([blocks[page] for page in pages], np.uint8),
        np.frombuffer(b"".join(blocks), np.uint8).reshape(-1, _PAGE).copy(),
    )


@lru_cache(maxsize=32)
def compile_pattern(pattern: str, dialect: Dialect = "oniguruma") -> Table:
    """Compile a pattern to a table. Raises UnsupportedPattern, which names the construct."""
    if pattern == SCRIPT_BOUNDARIES:
        return _table(pattern, *script_rows())
    groups = right_groups(pattern)
    if groups is None:
        return _compile(pattern, dialect)
    return replace(_compile(groups[0], dialect), pattern=pattern, group=groups[1])


@lru_cache
def _table_or_none(part: str) -> Table | None:
    try:
        return compile_pattern(part)
    except UnsupportedPattern:
        return None


def cut_alike(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Return True if two lists of patterns have equal tables, so that they cut every text alike.
    False may also mean that a pattern cannot be compiled."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if a != b:
            table, other_table = _table_or_none(a), _table_or_none(b)
            if table is None or other_table is None:
                return False
            tables = zip(table.kernel, other_table.kernel, strict=True)
            if not all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in tables):
                return False
    return True


def pattern_name(parts: tuple[str, ...]) -> str | None:
    """Return the name of the published pattern with these parts, else None. The syntax of the parts
    may be Oniguruma's or that of Rust's regex."""
    for name, pattern in PATTERNS.items():
        if parts == pattern.parts or cut_alike(parts, pattern_with(name, pattern.digits).parts):
            return name
    return None
