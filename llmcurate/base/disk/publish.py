"""OUT as a URL: a run works in a local scratch folder and then uploads its results to a store.

An object store cannot rename, but each upload is whole or absent. So files are uploaded first, then
the manifest of their folder (its list of files), and last `published.json`, the list of all files.
If a folder will change, its old manifest is removed first, so that no reader sees it beside files
of another run. A file that `published.json` lists with the same bytes is not uploaded again.
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
AT_ONCE = 8  # uploads at the same time
MANIFESTS = ("manifest.json", "index.json")  # each of the folder that holds it
STAY = ("stages", "ledger.db")  # not uploaded: only the run needs it; at the root or in RUN
RUN = ".run/"
TRIES = 5
WAIT_SECONDS = 0.5  # before the second try, doubled for each further one

T = TypeVar("T")


class Store:
    """A folder in an object store or another fsspec file system. A failed operation is tried again
    after `wait` seconds."""

    def __init__(self, url: str, wait: float = WAIT_SECONDS) -> None:
        import fsspec

        self.url, self.wait = url.rstrip("/"), wait
        self._folder = url.startswith("file:")
        # Folders on this machine must be created first; objects need none.
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
        advice: str = "run the same command again, it resumes",
        verb: str = "written",
    ) -> RunFailed:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return RunFailed(f"{self.url}{name} cannot be {verb} ({reason}): {advice}")

    def _at(self, name: str) -> str:
        """Return a file's path in the store. Raises RunFailed for a path outside the store."""
        if not is_below(name):
            raise RunFailed(
                f"{self.url} names {name[:100]!r}, which is not inside it: it was not used; remove"
                f" {LIST} there and run again"
            )
        return f"{self.root}/{name}"

    def retried(self, work: Callable[[], T], tries: int = TRIES) -> T:
        """Return the result of `work()`. If it raises RunFailed, wait and call it again, up to
        `tries` times in all; each wait is longer than the one before."""
        for tried in range(tries - 1):
            try:
                return work()
            except RunFailed:
                time.sleep(self.wait * 2**tried)
        return work()

    def check(self) -> None:
        """Raise RunFailed if the store cannot be written to, before a run spends hours of work."""
        name = ".llmcurate-may-write"
        try:
            self.fs.pipe_file(f"{self.root}/{name}", b"")
            self.fs.rm_file(f"{self.root}/{name}")
        except Exception as error:
            advice = "check that it exists and that you may write to it"
            raise self._failed("", error, advice) from None

    def listed(self) -> dict[str, list[Any]]:
        """Return [size, sha256] of each file that the last run uploaded, by the file's name."""
        try:
            published = json.loads(self.fs.cat_file(f"{self.root}/{LIST}"))
        except (FileNotFoundError, ValueError):
            return {}
        except Exception as error:
            raise self._failed(f"/{LIST}", error, verb="read") from None
        if not isinstance(published, dict) or published.get("version") != VERSION:
            return {}
        files = published.get("files")
        return dict(files) if isinstance(files, dict) else {}

    def sizes(self) -> dict[str, int]:
        """Return the size of each file in the store in bytes, by the file's name."""
        self.fs.invalidate_cache()
        try:
            objects = self.fs.find(self.root, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise self._failed("", error) from None
        top = self.fs._strip_protocol(self.root).rstrip("/") + "/"
        return {k.removeprefix(top): v["size"] for k, v in objects.items()}

    def upload(self, path: Path, name: str) -> None:
        """Upload one file, so that the store has all of it or nothing."""
        place = self._at(name)
        try:
            if self._folder:  # unlike an upload, a copy is visible before it is complete
                with replacing(Path(place), sync=False) as aside:
                    shutil.copyfile(path, aside)
                return
            self.fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            self.fs.put_file(str(path), place)
        except Exception as error:
            raise self._failed(f"/{name}", error) from None

    def write(self, name: str, data: bytes) -> None:
        place = self._at(name)
        try:
            self.fs.pipe_file(place, data)
        except Exception as error:
            raise self._failed(f"/{name}", error) from None

    def remove(self, names: Iterable[str]) -> None:
        """Remove files from the store, trying again after failures. Missing files are no error."""

        def remove_file(name: str) -> None:
            try:
                self.fs.rm_file(f"{self.root}/{name}")
            except FileNotFoundError:
                return
            except Exception as error:
                raise self._failed(f"/{name}", error) from None

        all_names = list(names)
        for name in all_names:
            self._at(name)  # all are checked before the first is removed
        for _ in in_order(lambda name: self.retried(lambda: remove_file(name)), all_names, AT_ONCE):
            pass


def publish(out: Path, store: Store) -> dict[str, int]:
    """Upload what a finished run left in `out`. Return {name: number} for all files, uploaded files
    (`put`), uploaded bytes and removed files."""
    names = [n for n in _files(out) if n.removeprefix(RUN).split("/")[0] not in STAY]
    new: dict[str, list[Any]] = {
        name: [(out / name).stat().st_size, file_digest(out / name)] for name in names
    }
    old, stored = store.retried(store.listed), store.retried(store.sizes)
    own_manifests = manifests(names)
    changed = [n for n in names if old.get(n) != new[n] or stored.get(n) != new[n][0]]
    deleted = [n for n in old if n not in new and n in stored]

    def upload(name: str) -> None:
        store.retried(lambda: store.upload(out / name, name))

    if changed or deleted:
        # Without the list the files belong to no run; a folder without its manifest is incomplete.
        touched = {n.rpartition("/")[0] for n in (*changed, *deleted)}
        outdated = [n for n, folder in manifests(stored).items() if folder in touched]
        store.remove([LIST, *outdated])
        changed += [n for n in outdated if n in new and n not in changed]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            files = [n for n in changed if n not in own_manifests]
            list(pool.map(upload, files))
        store.remove(deleted)
        for name in own_manifests:
            if name in changed:
                upload(name)
    if changed or deleted or LIST not in stored:
        listing = {"version": VERSION, "files": new}
        text = json.dumps(listing, indent=1, sort_keys=True).encode() + b"\n"
        store.retried(lambda: store.write(LIST, text))
    size = sum(new[n][0] for n in changed)
    return {"files": len(new), "put": len(changed), "bytes": size, "removed": len(deleted)}


def manifests(names: Collection[str]) -> dict[str, str]:
    """Return {manifest: folder that it describes} for the manifests (lists of a folder's files)
    among file names. The folder is the one that holds the manifest, or for FOLDER.json the folder
    beside it. Manifests of inner folders come first."""
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
