"""Which inputs are new: files in folders, patterns and lists that no earlier refresh took in.

A file is known by its path, and is the same while its size and time of change (of a remote store:
its tag) are. Known files are not opened, so looking costs a listing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from curate.errors import UsageError
from curate.formats.inputs import InputFile, find_files
from curate.formats.opening import open_input

LISTS = (".paths", ".paths.gz")
COMMON_CRAWL = "https://data.commoncrawl.org/"
CHANGED = ("refuse", "new", "skip")


@dataclass
class Found:
    """new: files to take in, in order; known: how many were passed over; changed: paths of those
    that are others now than when they were taken in."""

    new: list[InputFile]
    known: int = 0
    changed: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def _lines(path: str) -> list[str]:
    from curate.formats.compression import CorruptData, decompressed_chunks

    try:
        with open_input(path) as f:
            data = b"".join(decompressed_chunks(f))
        text = data.decode("utf-8")
    except (OSError, ImportError) as error:
        raise UsageError(f"input {path}: {getattr(error, 'strerror', None) or error}") from None
    except CorruptData as error:
        raise UsageError(f"input {path} is damaged ({error}); fetch it again") from None
    except UnicodeDecodeError:
        raise UsageError(f"input {path}: a list of inputs is UTF-8 text, a path a line") from None
    if "\0" in text:
        raise UsageError(f"input {path}: a list of inputs is text, a path a line")
    return [line.strip() for line in text.splitlines() if line.strip()]


def listed(path: str, base: str = "") -> list[str]:
    """The paths in a list, one a line; relative ones begin at `base`, by default Common Crawl's
    server where they begin as its lists do, else the folder of the list."""
    found = []
    for line in _lines(path):
        if "://" in line or line.startswith("/"):
            found.append(line)
            continue
        home = base or (COMMON_CRAWL if line.startswith("crawl-data/") else "")
        if not home:
            folder, slash, _ = path.rpartition("/")
            home = folder + slash
        found.append(f"{home.rstrip('/')}/{line}" if home else line)
    return found


def expanded(inputs: Iterable[str], lists: Iterable[str] = (), base: str = "") -> list[str]:
    """The inputs with the content of lists in their place."""
    found: list[str] = []
    for given in inputs:
        found += listed(given, base) if given.endswith(LISTS) else [given]
    for path in lists:
        found += listed(path, base)
    return found


def look(inputs: Iterable[str], seen: dict[str, tuple[str, str]], changed: str = "refuse") -> Found:
    """What of the inputs is new. seen: path -> (state, stamp) of what was taken in.

    changed: what happens to a file that is another now: `refuse` (UsageError that names it), `new`
    (its documents come as new ones), `skip`.
    """
    found = Found([])
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


def same(files: Iterable[InputFile]) -> None:
    """UsageError where files of an unfinished refresh are not as they were when it began."""
    for file in files:
        try:
            (now,), _ = find_files([file.path])
        except UsageError:
            now = None
        if now is None or (now.size, now.stamp) != (file.size, file.stamp):
            what = "is gone" if now is None else "changed"
            raise UsageError(
                f"input {file.path} of an unfinished refresh {what}: put it back, or begin anew"
                " with --abandon"
            )
