"""Input files: the files that a command's inputs stand for, and the files that are skipped.

An input that is a folder stands for the files below it; the folder of a run stands for the run's
corpus. Folders of runs below an input folder are skipped, so a command may write into its input.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from curate.fetch.hub import INSTALL, is_hub, is_repository, with_commits
from curate.formats.columns import KEYED, Columns
from curate.formats.compression import escaped, open_input, path_of, sniff
from curate.formats.data_sets import MOST_CARD, Choice, chosen_files
from curate.formats.folders import require_kind
from curate.formats.kinds import (
    FORMATS,
    format_by_content,
    format_by_name,
    why_no_documents,
)
from llmcurate.base.disk.process import AT_ONCE, in_order
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError


@dataclass(frozen=True)
class InputFile:
    """An input file. `path` is a path or URL that fsspec opens, `rel` is the path below the input.
    `stamp` identifies the content. `state` is the file's size, with the tag that the store gives to
    the file (such as an ETag) or the time of change; it is known without opening the file. `url` is
    the source of a fetched file, else ""."""

    path: str
    rel: str
    format: str
    codec: str
    size: int
    stamp: str
    state: str = ""
    url: str = ""

    @property
    def holds_pages(self) -> bool:
        """True if its documents are web pages, from which the step `extract` makes text."""
        is_text = self.format == "archive" and ".wet" in self.rel
        return FORMATS[self.format].pages and not is_text

    def now(self) -> tuple[str, str]:
        """Return the file's present (state, stamp). At a URL, the stamp is the recorded one. If the
        file is on a web server, or fetched from one, only the size in the state is current. Raises
        OSError if the file no longer exists."""
        fs, path = file_system(self.path)
        stored = Stored.of(fs, path)
        if self.url:  # fetched: `state` has the server's tag, `stamp` the digest of the content
            state = self.state if stored.size == self.size else f"{stored.size}@"
            return state, stored.stamp(fs).rpartition("@")[0]
        if "://" not in self.path:
            return stored.state, stored.stamp(fs)
        if self.path.startswith(("http://", "https://")):
            return f"{stored.size}@{self.state.partition('@')[2]}", self.stamp
        return stored.state, self.stamp


def file_system(path: str) -> tuple[Any, str]:
    """Return fsspec's file system for a path or URL, and the path within this file system."""
    import fsspec

    if "://" in path and not path.startswith("file://"):
        fs, root = fsspec.core.url_to_fs(path)
        return fs, root
    fs = fsspec.filesystem("file")
    root = fs._strip_protocol(path_of(path))
    plain = os.path.normpath(root)
    if ".." in root and not _same_file(root, plain):  # `..` after a link, or a pattern
        return fs, root
    return fs, plain


def _same_file(a: str, b: str) -> bool:
    with suppress(OSError):
        return Path(a).samefile(b)
    return False


def one_spelling(path: str) -> str:
    """Return a file's path as `find_files` writes it, however it was spelled; a URL unchanged."""
    is_url = "://" in path and not path.startswith("file://")
    return path if is_url else escaped(file_system(path)[1])


# blob_id of the Hugging Face hub identifies a file's content in any commit.
_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "sha256", "blob_id")
_TIMES = ("mtime", "LastModified", "Last-Modified", "created")


@dataclass(frozen=True)
class Stored:
    """A file as its store lists it: name in the store, kind (`file` or another type), size in
    bytes, tag (an ETag or similar) and time of the last change. Tag and time are "" if unknown."""

    name: str = ""
    kind: str = "file"
    size: int | None = None
    tag: str = ""
    time: str = ""

    @classmethod
    def of(cls, fs: Any, path: str) -> Stored:
        """Return what fsspec's file system `fs` lists for a path. Raises the OSError of `fs`."""
        info = fs.info(path)
        tag, time = (
            next((str(info[key]) for key in keys if info.get(key)), "") for keys in (_TAGS, _TIMES)
        )
        return cls(info["name"], info["type"], info.get("size"), tag, time)

    @property
    def state(self) -> str:
        """The file's size, with the store's tag (an ETag, for example) or, without a tag, the time
        of change. The state is known without reading the file."""
        return f"{self.size}@{self.tag or self.time}"

    def stamp(self, fs: Any) -> str:
        """Return what identifies the content: the store's tag (an ETag, for example), or else a
        digest of the first and last 64 KiB with the time of change."""
        if self.tag:
            return self.tag
        import xxhash

        digest = xxhash.xxh3_128()
        with fs.open(self.name, "rb") as f:
            digest.update(f.read(1 << 16))
            if self.size is None or self.size > 1 << 17:
                f.seek(-(1 << 16), 2)
                digest.update(f.read(1 << 16))
        return f"{digest.hexdigest()}@{self.time}"


