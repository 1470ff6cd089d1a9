"""Run a refresh, which adds the documents of new inputs to a new snapshot.

Products, such as token shards, are built after the snapshot, so no data are lost if one fails. A
run in HOME/products/NAME builds the products of the snapshot NAME, and resumes after an
interruption. The link HOME/products/current points to the last complete run of products."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from curate.corpus import indexes
from curate.corpus.indexes import link
from curate.formats.columns import EXTRA
from curate.formats.compression import path_of
from curate.formats.inputs import InputPlan, plan_files
from curate.formats.listing import one_spelling
from curate.formats.read_settings import ReadSettings
from curate.refresh import incremental, snapshot
from curate.refresh.forgetting import Removals, Scrubbed, scrub
from curate.refresh.inputs import (
    Damaged,
    NewInputs,
    Remote,
    changed_input,
    cut_short,
    find_new,
)
from curate.refresh.outcome import Refreshed, RefreshOptions, Totals
from curate.refresh.snapshot import PRODUCTS
from curate.refresh.state import Plan, Refresh, State
from curate.run.decisions import SUPERSEDED
from curate.run.driver import run_planned
from curate.run.homes import FILE, RUNS
from curate.run.ids import ISSUED
from curate.run.plan import EarlierIds, RunPlan, check_code, make_plan, plan_run, stage_folder
from curate.run.records import Options
from curate.steps.contracts import to_fetch
from curate.steps.recipe import Recipe
from llmcurate.base.disk.files import path_inside, text_digest
from llmcurate.base.disk.seals import fault, seal
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import RunFailed, UsageError, disk_error, set_error_file
from llmcurate.base.messages import json_values
from llmcurate.base.terminal import say


def check_products(recipe: Recipe) -> None:
    """Raise UsageError if the recipe has no products, or if they cannot be made from a snapshot."""
    if not recipe.products:
        raise UsageError(f"--products: recipe {recipe.name} does not end in a product")
    if _alone(recipe).brings_corpus:
        raise UsageError(
            f"--products: {recipe.products[0].label} of recipe {recipe.name} names its own sources:"
            " make it with `llmcurate run`"
        )


def _alone(recipe: Recipe) -> Recipe:
    read = ReadSettings(partition_bytes=recipe.read.partition_bytes)  # read the whole snapshot
    return replace(recipe, steps=tuple(recipe.products), cuts=frozenset(), input=(), read=read)


def products_folder(home: Path, name: str) -> Path:
    return path_inside(home, f"{PRODUCTS}/{name}")


def make_products(home: Path, name: str, recipe: Recipe, how: RefreshOptions) -> bool:
    """Make or resume the products of a snapshot. Return True if there was work to do."""
    plan = make_plan(_alone(recipe), [str(snapshot.folder_of(home, name))])
    done = run_planned(plan, products_folder(home, name), Options(how.workers, how.quiet))
    snapshot.point_current_to(home / PRODUCTS, name, within=".")
    return not done.nothing_new


IDS, CORRUPT = "ids.parquet", "corrupt.jsonl"


@contextmanager
def open_state(home: Path) -> Iterator[State]:
    """Open and lock the records in `home`, the folder of a growing corpus. Raise LockHeld if
    another process has them open, and UsageError if the folder has files that no refresh wrote."""
    if home.exists() and not home.is_dir():
        raise UsageError(f"HOME {home} is a file: name a folder")
    if home.is_dir() and not (home / FILE).exists() and any(home.iterdir()):
        raise UsageError(f"{home} has files that no refresh wrote: name another folder as HOME")
    try:
        state = State(home)
        try:
            yield state
        finally:
            state.close()
    except OSError as error:
        set_error_file(error, home)
        raise disk_error(error) or error from None


def run_of(home: Path, name: str) -> Path:
    """Return the folder of a refresh's run. Raise RunFailed if a link leads out of HOME."""
    return path_inside(home, f"{RUNS}/{name}")


