"""The driver of a run: stages, then corpus/ and rejected/, then products, then records.

Every unit of work commits by writing aside, fsync, rename, then a ledger row; so a run that was
killed anywhere goes on with what is missing and ends with the same bytes.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from curate.corpus import indexes, manifests
from curate.engines.base import Engine, Jobs, check_engine, mapping
from curate.run import assemble
from curate.run.build import begin_anew, check_made
from curate.run.earlier import make_index
from curate.run.intact import Intact, changed_after, corpus_seals, finished_files, newest
from curate.run.ledger import Ledger
from curate.run.messages import Assembled, AssembleTask, Built, CorpusRecord
from curate.run.plan import (
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
from llmcurate.base.disk.files import all_inside, clear_temporary, remove, scratch_of, url_of
from llmcurate.base.disk.process import cores
from llmcurate.base.disk.publish import Store, publish
from llmcurate.base.disk.seals import Seal, seal, verify
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import Damaged, RunFailed, UsageError, disk_error, name_file
from llmcurate.base.terminal import Progress, prompt_interrupt, say

ASSEMBLE = "curate.run.assemble:assemble_partition"
CORPUS = "corpus"  # the ledger's row of corpus/ and rejected/


def run_planned(
    plan: RunPlan, out: Path, options: Options, report: Report = begin_report
) -> Outcome:
    """Runs a plan into `out`; resumes, reuses. report: counts for run.json and the pages, with the
    stages' workers, and returns what writes them, before the ledger has the run as done."""
    check_engine(options.engine, options.address, options.slurm)
    check_code(plan.recipe, options.allow_python)
    if options.engine == "local" and options.workers > cores():
        cpus = counted(cores(), "core")
        say(f"{options.workers} workers on {cpus}: more than one a core is slower", options.quiet)
    for notice in plan.inputs.notices:
        say(notice, options.quiet)
    check_out(plan, out)
    if options.restart:
        begin_anew(plan, out, options)
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
            f"{plan.home(out) / Ledger.file} is damaged ({error}); move it away to start afresh"
        ) from None
    except OSError as error:
        name_file(error, out)
        raise disk_error(error) or error from None


