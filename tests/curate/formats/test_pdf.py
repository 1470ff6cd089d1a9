"""PDF files: the text they carry; scans, locked and broken files are reported as such."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from curate.formats.pdf import pdf_date
from tests.curate.formats.pdf_files import pdf
from tests.curate.formats.portions import corrupt, events, rows


def test_pages_are_text_with_title_and_date(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("The first page.", "", "The last page."))
    (row,) = rows(events(tmp_path / "a.pdf"))
    assert row.text == "The first page.\n\nThe last page."
    assert row.extra == {"pdf.title": "The mill", "pdf.pages": 3}
    assert row.date is not None and row.date.isoformat() == "2020-01-02T01:04:05+00:00"


def test_a_file_is_told_by_its_content_and_may_be_packed(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "unnamed").write_bytes(gzip.compress(pdf("The only page.")))
    (row,) = rows(events(tmp_path / "unnamed"))
    assert row.text == "The only page."


def test_a_scan_is_rejected_as_a_document_without_text(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(pdf("", ""))
    (row,) = rows(events(tmp_path / "scan.pdf"))
    assert row.reject == ("no_text", None, None, "the PDF has no text, only images")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4\n" + zlib.compress(b"nothing"))
    found = events(tmp_path / "a.pdf")
    assert not rows(found) and corrupt(found)[0].startswith("PDF: ")


def test_pages_that_a_file_claims_and_has_not_are_few_events(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("A page.").replace(b"/Count 1 ", b"/Count 99999 "))
    found = events(tmp_path / "a.pdf")
    assert len(found) < 30 and rows(found)[-1].text == "A page."


def test_a_file_beyond_the_limit_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("A page.") + b" " * 5000)
    (row,) = rows(events(tmp_path / "a.pdf", max_payload=3000))
    assert row.reject is not None and row.reject[0] == "record_too_large"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("D:20200102", "2020-01-02T00:00:00+00:00"),
        ("D:20201231235959-01'30'", "2021-01-01T01:29:59+00:00"),
        ("D:2020", "2020-01-01T00:00:00+00:00"),
        ("D:20209902", None),
        ("yesterday", None),
    ],
)
def test_dates_are_read_as_pdf_writes_them(written: str, read: str | None) -> None:
    when = pdf_date(written)
    assert (when.isoformat() if when else None) == read