def _new_name(state: State, now: datetime | None) -> str:
    when = (now or datetime.now(timezone.utc)).strftime("%Y-%m-%dT%H-%M")
    taken = {r.name for r in state.refreshes()} | set(snapshot.names(state.home))
    name, nth = when, 1
    while name in taken:
        nth += 1
        name = f"{when}-{nth}"
    return name


def refresh(recipe: Recipe, inputs: list[str], home: Path, how: RefreshOptions) -> Refreshed:
    """Ingest the new inputs into a new snapshot, or resume a refresh that was killed."""
    began = time.perf_counter()
    check_code(recipe, how.allow_python)
    recipe = recipe.without_missing_files(how.quiet)
    if line := incremental.check(recipe):
        say(line, how.quiet)
    if how.products:
        check_products(recipe)
    elif recipe.products:
        names = ", ".join(p.label for p in recipe.products)
        say(f"left out: {names}; --products makes them from the whole snapshot", how.quiet)
    with open_state(home) as state:
        if (
            state.current and not state.pending()
        ):  # a kill between recording the snapshot and linking to it
            link_ = home / snapshot.CURRENT
            if not link_.is_symlink() or link_.readlink().name != state.current:
                snapshot.point_current_to(home, state.current)
        snapshot.tidy(state)  # clean up after a killed refresh
        done = _refresh(state, recipe, inputs, how)
        if how.products and state.current:
            done.products = products_folder(home, state.current)
            done.built = make_products(home, state.current, recipe, how)
        done.changed = state.fact("changed") or []
        done.damaged = {path: what for path, (_, what) in (state.fact("damaged") or {}).items()}
        done.removed_snapshots = snapshot.prune(state, how)
        done.snapshots = len(snapshot.names(home))
    done.seconds = round(time.perf_counter() - began, 3)
    return done


def _refresh(state: State, recipe: Recipe, inputs: list[str], how: RefreshOptions) -> Refreshed:
    described = incremental.described(recipe)
    pending = state.pending()
    if pending and how.abandon:
        say(f"abandoning the unfinished refresh {pending.name}", how.quiet)
        snapshot.drop(state, pending.name)
        pending = None
    if pending:
        _check_options(state, pending, how)
        say(f"resuming the unfinished refresh {pending.name}", how.quiet)
        other = None
        if pending.kind != "forget":
            incremental.same_recipe(pending.plan.recipe, recipe)
            other = changed_input(_plan(pending).files, recipe.read.fetch)
        if other is None:
            _check_ground(state, pending.base)
            return _finish_whole(state, pending, recipe, inputs, how)
        say(f"input {other} changed meanwhile: the refresh starts again", how.quiet)
        how = replace(how, rebuild=pending.kind == "rebuild")
        snapshot.drop(state, pending.name)
    lineage = state.lineage(state.current)
    earlier = [r for r in lineage if r.kind != "forget"]
    if earlier and not how.rebuild:
        incremental.same_recipe(earlier[-1].plan.recipe, recipe)
    files, inputs_now = _new_files(state, earlier, recipe, inputs, how)
    if not files:
        if state.current and _has_new_removals(state, state.current):
            done = _forget_from(state, state.current, how)
        else:
            done = nothing_new(state, inputs_now.unchanged)
        return replace(done, notices=inputs_now.notices)
    base = None if how.rebuild else state.current
    _check_ground(state, base)
    plan = plan_files(files, recipe.read.partition_bytes, columns=recipe.read.named)
    before = InputPlan((), ()) if base is None else _plan(earlier[-1])
    plan = replace(
        plan,
        # A column keeps its type in the corpus; values of other types go to `extra`.
        columns=dict(sorted({EXTRA: "json", **plan.columns, **before.columns}.items())),
        own=tuple(sorted({*plan.own, *before.own})),
        notices=tuple(f"damaged input {p}: {what}" for p, (_, what) in inputs_now.damaged.items()),
        unreadable=inputs_now.unreadable,
    )
    name = _new_name(state, how.now)
    # If planning fails, the refresh must not be recorded as begun.
    _plan_new(recipe, plan, [] if how.rebuild else earlier, state.home)
    record = Plan(state.current, plan.dump(), described, inputs_now.unchanged)
    refresh = state.begin(name, "rebuild" if how.rebuild else "run", base, record, files)
    done = _finish_whole(state, refresh, recipe, inputs, how)
    return replace(done, notices=inputs_now.notices)