STANDARD_INPUT = "-"  # the input that stands for standard input
COPIED = 1 << 20  # bytes at a time


def standard_input() -> str:
    """Copy standard input into a temporary folder and return the path of the copy, which workers
    can read in parts. The copy's time of change is constant, so the same bytes, piped again, are
    the same input, and a run over them resumes. Raises UsageError for a terminal or empty input."""
    return _copied(sys.stdin)


@cache
def _copied(stream: Any) -> str:
    if stream.isatty():
        raise UsageError("input -: standard input is a terminal; pipe documents into it")
    folder = tempfile.mkdtemp(prefix="llmcurate-stdin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "stdin")
    with open(path, "wb") as copy:
        shutil.copyfileobj(stream.buffer, copy, COPIED)
    if path.stat().st_size == 0:
        raise UsageError("input -: standard input is empty")
    os.utime(path, (1, 1))  # 0 would mean no time
    return str(path)


def _expanded(inputs: Iterable[str], columns: Columns, problems: list[OSError]) -> Iterable[str]:
    for path in inputs:
        if path == STANDARD_INPUT:
            copy = standard_input()
            if format_by_content(copy, columns) is None:
                raise UsageError(
                    "input -: unknown format (recognised by content are WARC, ARC, JSONL, parquet,"
                    " HTML, and CSV with a column `text`): give the name of a file instead"
                )
            yield copy
            continue
        if not any(c in path for c in "*?["):
            yield path
            continue
        try:
            fs, root = file_system(path)
            if fs.exists(root):
                yield path
                continue
            matches = sorted(fs.glob(root))
            problems += _unreadable_folders(root) if _is_local(fs) else []
        except (ValueError, ImportError) as error:
            raise _cannot_open(path, error) from None
        if not matches and not problems:
            raise UsageError(f"input {path} matches no file")
        yield from (fs.unstrip_protocol(m) if "://" in path else m for m in matches)


def _unreadable_folders(pattern: str) -> list[OSError]:
    levels = pattern.split("/")
    first = next(n for n, level in enumerate(levels) if any(c in level for c in "*?["))
    any_depth = next((n for n, level in enumerate(levels) if "**" in level), None)
    errors: list[OSError] = []

    def leads_into(folder: str) -> bool:
        names = folder.split("/")
        deep_enough = any_depth is None and len(names) >= len(levels)
        return not deep_enough and all(map(fnmatchcase, names[:any_depth], levels))

    for folder, folders, _ in os.walk("/".join(levels[:first]) or "/", onerror=errors.append):
        folders[:] = [name for name in folders if leads_into(f"{folder.rstrip('/')}/{name}")]
    return [e for e in errors if not isinstance(e, (FileNotFoundError, NotADirectoryError))]


def _cannot_open(path: str, error: Exception) -> UsageError:
    if isinstance(error, ImportError) and path.lower().startswith(("http://", "https://")):
        return UsageError(
            f"input {path}: fetch it first (llmcurate fetch URL -o DIR), or in a run with --set"
            " read.fetch=DIR; with aiohttp and requests installed it is read directly"
        )
    if isinstance(error, ImportError) and path.lower().startswith("s3://"):
        return UsageError(f"input {path}: pip install 'llmcurate[s3]'")
    if isinstance(error, ImportError) and is_hub(path):
        return UsageError(f"input {path}: {INSTALL}")
    return UsageError(f"input {path}: {error}")


EMPTY, UNKNOWN = "an empty file", "unknown format"
_PACKED = re.compile(r"(?i)\.(zip|rar|7z|tar|tgz)(\.\w+)?$")  # many files in one
_RUN = "/.run"  # folder with the ledger, in an OUT that holds only products
_HIDDEN = (".", "_")  # first characters of names that are skipped
# Names of files that mark a folder as an OUT (in a store it has no ledger) or as a HOME.
_MARKS = ({"ledger.db"}, {"run.json", "recipe.yaml"}, {"refresh.db"})


def _is_ours(names: Set[str]) -> bool:
    return any(mark <= names for mark in _MARKS)


@dataclass(frozen=True)
class InputFiles:
    """The input files found. `files` are in the order of the inputs, and sorted by name within a
    folder; `notices` has a line for each thing skipped; `unreadable` maps the path of each file or
    folder that could not be read to the reason."""

    files: list[InputFile]
    notices: list[str]
    unreadable: dict[str, str] = field(default_factory=dict)


def find_files(
    inputs: Iterable[str],
    is_known: Callable[[str, str], bool] = lambda path, state: False,
    at_once: int = AT_ONCE,
    skip_unreadable: bool | None = None,
    columns: Columns = Columns(),
    choice: Choice = Choice(),
) -> InputFiles:
    """Return the files that the inputs stand for.

    Raises UsageError for a missing input or an input file of unknown format; unknown files in
    folders get a notice. Files are skipped unopened if `is_known(path, state)` is true. Files and
    folders without read permission are skipped if `skip_unreadable` is True. If it is False or
    None, the first one raises RunFailed; if False, the message names an option that skips them.
    `columns` tells which column holds the text, to see if a file has documents. `choice` selects
    splits and configurations of data sets.
    """
    with readable(skip_unreadable is not None):
        paths, commits = [*map(str, inputs)], list[str]()
        if any(path.lower().startswith("hf://") for path in paths):
            paths, commits = with_commits(paths)
        problems: list[OSError] = []
        lines: list[str] = []  # about data sets
        listed = [
            file
            for path in _expanded(paths, columns, problems)
            for file in _listed(path, is_known, bool(skip_unreadable), choice, lines)
        ]
        if problems and not skip_unreadable:
            raise problems[0]
        taken: dict[str, InputFile] = {}
        twice = 0  # files that several inputs stand for
        notices = [_Notice.of(problem) for problem in problems]
        holds = {file.location: False for file in listed}
        reasons: dict[str, str] = {}  # location -> the first notice of it
        look = partial(_inspect, skip_unreadable=bool(skip_unreadable), columns=columns)
        for file, result in zip(listed, in_order(look, listed, at_once), strict=True):
            if isinstance(result, _Notice):
                notices.append(result)
                reasons.setdefault(file.location, result.text)
                continue
            holds[file.location] = True
            if result is not None:
                taken.setdefault(result.path, result)
                twice += taken[result.path] is not result
        errors = [notice.error for notice in notices if notice.error]
        unreadable = {escaped(str(e.filename)): str(e.strerror) for e in errors}
        for path, has_files in holds.items():
            if not has_files:
                raise NoFile(path, reasons.get(path), unreadable)
        files = [*taken.values()]
        if twice:
            notices.append(_Notice(f"{counted(twice, 'file')} given again, read once"))
        if odd := sum(path_of(file.path) != file.path for file in files if "://" not in file.path):
            text = f"{counted(odd, 'file')} with non-UTF-8 bytes in the name, written as \\xNN"
            notices.append(_Notice(text))
        return InputFiles(files, [*commits, *lines, *(n.text for n in notices)], unreadable)


@contextmanager
def readable(may_skip: bool = False) -> Iterator[None]:
    """Turn an OSError into an error that names the unreadable file; with `may_skip` the message
    also names the option that skips such files."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is None:
            raise
        if not isinstance(error, PermissionError):
            raise UsageError(f"input {error.filename}: {error.strerror}") from None
        option = ", or skip unreadable files with --skip-unreadable" if may_skip else ""
        raise RunFailed(
            f"input {error.filename} cannot be read ({error.strerror}): make it readable{option}"
        ) from None


@dataclass(frozen=True)
class _Notice:
    text: str
    error: OSError | None = None  # if it cannot be read

    @staticmethod
    def of(error: OSError) -> _Notice:
        return _Notice(f"skipped {escaped(str(error.filename))}: {error.strerror}", error)


@dataclass(frozen=True)
class _Listed:
    """A file as listed in the input `location`, before it is opened. `folder` is True if that input
    is a folder. `notice` is the message that the file is skipped, or None. `skip` is True for a
    file that the caller already knows, which is skipped without a message."""

    location: str
    folder: bool
    fs: Any
    path: str
    rel: str
    stored: Stored = Stored()
    notice: _Notice | None = None
    skip: bool = False


class NoFile(UsageError):
    """Raised if an input holds nothing to read. `unreadable` is the same as in `InputFiles`."""

    def __init__(
        self, path: str, reason: str | None = None, unreadable: dict[str, str] | None = None
    ) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(f"input {path} holds no file of a known format{why}")
        self.unreadable = unreadable or {}


def _listed(
    location: str,
    is_known: Callable[[str, str], bool],
    skip_unreadable: bool,
    choice: Choice,
    lines: list[str],
) -> Iterator[_Listed]:
    try:
        fs, root = file_system(location)
        exists = fs.exists(root)
    except (ValueError, ImportError) as error:
        raise _cannot_open(location, error) from None
    if not exists:
        if _is_local(fs):
            with suppress(FileNotFoundError, NotADirectoryError):
                Path(root).stat()  # PermissionError if a folder above it may not be entered
        raise UsageError(f"input {location} does not exist")
    folder = fs.isdir(root)
    if folder:
        if _is_local(fs):
            require_kind(Path(root), "documents", "run", "home", "workspace", shown=location)
        root = _documents_of(fs, root)
        names, runs, problems = _below(fs, root)
        if problems and not skip_unreadable:
            raise problems[0]
        for problem in problems:
            notice = _Notice.of(problem)
            yield _Listed(location, folder, fs, str(problem.filename), "", notice=notice)
        for run in runs:
            notice = _Notice(f"skipped {escaped(run)}: a run; pass it as input to read its corpus")
            yield _Listed(location, folder, fs, run, "", notice=notice)
        some = bool(problems or runs)
        names = in_data_sets(fs, root, location, names, choice, lines)
    else:
        names, some = [root], False
    above = root if folder else root.rpartition("/")[0]
    while KEYED.fullmatch(above.rpartition("/")[2]):  # a column of all files
        above = above.rpartition("/")[0]
    for name in names:
        rel = name[len(above) :].lstrip("/")
        if folder and PurePosixPath(rel).name == "SUCCESS":
            continue
        some = True
        path = escaped(name) if _is_local(fs) else fs.unstrip_protocol(name)
        if path != name and _is_local(fs) and path_of(path) != name:
            raise UsageError(
                f"input {path}: another file's name has a byte that is not UTF-8 and would be"
                " written as this name: rename one of them"
            )
        rel = escaped(rel)
        try:
            stored = Stored.of(fs, name)
        except FileNotFoundError:
            stored = Stored(kind="broken link")
        except OSError as error:
            if error.errno == errno.ELOOP and folder:
                stored = Stored(kind="link to itself")
            elif isinstance(error, PermissionError) and skip_unreadable:
                yield _Listed(location, folder, fs, path, rel, notice=_Notice.of(error))
                continue
            else:
                raise
        if stored.kind != "file" and not folder:
            raise UsageError(
                f"input {path} is a pipe, socket or device, which cannot be read twice: copy it to"
                " a file, or give - and pipe it in"
            )
        if stored.kind != "file":
            notice = _Notice(f"skipped {path}: not a regular file")
            yield _Listed(location, folder, fs, path, rel, stored, notice)
        else:
            seen = is_known(path, stored.state)
            yield _Listed(location, folder, fs, path, rel, stored, skip=seen)
    if not some:
        raise NoFile(location)


def in_data_sets(
    fs: Any, root: str, location: str, names: list[str], choice: Choice, lines: list[str]
) -> list[str]:
    """Return the files to read below a folder, without those that the choice of splits and
    configurations excludes. A line per data set with excluded files is added to `lines`."""

    def beginning(name: str) -> bytes:
        with suppress(OSError), fs.open(f"{root}/{name}", "rb") as file:
            return bytes(file.read(MOST_CARD))
        return b""

    below = {name[len(root) :].lstrip("/"): name for name in names}
    files, new = chosen_files(location, [*below], is_repository(location), beginning, choice)
    lines += map(escaped, new)
    return [below[name] for name in files]


def _is_local(fs: Any) -> bool:
    return "file" in ([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol)


def _documents_of(fs: Any, root: str) -> str:
    if fs.exists(f"{root}/refresh.db") and fs.exists(f"{root}/current"):
        return f"{root}/current"
    marks = {name for mark in _MARKS for name in mark if fs.exists(f"{root}/{name}")}
    has_corpus = _is_ours(marks) and fs.exists(f"{root}/corpus.json")
    return f"{root}/corpus" if has_corpus else root


def _below(fs: Any, root: str) -> tuple[list[str], list[str], list[OSError]]:
    """Return (files, runs, errors) below a folder. `runs` are output folders of llmcurate, whose
    files are left out, like hidden files."""
    errors: list[OSError] = []
    if _is_local(fs):
        names = sorted(_walk(root, errors))
    else:
        names = sorted(fs.find(root))
    files_of: dict[str, set[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        files_of.setdefault(folder, set()).add(file)
    runs = {folder.removesuffix(_RUN) for folder, inner in files_of.items() if _is_ours(inner)}
    runs.discard(root)

    @cache
    def is_read(folder: str) -> bool:
        above, _, name = folder.rpartition("/")
        if len(folder) <= len(root):
            return True
        return folder not in runs and not name.startswith(_HIDDEN) and is_read(above)

    def within(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return path == root or (not name.startswith(_HIDDEN) and is_read(folder))

    problems = [
        error
        for error in errors
        if not isinstance(error, FileNotFoundError) and within(str(error.filename))
    ]
    return [n for n in names if within(n)], sorted(filter(within, runs)), problems


def _walk(root: str, errors: list[OSError]) -> Iterator[str]:
    """Yield the files below a folder, also in linked folders, with the link's name in the path.
    Each folder is walked once. A link to a folder that contains the link is not followed."""
    walked: set[str] = set()
    tops = [root]
    while tops:
        top, links = tops.pop(0), list[str]()
        real = os.path.realpath(top).rstrip("/")
        if top != root and f"{Path(top).parent.resolve()}/".startswith(f"{real}/"):
            continue
        for folder, below, files in os.walk(top, onerror=errors.append):
            place = real + folder[len(top) :]
            if place in walked:
                below.clear()
                continue
            yield from (f"{folder.rstrip('/')}/{name}" for name in files)
            if not f"/{folder[len(root) :]}".replace("/_", "/.").count("/."):  # not hidden
                walked.add(place)
                inner = (f"{folder.rstrip('/')}/{name}" for name in below if name[0] not in _HIDDEN)
                links += filter(os.path.islink, inner)
        tops += sorted(links)


def _inspect(file: _Listed, skip_unreadable: bool, columns: Columns) -> InputFile | _Notice | None:
    if file.notice or file.skip:
        return file.notice
    try:
        return _opened(file, columns)
    except PermissionError as error:
        if not skip_unreadable or error.filename is None:
            raise
        return _Notice.of(error)


def _opened(file: _Listed, columns: Columns) -> InputFile | _Notice:
    path, rel, stored = file.path, file.rel, file.stored
    kind = format_by_name(rel) or format_by_content(path, columns)
    unpack = ": unpack it first" if _PACKED.search(rel) else ""
    if kind is None:
        if not file.folder:
            known = f" ({', '.join(FORMATS)}; docs/inputs.md)"
            raise UsageError(
                f"input {file.location}: not a format this tool reads{unpack or known}"
            )
        return _Notice(f"skipped {path}: {UNKNOWN if stored.size else EMPTY}{unpack}")
    if missing := FORMATS[kind].missing:
        if not file.folder:
            raise UsageError(f"input {file.location}: {missing}")
        return _Notice(f"skipped {path}: {missing}")
    if (file.folder or unpack) and (reason := why_no_documents(path, kind, columns)):
        if not file.folder:
            raise UsageError(f"input {file.location}: {reason}{unpack}")
        return _Notice(f"skipped {path}: {reason if stored.size else EMPTY}{unpack}")
    codec = "plain"
    if kind != "parquet":
        with open_input(path) as f:
            codec = sniff(f)
    return InputFile(path, rel, kind, codec, stored.size or 0, stored.stamp(file.fs), stored.state)
