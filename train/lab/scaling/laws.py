"""Scaling laws: the loss as a function of parameters and tokens, and the best model for a budget.

N is the number of parameters, D the number of tokens of text, and C the budget in operations. C =
6ND: six operations per parameter and token, without attention (Kaplan et al. 2020, section 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from train.measure.accounting import TOKENS_PER_PARAMETER

Floats = npt.NDArray[np.float64]
PER_PAIR = 6.0  # operations per parameter and token
_MOST = 300.0  # largest logarithm; exponents near 0, fitted to few points, give huge values


@dataclass(frozen=True)
class Power:
    """A power law for the best model at a budget of C operations: its number of parameters N is
    exp(``log_factor``) x C^``exponent``, its number of tokens D is C / 6N."""

    log_factor: float
    exponent: float

    def optimum(self, flops: float) -> tuple[float, float]:
        """Return the best (N, D) for a budget ``flops``."""
        parameters = exponential(self.log_factor + self.exponent * math.log(flops))
        return parameters, flops / PER_PAIR / parameters


def exponential(power: float) -> float:
    """Return e^``power``, or the nearest finite float."""
    return math.exp(min(max(power, -_MOST), _MOST))


DELTA = 1e-3  # Hoffmann et al. 2022, appendix D.3
STARTS = 8  # best initial values, from which a fit descends
# Of exponents and of alpha_n / alpha_d. A fit ends at a limit if the points do not determine it.
LIMITS = (1e-3, 2.0)
EXPONENTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5)


def _soft(terms: Sequence[Floats]) -> tuple[Floats, Floats]:
    stacked = np.stack(np.broadcast_arrays(*terms))
    most = stacked.max(axis=0)
    parts = np.exp(stacked - most)
    total = parts.sum(axis=0)
    return most + np.log(total), parts / total


def _factors(columns: Sequence[Floats], target: Floats) -> Floats:
    from scipy.optimize import nnls

    matrix = np.stack(columns, axis=1) / target[:, None]
    return np.maximum(nnls(matrix, np.ones(len(target)))[0], 1e-6 * target.min())


@dataclass(frozen=True, kw_only=True)
class Chinchilla:
    """L(N, D) = e + a / N^alpha + b / D^beta (Hoffmann et al. 2022, eq. 10), N with embeddings.

    A fit varies a vector of ``count`` constants: the logarithms of the three terms where ``x`` =
    ``y`` = 0, then alpha and beta. ``x`` and ``y`` are log N and log D minus their means, so that
    the best value of each constant depends less on the others."""

    count: ClassVar[int] = 5
    e: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: Any, tokens: Any) -> Any:
        """Return the loss in nats per token."""
        return self.e + self.a / parameters**self.alpha + self.b / tokens**self.beta

    @property
    def best(self) -> Power:
        """The N that has the least loss for a budget 6ND = C (equation 4)."""
        exponent = self.beta / (self.alpha + self.beta)
        return Power(self._log_g - exponent * math.log(PER_PAIR), exponent)

    @property
    def _log_g(self) -> float:
        ratio = math.log(self.alpha * self.a) - math.log(self.beta * self.b)
        return ratio / (self.alpha + self.beta)

    def parameters_for(self, tokens: Any) -> Any:
        """Return the number of parameters N for which ``tokens`` is the best D."""
        ratio = self.beta / self.alpha
        return np.exp(np.clip(self._log_g * (1 + ratio) + ratio * np.log(tokens), -300, 300))

    @staticmethod
    def starts(x: Floats, y: Floats, loss: Floats) -> list[Floats]:
        """Return vectors of constants from which a fit to points can begin."""
        constants = []
        for alpha in EXPONENTS:
            for beta in EXPONENTS:
                columns = (np.ones_like(x), np.exp(-alpha * x), np.exp(-beta * y))
                constants.append(np.array([*np.log(_factors(columns, loss)), alpha, beta]))
        return constants

    @staticmethod
    def log_loss(constants: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return log L [points] and its derivatives [constants, points]."""
        e, a, b, alpha, beta = constants
        total, share = _soft((e, a - alpha * x, b - beta * y))
        return total, np.stack([*share, -share[1] * x, -share[2] * y])

    @classmethod
    def of(cls, constants: Floats, x: float, y: float) -> Chinchilla:
        """Return the law. ``x`` and ``y``: the means subtracted from log N and log D."""
        e, a, b, alpha, beta = map(float, constants)
        factors = exponential(a + alpha * x), exponential(b + beta * y)
        return cls(e=exponential(e), a=factors[0], b=factors[1], alpha=alpha, beta=beta)


