"""The inputs of a refresh: files that no earlier one took in, in folders, patterns, lists and URLs.

A file is known by its path, and is the same while its size and time of change (of a remote store:
its tag) are. Known files are not opened, so looking costs a listing.

An input that is a URL is known by URL and version, and fetched where it is new. The version is size
and ETag, Last-Modified or checksum, as the server named them when the file came. Of known files
only that is asked again, with HEAD; a server that does not say leaves a file as known, so that one
which is down for a night stops nothing that is there already. Where changed inputs are skipped
nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from curate.errors import RunFailed, UsageError
from curate.fetch.hub import is_hub, unpinned
from curate.fetch.transfer import Wanted
from curate.formats.columns import Columns
from curate.formats.fetched import (
    SUMS,
    fetch_all,
    is_url,
    place,
    version,
    versions_now,
    wanted_inputs,
)
from curate.formats.input_file import InputFile
from curate.formats.listing import find_files

Seen = dict[str, tuple[str, str]]  # path or URL -> (state, stamp)


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
        """Whether an input is fetched."""
        return (is_url(name) and not is_hub(name)) or name.lower().endswith(SUMS)

    def prepare(self, inputs: Iterable[str], seen: Seen, changed: str) -> None:
        """Asks for the versions of known files, and fetches all that will be taken in."""
        for name in inputs:
            if self.takes(name) and name not in self._wanted:
                self._wanted[name] = wanted_inputs(name, self.folder)
        by_url = {w.url: w for listed in self._wanted.values() for w in listed}
        seen_before = [url for url in by_url if url in seen]
        if changed != "skip":
            self._now = versions_now({url: seen[url][0] for url in seen_before})
        self.silent = sum(now is None for now in self._now.values())
        others = [url for url in seen_before if self.state(url, seen) != seen[url][0]]
        if self.dry or (others and changed == "refuse"):
            return
        for url in others if changed == "new" else ():
            old = by_url[url]
            # One that has come already, for a refresh that was killed, stays.
            if version(old) != self._now.get(url):
                for path in (old.target, old.note):
                    if path is not None:
                        path.unlink(missing_ok=True)
        fetched = {*others} if changed == "new" else set()
        fetch_all([w for url, w in by_url.items() if url not in seen or url in fetched], self.quiet)

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
    were passed over because they could not be read."""

    new: list[InputFile]
    unchanged: int = 0
    changed: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    unreadable: int = 0


def find_new(
    inputs: Iterable[str],
    seen: Seen,
    changed: str = "refuse",
    remote: Remote | None = None,
    skip_unreadable: bool = False,
    columns: Columns = Columns(),
) -> NewInputs:
    """What of the inputs is new. seen: of what was taken in.

    changed: what happens to a file that is another now: `refuse` (UsageError that names it), `new`
    (its documents come as new ones), `skip`. remote: fetches inputs that are URLs.
    skip_unreadable, columns: as of `find_files`.
    """
    result = NewInputs([])
    inputs = list(inputs)
    if remote is not None:
        remote.prepare(inputs, seen, changed)
        if remote.silent:
            result.notices.append(
                f"{remote.silent} known inputs: their server does not say whether they changed"
            )
    listed: set[str] = set()
    seen = {unpinned(path): was for path, was in seen.items()}

    def is_known(path: str, state: str) -> bool:
        path = unpinned(path)
        if path in listed:  # given twice
            return True
        listed.add(path)
        if path not in seen:
            return False
        if seen[path][0] == state:
            result.unchanged += 1
            return True
        result.changed.append(path)
        return changed != "new"

    for name in inputs:
        if remote is not None and remote.takes(name):
            result.new += remote.files(name, seen, is_known)
            continue
        try:
            now_there = find_files(
                [name], is_known, skip_unreadable=skip_unreadable, columns=columns
            )
        except UsageError as error:
            # A pattern or folder that holds nothing yet is no mistake of one that runs by itself.
            if "matches no file" in str(error) or "holds no file" in str(error):
                result.notices.append(str(error))
                continue
            raise
        result.new += now_there.files
        result.notices += now_there.notices
        result.unreadable += now_there.unreadable
    if result.changed and changed == "refuse":
        more = f" and {len(result.changed) - 1} others" if len(result.changed) > 1 else ""
        raise UsageError(
            f"input {result.changed[0]}{more} changed since it was taken in: with --changed new its"
            " documents come as new ones, with --changed skip it is left"
        )
    return result


def check_unchanged(files: Iterable[InputFile], folder: str | None = None) -> None:
    """UsageError where files of an unfinished refresh are not as they were when it began. folder:
    where those that are URLs are fetched to."""
    for file in files:
        now: InputFile | None
        try:
            now = fetch_again(file, folder) if file.url else find_files([file.path]).files[0]
        except UsageError:
            now = None
        if now is None or (now.size, now.stamp) != (file.size, file.stamp):
            problem = "is gone" if now is None else "changed"
            raise UsageError(
                f"input {file.url or file.path} of an unfinished refresh {problem}: put it back, or"
                " begin anew with --abandon"
            )
