"""Run the stages of a plan: process partitions, assign ids, decide on duplicates. Work that the
ledger records is reused if its files are unchanged. Slow imports happen late, while workers
work."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from threading import Thread
from typing import Any

from curate.corpus import indexes, journal
from curate.corpus.manifests import part_of, part_path
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, SketchedCorpus, lone_here
from curate.engines.base import (
    FROM_OUTSIDE,
    Death,
    Engine,
    OnDeath,
    cpu_seconds,
    killed_twice,
    mapping,
)
from curate.run.ids import ISSUED
from curate.run.intact import Intact
from curate.run.ledger import Ledger
from curate.run.messages import (
    LOADING,
    READING,
    Committed,
    Once,
    Place,
    Resolved,
    ResolveTask,
    Sketched,
    Specification,
    StageResult,
    StageTask,
    StepRecord,
)
from curate.run.plan import MapStage, RunPlan, decisions_path, sketch_kind, stage_folder
from curate.run.records import Options, Outcome, StageRecord, sum_up
from curate.steps.contracts import Prepared, is_ours
from curate.steps.failures import failing
from llmcurate.base.disk.files import check_links, clear_temporary, path_inside, remove, write_text
from llmcurate.base.disk.seals import Seal, SealedPath, fault, seal, sealing
from llmcurate.base.disk.store import current
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import Damaged, RunFailed
from llmcurate.base.terminal import Progress, say

# The module that writes a run's report. Importing it takes a third of a second.
REPORT = "curate.inspect.report.page"
Report = Callable[[Outcome, int, Run, Sizes], Callable[[], None]]


def begin_report(outcome: Outcome, threads: int, run: Run, sizes: Sizes) -> Callable[[], None]:
    """Compute the report's figures. Return the function that writes run.json and the pages."""
    write: Callable[[], None] = importlib.import_module(REPORT).begin_report(
        outcome, threads, run, sizes
    )
    return write


def import_early(decided_by: str | None) -> None:
    """Start a thread that imports modules needed after a stage. `decided_by` is the module whose
    kernels (compiled functions) decide, after the stage, which documents are removed, or None."""
    names = [decided_by] if decided_by else []

    def load() -> None:
        for name in (*names, "duckdb", "jinja2", REPORT):
            with suppress(ImportError):  # the import that needs it will fail with a message
                importlib.import_module(name)
            if name == decided_by and "llmcurate.base.kernels.cache" in sys.modules:
                sys.modules["llmcurate.base.kernels.cache"].prepare()

    Thread(target=load).start()


RESOLVE = "curate.run.decisions:resolve_one_partition"
SKETCH = "curate.run.worker.worker:sketch_partition"


