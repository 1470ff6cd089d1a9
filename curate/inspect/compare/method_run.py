"""One method over one input: a run of its own in OUT/METHOD, in a process of its own.

A process a method, since the most memory that a process has held never falls again. The run is an
ordinary one: it resumes, and has its report.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.engines.worker import end_with
from curate.steps.recipe import Recipe, compose
from llmcurate.base.errors import LlmcurateError, RunFailed, TooMuchGone, UsageError
from llmcurate.base.start import command

MEASURED = "measured.json"


@dataclass(frozen=True)
class Measured:
    """What one method did.

    totals: of the run; documents, bytes: of text that reached the method; seconds, peaks: None
    where the run was done in more than one go; failed: why there is no result; too_much: the share
    that it would have removed where the guard `max_removal` stopped it.
    """

    method: str
    out: Path
    totals: dict[str, Any]
    documents: int = 0
    bytes: int = 0
    seconds: float | None = None
    peak_parent: int | None = None
    peak_worker: int | None = None
    failed: str = ""
    too_much: float | None = None


def recipe_of(method: str, sets: Iterable[str] = ()) -> Recipe:
    """The recipe of `llmcurate dedup --method METHOD`, with those settings that it has."""
    from curate.dedup import methods

    steps = methods.steps_of(method)
    sections = {"read"}
    count: dict[str, int] = {}
    for step, _ in steps:
        count[step] = count.get(step, 0) + 1
        sections.add(step if count[step] == 1 else f"{step}#{count[step]}")
    settings = tuple(s for s in sets if s.partition("=")[0].strip().partition(".")[0] in sections)
    return compose("dedup", steps, settings)


def recipes_of(methods: Iterable[str], sets: Iterable[str]) -> dict[str, Recipe]:
    """The recipes by method; UsageError where one is unknown, or where a setting is of none."""
    names = list(dict.fromkeys(m.strip() for m in methods if m.strip()))
    if not names:
        raise UsageError("--methods: name at least one, as in --methods exact,minhash")
    recipes = {name: recipe_of(name, sets) for name in names}
    labels = {"read", *(s.label for r in recipes.values() for s in r.steps)}
    for item in sets:
        section = item.partition("=")[0].strip().partition(".")[0]
        if section not in labels:
            have = ", ".join(sorted(labels))
            raise UsageError(f"--set {item}: no method has a section {section!r}; known: {have}")
    return recipes


def folder_of(out: Path, method: str) -> Path:
    """Where the run of a method lies."""
    return out / method.replace(" ", "")


def measure(
    method: str, inputs: list[str], sets: tuple[str, ...], out: Path, workers: int, quiet: bool
) -> Measured:
    """Runs the method into `out`, in a process of its own.

    A method that fails is a result too; wrong use and a held lock are not, and raise.
    """
    task = {
        "method": method,
        "inputs": inputs,
        "sets": list(sets),
        "out": str(out),
        "workers": workers,
        "quiet": quiet,
        "parent": os.getpid(),
    }
    done = subprocess.run(
        command("curate.inspect.compare.method_run"),
        input=json.dumps(task).encode(),
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode < 0 or not done.stdout.strip():
        killed = done.returncode == -signal.SIGKILL
        why = "was killed, likely for its memory" if killed else f"ended with {done.returncode}"
        return Measured(method, out, {}, failed=f"the run {why}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer.get("raise"):
        error = UsageError if answer["code"] == 2 else RunFailed
        failure = error(f"{method}: {answer['failed']}")
        failure.exit_code = answer["code"]
        raise failure
    answer.pop("raise", None)
    answer.pop("code", None)
    return Measured(method, out, **answer)


def _run(task: dict[str, Any]) -> dict[str, Any]:
    """In the process of the method: runs it and measures."""
    from curate.run.driver import Options, run_planned
    from curate.run.plan import make_plan
    from llmcurate.base.disk.process import peak_bytes

    out = Path(task["out"])
    fresh = not (out / "ledger.db").exists()
    plan = make_plan(recipe_of(task["method"], task["sets"]), task["inputs"])
    outcome = run_planned(plan, out, Options(task["workers"], task["quiet"]))
    record = out / MEASURED
    first = outcome.stages[0]
    answer: dict[str, Any] = {
        "totals": outcome.totals(),
        "documents": first["kept"],
        "bytes": first["bytes_out"],
    }
    costs: dict[str, Any] = {}
    if fresh:
        costs = {
            "plan": plan.digest,
            "seconds": round(outcome.seconds, 3),
            "peak_parent": peak_bytes(),
            "peak_worker": max(s["peak_bytes"] for s in outcome.stages),
        }
        from llmcurate.base.disk.files import write_text

        write_text(record, json.dumps(costs) + "\n")
    elif outcome.nothing_new and record.exists():
        costs = json.loads(record.read_text(encoding="utf-8"))
    if costs.get("plan") == plan.digest:
        answer |= {k: costs[k] for k in ("seconds", "peak_parent", "peak_worker")}
    else:
        record.unlink(missing_ok=True)
    return answer


def main() -> None:
    """Answers one task from stdin with one line of JSON on stdout."""
    task = json.loads(sys.stdin.read())
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever is printed must not mix with the answer
    end_with(task["parent"])
    try:
        answer = _run(task)
    except TooMuchGone as error:
        answer = {"totals": {}, "failed": str(error), "too_much": error.share}
    except LlmcurateError as error:
        wrong = error.exit_code != 1
        answer = {"totals": {}, "failed": str(error), "raise": wrong, "code": error.exit_code}
    except KeyboardInterrupt:
        os._exit(130)
    os.write(answers, (json.dumps(answer) + "\n").encode())
