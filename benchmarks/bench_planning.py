"""Planning a run over files in a store that takes its time: seconds, files looked at
AT_ONCE at a time or one after the other.

    python benchmarks/bench_planning.py [--files N] [--delay SECONDS]

The store is this disk behind a delay at each opening and each range that is read, as a request to
an object store has it. Both plans must be the same. Exit status 1 below the target.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import reached  # noqa: E402
from curate.formats.inputs import plan_inputs  # noqa: E402
from llmcurate.base.disk.process import AT_ONCE  # noqa: E402

TARGET = 8.0
DELAY = [0.0]


class SlowFile:
    """A file of which every range costs a request."""

    def __init__(self, path: str) -> None:
        time.sleep(DELAY[0])
        self._file = Path(path).open("rb")  # noqa: SIM115

    def read(self, size: int = -1) -> bytes:
        """A request."""
        time.sleep(DELAY[0])
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> SlowFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class Slow(LocalFileSystem):
    """slow://PATH."""

    protocol = "slow"

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        return SlowFile(path)


def write(folder: Path, count: int) -> None:
    """Archives of many small records of random bytes, which stay their size."""
    for n in range(count):
        with (folder / f"{n:05d}.warc.gz").open("wb") as file:
            for record in range(12):
                body = os.urandom(32 << 10)
                head = (
                    "WARC/1.0\r\nWARC-Type: resource\r\nContent-Type: text/plain\r\n"
                    f"WARC-Record-ID: <urn:{n}-{record}>\r\nWARC-Target-URI: http://a/{record}\r\n"
                    f"WARC-Date: 2026-01-01T00:00:00Z\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                file.write(gzip.compress(head.encode() + body + b"\r\n\r\n", 1, mtime=0))


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--delay", type=float, default=0.03)
    options = parser.parse_args()
    fsspec.register_implementation("slow", Slow, clobber=True)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), options.files)
        plan_inputs([f"slow://{name}"], 100_000)
        DELAY[0] = options.delay
        seconds, plans = [], []
        for at_once in (1, AT_ONCE):
            began = time.perf_counter()
            plans.append(plan_inputs([f"slow://{name}"], 100_000, at_once=at_once))
            seconds.append(time.perf_counter() - began)
    if plans[0] != plans[1]:
        sys.exit("the plans differ")
    alone, many = seconds
    cut = len(plans[0].partitions)
    print(f"{options.files} archives, {cut} partitions, {options.delay * 1000:.0f} ms a request")
    print(f"  one after the other {alone:7.2f} s")
    print(f"  {AT_ONCE:3} at a time       {many:7.2f} s   {alone / many:.1f} times as fast")
    sys.exit(not reached(alone / many >= TARGET))


if __name__ == "__main__":
    main()
