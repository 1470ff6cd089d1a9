"""Compressed files as chains of members: damage costs only what it touches, and cuts are
verified."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import resource
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from curate.formats import compression
from curate.formats.compression import (
    CorruptData,
    decompressed_chunks,
    members,
    sniff,
    verified_boundaries,
)
from tests.parameters import mostly_slow

RANDOM = random.Random(7)


def gz(data: bytes, level: int = 6) -> bytes:
    return gzip.compress(data, level, mtime=0)


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def lz4f(data: bytes) -> bytes:
    import lz4.frame

    return lz4.frame.compress(data, content_checksum=True)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gz, "zstd": zst, "lz4": lz4f}


def read(data: bytes) -> tuple[bytes, list[tuple[int, str]]]:
    problems: list[tuple[int, str]] = []
    chunks = decompressed_chunks(
        io.BytesIO(data), on_corrupt=lambda offset, what: problems.append((offset, what))
    )
    return b"".join(chunks), problems


@pytest.mark.parametrize("codec", COMPRESS)
def test_every_codec_is_recognised_by_its_bytes_and_read_member_by_member(codec: str) -> None:
    parts = [os.urandom(3000) + b"a" * 100_000, b"", b"second", b"third" * 1000]
    stored = [COMPRESS[codec](part) for part in parts]
    data = b"".join(stored)
    assert sniff(io.BytesIO(data)) == codec
    assert read(data) == (b"".join(parts), [])
    starts = [p.offset for p in members(io.BytesIO(data)) if p.kind == "start"]
    assert starts == [sum(map(len, stored[:i])) for i in range(len(stored))]


def test_plain_bytes_pass_as_they_are() -> None:
    data = os.urandom(16).replace(b"\x1f", b"x") + b"text" * 1_000_000
    assert read(data) == (data, [])
    assert read(b"") == (b"", [])


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_damaged_member_costs_only_itself_and_is_reported_with_its_offset(codec: str) -> None:
    parts = [RANDOM.randbytes(5000) for _ in range(3)]
    stored = [COMPRESS[codec](part) for part in parts]
    middle = bytearray(stored[1])
    middle[-3] ^= 0xFF  # the checksum, or gzip's length
    content, problems = read(stored[0] + bytes(middle) + stored[2])
    assert content.startswith(parts[0]) and content.endswith(parts[2])
    assert [offset for offset, _ in problems] == [len(stored[0])]


def test_data_before_a_bad_checksum_is_still_delivered() -> None:
    stored = bytearray(gz(b"all of it" * 5000))
    stored[-6] ^= 1
    content, problems = read(bytes(stored))
    assert content == b"all of it" * 5000
    assert problems == [(0, "gzip: incorrect data check")]


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_file_that_ends_inside_a_member_gives_its_beginning(codec: str) -> None:
    text = RANDOM.randbytes(400_000)
    stored = COMPRESS[codec](text)
    content, problems = read(stored[: len(stored) * 2 // 3])
    assert text.startswith(content)
    assert len(content) > 100_000
    assert len(problems) == 1 and "ends inside" in problems[0][1]


@pytest.mark.parametrize("codec", COMPRESS)
def test_garbage_between_members_is_reported_and_passed_over(codec: str) -> None:
    first, second = COMPRESS[codec](b"first"), COMPRESS[codec](b"second")
    content, problems = read(first + b"no member at all" + second)
    assert content == b"firstsecond"
    assert [offset for offset, _ in problems] == [len(first)]


@pytest.mark.parametrize("codec", COMPRESS)
def test_nuls_around_members_are_counted_and_harmless(codec: str) -> None:
    first, second = COMPRESS[codec](b"first"), COMPRESS[codec](b"second")
    data = bytes(5000) + first + bytes(7) + second + bytes(512)
    assert sniff(io.BytesIO(data)) == codec
    places = [0, 5000 + len(first), 5007 + len(first + second)]
    found = [(at, f"{n} NUL bytes") for at, n in zip(places, (5000, 7, 512), strict=True)]
    assert read(data) == (b"firstsecond", found)


def test_padding_of_xz_streams_in_fours_is_no_damage() -> None:
    first, second = lzma.compress(b"first"), lzma.compress(b"second")
    assert read(first + bytes(8) + second + bytes(4)) == (b"firstsecond", [])
    assert read(first + bytes(3) + second)[1] == [(len(first), "3 NUL bytes")]


def long_window(data: bytes) -> bytes:
    """Compress as `zstd --long=31` does with piped input."""
    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    writer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    return writer.compress(data) + writer.flush()


def test_the_largest_zstd_window_is_read_and_takes_memory_only_as_it_is_filled() -> None:
    data = long_window(b"a line\n" * 1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read(data) == (b"a line\n" * 1000, [])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_a_lack_of_memory_is_no_damage_of_the_file() -> None:
    data = long_window(b"text")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), limits[1]))
    try:
        with pytest.raises(MemoryError, match="zstd: not enough memory"):
            read(data)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_an_archive_stored_inside_a_damaged_member_is_not_mistaken_for_the_next_one() -> None:
    inner = gz(b"inner one" * 20) + gz(b"inner two" * 20)
    outer = bytearray(gz(b"WARC/1.0 outer " + inner + b" tail", level=0))
    outer[-5] ^= 1
    content, problems = read(bytes(outer) + gz(b"after"))
    assert content == b"WARC/1.0 outer " + inner + b" tail" + b"after"
    assert len(problems) == 1


def test_damage_raises_without_a_damage_callback() -> None:
    with pytest.raises(CorruptData, match="byte 0"):
        list(decompressed_chunks(io.BytesIO(gz(b"text" * 100)[:-9])))


def test_the_dictionary_of_a_warc_zst_is_read_from_its_leading_frame() -> None:
    samples = [f"WARC/1.1\r\nWARC-Type: response {i}\r\n".encode() * 3 for i in range(2000)]
    dictionary = zstandard.train_dictionary(4096, list(samples))
    compressor = zstandard.ZstdCompressor(dict_data=dictionary, write_checksum=True)
    frames = [compressor.compress(sample) for sample in samples[:50]]
    for stored in (dictionary.as_bytes(), zst(dictionary.as_bytes())):
        head = b"\x5d\x2a\x4d\x18" + struct.pack("<I", len(stored)) + stored
        data = head + b"".join(frames)
        assert sniff(io.BytesIO(data)) == "zstd"
        assert read(data) == (b"".join(samples[:50]), [])
        start = len(head) + len(frames[0])
        sliced = [p.data for p in members(io.BytesIO(data), start, start + 1) if p.data]
        assert b"".join(sliced) == samples[1]


def test_no_piece_is_large_whatever_a_member_inflates_to() -> None:
    bomb = zlib.compressobj(9, wbits=31)
    data = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(256)) + bomb.flush()
    for stored in (data, zst(bytes(256 << 20)), lz4f(bytes(64 << 20))):
        assert max(len(p.data) for p in members(io.BytesIO(stored))) <= 2 << 20


def raw_zst(data: bytes) -> bytes:
    """Write a zstd frame of raw blocks, as the compressor does for incompressible data."""
    blocks = [data[i : i + (128 << 10)] for i in range(0, len(data), 128 << 10)]
    frame = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data))
    for i, block in enumerate(blocks):
        frame += ((len(block) << 3) | (i == len(blocks) - 1)).to_bytes(3, "little") + block
    return frame


def record(content: bytes) -> bytes:
    head = b"WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: %d\r\n\r\n" % len(content)
    return head + content + b"\r\n\r\n"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_boundaries_are_member_starts_near_the_targets(codec: str) -> None:
    stored = [COMPRESS[codec](record(RANDOM.randbytes(9000))) for _ in range(200)]
    data = b"".join(stored)
    starts = {sum(map(len, stored[:i])) for i in range(len(stored))}
    cuts = verified_boundaries(io.BytesIO(data), len(data), 300_000)
    assert cuts[0] == 0 and len(cuts) == 6 and set(cuts) <= starts
    assert all(abs(cut - i * 300_000) < 60_000 for i, cut in enumerate(cuts))


@pytest.mark.parametrize("codec", mostly_slow(["zstd", "gzip"]))
def test_a_nested_archive_stored_uncompressed_never_gives_a_boundary(codec: str) -> None:
    """The nested archive is incompressible, so its members occur unchanged in the outer file."""
    inner = b"".join(COMPRESS[codec](record(RANDOM.randbytes(700))) for _ in range(1000))
    pack = (lambda data: gz(data, 0)) if codec == "gzip" else raw_zst
    outer = [pack(record(b"small"))] + [pack(record(inner)) for _ in range(3)]
    data = b"".join(outer)
    assert data.count(compression.MAGIC[codec]) > 2500
    starts = {sum(map(len, outer[:i])) for i in range(len(outer))}
    for target in (130_000, len(outer[1])):
        assert set(verified_boundaries(io.BytesIO(data), len(data), target)) <= starts


def test_one_member_or_no_compression_gives_one_slice() -> None:
    text = b"".join(record(RANDOM.randbytes(900)) for _ in range(1000))
    for data in (gz(text), zst(text), text, b""):
        assert verified_boundaries(io.BytesIO(data), len(data), 100_000) == [0]


def test_a_member_that_begins_with_no_record_is_no_boundary() -> None:
    data = b"".join(gz(RANDOM.randbytes(9000)) for _ in range(100))
    assert verified_boundaries(io.BytesIO(data), len(data), 100_000) == [0]
    lines = verified_boundaries(io.BytesIO(data), len(data), 100_000, is_record=lambda _: True)
    assert len(lines) > 5


def test_a_chain_of_false_members_costs_linear_time() -> None:
    """Each header of a gzip member seems to begin a member up to the end of the file."""
    fake = gz(b"x", 0)[:10] + b"\x00" + struct.pack("<HH", 65535, 0)
    data = bytearray(fake * 40_000)
    begin = time.process_time()
    assert read(bytes(data))[1]
    assert time.process_time() - begin < 20


@pytest.mark.parametrize(("codec", "pack"), [("bzip2", bz2.compress), ("xz", lzma.compress)])
def test_bzip2_and_xz_files_are_chains_of_members_too(codec: str, pack) -> None:
    """Damage costs one member; the data before it in that member is kept."""
    texts = [bytes(random.Random(n).choices(b"abcdefghij\n", k=300_000)) for n in range(3)]
    whole = b"".join(map(pack, texts))
    assert sniff(io.BytesIO(whole)) == codec
    assert b"".join(decompressed_chunks(io.BytesIO(whole))) == b"".join(texts)
    data, at = bytearray(whole), len(pack(texts[0])) + len(pack(texts[1])) // 2
    data[at : at + 40] = bytes(40)
    damage: list[str] = []
    rest = b"".join(
        decompressed_chunks(io.BytesIO(data), None, lambda offset, what: damage.append(what))
    )
    assert rest.startswith(texts[0]) and rest.endswith(texts[2]) and damage
    assert all(what.startswith(codec) for what in damage)


def test_text_that_begins_like_bzip2_is_plain() -> None:
    assert sniff(io.BytesIO(b"BZhao is a name, and this is text.")) == "plain"


def test_an_xz_stream_with_a_large_dictionary_is_read() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 512 << 20}]
    assert read(lzma.compress(b"text" * 100, filters=filters)) == (b"text" * 100, [])
