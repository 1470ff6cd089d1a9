"""Files that are complete or absent (written to a temporary name, synced, renamed), and digests.

Published files have sha256 digests; files that only llmcurate compares have xxh3-128 digests. File
names may come from strangers: from an output folder (OUT), a folder of `llmcurate refresh` (HOME),
a list or a worker's answer. So before a name is used as a path, `path_inside` checks that the path
lies below its folder, even after links are followed. `remove` deletes only below a given folder,
and deletes a link rather than the link's target.
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

from llmcurate.base.errors import RunFailed, UsageError, disk_error, set_error_file


def stream_digest(file: BufferedReader, kind: str = "sha256") -> str:
    """Return the hexadecimal digest of an open file from its position to its end. kind: `xxh3-128`,
    or an algorithm of hashlib."""
    state = _state(kind)
    while block := file.read(1 << 20):
        state.update(block)
    return str(state.hexdigest())


def check_regular(path: str | Path) -> None:
    """Raise OSError for a pipe, socket or device, which may never end, or be readable only once."""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is a pipe, socket or device: give a file", str(path))


def read_text(path: Path, what: str = "") -> str:
    """Return the text of a user's UTF-8 file, without a byte order mark. Raises UsageError, which
    names the file, if it cannot be read. what: words before the file's name in this message."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError as error:
        reason = f"not UTF-8, at byte {error.start}"
    raise UsageError(f"{what}{path}: {reason}")


def file_digest(path: str | Path, kind: str = "sha256") -> str:
    """Return the hexadecimal digest of a file. Raises OSError for a pipe, socket or device."""
    check_regular(path)
    with open(path, "rb") as file:
        return stream_digest(file, kind)


