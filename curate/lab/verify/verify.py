"""All comparisons of a run, and their table for the terminal, HTML page and JSON."""

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

# The module of each comparison, and the library that it uses.
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
NAMED = 5  # differences per row that the terminal shows


class Unchecked(NamedTuple):
    library: str
    why: str


@dataclass
class Verification(Findings):
    """The comparisons of a run with other libraries. `skipped` libraries cannot do their check,
    such as those not installed. `absent` libraries have nothing to check in this run."""

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
    skipped: list[Unchecked] = field(default_factory=list)
    absent: list[Unchecked] = field(default_factory=list)

    @property
    def disagree(self) -> int:
        return sum(tally.disagree for tally in self.tallies)

    @property
    def checked(self) -> int:
        return sum(tally.checked for tally in self.tallies)

    @property
    def passed(self) -> bool:
        return self.checked > 0 and not self.disagree

    @property
    def verdict(self) -> str:
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
                f"nothing in this run to check with: {'; '.join(name for name, _ in self.absent)}",
            ]
        lines += ["", self.verdict]
        return "\n".join(lines)


def verify(out: Path, documents: int, seed: int) -> Verification:
    """Return the comparisons of a finished run with other libraries. `documents` is the size of
    each sample and `seed` draws the samples. Raises UsageError if `out` holds no finished run."""
    run = FinishedRun(out, documents, seed)
    verification = Verification(str(out), seed, documents)
    for module, library in CHECKS.items():
        check = importlib.import_module(f"curate.lab.verify.{module}").check
        try:
            verification.tallies += [tally for tally in check(run) if tally.checked]
        except NotInRun as reason:
            verification.absent.append(Unchecked(library, str(reason)))
        except NotChecked as reason:
            verification.skipped.append(Unchecked(library, str(reason)))
    return verification
