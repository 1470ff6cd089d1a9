"""Slices of rows and file-backed arrays read back as they were written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.shuffle.byte_rows import (
    SliceFiles,
    SliceWriter,
    count_up,
    load_array,
    map_array,
    new_array,
    read_slice,
    unmap,
)

ROWS = st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=6)), max_size=20)


@given(st.lists(ROWS, min_size=1, max_size=3), st.sampled_from([1, 5]), st.integers(0, 600))
@settings(max_examples=100, deadline=None)
def test_a_slice_is_its_rows_in_order_of_writers_and_arrival(writers, count, segment):
    with tempfile.TemporaryDirectory() as name:
        folder, number, want = Path(name), 0, [([], b"") for _ in range(count)]
        files = [SliceFiles.within(folder, "some", n) for n in range(len(writers))]
        for each, rows in zip(files, writers, strict=True):
            writer = SliceWriter(each, count, segment)
            for at in range(0, len(rows), 3):
                partitions = np.array([part % count for part, _ in rows[at : at + 3]])
                texts = [text for _, text in rows[at : at + 3]]
                offsets = np.cumsum([2, *map(len, texts)])
                numbers = np.arange(number, number + len(partitions), dtype=np.uint32)
                data = np.frombuffer(b"ab" + b"".join(texts), np.uint8)
                writer.add(partitions, np.stack([numbers, numbers + 1], axis=1), offsets, data)
                for part, k, text in zip(partitions.tolist(), numbers.tolist(), texts, strict=True):
                    want[part] = ([*want[part][0], [k, k + 1]], want[part][1] + text)
                number += len(partitions)
            writer.close()
        for part in range(count):
            rows, data = read_slice(files, part, 2, folder, 40)
            assert (rows.tolist(), data.tobytes()) == want[part]


def test_a_large_array_is_backed_by_an_unlinked_file(tmp_path):
    small = new_array(24, np.uint32, tmp_path, 100)
    large = new_array((5, 6), np.uint32, tmp_path, 100)
    assert small.base is None and large.base is not None
    assert type(large) is np.ndarray and list(tmp_path.iterdir()) == []
    count_up(large.reshape(-1), batch=7)
    unmap(large)
    assert large.ravel().tolist() == list(range(30))
    large.tofile(tmp_path / "kept")
    for array in (
        load_array(tmp_path / "kept", np.uint32, 100),
        load_array(tmp_path / "kept", np.uint32, 1000),
        map_array(tmp_path / "kept", np.uint32),
    ):
        assert array.tolist() == list(range(30))
    load_array(tmp_path / "kept", np.uint32, 100)[0] = 7
    assert np.fromfile(tmp_path / "kept", np.uint32)[0] == 0
    (tmp_path / "none").touch()
    assert len(load_array(tmp_path / "none", np.uint32, 0)) == 0
    assert len(map_array(tmp_path / "none", np.uint8)) == 0
