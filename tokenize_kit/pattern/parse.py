"""The regular expressions of pre-tokenisers, as a tree.

What published patterns use: literals, classes, properties, groups, alternatives, repetition
(greedy and possessive), (?i:...), and one code point of look-ahead. Everything else is refused by
name, so that a pattern is either matched exactly or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tokenize_kit.pattern.categories import CODE_POINTS, folds, members

Dialect = Literal["oniguruma", "rust"]  # of `tokenizers`, of tiktoken

MOST = 1000  # copies of a repeated part
# X{1,n} ahead of whole groups X{n} up to the end of the run of X: groups counted from the right.
_RIGHT_GROUPS = re.compile(
    r"(?P<set>\\[pP]\{\^?\w+\}|\\[dD])\{1,(?P<size>[1-9]\d{0,2})\}"
    r"\(\?=\(\?:(?P=set)\{(?P=size)\}\)\*\(\?!(?P=set)\)\)"
)
_ESCAPES = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0, "a": 7, "e": 27}


class UnsupportedPattern(ValueError):
    """A pattern that this compiler does not take, with what it does not take."""


@dataclass(frozen=True, eq=False)
class Chars:
    """One code point of a set: bool[0x110000]."""

    members: np.ndarray


@dataclass(frozen=True, eq=False)
class Look:
    """The next code point is, or with `negative` is not, in the set; the end of text is in none."""

    members: np.ndarray
    negative: bool


@dataclass(frozen=True, eq=False)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Either:
    """Alternatives; an earlier one wins."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """`least` to `most` copies (None: any number), as many as possible first.

    `possessive`: and never fewer; the part is then a Chars.
    """

    part: Node
    least: int
    most: int | None
    possessive: bool


Node = Chars | Look | Sequence | Either | Repeat


def code_point_set(*code_points: int) -> np.ndarray:
    """bool[0x110000] with these set."""
    inside = np.zeros(CODE_POINTS, np.bool_)
    inside[list(code_points)] = True
    return inside


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.text, self.at, self.fold, self.dialect = pattern, 0, False, dialect

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def refuse(self, feature: str) -> UnsupportedPattern:
        return UnsupportedPattern(f"{feature} at character {self.at} of the pattern {self.text!r}")

    def either(self) -> Node:
        parts = [self.sequence()]
        while self.take("|"):
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
            if self.take("?"):
                raise self.refuse("a lazy repetition")
            counted = self.text[self.at - 1] == "}"
            possessive = not (counted and self.dialect == "oniguruma") and self.take("+")
            if possessive and not isinstance(part, Chars):
                raise self.refuse("a possessive repetition of more than one character")
            part = Repeat(part, *bounds, possessive)
            bounds = self.bounds()
            if possessive and bounds is not None:
                raise self.refuse("a repeated possessive repetition")
        return part

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, limits in (("?", (0, 1)), ("*", (0, None)), ("+", (1, None))):
            if self.take(sign):
                return limits
        if not self.peek("{"):
            return None
        inner, closed, _ = self.text[self.at + 1 :].partition("}")
        low, comma, high = inner.partition(",")
        numbers = [low or "0", (high or "0") if comma else low]
        if not closed or not all(n.isascii() and n.isdigit() for n in numbers) or inner == ",":
            raise self.refuse("a brace that is no repetition")
        self.at += len(inner) + 2
        least = int(numbers[0])
        most = None if comma and not high else int(numbers[1])
        if max(least, most or 0) > MOST or (most is not None and most < least):
            raise self.refuse(f"a repetition of more than {MOST} or of fewer than it asks")
        return least, most

    def single(self) -> Node:
        if self.take("("):
            return self.group()
        if self.take("["):
            return Chars(self.bracket())
        if self.peek("$") and self.dialect == "oniguruma":
            raise self.refuse("the end of a line")
        if self.take("$"):
            return Look(np.ones(CODE_POINTS, np.bool_), True)
        if self.peek("^"):
            raise self.refuse("an anchor")
        if self.take("."):
            return Chars(~code_point_set(10))
        if self.take("\\"):
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
        if self.take("?!") or self.peek("?="):
            negative = not self.take("?=")
            part = self.either()
            self.close()
            if isinstance(part, Either) and all(isinstance(p, Chars) for p in part.parts):
                sets = [p.members for p in part.parts if isinstance(p, Chars)]
                part = Chars(np.logical_or.reduce(sets))
            if not isinstance(part, Chars):
                raise self.refuse("a look-ahead of more than one character")
            return Look(part.members, negative)
        if self.take("?i:"):
            self.fold = True
        elif self.peek("?") and not self.take("?:"):
            raise self.refuse("a group of a kind not known here")
        part = self.either()
        self.close()
        self.fold = fold
        return part

    def close(self) -> None:
        if not self.take(")"):
            raise self.refuse("a parenthesis that is not closed")

    def escape(self) -> np.ndarray:
        if self.at >= len(self.text):
            raise self.refuse("a backslash with nothing behind it")
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
        if self.take("{"):
            digits, _, _ = self.text[self.at :].partition("}")
            self.at += len(digits) + 1
        else:
            digits = self.text[self.at : self.at + (2 if sign == "x" else 4)]
            self.at += len(digits)
        try:
            return code_point_set(int(digits, 16))
        except (ValueError, IndexError):
            raise self.refuse("a code point that is none") from None

    def bracket(self) -> np.ndarray:
        negative = self.take("^")
        inside = np.zeros(CODE_POINTS, np.bool_)
        first = True
        while first or not self.peek("]"):
            if self.at >= len(self.text):
                raise self.refuse("a bracket that is not closed")
            if self.peek("[") or self.peek("&&"):
                raise self.refuse("a bracket within a bracket")
            first = False
            low = self.item()
            if self.peek("-") and not self.peek("-]"):
                self.at += 1
                high = self.item()
                a, z = np.flatnonzero(low), np.flatnonzero(high)
                if len(a) != 1 or len(z) != 1 or self.fold:
                    raise self.refuse("a range between what are no characters")
                inside[a[0] : z[0] + 1] = True
            else:
                inside |= low
        self.at += 1
        return ~inside if negative else inside

    def item(self) -> np.ndarray:
        if self.take("\\"):
            return self.escape()
        code_point = ord(self.text[self.at])
        self.at += 1
        return self.letter(code_point)


def parse(pattern: str, dialect: Dialect) -> Node:
    """The tree of a pattern; raises UnsupportedPattern saying what is not supported, and where.

    Two things read differently: `$` is the end of the text in Rust's regex and of a line in
    Oniguruma; `{1,3}+` is possessive in the one and a repeated repetition in the other.
    """
    parser = _Parser(pattern, dialect)
    tree = parser.either()
    if parser.at < len(pattern):
        raise parser.refuse("a parenthesis that was not opened")
    return tree


def right_groups(pattern: str) -> tuple[str, int] | None:
    """(pattern of the runs, code points of a group) where the whole pattern is of the form
    X{1,n}(?=(?:X{n})*(?!X)), X a property or \\d: runs of X in groups of n from the right.

    The one look-ahead without bound that is taken: what it matches is known from a run's length.
    """
    match = _RIGHT_GROUPS.fullmatch(pattern)
    return (match["set"] + "+", int(match["size"])) if match else None
