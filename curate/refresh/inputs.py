"""Find the new inputs of a refresh in folders, patterns, lists and URLs.

A file is known by its path, and unchanged while its size and modification time (in a remote store:
its tag) stay the same; known files are not opened. A URL is known by its version: size and ETag,
Last-Modified or checksum, asked by HEAD requests (with `--changed skip` only for damaged files). If
a server does not answer, its files count as unchanged, so the refresh continues.

An input whose end cannot be read is damaged, cut short or still being written. It is left out until
it changes, and is then read as a new file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from curate.fetch.hub import is_hub, without_commits
from curate.fetch.transfer import FileToFetch
from curate.formats.columns import Columns, SameName, TooManyColumns
from curate.formats.compression import BREAK, members, open_input
from curate.formats.data_sets import Choice
from curate.formats.fetched import (
    SUMS,
    fetch_all,
    is_url,
    place,
    version,
    versions_now,
    wanted_inputs,
)
from curate.formats.inputs import InputPlan, carried_columns
from curate.formats.kinds import format_by_name
from curate.formats.listing import InputFile, find_files, one_spelling
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from llmcurate.base.errors import RunFailed, UsageError

Known = dict[str, tuple[str, str]]  # path or URL -> (state, stamp)
Damaged = dict[str, tuple[str, str]]  # path or URL -> (state, what is wrong)
HEAD_BYTES = 1 << 20  # a readable file has its first line within these


@dataclass
class Remote:
    """Fetches the inputs of a refresh that are URLs, and remembers the version of each."""

    folder: Path  # where fetched files are stored
    quiet: bool = True
    dry: bool = False  # True to fetch nothing
    silent: int = 0  # number of known files whose servers gave no version
    _wanted: dict[str, list[FileToFetch]] = field(default_factory=dict)  # files behind each input
    _now: dict[str, str | None] = field(default_factory=dict)  # URL -> current version

    def takes(self, name: str) -> bool:
        return (is_url(name) and not is_hub(name)) or name.lower().endswith(SUMS)

    def prepare(self, inputs: Iterable[str], seen: Known, damaged: Damaged, changed: str) -> None:
        """Ask servers for the versions of known files, and fetch all files to ingest."""
        known = damaged | seen
        for name in inputs:
            if self.takes(name) and name not in self._wanted:
                self._wanted[name] = wanted_inputs(name, self.folder)
        by_url = {w.url: w for listed in self._wanted.values() for w in listed}
        before = [url for url in by_url if url in known]
        asked = [url for url in before if changed != "skip" or url not in seen]
        self._now = versions_now({url: known[url][0] for url in asked})
        self.silent = sum(now is None for now in self._now.values())
        others = [url for url in before if self.state(url, known) != known[url][0]]
        if self.dry:
            return
        fetched = {url for url in others if changed == "new" or url not in seen}
        for url in fetched:
            old = by_url[url]
            # Keep a file that a killed refresh has fetched already.
            if version(old) != self._now.get(url):
                for path in (old.target, old.note):
                    if path is not None:
                        path.unlink(missing_ok=True)
        fetch_all(
            [w for url, w in by_url.items() if url not in known or url in fetched], self.quiet
        )

    def state(self, url: str, seen: Known) -> str:
        """Return a known file's current version, or the recorded one if the server gives none."""
        return self._now.get(url) or seen[url][0]

    def files(
        self, name: str, seen: Known, is_known: Callable[[str, str], bool]
    ) -> list[InputFile]:
        """Return the files that an input names, without those for which `is_known(url, state)` is
        True. `seen` has the files of earlier refreshes. `state` is the file's version, such as size
        and ETag, or "" if `seen` does not have the URL."""
        files = []
        for wanted in self._wanted[name]:
            if is_known(wanted.url, self.state(wanted.url, seen) if wanted.url in seen else ""):
                continue
            if self.dry:
                name = wanted.target.name
                files.append(InputFile(wanted.url, name, "", "", 0, "", "", wanted.url))
            else:
                files.append(fetched_input(wanted))
        return files


def fetched_input(wanted: FileToFetch) -> InputFile:
    """Return a fetched file as an input. The digest that identifies its content does not depend on
    the time of fetching."""
    (file,) = find_files([str(wanted.target)]).files
    content = file.stamp.rpartition("@")[0]
    size = f"{file.size}@"
    state = version(wanted) or versions_now({wanted.url: size})[wanted.url] or size
    return replace(file, state=state, stamp=content, url=wanted.url)


def fetch_again(file: InputFile, folder: str | None) -> InputFile:
    """Return a fetched input file of an unfinished refresh as it is now. It is fetched again if it
    is missing. Raise RunFailed if the recipe now fetches the file to another path."""
    wanted = None if folder is None or not is_url(file.url) else place(file.url, Path(folder))
    if wanted is None or wanted.target.resolve() != Path(file.path).resolve():
        raise RunFailed(
            f"input {file.url} of an unfinished refresh belongs at {file.path}, but the recipe now"
            f" fetches it elsewhere (read.fetch: {folder}): start again with --abandon"
        )
    fetch_all([wanted], True)
    return fetched_input(wanted)


@dataclass
class NewInputs:
    """The outcome of a search for new inputs."""

    new: list[InputFile]  # files to ingest, in order
    unchanged: int = 0  # number of known files that did not change
    listed: dict[str, str] = field(default_factory=dict)  # path -> state, for all files
    damaged: Damaged = field(default_factory=dict)  # files left out: end cannot be read
    changed: list[str] = field(default_factory=list)  # paths of known files that changed
    notices: list[str] = field(default_factory=list)
    unreadable: int = 0  # number of files and folders that were skipped


