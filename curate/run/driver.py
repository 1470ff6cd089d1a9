"""The driver of a run computes stages, assembles the corpus, builds products and writes records.
Every unit of work is written to a temporary file, synced, renamed, and then recorded in the ledger.
A killed run therefore continues with the missing units and ends with the same bytes."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from curate.corpus import indexes, manifests
from curate.engines.base import Engine, Jobs, check_engine, mapping
from curate.run import assemble
from curate.run.build import build_product, check_made, restart_out
from curate.run.intact import Intact, changed_after, corpus_seals, finished_files, newest
from curate.run.ledger import RUN, Ledger
from curate.run.messages import Assembled, AssembleTask, Built, CorpusRecord
from curate.run.plan import (
    EarlierDocuments,
    MapStage,
    RunPlan,
    check_code,
    check_out,
    decisions_path,
    make_plan,
    stage_folder,
)
from curate.run.records import Options, Outcome, RunRecord, Upload, read_record
from curate.run.stages import Report, Stages, begin_report
from curate.steps.recipe import Recipe
from llmcurate.base.disk.files import (
    clear_temporary,
    make_folder,
    paths_inside,
    remove,
    remove_files,
    scratch_of,
    url_of,
)
from llmcurate.base.disk.process import cores
from llmcurate.base.disk.seals import Seal, seal
from llmcurate.base.disk.store import (
    LEDGER,
    LIST,
    LOCAL,
    Mirror,
    Store,
    current,
    publish,
    using,
    verify,
)
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import Damaged, RunFailed, UsageError, disk_error, set_error_file
from llmcurate.base.terminal import Progress, prompt_interrupt, say

ASSEMBLE = "curate.run.assemble:assemble_partition"
CORPUS = "corpus"  # key of the ledger's row on corpus/ and rejected/


def run_planned(
    plan: RunPlan, out: Path, options: Options, report: Report = begin_report
) -> Outcome:
    """Run a plan in the folder `out`. Continue an unfinished run and reuse finished stages.
    `report` is called when the corpus is finished; it computes figures and returns a function that
    writes run.json and the report's pages."""
    check_engine(options.engine, options.address, options.slurm)
    check_code(plan.recipe, options.allow_python)
    if options.engine == "local" and options.workers > cores():
        cpus = counted(cores(), "core")
        say(f"{options.workers} workers on {cpus}: more than one per core is slower", options.quiet)
    for notice in plan.inputs.notices:
        say(notice, options.quiet)
    check_out(plan, out)
    if options.restart:
        restart_out(plan, out, options)
    try:
        ledger = Ledger(plan.home(out))
        try:
            if options.restart is not None:
                check_made(plan, out, ledger, offered=not options.published)
            with prompt_interrupt():
                return _Run(plan, out, options, ledger).execute(report)
        finally:
            ledger.close()
    except sqlite3.DatabaseError as error:
        raise RunFailed(
            f"{plan.home(out) / Ledger.file} is damaged ({error}): move it away to start afresh"
        ) from None
    except OSError as error:
        set_error_file(error, out)
        raise disk_error(error) or error from None


def make_index(earlier: EarlierDocuments, options: Options) -> None:
    """Make the index of earlier documents (the setting `against` of a dedup step) unless it exists,
    and pass it to the step. The step runs alone over these documents, in a folder of the cache that
    is named by a digest of input and settings. At the end, only the index is kept."""
    folder, key = earlier.index.folder, earlier.index.digest
    out = folder.parent.parent
    if not indexes.is_complete(folder, key):
        remove(folder, inside=out)
        say(f"{earlier.against}: making an index of its documents, once", options.quiet)
        alone = replace(options, restart=None, published=False)
        if options.published:  # other machines do not see the cache of this one
            alone = replace(alone, engine="local", address=None, slurm=())
        with using(LOCAL):
            totals = run_planned(earlier.plan, out, alone, lambda *report: lambda: None).totals()
        say(f"{earlier.against}: {counted(totals.read, 'document')} indexed", options.quiet)
    for path in out.iterdir():
        if path.name != indexes.FOLDER:
            remove(path, inside=out)
    record = indexes.record_of(folder)
    if record is None:
        raise RunFailed(f"{folder} is damaged; run again to rebuild it")
    earlier.step.take_index(earlier.against, replace(earlier.index, record=record))


