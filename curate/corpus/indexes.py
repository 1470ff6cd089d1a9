"""OUT/index: the sketches (MinHash values, hashes and so on) that the dedup steps of a run made.
Later runs compare their documents with these sketches. The folder `index/LABEL` of a step has hard
links to the sketches of all documents that reached the step, to the file of final ids, and to other
files of the step (a Bloom filter, a suffix array). Its `index.json` has the settings of the step
and a seal (size and digest) of each file. `index/files.json` lists further files that steps write
in OUT (`CorpusStep.leaves`), so that a run with other steps can remove them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from curate.corpus.sketches import SketchedCorpus, SketchFile
from llmcurate.base.disk.files import (
    is_below,
    paths_inside,
    remove,
    remove_files,
    sync_path,
    text_digest,
    write_text,
)
from llmcurate.base.disk.seals import DIGEST, Seal, fault, seal
from llmcurate.base.errors import RunFailed, UsageError

FOLDER, RECORD, OWN, IDS, FILES = "index", "index.json", "own", "ids.parquet", "files.json"
VERSION = 1


@dataclass(frozen=True)
class Comparable:
    """The facts about a dedup step that decide which indexes it can use."""

    step: str  # name of the step
    label: str  # the name, or NAME#2 for the second use in a recipe
    version: int
    settings: dict[str, Any] | None  # must equal the index's; None if the step leaves no index


@dataclass(frozen=True)
class IndexRecord:
    """The content of index.json: the record of one index."""

    version: int  # version of the format
    name: str  # name of the corpus
    step: str
    label: str
    step_version: int
    comparable: dict[str, Any]  # settings that must be equal in a step that uses the index
    key: str  # digest of the documents and settings that made the index
    settled: bool  # True if the index has a file of final ids (some ids were changed)
    files: dict[str, Seal]  # size and digest of each file


@dataclass(frozen=True)
class Index:
    """The index of one dedup step."""

    name: str  # name of the corpus
    folder: Path
    record: IndexRecord

    @property
    def digest(self) -> str:
        """A digest of the documents and settings that made the index."""
        return self.record.key

    @property
    def step_folder(self) -> Path:
        return self.folder / OWN

    @cached_property
    def parts(self) -> int:
        return sum(name.startswith("sketch-") for name in self.record.files)

    def check(self) -> None:
        """Raise RunFailed if a file of the index differs from its seal (size and digest)."""
        for path, what in sorted(faults(self.folder).items())[:1]:
            raise RunFailed(f"{path} {what}: {_mend(self.folder)}")

    def files(self, shift: int) -> list[SketchFile]:
        """Return the index's files of sketches. Their partitions are numbered from `shift` on."""
        ids = self.folder / IDS if self.record.settled else None
        return [
            SketchFile(shift + p, self.folder / f"sketch-{p:05d}.parquet", p, ids, self.name)
            for p in range(self.parts)
        ]


def earlier_files(indexes: Sequence[Index]) -> tuple[SketchFile, ...]:
    """Return the sketch files of all indexes, in order. Their partitions get negative numbers."""
    shift = -sum(index.parts for index in indexes)
    files: list[SketchFile] = []
    for index in indexes:
        files += index.files(shift)
        shift += index.parts
    return tuple(files)


