"""The folder of a run, on this machine's disk or in an object store (OUT as a URL).

For a URL, each process has a mirror: a local folder with the same file names. `put` uploads a file
of the mirror. `read` fetches a file that the mirror lacks, and compares it with its seal (size and
digest). For a folder on disk, the mirror is this folder, and `put` and `read` do nothing.

An object store cannot rename files, but each upload is complete or absent. So before a file of a
folder changes, the folder's manifest (the list of its files) is removed. It is uploaded again after
the files. `published.json`, the list of all files, is uploaded last. The process that leads a run,
called the driver, holds the lock `driver.json`. The lock numbers its drivers (1 for the first), and
a driver's entries in the ledger (the list of finished work) have its number in their names.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from llmcurate.base.disk.files import file_digest, is_below, temporary_name
from llmcurate.base.disk.lock import BEAT_SECONDS, STALE_SECONDS, Holder, acquire
from llmcurate.base.disk.process import in_order
from llmcurate.base.disk.seals import Seal, SealedPath, fault
from llmcurate.base.errors import (
    Damaged,
    LlmcurateError,
    LockHeld,
    RunFailed,
    UsageError,
    disk_error,
)
from llmcurate.base.messages import Message

LIST, LOCK, LEDGER = "published.json", "driver.json", "ledger"
VERSION = 1
AT_ONCE = 8  # requests at the same time
MANIFESTS = ("manifest.json", "index.json")  # each lists the folder that it is in
STAY = ("stages", LEDGER, "ledger.db", LOCK)  # left out of LIST, in OUT and in RUN: a run's own
RUN = ".run/"
TRIES = 7
WAIT_SECONDS = 0.5  # before the second try, and twice as long before each further try
FINAL = (FileNotFoundError, PermissionError, FileExistsError)  # another try would not help
ADVICE = "check that the bucket exists and that you may write to it"
MARK = "\x1estore"  # stands for the mirror in paths sent to machines; no text begins with it

T = TypeVar("T")


@dataclass(frozen=True)
class Mirror(Message):
    """The local copy that one process has of a store's files."""

    url: str
    root: Path  # the local folder
    temporary: bool = False  # True if each task removes the files that no other task needs


