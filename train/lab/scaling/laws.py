"""Scaling laws: the loss by parameters and tokens, and the model that a budget is best spent on.

N: parameters, D: tokens of text, C: operations. Where a law is solved for a budget, C = 6ND: six
operations for each parameter and token, attention left out (Kaplan et al. 2020, section 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


DELTA = 1e-3  # Hoffmann et al. 2022, appendix D.3
STARTS = 8  # that are followed
# Of exponents, and of alpha_n / alpha_d: points of which a law knows little lead to such a limit.
LIMITS = (1e-3, 2.0)
EXPONENTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5)


class Form(Protocol):
    """A law as its fit sees it: constants in a vector, sizes and tokens as logarithms ``x`` and
    ``y`` from which their means are taken, so that exponents and factors hardly depend on each
    other.
    """

    count: int  # of constants

    def starts(self, x: Floats, y: Floats, loss: Floats) -> list[Floats]:
        """Constants to begin from."""

    def log_loss(self, constants: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """log L [points], and its derivatives [constants, points]."""

    def law(self, constants: Floats, x: float, y: float) -> Any:
        """The law; ``x`` and ``y`` are the means that were taken."""


def _soft(terms: Sequence[Floats]) -> tuple[Floats, Floats]:
    """log of the sum of exponentials, and each term's share of the sum."""
    stacked = np.stack(np.broadcast_arrays(*terms))
    most = stacked.max(axis=0)
    parts = np.exp(stacked - most)
    total = parts.sum(axis=0)
    return most + np.log(total), parts / total


def _factors(columns: Sequence[Floats], target: Floats) -> Floats:
    """The factors of positive columns that come nearest to the target, relative to it; positive."""
    from scipy.optimize import nnls

    matrix = np.stack(columns, axis=1) / target[:, None]
    return np.maximum(nnls(matrix, np.ones(len(target)))[0], 1e-6 * target.min())


class ChinchillaForm:
    """log e, and log a and log b at the means; alpha, beta."""

    count = 5

    def starts(self, x: Floats, y: Floats, loss: Floats) -> list[Floats]:
        constants = []
        for alpha in EXPONENTS:
            for beta in EXPONENTS:
                columns = (np.ones_like(x), np.exp(-alpha * x), np.exp(-beta * y))
                constants.append(np.array([*np.log(_factors(columns, loss)), alpha, beta]))
        return constants

    def log_loss(self, constants: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        e, a, b, alpha, beta = constants
        total, share = _soft((e, a - alpha * x, b - beta * y))
        return total, np.stack([*share, -share[1] * x, -share[2] * y])

    def law(self, constants: Floats, x: float, y: float) -> Chinchilla:
        e, a, b, alpha, beta = map(float, constants)
        factors = exponential(a + alpha * x), exponential(b + beta * y)
        return Chinchilla(e=exponential(e), a=factors[0], b=factors[1], alpha=alpha, beta=beta)


class KaplanForm:
    """L^(1 / alpha_d) is a sum of powers: log of its parts at the means, alpha_n / alpha_d,
    alpha_d.
    """

    count = 4

    def starts(self, x: Floats, y: Floats, loss: Floats) -> list[Floats]:
        constants = []
        for ratio in (0.3, 0.5, 0.7, 1.0, 1.4):
            for alpha in EXPONENTS:
                columns = (np.exp(-ratio * x), np.exp(-y))
                factors = _factors(columns, loss ** (1 / alpha))
                constants.append(np.array([*np.log(factors), ratio, alpha]))
        return constants

    def log_loss(self, constants: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        size, text, ratio, alpha = constants
        total, share = _soft((size - ratio * x, text - y))
        return alpha * total, np.stack([*(alpha * share), -alpha * share[0] * x, total])

    def law(self, constants: Floats, x: float, y: float) -> Kaplan:
        size, text, ratio, alpha = map(float, constants)
        return Kaplan(
            nc=exponential(size / ratio + x),
            dc=exponential(text + y),
            alpha_n=ratio * alpha,
            alpha_d=alpha,
        )


def fit(
    form: Form, parameters: Floats, tokens: Floats, loss: Floats, start: Floats | None = None
) -> tuple[Any, Floats]:
    """The law nearest to the losses [points], and its constants as a vector, from which a fit to
    nearly the same points may ``start``. The means of the logarithms are those of these points.
    """
    x, y = np.log(parameters), np.log(tokens)
    middle = float(x.mean()), float(y.mean())
    x, y, target = x - middle[0], y - middle[1], np.log(loss)
    starts = form.starts(x, y, loss) if start is None else [start]
    starts.sort(key=lambda constants: _huber(constants, form, x, y, target)[0])
    fits = [_descend(constants, form, x, y, target) for constants in starts[:STARTS]]
    best = min(fits, key=lambda each: each.fun)
    return form.law(best.x, *middle), best.x


def _huber(
    constants: Floats, form: Form, x: Floats, y: Floats, target: Floats
) -> tuple[float, Floats]:
    """The sum over points in units of delta squared, and its gradient."""
    values, slopes = form.log_loss(constants, x, y)
    residuals = (values - target) / DELTA
    size = np.abs(residuals)
    total = np.where(size <= 1, residuals**2 / 2, size - 0.5).sum()
    return float(total), slopes @ np.clip(residuals, -1, 1) / DELTA


def _descend(start: Floats, form: Form, x: Floats, y: Floats, target: Floats) -> Any:
    from scipy.optimize import minimize

    limits = [(None, None)] * (form.count - 2) + [LIMITS] * 2
    return minimize(
        _huber,
        start,
        args=(form, x, y, target),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-6, "maxcor": 20},
    )
