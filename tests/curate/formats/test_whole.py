"""Files that are one document: encodings and padding lose no text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.curate.formats.portions import corrupt, events, rows

TEXT = "Zwölf Boxkämpfer\njagen Viktor.\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_a_text_of_any_unicode_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode(encoding))
    found = events(tmp_path / "a.txt")
    assert [row.text for row in rows(found)] == [TEXT] and not corrupt(found)


@pytest.mark.parametrize("ending", ["txt", "jsonl", "csv"])
@pytest.mark.parametrize("codec", ["utf-32-le", "utf-32-be"])
def test_utf_32_is_read_by_its_byte_order_mark(tmp_path: Path, codec: str, ending: str) -> None:
    content = {"txt": "ÄЖ字", "jsonl": '{"text": "ÄЖ字"}\n', "csv": "text\nÄЖ字\n"}[ending]
    (tmp_path / f"a.{ending}").write_bytes(f"\ufeff{content}".encode(codec))
    found = events(tmp_path / f"a.{ending}")
    assert [row.text for row in rows(found)] == ["ÄЖ字"] and not corrupt(found)


def test_nuls_around_a_text_are_counted_and_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(20) + TEXT.encode() + bytes(30))
    found = events(tmp_path / "a.txt")
    assert [row.text for row in rows(found)] == [TEXT]
    assert corrupt(found) == ["50 NUL bytes around the text"]


def test_nuls_alone_are_no_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(4096))
    found = events(tmp_path / "a.txt")
    assert not rows(found) and corrupt(found)


def test_invalid_bytes_are_counted_and_the_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode() + b"\xff\xfe")
    found = events(tmp_path / "a.txt")
    assert [row.text for row in rows(found)] == [TEXT + "\ufffd\ufffd"]
    assert [row.replaced for row in rows(found)] == [{"utf-8": 2}]
