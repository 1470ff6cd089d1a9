"""Search for the best mixture of data sources by regression, as in RegMix (Liu et al. 2024).

``linear`` is a mixing law: the bits per byte of a document are floor + exp(t . f). The vectors t
and f have one number per source: t is fitted, and f is the source's share (Ye et al. 2024) or
log(share + e) (Ge et al. 2024). The kind of f, the floor and e are chosen for the least error on
left-out runs. Each document of the target text has its own law, because different documents may
depend on different sources. ``trees`` are scikit-learn's gradient-boosted trees (Friedman 2001),
which predict the bits per byte of the whole target text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llmcurate.base.errors import UsageError
from train.evaluate.paired import RESAMPLES, SHARE

Floats = npt.NDArray[np.float64]
Predict = Callable[[Floats], Floats]  # mixtures [mixtures, sources] to bits per byte

# Least and greatest sum of a Dirichlet's parameters: from almost one source to almost equal shares
# (sail-sg/regmix, mixture_config/synthesize_mixture.py). Its code draws around the square root of
# the prior, and sets shares below 0.0002 to 0; here the prior is as it is.
CONCENTRATIONS = (0.1, 5.0)
WHOLE = 10_000  # shares are whole numbers of this
TRIES = 1000  # draws per mixture, until one is within the bounds and new
CANDIDATES, BEST = 10_000, 100  # simulated mixtures; the optimum is the mean of the best ones
FOLDS = 10
BOOTSTRAP = 200
# Mixing laws: (floor as a share of a document's least bits, e; None: the shares are the features).
# e is what other sources teach about a source, as a share of that source.
LAWS = [(floor, e) for floor in (0.0, 0.5, 0.9) for e in (None, 0.001, 0.003, 0.01, 0.03, 0.1)]
RIDGE = 1e-3  # on centred features: shares add up to 1, so slopes are not unique without it
TREES = {"n_estimators": 100, "learning_rate": 0.1, "max_depth": 3}


def draw_mixtures(
    prior: Floats, count: int, seed: int, bounds: Floats | None = None
) -> npt.NDArray[np.int64]:
    """Draw ``count`` different mixtures, [count, sources], as shares in 10,000ths. The first one is
    ``prior`` [sources], the shares by size. A larger ``count`` keeps these mixtures and adds
    others. ``bounds`` [sources] are the largest shares allowed. Raises ``LlmcurateError`` if no
    further mixture is found within them."""
    least, most = CONCENTRATIONS
    drawn: dict[tuple[int, ...], None] = {tuple(whole_shares(prior)): None}  # ordered
    for number in range(1, count):
        draw = np.random.default_rng([seed, number])
        # The numbers' digits backwards spread over 0 to 1 (van der Corput 1935).
        place = int(f"{number:b}"[::-1], 2) / (1 << number.bit_length())
        parameters = np.maximum(least * (most / least) ** place * prior, 1e-3)
        for _ in range(TRIES):
            shares = np.nan_to_num(draw.dirichlet(parameters))
            shares /= max(shares.sum(), 1e-300)
            mixture = tuple(whole_shares(shares)) if shares.any() else None
            within = bounds is None or (shares <= bounds).all()
            if mixture is not None and mixture not in drawn and within:
                drawn[mixture] = None
                break
        else:
            raise UsageError(
                f"no mixture {number + 1} is within the epochs per source: lower --tokens or"
                " --runs, or raise --max-epochs"
            )
    return np.array(list(drawn))


def whole_shares(shares: Floats) -> npt.NDArray[np.int64]:
    """Round shares [sources] to whole 10,000ths with the sum 10,000, by the largest remainders."""
    exact = shares / shares.sum() * WHOLE
    counts = np.floor(exact).astype(np.int64)
    missing = WHOLE - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def candidates(prior: Floats, bounds: Floats, seed: int, count: int = CANDIDATES) -> Floats:
    """Draw ``count`` mixtures within the bounds, [count, sources]. ``prior``: each source's share
    of all tokens. ``bounds``: the largest share of each source. A draw outside the bounds is moved
    towards ``prior`` until it meets a bound, because the best mixture often lies on a bound."""
    draw = np.random.default_rng([seed, 1 << 32])
    # Around the natural and around even shares, at the concentrations of the trained mixtures and
    # up to 10 times theirs.
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


@dataclass(frozen=True)
class Linear:
    """A mixing law for each document of the target text: log(bits per byte - floor) is linear in
    the sources' shares or in their logarithms. ``law``: an entry of LAWS; None: the best.

    Its methods, and those of ``Trees``, take ``shares`` [runs, sources], ``bits`` per byte [runs,
    documents], and each document's weight in the target text: ``weights`` [documents]."""

    law: tuple[float, float | None] | None = None
    name: str = "linear"

    def chosen(self, shares: Floats, bits: Floats, weights: Floats) -> Linear:
        """Return this regression with the best hyperparameters for the runs."""
        errors = [_Fit.of(shares, bits, law).left_out_error(bits, weights) for law in LAWS]
        return Linear(LAWS[int(np.argmin(errors))])

    def fit(self, shares: Floats, bits: Floats, weights: Floats) -> Predict:
        """Fit the regression. Return a function from shares to the target text's bits per byte."""
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
        logs = (_features(mixtures, self.law) - self.centre) @ self.slopes + self.mean
        bits: Floats = np.exp(logs) + self.least
        return bits

    def left_out_error(self, bits: Floats, weights: Floats) -> float:
        """Return the mean squared leave-one-out error for the target text, from the leverages."""
        logs = np.log(np.maximum(bits - self.least, 1e-9))
        residuals = (logs - self.fitted) / np.maximum(1 - self.leverage, 1e-3)[:, None]
        errors = (np.exp(logs - residuals) + self.least - bits) @ weights
        return float(np.mean(errors**2))


