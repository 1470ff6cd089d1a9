"""Files that are either whole or absent: written aside, synced, renamed; their digests; caches.

Digests are sha256 of what is published or named by others, xxh3-128 of what is only compared.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import Any

from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.errors import UsageError, disk_error, name_file


def stream_digest(file: BufferedReader, kind: str = "sha256") -> str:
    """The digest in hexadecimal of an open file from its position to its end.

    kind: `xxh3-128`, or an algorithm of hashlib.
    """
    state = _state(kind)
    while block := file.read(1 << 20):
        state.update(block)
    return str(state.hexdigest())


def check_regular(path: str | Path) -> None:
    """OSError where a file that is read whole is a pipe, a socket or a device: one may never end,
    another gives its bytes once."""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is a pipe, socket or device, name a file", str(path))


def file_digest(path: str | Path, kind: str = "sha256") -> str:
    """The digest of a file's content in hexadecimal; OSError as of `check_regular`."""
    check_regular(path)
    with open(path, "rb") as file:
        return stream_digest(file, kind)


def text_digest(text: str | Iterable[str], kind: str = "sha256") -> str:
    """The digest of a text's UTF-8 bytes in hexadecimal; the text may come in pieces."""
    state = _state(kind)
    for piece in (text,) if isinstance(text, str) else text:
        state.update(piece.encode())
    return str(state.hexdigest())


def _state(kind: str) -> Any:
    if kind != "xxh3-128":
        return hashlib.new(kind, usedforsecurity=False)
    import xxhash

    return xxhash.xxh3_128()


TEMPORARY = ".part-"


def temporary_name(name: str) -> str:
    """`.part-PROCESS-RANDOM-NAME`, which no other process has, on this machine or on one that
    shares the folder; `clear_temporary` and `clear_dead` know it."""
    return f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}-{name}"


def cache_folder() -> Path:
    """LLMCURATE_CACHE, else `llmcurate` in the platform's folder for caches. RuntimeError where the
    user has no home."""
    if chosen := os.environ.get("LLMCURATE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llmcurate"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "llmcurate"


def make_folder(folder: Path, name: str = "OUT") -> None:
    """Makes a folder that the user named, with those above it. UsageError where that cannot be.

    name: of the argument, for the message.
    """
    try:
        str(folder).encode()
        folder.mkdir(parents=True, exist_ok=True)
    except UnicodeEncodeError:
        raise UsageError(
            f"{name} {folder} has bytes in its name that are no UTF-8; name another folder"
        ) from None
    except FileExistsError:
        raise UsageError(f"{name} {folder} is a file; name a folder") from None
    except OSError as error:
        if disk_error(error):
            raise
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"{name} {folder} cannot be made ({reason}); name a folder that you may write to"
        ) from None


def next_aside(path: Path) -> Path:
    """The path with the next free number behind its name, as NAME.1."""
    names = (path.absolute().with_name(f"{path.absolute().name}.{n}") for n in count(1))
    return next(name for name in names if not os.path.lexists(name))


def set_aside(path: Path) -> Path:
    """Renames a file or folder to `next_aside`; returns the new path."""
    if path.resolve() in (here := Path.cwd(), *here.parents):
        raise UsageError(f"{path} is the folder that you are in: go to another one first")
    aside = path.with_name(next_aside(path).name)
    path.rename(aside)
    sync_path(path.parent)
    return aside


def sync_path(path: Path) -> None:
    """Makes a file's content durable, or the renames within a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Each thread has listeners of its own: work in one thread never hears of another's files.
_listeners: ContextVar[tuple[Callable[[Path], None], ...]] = ContextVar("listeners", default=())


@contextmanager
def listening(listener: Callable[[Path], None]) -> Iterator[None]:
    """Call the listener with each file that `replacing` puts in its place within, by this thread or
    by the threads that it starts with `process.Threads`."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def replacing(path: Path, sync: bool = True, if_other: bool = False) -> Iterator[Path]:
    """Gives a temporary path beside `path`; the file, or the folder of files, that was made there
    becomes `path` at the end. sync: whether it is durable then; a task of a phase leaves that to
    the phase (corpus/phases.py). if_other: a `path` that holds the same bytes already stays, with
    its time of change."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(temporary_name(path.name))
    try:
        yield aside
        if if_other and path.exists() and filecmp.cmp(aside, path, shallow=False):
            return
        if sync:
            for written in (*(sorted(aside.iterdir()) if aside.is_dir() else ()), aside):
                sync_path(written)
        aside.replace(path)
        if sync:
            sync_path(path.parent)
        for listener in _listeners.get():
            listener(path)
    finally:
        if aside.is_dir():
            remove(aside, inside=path.parent)
        else:
            aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replaces the file's content as a whole."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_atomic(path: Path, *data: bytes | memoryview) -> None:
    """Replaces the file's content by the parts of `data`, one after the other; what killed
    processes left of it goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_dead(path.parent, path.name)
    with replacing(path) as aside, aside.open("wb") as file:
        file.writelines(data)


def reserve(path: Path) -> None:
    """Gives a sparse file all its blocks, so that a full disk is an OSError here, and no signal
    that ends the process where the file is written to through a map."""
    if not hasattr(os, "posix_fallocate"):
        return
    with path.open("rb+") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system without it
                return
            path.unlink()
            name_file(error, path)
            raise


def part_files(folder: Path, kind: str = "") -> list[Path]:
    """The files part-NUMBER.parquet of a folder, or part-NUMBER.KIND.parquet, in order of their
    numbers: these have five digits, and more from 100,000 on, which names do not sort by."""
    return sorted(folder.glob(f"part-*{kind}.parquet"), key=lambda p: (len(p.name), p.name))


def clear_temporary(folder: Path) -> None:
    """Removes what a killed process left half-written."""
    if folder.is_dir():
        for path in folder.glob(f"{TEMPORARY}*"):
            remove(path, inside=folder)


def clear_dead(folder: Path, name: str | None = None) -> None:
    """Removes what processes that run no more left half-written, of that `name` or of any."""
    leftover = re.compile(
        rf"\{TEMPORARY}(\d+)-[0-9a-f]+-" + (".+" if name is None else re.escape(name))
    )
    for path in folder.iterdir():
        if (match := leftover.fullmatch(path.name)) and not _alive(int(match[1])):
            remove(path, inside=folder)


def _alive(process: int) -> bool:
    """Whether it is another process that runs; ours has our number by chance."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # of another user
    return process != os.getpid()


def drop(folder: Path) -> None:
    """Removes a folder so that it is whole or not there; OSError where it cannot be removed."""
    aside = folder.with_name(temporary_name(folder.name))
    folder.rename(aside)
    remove(aside, inside=folder.parent, must=True)
