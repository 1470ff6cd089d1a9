"""Compare extracted pages with gold annotations: words, snippets, title, author and date.

Words are measured as in WCXB (Foley 2026), averaged over pages. Snippets are counted as in
trafilatura's own evaluation (adbar/trafilatura, tests/evaluate.py), over all pages together, but
after normalizing white space, soft hyphens and the composition of letters.
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
SAMPLES = 1000  # draws of the bootstrap
LEVEL = 0.95  # confidence of an interval
SEED = 0
_AT_ONCE = 1 << 22  # numbers drawn at once


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def word_scores(ours: Counter[str], gold: Counter[str]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of two multisets: 1 if both are empty, 0 if only one is."""
    if not ours and not gold:
        return 1.0, 1.0, 1.0
    shared, our_words, gold_words = (ours & gold).total(), ours.total(), gold.total()
    if not shared:
        return 0.0, 0.0, 0.0
    return shared / our_words, shared / gold_words, 2 * shared / (our_words + gold_words)


def squeezed(text: str) -> str:
    """Return the text in NFC, with white space as single spaces and without soft hyphens."""
    return unicodedata.normalize("NFC", " ".join(text.replace("\u00ad", "").split()))


def snippet_counts(
    text: str, with_: Iterable[str], without: Iterable[str]
) -> tuple[int, int, int, int]:
    """Return a page's numbers of true positives, false positives, false negatives and true
    negatives. Snippets `with_` belong in the text, snippets `without` do not."""
    text = squeezed(text)
    present = [squeezed(snippet) in text for snippet in with_]
    wrong = [squeezed(snippet) in text for snippet in without]
    tp, fp = sum(present), sum(wrong)
    return tp, fp, len(present) - tp, len(wrong) - fp


def snippet_scores(tp: int, fp: int, fn: int, tn: int) -> dict[str, float]:
    """Return precision, recall, f1 and accuracy of `snippet_counts`, 0 if nothing was counted."""
    return {
        "precision": tp / max(1, tp + fp),
        "recall": tp / max(1, tp + fn),
        "f1": 2 * tp / max(1, 2 * tp + fp + fn),
        "accuracy": (tp + tn) / max(1, tp + fp + fn + tn),
    }


def site_of(url: str) -> str:
    """Return a URL's host without www, or the URL itself if it has no host. For a page of
    web.archive.org this is the host of the archived page."""
    _, _, kept = url.rpartition("/http")
    try:
        host = urlsplit("http" + kept if "web.archive.org" in url else url).hostname or url
    except ValueError:  # brackets without an IP address
        return url
    return host.removeprefix("www.")


_PLAIN = str.maketrans("‘’‚“”„‐‑–—\u00a0", "'''\"\"\"---- ")
_SEPARATOR = re.compile(r" (?:[|/\-·•»:]|::) |: ")
_AND = re.compile(r"[,;&|/]|\band\b")
DATE = re.compile(r"\d{4}-\d\d(-\d\d)?(?!\d)")


def plain(text: str) -> str:
    """Return a title in the form for comparison: normalized by `squeezed`, case-folded, and with
    plain quotes and hyphens."""
    return squeezed(text).translate(_PLAIN).casefold()


def same_title(ours: str, gold: str) -> bool:
    """Return True if our title equals the gold title, compared by `plain`. The part of our title
    before or after a separator (` | `, ` - `, ` · `, ` • `, ` » `, ` / `, ` :: `, `: `) may be
    missing from the gold title, since pages write their site's name there."""
    title, gold_title = plain(ours), plain(gold)
    cuts = list(_SEPARATOR.finditer(title))
    parts = {title[: cut.start()] for cut in cuts} | {title[cut.end() :] for cut in cuts}
    return gold_title in parts | {title}


def names(author: str) -> frozenset[str]:
    """Return the names in an author line in lower case, without the word `by`."""
    line = plain(author).removeprefix("by ")
    return frozenset(name for part in _AND.split(line) if (name := part.strip(" .")))


def same_author(ours: str, gold: str) -> bool:
    return names(ours) == names(gold)


def same_date(ours: datetime, gold: str) -> bool:
    """Return True if a time in UTC is in the gold's day (`2024-05-31`) or month (`2024-05`)."""
    match = DATE.match(gold)
    return match is not None and ours.strftime("%Y-%m-%d").startswith(match.group())


def bootstrap(
    sums: np.ndarray, measure: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a measure over all sites, and the lower and the upper end of its 95 % interval.

    `sums` (float64[sites, ...]) are the totals over each site's pages. `measure` maps totals of
    samples (float64[samples, ...]) to one value or array per sample, NaN where undefined. Sites are
    drawn with replacement, each with all its pages, since pages of one site are built alike
    (percentile bootstrap, Efron 1979). Both ends are NaN for fewer than two sites. The same sites
    in the same order give the same draws, so measures of the same pages can be subtracted.
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
