"""Snapshots: HOME/corpus/NAME, each a whole corpus that is never changed.

Files that are the same in the previous snapshot are hard links to its files, so a snapshot takes
the space of its new documents only. Next to the folder, `NAME.json` has the base snapshot and each
file's documents, bytes of text and sha256. `NAME.removed.parquet` lists forgotten and superseded
documents.

The next refresh needs the indexes and ids of earlier runs, so a run's folder stays while a snapshot
is based on the run. A Bloom filter includes all earlier ones, so only the last run of a chain of
snapshots keeps its filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.indexes import link
from curate.corpus.manifests import file_record, manifest_path, total_ids, write_manifest
from curate.refresh.forgetting import Removals
from curate.refresh.outcome import Corpus, RefreshOptions
from curate.refresh.state import DONE, State
from curate.run.homes import CURRENT, FOLDER, RUNS, manifest, removed_file
from curate.steps.registry import step_class
from llmcurate.base.disk.files import (
    TEMPORARY,
    remove,
    remove_files,
    replacing,
    sync_path,
    temporary_name,
)
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.disk.process import cores, in_order
from llmcurate.base.disk.seals import fault
from llmcurate.base.errors import RunFailed


def folder_of(home: Path, name: str) -> Path:
    return home / FOLDER / name


def beside(folder: Path) -> tuple[Path, Path]:
    """Return the paths of a snapshot's manifest and of its list of removed documents."""
    return manifest_path(folder), folder.with_name(f"{folder.name}.removed.parquet")


def remove_beside(folder: Path, home: Path) -> None:
    remove_files(beside(folder), inside=home)


@dataclass(frozen=True)
class About:
    """The fields of a snapshot's manifest that describe the refresh that made the snapshot."""

    parent: str | None  # snapshot that was current before
    base: str | None  # snapshot on which this one is based
    made_by: str  # kind of refresh: run, rebuild or forget
    recipe: str  # digest
    removals: int  # number of requests to forget that were applied


@dataclass(frozen=True)
class Source:
    """The parts from which a snapshot is built: an earlier snapshot and the corpus of a new run,
    each without the documents to remove."""

    base: Path | None  # the earlier snapshot
    of_base: Removals  # documents to remove from `base`
    new: Path | None  # the corpus of the new run
    of_new: Removals  # documents to remove from `new`
    stage: str  # key of the last stage, for the manifest
    about: About


def is_whole(folder: Path) -> bool:
    """Return True if a snapshot is complete: `folder` and its manifest exist. A new snapshot's
    folder gets its final name last."""
    return folder.is_dir() and manifest_path(folder).is_file()


