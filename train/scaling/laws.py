"""Scaling laws: the loss by parameters and tokens, and the model that a budget is best spent on.

N: parameters, D: tokens of text, C: operations. Where a law is solved for a budget, C = 6ND: six
operations for each parameter and token, attention left out (Kaplan et al. 2020, section 2.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
PER_PAIR = 6.0  # operations for a parameter and a token
_MOST = 300.0  # of a logarithm: fits to few points have exponents near 0


@dataclass(frozen=True)
class Power:
    """The best N of a budget: exp(``log_factor``) x C^``exponent``. The best D is C / 6N."""

    log_factor: float
    exponent: float

    def optimum(self, flops: float) -> tuple[float, float]:
        """(N, D) at ``flops``."""
        parameters = exponential(self.log_factor + self.exponent * math.log(flops))
        return parameters, flops / PER_PAIR / parameters


def exponential(power: float) -> float:
    """e to it, within what a number holds."""
    return math.exp(min(max(power, -_MOST), _MOST))


@dataclass(frozen=True, kw_only=True)
class Chinchilla:
    """L(N, D) = e + a / N^alpha + b / D^beta: Hoffmann et al. 2022, equation 10. N counts all
    parameters.
    """

    e: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: Any, tokens: Any) -> Any:
        """Nats a token."""
        return self.e + self.a / parameters**self.alpha + self.b / tokens**self.beta

    @property
    def best(self) -> Power:
        """Of the least loss at 6ND = C: equation 4."""
        exponent = self.beta / (self.alpha + self.beta)
        return Power(self._log_g - exponent * math.log(PER_PAIR), exponent)

    @property
    def _log_g(self) -> float:
        ratio = math.log(self.alpha * self.a) - math.log(self.beta * self.b)
        return ratio / (self.alpha + self.beta)

    def parameters_for(self, tokens: Any) -> Any:
        """The N whose best D is ``tokens``."""
        ratio = self.beta / self.alpha
        return np.exp(np.clip(self._log_g * (1 + ratio) + ratio * np.log(tokens), -300, 300))


@dataclass(frozen=True, kw_only=True)
class Kaplan:
    """L(N, D) = ((nc / N)^(alpha_n / alpha_d) + dc / D)^alpha_d: Kaplan et al. 2020, equation 1.5.
    N is without embeddings.
    """

    nc: float
    dc: float
    alpha_n: float
    alpha_d: float

    def loss(self, parameters: Any, tokens: Any) -> Any:
        """Nats a token."""
        size = (self.nc / parameters) ** (self.alpha_n / self.alpha_d)
        return (size + self.dc / tokens) ** self.alpha_d

    @property
    def best(self) -> Power:
        """Of the least loss at 6ND = C: where dc / D is alpha_n / alpha_d of the other term."""
        ratio = self.alpha_n / self.alpha_d
        factor = math.log(ratio / PER_PAIR) + ratio * math.log(self.nc) - math.log(self.dc)
        return Power(factor / (1 + ratio), 1 / (1 + ratio))


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """What text that is read again is worth, and parameters beyond those that the distinct text
    calls for: Muennighoff et al. 2023, section 3.1. ``tokens``, ``parameters``: how many times of
    the distinct ones all repetitions together come to at most (their R_D* and R_N*).
    """

    tokens: float = 15.387756  # appendix A
    parameters: float = 5.309743

    def worth(self, amount: Any, unique: Any, most: float) -> Any:
        """U + U R* (1 - exp(-R / R*)), R = amount / U - 1; the amount where it is at most U."""
        unique = np.minimum(unique, amount)
        return unique * (1 + most * -np.expm1((1 - amount / unique) / most))

    def effective(
        self, law: Chinchilla, parameters: Any, tokens: Any, unique: Any
    ) -> tuple[Any, Any]:
        """(N', D') by which the law has the loss of N parameters on D tokens, ``unique`` of them
        distinct.
        """
        return (
            self.worth(parameters, law.parameters_for(unique), self.parameters),
            self.worth(tokens, unique, self.tokens),
        )

    def loss(self, law: Chinchilla, parameters: Any, tokens: Any, unique: Any) -> Any:
        """Nats a token. Of all tokens distinct it is the law's, for models up to the size that so
        much text calls for.
        """
        return law.loss(*self.effective(law, parameters, tokens, unique))

    def optimum(self, law: Chinchilla, flops: float, unique: float) -> tuple[float, float]:
        """(N, D) of the least loss at 6ND = ``flops``, of ``unique`` distinct tokens."""
        free = law.best.optimum(flops)
        if free[1] <= unique:
            return free
        # Fewer parameters than the law's own best are read for longer.
        sizes = free[0] * np.exp(np.linspace(-8, 8, 32_001))
        tokens = flops / PER_PAIR / sizes
        best = int(np.argmin(self.loss(law, sizes, tokens, unique)))
        return float(sizes[best]), float(tokens[best])


TOKENS_A_PARAMETER = 20.0  # Hoffmann et al. 2022, table 3, at about 10^21 operations


def rule_of_twenty(flops: float) -> tuple[float, float]:
    """(N, D) of 20 tokens a parameter."""
    parameters = math.sqrt(flops / PER_PAIR / TOKENS_A_PARAMETER)
    return parameters, TOKENS_A_PARAMETER * parameters


# Hoffmann et al. 2022, equation 10, as printed.
HOFFMANN = Chinchilla(e=1.69, a=406.4, b=410.7, alpha=0.34, beta=0.28)
# Besiroglu et al. 2024, table 1: the same points fitted again.
BESIROGLU = Chinchilla(e=1.8172, a=482.01, b=2085.43, alpha=0.3478, beta=0.3658)
# Muennighoff et al. 2023, appendix A: C4, both exponents alike.
MUENNIGHOFF = Chinchilla(
    e=math.exp(0.6254804),
    a=math.exp(6.255414),
    b=math.exp(7.3049974),
    alpha=0.3526596,
    beta=0.3526596,
)
# Kaplan et al. 2020, table 2.
KAPLAN = Kaplan(nc=6.4e13, dc=1.8e13, alpha_n=0.076, alpha_d=0.103)
