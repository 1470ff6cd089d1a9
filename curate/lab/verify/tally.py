"""The outcome of one comparison, and the closed list of causes that explain a difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SCORE_BOUND = 1e-4  # of a probability: fastText adds float32 numbers in another order
PERPLEXITY_BOUND = 1e-5  # relative: KenLM adds float32 logarithms (5e-7 was measured)
MOST_NAMED = 20  # differences that are kept with their documents

# A difference that has none of these causes is a disagreement. docs/verify.md explains each.
CAUSES = {
    "rounding": "the values differ by no more than the stated bound",
    "near_tie": "the two likeliest labels are closer to each other than the bound of scores",
    "no_word": "a text without a word has no label and score 0, and fastText labels its line end",
    "reader_limit": "the reader refused the record: too large, or cut short in the archive",
    "warcio_coding": "warcio does not decode this coding of the body",
    "warcio_stops": "warcio ends at a damaged member, behind which it reads nothing",
    "odd_http": "the HTTP message is malformed, and each library mends it in its own way",
    "damaged_archive": "the run reported damage in the archive beside this record",
    "counted_bands": "a similarity counts the bands in which one of both is the preferred copy",
    "not_compared": "verification compares documents with the preferred one of their band alone",
    "earlier_corpus": "the copy lies in an earlier corpus, whose text this run does not hold",
    "false_positive": "a false positive of the run's filter: its keys inserted again give it too",
    "peer_false_positive": "a false positive of pybloom-live: the key was never inserted",
    "boundary": "a cut shrinks to whole characters, words or lines, none of which is left whole",
}


class Difference(NamedTuple):
    """An item that differs, and how."""

    item: str
    how: str


@dataclass
class Tally:
    """What a library says of some items. checked = agree + explained + disagree."""

    JSON = ("library", "what", "checked", "agree", "explained=causes", "disagree", "differences")
    library: str
    what: str
    checked: int = 0
    agree: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    disagree: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def causes(self) -> dict[str, int]:
        """Explained items by cause, in the order of the names."""
        return dict(sorted(self.explained.items()))

    def agrees(self, count: int = 1) -> None:
        """Items of which both say the same."""
        self.checked += count
        self.agree += count

    def explain(self, cause: str) -> None:
        """An item that differs for a cause of the list. KeyError for any other cause."""
        CAUSES[cause]
        self.checked += 1
        self.explained[cause] += 1

    def differs(self, item: str, how: str) -> None:
        """An item that differs for no cause of the list."""
        self.checked += 1
        self.disagree += 1
        if len(self.differences) < MOST_NAMED:
            self.differences.append(Difference(item, how))

    def compare(self, item: str, stored: Any, theirs: Any) -> None:
        """Agreement where both values are equal."""
        if stored == theirs:
            self.agrees()
        else:
            self.differs(item, f"the run has {stored!r}, {self.library} {theirs!r}")


class NotChecked(Exception):
    """Why a comparison cannot be made here; the message is one line that says what to do."""


class NotInRun(NotChecked):
    """The run has nothing that the library could compare."""


def need(module: str, package: str) -> None:
    """NotChecked where a library is not installed."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise NotChecked(f"pip install {package}")
