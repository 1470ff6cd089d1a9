"""Files that are either whole or absent: written aside, synced, renamed; their digests; caches.

Digests are sha256 of what is published or named by others, xxh3-128 of what is only compared.

Names stay inside. An OUT or a HOME may come from somebody else, and so may a list or the answer of
a worker. Before a name of theirs is used as a path, `inside` shows that it lies below the folder it
belongs to, links included. `remove` is how curate removes: only below a folder, and a link rather
than what it leads to.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import Any

from llmcurate.base.errors import RunFailed, UsageError, disk_error, name_file


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


def drawn_number(*key: object) -> int:
    """A number of 64 bits that depends on `key` alone: chance that is the same on every call."""
    digest = hashlib.blake2b(
        "\x1f".join(map(str, key)).encode("utf-8", "replace"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big")


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


def url_of(out: Path) -> str | None:
    """The URL that was given as a path (which makes one slash of two), None for a folder.
    UsageError for a URL of a file on this machine."""
    match = re.match(r"([a-z][a-z0-9+.-]+):/+(.+)$", str(out))
    if not match:
        return None
    if match.group(1) == "file":
        raise UsageError(f"OUT {out} is a folder of this machine: give /{match.group(2)}")
    return f"{match.group(1)}://{match.group(2)}"


def scratch_of(url: str, folder: Path | None) -> Path:
    """Where the run for a URL works: the folder given, or one of the user's cache by its name."""
    if folder is not None:
        return folder
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", url)[-60:]
    return cache_folder() / "runs" / f"{name}-{text_digest(url)[:8]}"


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
    """Return whether it is another process that runs; ours has our number by chance."""
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


# Names from elsewhere.


def is_below(name: object) -> bool:
    """Whether a name, of a file or of an object in a store, is relative and never steps up."""
    if not isinstance(name, str) or "\0" in name:
        return False
    return all(piece not in ("", ".", "..") for piece in name.split("/"))


def inside(folder: Path, name: object, source: object = None, follow: bool = True) -> Path:
    """The path of a name below a folder. RunFailed where it does not lie there.

    source: the file or list that names it, for the message; follow: whether the path may be a link
    itself, which must lead to a place below the folder (not for one that is replaced or removed).
    """
    if not isinstance(name, str) or not is_below(name):
        raise RunFailed(
            f"{source or folder} names {str(name)[:100]!r}, which is nothing inside {folder}:"
            " nothing was done with it; see who wrote that, and put back a copy or take it away"
        )
    path = folder / name
    home = folder.resolve()
    real = path.resolve() if follow else path.parent.resolve() / path.name
    if home not in real.parents:
        raise RunFailed(
            f"{path} leads out of {folder} through a link, to {real}: nothing was done with it; put"
            " the folder or file itself there"
        )
    return path


def all_inside(folder: Path, names: object, source: object) -> list[Path]:
    """The paths of a list of names, all checked before any is used; none of them is followed."""
    if not isinstance(names, list):
        raise RunFailed(f"{source} is damaged, it holds no list of names: take it away")
    return [inside(folder, name, source, follow=False) for name in names]


def check_links(folder: Path) -> None:
    """RunFailed for a link anywhere below a folder of ours, which never has one: what is written or
    read there would be elsewhere."""
    for above, folders, files in os.walk(folder):
        for path in (Path(above, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise RunFailed(
                    f"{path} is a link, and runs make none there: nothing was done with it; see who"
                    " made it, and take it away"
                )


def remove(path: Path, *, inside: Path, must: bool = False) -> None:
    """Removes a file, a folder with all that is in it, or a link and not what it leads to; what is
    not there is no error. RunFailed where the path does not lie below the folder `inside`.

    must: whether a folder that cannot be removed whole is an OSError.
    """
    home, above = inside.resolve(), path.parent.resolve()
    if path.name in ("", "..") or (above != home and home not in above.parents):
        raise RunFailed(
            f"{path} is not removed, since it does not lie inside {inside} (links followed): put"
            " the folder itself where the link is"
        )
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not must)
    else:
        path.unlink(missing_ok=True)


def remove_files(paths: Iterable[Path], *, inside: Path) -> None:
    """Removes the files and links among the paths; folders stay."""
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            remove(path, inside=inside)
