"""Deaths of workers: another try, a search for the document, its quarantine.

A signal SIGKILL or SIGTERM comes from outside, most often because memory ran out; it never counts
against a document, since results must not depend on memory pressure. A worker that the engine ended
for taking too long (`read.batch_seconds`) has died of what it worked on.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from typing import Any

from curate.engines.base import OnDeath
from curate.engines.messages import Death
from curate.run.messages import LOADING, READING, StageTask
from curate.run.plan import MapStage, RunPlan
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed
from llmcurate.base.messages import Task
from llmcurate.base.terminal.progress import say

LAST = 1 << 62  # no document has this number
QUARANTINE_LIMIT = 100  # documents of one partition; more is a defect of the program
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)


def _killed(where: str, death: Death) -> RunFailed:
    return RunFailed(
        f"{where}: a worker was killed twice ({death.describe()}), as when memory runs out: use"
        " fewer --workers or a smaller read.batch_bytes and run again, it resumes"
    )


def retry_once(work: str) -> OnDeath[Any]:
    """For work that touches no document alone: each partition is tried twice."""
    seen: Counter[int] = Counter()

    def decide(task: Any, death: Death) -> Any:
        part = task.part if isinstance(task, Task) else task["part"]
        seen[part] += 1
        if seen[part] > 1:
            if death.status in FROM_OUTSIDE:
                raise _killed(f"partition {part} of {work}", death)
            raise RunFailed(f"partition {part} of {work}: a worker died twice ({death.describe()})")
        return task

    return decide


def find_culprit(plan: RunPlan, stage: MapStage, quiet: bool) -> OnDeath[StageTask]:
    """For documents on their way through a stage: after a death the partition runs again with the
    batch in question document by document; a document that kills its worker there as well is
    quarantined, and the partition runs again without it.

    Where the batch took too long, those behind it run so too, for all may be slow; and a document
    must take too long alone twice, since a machine may be held up once."""
    killed: Counter[int] = Counter()
    before: Counter[tuple[int, int]] = Counter()
    alone: Counter[tuple[int, int]] = Counter()
    quarantine: dict[int, dict[int, str]] = {}

    def decide(task: StageTask, death: Death) -> StageTask:
        part = task.part
        how = death.describe()
        if death.status in FROM_OUTSIDE and not death.seconds:
            killed[part] += 1
            if killed[part] > 1:
                raise _killed(f"partition {part} of {stage.folder_name}", death)
            return task
        first, last = death.documents or LOADING
        ending = how if death.seconds else f"died ({how})"
        if first < 0:
            before[part, first] += 1
            if before[part, first] > 1:
                files = {plan.inputs.files[s.file].rel for s in plan.inputs.partitions[part]}
                names = ", ".join(sorted(files)[:3])
                longer = " or set a larger read.batch_seconds," if death.seconds else ""
                raise RunFailed(
                    f"a worker {ending} twice while reading {names}; take that file out{longer} and"
                    " run again"
                    if first == READING[0]
                    else f"a worker {ending} twice before the first document of"
                    f" {stage.folder_name}: see what its steps load"
                )
            return task
        batch = f"document {first}" if first == last else f"documents {first} to {last}"
        batch += f" of partition {part}"
        say(f"a worker {ending} on {batch}; looking for the cause", quiet)
        careful = task.careful
        if not careful or not careful[0] <= first <= last <= careful[1]:
            return replace(task, careful=(first, LAST if death.seconds else last))
        if first < last:
            raise RunFailed(f"{batch} kill their worker together ({how}) but none does alone")
        alone[part, first] += 1
        slow = careful[1] == LAST
        if (death.seconds or slow) and alone[part, first] < 2:
            return task
        held = quarantine.setdefault(part, {})
        held[first] = f"{how} alone, twice" if death.seconds else f"its worker died twice: {how}"
        if len(held) > QUARANTINE_LIMIT:
            raise RunFailed(
                f"more than {counted(QUARANTINE_LIMIT, 'document')} of partition {part} killed"
                f" their workers ({how}): a step is broken, not the documents"
            )
        return replace(task, careful=careful if slow else None, quarantine=held)

    return decide
