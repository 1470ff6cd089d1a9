"""OUT/index: the sketches of a finished run's dedups, for later runs to compare with.

An index is a folder `index/LABEL` of hard links: the sketches of all documents that reached the
step, kept or dropped, final ids, and what the step left in its own folder (a Bloom filter, a
suffix array). `index.json` says which settings made it.

Files that a step leaves for OUT itself (`CorpusStep.leaves`) are put there too; `index/files.json`
lists them, so that a run with other steps takes them away.
"""

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
    all_inside,
    is_below,
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
    """What a step says of itself for a comparison with indexes. settings: those that an index must
    share with it; None: it leaves no index."""

    step: str
    label: str
    version: int
    settings: dict[str, Any] | None


@dataclass(frozen=True)
class IndexRecord:
    """The record of an index. name: of the corpus; comparable: the settings that a step must share
    with it; key: of the documents and settings behind it; settled: whether it has final ids of its
    own; files: their seals."""

    version: int
    name: str
    step: str
    label: str
    step_version: int
    comparable: dict[str, Any]
    key: str
    settled: bool
    files: dict[str, Seal]


@dataclass(frozen=True)
class Index:
    """One step's index. name: of the corpus."""

    name: str
    folder: Path
    record: IndexRecord

    @property
    def digest(self) -> str:
        """A digest of the documents and settings that the index was made of."""
        return self.record.key

    @property
    def step_folder(self) -> Path:
        """What the step left there besides sketches."""
        return self.folder / OWN

    @cached_property
    def parts(self) -> int:
        """How many partitions it holds: those whose files its record lists."""
        return sum(name.startswith("sketch-") for name in self.record.files)

    def check(self) -> None:
        """RunFailed where a file is not what was written."""
        for path, what in sorted(faults(self.folder).items())[:1]:
            raise RunFailed(f"{path} {what}: {_mend(self.folder)}")

    def files(self, shift: int) -> list[SketchFile]:
        """Its sketches as partitions from `shift` on."""
        ids = self.folder / IDS if self.record.settled else None
        return [
            SketchFile(shift + p, self.folder / f"sketch-{p:05d}.parquet", p, ids, self.name)
            for p in range(self.parts)
        ]


def earlier_files(indexes: Sequence[Index]) -> tuple[SketchFile, ...]:
    """The sketches of all indexes, in order, with negative partitions."""
    shift = -sum(index.parts for index in indexes)
    files: list[SketchFile] = []
    for index in indexes:
        files += index.files(shift)
        shift += index.parts
    return tuple(files)


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy where there can be none."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class IndexedStep:
    """One dedup of a run: its key, the sketches that it saw, its own folder, and the names of the
    files there that it leaves for OUT."""

    step: Comparable
    key: str
    corpus: SketchedCorpus
    step_folder: Path
    leaves: list[str]
    seals: Callable[[], dict[str, Seal]] = dict  # those of its files that are known, by path


def write_indexes(out: Path, dedups: list[IndexedStep]) -> None:
    """Makes OUT/index hold the indexes of these dedups and nothing else, and OUT the files that
    they leave."""
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
    """Links the files into OUT, and removes those that an earlier run put there."""
    listed = out / FOLDER / FILES
    names = [path.name for path in sources]
    before = _listed(listed, out)
    if names:  # first, so that no file is ever there without being on the list
        write_text(listed, json.dumps(sorted({*names, *before})) + "\n")
    for source in sources:
        aside = out / f".{source.name}-new"
        aside.unlink(missing_ok=True)
        link(source, aside)
        aside.replace(out / source.name)
        aside.unlink(missing_ok=True)  # where it is the same file already, replacing does nothing
    remove_files((out / name for name in before if name not in names), inside=out)
    if names:
        write_text(listed, json.dumps(sorted(names)) + "\n")
    else:
        listed.unlink(missing_ok=True)
    if names or before:
        sync_path(out)


