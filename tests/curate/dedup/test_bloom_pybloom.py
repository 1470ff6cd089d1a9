"""Files of pybloom-live: the package reads ours, we read its, and both say the same."""

from __future__ import annotations

import math

import pytest

from curate.dedup.bloom.pybloom import PybloomFilter, read_pybloom
from curate.errors import UsageError

pybloom_live = pytest.importorskip("pybloom_live", reason="pybloom-live is not installed")
KEYS = [f"https://host.test/{i}/ü" for i in range(300)]
PROBES = [f"absent {i}" for i in range(2000)]
# Each needs another hash, and 2 or 4 bytes a number.
CASES = [(300, 0.3), (300, 0.005), (300, 1e-3), (300, 1e-5), (300, 1e-7), (40_000, 1e-3)]
CASES += [(40_000, 0.05), (400_000, 1e-7)]


def theirs(capacity: int, rate: float) -> pybloom_live.BloomFilter:
    made = pybloom_live.BloomFilter(capacity=capacity, error_rate=rate)
    for key in KEYS:
        made.add(key)
    return made


@pytest.mark.parametrize("capacity, rate", CASES)
def test_a_file_of_pybloom_live_answers_as_there(tmp_path, capacity, rate):
    peer = theirs(capacity, rate)
    with (tmp_path / "x.bloom").open("wb") as file:
        peer.tofile(file)
    mine = read_pybloom(tmp_path / "x.bloom")
    assert (mine.count, mine.capacity, mine.slices) == (len(peer), capacity, peer.num_slices)
    assert all(key in mine for key in KEYS)
    assert [p in mine for p in PROBES] == [p in peer for p in PROBES]


@pytest.mark.parametrize("capacity, rate", CASES)
def test_a_file_of_ours_is_byte_for_byte_the_one_pybloom_live_writes(tmp_path, capacity, rate):
    peer = theirs(capacity, rate)
    with (tmp_path / "theirs.bloom").open("wb") as file:
        peer.tofile(file)
    mine = PybloomFilter.create(capacity, rate)
    said = [mine.add(key) for key in KEYS]
    assert said.count(False) == mine.count == len(peer)
    mine.write(tmp_path / "ours.bloom")
    assert (tmp_path / "ours.bloom").read_bytes() == (tmp_path / "theirs.bloom").read_bytes()
    with (tmp_path / "ours.bloom").open("rb") as file:
        again = pybloom_live.BloomFilter.fromfile(file)
    assert all(key in again for key in KEYS)


def test_what_is_no_whole_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "x.bloom"
    PybloomFilter.create(100, 0.01).write(path)
    whole = path.read_bytes()
    broken = [b"", whole[:39], whole[:-1], whole + b"xx", b"\xff" * len(whole)]
    for data in broken:
        path.write_bytes(data)
        with pytest.raises(UsageError) as error:
            read_pybloom(path)
        assert "\n" not in str(error.value) and str(path) in str(error.value)
    with pytest.raises(UsageError, match="cannot read"):
        read_pybloom(tmp_path / "absent")


def test_a_full_filter_takes_no_more_keys():
    small = PybloomFilter.create(5, 0.01)
    with pytest.raises(UsageError, match="made for 5 keys"):
        for i in range(50):
            small.add(str(i))
    assert math.isclose(small.error_rate, 0.01)