def link(source: Path, target: Path) -> None:
    """Make a hard link to `source` at `target`, or a copy if that fails."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class IndexedStep:
    """A dedup step of a run, and the files that it leaves for OUT."""

    step: Comparable
    key: str  # digest of the documents and settings that make the index
    corpus: SketchedCorpus
    step_folder: Path  # files that the step wrote for its index
    leaves: list[str]  # names of files in step_folder that are also linked into OUT
    seals: Callable[[], dict[str, Seal]] = dict  # returns {path: known seal}


def write_indexes(out: Path, dedups: list[IndexedStep]) -> None:
    """Write the indexes of these steps to OUT/index, and link into OUT the other files that the
    steps leave. Remove all other indexes, and the files that steps of earlier runs left."""
    home = out / FOLDER
    labels = set()
    for dedup in dedups:
        if dedup.step.settings is not None:
            labels.add(dedup.step.label)
            if not is_complete(home / dedup.step.label, dedup.key):
                _write(home / dedup.step.label, dedup, out.resolve().name)
    for path in home.iterdir() if home.is_dir() else ():
        if path.is_dir() and path.name not in labels:
            remove(path, inside=out)
    _put_files(out, [dedup.step_folder / name for dedup in dedups for name in dedup.leaves])
    if home.is_dir() and not any(home.iterdir()):
        home.rmdir()


def _put_files(out: Path, sources: list[Path]) -> None:
    listed = out / FOLDER / FILES
    names = [path.name for path in sources]
    before = _listed(listed, out)
    if names:  # written first, so that every linked file is on the list
        write_text(listed, json.dumps(sorted({*names, *before})) + "\n")
    for source in sources:
        aside = out / f".{source.name}-new"
        aside.unlink(missing_ok=True)
        link(source, aside)
        aside.replace(out / source.name)
        aside.unlink(missing_ok=True)  # still there if both are the same file
    remove_files((out / name for name in before if name not in names), inside=out)
    if names:
        write_text(listed, json.dumps(sorted(names)) + "\n")
    else:
        listed.unlink(missing_ok=True)
    if names or before:
        sync_path(out)


def _listed(listed: Path, out: Path) -> list[str]:
    try:
        names = json.loads(listed.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError:
        names = None
    return [path.relative_to(out).as_posix() for path in paths_inside(out, names, listed)]


def all_written(out: Path, dedups: list[IndexedStep]) -> bool:
    """Return True if OUT already holds all that `write_indexes` would write."""
    return all(
        all((out / name).exists() for name in dedup.leaves)
        and (
            dedup.step.settings is None
            or is_complete(out / FOLDER / dedup.step.label, dedup.key, content=False)
        )
        for dedup in dedups
    )


def needed(out: Path, dedups: list[IndexedStep]) -> list[Path]:
    """Return the paths of the files that must exist once `write_indexes` has run: the files that
    the steps leave in the folder `out`, and the index.json of each index."""
    leaves = [out / name for dedup in dedups for name in dedup.leaves]
    made = [dedup.step for dedup in dedups if dedup.step.settings is not None]
    return [*leaves, *(out / FOLDER / step.label / RECORD for step in made)]


def record_before(step: Comparable, name: str, key: str) -> IndexRecord:
    """Return the record of an index that has no files yet."""
    settings = step.settings or {}
    return IndexRecord(VERSION, name, step.step, step.label, step.version, settings, key, False, {})


def _write(target: Path, dedup: IndexedStep, name: str) -> None:
    aside = target.with_name(f".{target.name}-new")
    remove(aside, inside=target.parent.parent)
    (aside / OWN).mkdir(parents=True)
    paths = dedup.corpus.paths()
    linked = {f"sketch-{part:05d}.parquet": path for part, path in enumerate(paths)}
    if dedup.corpus.ids is not None:
        linked[IDS] = dedup.corpus.ids
    for path in sorted(dedup.step_folder.rglob("*")):
        if path.is_file():
            linked[f"{OWN}/{path.relative_to(dedup.step_folder).as_posix()}"] = path
    for inner, path in linked.items():
        (aside / inner).parent.mkdir(parents=True, exist_ok=True)
        link(path, aside / inner)
    earlier = dedup.seals()
    files = {inner: earlier.get(str(path)) or seal(path) for inner, path in linked.items()}
    record = record_before(dedup.step, name, dedup.key)
    write_record(aside, replace(record, settled=dedup.corpus.ids_changed, files=files))
    remove(target, inside=target.parent.parent)
    aside.rename(target)
    sync_path(target.parent)


def write_record(folder: Path, record: IndexRecord) -> None:
    whole = {**vars(record), "digest": _digest(record)}
    write_text(folder / RECORD, json.dumps(whole, indent=1) + "\n")


def record_of(folder: Path) -> IndexRecord | None:
    """Return the content of a folder's index.json; None if the file is missing or was changed."""
    try:
        content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        digest, record = content.pop("digest"), IndexRecord(**content)
        below = all(map(is_below, record.files))
        return record if digest == _digest(record) and below else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _digest(record: IndexRecord) -> str:
    return text_digest(json.dumps(vars(record), sort_keys=True), DIGEST)


