"""The inputs of a refresh: files that no earlier one took in, in folders, patterns, lists and URLs.

A file is known by its path, and is the same while its size and time of change (of a remote store:
its tag) are. Known files are not opened, so looking costs a listing.

An input that is a URL is known by URL and version, and fetched where it is new. The version is size
and ETag, Last-Modified or checksum, as the server named them when the file came. Of known files
only that is asked again, with HEAD; a server that does not say leaves a file as known, so that one
which is down for a night stops nothing that is there already. Where changed inputs are skipped
nothing is asked.

An input whose end cannot be read is damaged: cut short, as while it is written. No document of it
is taken in; it is known by its path and state until it is another, and then read as a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from curate.fetch.hub import is_hub, unpinned
from curate.fetch.transfer import Wanted
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
from curate.formats.listing import InputFile, find_files
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from llmcurate.base.errors import RunFailed, UsageError

Seen = dict[str, tuple[str, str]]  # path or URL -> (state, stamp)
Damaged = dict[str, tuple[str, str]]  # path or URL -> (state, what is wrong)
HEAD_BYTES = 1 << 20  # in which a file that holds documents shows one


@dataclass
class Remote:
    """folder: where files are fetched to; dry: nothing is."""

    folder: Path
    quiet: bool = True
    dry: bool = False
    silent: int = 0  # known files that no server said anything of
    _wanted: dict[str, list[Wanted]] = field(default_factory=dict)
    _now: dict[str, str | None] = field(default_factory=dict)

    def takes(self, name: str) -> bool:
        """Return whether an input is fetched."""
        return (is_url(name) and not is_hub(name)) or name.lower().endswith(SUMS)

    def prepare(self, inputs: Iterable[str], seen: Seen, damaged: Damaged, changed: str) -> None:
        """Asks for the versions of known files, and fetches all that will be taken in."""
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
            # One that has come already, for a refresh that was killed, stays.
            if version(old) != self._now.get(url):
                for path in (old.target, old.note):
                    if path is not None:
                        path.unlink(missing_ok=True)
        fetch_all(
            [w for url, w in by_url.items() if url not in known or url in fetched], self.quiet
        )

    def state(self, url: str, seen: Seen) -> str:
        """The version of a known file as it is now, as far as anybody says."""
        return self._now.get(url) or seen[url][0]

    def files(self, name: str, seen: Seen, is_known: Callable[[str, str], bool]) -> list[InputFile]:
        """What of an input is taken in. is_known: as of `find_files`, by URL."""
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


def fetched_input(wanted: Wanted) -> InputFile:
    """A fetched file as an input. Its stamp does not depend on when it came."""
    (file,) = find_files([str(wanted.target)]).files
    content = file.stamp.rpartition("@")[0]
    size = f"{file.size}@"
    state = version(wanted) or versions_now({wanted.url: size})[wanted.url] or size
    return replace(file, state=state, stamp=content, url=wanted.url)


def fetch_again(file: InputFile, folder: str | None) -> InputFile:
    """A file of an unfinished refresh as it is now, fetched once more where it is gone. RunFailed
    where the recipe fetches it to another place than the one on record."""
    wanted = None if folder is None or not is_url(file.url) else place(file.url, Path(folder))
    if wanted is None or wanted.target.resolve() != Path(file.path).resolve():
        raise RunFailed(
            f"input {file.url} of an unfinished refresh was to come to {file.path}, which is not"
            f" where the recipe fetches it (read.fetch: {folder}): begin anew with --abandon"
        )
    fetch_all([wanted], True)
    return fetched_input(wanted)


@dataclass
class NewInputs:
    """new: files to take in, in order; unchanged: how many were passed over; changed: paths of
    those that are others now than when they were taken in; unreadable: how many files and folders
    were passed over because they could not be read; listed: state of all files by path; damaged:
    those of them that are left out."""

    new: list[InputFile]
    unchanged: int = 0
    listed: dict[str, str] = field(default_factory=dict)
    damaged: Damaged = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    unreadable: int = 0


def find_new(
    inputs: Iterable[str],
    seen: Seen,
    changed: str = "leave",
    remote: Remote | None = None,
    skip_unreadable: bool = False,
    columns: Columns = Columns(),
    choice: Choice = Choice(),
    damaged: Damaged | None = None,
) -> NewInputs:
    """What of the inputs is new. seen: of what was taken in; damaged: of what was left out, None
    where damaged files are taken as well.

    changed: what happens to a file that is another now: `leave`, `new` (its documents come as new
    ones), `skip`. remote: fetches inputs that are URLs.
    skip_unreadable: whether what may not be read is passed over, or is damaged. columns, choice: as
    of `find_files`.
    """
    result = NewInputs([])
    inputs = list(inputs)
    if remote is not None:
        remote.prepare(inputs, seen, damaged or {}, changed)
        if remote.silent:
            result.notices.append(
                f"{remote.silent} known inputs: their server does not say whether they changed"
            )
    seen = {unpinned(path): was for path, was in seen.items()}
    opened: dict[str, str] = {}

    def is_known(path: str, state: str) -> bool:
        path = unpinned(path)
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
            # A pattern or folder that holds nothing yet is no mistake of one that runs by itself.
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
            result.damaged[path] = ("", reason)  # looked at again by each call
    if damaged is not None:
        for file in [*result.new]:
            if what := _no_plan(file, columns):
                result.new.remove(file)
                result.damaged[file.url or file.path] = (file.state, what)
        taken = {unpinned(file.url or file.path) for file in result.new}
        for path in sorted(opened.keys() - taken - result.damaged.keys()):
            if what := _cut_head(path):  # passed over: cut short before the first document
                result.damaged[path] = (opened[path], what)
    return result


def _no_plan(file: InputFile, columns: Columns) -> str | None:
    """The reason if a file would end every plan that has it, else None."""
    try:
        if file.format in ("csv", "parquet"):
            carried_columns([file], 0, columns=columns)
    except (SameName, TooManyColumns) as error:
        return str(error).removeprefix(f"input {file.path}: ")
    return None if file.size else "it is empty"


def _cut_head(path: str) -> str | None:
    """The reason if a file of a known name ends too early to show what it holds, else None."""
    kind = format_by_name(PurePath(path).name)
    if kind in (None, "parquet"):  # tables are never passed over for damage
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
    except OSError:  # a file that may not be read has a notice already
        return None
    with suppress(ValueError):
        json.loads(head)
        return None
    return "it ends within its first line" if head else "it is empty"


def cut_short(corrupt: Path, plan: InputPlan, settings: ReadSettings) -> Damaged:
    """The files of a run whose end could not be read. corrupt: its corrupt.jsonl, which names all
    files with damage; their last slices are read once more, to see if anything follows it."""
    if not corrupt.is_file():
        return {}
    lines = corrupt.read_text(encoding="utf-8").splitlines()
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
    """The damage if it is the last of what a plan of one partition reads, else None."""
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
    """The first file of an unfinished refresh that changed since it began, else None. UsageError
    for a missing one. folder: of those that are fetched."""
    for file in files:
        now: InputFile | None
        try:
            now = fetch_again(file, folder) if file.url else find_files([file.path]).files[0]
        except UsageError:
            now = None
        name = file.url or file.path
        if now is None:
            raise UsageError(
                f"input {name} of an unfinished refresh is gone: put it back, or begin anew with"
                " --abandon"
            )
        if (now.size, now.stamp) != (file.size, file.stamp):
            return name
    return None