def _listed(listed: Path, out: Path) -> list[str]:
    """The files that an earlier run put into OUT; RunFailed where the list names others."""
    try:
        names = json.loads(listed.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError:
        names = None
    return [path.relative_to(out).as_posix() for path in all_inside(out, names, listed)]


def all_written(out: Path, dedups: list[IndexedStep]) -> bool:
    """Return whether OUT holds what `write_indexes` would put there."""
    return all(
        all((out / name).exists() for name in dedup.leaves)
        and (
            dedup.step.settings is None
            or is_complete(out / FOLDER / dedup.step.label, dedup.key, content=False)
        )
        for dedup in dedups
    )


def record_before(step: Comparable, name: str, key: str) -> IndexRecord:
    """The record of an index that has no files yet."""
    settings = step.settings or {}
    return IndexRecord(VERSION, name, step.step, step.label, step.version, settings, key, False, {})


def _write(target: Path, dedup: IndexedStep, name: str) -> None:
    """Makes the index folder as a whole."""
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
    """Writes the record of an index, with a digest of itself."""
    whole = {**vars(record), "digest": _digest(record)}
    write_text(folder / RECORD, json.dumps(whole, indent=1) + "\n")


def record_of(folder: Path) -> IndexRecord | None:
    """The record of an index; None where it is not what was written."""
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
    """The way to make the files of an index what they were."""
    out = folder.parent.parent
    home = out.parent.parent
    for mended, ledger in ((home, "refresh.db"), (out, "ledger.db")):
        if (mended / ledger).is_file():
            return f"mend that corpus first, `llmcurate check {mended} --repair`"
    return "make that index again"


def faults(folder: Path) -> dict[Path, str]:
    """Return what is wrong with an index, by file."""
    record = record_of(folder)
    if record is None:
        return {folder / RECORD: "is not what was written"}
    faults = {folder / name: fault(folder / name, seal) for name, seal in record.files.items()}
    return {path: what for path, what in faults.items() if what is not None}


def seal_again(folder: Path) -> None:
    """Takes the files of an index as they are now, after a change that was meant."""
    record = _read(folder)
    names = [name for name in record.files if (folder / name).exists()]
    write_record(folder, replace(record, files={name: seal(folder / name) for name in names}))


def is_complete(target: Path, key: str, content: bool = True) -> bool:
    """Return whether the folder is the index of that key. content: and holds what was written."""
    record = record_of(target)
    if record is None or (record.version, record.key) != (VERSION, key):
        return False
    return not (content and faults(target))


def _read(folder: Path) -> IndexRecord:
    record = record_of(folder)
    if record is None:
        raise RunFailed(f"{folder / RECORD} is not what was written: {_mend(folder)}")
    if record.version != VERSION:
        raise UsageError(
            f"{folder} is an index of another version of llmcurate; run that dedup again"
        )
    return record


def folders(out: Path) -> list[Path]:
    """The index folders of an OUT, of OUT/index or of one index, by label."""
    for folder in (out, out.parent if out.name == RECORD else out):
        if (folder / RECORD).is_file():
            return [folder]
    for folder in (out / FOLDER, out):
        paths = sorted(p.parent for p in folder.glob(f"*/{RECORD}"))
        if paths:
            return [p for p in paths if not p.name.startswith(".")]
    return []


def all_in(out: Path) -> list[Index]:
    """Every index of a run's folder, by label."""
    records = [(folder, _read(folder)) for folder in folders(out)]
    return [Index(record.name, folder, record) for folder, record in records]


def named(against: str) -> tuple[str, str]:
    """(name, path) of `against`: NAME=path, or a path, whose name is empty."""
    name, equals, path = against.partition("=")
    return (name, path) if equals and "/" not in name else ("", against)


def is_documents(against: str, step: str) -> bool:
    """Whether `against` means documents: files, folders and URLs without an index, and runs that
    kept documents and have no index of this step."""
    _, path = named(against)
    out = Path(path)
    if not (steps := [_read(folder).step for folder in folders(out)]):
        return "://" in path or (out.exists())
    return step not in steps and (out / "corpus").is_dir()


def find(against: str, step: Comparable) -> Index:
    """The index that `against` (a folder, or NAME=folder) means for this step.

    UsageError where there is none, or one made with settings that cannot be compared.
    """
    name, path = named(against)
    out = Path(path)
    index_folders = folders(out)
    if not index_folders:
        missing = "no index there" if out.exists() else "does not exist"
        raise UsageError(
            f"{step.label}: against {path}: {missing}; name documents, or the OUT folder of a"
            f" finished {step.step} run"
        )
    records = [(p, _read(p)) for p in index_folders]
    candidates = [(p, r) for p, r in records if r.step == step.step]
    if not candidates:
        have = ", ".join(sorted({r.step for _, r in records}))
        raise UsageError(
            f"{step.label}: against {path}: it has an index of {have}, none of {step.step}"
        )
    settings = step.settings or {}
    for folder, record in candidates:
        if record.comparable == settings and record.step_version == step.version:
            return Index(name or record.name, folder, record)
    folder, record = candidates[0]
    other = [k for k in settings if record.comparable.get(k) != settings[k]]
    if not other:
        raise UsageError(
            f"{step.label}: against {path}: made by another version of {step.step}; run it again"
        )
    made_with = ", ".join(f"{k}: {record.comparable.get(k)}" for k in other)
    raise UsageError(
        f"{step.label}: against {path}: that index was made with {made_with}; use the same settings"
    )


def duplicate_name(label: str, name: str) -> UsageError:
    """Two corpora by one name cannot be told apart in decisions."""
    return UsageError(f"{label}: against names two corpora {name!r}; write NAME=FOLDER for one")