class _Run:
    def __init__(self, plan: RunPlan, out: Path, options: Options, ledger: Ledger) -> None:
        self.plan, self.out, self.options, self.ledger = plan, out, options, ledger
        self.home = plan.home(out)
        self.store = current()
        self.outcome = Outcome(out, plan)
        self.intact = Intact(options)
        self.stages = Stages(plan, out, options, ledger, self.outcome, self.intact)
        self.parts = len(plan.inputs.partitions)
        self._corpus_checked_at = 0  # when the existing corpus was last compared, in ns; 0: never

    def execute(self, report: Report) -> Outcome:
        """Compute what is missing or load a finished run's record. Return the outcome."""
        start = time.perf_counter()
        last = self.ledger.last_run()
        if last == (self.plan.digest, True) and self._restore():
            self.outcome.nothing_new = True
            return self.outcome
        if last and last[0] != self.plan.digest:
            self._report_reuse()
        elif last and not last[1]:
            say(f"resuming the unfinished run in {self.out}", self.options.quiet)
        self.ledger.begin_run(self.plan.digest)
        while True:
            try:
                write = self._compute(report)
                self.outcome.seconds = time.perf_counter() - start
                with self.intact.reading(self._changed_files):
                    write()
                steps = [stage.sketch for stage in self.plan.stages if stage.sketch is not None]
                leaves = [self.out / name for step in steps for name in step.leaves()]
                built = (self.ledger.stage_result(stage.key, Built) for stage in self.plan.products)
                seals = {name: seal for b in built if b for name, seal in b.seals.items()}
                sealed = finished_files(self.out, self.home, seals, leaves)
                self.ledger.record_files(sealed)
                break
            except Damaged as damage:
                self._prepare_retry(damage)
            except FileNotFoundError as error:
                if not error.filename or self.out not in Path(error.filename).parents:
                    raise
                self._prepare_retry(Damaged(f"{error.filename} is missing"))
        self.ledger.forget_parts(f"{self.plan.corpus_key}:assembled")
        self.ledger.end_run()
        return self.outcome

    def _compute(self, report: Report) -> Callable[[], None]:
        clear_temporary(self.home)
        assemble.clear_unfinished(self.home)
        for documents in self.plan.against:
            make_index(documents, self.options)
        apart = self.store.url and self.options.engine != "local"
        with (
            self._engine() as engine,
            self._engine("local") if apart else nullcontext(engine) as here,
        ):
            for stage in self.plan.stages:
                self.stages.run(stage, engine, here)
            if self.plan.stages:
                self._write_corpus(engine, here)
                made = self.stages.indexes()
                if self.store.url and not indexes.all_written(self.out, made):
                    for step in made:
                        self.store.read_all((Path(p), s) for p, s in step.seals().items())
                indexes.write_indexes(self.out, made)
            with self.intact.reading(lambda: self._changed_files(products=False)):
                if self.plan.stages:
                    self.outcome.kept_ids = manifests.kept_ids(self.out)
                before, run = here.cpu, mapping(here, "the report")
                write = report(self.outcome, self.options.count(), run, self.options.sizes)
                self.outcome.driver["report, in workers"] = here.cpu - before
        if self.plan.products:
            self._build_products()
        return write

    def _engine(self, name: str = "") -> Engine:
        options = self.options
        inputs = [f.path for f in self.plan.inputs.files if "://" not in f.path]
        return open_engine(
            name or options.engine,
            None if name else options.address,
            (options.workers, options.count()),
            self.parts,
            self.ledger.beat,
            Jobs(options.slurm, self.home, options.quiet, self.store),
            inputs[:1],
        )

    def _write_corpus(self, engine: Engine, here: Engine) -> None:
        key = self.plan.corpus_key
        folders = [stage_folder(self.out, s.folder_name) for s in self.plan.stages]
        decided = [decisions_path(self.out, s) for s in self.plan.stages if s.sketch]
        if self._has_corpus(key):
            # File times can lag behind the clock.
            self._corpus_checked_at = time.time_ns() - 1_000_000_000
            entry = self.ledger.stage_result(CORPUS, CorpusRecord)
            same = entry is not None and entry.key == key
            if entry and same and self.intact.corpus_is_intact(self.out, entry.files, here):
                return
        self.ledger.forget_stage(CORPUS)
        self._corpus_checked_at = 0
        names = [".corpus-new", ".rejected-new"]
        if self.store.url:  # which cannot rename: parts get final names, manifests come last
            names = [*manifests.FOLDERS]
            beside = [manifests.manifest_path(self.out / name) for name in names]
            self.store.delete([LIST, *(path.name for path in beside)])
            remove_files(beside, inside=self.out)
        corpus, rejected = (self.out / name for name in names)
        for folder in (corpus, rejected):
            remove(folder, inside=self.out)
            folder.mkdir()
        last, sole = self.plan.stages[-1], len(folders) == 1
        kinds = {last.key: ("rejected", "kept", "keys") if sole else ("rejected", "kept")}
        inputs = [self.stages.inputs(s, *kinds.get(s.key, ("rejected",))) for s in self.plan.stages]
        ids = self.stages.ids_file()
        with self.intact.reading(lambda: self._first_rejected(self.plan.stages)):
            schema = assemble.rejected_schema(folders)
        assembled = f"{key}:assembled"
        self.ledger.forget_parts(assembled)  # left by a killed run, whose files have been removed
        tasks = (
            AssembleTask(
                part,
                tuple(folders),
                ids=folders[0] / "ids.parquet",
                corpus=corpus,
                rejected=rejected,
                schema=schema,
                kept_bytes=of_part[-1][0].bytes_out,
                own=self.plan.inputs.own,
                sealed=[file for _, files in of_part for file in files],
                shared=ids,
            )
            for part, of_part in enumerate(zip(*inputs, strict=True))
        )
        cpu, documents = 0.0, Counter[str]()
        with Progress("assemble", self.parts, self.options.quiet) as progress:
            for task, result in mapping(engine, "the assembly")(ASSEMBLE, tasks, Assembled):
                self.ledger.commit_part(assembled, task.part, result)
                cpu += result.cpu
                documents["kept"] += int(result.kept["documents"])
                documents["rejected"] += int(result.rejected["documents"])
                progress.update()
        self.outcome.driver["assembling"] = cpu
        self._check_counts(documents)
        seals_beside: dict[str, Seal] = {}  # seals of the manifests and the decisions
        if decided:
            with self.intact.reading(self._decision_files):
                assemble.write_decisions(decided, self.out / "decisions.parquet")
                seals_beside["decisions.parquet"] = seal(self.out / "decisions.parquet")
        else:
            (self.out / "decisions.parquet").unlink(missing_ok=True)
        for kind, aside, name in (("rejected", rejected, "rejected"), ("kept", corpus, "corpus")):
            if not self.store.url:
                assemble.swap(aside, self.out / name)
            results = self.ledger.results(assembled, Assembled)
            files = (r.kept if kind == "kept" else r.rejected for _, r in results)
            manifests.write_manifest(self.out / name, files, key)
            path = manifests.manifest_path(self.out / name)
            seals_beside[path.name] = seal(path)
        self._offer(seals_beside)
        at = newest(self.out / name for name in seals_beside)
        self.ledger.commit_stage(CORPUS, CorpusRecord(key, seals_beside, at))

    def _offer(self, beside: Iterable[str]) -> None:
        """Upload the files of OUT that `beside` names, if OUT is remote. First delete the files of
        an earlier corpus from the remote store."""
        if self.store.url:
            self.store.relist()
            for name in manifests.FOLDERS:
                parts = {f"{name}/{file}" for file, _ in manifests.entries(self.out / name)}
                there = {n for n in self.store.listing if n.startswith(f"{name}/")}
                self.store.delete(there - parts)
            self.store.put(*(self.out / name for name in beside))

    def _build_products(self) -> None:
        if self.plan.stages and (corpus := self.ledger.stage_result(CORPUS, CorpusRecord)):
            verify([str(self.out / name), of] for name, of in corpus.files.items())
        for stage in self.plan.products:
            before = {k: self.plan.products[i] for k, i in stage.inputs.items()}
            record = build_product(
                self.plan,
                stage,
                before,
                (self.out, self.home),
                self.ledger,
                self.intact,
            )
            self.outcome.products.append(record)

    def _restore(self) -> bool:
        if self.store.url and LIST not in self.store.listing:
            return False
        if self.intact.changed_since(self.out, self.ledger):
            return False
        path = self.home / "run.json"
        records = [self.home / name for name in ("run.json", "recipe.yaml", "report.html")]
        records += indexes.needed(self.out, self.stages.indexes()) if self.store.url else []
        if not all(map(self.store.holds, records)):
            return False
        for file in records:
            self.store.read(file)
        if self.plan.stages and not self._has_corpus(self.plan.corpus_key):
            return False
        if self.plan.stages and not indexes.all_written(self.out, self.stages.indexes()):
            return False
        record = RunRecord.of(read_record(self.home))
        for product in record.products:
            if not all(map(self.store.holds, paths_inside(self.out, product["files"], path))):
                return False
        self.outcome.stages, self.outcome.products = record.stages, record.products
        self.outcome.seconds = record.totals.seconds
        if self.plan.stages:
            self.outcome.kept_ids = manifests.kept_ids(self.out)
        return True

    def _report_reuse(self) -> None:
        names = [(s.key, s.shown) for s in self.plan.stages]
        names += [(p.key, p.product.label) for p in self.plan.products]
        again = [n for key, n in names if not self.ledger.has(key)]
        kept = [n for key, n in names if self.ledger.has(key)]
        if kept:
            say(f"reused as they are: {', '.join(kept)}", self.options.quiet)
        if again:
            say(f"settings or input changed, so run again: {', '.join(again)}", self.options.quiet)

    def _prepare_retry(self, damage: Damaged) -> None:
        self.intact.record_damage(damage)
        self.store.trusted = False
        self.store.relist()
        self.outcome = Outcome(self.out, self.plan)
        self.stages.outcome = self.outcome

    def _first_rejected(self, stages: list[MapStage]) -> Iterator[tuple[Path, Seal]]:
        for stage in stages:
            for path, sealed in next(self.stages.inputs(stage, "rejected"))[1]:
                yield Path(path), sealed

    def _decision_files(self) -> Iterator[tuple[Path, Seal]]:
        for stage in self.plan.stages:
            if stage.sketch:
                for path, sealed in self.stages.decisions_file(stage):
                    yield Path(path), sealed

    def _changed_files(self, products: bool = True) -> Iterator[tuple[Path, Seal]]:
        for _, made in self.ledger.results(f"{self.plan.corpus_key}:assembled", Assembled):
            for folder, record, at in (
                ("corpus", made.kept, made.kept_changed),
                ("rejected", made.rejected, made.rejected_changed),
            ):
                path = self.out / folder / str(record["name"])
                yield from changed_after(at, [(path, [None, record["sha256"]])])
        if self._corpus_checked_at:
            yield from changed_after(self._corpus_checked_at, corpus_seals(self.out))
        if corpus := self.ledger.stage_result(CORPUS, CorpusRecord):
            yield from changed_after(
                corpus.at, ((self.out / f, s) for f, s in corpus.files.items())
            )
        for product in self.plan.products if products else ():
            if built := self.ledger.stage_result(product.key, Built):
                sealed = ((self.out / file, of) for file, of in built.seals.items())
                yield from changed_after(built.at, sealed)

    def _has_corpus(self, key: str) -> bool:
        decided = any(s.sketch for s in self.plan.stages)
        if decided and not self.store.holds(self.out / "decisions.parquet"):
            return False
        for name in manifests.FOLDERS:
            if self.store.lacks(path := manifests.manifest_path(self.out / name)):
                self.store.read(path)
        return all(
            manifests.is_complete(self.out / name, key, self.store.holds)
            for name in manifests.FOLDERS
        )

    def _check_counts(self, documents: Counter[str]) -> None:
        totals = self.outcome.totals()
        for kind in ("kept", "rejected"):
            if documents[kind] != getattr(totals, kind):
                raise RunFailed(
                    f"corpus and stages differ in {kind} documents; remove {self.out} and run again"
                )
        if totals.read != totals.kept + totals.rejected:
            raise RunFailed(f"documents read != kept + rejected; remove {self.out} and run again")


