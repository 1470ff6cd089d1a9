"""Run a recipe: map its stages, settle ids, resolve corpus steps, assemble, build products.

Every unit of work commits by writing aside, fsync, rename, then a ledger row; so a run that was
killed anywhere goes on with what is missing and ends with the same bytes.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from curate import assemble, deaths, indexes, interrupt
from curate.atomic import clear_temporary, write_text
from curate.engines.base import Engine, Task
from curate.engines.choose import check_engine, open_engine
from curate.errors import RunFailed, UsageError, disk_error, name_file
from curate.formats.inputs import InputPlan, plan_inputs
from curate.ledger import Ledger
from curate.outcome import Measured, Options, Outcome, sum_up
from curate.plan import (
    MapStage,
    RunPlan,
    decisions_path,
    plan_run,
    sketch_kind,
    stage_folder,
)
from curate.progress import Progress, say
from curate.recipe import Recipe
from curate.sketches import SketchedCorpus
from curate.stage_files import part_path, same_columns


def run_recipe(recipe: Recipe, inputs: list[str], out: Path, options: Options) -> Outcome:
    """Runs the recipe over inputs (the recipe's own if none) into `out`; resumes, reuses."""
    return run_planned(make_plan(recipe, inputs), out, options)


def run_planned(plan: RunPlan, out: Path, options: Options) -> Outcome:
    """Runs a plan into `out`."""
    check_engine(options.engine, options.address)
    for notice in plan.inputs.notices:
        say(notice, options.quiet)
    _check_out(plan, out)
    try:
        ledger = Ledger(out)
        try:
            with interrupt.prompt():
                return _Run(plan, out, options, ledger).go()
        finally:
            ledger.close()
    except OSError as error:
        name_file(error, out)
        raise disk_error(error) or error from None


def make_plan(recipe: Recipe, inputs: list[str]) -> RunPlan:
    """The stages of a recipe over its inputs."""
    began = time.process_time()
    plan = _made_plan(recipe, inputs)
    plan.cpu = time.process_time() - began
    return plan


def _made_plan(recipe: Recipe, inputs: list[str]) -> RunPlan:
    given = inputs or list(recipe.input)
    if recipe.brings_corpus:
        if given:
            raise UsageError(f"recipe {recipe.name} names its own sources: leave {given[0]} out")
        return plan_run(recipe, InputPlan((), ()))
    if not given:
        raise UsageError(f"recipe {recipe.name} has no input: name files or folders to read")
    if recipe.read.fetch is not None:
        from curate.fetch.inputs import local_inputs

        given = local_inputs(given, recipe.read.fetch, quiet=True, dry=False)
    return plan_run(recipe, plan_inputs(given, recipe.read.partition_bytes))


def _check_out(plan: RunPlan, out: Path) -> None:
    """UsageError where the run would overwrite its own input, or files that no run wrote."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    if not plan.stages:
        _check_mixed(plan, out)
        return
    _check_apart((file.path for file in plan.inputs.files), out)
    for name, manifest in assemble.MANIFESTS.items():
        folder = out / name
        ours = (out / "ledger.db").exists() or (folder / manifest).exists()
        if not ours and folder.is_dir() and any(folder.iterdir()):
            raise UsageError(
                f"{folder} holds files that llmcurate did not write; name another folder as OUT"
            )


def _check_apart(paths: Iterable[str], out: Path) -> None:
    """UsageError where a file that is read lies in OUT."""
    home = out.resolve()
    for path in paths:
        if "://" not in path and home in Path(path).resolve().parents:
            raise UsageError(f"input {path} lies in OUT {out}; name another folder as OUT")


def _check_mixed(plan: RunPlan, out: Path) -> None:
    """UsageError where a product would write its corpus over one that it did not make."""
    makers = [p for p in plan.recipe.products if p.makes == "corpus"]
    for maker in makers:
        _check_apart(maker.own_files(), out)
    manifest = out / "corpus" / assemble.MANIFESTS["corpus"]
    if makers and (out / "corpus").is_dir() and any((out / "corpus").iterdir()):
        mine = manifest.is_file() and makers[0].name in json.loads(manifest.read_text("utf-8"))
        if not mine:
            raise UsageError(f"{out / 'corpus'} holds another corpus; name another folder as OUT")


def done_before(out: Path) -> dict[str, set[int]]:
    """Committed partitions by stage key, and finished products, without taking the lock."""
    import sqlite3

    path = out / "ledger.db"
    if not path.exists():
        return {}
    have: dict[str, set[int]] = {}
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for stage, part in db.execute("SELECT stage, part FROM parts"):
            have.setdefault(stage, set()).add(part)
        for (stage,) in db.execute("SELECT stage FROM stages"):
            have.setdefault(stage, set())
    finally:
        db.close()
    return have


class _Run:
    def __init__(self, plan: RunPlan, out: Path, options: Options, ledger: Ledger) -> None:
        self.plan, self.out, self.options, self.ledger = plan, out, options, ledger
        self.outcome = Outcome(out, plan)
        self.parts = len(plan.inputs.partitions)

    def go(self) -> Outcome:
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
        clear_temporary(self.out)
        assemble.clear_unfinished(self.out)
        with self._engine() as engine:
            for stage in self.plan.stages:
                self._map_stage(stage, engine)
            if self.plan.stages:
                self._assemble(engine)
                indexes.keep(self.out, self._indexes())
                self.outcome.kept_ids = assemble.kept_ids(self.out)
        self._products()
        self.outcome.seconds = time.perf_counter() - began
        self._write_records()
        self.ledger.end_run()
        return self.outcome

    def _engine(self) -> Engine:
        options = self.options
        inputs = [f.path for f in self.plan.inputs.files if "://" not in f.path]
        return open_engine(
            options.engine,
            options.address,
            (options.workers, options.count()),
            self.parts,
            self.ledger.beat,
            [str(self.ledger.path), *inputs[:1]],
        )

    # -- what is there already -------------------------------------------------------------

    def _restore(self) -> bool:
        """The record of the finished run, where its files are still in place."""
        path = self.out / "run.json"
        if not all((self.out / n).exists() for n in ("run.json", "recipe.yaml", "report.html")):
            return False
        if self.plan.stages and not self._assembled(self.plan.corpus_key):
            return False
        if self.plan.stages and not indexes.all_kept(self.out, self._indexes()):
            return False
        record = json.loads(path.read_text(encoding="utf-8"))
        for product in record["products"]:
            if any(not (self.out / name).exists() for name in product["files"]):
                return False
        self.outcome.stages, self.outcome.products = record["stages"], record["products"]
        self.outcome.seconds = record["totals"]["seconds"]
        if self.plan.stages:
            self.outcome.kept_ids = assemble.kept_ids(self.out)
        return True

    def _say_what_changes(self) -> None:
        names = [(s.key, s.folder_name) for s in self.plan.stages]
        names += [(p.key, p.folder_name) for p in self.plan.products]
        again = [n for key, n in names if self.ledger.stage_result(key) is None]
        kept = [n for key, n in names if self.ledger.stage_result(key) is not None]
        if kept:
            say(f"reusing {', '.join(kept)}", self.options.quiet)
        if again:
            say(f"settings or input changed: computing {', '.join(again)}", self.options.quiet)

    # -- map stages ------------------------------------------------------------------------

    def _map_stage(self, stage: MapStage, engine: Engine) -> None:
        folder = stage_folder(self.out, stage.folder_name)
        folder.mkdir(parents=True, exist_ok=True)
        clear_temporary(folder)
        spec = self._write_spec(stage, folder)
        first = ("ids",) if stage.index == 0 else ()
        done = self._intact(stage.key, folder, "kept", "keys", "rejected", *first)
        missing = [p for p in range(self.parts) if p not in done]
        sketched = self._intact(stage.sketch_key, folder, sketch_kind(stage))
        unread = [] if stage.reuse else self._prepare(stage, folder)
        tasks = self._tasks(stage, spec, missing)
        measured: Counter[str] = Counter()
        with Progress(stage.folder_name[:24], self.parts, self.options.quiet) as progress:
            progress.update(len(done))
            for task, result in engine.map(
                "curate.stage:run_partition",
                tasks,
                deaths.search(self.plan, stage, self.options.quiet),
            ):
                done[task["part"]] = result
                measured.update({k: result[k] for k in ("measured", "sketched")})
                self.ledger.commit_part(stage.key, task["part"], result)
                if stage.sketch:
                    self.ledger.commit_part(stage.sketch_key, task["part"], {})
                    sketched[task["part"]] = {}
                progress.update(note=f"{sum(r['kept'] for r in done.values())} kept")
        if stage.sketch:
            left: list[Task] = [
                {"spec": str(spec), "part": p} for p in range(self.parts) if p not in sketched
            ]
            again = deaths.once_more(stage.folder_name)
            for task, result in engine.map("curate.stage:sketch_partition", left, again):
                measured["sketched"] += result["sketched"]
                self.ledger.commit_part(stage.sketch_key, task["part"], result)
        clear_temporary(folder)  # what workers that died left
        record = sum_up(stage, [done[p] for p in range(self.parts)])
        for found in unread:  # of files beside the input
            record["corrupt"] += found["corrupt"]
            record["corrupt_examples"] += found["places"]
        if stage.index == 0:
            record["renamed"], record["settle_cpu"] = self._once(
                stage.key + ":ids", folder / "ids.parquet", lambda: self._settle(folder)
            )
        if stage.sketch:
            from curate.resolving import guard

            record["decides"] = stage.sketch.label
            record["decided"], record["decided_cpu"] = self._once(
                stage.decisions_key + ":resolved",
                self._decisions(stage),
                lambda: self._resolve(stage, record, engine),
            )
            if "written" in record:
                record["written"]["decisions"] = self._decisions(stage).stat().st_size
            guard(stage.sketch, record["decided"])
            decided = record["decided"].get("seconds")
            if decided is not None:
                record["seconds"][f"{stage.sketch.label}: deciding"] = decided
        self.ledger.commit_stage(stage.key, {"folder": stage.folder_name})
        self.outcome.stages.append(record)
        self.outcome.measured.append(Measured.of(stage, record, measured))

    def _prepare(self, stage: MapStage, folder: Path) -> list[dict[str, Any]]:
        """What steps do once for all workers; what could not be read."""
        found = []
        for step in stage.steps:
            file = step.prepared(folder)
            if file is not None:
                work = partial(step.prepare, file)
                found.append(self._once(f"{stage.key}:{step.label}", file, work)[0])
        return found

    def _tasks(self, stage: MapStage, spec: Path, parts: list[int]) -> list[Task]:
        """A stage that is decided anew without its input needs what was recorded of that."""
        tasks: list[Task] = [{"spec": str(spec), "part": p} for p in parts]
        if stage.reuse and stage.index == 0:
            was = self.ledger.done_parts(stage.reuse["key"])
            tasks = [t | {"was": was.get(t["part"])} for t in tasks]
        return tasks

    def _intact(self, key: str, folder: Path, *kinds: str) -> dict[int, dict[str, Any]]:
        """Committed partitions whose files are still there."""
        done = self.ledger.done_parts(key) if key else {}
        for part in list(done):
            if part >= self.parts or not all(part_path(folder, part, k).exists() for k in kinds):
                self.ledger.forget_part(key, part)
                del done[part]
        return done

    def _write_spec(self, stage: MapStage, folder: Path) -> Path:
        first = stage.index == 0
        before = None if first else self.plan.stages[stage.index - 1]
        previous = stage_folder(self.out, before.folder_name) if before else None
        entered = stage.reuse["input"] if stage.reuse else None
        if previous and entered and not same_columns(previous, Path(entered)):
            stage.reuse, stage.why = None, "its input has other columns"
        spec = {
            "folder": str(folder),
            "input": str(previous) if previous else None,
            "plan": self.plan.inputs.dump() if first else None,
            "read": self.plan.recipe.read.model_dump(mode="json"),
            "ids": str(previous / "ids.parquet") if previous and stage.index == 1 else None,
            "apply": stage.apply.identity() if stage.apply else None,
            "decisions": str(self._decisions(before)) if before and stage.apply else None,
            "steps": [s.identity() for s in stage.steps],
            "sketch": stage.sketch.identity() if stage.sketch else None,
            "sketch_kind": sketch_kind(stage),
            "reuse": stage.reuse,
        }
        path = folder / f"stage{stage.decisions_key and '-' + stage.decisions_key}.json"
        write_text(path, json.dumps(spec, indent=1))
        return path

    def _once(self, key: str, file: Path, work: Callable[[], Any]) -> tuple[Any, float | None]:
        """The recorded result under the key while its file stands, or that of the work; and the
        CPU seconds that it took (None: an older version did it)."""
        found = self.ledger.stage_result(key)
        if found is None or not file.exists():
            began = time.process_time()
            value = work()
            found = {"value": value, "cpu": round(time.process_time() - began, 3)}
            self.ledger.commit_stage(key, found)
        return found["value"], found.get("cpu")

    def _settle(self, folder: Path) -> int:
        from curate.settle import settle_ids

        return settle_ids(self.plan.inputs, folder, self.plan.earlier)

    def _decisions(self, stage: MapStage) -> Path:
        return decisions_path(self.out, stage)

    def _own(self, stage: MapStage) -> Path:
        return stage_folder(self.out, stage.folder_name) / f"resolve-{stage.folder_key}"

    def _corpus(self, stage: MapStage) -> SketchedCorpus:
        folder = stage_folder(self.out, stage.folder_name)
        return SketchedCorpus(folder, self.parts, sketch_kind(stage), stage.index == 0)

    def _resolve(self, stage: MapStage, record: dict[str, Any], engine: Engine) -> dict[str, Any]:
        from curate.resolving import resolve

        assert stage.sketch is not None
        label = stage.sketch.label
        say(f"{label}: resolving", self.options.quiet)
        before = getattr(engine, "cpu", None)  # Ray does not count it
        found = resolve(
            stage.sketch,
            self._corpus(stage),
            self._own(stage),
            self._decisions(stage),
            (record["kept"], record["bytes_out"]),
            self.options.count(),
            lambda function, tasks: engine.map(function, tasks, deaths.once_more(label)),
        )
        after = getattr(engine, "cpu", None)
        spent = None if before is None or after is None else round(after - before, 3)
        return {**found, "tasks_cpu": spent}

    def _indexes(self) -> list[indexes.Made]:
        """What the plan's dedups leave for later runs to compare with."""
        return [
            indexes.Made(stage.sketch, stage.folder_key, self._corpus(stage), self._own(stage))
            for stage in self.plan.stages
            if stage.sketch is not None
        ]

    # -- corpus and rejected ---------------------------------------------------------------

    def _assemble(self, engine: Engine) -> None:
        key = self.plan.corpus_key
        folders = [stage_folder(self.out, s.folder_name) for s in self.plan.stages]
        decided = [self._decisions(s) for s in self.plan.stages if s.sketch]
        if self._assembled(key):
            return
        corpus, rejected = self.out / ".corpus-new", self.out / ".rejected-new"
        for folder in (corpus, rejected):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        schema = assemble.schema_hex(assemble.rejected_schema(folders))
        last = self.ledger.done_parts(self.plan.stages[-1].key)
        tasks: list[Task] = [
            {
                "part": p,
                "folders": [str(f) for f in folders],
                "ids": str(folders[0] / "ids.parquet"),
                "corpus": str(corpus),
                "rejected": str(rejected),
                "rejected_schema": schema,
                "kept_bytes": last[p]["bytes_out"],
            }
            for p in range(self.parts)
        ]
        results: dict[int, dict[str, Any]] = {}
        with Progress("assemble", self.parts, self.options.quiet) as progress:
            again = deaths.once_more("the assembly")
            for task, result in engine.map("curate.assemble:assemble_partition", tasks, again):
                results[task["part"]] = result
                progress.update()
        self.outcome.driver["assembling"] = sum(r["cpu"] for r in results.values())
        for kind, name, folder in (("kept", "corpus", corpus), ("rejected", "rejected", rejected)):
            files = [results[p][kind] for p in range(self.parts)]
            assemble.write_manifest(folder, assemble.MANIFESTS[name], files, key)
        self._check_counts(results)
        if decided:
            assemble.write_decisions(decided, self.out / "decisions.parquet")
        else:
            (self.out / "decisions.parquet").unlink(missing_ok=True)
        assemble.swap(rejected, self.out / "rejected")
        assemble.swap(corpus, self.out / "corpus")

    def _assembled(self, key: str) -> bool:
        decided = any(s.sketch for s in self.plan.stages)
        if decided and not (self.out / "decisions.parquet").exists():
            return False
        return all(assemble.is_complete(self.out / name, key) for name in assemble.MANIFESTS)

    def _check_counts(self, results: dict[int, dict[str, Any]]) -> None:
        totals = self.outcome.totals()
        for kind, have in (("kept", totals["kept"]), ("rejected", totals["rejected"])):
            if sum(r[kind]["documents"] for r in results.values()) != have:
                raise RunFailed(f"{kind} documents do not add up; remove {self.out} and run again")
        if totals["read"] != totals["kept"] + totals["rejected"]:
            raise RunFailed(f"read is not kept + rejected; remove {self.out} and run again")

    # -- products and records --------------------------------------------------------------

    def _products(self) -> None:
        from curate.building import build_product

        for stage in self.plan.products:
            before = {k: self.plan.products[i] for k, i in stage.inputs.items()}
            record = build_product(
                self.plan,
                stage,
                before,
                self.out,
                self.ledger,
                self.options.quiet,
                self.options.count(),
            )
            self.outcome.products.append(record)

    def _write_records(self) -> None:
        from curate.report.records import write_records

        write_records(self.outcome)