def _check_options(state: State, pending: Refresh, how: RefreshOptions) -> None:
    if how.rebuild and pending.kind != "rebuild":
        raise UsageError(
            f"--rebuild: the refresh {pending.name} of {state.home} is unfinished: resume it"
            " without --rebuild, or discard it with --abandon --rebuild"
        )


class _CutShort(Exception):  # args[0]: Damaged, the damaged inputs that a run read
    pass


def _finish_whole(
    state: State, refresh: Refresh, recipe: Recipe, inputs: list[str], how: RefreshOptions
) -> Refreshed:
    try:
        return _finish(state, refresh, recipe, how)
    except _CutShort as error:
        (cut,) = error.args
        for path, (_, what) in cut.items():
            say(f"{path} is damaged ({what}): the refresh starts again without it")
        state.set_fact("damaged", (state.fact("damaged") or {}) | cut)
        snapshot.drop(state, refresh.name)
    how = replace(how, rebuild=refresh.kind == "rebuild")
    return _refresh(state, recipe, inputs, how)


def _new_files(
    state: State,
    earlier: list[Refresh],
    recipe: Recipe,
    inputs: list[str],
    how: RefreshOptions,
    dry: bool = False,
) -> tuple[list[Any], NewInputs]:
    names = [r.name for r in earlier]
    if not inputs and recipe.input:
        inputs = list(recipe.input)
    if not inputs and not how.rebuild:
        raise UsageError("name inputs: files, folders, patterns or lists (*.paths.gz)")
    damaged_before = (state.fact("damaged") or {}).items()
    known: Damaged = {one_spelling(path): was for path, was in damaged_before}
    find = partial(
        find_new,
        remote=_remote(recipe, state.home, how, dry),
        skip_unreadable=recipe.read.skip_unreadable,
        columns=recipe.read.named,
        choice=recipe.read.choice,
        damaged=None if how.damaged == "take" else known,
    )
    if how.rebuild:
        rel = {f.url or one_spelling(f.path): f.rel for r in earlier for f in _plan(r).files}
        ingested = state.seen(names)
        local = [path for path in ingested if "://" not in path]
        if gone := [path for path in local if not Path(path_of(path)).exists()]:
            raise UsageError(
                f"--rebuild reads all inputs again, but {gone[0]} does not exist ({len(gone):,} of"
                f" {counted(len(ingested), 'input')} missing): restore it, or refresh the others"
                " into another HOME"
            )
        inputs_now = find([*ingested, *inputs], {})
        files = [replace(f, rel=rel.get(f.url or f.path, f.rel)) for f in inputs_now.new]
    else:
        inputs_now = find(inputs, state.seen(names), how.changed)
        files = inputs_now.new
    home = state.home.resolve()
    for file in files:
        if "://" not in file.path and home in Path(file.path).resolve().parents:
            raise UsageError(f"input {file.path} is inside HOME {state.home}: name another folder")
    for notice in inputs_now.notices:
        say(notice, how.quiet)
    elsewhere = {
        path: was
        for path, was in known.items()
        if was[0]
        and path not in inputs_now.listed
        and ("://" in path or Path(path_of(path)).exists())
    }
    if not dry and (damaged := elsewhere | inputs_now.damaged) != known:
        state.set_fact("damaged", damaged)
    changed = inputs_now.changed if how.changed == "leave" else []
    if not dry and changed != (state.fact("changed") or []):
        state.set_fact("changed", changed)
    return files, inputs_now


