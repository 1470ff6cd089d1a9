"""The hashes of exact dedup: their values, and equal decisions."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
import xxhash

from curate.dedup.exact import DedupExact
from curate.dedup.hashes import HASHES, digests
from curate.dedup.passages.kernels import DEFAULT_HASH
from curate.dedup.passages.repeated_passages import DedupPassages
from curate.documents.documents import documents
from tests.curate.dedup.reference_passages import murmur3

TEXTS = [b"", b"a", b"a\x00b", "日本語".encode(), b"x" * 1000, bytes(range(256))]
KNOWN = {
    "xxh3-128": lambda t: xxhash.xxh3_128(t).digest(),
    "murmur3-128": lambda t: struct.pack("<QQ", *murmur3(t)),
    "blake2b-128": lambda t: hashlib.blake2b(t, digest_size=16).digest(),
    "blake2b-256": lambda t: hashlib.blake2b(t, digest_size=32).digest(),
    "sha256": lambda t: hashlib.sha256(t).digest(),
    "sha3-256": lambda t: hashlib.new("sha3_256", t).digest(),
    "sha1-64": lambda t: hashlib.sha1(t).digest()[:8],
}


def joined(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.frombuffer(bytearray().join(texts), np.uint8),
        np.cumsum([0, *map(len, texts)]).astype(np.int64),
    )


@pytest.mark.parametrize("name", HASHES)
def test_a_digest_is_what_the_hash_says_of_those_bytes(name):
    hashed = digests(*joined(TEXTS), name)
    assert hashed.shape == (len(TEXTS), HASHES[name].bits // 8)
    assert [row.tobytes() for row in hashed] == [KNOWN[name](t) for t in TEXTS]
    assert digests(*joined([]), name).shape == (0, HASHES[name].bits // 8)


def test_sha3_is_the_standards():
    """FIPS 202's example for no message."""
    assert digests(*joined([b""]), "sha3-256").tobytes().hex() == (
        "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"
    )


def choices(step: type, field: str) -> set[str]:
    return set(step.model_json_schema()["properties"][field]["enum"])


def test_steps_offer_every_known_hash():
    assert choices(DedupExact, "hash") == set(HASHES)
    assert choices(DedupPassages, "hash") == {n for n, h in HASHES.items() if h.bits <= 128}
    assert DedupPassages().hash == DEFAULT_HASH


@pytest.mark.parametrize("settings", [{}, {"normalize": True}, {"key": "url"}])
def test_the_same_documents_match_whichever_hash_compares_them(settings):
    docs = documents(
        {
            "id": [f"d{i}" for i in range(9)],
            "text": [["", "Text", "text", "other "][i % 4] for i in range(9)],
            "url": [[None, "", "https://h.test/", "http://www.h.test"][i % 4] for i in range(9)],
        }
    )
    partners = []
    for name in HASHES:
        keys = DedupExact(hash=name, **settings).sketch(docs.within("x"))["key"].to_pylist()
        assert {len(k) * 8 for k in keys if k is not None} == {HASHES[name].bits}
        partners.append([None if k is None else keys.index(k) for k in keys])
    assert all(f == partners[0] for f in partners)
    url = settings.get("key") == "url"
    assert partners[0][0] is None and partners[0][5] == (None if url else 1)
    assert partners[0][3] == (2 if url else 3)


def test_keys_of_any_width_decide(bench):
    rows = [{"id": f"d{i}", "text": f"text {i % 3}"} for i in range(6)]
    source = bench.jsonl("in.jsonl", rows)
    for name in ("sha256", "sha1-64"):
        bench.run([{"dedup_exact": {"hash": name}}], source, out=name)
        assert bench.ids(name) == ["d0", "d1", "d2"]
