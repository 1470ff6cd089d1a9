"""OUT as a URL: a run works in a scratch folder and puts what it leaves for readers into a store.

An object store has no rename; a put is whole or not there. So files go first, the manifest of their
folder after them, and the list of all, `published.json`, last. A manifest whose folder will change
is taken away before the first of its files is put, so that no reader sees a manifest beside files
of another run. What the list says is there already, byte for byte, is not put again.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from llmcurate.base.disk.files import file_digest, is_below, replacing
from llmcurate.base.disk.process import in_order
from llmcurate.base.errors import RunFailed, UsageError

LIST = "published.json"
VERSION = 1
AT_ONCE = 8  # puts on their way
MANIFESTS = ("manifest.json", "index.json")  # of the folder that they lie in
STAY = ("stages", "ledger.db")  # what only the run itself needs, at the root or in RUN
RUN = ".run/"
TRIES = 5
WAIT_SECONDS = 0.5  # before the second try; each further one waits twice as long

T = TypeVar("T")


class Store:
    """A folder of an object store, or of anything else that fsspec knows. wait: seconds before the
    second try."""

    def __init__(self, url: str, wait: float = WAIT_SECONDS) -> None:
        import fsspec

        self.url, self.wait = url.rstrip("/"), wait
        self._folder = url.startswith("file:")
        # Folders of this machine must be made first; objects have none.
        options = {"auto_mkdir": True} if self._folder else {}
        try:
            self.fs, self.root = fsspec.core.url_to_fs(self.url, **options)
        except ImportError as error:
            s3 = "pip install 'llmcurate[s3]'" if url.startswith("s3://") else error
            raise UsageError(f"OUT {url}: {s3}") from None
        except ValueError as error:
            raise UsageError(f"OUT {url}: {error}") from None

    def _failed(
        self,
        name: str,
        error: Exception,
        advice: str = "run again, it goes on",
        what: str = "written",
    ) -> RunFailed:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return RunFailed(f"{self.url}{name} cannot be {what} ({reason}): {advice}")

    def _at(self, name: str) -> str:
        """A file's place in the store; RunFailed for a name that leads elsewhere."""
        if not is_below(name):
            raise RunFailed(
                f"{self.url} names {name[:100]!r}, which is nothing inside it: nothing was done"
                f" with it; remove {LIST} there, and run again"
            )
        return f"{self.root}/{name}"

    def retried(self, work: Callable[[], T], tries: int = TRIES) -> T:
        """The work's result; tried again while the store is away for a moment."""
        for tried in range(tries - 1):
            try:
                return work()
            except RunFailed:
                time.sleep(self.wait * 2**tried)
        return work()

    def check(self) -> None:
        """RunFailed where nothing can be written, before hours of work."""
        name = ".llmcurate-may-write"
        try:
            self.fs.pipe_file(f"{self.root}/{name}", b"")
            self.fs.rm_file(f"{self.root}/{name}")
        except Exception as error:
            advice = "see that it is there and that you may write to it"
            raise self._failed("", error, advice) from None

    def listed(self) -> dict[str, list[Any]]:
        """name -> [bytes, sha256] of what the last run put there."""
        try:
            published = json.loads(self.fs.cat_file(f"{self.root}/{LIST}"))
        except (FileNotFoundError, ValueError):
            return {}
        except Exception as error:
            raise self._failed(f"/{LIST}", error, what="read") from None
        if not isinstance(published, dict) or published.get("version") != VERSION:
            return {}
        files = published.get("files")
        return dict(files) if isinstance(files, dict) else {}

    def sizes(self) -> dict[str, int]:
        """Bytes of what is there, by name."""
        self.fs.invalidate_cache()
        try:
            objects = self.fs.find(self.root, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise self._failed("", error) from None
        top = self.fs._strip_protocol(self.root).rstrip("/") + "/"
        return {k.removeprefix(top): v["size"] for k, v in objects.items()}

    def put(self, path: Path, name: str) -> None:
        """One file, whole or not at all."""
        place = self._at(name)
        try:
            if self._folder:  # where a copy is not whole until its end, as a put is
                with replacing(Path(place), sync=False) as aside:
                    shutil.copyfile(path, aside)
                return
            self.fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            self.fs.put_file(str(path), place)
        except Exception as error:
            raise self._failed(f"/{name}", error) from None

    def write(self, name: str, data: bytes) -> None:
        """A small file."""
        place = self._at(name)
        try:
            self.fs.pipe_file(place, data)
        except Exception as error:
            raise self._failed(f"/{name}", error) from None

    def remove(self, names: Iterable[str]) -> None:
        """Files that may be gone already, each tried as `retried` does."""

        def one(name: str) -> None:
            try:
                self.fs.rm_file(f"{self.root}/{name}")
            except FileNotFoundError:
                return
            except Exception as error:
                raise self._failed(f"/{name}", error) from None

        all_names = list(names)
        for name in all_names:
            self._at(name)  # before the first of them is removed
        for _ in in_order(lambda name: self.retried(lambda: one(name)), all_names, AT_ONCE):
            pass


def publish(out: Path, store: Store) -> dict[str, int]:
    """Puts what a finished run left in `out`; returns counts: files, put, bytes (put), removed."""
    names = [n for n in _files(out) if n.removeprefix(RUN).split("/")[0] not in STAY]
    new: dict[str, list[Any]] = {
        name: [(out / name).stat().st_size, file_digest(out / name)] for name in names
    }
    old, stored = store.retried(store.listed), store.retried(store.sizes)
    last = manifests(names)
    changed = [n for n in names if old.get(n) != new[n] or stored.get(n) != new[n][0]]
    gone = [n for n in old if n not in new and n in stored]

    def put(name: str) -> None:
        store.retried(lambda: store.put(out / name, name))

    if changed or gone:
        # Until the list is back, what stands there is of no run; a folder without its manifest is
        # not complete either.
        touched = {n.rpartition("/")[0] for n in (*changed, *gone)}
        heads = [n for n, folder in manifests(stored).items() if folder in touched]
        store.remove([LIST, *heads])
        changed += [n for n in heads if n in new and n not in changed]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            files = [n for n in changed if n not in last]
            list(pool.map(put, files))
        store.remove(gone)
        for name in last:
            if name in changed:
                put(name)
    if changed or gone or LIST not in stored:
        listing = {"version": VERSION, "files": new}
        text = json.dumps(listing, indent=1, sort_keys=True).encode() + b"\n"
        store.retried(lambda: store.write(LIST, text))
    size = sum(new[n][0] for n in changed)
    return {"files": len(new), "put": len(changed), "bytes": size, "removed": len(gone)}


def manifests(names: Collection[str]) -> dict[str, str]:
    """The manifests among the names of files, each with the folder that it is of: its own, or for
    FOLDER.json the one beside it; those of inner folders first."""
    folders = {name.rpartition("/")[0] for name in names}
    of: dict[str, str] = {}
    for name in sorted(names, key=lambda n: (-n.count("/"), n)):
        folder, _, file = name.rpartition("/")
        if file in MANIFESTS:
            of[name] = folder
        elif name.endswith(".json") and name.removesuffix(".json") in folders:
            of[name] = name.removesuffix(".json")
    return of


def _files(out: Path) -> list[str]:
    """Relative paths of all files that are not hidden, but for records of the run."""
    paths = (path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if path.is_file())
    hidden = re.compile(r"(^|/)\.")
    return [path for path in paths if not hidden.search(path.removeprefix(RUN))]
