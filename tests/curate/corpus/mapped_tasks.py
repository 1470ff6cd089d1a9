"""Run the tasks of a resolve in the worker processes of an engine."""

from __future__ import annotations

from curate.corpus.sketches import Run
from curate.engines.base import retry_once
from curate.engines.local import LocalEngine


def through(engine: LocalEngine) -> Run:
    return lambda function, tasks, result: engine.map(
        function, tasks, result, retry_once("the test")
    )
