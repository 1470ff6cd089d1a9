"""The outcome of one comparison, and the closed list of causes that explain a difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SCORE_BOUND = 1e-4  # absolute: fastText adds float32 numbers in another order
PERPLEXITY_BOUND = 1e-5  # relative: KenLM adds float32 logarithms (5e-7 was measured)
MOST_NAMED = 20  # differences that are stored with their documents

# Any other difference is a disagreement. docs/verify.md explains each cause.
CAUSES = {
    "rounding": "the values differ by no more than the stated bound",
    "near_tie": "the scores of the two likeliest labels differ by no more than the stated bound",
    "no_word": "a text without words has no label and score 0, and fastText labels its line end",
    "reader_limit": "the reader refused the record: too large, or truncated in the archive",
    "warcio_coding": "warcio does not decode this coding of the body",
    "warcio_stops": "warcio stops at a damaged member and reads nothing after it",
    "odd_http": "the HTTP message is malformed, and each library repairs it differently",
    "damaged_archive": "the run reported damage in the archive near this record",
    "counted_bands": "the similarity counts only bands in which one document is the preferred one",
    "not_compared": "verification compares a document with at most 2,000 others of its bucket",
    "earlier_corpus": "the duplicate is in an earlier corpus, whose text this run does not have",
    "false_positive": "a false positive of the run's filter, which rebuilding the filter repeats",
    "peer_false_positive": "a false positive of pybloom-live: the key was never inserted",
    "boundary": "cuts shrink to whole characters, words or lines, and none was left whole",
}


class Difference(NamedTuple):
    item: str
    how: str


@dataclass
class Tally:
    """The counts of one comparison with a library."""

    JSON = ("library", "what", "checked", "agree", "explained=causes", "disagree", "differences")
    library: str
    what: str  # what is compared
    checked: int = 0  # agree + explained + disagree
    agree: int = 0
    explained: Counter[str] = field(default_factory=Counter)  # cause -> number of items
    disagree: int = 0
    differences: list[Difference] = field(default_factory=list)  # some of the items that disagree

    @property
    def causes(self) -> dict[str, int]:
        return dict(sorted(self.explained.items()))

    def agrees(self, count: int = 1) -> None:
        self.checked += count
        self.agree += count

    def explain(self, cause: str) -> None:
        """Count an item that differs for a known cause. Raises KeyError if CAUSES does not have
        it."""
        CAUSES[cause]
        self.checked += 1
        self.explained[cause] += 1

    def differs(self, item: str, how: str) -> None:
        self.checked += 1
        self.disagree += 1
        if len(self.differences) < MOST_NAMED:
            self.differences.append(Difference(item, how))

    def compare(self, item: str, stored: Any, theirs: Any) -> None:
        if stored == theirs:
            self.agrees()
        else:
            self.differs(item, f"the run has {stored!r}, {self.library} {theirs!r}")

    def compare_numbers(self, item: str, stored: float, theirs: float | None, bound: float) -> None:
        """Compare two numbers; `theirs` is None if the library has none. A difference of at most
        `bound` is explained."""
        if theirs is not None and stored != theirs and abs(stored - theirs) <= bound:
            self.explain("rounding")
        else:
            self.compare(item, stored, theirs)


class NotChecked(Exception):
    """A comparison cannot be made here. The message gives the reason or the remedy."""


class NotInRun(NotChecked):
    """A comparison is not possible because the run made nothing of this kind."""


def need(module: str, package: str) -> None:
    """Raise NotChecked if a library is not installed. `package` is the library's name in pip."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise NotChecked(f"pip install {package}")
