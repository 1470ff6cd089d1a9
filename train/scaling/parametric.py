"""Laws of parameters and tokens fitted to losses: approach 3 of Hoffmann et al. 2022, and Kaplan's.

The residuals of log L are summed by Huber's loss with delta 10^-3 and minimised by L-BFGS (Hoffmann
et al. 2022, appendix D.3). Two things are otherwise than there. The sum is in units of delta: as a
mean it is so small that the optimiser stops too early, the reason that Besiroglu et al. 2024 give
for the published constants. And the starts are not a grid over all constants: at each pair of
exponents the others are solved for by least squares, and the best of these are followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from train.scaling.laws import Chinchilla, Floats, Kaplan, exponential

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
