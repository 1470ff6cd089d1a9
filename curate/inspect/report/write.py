"""The records of a finished run: run.json, recipe.yaml, corrupt.jsonl and report.html."""

from __future__ import annotations

import yaml

from curate.disk.atomic import write_text
from curate.documents.limits import columns_of
from curate.engines.cpu_time import cpu_seconds
from curate.inspect.report import page
from curate.inspect.report.figures import Figures, gather
from curate.run.outcome import Outcome
from curate.run.records import driver_costs, record, write_corrupt, write_record


def write_records(outcome: Outcome, threads: int = 1) -> None:
    """Writes the records of a finished run into its OUT folder; threads: that may count.

    run.json comes first and once more with the report's figures: whatever fails in a report, what
    was counted is there.
    """

    began = cpu_seconds()
    data = record(outcome)
    resolved = outcome.plan.recipe.resolved()
    text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True)
    write_text(outcome.out / "recipe.yaml", text)
    write_corrupt(outcome)
    write_record(outcome.out / "run.json", data)
    try:
        by_date = any(s["settings"].get("survivor") == "newest" for s in data["steps"])
        limits = columns_of(outcome.plan.recipe.document_steps)
        figures = (
            gather(outcome.out, by_date, limits, threads) if outcome.plan.stages else Figures()
        )
        data["figures"] = figures.dump()
    except Exception as error:
        figures = Figures()
        data["notices"].append(f"the report's figures could not be read: {_line(error)}")
    try:
        html = page.render(data, figures)
    except Exception as error:
        data["notices"].append(f"the report could not be written: {_line(error)}")
        html = page.render_failure(data)
    outcome.driver["report"] = cpu_seconds() - began
    data["driver"] = driver_costs(outcome)
    write_record(outcome.out / "run.json", data)
    write_text(outcome.out / "report.html", html)


def _line(error: Exception) -> str:
    """The error in a line of some length."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
