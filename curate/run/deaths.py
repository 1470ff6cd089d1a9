"""Deaths of workers: another try, a search for the document, its quarantine.

A signal SIGKILL or SIGTERM comes from outside, most often because memory ran out; it never counts
against a document, since results must not depend on memory pressure.
"""

from __future__ import annotations

import signal
from collections import Counter

from curate.disk.units import counted
from curate.engines.base import Death, OnDeath, Task
from curate.errors import RunFailed
from curate.run.plan import MapStage, RunPlan
from curate.terminal.progress import say

QUARANTINE_LIMIT = 100  # documents of one partition; more is a defect of the program
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)


def _killed(where: str, death: Death) -> RunFailed:
    return RunFailed(
        f"{where}: a worker was killed twice ({death.describe()}), as when memory runs out: use"
        " fewer --workers or a smaller read.batch_bytes and run again, it resumes"
    )


def retry_once(work: str) -> OnDeath:
    """For work that touches no document alone: each partition is tried twice."""
    seen: Counter[int] = Counter()

    def decide(task: Task, death: Death) -> Task:
        part = task["part"]
        seen[part] += 1
        if seen[part] > 1:
            if death.status in FROM_OUTSIDE:
                raise _killed(f"partition {part} of {work}", death)
            raise RunFailed(f"partition {part} of {work}: a worker died twice ({death.describe()})")
        return task

    return decide


def find_culprit(plan: RunPlan, stage: MapStage, quiet: bool) -> OnDeath:
    """For documents on their way through a stage: after a death the partition runs again with the
    batch in question document by document; a document that kills its worker there as well is
    quarantined, and the partition runs again without it."""
    killed: Counter[int] = Counter()
    reading: Counter[int] = Counter()
    quarantine: dict[int, dict[str, str]] = {}

    def decide(task: Task, death: Death) -> Task:
        part = task["part"]
        how = death.describe()
        if death.status in FROM_OUTSIDE:
            killed[part] += 1
            if killed[part] > 1:
                raise _killed(f"partition {part} of {stage.folder_name}", death)
            return task
        if death.documents is None or death.documents[0] < 0:
            reading[part] += 1
            if reading[part] > 1:
                files = {plan.inputs.files[s.file].rel for s in plan.inputs.partitions[part]}
                names = ", ".join(sorted(files)[:3])
                raise RunFailed(
                    f"a worker died twice ({how}) while reading {names}; take that file out and"
                    " run again"
                )
            return task
        first, last = death.documents
        say(f"a worker died ({how}); looking for the cause", quiet)
        if task.get("careful") and first == last:
            held = quarantine.setdefault(part, {})
            held[str(first)] = f"its worker died twice: {how}"
            if len(held) > QUARANTINE_LIMIT:
                raise RunFailed(
                    f"more than {counted(QUARANTINE_LIMIT, 'document')} of partition {part}"
                    " killed their"
                    f" workers ({how}): a step is broken, not the documents"
                )
            return {**task, "careful": None, "quarantine": held}
        if task.get("careful") == [first, last]:
            raise RunFailed(
                f"documents {first} to {last} of partition {part} kill their worker together"
                f" ({how}) but none does alone"
            )
        return {**task, "careful": [first, last]}

    return decide