@dataclass(frozen=True, kw_only=True)
class Kaplan:
    """L(N, D) = ((nc / N)^(alpha_n / alpha_d) + dc / D)^alpha_d: Kaplan et al. 2020, equation 1.5.
    N does not include embeddings. The constants of a fit (see ``Chinchilla``): the logarithms of
    (nc / N)^(alpha_n / alpha_d) and of dc / D, then alpha_n / alpha_d, then alpha_d."""

    count: ClassVar[int] = 4
    nc: float
    dc: float
    alpha_n: float
    alpha_d: float

    def loss(self, parameters: Any, tokens: Any) -> Any:
        """Return the loss in nats per token."""
        size = (self.nc / parameters) ** (self.alpha_n / self.alpha_d)
        return (size + self.dc / tokens) ** self.alpha_d

    @property
    def best(self) -> Power:
        """The N with the least loss by this law for a budget C = 6ND of operations. At this N, with
        the constants of the law, dc / D = (alpha_n / alpha_d) x (nc / N)^(alpha_n / alpha_d)."""
        ratio = self.alpha_n / self.alpha_d
        factor = math.log(ratio / PER_PAIR) + ratio * math.log(self.nc) - math.log(self.dc)
        return Power(factor / (1 + ratio), 1 / (1 + ratio))

    @staticmethod
    def starts(x: Floats, y: Floats, loss: Floats) -> list[Floats]:
        constants = []
        for ratio in (0.3, 0.5, 0.7, 1.0, 1.4):
            for alpha in EXPONENTS:
                columns = (np.exp(-ratio * x), np.exp(-y))
                factors = _factors(columns, loss ** (1 / alpha))
                constants.append(np.array([*np.log(factors), ratio, alpha]))
        return constants

    @staticmethod
    def log_loss(constants: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        size, text, ratio, alpha = constants
        total, share = _soft((size - ratio * x, text - y))
        return alpha * total, np.stack([*(alpha * share), -alpha * share[0] * x, total])

    @classmethod
    def of(cls, constants: Floats, x: float, y: float) -> Kaplan:
        size, text, ratio, alpha = map(float, constants)
        factors = exponential(size / ratio + x), exponential(text + y)
        return cls(nc=factors[0], dc=factors[1], alpha_n=ratio * alpha, alpha_d=alpha)


Law = type[Chinchilla] | type[Kaplan]


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """The value of repeated text and of excess parameters (Muennighoff et al. 2023, section 3.1).
    However often text is repeated, the repetitions are worth at most R_D* (``tokens``) times the
    distinct text. Chinchilla's law gives a best number of parameters for the distinct text.
    Parameters beyond this number are worth at most R_N* (``parameters``) times this number."""

    tokens: float = 15.387756  # appendix A
    parameters: float = 5.309743

    def worth(self, amount: Any, unique: Any, most: float) -> Any:
        """Return how many distinct tokens are worth the same as ``amount`` tokens with U =
        ``unique`` distinct ones: U + U * R* * (1 - exp(-R / R*)), where R = amount / U - 1 and R* =
        ``most``. The formula is the same if ``amount`` is a number of parameters; U is then the
        best number of parameters for the distinct tokens."""
        unique = np.minimum(unique, amount)
        return unique * (1 + most * -np.expm1((1 - amount / unique) / most))

    def effective(
        self, law: Chinchilla, parameters: Any, tokens: Any, unique: Any
    ) -> tuple[Any, Any]:
        """Return (N', D'), the numbers to put into ``law`` instead of N = ``parameters`` and
        D = ``tokens``, because only ``unique`` tokens are distinct."""
        return (
            self.worth(parameters, law.parameters_for(unique), self.parameters),
            self.worth(tokens, unique, self.tokens),
        )

    def loss(self, law: Chinchilla, parameters: Any, tokens: Any, unique: Any) -> Any:
        """Return the loss in nats per token. If no text is repeated and the model is not too large
        for the text, this is the loss by ``law``."""
        return law.loss(*self.effective(law, parameters, tokens, unique))

    def optimum(self, law: Chinchilla, flops: float, unique: float) -> tuple[float, float]:
        """Return the best (N, D) for 6ND = ``flops`` with ``unique`` distinct tokens."""
        free = law.best.optimum(flops)
        if free[1] <= unique:
            return free
        # Search on a grid around the law's best N.
        sizes = free[0] * np.exp(np.linspace(-8, 8, 32_001))
        tokens = flops / PER_PAIR / sizes
        best = int(np.argmin(self.loss(law, sizes, tokens, unique)))
        return float(sizes[best]), float(tokens[best])


def rule_of_twenty(flops: float) -> tuple[float, float]:
    """Return (N, D) for a budget ``flops`` if D is 20 tokens per parameter."""
    parameters = math.sqrt(flops / PER_PAIR / TOKENS_PER_PARAMETER)
    return parameters, TOKENS_PER_PARAMETER * parameters


# Hoffmann et al. 2022, equation 10, as printed.
HOFFMANN = Chinchilla(e=1.69, a=406.4, b=410.7, alpha=0.34, beta=0.28)
# Besiroglu et al. 2024, table 1: a refit of the same points.
BESIROGLU = Chinchilla(e=1.8172, a=482.01, b=2085.43, alpha=0.3478, beta=0.3658)
# Muennighoff et al. 2023, appendix A: C4, with equal exponents.
MUENNIGHOFF = Chinchilla(
    e=math.exp(0.6254804),
    a=math.exp(6.255414),
    b=math.exp(7.3049974),
    alpha=0.3526596,
    beta=0.3526596,
)
# Kaplan et al. 2020, table 2.
KAPLAN = Kaplan(nc=6.4e13, dc=1.8e13, alpha_n=0.076, alpha_d=0.103)


def fit(
    law: Law, parameters: Floats, tokens: Floats, loss: Floats, start: Floats | None = None
) -> tuple[Any, Floats]:
    """Return (law, constants): a law fitted to points, and the same law as a vector of constants.
    The points are arrays [points] of parameters, tokens and losses.
    ``start``: the constants of a similar fit, from which to begin."""
    x, y = np.log(parameters), np.log(tokens)
    middle = float(x.mean()), float(y.mean())
    x, y, target = x - middle[0], y - middle[1], np.log(loss)
    starts = law.starts(x, y, loss) if start is None else [start]
    starts.sort(key=lambda constants: _huber(constants, law, x, y, target)[0])
    fits = [_descend(constants, law, x, y, target) for constants in starts[:STARTS]]
    best = min(fits, key=lambda each: each.fun)
    return law.of(best.x, *middle), best.x


def _huber(
    constants: Floats, law: Law, x: Floats, y: Floats, target: Floats
) -> tuple[float, Floats]:
    values, slopes = law.log_loss(constants, x, y)
    residuals = (values - target) / DELTA
    size = np.abs(residuals)
    total = np.where(size <= 1, residuals**2 / 2, size - 0.5).sum()
    return float(total), slopes @ np.clip(residuals, -1, 1) / DELTA


def _descend(start: Floats, law: Law, x: Floats, y: Floats, target: Floats) -> Any:
    from scipy.optimize import minimize

    limits = [(None, None)] * (law.count - 2) + [LIMITS] * 2
    return minimize(
        _huber,
        start,
        args=(law, x, y, target),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-6, "maxcor": 20},
    )
