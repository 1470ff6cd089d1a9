"""Interchange: WARC through warcio, signatures with datasketch, filters with pybloom-live."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.dedup.minhash.lean_minhash import SETTINGS
from curate.dedup.minhash.near_duplicates import DedupMinhash
from curate.formats.warc_writer import WarcWriter
from llmcurate.base.errors import UsageError

ROWS = [
    {
        "id": f"urn:uuid:00000000-0000-0000-0000-{i:012d}" if i % 2 else f"d{i}",
        "text": f"The {i} rivers run past the old mill and nobody works there.\nไทย {i * 7}",
        "url": f"https://host.test/{i}?a=b c",
        "date": "2024-05-01T10:00:00Z",
        "lang": "en",
    }
    for i in range(30)
]


def export(bench: Any, **settings: Any) -> Path:
    """The folder of an export of ROWS."""
    bench.run([{"export": settings}], bench.jsonl("in.jsonl", ROWS), out=settings["format"])
    return bench.folder / settings["format"]


def test_a_warc_file_has_the_documents_for_warcio_and_for_this_reader(bench: Any) -> None:
    from warcio.archiveiterator import ArchiveIterator

    folder = export(bench, format="warc", part_bytes=500) / "warc"
    files = sorted(folder.iterdir())
    assert len(files) > 1
    records = []
    for path in files:
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                head, body = record.rec_headers, record.content_stream().read()
                if record.rec_type == "conversion":
                    records.append((head.get_header("WARC-Refers-To"), body.decode()))
    names = [f"<{row['id']}>" if row["id"].startswith("urn:") else None for row in ROWS]
    assert records == list(zip(names, [row["text"] for row in ROWS], strict=True))
    bench.run(["extract"], folder, out="again")
    again = bench.rows("again")
    assert [row["text"] for row in again] == [row["text"] for row in ROWS]
    urls = [row["url"].replace(" ", "%20") for row in ROWS]
    assert [(row["url"], row["lang"]) for row in again] == [(url, "en") for url in urls]
    assert {str(row["date"]) for row in again} == {"2024-05-01 10:00:00+00:00"}
    assert len({row["id"] for row in again}) == len(ROWS)


def test_no_id_or_url_writes_a_header_of_its_own() -> None:
    stream = io.BytesIO()
    row = {"id": "urn:x\r\nWARC-Type: response", "url": "http://a/\r\n\r\nGET", "text": "t"}
    WarcWriter(stream, "x", "test").document(**row)
    from warcio.archiveiterator import ArchiveIterator

    kinds = [r.rec_type for r in ArchiveIterator(io.BytesIO(stream.getvalue()))]
    assert kinds == ["warcinfo", "conversion"]


def test_datasketch_reads_the_signatures(bench: Any) -> None:
    from datasketch import LeanMinHash, MinHash

    path = export(bench, format="minhash", minhash={"seed": 7}) / "signatures.parquet"
    table = pq.read_table(path)
    assert table["id"].to_pylist() == [row["id"] for row in ROWS]
    read = [LeanMinHash.deserialize(x, "<") for x in table["signature"].to_pylist()]
    step = DedupMinhash(seed=7)
    _, shingles = step.shingles(pa.array([ROWS[3]["text"]], pa.large_string()))
    own = MinHash(112, 7, hashfunc=lambda value: value)
    own.update_batch([int(h) & 0xFFFFFFFF for h in shingles])
    assert read[3].jaccard(own) == 1.0
    assert {lean.seed for lean in read} == {7}
    settings = json.loads(table.schema.metadata[SETTINGS])
    assert settings == step.comparable()


def test_pybloom_live_reads_the_filter_and_a_recipe_drops_what_it_holds(bench: Any) -> None:
    from pybloom_live import BloomFilter

    path = export(bench, format="bloom") / "filter.bloom"
    with path.open("rb") as file:
        seen = BloomFilter.fromfile(file)
    assert all(row["url"] in seen for row in ROWS) and "https://host.test/31" not in seen
    new = [ROWS[2], {"id": "new", "text": "A new page.", "url": "https://host.test/new"}]
    bench.run([{"bloom_file": {"file": str(path)}}], bench.jsonl("new.jsonl", new), out="out")
    assert bench.ids("out") == ["new"]
    (row,) = bench.rows("out", "rejected")
    assert (row["id"], row["step"], row["rule"]) == (ROWS[2]["id"], "bloom_file", "in_filter")


@pytest.mark.parametrize("damage", ["cut", "slices", "no bits", "other"])
def test_a_damaged_filter_is_refused_in_one_line(bench: Any, damage: str) -> None:
    path = export(bench, format="bloom") / "filter.bloom"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-3:]
    elif damage == "slices":
        data[8:16] = (1 << 40).to_bytes(8, "little")
    elif damage == "no bits":
        data[16:] = bytes(8) + data[24:40]
    else:
        data = bytearray(b"no filter at all")
    path.write_bytes(bytes(data))
    with pytest.raises(UsageError, match="is damaged or not a filter of pybloom-live"):
        bench.run([{"bloom_file": {"file": str(path)}}], bench.jsonl("n.jsonl", ROWS), out="o")