def faults(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield (path, what is wrong) for each file of a snapshot whose content was changed. Unchanged
    files are linked into the next snapshot, so the next snapshot would contain the wrong content
    too."""

    def compared(item: tuple[str, dict[str, int | str]]) -> tuple[Path, str | None]:
        path = folder / item[0]
        return path, fault(path, [None, item[1].get("sha256")])

    for path, what in in_order(compared, manifest(folder)["files"].items(), cores()):
        if what is not None:
            yield path, what


def hidden(path: Path, home: Path) -> Path:
    """Rename a folder in a HOME to a hidden name in one step. Return the new path."""
    aside = path.with_name(f".{path.name}-old")
    if path.is_symlink() or path.is_dir():
        remove(aside, inside=home)
        path.rename(aside)
    return aside


def build(target: Path, source: Source) -> None:
    """Make the snapshot `target` from `source`, unless the snapshot is already complete."""
    if is_whole(target) and manifest(target)["removals"] == source.about.removals:
        return
    home, name = target.parent.parent, target.name
    aside = target.with_name(f".{name}-new")
    remove(aside, inside=home)
    aside.mkdir(parents=True)
    files: list[dict[str, int | str]] = []
    gone: list[pa.Table] = []
    if source.base is not None:
        before = manifest(source.base)
        for part, entry in before["files"].items():
            record = {"name": part, **entry}
            _link_part(source.base / part, record, source.of_base, aside, files, gone, name)
        if (list_before := removed_file(source.base)) is not None:
            gone.insert(0, pq.read_table(list_before))
    if source.new is not None:
        for path, what in faults(source.new):
            raise RunFailed(f"{path} {what}: start again with --abandon")
        number = 1 + max((int(str(f["name"])[5:-8]) for f in files), default=-1)
        entries = manifest(source.new)["files"]
        filled = {p: e for p, e in entries.items() if e["documents"]}
        if not filled and not files:  # an empty corpus still has columns
            filled = dict(list(entries.items())[:1])
        for part, entry in filled.items():
            record = {**entry, "name": f"part-{number:05d}.parquet"}
            _link_part(source.new / part, record, source.of_new, aside, files, gone, name)
            number += 1
    sync_path(aside)
    remove(hidden(target, home), inside=home)  # left by a killed refresh
    remove_beside(target, home)
    removed = pa.concat_tables(gone) if gone else None
    if removed is not None and removed.num_rows:
        with replacing(beside(target)[1]) as path:
            pq.write_table(removed, path)
    by = removed["by"].to_pylist() if removed is not None else []
    superseded = by.count("superseded")
    about = {**vars(source.about), "removed": len(by) - superseded, "superseded": superseded}
    write_manifest(target, files, source.stage, **about)
    aside.rename(target)
    sync_path(target.parent)


def _link_part(
    path: Path,
    record: dict[str, int | str],
    removals: Removals,
    aside: Path,
    files: list[dict[str, int | str]],
    gone: list[pa.Table],
    name: str,
) -> None:
    target = aside / str(record["name"])
    gone_rows = removals.in_part(path, name) if removals else None
    if gone_rows is None or gone_rows.num_rows == 0:
        link(path, target)
        files.append(record)
        return
    gone.append(gone_rows)
    size = 0
    with pq.ParquetFile(path) as file, writing(target) as writer:
        writer.write(file.schema_arrow.empty_table())
        for batch in file.iter_batches(use_threads=False):
            table = pa.Table.from_batches([batch])
            stays = table.filter(pc.invert(pc.is_in(table["id"], value_set=gone_rows["id"])))
            size += pc.sum(pc.binary_length(stays["text"])).as_py() or 0
            writer.write(stays)
    files.append({**file_record(target), "name": record["name"], "text_bytes": size})


def corpus_of(folder: Path) -> Corpus:
    """Return how many documents and bytes a snapshot has, and the hash of its ids."""
    content = manifest(folder)
    ids = total_ids(f["ids"] for f in content["files"].values())
    return Corpus(content["documents"], content["text_bytes"], ids)


def removed(folder: Path) -> frozenset[str]:
    """Return the ids of all documents that were forgotten in this snapshot or in an earlier one
    that it is based on."""
    path = removed_file(folder)
    if path is None:
        return frozenset()
    table = pq.read_table(path, columns=["id", "by"])
    return frozenset(table.filter(pc.not_equal(table["by"], "superseded"))["id"].to_pylist())


def point_current_to(home: Path, name: str, within: str = FOLDER) -> None:
    """Make the link HOME/current point to a snapshot, in one step. `within` is the folder in HOME
    that contains the snapshot."""
    aside = home / temporary_name(CURRENT)
    aside.unlink(missing_ok=True)
    aside.symlink_to(Path(within) / name)
    aside.replace(home / CURRENT)
    sync_path(home)


def names(home: Path) -> list[str]:
    """Return the names of the existing snapshots, the oldest first."""
    folder = home / FOLDER
    if not folder.is_dir():
        return []
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith(".") and p.is_dir())


PRODUCTS = "products"


def remove_folder(path: Path, home: Path) -> None:
    remove(hidden(path, home), inside=home)


def _remove_snapshot(home: Path, name: str) -> None:
    folder = folder_of(home, name)
    aside = hidden(folder, home)  # first: without a manifest it would count as damaged
    remove_beside(folder, home)
    remove(aside, inside=home)


def drop(state: State, name: str) -> None:
    """Remove the snapshot, the run and the record of a refresh."""
    _remove_snapshot(state.home, name)
    remove_folder(state.home / RUNS / name, state.home)
    state.drop(name)


def names_by_date(state: State) -> list[str]:
    """Return the existing snapshots in the order in which they were made."""
    present = set(names(state.home))
    return [r.name for r in state.refreshes() if r.name in present and r.state == DONE]


def prune(state: State, how: RefreshOptions) -> list[str]:
    """Remove old snapshots if `how.keep` is set, and return their names. The newest `keep`
    snapshots and those in use stay."""
    gone: list[str] = []
    if how.keep is not None:
        names = names_by_date(state)
        stay = set(names[-how.keep :])
        pending = state.pending()
        stay |= {state.current or "", (pending.base or "") if pending else ""}
        gone = [n for n in names if n not in stay]
        for name in gone:
            _remove_snapshot(state.home, name)
    if gone:
        tidy(state)
    return gone


def tidy(state: State) -> None:
    """Remove files of finished refreshes that are no longer needed."""
    home = state.home
    standing = names_by_date(state)
    pending = state.pending()
    needed: set[str] = set()  # refreshes that a snapshot is based on
    tips: set[str] = set()  # refreshes whose run is the last of its lineage
    refreshes = state.refreshes()
    by_name = {r.name: r for r in refreshes}
    # The current refresh is needed even if a user moved its snapshot away.
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
        for path in run.glob(".*-old"):  # left by a killed refresh
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
    for path in (home / FOLDER).glob(".*-old"):
        if not path.with_name(name := path.name[1:-4]).exists():
            _remove_snapshot(home, name)
    for folder in (home / RUNS, home / FOLDER, home / PRODUCTS):
        for path in (*folder.glob(".*-old"), *folder.glob(f"{TEMPORARY}*")):
            remove(path, inside=home)
