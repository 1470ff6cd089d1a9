"""Tasks by the worker processes of an engine, as a resolve maps them."""

from __future__ import annotations

from curate.corpus.sketches import Run
from curate.engines.local import LocalEngine
from curate.run import worker_deaths


def through(engine: LocalEngine) -> Run:
    return lambda function, tasks, result: engine.map(
        function, tasks, result, worker_deaths.retry_once("the test")
    )