class Store:
    """The files of a run: in an object store, with a local copy in the folder `mirror.root`. If
    `mirror` is None, the files are only local, and no object store is used. Failed requests are
    repeated, the first time after `wait` seconds."""

    def __init__(self, mirror: Mirror | None = None, wait: float = WAIT_SECONDS) -> None:
        self.mirror, self.wait = mirror, wait
        self.url = mirror.url.rstrip("/") if mirror else ""
        self.root = mirror.root if mirror else Path()
        self.temporary = mirror is not None and mirror.temporary
        self.trusted = True  # True if a file of the right size counts as intact until it is read
        self.driver: Holder
        self._tag: str | None = None  # ETag of the lock when this driver last read or wrote it
        self._lost = False  # True if another driver took the lock
        self._own: list[Path] = []  # the files of the current task

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        import fsspec

        try:
            return fsspec.core.url_to_fs(self.url)  # type: ignore[no-any-return]
        except ImportError as error:
            s3 = "pip install 'llmcurate[s3]'" if self.url.startswith("s3://") else error
            raise UsageError(f"OUT {self.url}: {s3}") from None
        except ValueError as error:
            raise UsageError(f"OUT {self.url}: {error}") from None

    @property
    def fs(self) -> Any:
        return self._opened[0]

    @property
    def conditional(self) -> bool:
        """True if the store can refuse a write after another process's write (conditional puts)."""
        return "s3" in self.fs.protocol

    def _at(self, name: str) -> str:
        """Return a file's path in the store. Raises RunFailed for a path outside the store."""
        if not is_below(name):
            raise RunFailed(
                f"{self.url} names {name[:100]!r}, which is not inside it: it was not used; remove"
                f" {LIST} there and run again"
            )
        return f"{self._opened[1]}/{name}"

    def _try(
        self,
        name: str,
        work: Callable[[str], T],
        verb: str = "written",
        advice: str = "run the same command again to resume",
    ) -> T:
        """Return `work(path in the store)`, trying again after failures. Raises FileNotFoundError
        if an object to be read is missing, and RunFailed for all other failures."""
        place = self._at(name) if name else self._opened[1]
        for tried in range(TRIES):
            try:
                return work(place)
            except Exception as error:
                if (verb == "read" and isinstance(error, FileNotFoundError)) or disk_error(error):
                    raise
                final = isinstance(error, FINAL) or "credentials" in str(error)
                if final or tried == TRIES - 1:
                    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                    where = f"{self.url}/{name}".rstrip("/")
                    here = f" by {socket.gethostname()}" if self.temporary else ""
                    failure = f"{where} cannot be {verb}{here} ({reason}): {advice}"
                    raise RunFailed(failure) from None
            time.sleep(self.wait * 2**tried)
        raise AssertionError

    # Paths: between machines they are names below the mirror.

    def covers(self, path: Path) -> bool:
        """Return True if the store is a URL and the path lies in the mirror (its local copy)."""
        return bool(self.url) and self.root in path.parents

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def names(self, text: str) -> str:
        """Return the JSON `text` with MARK in place of the path of this process's mirror (local
        copy of the store), because the mirrors of other machines have other paths."""
        return _moved(text, str(self.root), MARK) if self.url else text

    def places(self, text: str) -> str:
        """Return the JSON `text` with the path of this process's mirror (local copy of the store)
        in place of MARK. Another machine's method `names` has put MARK for its own mirror."""
        return _moved(text, MARK, str(self.root)) if self.url else text

    # Files.

    def read(self, path: Path, sealed: Seal | None = None) -> Path:
        """Return `path`, after fetching the file if the mirror lacks it. Raises Damaged if the file
        is missing or differs from its seal (size, digest)."""
        if not self.covers(path) or path.is_file():
            return path
        name = self.name(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(temporary_name(path.name))
        try:
            self._try(name, lambda place: self.fs.get_file(place, str(aside)), "read")
            difference = None if sealed is None else fault(aside, sealed)
            if difference is None:
                aside.replace(path)
        except FileNotFoundError:
            difference = "is missing"
        finally:
            aside.unlink(missing_ok=True)
        if difference is not None:
            raise Damaged(f"{self.url}/{name} {difference}")
        self._note(path)
        return path

    def read_all(self, files: Iterable[tuple[Path, Seal]]) -> None:
        """Fetch those of `files` (path, seal) that the mirror (local copy of the store) lacks."""
        if self.url:
            missing = [(path, sealed) for path, sealed in files if not path.is_file()]
            for _ in in_order(lambda file: self.read(*file), missing, AT_ONCE):
                pass

    def put(self, *paths: Path) -> None:
        """Upload files of the mirror (local copy); each upload is complete or absent. Do nothing if
        the store is a folder."""
        if self.url:
            for _ in in_order(self._upload, paths, AT_ONCE):
                pass
            self._note(*paths)

    def _upload(self, path: Path) -> None:
        def upload(place: str) -> None:
            if not self.conditional:  # S3 has no folders
                self.fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            self.fs.put_file(str(path), place)

        self._try(self.name(path), upload)

    def write(self, name: str, data: bytes) -> None:
        self._try(name, lambda place: self.fs.pipe_file(place, data))

    def load(self, name: str) -> bytes:
        """Return an object's content. Raises FileNotFoundError if it is missing."""
        data: bytes = self._try(name, lambda place: self.fs.cat_file(place), "read")
        return data

    def delete(self, names: Collection[str]) -> None:
        """Remove files from the store. Missing files are no error."""

        def remove(place: str) -> None:
            with suppress(FileNotFoundError):
                self.fs.rm_file(place)

        for name in names:
            self._at(name)  # all names are checked before the first file is removed
        for _ in in_order(lambda name: self._try(name, remove), names, AT_ONCE):
            pass

    def _note(self, *paths: Path) -> None:
        if self.temporary:
            self._own += paths

    def release(self) -> None:
        """Remove a finished task's files from a temporary mirror, except files that all tasks
        read."""
        for path in self._own:
            if str(path) not in _stamps:
                path.unlink(missing_ok=True)
        self._own.clear()

    # The driver's knowledge of the store.

    @cached_property
    def listing(self) -> dict[str, int]:
        """The size of each file in the store in bytes, by name, from one listing."""
        self.fs.invalidate_cache()
        try:
            objects = self._try("", lambda place: self.fs.find(place, detail=True), "read")
        except FileNotFoundError:
            return {}
        self.fs.invalidate_cache()  # else s3fs would miss objects that are written later
        top = self.fs._strip_protocol(self._opened[1]).rstrip("/") + "/"
        return {k.removeprefix(top): v["size"] for k, v in objects.items()}

    def relist(self) -> None:
        self.__dict__.pop("listing", None)

    def lacks(self, path: Path) -> bool:
        """Return True if a file of the store is missing at `path` in the mirror (local copy)."""
        return self.covers(path) and not path.exists() and self.name(path) in self.listing

    def holds(self, path: Path) -> bool:
        return path.exists() or self.lacks(path)

    def fault(self, path: Path, sealed: Seal) -> str | None:
        """Return how a file differs from its seal (size, digest), or None if it is as sealed. The
        file is in the store, not in the mirror (local copy). If `self.trusted`, only its size is
        compared, otherwise its content, too."""
        if self.trusted:
            size = self.listing[self.name(path)]
            same = sealed[0] in (None, size)
            return None if same else f"has {size:,} bytes and was written with {sealed[0]}"
        try:
            self.read(path, sealed)
        except Damaged:
            return "is not what was written"
        return None

    def listed(self) -> dict[str, list[Any]]:
        """Return [size, sha256] of each file that the last run published, by the file's name."""
        try:
            published = json.loads(self.load(LIST))
        except (FileNotFoundError, ValueError):
            return {}
        if not isinstance(published, dict) or published.get("version") != VERSION:
            return {}
        files = published.get("files")
        return dict(files) if isinstance(files, dict) else {}

    # The lock: only one driver works in a store.

    @contextmanager
    def driving(
        self, say: Callable[[str], None] = print, stale: float = STALE_SECONDS
    ) -> Iterator[None]:
        """Hold the lock of the store within the block. `say`, `stale`: see lock.acquire.

        Raises:
            LockHeld: another driver works in the store.
            RunFailed: the store cannot be written to.
        """
        blind = f"{self.url} has no conditional puts, so nobody can take over: if that process has"
        blind += f" ended, delete {self.url}/{LOCK}"
        blind = "" if self.conditional else blind
        acquire(self.url, self._holder, self._replace_holder, say, stale, blind)
        ended = threading.Event()
        beating = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()
            with suppress(LlmcurateError):
                self._replace_holder(replace(self.driver, host=None))

    def check_lock(self) -> None:
        """Raise LockHeld if another driver took the lock while this one gave no sign of life."""
        if self._lost:
            raise LockHeld(f"another driver works in {self.url}: this one gave no sign of life")

    def _beat(self, ended: threading.Event) -> None:
        while not (self._lost or ended.wait(BEAT_SECONDS)):
            with suppress(LlmcurateError):  # the next beat may succeed
                self._lost = not self._replace_holder(replace(self.driver, beat=time.time()))

    def _holder(self) -> Holder:
        self._tag = None
        try:
            if self.conditional:
                self._tag = self._try(LOCK, lambda p: self.fs.info(p, refresh=True)["ETag"], "read")
            return Holder.from_json(self.load(LOCK))
        except FileNotFoundError:  # no driver yet, or somebody deleted it
            segments = [n.rpartition("/")[2] for n in self.listing if f"{LEDGER}/" in n]
            number = max((int(name.partition("-")[0]) for name in segments), default=0)
            return Holder(0, None, None, "", 0.0, number)
        except ValueError:
            failure = f"{self.url}/{LOCK} is damaged: if no driver works, delete it"
            raise RunFailed(failure) from None

    def _replace_holder(self, holder: Holder) -> bool:
        """Write `holder` into the lock and return True. Return False if another process has changed
        the lock since this process last read or wrote it."""
        only_if: dict[str, Any] = {}
        if self.conditional:
            only_if = {"IfMatch": self._tag} if self._tag else {"mode": "create"}

        def write(place: str) -> Any:
            try:
                return self.fs.pipe_file(place, holder.to_json(), **only_if)
            except OSError as error:
                if "PreconditionFailed" in repr(error.__cause__):
                    return None
                raise

        written = self._try(LOCK, write, advice=ADVICE)
        if self.conditional and written is None and self._holder() != holder:
            return False  # else this holder was written, but the answer was lost
        self._tag = written["ETag"] if self.conditional and written else self._tag
        self.driver = holder
        return True


LOCAL = Store()
_current: ContextVar[Store] = ContextVar("store", default=LOCAL)


def current() -> Store:
    """Return the store in which this thread works."""
    return _current.get()


@contextmanager
def using(store: Store) -> Iterator[None]:
    """Make a store the current one within the block."""
    token = _current.set(store)
    try:
        yield
    finally:
        _current.reset(token)


_stamps: dict[str, tuple[Seal, tuple[int, ...]]] = {}  # for shared files that were compared


def verify(own: Iterable[SealedPath], shared: Iterable[SealedPath] = ()) -> None:
    """Compare the files that a task will read with their seals (size, digest). Files that the
    mirror lacks are fetched first. Raises Damaged, which names the first file that differs. `own`:
    files of this task alone. `shared`: files that every task reads. A process compares a shared
    file once, and again only after the file was written to."""
    own, shared = list(own), list(shared)
    current().read_all((Path(path), sealed) for path, sealed in (*own, *shared))
    for path, sealed in own:
        _check(path, sealed)
    for path, sealed in shared:
        if _stamps.get(path) != (sealed, stamp := _stamp(path)):
            _check(path, sealed)
            _stamps[path] = sealed, stamp


def _check(path: str, sealed: Seal) -> None:
    if (difference := fault(Path(path), sealed)) is not None:
        raise Damaged(f"{path} {difference}")


def _stamp(path: str) -> tuple[int, ...]:
    """Return status values of a file that differ after every write: no program can set ctime."""
    try:
        stat = Path(path).stat()
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def publish(
    store: Store, before: Mapping[str, list[Any]], nothing_new: bool = False
) -> dict[str, int]:
    """Upload a finished run's files from the mirror (local copy) to the store, except those already
    there, and remove outdated ones. `before`: the store's list of files before the run. With
    `nothing_new` (the run had no work), nothing is uploaded if the store still has all files of
    `before`. If the store lacks one, those that the mirror lacks are fetched before the upload.
    Return counts: `files` of the run, `put` (new or changed files), their `bytes`, `removed`."""
    stored = store.listing
    if nothing_new:
        if before and {n: size for n, (size, _) in before.items()}.items() <= stored.items():
            return {"files": len(before), "put": 0, "bytes": 0, "removed": 0}
        store.read_all((store.root / name, sealed) for name, sealed in before.items())
    names = [n for n in _files(store.root) if n.removeprefix(RUN).split("/")[0] not in STAY]
    paths = {name: store.root / name for name in names}
    new: dict[str, list[Any]] = {
        name: [path.stat().st_size, file_digest(path)] for name, path in paths.items()
    }
    own_manifests = manifests(names)
    # A folder whose manifest is in the store is complete there: workers have uploaded its files.
    whole = {
        folder
        for name, folder in own_manifests.items()
        if folder and name in stored and store.load(name) == paths[name].read_bytes()
    }
    changed = [n for n in names if before.get(n) != new[n] or stored.get(n) != new[n][0]]
    missing = [
        n for n in changed if stored.get(n) != new[n][0] or n.rpartition("/")[0] not in whole
    ]
    deleted = [n for n in before if n not in new and n in stored]
    if missing or deleted:
        # Without the list the files belong to no run; a folder without its manifest is incomplete.
        touched = {n.rpartition("/")[0] for n in (*missing, *deleted)}
        outdated = [n for n, folder in manifests(stored).items() if folder in touched]
        store.delete([LIST, *outdated])
        changed += [n for n in outdated if n in new and n not in changed]
        missing += [n for n in outdated if n in new and n not in missing]
        store.put(*(paths[n] for n in missing if n not in own_manifests))
        store.delete(deleted)
        for name in own_manifests:
            if name in missing:
                store.put(paths[name])
    if changed or deleted or LIST not in stored:
        listing = {"version": VERSION, "files": new}
        store.write(LIST, json.dumps(listing, indent=1, sort_keys=True).encode() + b"\n")
    size = sum(new[n][0] for n in changed)
    return {"files": len(new), "put": len(changed), "bytes": size, "removed": len(deleted)}


def manifests(names: Collection[str]) -> dict[str, str]:
    """Return {manifest: its folder} for the manifests among the file names. A manifest is a list of
    a folder's files. It lies in the folder, or beside FOLDER as FOLDER.json. Manifests of inner
    folders come first."""
    folders = {name.rpartition("/")[0] for name in names}
    folder_of: dict[str, str] = {}
    for name in sorted(names, key=lambda n: (-n.count("/"), n)):
        folder, _, file = name.rpartition("/")
        if file in MANIFESTS:
            folder_of[name] = folder
        elif name.endswith(".json") and name.removesuffix(".json") in folders:
            folder_of[name] = name.removesuffix(".json")
    return folder_of


def _files(out: Path) -> list[str]:
    paths = (path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if path.is_file())
    hidden = re.compile(r"(^|/)\.")
    return [path for path in paths if not hidden.search(path.removeprefix(RUN))]


def _moved(text: str, before: str, after: str) -> str:
    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {moved(key): moved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [moved(inner) for inner in value]
        if isinstance(value, str) and (value + "/").startswith(before + "/"):
            return after + value[len(before) :]
        return value

    return json.dumps(moved(json.loads(text)))
