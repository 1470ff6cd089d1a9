"""Files of all formats in one run: everything is counted, and workers change no byte."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.curate.formats.pdf_files import pdf
from tests.curate.formats.wacz_files import record, wacz
from tests.curate.lab.formats.latex_files import MAIN, tar
from tests.curate.lab.formats.mediawiki_dumps import multistream
from tests.curate.lab.formats.stackexchange_dumps import POSTS, dump, packed
from tests.curate.lab.formats.wat_files import envelope, wat

STEPS = [{"extract": {"output": "text"}}, {"document_length": {"unit": "chars", "min": 1}}]


def fill(folder: Path) -> int:
    """Write a file of each format, two of them damaged; return their number of documents."""
    folder.mkdir()
    wacz(folder / "a.wacz", {"archive/a.warc": record(1) + record(2)})
    wat(folder / "b.warc.wat.gz", envelope(), envelope("request"))
    multistream(folder / "c.xml.bz2", 30)
    packed(folder / "mills.stackexchange.com.7z", {"Posts.xml": dump(POSTS)})
    (folder / "d.tar").write_bytes(tar({"1001.0001.gz": tar({"a.tex": MAIN.encode()})}))
    (folder / "e.pdf").write_bytes(pdf("A page of text."))
    (folder / "f.pdf").write_bytes(b"%PDF-1.4 broken")
    (folder / "g.wacz").write_bytes(b"PK broken")
    return 2 + 1 + 30 + 2 + 1 + 1


def test_workers_change_nothing_and_every_document_is_counted(bench) -> None:
    documents = fill(bench.folder / "in")
    assert tarfile.is_tarfile(bench.folder / "in" / "d.tar")
    for workers in (1, 2):
        out, read = f"out{workers}", {"partition_bytes": 100_000}
        outcome = bench.run(STEPS, bench.folder / "in", out=out, workers=workers, read=read)
        totals = outcome.totals()
        assert totals.read == totals.kept + totals.rejected == documents
        assert totals.corrupt == 2
        assert totals.skipped_by_type["wat:request"] == 1
    assert bench.bytes_of("out1") == bench.bytes_of("out2")
    texts = {row["id"]: row["text"] for row in bench.rows("out1")}
    assert texts["arxiv:1001.0001"].startswith(r"\begin{abstract}")
    assert texts["mills.stackexchange.com/1"].startswith("Q:")