def _features(shares: Floats, law: tuple[float, float | None]) -> Floats:
    return shares if law[1] is None else np.log(shares + law[1])


@dataclass(frozen=True)
class Trees:
    """Gradient-boosted trees that predict a model's bits per byte from the shares of its training
    mixture: one number for the whole target text. ``seed`` decides between equally good splits."""

    seed: int = 0
    name: str = "trees"

    def chosen(self, shares: Floats, bits: Floats, weights: Floats) -> Trees:
        return self

    def fit(self, shares: Floats, bits: Floats, weights: Floats) -> Predict:
        from sklearn.ensemble import GradientBoostingRegressor

        model = GradientBoostingRegressor(random_state=self.seed, **TREES)
        model.fit(shares, bits @ weights)
        return lambda mixtures: np.asarray(model.predict(mixtures), np.float64)


Regression = Linear | Trees


@dataclass(frozen=True)
class HeldOut:
    """The result of a cross-validation: the ``predictions`` for left-out runs, their RMS error, and
    their Spearman ``correlation`` with the measured bits, with its bootstrap ``interval``."""

    predictions: Floats
    rmse: float
    correlation: float
    interval: tuple[float, float]

    @property
    def predicts(self) -> bool:
        return self.interval[0] > 0


def held_out(
    regression: Regression, shares: Floats, bits: Floats, weights: Floats, seed: int
) -> HeldOut:
    """Cross-validate a regression in at most 10 folds of the runs. The interval of the result's
    rank correlation comes from resampled runs, drawn with ``seed``."""
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
    from scipy.stats import rankdata

    a, b = (rankdata(rows, axis=1) for rows in (first, second))
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    spread = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.divide((a * b).sum(axis=1), spread, out=np.zeros(len(a)), where=spread > 0)


@dataclass(frozen=True)
class Optimum:
    """The best mixture that a regression finds. ``shares`` [sources]: the mean of the best
    simulated mixtures. ``predicted`` [mixtures]: the bits per byte predicted for the best mixture
    and then for each of the ``others`` given to ``optimum``. ``drawn`` [resamples, sources] and
    ``resampled`` [resamples, mixtures]: the same two results for resampled runs."""

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
    """Find the best mixture: the mean of the ``simulated`` mixtures for which a regression on all
    runs predicts the fewest bits per byte on the target text. The regression is then fitted to
    resampled runs, to show how much the best mixture varies. All fits also predict the bits per
    byte for the best mixture and for ``others``, further mixtures [mixtures, sources]."""

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
            continue  # no run has this source: its effect is unknown
        again = regression.fit(shares[rows], bits[rows], weights)
        drawn.append(best(again))
        resampled.append(again(asked))
    return Optimum(mixture, np.array(drawn), fitted(asked), np.array(resampled))
