"""Shards compared with their manifest, in a thread beside training, each file once.

OUT/compared.jsonl has a line a file that was as it should be ({"path", "bytes", "mtime_ns",
"sha256"}): one that has not changed since is not read again. {"begun": step} and {"complete": true}
say from which step on a run trained on what was not yet compared.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from llmcurate.base.errors import RunFailed
from train.data.shards import Shards, damaged_shard

_BLOCK = 1 << 20


class Comparison:
    """Compares the files of ``shards`` in a thread, smaller ones first; ``step``: where training
    goes on. ``since``: the step up to which it read nothing that was not compared.
    """

    def __init__(self, shards: Iterable[Shards], record: Path, step: int) -> None:
        self._record = record
        compared, begun = _read(record)
        self.since = step if begun is None else min(begun, step)
        self._note({"begun": step})
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compare")
        files = {path.resolve(): digest for part in shards for path, digest in part.sums}
        self._work = self._pool.submit(self._compare, files, compared)

    def done(self) -> bool:
        """Whether all files are what their manifest says; raises ``LlmcurateError`` naming one that
        is not, as soon as that is known.
        """
        return self._work.done() and self._work.result() is None

    def wait(self) -> None:
        """Until all are compared; raises as ``done``."""
        self._work.result()

    @property
    def failed(self) -> bool:
        """Whether a file was found damaged."""
        return self._work.done() and self._work.exception() is not None

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._pool.shutdown()

    def _compare(self, files: dict[Path, str], compared: set[tuple[Any, ...]]) -> None:
        try:
            facts = {path: path.stat() for path in files}
            for path in sorted(files, key=lambda path: (facts[path].st_size, path)):
                size, changed, digest = facts[path].st_size, facts[path].st_mtime_ns, files[path]
                if (str(path), size, changed, digest) in compared:
                    continue
                actual = self._digest(path)
                if actual is None:
                    return
                if actual != digest:
                    raise damaged_shard(path)
                line = {"path": str(path), "bytes": size, "mtime_ns": changed, "sha256": digest}
                self._note(line)
        except OSError as error:
            raise RunFailed(f"{error.filename}: cannot be read ({error.strerror})") from error
        self._note({"complete": True})

    def _digest(self, path: Path) -> str | None:
        """The SHA-256 of a file, or None where there is no more need of it."""
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                if self._stop.is_set():
                    return None
                digest.update(block)
        return digest.hexdigest()

    def _note(self, line: dict[str, Any]) -> None:
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _read(record: Path) -> tuple[set[tuple[Any, ...]], int | None]:
    """The files that were as they should be, and where training on others began, if it did."""
    compared: set[tuple[Any, ...]] = set()
    begun = None
    for text in record.read_bytes().splitlines() if record.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # cut off by a crash: that file is read again
        if not isinstance(line, dict):
            continue
        if isinstance(step := line.get("begun"), int):
            begun = step if begun is None else min(begun, step)
        elif "complete" in line:
            begun = None
        elif all(isinstance(value, (str, int)) for value in line.values()):
            compared.add(tuple(line.get(name) for name in ("path", "bytes", "mtime_ns", "sha256")))
    return compared, begun