def working_folder(out: Path, scratch: Path | None = None) -> tuple[Path, str | None]:
    """Return the folder in which the run works, and the URL to which results are uploaded. If OUT
    is a folder, these are OUT and None. Raises UsageError if a scratch folder is given but OUT is
    not a URL."""
    url = url_of(out)
    if url is not None:
        return scratch_of(url, scratch), url
    if scratch is not None:
        raise UsageError(f"--scratch is for an OUT that is a URL; {out} is a folder")
    return out, None


def run_plan(plan: RunPlan, folder: Path, options: Options, url: str | None = None) -> Outcome:
    """Run a plan in a folder and write its report. An unfinished run is continued, and finished
    stages are reused. If a `url` is given, results are then uploaded to it."""
    if url is None:
        return run_planned(plan, folder, options)
    store = Store(Mirror(url, folder))
    with store.driving(say), using(store):
        before = store.listed()
        for home in (folder, folder / RUN):  # an empty mirror gets its ledger from the store
            if any(n.startswith(f"{store.name(home / LEDGER)}/") for n in store.listing):
                make_folder(home)
                (home / Ledger.file).touch()
        outcome = run_planned(plan, folder, replace(options, published=True))
        say(f"uploading new files to {store.url}", options.quiet)
        store.relist()
        outcome.published = Upload(store.url, **publish(store, before, outcome.nothing_new))
    return outcome