class _Run:
    """One run of a plan into OUT, under the ledger's lock."""

    def __init__(self, plan: RunPlan, out: Path, options: Options, ledger: Ledger) -> None:
        self.plan, self.out, self.options, self.ledger = plan, out, options, ledger
        self.home = plan.home(out)
        self.outcome = Outcome(out, plan)
        self.intact = Intact(options)
        self.stages = Stages(plan, out, options, ledger, self.outcome, self.intact)
        self.parts = len(plan.inputs.partitions)
        self._stood = 0  # since when a corpus that was there stands as it was written, in ns

    def execute(self, report: Report) -> Outcome:
        """Does what is missing, or takes the finished run as it is."""
        began = time.perf_counter()
        last = self.ledger.last_run()
        if last == (self.plan.digest, True) and self._restore():
            self.outcome.nothing_new = True
            return self.outcome
        if last and last[0] != self.plan.digest:
            self._say_what_changes()
        elif last and not last[1]:
            say(f"resuming the unfinished run in {self.out}", self.options.quiet)
        self.ledger.begin_run(self.plan.digest)
        while True:
            try:
                write = self._compute(report)
                self.outcome.seconds = time.perf_counter() - began
                with self.intact.reading(self._changed):
                    write()
                steps = [stage.sketch for stage in self.plan.stages if stage.sketch is not None]
                leaves = [self.out / name for step in steps for name in step.leaves()]
                built = (self.ledger.stage_result(stage.key, Built) for stage in self.plan.products)
                seals = {name: seal for b in built if b for name, seal in b.seals.items()}
                sealed = finished_files(self.out, self.home, seals, leaves)
                self.ledger.record_files(sealed)
                break
            except Damaged as damage:
                self._begin_again(damage)
            except FileNotFoundError as error:
                if not error.filename or self.out not in Path(error.filename).parents:
                    raise
                self._begin_again(Damaged(f"{error.filename} is missing"))
        self.ledger.forget_parts(f"{self.plan.corpus_key}:assembled")
        self.ledger.end_run()
        return self.outcome

    def _compute(self, report: Report) -> Callable[[], None]:
        """Stages, corpus, figures and products, as far as they are not done; returns what writes
        the records. Damaged where a file is not what was written."""
        clear_temporary(self.home)
        assemble.clear_unfinished(self.home)
        for documents in self.plan.against:
            make_index(documents, run_planned, self.options)
        with self._engine() as engine:
            for stage in self.plan.stages:
                self.stages.run(stage, engine)
            if self.plan.stages:
                self._write_corpus(engine)
                indexes.write_indexes(self.out, self.stages.indexes())
            with self.intact.reading(lambda: self._changed(products=False)):
                if self.plan.stages:
                    self.outcome.kept_ids = manifests.kept_ids(self.out)
                write = self._begin_report(report, engine)
        if self.plan.products:
            self._products()
        return write

    def _engine(self) -> Engine:
        options = self.options
        inputs = [f.path for f in self.plan.inputs.files if "://" not in f.path]
        return open_engine(
            options.engine,
            options.address,
            (options.workers, options.count()),
            self.parts,
            self.ledger.beat,
            Jobs(options.slurm, self.home, options.quiet),
            inputs[:1],
        )

    def _write_corpus(self, engine: Engine) -> None:
        key = self.plan.corpus_key
        folders = [stage_folder(self.out, s.folder_name) for s in self.plan.stages]
        decided = [decisions_path(self.out, s) for s in self.plan.stages if s.sketch]
        if self._has_corpus(key) and self._corpus_stands(key, engine):
            return
        self.ledger.forget_stage(CORPUS)
        self._stood = 0
        corpus, rejected = self.out / ".corpus-new", self.out / ".rejected-new"
        for folder in (corpus, rejected):
            remove(folder, inside=self.out)
            folder.mkdir()
        last, sole = self.plan.stages[-1], len(folders) == 1
        kinds = {last.key: ("rejected", "kept", "keys") if sole else ("rejected", "kept")}
        inputs = [self.stages.inputs(s, *kinds.get(s.key, ("rejected",))) for s in self.plan.stages]
        ids = self.stages.ids()
        with self.intact.reading(lambda: self._first_of(self.plan.stages)):
            schema = assemble.schema_hex(assemble.rejected_schema(folders))
        assembled = f"{key}:assembled"
        self.ledger.forget_parts(assembled)  # of a killed run, whose files are gone
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
        beside: dict[str, Seal] = {}  # of what says which files the corpus has, and why
        if decided:
            with self.intact.reading(self._decided):
                assemble.write_decisions(decided, self.out / "decisions.parquet")
                beside["decisions.parquet"] = seal(self.out / "decisions.parquet")
        else:
            (self.out / "decisions.parquet").unlink(missing_ok=True)
        for kind, aside, name in (("rejected", rejected, "rejected"), ("kept", corpus, "corpus")):
            assemble.swap(aside, self.out / name)
            results = self.ledger.results(assembled, Assembled)
            files = (r.kept if kind == "kept" else r.rejected for _, r in results)
            manifests.write_manifest(self.out / name, files, key)
            path = manifests.manifest_path(self.out / name)
            beside[path.name] = seal(path)
        at = newest(self.out / name for name in beside)
        self.ledger.commit_stage(CORPUS, CorpusRecord(key, beside, at))

    def _begin_report(self, report: Report, engine: Engine) -> Callable[[], None]:
        before, run = engine.cpu, mapping(engine, "the report")
        write = report(self.outcome, self.options.count(), run, self.options.sizes)
        self.outcome.driver["report, in workers"] = engine.cpu - before
        return write

    def _products(self) -> None:
        from curate.run.build import build_product

        if self.plan.products and self.plan.stages:
            corpus = self.ledger.stage_result(CORPUS, CorpusRecord)
            verify(
                [str(self.out / name), of] for name, of in (corpus.files if corpus else {}).items()
            )
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
        """The record of the finished run, where its files are in place as they were written."""
        if self.intact.changed_since(self.out, self.ledger):
            return False
        path = self.home / "run.json"
        if not all((self.home / n).exists() for n in ("run.json", "recipe.yaml", "report.html")):
            return False
        if self.plan.stages and not self._has_corpus(self.plan.corpus_key):
            return False
        if self.plan.stages and not indexes.all_written(self.out, self.stages.indexes()):
            return False
        record = RunRecord.of(read_record(self.home))
        for product in record.products:
            if not all(f.exists() for f in all_inside(self.out, product["files"], path)):
                return False
        self.outcome.stages, self.outcome.products = record.stages, record.products
        self.outcome.seconds = record.totals.seconds
        if self.plan.stages:
            self.outcome.kept_ids = manifests.kept_ids(self.out)
        return True

    def _say_what_changes(self) -> None:
        names = [(s.key, s.shown) for s in self.plan.stages]
        names += [(p.key, p.product.label) for p in self.plan.products]
        again = [n for key, n in names if not self.ledger.has(key)]
        kept = [n for key, n in names if self.ledger.has(key)]
        if kept:
            say(f"reused as they are: {', '.join(kept)}", self.options.quiet)
        if again:
            say(f"settings or input changed, so run again: {', '.join(again)}", self.options.quiet)

    def _begin_again(self, damage: Damaged) -> None:
        """As a run that goes on: what is there is compared, and what differs made anew."""
        self.intact.anew(damage)
        self.outcome = Outcome(self.out, self.plan)
        self.stages.outcome = self.outcome

    def _first_of(self, stages: list[MapStage]) -> Iterator[tuple[Path, Seal]]:
        """The rejected documents of the first partition of these stages."""
        for stage in stages:
            for path, sealed in next(self.stages.inputs(stage, "rejected"))[1]:
                yield Path(path), sealed

    def _decided(self) -> Iterator[tuple[Path, Seal]]:
        """The decisions of all stages."""
        for stage in self.plan.stages:
            if stage.sketch:
                yield from ((Path(path), sealed) for path, sealed in self.stages.decided(stage))

    def _changed(self, products: bool = True) -> Iterator[tuple[Path, Seal]]:
        """The files of the corpus, and of products, that changed after these were whole, or are
        gone."""
        for _, made in self.ledger.results(f"{self.plan.corpus_key}:assembled", Assembled):
            for folder, record, at in (
                ("corpus", made.kept, made.kept_changed),
                ("rejected", made.rejected, made.rejected_changed),
            ):
                path = self.out / folder / str(record["name"])
                yield from changed_after(at, [(path, [None, record["sha256"]])])
        if self._stood:
            yield from changed_after(self._stood, corpus_seals(self.out))
        if corpus := self.ledger.stage_result(CORPUS, CorpusRecord):
            yield from changed_after(
                corpus.at, ((self.out / f, s) for f, s in corpus.files.items())
            )
        for product in self.plan.products if products else ():
            if built := self.ledger.stage_result(product.key, Built):
                sealed = ((self.out / file, of) for file, of in built.seals.items())
                yield from changed_after(built.at, sealed)

    def _corpus_stands(self, key: str, engine: Engine) -> bool:
        """Return whether the corpus is what was written, and nothing else lies there."""
        self._stood = time.time_ns() - 1_000_000_000  # clocks of file systems are late
        entry = self.ledger.stage_result(CORPUS, CorpusRecord)
        if entry is None or entry.key != key:
            return False
        return self.intact.corpus_stands(self.out, entry.files, engine)

    def _has_corpus(self, key: str) -> bool:
        decided = any(s.sketch for s in self.plan.stages)
        if decided and not (self.out / "decisions.parquet").exists():
            return False
        return all(manifests.is_complete(self.out / name, key) for name in manifests.FOLDERS)

    def _check_counts(self, documents: Counter[str]) -> None:
        """RunFailed where these documents, kept and rejected, are not those of the stages."""
        totals = self.outcome.totals()
        for kind in ("kept", "rejected"):
            if documents[kind] != getattr(totals, kind):
                raise RunFailed(f"{kind} documents do not add up; remove {self.out} and run again")
        if totals.read != totals.kept + totals.rejected:
            raise RunFailed(f"read is not kept + rejected; remove {self.out} and run again")


