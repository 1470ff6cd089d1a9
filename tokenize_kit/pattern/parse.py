"""Parser for the regular expressions of pre-tokenisers.

Supported are the constructs of published patterns: literals, classes, properties, groups,
alternatives, repetition (greedy and possessive), (?i:...), and look-ahead by one code point. Any
other construct raises an error that names it, so a pattern is matched exactly or not at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tokenize_kit.pattern.categories import CODE_POINTS, folds, members

Dialect = Literal["oniguruma", "rust"]  # syntax of `tokenizers` and of tiktoken

MOST = 1000  # repetitions of a part
# X{1,n} followed by whole groups X{n} up to the end of the run of X: groups counted from the right.
_RIGHT_GROUPS = re.compile(
    r"(?P<set>\\[pP]\{\^?\w+\}|\\[dD])\{1,(?P<size>[1-9]\d{0,2})\}"
    r"\(\?=\(\?:(?P=set)\{(?P=size)\}\)\*\(\?!(?P=set)\)\)"
)
_ESCAPES = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0, "a": 7, "e": 27}


class UnsupportedPattern(ValueError):
    """Raised if a pattern cannot be compiled; the message names the construct and its position."""


@dataclass(frozen=True, eq=False)
class Chars:
    """A part that matches one code point of a set. members: bool[0x110000]."""

    members: np.ndarray


@dataclass(frozen=True, eq=False)
class Look:
    """A part that looks ahead: the next code point must be in the set, or not in it if `negative`.
    The end of the text is in no set."""

    members: np.ndarray
    negative: bool


@dataclass(frozen=True, eq=False)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Either:
    """Alternative parts; the first that matches wins."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """A part repeated `least` to `most` times (None: no limit). More repetitions are tried first.
    possessive: True if only the longest repetition of a set of characters (Chars) is tried."""

    part: Node
    least: int
    most: int | None
    possessive: bool


Node = Chars | Look | Sequence | Either | Repeat


def code_point_set(*code_points: int) -> np.ndarray:
    inside = np.zeros(CODE_POINTS, np.bool_)
    inside[list(code_points)] = True
    return inside


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.text, self.at, self.fold, self.dialect = pattern, 0, False, dialect

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def refuse(self, feature: str) -> UnsupportedPattern:
        return UnsupportedPattern(f"{feature} at character {self.at} of the pattern {self.text!r}")

    def either(self) -> Node:
        parts = [self.sequence()]
        while self.accept("|"):
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            parts.append(self.repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeated(self) -> Node:
        part = self.single()
        bounds = self.bounds()
        while bounds is not None:
            if isinstance(part, Look):
                raise self.refuse("a repeated look-ahead")
            if self.accept("?"):
                raise self.refuse("a lazy repetition")
            counted = self.text[self.at - 1] == "}"
            possessive = not (counted and self.dialect == "oniguruma") and self.accept("+")
            if possessive and not isinstance(part, Chars):
                raise self.refuse("a possessive repetition of more than one character")
            part = Repeat(part, *bounds, possessive)
            bounds = self.bounds()
            if possessive and bounds is not None:
                raise self.refuse("a repeated possessive repetition")
        return part

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, limits in (("?", (0, 1)), ("*", (0, None)), ("+", (1, None))):
            if self.accept(sign):
                return limits
        if not self.peek("{"):
            return None
        inner, closed, _ = self.text[self.at + 1 :].partition("}")
        low, comma, high = inner.partition(",")
        numbers = [low or "0", (high or "0") if comma else low]
        if not closed or not all(n.isascii() and n.isdigit() for n in numbers) or inner == ",":
            raise self.refuse("a brace that is not a repetition")
        self.at += len(inner) + 2
        least = int(numbers[0])
        most = None if comma and not high else int(numbers[1])
        if max(least, most or 0) > MOST or (most is not None and most < least):
            raise self.refuse(f"a repetition of more than {MOST}, or a maximum below the minimum")
        return least, most

    def single(self) -> Node:
        if self.accept("("):
            return self.group()
        if self.accept("["):
            return Chars(self.bracket())
        if self.peek("$") and self.dialect == "oniguruma":
            raise self.refuse("the end of a line")
        if self.accept("$"):
            return Look(np.ones(CODE_POINTS, np.bool_), True)
        if self.peek("^"):
            raise self.refuse("an anchor")
        if self.accept("."):
            return Chars(~code_point_set(10))
        if self.accept("\\"):
            return Chars(self.escape())
        if self.text[self.at] in "*+?{":
            raise self.refuse("a repetition of nothing")
        code_point = ord(self.text[self.at])
        self.at += 1
        return Chars(self.letter(code_point))

    def letter(self, code_point: int) -> np.ndarray:
        return code_point_set(*folds(code_point)) if self.fold else code_point_set(code_point)

    def group(self) -> Node:
        fold = self.fold
        if self.accept("?!") or self.peek("?="):
            negative = not self.accept("?=")
            part = self.either()
            self.close()
            if isinstance(part, Either) and all(isinstance(p, Chars) for p in part.parts):
                sets = [p.members for p in part.parts if isinstance(p, Chars)]
                part = Chars(np.logical_or.reduce(sets))
            if not isinstance(part, Chars):
                raise self.refuse("a look-ahead of more than one character")
            return Look(part.members, negative)
        if self.accept("?i:"):
            self.fold = True
        elif self.peek("?") and not self.accept("?:"):
            raise self.refuse("this kind of group")
        part = self.either()
        self.close()
        self.fold = fold
        return part

    def close(self) -> None:
        if not self.accept(")"):
            raise self.refuse("an unclosed parenthesis")

    def escape(self) -> np.ndarray:
        if self.at >= len(self.text):
            raise self.refuse("a backslash at the end of the pattern")
        sign = self.text[self.at]
        self.at += 1
        if sign in "pP":
            inner, closed, _ = self.text[self.at :].removeprefix("{").partition("}")
            if not self.peek("{") or not closed:
                raise self.refuse("a property without braces")
            self.at += len(inner) + 2
            try:
                inside = members(inner.removeprefix("^"))
            except KeyError:
                raise self.refuse(f"the property {inner!r}") from None
            return ~inside if (sign == "P") != inner.startswith("^") else inside
        if sign in "sS":
            return members("s") if sign == "s" else ~members("s")
        if sign in "dD":
            return members("Nd") if sign == "d" else ~members("Nd")
        if sign in "xu":
            return self.hexadecimal(sign)
        if sign in _ESCAPES:
            return code_point_set(_ESCAPES[sign])
        if sign.isalnum():
            raise self.refuse(f"the escape \\{sign}")
        return self.letter(ord(sign))

    def hexadecimal(self, sign: str) -> np.ndarray:
        if self.accept("{"):
            digits, _, _ = self.text[self.at :].partition("}")
            self.at += len(digits) + 1
        else:
            digits = self.text[self.at : self.at + (2 if sign == "x" else 4)]
            self.at += len(digits)
        try:
            return code_point_set(int(digits, 16))
        except (ValueError, IndexError):
            raise self.refuse("an invalid code point") from None

    def bracket(self) -> np.ndarray:
        negative = self.accept("^")
        inside = np.zeros(CODE_POINTS, np.bool_)
        first = True
        while first or not self.peek("]"):
            if self.at >= len(self.text):
                raise self.refuse("an unclosed bracket")
            if self.peek("[") or self.peek("&&"):
                raise self.refuse("a bracket within a bracket")
            first = False
            low = self.item()
            if self.peek("-") and not self.peek("-]"):
                self.at += 1
                high = self.item()
                a, z = np.flatnonzero(low), np.flatnonzero(high)
                if len(a) != 1 or len(z) != 1 or self.fold:
                    raise self.refuse("a range whose ends are not single characters")
                inside[a[0] : z[0] + 1] = True
            else:
                inside |= low
        self.at += 1
        return ~inside if negative else inside

    def item(self) -> np.ndarray:
        if self.accept("\\"):
            return self.escape()
        code_point = ord(self.text[self.at])
        self.at += 1
        return self.letter(code_point)


def parse(pattern: str, dialect: Dialect) -> Node:
    """Parse a pattern. Raises UnsupportedPattern, which names the construct and its position. The
    dialects differ in two points: `$` is the end of the text in Rust's regex and of a line in
    Oniguruma; `{1,3}+` is possessive in Rust's regex and a repeated repetition in Oniguruma."""
    parser = _Parser(pattern, dialect)
    tree = parser.either()
    if parser.at < len(pattern):
        raise parser.refuse("an unmatched closing parenthesis")
    return tree


def right_groups(pattern: str) -> tuple[str, int] | None:
    r"""Read a pattern X{1,n}(?=(?:X{n})*(?!X)), where X is a property or \d. It cuts runs of X into
    groups of n from the right. Return (X+, n), or None for other patterns. All other look-aheads
    are limited to one code point; this one must read to the end of the run."""
    match = _RIGHT_GROUPS.fullmatch(pattern)
    return (match["set"] + "+", int(match["size"])) if match else None
