"""All comparisons of a run, as a table for the terminal, a page and JSON."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from curate.inspect.results import Findings
from curate.lab.verify.finished_run import FinishedRun
from curate.lab.verify.tally import CAUSES, NotChecked, NotInRun, Tally
from llmcurate.base.disk.units import counted
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table

# The module of each comparison, and the library that it is made with.
CHECKS = {
    "records": "warcio",
    "pages": "resiliparse",
    "labels": "fasttext",
    "signatures": "datasketch",
    "membership": "pybloom-live",
    "cuts": "pydivsufsort",
    "tokens": "tokenizers, sentencepiece",
    "perplexities": "kenlm",
}
NAMED = 5  # differences of a row that the terminal shows


class Left(NamedTuple):
    """A library that nothing was compared with."""

    library: str
    why: str


@dataclass
class Verification(Findings):
    """A run's comparisons. skipped: libraries that are not here, or cannot compare;
    absent: those for which the run has nothing."""

    NAME = "verify"
    TEMPLATE = "verify.html"
    SHOWN: ClassVar[dict[str, Any]] = {"causes": CAUSES}
    JSON = (
        "out", "seed", "documents", "passed", "checked", "disagree", "comparisons=tallies",
        "not_checked=skipped", "not_in_run=absent",
    )  # fmt: skip
    out: str
    seed: int
    documents: int
    tallies: list[Tally] = field(default_factory=list)
    skipped: list[Left] = field(default_factory=list)
    absent: list[Left] = field(default_factory=list)

    @property
    def disagree(self) -> int:
        """Items that differ for no cause of the list."""
        return sum(tally.disagree for tally in self.tallies)

    @property
    def checked(self) -> int:
        """All items."""
        return sum(tally.checked for tally in self.tallies)

    @property
    def passed(self) -> bool:
        """Return whether something was compared, and nothing disagrees."""
        return self.checked > 0 and not self.disagree

    @property
    def verdict(self) -> str:
        """The last line."""
        if not self.checked:
            return "nothing of this run could be compared"
        if self.disagree:
            return f"{counted(self.disagree, 'disagreement')} without a known cause"
        return f"all {counted(self.checked, 'comparison')} agree or are explained"

    def text(self) -> str:
        head = ("library", "compared", "checked", "agree", "explained", "disagree")
        rows = [
            (
                tally.library,
                tally.what,
                f"{tally.checked:,}",
                f"{tally.agree:,}",
                f"{sum(tally.explained.values()):,}",
                f"{tally.disagree:,}",
            )
            for tally in self.tallies
        ]
        lines = table(head, rows, left=(0, 1)) if rows else []
        causes: dict[str, int] = {}
        for tally in self.tallies:
            for cause, count in tally.explained.items():
                causes[cause] = causes.get(cause, 0) + count
        if causes:
            lines += ["", "explained:"]
            lines += [f"  {causes[cause]:,} {CAUSES[cause]}" for cause in CAUSES if cause in causes]
        for tally in self.tallies:
            if tally.differences:
                lines += ["", f"{tally.library}, {tally.what}:"]
                lines += [
                    f"  {plain(item, 120)}: {plain(how, 200)}"
                    for item, how in tally.differences[:NAMED]
                ]
                if tally.disagree > NAMED:
                    lines.append(
                        f"  and {tally.disagree - min(NAMED, len(tally.differences)):,} more"
                    )
        if self.skipped:
            lines += ["", "not checked:"]
            lines += [f"  {name}: {plain(why, 300)}" for name, why in self.skipped]
        if self.absent:
            lines += [
                "",
                f"nothing in this run for: {'; '.join(name for name, _ in self.absent)}",
            ]
        lines += ["", self.verdict]
        return "\n".join(lines)


def verify(out: Path, documents: int, seed: int) -> Verification:
    """Compares a finished run with the libraries. UsageError where OUT is none."""
    run = FinishedRun(out, documents, seed)
    verification = Verification(str(out), seed, documents)
    for module, library in CHECKS.items():
        check = importlib.import_module(f"curate.lab.verify.{module}").check
        try:
            verification.tallies += [tally for tally in check(run) if tally.checked]
        except NotInRun as reason:
            verification.absent.append(Left(library, str(reason)))
        except NotChecked as reason:
            verification.skipped.append(Left(library, str(reason)))
    return verification
