"""WACZ files are read as the archives in them; a hostile zip is refused and reported."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from curate.formats import wacz as wacz_reader
from tests.curate.formats.portions import REAL, corrupt, events, needs_real, rows
from tests.curate.formats.wacz_files import record, wacz


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_compressed_archives_are_read_one_after_another(tmp_path, packing) -> None:
    members = {
        "datapackage.json": b"{}",
        "archive/a.warc": record(1) + record(2),
        "archive/b.warc.gz": gzip.compress(record(3)),
    }
    found = events(wacz(tmp_path / "c.wacz", members, packing))
    assert [row.url for row in rows(found)] == [f"https://a.test/{n}" for n in (1, 2, 3)]
    assert not corrupt(found)


def test_damage_ends_with_its_archive(tmp_path: Path) -> None:
    members = {"archive/a.warc": record(1) * 50, "archive/b.warc": record(2)}
    path = wacz(tmp_path / "c.wacz", members, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    data[60:70] = b"\xff" * 10
    path.write_bytes(data)
    found = events(path)
    assert "https://a.test/2" in [row.url for row in rows(found)]
    assert corrupt(found)[0].startswith("WACZ: 'archive/a.warc': ")


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    zeros = b"\0" * (70 << 20)
    found = events(wacz(tmp_path / "c.wacz", {"archive/a.warc": zeros}, zipfile.ZIP_DEFLATED))
    assert corrupt(found) == ["WACZ: it would unpack to more than 200 times its size"]


def test_as_many_bytes_as_a_file_may_unpack_to_are_read(tmp_path: Path, monkeypatch) -> None:
    path = wacz(tmp_path / "c.wacz", {f"archive/{n}.warc": record(n) for n in range(3)})
    monkeypatch.setattr(wacz_reader, "MOST_RATIO", 0)
    size = sum(len(record(n)) for n in range(3))
    for most, read in ((size, 3), (size - 1, 2), (len(record(0)) - 1, 0)):
        monkeypatch.setattr(wacz_reader, "MOST_BELOW", most)
        found = events(path)
        assert len(rows(found)) == read and len(corrupt(found)) == (read < 3)


def test_names_are_no_paths(tmp_path: Path) -> None:
    found = events(wacz(tmp_path / "c.wacz", {"archive/../../out.warc": record(1)}))
    assert len(rows(found)) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["c.wacz"]


def test_a_directory_that_begins_before_the_file_is_damage(tmp_path: Path) -> None:
    """This was once a disk error that ended the run."""
    path = wacz(tmp_path / "c.wacz", {"archive/a.warc": record(1)})
    data = bytearray(path.read_bytes())
    data[-6:-2] = (2**31 - 1).to_bytes(4, "little")  # where the directory lies
    path.write_bytes(data)
    assert corrupt(events(path)) == [
        "WACZ: 'archive/a.warc': its offset is before the start of the file"
    ]


def test_a_file_that_is_no_zip_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.wacz").write_bytes(b"PK\x03\x04 nothing")
    assert corrupt(events(tmp_path / "c.wacz")) == ["not a zip file: File is not a zip file"]


@needs_real
def test_real_files() -> None:
    (row,) = rows(events(REAL / "pywb" / "valid_example_1.wacz"))
    assert row.url == "http://www.example.com/" and b"Example Domain" in (row.payload or b"")
    found = events(REAL / "pywb" / "invalid_example_1.wacz")
    assert corrupt(found) == ["WACZ: no archive in it (no file under archive/)"]


@needs_real
def test_real_archives_within_are_read_as_they_are_outside(tmp_path: Path) -> None:
    real = REAL / "warcio" / "example-iana.org-chunked.warc"
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        file.write(real.read_bytes())
    inside = wacz(tmp_path / "c.wacz", {"archive/x.warc.gz": packed.getvalue()})
    assert [r.payload for r in rows(events(inside))] == [r.payload for r in rows(events(real))]
