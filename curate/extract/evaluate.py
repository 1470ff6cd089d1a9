"""Measures of extracted pages against gold: words, snippets, title, author and date, intervals.

Words are measured as WCXB does (Foley 2026): precision, recall and F1 of the multisets of a page's
lower-case words, and their mean over pages. Snippets are counted as trafilatura's own evaluation
does (adbar/trafilatura, tests/evaluate.py): one that belongs and is there is a true positive, one
that does not and is there a false positive, over all pages together; here after white space, soft
hyphens and the composition of letters are made equal in both.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from urllib.parse import urlsplit

import numpy as np

WORD = re.compile(r"\w+")
SAMPLES = 1000  # of the bootstrap
LEVEL = 0.95  # of an interval
SEED = 0
_AT_ONCE = 1 << 22  # numbers drawn at a time


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order."""
    return WORD.findall(text.lower())


def word_scores(ours: Counter[str], gold: Counter[str]) -> tuple[float, float, float]:
    """Precision, recall and F1 of two multisets of words; all 1 where both are empty, and 0 where
    one of them is."""
    if not ours and not gold:
        return 1.0, 1.0, 1.0
    shared, our_words, gold_words = (ours & gold).total(), ours.total(), gold.total()
    if not shared:
        return 0.0, 0.0, 0.0
    return shared / our_words, shared / gold_words, 2 * shared / (our_words + gold_words)


def squeezed(text: str) -> str:
    """White space as single spaces, soft hyphens gone, letters and their marks composed."""
    return unicodedata.normalize("NFC", " ".join(text.replace("\u00ad", "").split()))


def snippet_counts(
    text: str, with_: Iterable[str], without: Iterable[str]
) -> tuple[int, int, int, int]:
    """True positives, false positives, false negatives and true negatives of a page: which of the
    snippets that belong (`with_`) and do not belong (`without`) stand in its squeezed text."""
    text = squeezed(text)
    present = [squeezed(snippet) in text for snippet in with_]
    wrong = [squeezed(snippet) in text for snippet in without]
    tp, fp = sum(present), sum(wrong)
    return tp, fp, len(present) - tp, len(wrong) - fp


def snippet_scores(tp: int, fp: int, fn: int, tn: int) -> dict[str, float]:
    """precision, recall, f1 and accuracy of counts; 0 where nothing was counted."""
    return {
        "precision": tp / max(1, tp + fp),
        "recall": tp / max(1, tp + fn),
        "f1": 2 * tp / max(1, 2 * tp + fp + fn),
        "accuracy": (tp + tn) / max(1, tp + fp + fn + tn),
    }


def site_of(url: str) -> str:
    """The host without www; behind an archive's address the one that it keeps. The URL itself
    where it has none."""
    _, _, kept = url.rpartition("/http")
    try:
        host = urlsplit("http" + kept if "web.archive.org" in url else url).hostname or url
    except ValueError:  # brackets that hold no address
        return url
    return host.removeprefix("www.")


_PLAIN = str.maketrans("‘’‚“”„‐‑–—\u00a0", "'''\"\"\"---- ")
_SEPARATOR = re.compile(r" (?:[|/\-·•»:]|::) |: ")
_AND = re.compile(r"[,;&|/]|\band\b")
DATE = re.compile(r"\d{4}-\d\d(-\d\d)?(?!\d)")


def plain(text: str) -> str:
    """The text squeezed, in lower case, with plain quotes and hyphens: titles are equal where this
    is."""
    return squeezed(text).translate(_PLAIN).casefold()


def same_title(ours: str, gold: str) -> bool:
    """Whether a page's title is the gold's, case, white space and the form of quotes and dashes
    apart; or becomes it without what stands before or behind a separator (` | `, ` - `, ` · `,
    ` • `, ` » `, ` / `, ` :: `, `: `), where pages write the name of their site."""
    title, gold_title = plain(ours), plain(gold)
    cuts = list(_SEPARATOR.finditer(title))
    parts = {title[: cut.start()] for cut in cuts} | {title[cut.end() :] for cut in cuts}
    return gold_title in parts | {title}


def names(author: str) -> frozenset[str]:
    """The names of an author line, without `by`, in lower case."""
    line = plain(author).removeprefix("by ")
    return frozenset(name for part in _AND.split(line) if (name := part.strip(" .")))


def same_author(ours: str, gold: str) -> bool:
    """Whether two author lines have the same names, in whatever order."""
    return names(ours) == names(gold)


def same_date(ours: datetime, gold: str) -> bool:
    """Whether a time (UTC) is of the gold's day, `2024-05-31`, or of its month, `2024-05`; what
    stands behind the day is not looked at."""
    match = DATE.match(gold)
    return match is not None and ours.strftime("%Y-%m-%d").startswith(match.group())


def bootstrap(
    sums: np.ndarray, measure: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A measure of all sites together, and the ends of its 95 % interval, in the measure's shape.

    sums: float64[sites, ...], what the pages of each site add up to; measure: float64[samples, ...]
    of such sums over sites to float64[samples, ...], NaN where there is nothing to measure. Sites
    are drawn with replacement, all pages of one together, since they are built alike (percentile
    bootstrap, Efron 1979). The ends are NaN where there are fewer than two sites. The same sites in
    the same order give the same draws, so that measures of the same pages can be subtracted.
    """
    value = measure(sums.sum(0)[None])[0]
    sites = len(sums)
    if sites < 2:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    draw = np.random.default_rng(SEED)
    flat, even = sums.reshape(sites, -1), np.full(sites, 1 / sites)
    step = max(1, _AT_ONCE // sites)
    parts = []
    for first in range(0, SAMPLES, step):
        times = draw.multinomial(sites, even, size=min(step, SAMPLES - first))
        parts.append(times.astype(np.float64) @ flat)
    values = measure(np.concatenate(parts).reshape(-1, *sums.shape[1:]))
    nothing = np.isnan(values).all(0)
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.nanquantile(np.where(nothing, 0.0, values), ends, axis=0)
    return value, np.where(nothing, np.nan, low), np.where(nothing, np.nan, high)
