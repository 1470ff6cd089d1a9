"""`-o -`: a run whose corpus goes to standard output as JSON lines, and which leaves no folder.

The run works in a folder under TMPDIR, as any run does, so it is as bounded in memory; it cannot
resume. Nothing but documents is on standard output: the outcome is printed to standard error.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from curate.formats.jsonl import json_lines
from curate.run.build import corpus_batches
from curate.run.driver import run_planned
from curate.run.plan import RunPlan
from curate.run.records import Options, Outcome, funnel, json_of, record
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo_json, json_line, tell

NAME = Path("-")  # what stands for it as OUT


def run_to_standard_output(plan: RunPlan, options: Options, as_json: bool) -> Outcome:
    """Runs the plan and writes what it keeps. UsageError where it makes products, or no corpus."""
    if not plan.stages or plan.products:
        raise UsageError("-o - writes a corpus, and this run makes something else: give -o OUT")
    with tempfile.TemporaryDirectory(prefix="llmcurate-out-") as folder:
        outcome = run_planned(plan, Path(folder, "out"), options, lambda *report: lambda: None)
        try:
            for line in json_lines(corpus_batches(outcome.out / "corpus", None)):
                if sys.stdout.isatty():
                    line = json_line(line.decode("utf-8")).encode("utf-8")
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # who reads has had enough; the interpreter must not try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
    if as_json:
        echo_json(json_of(outcome.totals()), sys.stderr)
    elif not options.quiet:
        tell(funnel(record(outcome)))
    return outcome
