"""Mixtures of sources that are tried, regressions from their shares to the bits of a target text,
and the mixture that these predict to be the best, as RegMix has it (Liu et al. 2024).

Mixtures are drawn from Dirichlet distributions about the natural shares, those of the sources'
tokens. Two regressions are fitted to what small models scored.

``linear`` is a law of mixing whose logarithm is linear. The bits a byte of a text are
floor + exp(t . f), where f are the shares (Ye et al. 2024) or log(share + e), so that bits fall as
a power of a source's share as they do of tokens (Ge et al. 2024). Which of both, floor and e are
chosen by the error on runs that are left out. A law is fitted to each document and the target is
their sum: a text of many parts shows what it is made of, though nothing says which document is of
which.

``trees`` are gradient-boosted trees (Friedman 2001) of the target's own bits, as RegMix has them,
from scikit-learn: exact splits, since a histogram of a few dozen runs has nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from llmcurate.base.errors import UsageError
from train.evaluate.paired import RESAMPLES, SHARE

Floats = npt.NDArray[np.float64]
Predict = Callable[[Floats], Floats]  # bits a byte of mixtures [mixtures, sources]

# Least and greatest sum of a Dirichlet's parameters: from one source to about all alike (RegMix,
# section 3.1; entered from memory).
CONCENTRATIONS = (0.1, 5.0)
WHOLE = 10_000  # shares are whole numbers of this
TRIES = 1000  # draws of a mixture until it is within its bounds, and another than those before
CANDIDATES, BEST = 10_000, 100  # mixtures that are simulated, and those whose mean is the optimum
FOLDS = 10
BOOTSTRAP = 200
# Laws of mixing: the floor as a share of the least bits that were seen of a document, and e, the
# share that a source without text stands for by what others teach; None: the shares themselves.
LAWS = [(floor, e) for floor in (0.0, 0.5, 0.9) for e in (None, 0.001, 0.003, 0.01, 0.03, 0.1)]
RIDGE = 1e-3  # of centred features; without it shares, which add up to 1, have no slopes
TREES = {"n_estimators": 100, "learning_rate": 0.1, "max_depth": 3}


def draw_mixtures(
    prior: Floats, count: int, seed: int, bounds: Floats | None = None
) -> npt.NDArray[np.int64]:
    """[count, sources] shares in 10,000ths; the first are the same however many are drawn.
    ``prior``: the natural shares, which are the first mixture; ``bounds``: the largest share of
    each source. Raises ``LlmcurateError`` where none is within the bounds.
    """
    drawn: dict[tuple[int, ...], None] = {tuple(whole_shares(prior)): None}  # in their order
    for number in range(1, count):
        draw = np.random.default_rng([seed, number])
        parameters = np.maximum(_concentration(number) * prior, 1e-3)
        for _ in range(TRIES):
            shares = _normal(draw.dirichlet(parameters))
            mixture = tuple(whole_shares(shares)) if shares.any() else None
            within = bounds is None or (shares <= bounds).all()
            if mixture is not None and mixture not in drawn and within:
                drawn[mixture] = None
                break
        else:
            raise UsageError(
                f"no mixture {number + 1} is within the epochs that sources may have: give less"
                " --tokens, fewer --runs or more --max-epochs"
            )
    return np.array(list(drawn))


def _concentration(number: int) -> float:
    """Spread evenly in its logarithm over any first mixtures (van der Corput 1935)."""
    place, scale = 0.0, 0.5
    while number:
        number, bit = divmod(number, 2)
        place, scale = place + bit * scale, scale / 2
    least, most = CONCENTRATIONS
    return float(least * (most / least) ** place)


def _normal(shares: Floats) -> Floats:
    """With the sum 1, where a draw of tiny parameters has lost it."""
    shares = np.nan_to_num(shares)
    return shares / max(shares.sum(), 1e-300)


def whole_shares(shares: Floats) -> npt.NDArray[np.int64]:
    """In 10,000ths that add up, by the largest remainders."""
    exact = shares / shares.sum() * WHOLE
    counts = np.floor(exact).astype(np.int64)
    missing = WHOLE - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def candidates(prior: Floats, bounds: Floats, seed: int, count: int = CANDIDATES) -> Floats:
    """Mixtures within the bounds, [count, sources]: draws, of which those outside are moved towards
    the natural shares until they are within. Where a bound counts the best mixtures lie on it,
    where no draw ever is.
    """
    draw = np.random.default_rng([seed, 1 << 32])
    # About the natural shares and about even ones, as sparse and as dense as the mixtures tried,
    # and denser.
    least, most = CONCENTRATIONS[0], 10 * CONCENTRATIONS[1]
    sums = least * (most / least) ** draw.random(count)
    even = np.full(len(prior), 1 / len(prior))
    centres = np.where(np.arange(count)[:, None] % 2, prior, even)
    gammas = draw.standard_gamma(np.maximum(sums[:, None] * centres, 1e-3))
    empty = gammas.sum(axis=1) == 0
    gammas[empty] = prior
    shares = gammas / gammas.sum(axis=1, keepdims=True)
    away = shares - prior
    room = np.divide(bounds - prior, away, out=np.full_like(away, np.inf), where=away > 0)
    inside: Floats = prior + np.clip(room.min(axis=1), 0, 1)[:, None] * away
    return inside


class Regression(Protocol):
    """A way from shares to bits. ``shares`` [runs, sources] and ``bits`` [runs, documents] are of
    the runs, ``weights`` those of the documents in the target."""

    @property
    def name(self) -> str:
        """As settings call it."""
        ...

    def chosen(self, shares: Floats, bits: Floats, weights: Floats) -> Regression:
        """With what it chooses by these runs, for fits to parts of them."""
        ...

    def fit(self, shares: Floats, bits: Floats, weights: Floats) -> Predict:
        """The target's bits a byte by shares."""
        ...


