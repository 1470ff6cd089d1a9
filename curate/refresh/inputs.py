"""Which inputs are new: files in folders, patterns and lists that no earlier refresh took in.

A file is known by its path, and is the same while its size and time of change (of a remote store:
its tag) are. Known files are not opened, so looking costs a listing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from curate.errors import UsageError
from curate.formats.inputs import InputFile, find_files
from curate.refresh.remote import Remote, Seen, again

CHANGED = ("refuse", "new", "skip")


@dataclass
class Found:
    """new: files to take in, in order; known: how many were passed over; changed: paths of those
    that are others now than when they were taken in."""

    new: list[InputFile]
    known: int = 0
    changed: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def look(
    inputs: Iterable[str], seen: Seen, changed: str = "refuse", remote: Remote | None = None
) -> Found:
    """What of the inputs is new. seen: of what was taken in.

    changed: what happens to a file that is another now: `refuse` (UsageError that names it), `new`
    (its documents come as new ones), `skip`. remote: fetches inputs that are URLs.
    """
    found = Found([])
    inputs = list(inputs)
    if remote is not None:
        remote.prepare(inputs, seen, changed)
        if remote.silent:
            found.notices.append(
                f"{remote.silent} known inputs: their server does not say whether they changed"
            )
    here: set[str] = set()

    def known(path: str, state: str) -> bool:
        if path in here:  # given twice
            return True
        here.add(path)
        if path not in seen:
            return False
        if seen[path][0] == state:
            found.known += 1
            return True
        found.changed.append(path)
        return changed != "new"

    for given in inputs:
        if remote is not None and remote.takes(given):
            found.new += remote.files(given, seen, known)
            continue
        try:
            files, notices = find_files([given], known)
        except UsageError as error:
            # A pattern or folder that holds nothing yet is no mistake of one that runs by itself.
            if "matches no file" in str(error) or "holds no file" in str(error):
                found.notices.append(str(error))
                continue
            raise
        found.new += files
        found.notices += notices
    if found.changed and changed == "refuse":
        more = f" and {len(found.changed) - 1} others" if len(found.changed) > 1 else ""
        raise UsageError(
            f"input {found.changed[0]}{more} changed since it was taken in: with --changed new its"
            " documents come as new ones, with --changed skip it is left"
        )
    return found


def same(files: Iterable[InputFile], folder: str | None = None) -> None:
    """UsageError where files of an unfinished refresh are not as they were when it began. folder:
    where those that are URLs are fetched to."""
    for file in files:
        now: InputFile | None
        try:
            now = again(file, folder) if file.url else find_files([file.path])[0][0]
        except UsageError:
            now = None
        if now is None or (now.size, now.stamp) != (file.size, file.stamp):
            what = "is gone" if now is None else "changed"
            raise UsageError(
                f"input {file.url or file.path} of an unfinished refresh {what}: put it back, or"
                " begin anew with --abandon"
            )