def _remote(recipe: Recipe, home: Path, how: RefreshOptions, dry: bool) -> Remote | None:
    if recipe.read.fetch is None:
        return None
    folder = Path(recipe.read.fetch)
    if home.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise UsageError(f"read.fetch {folder} is inside HOME {home}: name another folder")
    return Remote(folder, how.quiet, dry)


def _plan(refresh: Refresh) -> InputPlan:
    return InputPlan.load(refresh.plan.inputs)


def nothing_new(state: State, unchanged: int) -> Refreshed:
    done = Refreshed(state.home, name=state.current, unchanged=unchanged)
    if state.current:
        done.corpus = snapshot.corpus_of(snapshot.folder_of(state.home, state.current))
    return done


def _has_new_removals(state: State, name: str) -> bool:
    _check_ground(state, name, content=False)
    manifest = snapshot.manifest(snapshot.folder_of(state.home, name))
    return bool(manifest["removals"] < len(state.removals()))


def _forget_from(state: State, base: str, how: RefreshOptions) -> Refreshed:
    _check_ground(state, base)
    name = _new_name(state, how.now)
    refresh = state.begin(name, "forget", base, Plan(state.current), ())
    return _finish(state, refresh, None, how)


def forget(home: Path, entries: list[tuple[str, str]], how: RefreshOptions) -> Refreshed:
    """Record which documents to forget. Then make a snapshot without them, unless a refresh is
    unfinished."""
    began = time.perf_counter()
    with open_state(home) as state:
        state.remove(entries, datetime.now(timezone.utc).isoformat(timespec="seconds"))
        if state.pending() or state.current is None or not _has_new_removals(state, state.current):
            done = nothing_new(state, 0)
        else:
            done = _forget_from(state, state.current, how)
        done.removed_snapshots = snapshot.prune(state, how)
        done.snapshots = len(snapshot.names(home))
    done.seconds = round(time.perf_counter() - began, 3)
    return done


def roll_back(home: Path, name: str, how: RefreshOptions) -> Refreshed:
    """Make the snapshot `name` the current one. The name `parent` stands for the snapshot that was
    current before the last inputs of the present one came. If the snapshot has documents that were
    forgotten later, make a new snapshot without them."""
    with open_state(home) as state:
        pending = state.pending()
        if pending and not how.abandon:
            raise UsageError(
                f"{home}: the refresh {pending.name} is unfinished: finish it first, or discard it"
                f" with --abandon --rollback {name}"
            )
        if pending:
            snapshot.drop(state, pending.name)
        if name == "parent":
            ingested = [r for r in state.lineage(state.current) if r.kind != "forget"]
            name = (ingested[-1].plan.parent if ingested else None) or ""
            if not name:
                raise UsageError(f"{home}: there is no snapshot before the current one")
        standing = snapshot.names_by_date(state)
        if name not in standing:
            gone = any(name == refresh.name for refresh in state.refreshes())
            why = " any more (removed by forget --purge or --keep)" if gone else ""
            raise UsageError(
                f"{home}: no snapshot {name}{why}; existing snapshots:"
                f" {', '.join(standing) or 'none'}"
            )
        if _has_new_removals(state, name):
            return replace(_forget_from(state, name, how), back_to=name)
        _check_ground(state, name)
        state.set_fact("current", name)
        snapshot.point_current_to(home, name)
        corpus = snapshot.corpus_of(snapshot.folder_of(home, name))
        return Refreshed(home, "rollback", name, corpus=corpus, snapshots=len(standing))


def _beside(state: State, name: str) -> Iterator[tuple[Path, str]]:
    for file, sealed in (state.fact(f"files {name}") or {}).items():
        path = path_inside(state.home, file)
        if what := fault(path, sealed):
            yield path, what