@dataclass(frozen=True)
class Linear:
    """The law of mixing of each document. ``law``: a pair of LAWS; None chooses the one that
    predicts best each run from the others.
    """

    law: tuple[float, float | None] | None = None
    name: str = "linear"

    def chosen(self, shares: Floats, bits: Floats, weights: Floats) -> Linear:
        """With the law that suits these runs."""
        errors = [_Fit.of(shares, bits, law).left_out_error(bits, weights) for law in LAWS]
        return Linear(LAWS[int(np.argmin(errors))])

    def fit(self, shares: Floats, bits: Floats, weights: Floats) -> Predict:
        counted = weights > 0
        bits, weights = bits[:, counted], weights[counted]
        law = self.law or self.chosen(shares, bits, weights).law
        assert law is not None
        fit = _Fit.of(shares, bits, law)

        def predict(mixtures: Floats) -> Floats:
            blocks = np.array_split(mixtures, -(-len(mixtures) // 4096))
            return np.concatenate([fit.bits(block) @ weights for block in blocks])

        return predict


@dataclass(frozen=True)
class _Fit:
    """A law of each document, by least squares of logarithms. ``least`` [documents]: the floor;
    ``slopes`` [sources, documents]; ``fitted`` and ``leverage``: of the runs."""

    law: tuple[float, float | None]
    least: Floats
    centre: Floats
    mean: Floats
    slopes: Floats
    fitted: Floats
    leverage: Floats

    @classmethod
    def of(cls, shares: Floats, bits: Floats, law: tuple[float, float | None]) -> _Fit:
        least = law[0] * bits.min(axis=0)
        logs = np.log(np.maximum(bits - least, 1e-9))
        features = _features(shares, law)
        centre, mean = features.mean(axis=0), logs.mean(axis=0)
        features = features - centre
        square = features.T @ features + RIDGE * np.eye(features.shape[1])
        inverse: Floats = np.linalg.solve(square, features.T)
        slopes = inverse @ (logs - mean)
        leverage = 1 / len(shares) + np.einsum("rs,sr->r", features, inverse)
        return cls(law, least, centre, mean, slopes, features @ slopes + mean, leverage)

    def bits(self, mixtures: Floats) -> Floats:
        """[mixtures, documents]."""
        logs = (_features(mixtures, self.law) - self.centre) @ self.slopes + self.mean
        bits: Floats = np.exp(logs) + self.least
        return bits

    def left_out_error(self, bits: Floats, weights: Floats) -> float:
        """The mean squared error of the target of each run by a fit without it, by the diagonal of
        the hat matrix."""
        logs = np.log(np.maximum(bits - self.least, 1e-9))
        residuals = (logs - self.fitted) / np.maximum(1 - self.leverage, 1e-3)[:, None]
        errors = (np.exp(logs - residuals) + self.least - bits) @ weights
        return float(np.mean(errors**2))


def _features(shares: Floats, law: tuple[float, float | None]) -> Floats:
    return shares if law[1] is None else np.log(shares + law[1])


@dataclass(frozen=True)
class Trees:
    """Gradient-boosted trees of the target. ``seed``: of ties between splits."""

    seed: int = 0
    name: str = "trees"

    def chosen(self, shares: Floats, bits: Floats, weights: Floats) -> Trees:
        """Nothing is to be chosen."""
        return self

    def fit(self, shares: Floats, bits: Floats, weights: Floats) -> Predict:
        from sklearn.ensemble import GradientBoostingRegressor

        model = GradientBoostingRegressor(random_state=self.seed, **TREES)
        model.fit(shares, bits @ weights)
        return lambda mixtures: np.asarray(model.predict(mixtures), np.float64)


@dataclass(frozen=True)
class HeldOut:
    """Predictions of runs that were left out. ``correlation``: of ranks (Spearman 1904), with its
    ``interval`` over runs (bootstrap)."""

    predictions: Floats
    rmse: float
    correlation: float
    interval: tuple[float, float]

    @property
    def predicts(self) -> bool:
        """Return whether it ranks mixtures beyond chance."""
        return self.interval[0] > 0


def held_out(
    regression: Regression, shares: Floats, bits: Floats, weights: Floats, seed: int
) -> HeldOut:
    """The error of a regression on runs that it was not fitted to: every tenth is left out in turn,
    or each of less than ten.
    """
    count = len(shares)
    fold = np.arange(count) % min(FOLDS, count)
    predictions = np.empty(count)
    for number in range(fold.max() + 1):
        fitted = regression.fit(shares[fold != number], bits[fold != number], weights)
        predictions[fold == number] = fitted(shares[fold == number])
    target = bits @ weights
    draw = np.random.default_rng(seed)
    rows = draw.integers(count, size=(RESAMPLES, count))
    drawn = _rank_correlation(predictions[rows], target[rows])
    low, high = np.quantile(drawn, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return HeldOut(
        predictions,
        float(np.sqrt(np.mean((predictions - target) ** 2))),
        float(_rank_correlation(predictions[None], target[None])[0]),
        (float(low), float(high)),
    )


def _rank_correlation(first: Floats, second: Floats) -> Floats:
    """Of each row; 0 where all values are equal."""
    from scipy.stats import rankdata

    a, b = (rankdata(rows, axis=1) for rows in (first, second))
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    spread = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.divide((a * b).sum(axis=1), spread, out=np.zeros(len(a)), where=spread > 0)


@dataclass(frozen=True)
class Optimum:
    """``shares`` [sources], the mean of the best simulated mixtures; ``drawn`` [resamples, sources]
    those of runs drawn anew. ``predicted``: bits a byte of this mixture and of others that were
    asked for; ``resampled`` [resamples, mixtures] the same of runs drawn anew.
    """

    shares: Floats
    drawn: Floats
    predicted: Floats
    resampled: Floats


def optimum(
    regression: Regression,
    shares: Floats,
    bits: Floats,
    weights: Floats,
    simulated: Floats,
    others: Floats,
    seed: int,
) -> Optimum:
    """The mixture that the regression predicts to be the best of the simulated ones, and how far it
    and its bits depend on which runs there are (bootstrap)."""

    def best(predict: Predict) -> Floats:
        lowest = np.argsort(predict(simulated), kind="stable")[:BEST]
        mean: Floats = simulated[lowest].mean(axis=0)
        return mean

    regression = regression.chosen(shares, bits, weights)
    fitted = regression.fit(shares, bits, weights)
    mixture = best(fitted)
    asked = np.vstack([mixture, others])
    draw = np.random.default_rng([seed, 1])
    drawn: list[Floats] = []
    resampled: list[Floats] = []
    read = shares.any(axis=0)
    while len(drawn) < BOOTSTRAP:
        rows = draw.integers(len(shares), size=len(shares))
        if (shares[rows].any(axis=0) != read).any():
            continue  # none of these read a source, of which they then know nothing
        again = regression.fit(shares[rows], bits[rows], weights)
        drawn.append(best(again))
        resampled.append(again(asked))
    return Optimum(mixture, np.array(drawn), fitted(asked), np.array(resampled))
