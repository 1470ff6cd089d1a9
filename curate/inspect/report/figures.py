"""The figures behind a report, counted from the files in OUT.

`Figures.dump` is what run.json keeps; texts of documents stay out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from curate.inspect.report import ages, duplicates, languages, rules
from curate.inspect.report.ages import Ages
from curate.inspect.report.duplicates import Method
from curate.inspect.report.languages import Unsure
from curate.inspect.report.rules import Example, RuleFigures
from curate.inspect.report.store import opened


@dataclass
class Figures:
    """Everything that is counted; languages: label -> (kept, rejected)."""

    rules: RuleFigures = field(default_factory=RuleFigures)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    duplicates: list[Method] = field(default_factory=list)
    languages: dict[str, tuple[int, int]] = field(default_factory=dict)
    unsure: list[Unsure] = field(default_factory=list)
    ages: Ages | None = None

    def dump(self) -> dict[str, Any]:
        """As JSON values, without texts."""
        return {
            **self.rules.dump(),
            "duplicates": {m.name: m.dump() for m in self.duplicates},
            **({"ages": self.ages.dump()} if self.ages else {}),
            "languages": {k: {"kept": a, "rejected": b} for k, (a, b) in self.languages.items()},
            **({"unsure": {u.lang: u.dump() for u in self.unsure}} if self.unsure else {}),
        }


def gather(
    out: Path,
    by_date: bool = False,
    declared: Mapping[str, str] = MappingProxyType({}),
    threads: int = 1,
) -> Figures:
    """Reads a finished run's corpus/, rejected/ and decisions.parquet; memory is bounded.

    by_date: a dedup chose by date, so that ages are of interest; declared: rule to the column that
    it looks at; threads: that may count, which changes nothing else.
    """
    figures = Figures()
    with opened(out, threads=threads) as store:
        if store is None:
            return figures
        figures.rules = rules.gather(store, declared)
        figures.examples = rules.gather_examples(store, figures.rules.rules)
        figures.duplicates = duplicates.gather(store)
        figures.languages = languages.count_languages(store)
        figures.unsure = languages.gather(store)
        if by_date:
            figures.ages = ages.gather(store)
    return figures
