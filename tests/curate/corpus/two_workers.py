"""Tasks by two worker processes, which can import the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from curate.corpus.sketches import Run
from curate.engines.local import LocalEngine
from curate.run import deaths
from tests.curate.command_line import environment


@pytest.fixture(scope="module")
def engine(tmp_path_factory) -> Iterator[LocalEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        with LocalEngine(2) as local:
            yield local


def through(engine: LocalEngine) -> Run:
    return lambda function, tasks: engine.map(function, tasks, deaths.retry_once("the test"))
