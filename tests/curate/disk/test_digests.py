"""Digests of files and texts."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import xxhash

from curate.disk.files import file_digest, stream_digest, text_digest

CONTENT = "naïve".encode() * 100_000


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sha256", hashlib.sha256(CONTENT).hexdigest()),
        ("md5", hashlib.md5(CONTENT).hexdigest()),
        ("xxh3-128", xxhash.xxh3_128_hexdigest(CONTENT)),
    ],
)
def test_a_file_and_its_text_have_one_digest(tmp_path: Path, kind: str, expected: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    assert file_digest(path, kind) == text_digest(CONTENT.decode(), kind) == expected
    with open(path, "rb") as file:
        assert stream_digest(file, kind) == expected and file.tell() == len(CONTENT)