def carry_out(
    recipe: Recipe, inputs: list[str], out: Path, options: Options, scratch: Path | None = None
) -> Outcome:
    """Run a recipe over `inputs`, or the recipe's own inputs if empty. Return the outcome."""
    folder, url = working_folder(out, scratch)
    return run_plan(make_plan(recipe, inputs), folder, options, url)


def open_engine(
    name: str,
    address: str | None,
    workers: tuple[int, int],
    tasks: int,
    tick: Callable[[], None],
    jobs: Jobs,
    shared: Iterable[str] = (),
) -> Engine:
    """Return the engine `name` (local, ray or slurm), a context manager that runs tasks in worker
    processes. `workers` is a pair: the number of workers that the user asked for (0: all of the
    cluster) and the number that suits this machine. `tasks` is the largest number of tasks at one
    time. `tick` is called twice a second. `jobs` says how to ask a cluster for workers. All
    machines must see the files in `shared` and the folder of `jobs`."""
    check_engine(name, address)
    if name == "slurm":
        from curate.engines.slurm import SlurmEngine

        return SlurmEngine(workers[0], tasks, jobs, address, tick, shared)
    if name == "ray":
        from curate.engines.ray import RayEngine

        return RayEngine(workers[0], tasks, address, tick, jobs, shared)
    from curate.engines.local import LocalEngine

    engine = LocalEngine(min(workers[1], max(1, tasks)), tick, helper=workers[1] > tasks)
    engine.mirror = jobs.store.mirror
    return engine