def _faults(state: State, name: str) -> Iterator[tuple[Path, str]]:  # of all needed files
    for refresh in state.lineage(name):
        for path, what in _beside(state, refresh.name):
            if refresh.name == name or path.name == IDS:
                yield path, what
        for record in run_of(state.home, refresh.name).glob(f"{indexes.FOLDER}/*/{indexes.RECORD}"):
            yield from sorted(indexes.faults(record.parent).items())
    yield from snapshot.faults(snapshot.folder_of(state.home, name))


def _check_ground(state: State, base: str | None, content: bool = True) -> None:
    """Raise RunFailed, with advice on how to continue, if a file was changed in the snapshot
    `base`, or in the ids or indexes of the runs that led to the snapshot. If `content` is False,
    check only the snapshot's ids and the files next to the snapshot's folder, such as NAME.json."""
    if base is None:
        return
    path, what = next(_faults(state, base) if content else _beside(state, base), (None, ""))
    if path is None:
        return
    command = shlex.join(["llmcurate", "refresh", "-o", str(state.home)])
    command += " --abandon" if state.pending() else ""
    others = [name for name in reversed(snapshot.names_by_date(state)) if name != base]
    whole = next((name for name in others if not any(_faults(state, name))), None)
    back = f", or go back to {whole}: `{command} --rollback {whole}`" if whole else ""
    raise RunFailed(
        f"{path} {what}: restore it from a backup, or ingest all inputs again: `{command} --rebuild"
        f" RECIPE IN...`{back}"
    )


def _plan_new(recipe: Recipe, plan: InputPlan, earlier: list[Refresh], home: Path) -> RunPlan:
    runs = [run_of(home, r.name) for r in earlier]
    texts = json.dumps([[r.name, r.text] for r in earlier])
    digest = text_digest(texts)
    ids = EarlierIds(tuple(run / IDS for run in runs), digest)
    return plan_run(incremental.incremental(recipe, runs), plan, ids)


def _finish(
    state: State, refresh: Refresh, recipe: Recipe | None, how: RefreshOptions
) -> Refreshed:
    """Complete a refresh that has begun, from whatever point it has reached. `recipe` is None if
    the refresh only forgets documents."""
    import pyarrow.parquet as pq

    home = state.home
    earlier = [r for r in state.lineage(refresh.base) if r.kind != "forget"]
    out = run_of(home, refresh.name)
    stage = refresh.name
    base = snapshot.folder_of(home, refresh.base) if refresh.base else None
    if recipe is not None and refresh.kind != "forget":
        plan = _plan_new(recipe, _plan(refresh), earlier, home)
        stage = plan.corpus_key
        if not snapshot.is_whole(snapshot.folder_of(home, refresh.name)):
            run_planned(plan, out, how)
            leave = how.damaged != "take"
            if leave and (cut := cut_short(out / CORRUPT, plan.inputs, recipe.read)):
                raise _CutShort(cut)
            _keep_ids(plan, out)
    entries = state.removals()
    nothing = {"removals": 0, "removed": 0, "superseded": 0}
    before = snapshot.manifest(base) if base else nothing
    removals = Removals.of(entries)
    of_base = removals if before["removals"] < len(entries) else Removals()
    made_by = refresh.plan.recipe or earlier[-1].plan.recipe
    superseded: set[str] = set()  # earlier documents replaced by newer versions
    for path in sorted(out.glob(f"{indexes.FOLDER}/*/{indexes.OWN}/{SUPERSEDED}")):
        superseded.update(pq.read_table(path, columns=["id"])["id"].to_pylist())
    source = snapshot.Source(
        base=base,
        of_base=replace(of_base, superseded=frozenset(superseded)),
        new=None if refresh.kind == "forget" else out / "corpus",
        of_new=removals,
        stage=stage,
        about=snapshot.About(
            parent=refresh.plan.parent,
            base=refresh.base,
            made_by=refresh.kind,
            recipe=text_digest(json.dumps(json_values(made_by), sort_keys=True)),
            removals=len(entries),
        ),
    )
    target = snapshot.folder_of(home, refresh.name)
    snapshot.build(target, source)
    manifest = snapshot.manifest(target)
    newly = (state.fact("scrubbed") or 0) < len(entries)
    scrubbed = _scrub(home, refresh.name, None if newly else [out], removals)
    state.set_fact("scrubbed", len(entries))
    snapshot.point_current_to(home, refresh.name)
    done = Refreshed(
        home,
        refresh.kind,
        refresh.name,
        unchanged=refresh.plan.known,
        corpus=snapshot.corpus_of(target),
        forgotten=manifest["removed"] - before["removed"],
        superseded=manifest["superseded"] - before["superseded"],
        scrubbed=scrubbed,
    )
    if refresh.kind != "forget":
        done.inputs = len(refresh.plan.inputs["files"])
        record = json.loads((out / "run.json").read_text(encoding="utf-8"))
        done.totals = Totals.from_json(json.dumps(record["totals"]))
    files = [path for path in (*snapshot.beside(target), out / IDS) if path.is_file()]
    seals = {path.relative_to(home).as_posix(): seal(path) for path in files}
    state.set_fact(f"files {refresh.name}", seals)
    state.end(refresh.name)
    snapshot.tidy(state)
    return done