class Stages:
    """Runs the stages of a plan in OUT and makes the decisions after each stage."""

    def __init__(
        self,
        plan: RunPlan,
        out: Path,
        options: Options,
        ledger: Ledger,
        outcome: Outcome,
        intact: Intact,
    ) -> None:
        self.plan, self.out, self.options, self.ledger = plan, out, options, ledger
        self.outcome, self.intact = outcome, intact
        self.parts = len(plan.inputs.partitions)
        self.store = current()

    def run(self, stage: MapStage, engine: Engine, here: Engine) -> None:
        """Run one stage. If a step on the whole corpus (such as dedup) follows it, then decide
        which documents that step removes. `engine` runs the stage's partitions. `here` runs the
        tasks after these, with workers on this machine."""
        folder = stage_folder(self.out, stage.folder_name)
        folder.mkdir(parents=True, exist_ok=True)
        clear_temporary(folder)
        written = self._write_spec(stage, folder)
        unreadable = self._prepare(stage, folder)
        decided_by = stage.sketch.decided_by if stage.sketch else None
        import_early(None if self.decides_in_worker(stage, here) else decided_by)
        self._map(stage, folder, written, engine, here)
        results = (result for _, result in self.ledger.results(stage.key, StageResult))
        record = sum_up(stage, self.plan.inputs, results)
        for corrupt, places in unreadable:  # in files that steps read in addition to the input
            examples = [*record.corrupt_examples, *places]
            record = replace(record, corrupt=record.corrupt + corrupt, corrupt_examples=examples)
        if stage.index == 0:
            limited = self.plan.inputs.documents_of_last is not None
            renamed, cpu = self._once(
                f"{stage.key}:ids",
                folder / "ids.parquet",
                lambda: self._assign_ids(stage, folder, here),
                folder / ISSUED,
            )
            record = replace(record, limited=limited, renamed=renamed, settle_cpu=cpu)
        if stage.sketch:
            record = self._decide(stage, record, here)
        self.ledger.commit_stage(stage.key, Committed(stage.folder_name))
        self.outcome.stages.append(record)

    def _map(
        self,
        stage: MapStage,
        folder: Path,
        written: list[SealedPath],
        engine: Engine,
        here: Engine,
    ) -> None:
        """Run the stage on all partitions that are not recorded as done. Then write the sketches
        (hashes of documents) of partitions that were done before any step needed sketches.

        `engine` runs the partitions; `here` checks on this machine which ones are done. `written`:
        the files that tell workers what the stage does, with size and digest."""
        first = ("ids",) if stage.index == 0 else ()
        done, kept = self._done_parts(here, stage.key, folder, "kept", "keys", "rejected", *first)
        sketched, _ = self._done_parts(here, stage.sketch_key, folder, sketch_kind(stage))
        if 0 in sketched:
            self._remove_partial_resolve(stage)
        before = self.plan.stages[stage.index - 1] if stage.index else None

        def tasks(
            committed: bytearray, source: MapStage | None, shared: list[SealedPath]
        ) -> Iterator[StageTask]:
            none: Iterator[tuple[Any, list[SealedPath]]] = repeat((None, []), self.parts)
            inputs = self.inputs(source, "kept", "keys") if source and 0 in committed else none
            for part, (_, sealed) in enumerate(inputs):
                if not committed[part]:
                    yield StageTask(part, self._spec_path(stage), sealed, shared)

        shared = [*written, *self._shared_files(stage, folder)]
        title, quiet = stage.shown[:24], self.options.quiet
        with Progress(title, self.parts, quiet, done.count(1)) as progress:
            for task, result in engine.map(
                "curate.run.worker.worker:run_partition",
                tasks(done, before, shared),
                StageResult,
                find_culprit(self.plan, stage, self.options.quiet),
            ):
                self.ledger.commit_part(stage.key, task.part, replace(result, sketch_files={}))
                if stage.sketch:
                    sketches = Sketched(result.sketch_files)
                    self.ledger.commit_part(stage.sketch_key, task.part, sketches)
                    sketched[task.part] = 1
                kept += result.kept
                progress.update(note=f"{kept} kept")
        if stage.sketch:
            again = mapping(engine, stage.folder_name)
            missing = tasks(sketched, stage, written[:1])
            for task, sketches in again(SKETCH, missing, Sketched):
                self.ledger.commit_part(stage.sketch_key, task.part, sketches)
        clear_temporary(folder)  # left by workers that died

    def _decide(self, stage: MapStage, record: StageRecord, engine: Engine) -> StageRecord:
        from curate.run.decisions import guard

        assert stage.sketch is not None
        path, workdir = decisions_path(self.out, stage), self._workdir(stage)
        label = stage.sketch.label
        decided, kept = f"{stage.decisions_key}:resolved", f"{stage.folder_key}:own"
        before = self.ledger.stage_result(kept, Committed)
        sealed = before.files if before else {}
        files = [(workdir / name, seal) for name, seal in sealed.items()]
        there = any(map(self.store.holds, (path, workdir, *dict(files))))
        faulty = bool(there and self.intact.faults(files, engine, label))
        if faulty:
            remove(workdir, inside=self.out)
            self.ledger.forget_stage(decided)

        def resolve() -> dict[str, Any]:
            if there and sealed and not faulty:
                self.store.read_all(files)
                journal.write(workdir, sealed)
            self.ledger.forget_stage(kept)  # the folder changes from here on
            try:
                with self.intact.reading(partial(self._sketch_files, stage), engine, label):
                    resolved = self._resolve(stage, record, engine)
                if difference := fault(path, resolved.seal):
                    raise Damaged(f"{path} {difference}")
            except Damaged:  # the remaining files may be made from the damaged one
                remove(workdir, inside=self.out)
                raise
            place = f"{workdir.parent.name}/{workdir.name}"
            finished = journal.finish(workdir)
            self.store.put(*(workdir / name for name in finished))
            self.ledger.commit_stage(kept, Committed(place, finished))
            return resolved.figures

        figures, cpu = self._once(decided, path, resolve)
        if removal := figures.get("removal"):
            guard(stage.sketch, **removal, against=figures.get("against", {}))
        written = {**record.written, "decisions": path.stat().st_size}
        took = {f"{label}: deciding": figures["seconds"]} if "seconds" in figures else {}
        return replace(
            record,
            written=written,
            seconds=record.seconds | took,
            decides=label,
            decided=figures,
            decided_cpu=cpu,
        )

    def _remove_partial_resolve(self, stage: MapStage) -> None:
        if stage.sketch and not self.ledger.has(f"{stage.folder_key}:own"):
            remove(self._workdir(stage), inside=self.out)

    def inputs(
        self, stage: MapStage, *kinds: str
    ) -> Iterator[tuple[StageResult, list[SealedPath]]]:
        """Yield each partition's result in a stage and its files of the given kinds. Each file is
        [path, seal (size and digest)]. Raises Damaged if the ledger lacks a partition."""
        folder = stage_folder(self.out, stage.folder_name)
        rows = self.ledger.results(stage.key, StageResult)
        for part in range(self.parts):
            row = next(rows, None)
            if row is None or row[0] != part:
                raise Damaged(f"{self.ledger.path} has a damaged row")
            result, files = row[1], row[1].files
            paths = {kind: str(part_path(folder, part, kind)) for kind in kinds if kind in files}
            yield result, [[path, files[kind]] for kind, path in paths.items()]

    def sealed_file(self, key: str, path: Path) -> list[SealedPath]:
        """Return [[path, [size, digest]]] if the ledger has the file under this key, else []."""
        done = self.ledger.stage_result(key, Committed)
        return [[str(path), done.files[path.name]]] if done and path.name in done.files else []

    def decisions_file(self, stage: MapStage) -> list[SealedPath]:
        return self.sealed_file(f"{stage.decisions_key}:resolved", decisions_path(self.out, stage))

    def ids_file(self) -> list[SealedPath]:
        first = self.plan.stages[0]
        folder = stage_folder(self.out, first.folder_name)
        return self.sealed_file(f"{first.key}:ids", folder / "ids.parquet")

    def _shared_files(self, stage: MapStage, folder: Path) -> list[SealedPath]:
        shared: list[SealedPath] = []
        for step in stage.steps:
            if isinstance(step, Prepared) and (file := step.prepared(folder)) is not None:
                shared += self.sealed_file(f"{stage.key}:{step.label}", file)
        if stage.index == 1:
            shared += self.ids_file()
        if stage.apply:
            shared += self.decisions_file(self.plan.stages[stage.index - 1])
        return shared

    def _sketch_files(self, stage: MapStage) -> Iterator[tuple[Path, Seal]]:
        folder = stage_folder(self.out, stage.folder_name)
        for part, result in self.ledger.results(stage.sketch_key, Sketched):
            for kind, sealed in result.files.items():
                yield part_path(folder, part, kind), sealed
        if stage.index == 0:
            yield from ((Path(path), sealed) for path, sealed in self.ids_file())

    def _prepare(self, stage: MapStage, folder: Path) -> list[tuple[int, list[Place]]]:
        results = []
        for step in stage.steps:
            if isinstance(step, Prepared) and (file := step.prepared(folder)) is not None:
                work = partial(step.prepare, file)
                with failing(step.label):
                    results.append(self._once(f"{stage.key}:{step.label}", file, work)[0])
        return results

    def _done_parts(
        self, engine: Engine, key: str, folder: Path, *kinds: str
    ) -> tuple[bytearray, int]:
        """Return a bytearray with 1 for each done partition whose files are unchanged, and the
        number of documents that these partitions kept. Remove all other partitions from the ledger.
        """
        done = bytearray(self.parts)
        missing_count = 0

        def sealed() -> Iterator[tuple[Path, Seal]]:
            nonlocal missing_count
            for part, result in self.ledger.results(key, Sketched) if key else ():
                paths = (part_path(folder, part, kind) for kind in kinds)
                if part < self.parts and all(map(self.store.holds, paths)):
                    done[part] = 1
                    for kind, sealed in result.files.items():
                        yield part_path(folder, part, kind), sealed
                else:
                    missing_count += 1
                    self.ledger.forget_part(key, part)

        most = self.parts * len(kinds)
        for path in self.intact.faults(sealed(), engine, folder.name, most):
            part = part_of(Path(path))
            done[part] = 0
            self.ledger.forget_part(key, part)
        if missing_count:
            parts = counted(missing_count, "partition")
            say(f"{folder}: computing missing files of {parts} again", self.options.quiet)
        rows = self.ledger.results(key, StageResult) if any(done) and "kept" in kinds else ()
        kept = sum(result.kept for _, result in rows)
        return done, kept

    def _write_spec(self, stage: MapStage, folder: Path) -> list[SealedPath]:
        first = stage.index == 0
        before = None if first else self.plan.stages[stage.index - 1]
        previous = Path(before.folder_name) if before else None
        later = (step for s in self.plan.stages[stage.index + 1 :] for step in (*s.steps, s.sketch))
        with sealing() as of_plan:
            plan = self.plan.inputs.write(folder) if first else None
        spec = Specification(
            read=self.plan.recipe.read,
            steps=tuple(map(StepRecord.of, stage.steps)),
            input=previous,
            plan=plan,
            ids=previous / "ids.parquet" if previous and stage.index == 1 else None,
            apply=StepRecord.of(stage.apply) if stage.apply else None,
            decisions=previous / decisions_path(self.out, before).name
            if previous and before and stage.apply
            else None,
            sketch=StepRecord.of(stage.sketch) if stage.sketch else None,
            sketch_kind=sketch_kind(stage),
            later=tuple(StepRecord.for_rehearsal(s) for s in later if s is not None and is_ours(s)),
            of=sum(len(stage.labels) for stage in self.plan.stages),
            own=self.plan.inputs.own,
            columns=self.plan.recipe.columns if stage is self.plan.stages[-1] else (),
        )
        with sealing() as written:
            write_text(self._spec_path(stage), spec.to_json().decode())
        self.store.put(*(Path(path) for path, _ in (*written, *of_plan)))
        return [*written, *of_plan]

    def _spec_path(self, stage: MapStage) -> Path:
        folder = stage_folder(self.out, stage.folder_name)
        return folder / f"stage{stage.decisions_key and '-' + stage.decisions_key}.json"

    def _once(
        self, key: str, file: Path, work: Callable[[], Any], *beside: Path
    ) -> tuple[Any, float]:
        """Return (result of `work`, its CPU seconds), from the ledger if possible. Call `work` only
        if its result is not recorded, or if its files are missing or changed. `work` always writes
        `file`, and may write the files in `beside`."""
        entry = self.ledger.stage_result(key, Once)
        if entry is not None and self.store.holds(file):
            sealed = [(file.with_name(n), made) for n, made in entry.files.items()]
            if not self.intact.faults(sealed):
                self.store.read_all(sealed)
                return entry.value, entry.cpu
        began = cpu_seconds()
        with sealing() as seals_made:
            value = work()
        seals: dict[str, Seal] = dict(seals_made)
        paths = [path for path in (file, *beside) if path.exists()]
        files = {path.name: seals.get(str(path)) or seal(path) for path in paths}
        cpu = round(cpu_seconds() - began, 3)
        self.store.put(*paths)
        self.ledger.commit_stage(key, Once(file.parent.name, files, value, cpu))
        return value, cpu

    def _assign_ids(self, stage: MapStage, folder: Path, engine: Engine) -> int:
        from curate.run.ids import assign_ids

        self._remove_partial_resolve(stage)

        def id_files() -> Iterator[tuple[Path, Seal]]:
            for _, files in self.inputs(stage, "ids"):
                yield from ((Path(path), sealed) for path, sealed in files)

        run, sizes = mapping(engine, "assigning ids"), self.options.sizes
        with self.intact.reading(id_files, engine, "ids"):
            return assign_ids(self.plan.inputs, folder, self.plan.earlier, run, sizes)

    def _workdir(self, stage: MapStage) -> Path:
        folder = path_inside(
            stage_folder(self.out, stage.folder_name), f"resolve-{stage.folder_key}"
        )
        check_links(folder)
        return folder

    def _corpus(self, stage: MapStage) -> SketchedCorpus:
        folder = stage_folder(self.out, stage.folder_name)
        return SketchedCorpus(folder, self.parts, sketch_kind(stage), stage.index == 0)

    def _resolve(self, stage: MapStage, record: StageRecord, engine: Engine) -> Resolved:
        from curate.run.decisions import resolve

        assert stage.sketch is not None
        label = stage.sketch.label
        say(f"{label}: deciding over the whole corpus", self.options.quiet)
        before = engine.cpu
        corpus, workdir = self._corpus(stage), self._workdir(stage)
        decisions, size = decisions_path(self.out, stage), (record.kept, record.bytes_out)
        mapped = mapping(engine, label)
        if self.decides_in_worker(stage, engine):
            spec, sizes = self._spec_path(stage), self.options.sizes
            task = ResolveTask(0, spec, workdir, decisions, size, sizes, corpus.ids_changed)
            ((_, resolved),) = mapped(RESOLVE, [task], Resolved)
        else:
            workers = self.options.count()
            resolved = resolve(
                stage.sketch,
                corpus,
                workdir,
                decisions,
                size,
                workers,
                lone_here(mapped),
                self.options.sizes,
            )
        tasks_cpu = round(engine.cpu - before, 3)
        return replace(resolved, figures={**resolved.figures, "tasks_cpu": tasks_cpu})

    def decides_in_worker(self, stage: MapStage, engine: Engine) -> bool:
        """Return True if a worker decides which documents are removed after the stage. This holds
        if there is one partition, no earlier corpus, and a local engine. The worker decides because
        it has already loaded the kernels (compiled functions)."""
        step = stage.sketch
        alone = step is not None and not step.earlier()
        return alone and self.parts == 1 and engine.here

    def seals(self, stage: MapStage) -> dict[str, Seal]:
        """Return {path: seal (size, digest)} for the files of a stage's index (data on documents,
        for later runs to compare with), as recorded in the ledger."""
        folder, workdir = stage_folder(self.out, stage.folder_name), self._workdir(stage)
        seals: dict[str, Seal] = {}
        for part, result in self.ledger.results(stage.sketch_key, Sketched):
            files = result.files.items()
            seals |= {str(part_path(folder, part, kind)): seal for kind, seal in files}
        for key, home in ((f"{stage.key}:ids", folder), (f"{stage.folder_key}:own", workdir)):
            if (done := self.ledger.stage_result(key, Committed)) is not None:
                seals |= {str(home / name): seal for name, seal in done.files.items()}
        return seals

    def indexes(self) -> list[indexes.IndexedStep]:
        """Return the indexes that the dedup steps leave in OUT for later runs to compare with."""
        return [
            indexes.IndexedStep(
                indexes.Comparable(step.name, step.label, step.version, step.comparable()),
                stage.folder_key,
                self._corpus(stage),
                self._workdir(stage),
                step.leaves(),
                partial(self.seals, stage),
            )
            for stage in self.plan.stages
            if (step := stage.sketch) is not None
        ]


