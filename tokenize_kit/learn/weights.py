"""Weights of documents by the values of a column, given or from a temperature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from llmcurate.base.errors import UsageError

GRAIN, MOST = 1000, 1000  # weights are whole thousandths, 1000 at most
OTHERS = "*"


@dataclass(frozen=True)
class Weights:
    """A weight for documents by the value of a column; others: for values that are not named."""

    column: str
    of: dict[str, Fraction]
    others: Fraction = Fraction(1)

    @property
    def scale(self) -> int:
        """The least number that makes all weights whole."""
        return math.lcm(*(w.denominator for w in (*self.of.values(), self.others)))

    def times(self, value: str) -> int:
        """The weight of a value, times `scale`."""
        return int(self.of.get(value, self.others) * self.scale)


def parse_weights(text: str) -> Weights:
    """`lang=th:3,en:0.5,*:1`; raises LlmcurateError (exit code 2) naming what cannot be read."""
    column, equals, rest = text.partition("=")
    if not column or not equals:
        raise UsageError(f"weights {text!r}: write column=value:weight,..., as lang=th:3,en:0.5")
    weights: dict[str, Fraction] = {}
    for part in rest.split(","):
        value, colon, number = part.rpartition(":")
        try:
            weight = Fraction(number)
        except (ValueError, ZeroDivisionError):
            colon = ""
        if not colon or not value or "/" in number:
            raise UsageError(f"weights: {part!r} is no value:weight, as in lang=th:3,en:0.5")
        if not 0 <= weight <= MOST or GRAIN % weight.denominator:
            raise UsageError(f"weights: {part!r}: give 0 to {MOST} with three decimals at most")
        if value in weights:
            raise UsageError(f"weights: {value!r} stands twice")
        weights[value] = weight
    others = weights.pop(OTHERS, Fraction(1))
    if not any((*weights.values(), others)):
        raise UsageError("weights: not all of them can be 0")
    return Weights(column, weights, others)


def tempered(column: str, sizes: dict[str, int], temperature: float) -> Weights:
    """Weights that give every value a share of (its bytes) ** (1 / temperature) (Arivazhagan et al.
    2019); 1 for the largest value, in whole thousandths, from 0.001 to 1000.

    sizes: bytes of each value.
    """
    largest = max(sizes.values(), default=0)
    weights = {}
    for value, size in sorted(sizes.items()):
        if size:
            # log first: a ratio to a high power is more than a float holds.
            power = (1 - 1 / temperature) * math.log(largest / size)
            weight = math.exp(min(power, math.log(MOST)))
            weights[value] = max(Fraction(round(weight * GRAIN), GRAIN), Fraction(1, GRAIN))
    return Weights(column, weights)