def _scrub(home: Path, name: str, runs: list[Path] | None, removals: Removals) -> Scrubbed:
    if not removals:
        return Scrubbed()
    if runs is None:
        runs = sorted(run_of(home, p.name) for p in (home / RUNS).glob("[!.]*") if p.is_dir())
    return scrub(runs, removals, snapshot.removed(snapshot.folder_of(home, name)))


def _keep_ids(plan: RunPlan, out: Path) -> None:
    aside = out / f".{IDS}"
    aside.unlink(missing_ok=True)
    link(stage_folder(out, plan.stages[0].folder_name) / ISSUED, aside)
    aside.replace(out / IDS)
    aside.unlink(missing_ok=True)  # if both are the same file, replace() does nothing


def preview(recipe: Recipe, inputs: list[str], home: Path, how: RefreshOptions) -> list[str]:
    """Return the lines of `--dry-run`: the inputs that a refresh would ingest."""
    if line := incremental.check(recipe):
        say(line, how.quiet)
    missing = to_fetch(recipe.document_steps)
    for file in missing:
        say(f"a refresh fetches {file} first", how.quiet)
    recipe = recipe if missing else recipe.without_missing_files(how.quiet)
    if not (home / FILE).exists():
        names = inputs or list(recipe.input)
        new_inputs = find_new(
            names,
            {},
            remote=_remote(recipe, home, how, True),
            skip_unreadable=recipe.read.skip_unreadable,
            columns=recipe.read.named,
            choice=recipe.read.choice,
        )
        return _preview_lines(new_inputs.new, new_inputs.unchanged, home)
    with open_state(home) as state:
        pending = None if how.abandon else state.pending()
        if pending:
            _check_options(state, pending, how)
            return [f"{home}: would resume the unfinished refresh {pending.name}"]
        earlier = [r for r in state.lineage(state.current) if r.kind != "forget"]
        if earlier and not how.rebuild and not missing:  # comparing needs these files
            incremental.same_recipe(earlier[-1].plan.recipe, recipe)
        files, inputs_now = _new_files(state, earlier, recipe, inputs, how, dry=True)
        return _preview_lines(files, inputs_now.unchanged, home)


def _preview_lines(files: list[Any], seen_before: int, home: Path) -> list[str]:
    size = sum(f.size for f in files)
    new = counted(len(files), "new input")
    head = f"{home}: {new}, {format_bytes(size)}; {seen_before:,} known"
    return [head, *(f"  {f.path}" for f in files[:20]), *(["  ..."] if len(files) > 20 else [])]