LAST = 1 << 62  # above the number of any document
QUARANTINE_LIMIT = 100  # documents per partition; more means that a step is broken


def find_culprit(plan: RunPlan, stage: MapStage, quiet: bool) -> OnDeath[StageTask]:
    """Return a function that decides what to run again after a worker died.

    After a death from outside (such as lack of memory), the partition runs again once. After any
    other death, the partition also runs again, but the documents of the batch in which the worker
    died run one at a time. If one of them kills its worker again, or exceeds `read.batch_seconds`,
    it is quarantined, and the partition runs again without it.

    If a batch was too slow, the batches after it also run one document at a time, and a document
    must be too slow twice before it is quarantined, because a machine may stall once."""
    outside_deaths: Counter[int] = Counter()
    early_deaths: Counter[tuple[int, int]] = Counter()
    single_deaths: Counter[tuple[int, int]] = Counter()
    quarantine: dict[int, dict[int, str]] = {}

    def decide(task: StageTask, death: Death) -> StageTask:
        part = task.part
        cause = death.describe()
        if death.status in FROM_OUTSIDE and not death.seconds:
            outside_deaths[part] += 1
            if outside_deaths[part] > 1:
                raise killed_twice(f"partition {part} of {stage.folder_name}", death)
            return task
        first, last = death.documents or LOADING
        ending = cause if death.seconds else f"died ({cause})"
        if first < 0:
            early_deaths[part, first] += 1
            if early_deaths[part, first] > 1:
                files = {plan.inputs.files[s.file].rel for s in plan.inputs.partitions[part]}
                names = ", ".join(sorted(files)[:3])
                longer = " or set a larger read.batch_seconds," if death.seconds else ""
                raise RunFailed(
                    f"a worker {ending} twice while reading {names}; take that file out{longer} and"
                    " run again"
                    if first == READING[0]
                    else f"a worker {ending} twice before the first document of"
                    f" {stage.folder_name}: check the models and modules that its steps load"
                )
            return task
        batch = f"document {first}" if first == last else f"documents {first} to {last}"
        batch += f" of partition {part}"
        say(f"a worker {ending} on {batch}; searching for the document", quiet)
        careful = task.careful
        if not careful or not careful[0] <= first <= last <= careful[1]:
            # Run these documents one at a time; after a slow batch also all later ones.
            return replace(task, careful=(first, LAST if death.seconds else last))
        if first < last:
            raise RunFailed(f"{batch} kill their worker together ({cause}) but none does alone")
        single_deaths[part, first] += 1
        slow = careful[1] == LAST
        if (death.seconds or slow) and single_deaths[part, first] < 2:
            return task
        quarantined = quarantine.setdefault(part, {})
        reason = f"{cause} alone, twice" if death.seconds else f"its worker died twice: {cause}"
        quarantined[first] = reason
        if len(quarantined) > QUARANTINE_LIMIT:
            raise RunFailed(
                f"more than {counted(QUARANTINE_LIMIT, 'document')} of partition {part} killed"
                f" their workers ({cause}): a step is broken, not the documents"
            )
        return replace(task, careful=careful if slow else None, quarantine=quarantined)

    return decide
