"""One worker of the Ray engine: an actor that keeps a worker process of the local engine.

The process is the same as on one machine: its threads, its memory, its answers, the way its death
is told. It loads steps and their models once and keeps them as long as the actor lives, and it ends
with the actor. The actor itself runs no code of a step, so that what kills a worker is seen as it
is on one machine, and is blamed on the same documents.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from curate.engines import ahead
from curate.engines.base import Death, Task, WorkerBug
from curate.engines.local import LocalEngine
from curate.errors import CurateError


class _Died(Exception):
    """Leaves LocalEngine.map after a death; what follows is for the driver to say."""


class Host:
    """environment: variables that decide what steps do, as the driver has them;
    here: the driver's working folder, which relative paths start from."""

    def __init__(self, environment: dict[str, str], here: str) -> None:
        os.environ.update(environment)
        if Path(here).is_dir():
            os.chdir(here)
        ahead.start()  # so that it loads its libraries while others are still being placed
        self._engine = LocalEngine(1)
        self._exchanged = False  # whether its workers have folders of their own

    def hello(self, files: list[str]) -> dict[str, Any]:
        """Who this is, and which of the driver's files cannot be seen from here."""
        from curate.version import __version__

        missing = [f for f in files if not Path(f).exists()]
        return {"version": __version__, "node": socket.gethostname(), "missing": missing}

    def end(self) -> None:
        """Ends the worker process; the actor is of no use afterwards."""
        self._engine.close()
        ahead.stop()
        if self._exchanged:
            from curate.engines.elsewhere import sweep

            sweep()

    def run(self, function: str, task: Task) -> dict[str, Any]:
        """{"result": ..., "cpu": seconds}, {"death": [status, documents]} or {"error": ...} of one
        task."""
        began = self._engine.cpu
        self._exchanged = self._exchanged or "exchange" in task
        deaths: list[Death] = []

        def on_death(task: Task, death: Death) -> Task:
            deaths.append(death)
            raise _Died

        try:
            ((_, result),) = list(self._engine.map(function, [task], on_death))
        except _Died:
            return {"death": [deaths[0].status, deaths[0].documents]}
        except WorkerBug as error:
            return {"error": {"kind": "bug", "message": str(error), "traceback": error.trace}}
        except CurateError as error:
            code = error.exit_code
            return {"error": {"kind": "known", "message": str(error), "code": code}}
        return {"result": result, "cpu": self._engine.cpu - began}