def working_folder(out: Path, scratch: Path | None = None) -> tuple[Path, str | None]:
    """(the folder that the run works in, the URL that what it leaves is put at). UsageError for a
    scratch folder where OUT is no URL."""
    url = url_of(out)
    if url is not None:
        return scratch_of(url, scratch), url
    if scratch is not None:
        raise UsageError(f"--scratch is for an OUT that is a URL; {out} is a folder")
    return out, None


def run_plan(plan: RunPlan, folder: Path, options: Options, url: str | None = None) -> Outcome:
    """Runs the plan and writes its report. A run that stopped goes on; stages that the folder holds
    already are reused. url: where what it leaves for readers is put."""
    store = Store(url) if url else None
    if store is not None:
        store.retried(store.check, tries=2)
    outcome = run_planned(plan, folder, replace(options, published=store is not None))
    if store is not None:
        say(f"uploading new files to {store.url}", options.quiet)
        outcome.published = Upload(store.url, **publish(folder, store))
    return outcome


def carry_out(
    recipe: Recipe, inputs: list[str], out: Path, options: Options, scratch: Path | None = None
) -> Outcome:
    """The outcome of the recipe over the inputs, or over those that it names."""
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
    """An engine, to be used as a context manager.

    workers: as asked for (0: all there are), and what that is on this machine; tasks: that there
    will be at once; jobs: how a cluster is asked for workers, where there is one; shared: files
    that all its machines must see, beside the folder of `jobs`.
    """
    check_engine(name, address)
    if name == "slurm":
        from curate.engines.slurm import SlurmEngine

        return SlurmEngine(workers[0], tasks, jobs, address, tick, shared)
    if name == "ray":
        from curate.engines.ray import RayEngine

        return RayEngine(workers[0], tasks, address, tick, jobs, shared)
    from curate.engines.local import LocalEngine

    return LocalEngine(min(workers[1], max(1, tasks)), tick, helper=workers[1] > tasks)