def drawn_number(*key: object) -> int:
    """Return a 64-bit number that looks random but depends only on `key`."""
    digest = hashlib.blake2b(
        "\x1f".join(map(str, key)).encode("utf-8", "replace"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big")


def text_digest(text: str | Iterable[str], kind: str = "sha256") -> str:
    """Return the hexadecimal digest of a text's UTF-8 bytes. The text may come in pieces."""
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
    """Return `.part-PROCESS-RANDOM-NAME`, a name that no other process uses, on this or another
    machine that shares the folder. clear_temporary() and clear_dead() recognise such names."""
    return f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}-{name}"


def cache_folder() -> Path:
    """Return the folder LLMCURATE_CACHE, by default `llmcurate` in the user's cache folder. Raises
    RuntimeError if the user has no home."""
    if chosen := os.environ.get("LLMCURATE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llmcurate"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "llmcurate"


def url_of(out: Path) -> str | None:
    """Return the URL from which the path `out` was made, or None if `out` is a plain path. `Path`
    drops a slash after the URL's scheme; it is restored. Raises UsageError for a `file:` URL."""
    match = re.match(r"([a-z][a-z0-9+.-]+):/+(.+)$", str(out))
    if not match:
        return None
    if match.group(1) == "file":
        raise UsageError(f"OUT {out} is a folder on this machine: give its path /{match.group(2)}")
    return f"{match.group(1)}://{match.group(2)}"


def scratch_of(url: str, folder: Path | None) -> Path:
    """Return the folder in which a run works before it uploads its results to `url`: `folder` if
    given, else a folder in the user's cache folder."""
    if folder is not None:
        return folder
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", url)[-60:]
    return cache_folder() / "runs" / f"{name}-{text_digest(url)[:8]}"


def make_folder(folder: Path, name: str = "OUT") -> None:
    """Create a folder that the user named, with its parents. `name` is the argument's name in
    messages. Raises UsageError if the folder cannot be created, but OSError if the disk is full."""
    try:
        str(folder).encode()
        folder.mkdir(parents=True, exist_ok=True)
    except UnicodeEncodeError:
        raise UsageError(
            f"{name} {folder} has a name that is not valid UTF-8; name another folder"
        ) from None
    except FileExistsError:
        raise UsageError(f"{name} {folder} is a file; name a folder") from None
    except OSError as error:
        if disk_error(error):
            raise
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"{name} {folder} cannot be created ({reason}); name a folder that you may write to"
        ) from None


def next_aside(path: Path) -> Path:
    """Return the first free path made of `path`, a dot and a number, such as NAME.1."""
    names = (path.absolute().with_name(f"{path.absolute().name}.{n}") for n in count(1))
    return next(name for name in names if not os.path.lexists(name))


def rename_aside(path: Path) -> Path:
    """Rename a file or folder to the path that next_aside() returns, and return it."""
    if path.resolve() in (here := Path.cwd(), *here.parents):
        raise UsageError(f"{path} contains your current folder: change to another folder first")
    aside = path.with_name(next_aside(path).name)
    path.rename(aside)
    sync_path(path.parent)
    return aside


def sync_path(path: Path) -> None:
    """Write the content of a file, or the renames in a folder, to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Each thread has its own listeners. They are not called for files of other threads.
_listeners: ContextVar[tuple[Callable[[Path], None], ...]] = ContextVar("listeners", default=())


@contextmanager
def listening(listener: Callable[[Path], None]) -> Iterator[None]:
    """Within the block, call `listener` with the path of each file that this thread has written by
    the function `replacing`. This includes files written by work that this thread gave to a thread
    pool (process.Threads)."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def replacing(path: Path, sync: bool = True, only_if_changed: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it to `path` at the end of the block. The
    block creates a file, or a folder of files, at the temporary path. If `sync`, all bytes are on
    the disk before the renaming; False is for callers that sync many files together afterwards. If
    `only_if_changed`, an existing `path` with the same bytes stays, with its modification time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(temporary_name(path.name))
    try:
        yield aside
        if only_if_changed and path.exists() and filecmp.cmp(aside, path, shallow=False):
            return
        if sync:
            for written in (*(sorted(aside.iterdir()) if aside.is_dir() else ()), aside):
                sync_path(written)
        aside.replace(path)
        if sync:
            sync_path(path.parent)
        for listener in _listeners.get():
            listener(path)
    except OSError as error:
        if error.errno is None and disk_error(error):  # numpy's tofile
            raise OSError(errno.ENOSPC, str(error), str(path)) from error
        if error.errno is not None and str(error.filename or aside).startswith(str(aside)):
            error.filename = str(path)  # a user does not know the temporary name
        raise
    finally:
        if aside.is_dir():
            remove(aside, inside=path.parent)
        else:
            aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file by `text` in one step."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_atomic(path: Path, *data: bytes | memoryview) -> None:
    """Replace the content of a file by `data` in one step. Also remove the temporary files that
    killed processes left while they wrote this file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_dead(path.parent, path.name)
    with replacing(path) as aside, aside.open("wb") as file:
        file.writelines(data)


def allocate(path: Path) -> None:
    """Allocate all blocks of a sparse file. Raises OSError if the disk is full. Without this call,
    a write through a memory map to a full disk would end the process by a signal."""
    if not hasattr(os, "posix_fallocate"):
        return
    with path.open("rb+") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # not supported by the file system
                return
            path.unlink()
            set_error_file(error, path)
            raise


def part_files(folder: Path, kind: str = "") -> list[Path]:
    """Return a folder's files part-NUMBER.parquet (or part-NUMBER.KIND.parquet), sorted by number.
    Numbers have five digits, and from 100,000 on six or more, so sorting by name would be wrong."""
    return sorted(folder.glob(f"part-*{kind}.parquet"), key=lambda p: (len(p.name), p.name))


def clear_temporary(folder: Path) -> None:
    """Remove the temporary files that killed processes left."""
    if folder.is_dir():
        for path in folder.glob(f"{TEMPORARY}*"):
            remove(path, inside=folder)


def clear_dead(folder: Path, name: str | None = None) -> None:
    """Remove temporary files of processes that no longer run: all, or those for the file `name`."""
    leftover = re.compile(
        rf"\{TEMPORARY}(\d+)-[0-9a-f]+-" + (".+" if name is None else re.escape(name))
    )
    for path in folder.iterdir():
        if (match := leftover.fullmatch(path.name)) and not _alive(int(match[1])):
            remove(path, inside=folder)


def _alive(process: int) -> bool:
    """Return True if the process that made a temporary file still runs. `process` is the number in
    the file's name. Return False if it is the number of this process: the file is from an earlier
    process with the same number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # another user's process
    return process != os.getpid()


def remove_whole(folder: Path) -> None:
    """Remove a folder in one step: readers see all of it or nothing. Raises OSError if the folder
    cannot be removed."""
    aside = folder.with_name(temporary_name(folder.name))
    folder.rename(aside)
    remove(aside, inside=folder.parent, must=True)


# Names from outside.


def is_below(name: object) -> bool:
    """Return True if the name of a file or object stays below its folder: a relative path without
    an empty component, `.` or `..`."""
    if not isinstance(name, str) or "\0" in name:
        return False
    return all(piece not in ("", ".", "..") for piece in name.split("/"))


def path_inside(folder: Path, name: object, source: object = None, follow: bool = True) -> Path:
    """Return the path of `name` below a folder. Raises RunFailed if the path lies elsewhere. The
    message names `source`, the file or list in which the name was found. If `follow`, the target of
    a link is checked, too. `follow=False` is for a path that will be replaced or removed."""
    if not isinstance(name, str) or not is_below(name):
        raise RunFailed(
            f"{source or folder} names {str(name)[:100]!r}, which is not inside {folder}:"
            " it was not used; restore the file from a copy or delete it"
        )
    path = folder / name
    home = folder.resolve()
    real = path.resolve() if follow else path.parent.resolve() / path.name
    if home not in real.parents:
        raise RunFailed(
            f"{path} leads out of {folder} through a link, to {real}: it was not used; replace"
            " the link by the folder or file itself"
        )
    return path


def paths_inside(folder: Path, names: object, source: object) -> list[Path]:
    """Return the paths of several names below a folder, after `path_inside` has checked all names.
    Links are not followed."""
    if not isinstance(names, list):
        raise RunFailed(f"{source} is damaged: it has no list of names; delete it")
    return [path_inside(folder, name, source, follow=False) for name in names]


def check_links(folder: Path) -> None:
    """Raise RunFailed if the folder of a run contains a link. A run never creates links there."""
    for above, folders, files in os.walk(folder):
        for path in (Path(above, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise RunFailed(
                    f"{path} is a link, which no run creates there: it was not used; find out who"
                    " created it and delete it"
                )


def remove(path: Path, *, inside: Path, must: bool = False) -> None:
    """Remove a file, a folder with all its content, or a link (not its target), if it exists.
    Raises RunFailed if the path is not below the folder `inside`. With `must`, raises OSError if a
    folder cannot be removed completely."""
    home, above = inside.resolve(), path.parent.resolve()
    if path.name in ("", "..") or (above != home and home not in above.parents):
        raise RunFailed(
            f"{path} was not removed: it is not inside {inside} (links followed); replace the"
            " link by the folder itself"
        )
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not must)
    else:
        path.unlink(missing_ok=True)


def remove_files(paths: Iterable[Path], *, inside: Path) -> None:
    """Remove the files and links among the paths, not the folders."""
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            remove(path, inside=inside)