def _mend(folder: Path) -> str:
    out = folder.parent.parent
    home = out.parent.parent
    for mended, ledger in ((home, "refresh.db"), (out, "ledger.db")):
        if (mended / ledger).is_file():
            return f"repair that corpus first with `llmcurate check {mended} --repair`"
    return "run that dedup again"


def faults(folder: Path) -> dict[Path, str]:
    """Return {file: what is wrong} for files of an index that differ from recorded digests."""
    record = record_of(folder)
    if record is None:
        return {folder / RECORD: "was changed after it was written"}
    faults = {folder / name: fault(folder / name, seal) for name, seal in record.files.items()}
    return {path: what for path, what in faults.items() if what is not None}


def seal_again(folder: Path) -> None:
    """Replace the seals (size, digest) of an index's files after an intended change."""
    record = _read(folder)
    names = [name for name in record.files if (folder / name).exists()]
    write_record(folder, replace(record, files={name: seal(folder / name) for name in names}))


def is_complete(target: Path, key: str, content: bool = True) -> bool:
    """Return True if the folder is the index with this key. With `content`, also compare its files
    with their seals (sizes and digests)."""
    record = record_of(target)
    if record is None or (record.version, record.key) != (VERSION, key):
        return False
    return not (content and faults(target))


def _read(folder: Path) -> IndexRecord:
    record = record_of(folder)
    if record is None:
        raise RunFailed(f"{folder / RECORD} was changed after it was written: {_mend(folder)}")
    if record.version != VERSION:
        raise UsageError(
            f"{folder} is an index of another version of llmcurate: run that dedup again"
        )
    return record


def folders(out: Path) -> list[Path]:
    """Return the folders of indexes, sorted by label. `out` is OUT, OUT/index, or one index."""
    for folder in (out, out.parent if out.name == RECORD else out):
        if (folder / RECORD).is_file():
            return [folder]
    for folder in (out / FOLDER, out):
        paths = sorted(p.parent for p in folder.glob(f"*/{RECORD}"))
        if paths:
            return [p for p in paths if not p.name.startswith(".")]
    return []


def all_in(out: Path) -> list[Index]:
    records = [(folder, _read(folder)) for folder in folders(out)]
    return [Index(record.name, folder, record) for folder, record in records]


def named(against: str) -> tuple[str, str]:
    """Return (name, path) for a value of `against`, which is NAME=path or a path. For a path alone,
    the name is empty."""
    name, equals, path = against.partition("=")
    return (name, path) if equals and "/" not in name else ("", against)


def is_documents(against: str, step: str) -> bool:
    """Return True if `against` names documents, not an index: files, folders and URLs without an
    index, or a run that kept documents and has no index of this step."""
    _, path = named(against)
    out = Path(path)
    if not (steps := [_read(folder).step for folder in folders(out)]):
        return "://" in path or (out.exists())
    return step not in steps and (out / "corpus").is_dir()


def find(against: str, step: Comparable) -> Index:
    """Return the index for this step in the folder `against`, which may be given as NAME=folder.
    Raise UsageError if the index is missing or has other settings."""
    name, path = named(against)
    out = Path(path)
    index_folders = folders(out)
    if not index_folders:
        reason = "it has no index" if out.exists() else "it does not exist"
        raise UsageError(
            f"{step.label}: against {path}: {reason}; give documents or the OUT folder of a"
            f" finished {step.step} run"
        )
    records = [(p, _read(p)) for p in index_folders]
    candidates = [(p, r) for p, r in records if r.step == step.step]
    if not candidates:
        have = ", ".join(sorted({r.step for _, r in records}))
        raise UsageError(
            f"{step.label}: against {path}: it has an index of {have}, but not of {step.step}"
        )
    settings = step.settings or {}
    for folder, record in candidates:
        if record.comparable == settings and record.step_version == step.version:
            return Index(name or record.name, folder, record)
    folder, record = candidates[0]
    different = [k for k in settings if record.comparable.get(k) != settings[k]]
    if not different:
        raise UsageError(
            f"{step.label}: against {path}: made by another version of {step.step}; run it again"
        )
    made_with = ", ".join(f"{k}: {record.comparable.get(k)}" for k in different)
    raise UsageError(
        f"{step.label}: against {path}: that index was made with {made_with}; use the same settings"
    )