def find_new(
    inputs: Iterable[str],
    seen: Known,
    changed: str = "leave",
    remote: Remote | None = None,
    skip_unreadable: bool = False,
    columns: Columns = Columns(),
    choice: Choice = Choice(),
    damaged: Damaged | None = None,
) -> NewInputs:
    """Return the new files among the inputs, without the files in `seen`, which earlier refreshes
    ingested.

    `changed` says what to do with a known file that changed: `leave`, `new` (ingest its documents
    as new ones) or `skip`. `remote` fetches inputs that are URLs. Unreadable files are skipped if
    `skip_unreadable` is True, otherwise they count as damaged. `columns` and `choice` are passed to
    the function find_files. `damaged` are the files that earlier refreshes left out as damaged; if
    None, damaged files are ingested."""
    result = NewInputs([])
    inputs = list(inputs)
    if remote is not None:
        remote.prepare(inputs, seen, damaged or {}, changed)
        if remote.silent:
            result.notices.append(
                f"{remote.silent} known inputs: their server does not report whether they changed"
            )
    seen = {without_commits(one_spelling(path)): was for path, was in seen.items()}
    opened: dict[str, str] = {}

    def is_known(path: str, state: str) -> bool:
        path = without_commits(path)
        if path in result.listed:  # given twice
            return True
        result.listed[path] = state
        if damaged and path in damaged and damaged[path][0] == state:
            result.damaged[path] = damaged[path]
            return True
        if path in seen:
            if seen[path][0] == state:
                result.unchanged += 1
                return True
            result.changed.append(path)
            if changed != "new":
                return True
        opened[path] = state
        return False

    for name in inputs:
        if remote is not None and remote.takes(name):
            result.new += remote.files(name, (damaged or {}) | seen, is_known)
            continue
        try:
            now_there = find_files(
                [name], is_known, skip_unreadable=True, columns=columns, choice=choice
            )
        except UsageError as error:
            # In a scheduled refresh, a pattern or folder without files yet is not an error.
            if "matches no file" not in str(error) and "holds no file" not in str(error):
                raise
            result.notices.append(str(error))
            unreadable = getattr(error, "unreadable", {})
        else:
            result.new += now_there.files
            result.notices += now_there.notices
            unreadable = now_there.unreadable
        result.unreadable += len(unreadable)
        for path, reason in unreadable.items() if not skip_unreadable else ():
            result.damaged[path] = ("", reason)  # checked again by each call
    if damaged is not None:
        for file in [*result.new]:
            if what := _no_plan(file, columns):
                result.new.remove(file)
                result.damaged[file.url or file.path] = (file.state, what)
        taken = {without_commits(file.url or file.path) for file in result.new}
        for path in sorted(opened.keys() - taken - result.damaged.keys()):
            if what := _cut_head(path):  # skipped: cut short before the first document
                result.damaged[path] = (opened[path], what)
    return result


def _no_plan(file: InputFile, columns: Columns) -> str | None:
    try:
        if file.format in ("csv", "parquet"):
            carried_columns([file], 0, columns=columns)
    except (SameName, TooManyColumns) as error:
        return str(error).removeprefix(f"input {file.path}: ")
    return None if file.size else "it is empty"


def _cut_head(path: str) -> str | None:
    kind = format_by_name(PurePath(path).name)
    if kind in (None, "parquet"):  # these are never skipped for damage
        return None
    head = b""
    try:
        with open_input(path) as file:
            for piece in members(file):
                if piece.kind == BREAK:
                    return piece.what
                head += piece.data
                if b"\n" in head or len(head) > HEAD_BYTES:
                    return None
    except OSError:  # an unreadable file has a notice already
        return None
    with suppress(ValueError):
        json.loads(head)
        return None
    return "it ends within its first line" if head else "it is empty"


def cut_short(corrupt: Path, plan: InputPlan, settings: ReadSettings) -> Damaged:
    """Return {path or URL: (state, damage)} for input files that are damaged at their end. `state`
    is the file's version, such as size and modification time. `corrupt` is the run's corrupt.jsonl,
    which names all damaged files; the last part of each is read again."""
    if not corrupt.is_file():
        return {}
    lines = corrupt.read_bytes().splitlines()
    suspects = {json.loads(line)["file"] for line in lines}
    last = {part.file: part for parts in plan.partitions for part in parts}
    cut: Damaged = {}
    for number, file in enumerate(plan.files):
        if file.path in suspects:
            slices = ((replace(last[number], file=0),),)
            alone = replace(plan, files=(file,), partitions=slices, documents_of_last=None)
            if what := _last_damage(alone, settings):
                cut[file.url or file.path] = (file.state, what)
    return cut


def _last_damage(plan: InputPlan, settings: ReadSettings) -> str | None:
    before = 0

    def note() -> None:
        nonlocal before
        before = reader.account.corrupt.count

    reader = PartitionReader(plan, 0, settings, note)
    for _ in reader:
        pass
    damage = reader.account.corrupt
    return damage.places()[-1].what if damage.count > before else None


def changed_input(files: Iterable[InputFile], folder: str | None = None) -> str | None:
    """Return the path or URL of the first file that changed since the refresh began, or None. Raise
    UsageError if a file is missing. `folder` is the recipe's `read.fetch`."""
    for file in files:
        now: InputFile | None
        try:
            now = fetch_again(file, folder) if file.url else find_files([file.path]).files[0]
        except UsageError:
            now = None
        name = file.url or file.path
        if now is None:
            raise UsageError(
                f"input {name} of an unfinished refresh is missing: restore it, or start again with"
                " --abandon"
            )
        if (now.size, now.stamp) != (file.size, file.stamp):
            return name
    return None
