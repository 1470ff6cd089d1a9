"""Every record of 100 real and odd archives: ours against warcio and fastwarc.

    python benchmarks/real_warc_table.py ../shared/corpora/real_warc

`manifest.jsonl` in that folder names the files; all three readers run here, on the same bytes.
Exit status 1 if a file raises, or yields fewer records than the better of the two libraries, unless
the library's surplus is no record: those files are listed in `NO_RECORDS`, each with the reason.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.formats.events import Corrupt
from curate.formats.http import parse_head
from curate.formats.records import records

NO_RECORDS = {
    "jwat/invalid-entries.gz": "gzipped lines of text: warcio calls the first a response",
    "jwat/invalid-truncated.gz": "gzipped lines of text: warcio calls the first a response",
    "jwat/sample.txt.gz": "gzipped lines of text: warcio calls the first a response",
    "jwat/three-files.gz": "gzipped lines of text: warcio calls the first a response",
    "jwat/invalid-warcfile-fields-empty.warc": (
        "one record without a length; warcio takes its content's request line for an ARC record"
    ),
    "jwat/invalid-warcfile-fields-invalidformat.warc": (
        "one record without a length; warcio takes its content's request line for an ARC record"
    ),
    "jwat/invalid-warcfile-record-then-garbage.warc": (
        "warcio takes the line `The monkeys are a coming!` for an ARC record"
    ),
}


def ours(path: Path) -> tuple[Counter[str], int, int]:
    """Records by type, payload bytes, corrupt stretches."""
    types: Counter[str] = Counter()
    payload = corrupt = 0
    with path.open("rb") as file:
        for record in records(file):
            if isinstance(record, Corrupt):
                corrupt += 1
                continue
            types[record.type or "(none)"] += 1
            content = record.content or b""
            head = parse_head(content) if record.type in ("response", "revisit") else None
            begins = head.length if head else 0
            if record.type == "request" and (end := content.find(b"\r\n\r\n")) >= 0:
                begins = end + 4
            payload += len(content) - begins
    return types, payload, corrupt


def warcio(path: Path) -> Iterator[int]:
    from warcio.archiveiterator import ArchiveIterator

    with path.open("rb") as file:
        for record in ArchiveIterator(file, arc2warc=False):
            yield len(record.raw_stream.read())


def fastwarc(path: Path) -> Iterator[int]:
    from fastwarc.warc import ArchiveIterator

    with path.open("rb") as file:
        for record in ArchiveIterator(file, parse_http=True):
            yield len(record.reader.read())


def counted(sizes: Iterator[int]) -> tuple[int, int, str]:
    """Records and payload bytes until the reader ends or raises; `!` where it raised."""
    count = total = 0
    try:
        for size in sizes:
            count, total = count + 1, total + size
    except Exception:
        return count, total, "!"
    return count, total, ""


def main(folder: Path) -> int:
    failures: list[str] = []
    sums: Counter[str] = Counter()
    print(f"{'file':<64}{'ours':>15}{'corrupt':>8}{'warcio':>15}{'fastwarc':>15}  types")
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        name = json.loads(line)["file"]
        try:
            types, payload, corrupt = ours(folder / name)
        except Exception as error:
            failures.append(f"{name}: {error!r}")
            continue
        number = sum(types.values())
        peers = {
            "warcio": counted(warcio(folder / name)),
            "fastwarc": counted(fastwarc(folder / name)),
        }
        cells = "".join(f"{f'{n}/{size}{bang}':>15}" for n, size, bang in peers.values())
        listed = " ".join(f"{kind.strip()}={n}" for kind, n in sorted(types.items()))
        print(f"{name[-62:]:<64}{f'{number}/{payload}':>15}{corrupt:>8}{cells}  {listed}")
        best = max(n for n, _, _ in peers.values())
        if number < best and name not in NO_RECORDS:
            failures.append(f"{name}: {number} records, a library reads {best}")
        sums.update(files=1, records=number, payload=payload, corrupt=corrupt)
        for peer, (count, _, bang) in peers.items():
            real = min(count, number) if name in NO_RECORDS else count
            sums.update({peer: real, f"{peer}-raised": bool(bang), f"{peer}-less": real < number})
    print("(records/payload bytes; ! = the library raised there)")
    print(
        f"total: {sums['files']} files, ours {sums['records']} records"
        f" ({sums['payload']} payload bytes, {sums['corrupt']} corrupt stretches reported);"
        f" warcio {sums['warcio']} (less in {sums['warcio-less']} files, raised in"
        f" {sums['warcio-raised']}); fastwarc {sums['fastwarc']} (less in"
        f" {sums['fastwarc-less']} files, raised in {sums['fastwarc-raised']});"
        f" {len(NO_RECORDS)} files where warcio counts lines that are no records"
    )
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
