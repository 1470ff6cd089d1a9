"""Throughput of reading a WARC.gz: ours against fastwarc and warcio, on the same file.

    python benchmarks/archive_readers.py ../shared/corpora/web/web-*.warc.gz [--repeat 5]

The files are repeated into one; every reader visits each record and reads its content, each in a
process of its own, the median of three runs counts. A second file holds small records (1 KiB of
content), where the cost of a record shows rather than that of inflating.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def ours(path: str) -> tuple[int, int]:
    from curate.formats.events import Corrupt
    from curate.formats.records import records

    count = size = 0
    with open(path, "rb") as file:
        for record in records(file):
            assert not isinstance(record, Corrupt)
            count, size = count + 1, size + len(record.content or b"")
    return count, size


def ours_documents(path: str) -> tuple[int, int]:
    """All of it: HTTP heads, types, dates, decoded bodies."""
    from curate.formats.warc import read_archive

    with open(path, "rb") as file:
        events = [len(getattr(event, "payload", None) or b"") for event in read_archive(file)]
    return len(events), sum(events)


def fastwarc(path: str) -> tuple[int, int]:
    from fastwarc.warc import ArchiveIterator

    count = size = 0
    with open(path, "rb") as file:
        for record in ArchiveIterator(file, parse_http=False):
            count, size = count + 1, size + len(record.reader.read())
    return count, size


def warcio(path: str) -> tuple[int, int]:
    from warcio.archiveiterator import ArchiveIterator

    count = size = 0
    with open(path, "rb") as file:
        for record in ArchiveIterator(file, no_record_parse=True):
            count, size = count + 1, size + len(record.raw_stream.read())
    return count, size


READERS: dict[str, Callable[[str], tuple[int, int]]] = {
    "ours": ours,
    "ours, as documents": ours_documents,
    "fastwarc": fastwarc,
    "warcio": warcio,
}


def measure(name: str, path: str, queue: Any) -> None:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        records = READERS[name](path)
        times.append(time.perf_counter() - begin)
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent too
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    queue.put((statistics.median(times), records, peak))


def compare(title: str, path: str) -> None:
    size = Path(path).stat().st_size
    print(f"{title}: {size / 1e6:.0f} MB compressed")
    seconds: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    for name in READERS:
        queue = context.Queue()
        process = context.Process(target=measure, args=(name, path, queue))
        process.start()
        seconds[name], (count, content), peak = queue.get()
        process.join()
        print(
            f"  {name:<20}{seconds[name]:8.3f} s {size / 1e6 / seconds[name]:8.1f} MB/s"
            f" {count / seconds[name]:10.0f} records/s {peak:6.0f} MiB peak"
            f"   {count} records, {content} bytes"
        )
    print(
        f"  ours is {seconds['warcio'] / seconds['ours']:.2f} x warcio,"
        f" {seconds['fastwarc'] / seconds['ours']:.2f} x fastwarc (ratio of throughput)"
    )


def small_records(path: Path, count: int = 30_000) -> None:
    with path.open("wb") as out:
        for i in range(count):
            body = (f"<p>{i * 7919 % 99991}</p>" * 80).encode()[:1024]
            content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
            head = (
                f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{i:032x}>\r\n"
                f"WARC-Target-URI: http://example.org/{i}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
                f"Content-Type: application/http; msgtype=response\r\n"
                f"Content-Length: {len(content)}\r\n\r\n"
            )
            out.write(gzip.compress(head.encode() + content + b"\r\n\r\n", 6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    from curate.formats.compression import fast_zlib

    print(f"gzip decoder of ours: {fast_zlib.__name__}")
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large.warc.gz"), Path(folder, "small.warc.gz")
        large.write_bytes(b"".join(p.read_bytes() for p in options.files) * options.repeat)
        small_records(small)
        compare("real pages", str(large))
        compare("small records", str(small))


if __name__ == "__main__":
    main()
