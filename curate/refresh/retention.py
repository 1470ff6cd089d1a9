"""Retention: the snapshots that stay, and the parts of earlier runs that are still needed.

A run's folder stays while a snapshot that stands came from it: its indexes and ids are what the
next refresh compares with. Of Bloom filters only those that a refresh may go on from stay, since
each holds what those before it held (`CorpusStep.cumulative`).
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from curate.corpus.manifests import manifest_path
from curate.refresh import snapshot
from curate.refresh.outcome import How
from curate.refresh.state import DONE, State
from curate.steps.registry import step_class
from llmcurate.base.disk.files import TEMPORARY, remove, remove_files

RUNS, PRODUCTS = "runs", "products"


def remove_folder(path: Path, home: Path) -> None:
    """Takes a folder of a HOME out of sight at once, then away."""
    remove(snapshot.hidden(path, home), inside=home)


def _remove_snapshot(home: Path, name: str) -> None:
    folder = snapshot.folder_of(home, name)
    aside = snapshot.hidden(folder, home)  # first: without a manifest it would count as damaged
    snapshot.remove_beside(folder, home)
    remove(aside, inside=home)


def drop(state: State, name: str) -> None:
    """Takes a refresh away as if it had never begun."""
    _remove_snapshot(state.home, name)
    remove_folder(state.home / RUNS / name, state.home)
    state.drop(name)


def names_by_date(state: State) -> list[str]:
    """The snapshots that stand, in the order in which they were made."""
    present = set(snapshot.names(state.home))
    return [r.name for r in state.refreshes() if r.name in present and r.state == DONE]


def prune(state: State, how: How) -> list[str]:
    """Removes snapshots that neither `keep` nor `keep_days` keeps, never the current one; returns
    their names. What only they needed goes with them."""
    gone: list[str] = []
    if how.keep is not None or how.keep_days is not None:
        names = names_by_date(state)
        stay = set(names[-how.keep :] if how.keep else [])
        if how.keep_days is not None:
            oldest = (how.now or datetime.now(timezone.utc)) - timedelta(days=how.keep_days)
            begun = {n: datetime.strptime(n[:16], "%Y-%m-%dT%H-%M") for n in names}
            stay |= {n for n, when in begun.items() if when.replace(tzinfo=timezone.utc) >= oldest}
        pending = state.pending()
        stay |= {state.current or "", (pending.base or "") if pending else ""}
        gone = [n for n in names if n not in stay]
        for name in gone:
            _remove_snapshot(state.home, name)
    if gone:
        tidy(state)
    return gone


def tidy(state: State) -> None:
    """Removes what finished refreshes left and nothing needs."""
    home = state.home
    standing = names_by_date(state)
    pending = state.pending()
    needed: set[str] = set()  # refreshes that a snapshot came from
    tips: set[str] = set()  # those whose run is the last of its line
    refreshes = state.refreshes()
    by_name = {r.name: r for r in refreshes}
    # What is current is needed even where somebody moved its snapshot away.
    for first in [*standing, state.current, pending.base if pending else None]:
        name: str | None = first
        while name is not None and by_name[name].kind == "forget":
            needed.add(name)
            name = by_name[name].base
        if name is not None:
            tips.add(name)
        while name is not None and name not in needed:
            needed.add(name)
            name = by_name[name].base
    for refresh in refreshes:
        run = home / RUNS / refresh.name
        if refresh.state != DONE:
            continue
        if refresh.name not in needed:
            drop(state, refresh.name)
            continue
        for name in ("stages", "corpus"):
            remove_folder(run / name, home)
        remove_files([manifest_path(run / "corpus")], inside=home)
        for path in run.glob(".*-old"):  # of a killed one
            remove(path, inside=home)
        if refresh.name not in tips:
            for index in run.glob("index/[!.]*/"):
                if getattr(step_class(index.name.partition("#")[0]), "cumulative", False):
                    remove_folder(index, home)
    for path in (home / PRODUCTS).glob("[!.]*"):
        if path.is_symlink():
            if path.readlink().name not in standing:
                remove(path, inside=home)
        elif path.name not in standing:
            remove_folder(path, home)
    for path in (home / snapshot.FOLDER).glob(".*-old"):
        if not path.with_name(name := path.name[1:-4]).exists():
            _remove_snapshot(home, name)
    for folder in (home / RUNS, home / snapshot.FOLDER, home / PRODUCTS):
        for path in (*folder.glob(".*-old"), *folder.glob(f"{TEMPORARY}*")):
            remove(path, inside=home)
