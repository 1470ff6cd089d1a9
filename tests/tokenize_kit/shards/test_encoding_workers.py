"""Threads that encode: the same bytes whatever their number, and after a death."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
import time

import pyarrow.parquet as pq
import pytest

from llmcurate.base.disk.process import in_order
from llmcurate.base.errors import LlmcurateError, RunFailed
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.writer import Layout, Sizes, encode_shards


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the cat sat on the mat " * 20], out, vocab=300)
    return out / "tokenizer.json"


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def rows(count):
    return [(f"d{k}", f"the cat {k} sat on mat {k * 7919}\n" * (k % 9), "s") for k in range(count)]


@pytest.mark.parametrize("shuffle", [None, 3], ids=["in-order", "shuffled"])
def test_bytes_do_not_depend_on_the_number_of_workers_or_the_encoder(
    batch_of, tokenizer_json, tmp_path, shuffle
):
    documents = rows(300)
    batches = [batch_of(*documents[k : k + 40]) for k in range(0, 300, 40)]
    layout = Layout(shard_tokens=900, val_fraction=0.2, shuffle=shuffle)
    results = []
    for workers, sample, encoder in (
        (1, 1 << 20, "ours, not gigatoken: the corpus is small"),
        (2, 1 << 20, "ours, not gigatoken: the corpus is small"),
        (1, 1, "gigatoken 0.10.0"),
        (3, 900, "gigatoken 0.10.0"),
    ):
        out = tmp_path / f"{workers}-{sample}"
        sizes = Sizes(piece_bytes=700, sample_bytes=sample)
        names: list[str] = []
        encode_shards(
            iter(batches), tokenizer_json, out, layout, workers, sizes=sizes, record=names.append
        )
        assert names == [encoder]
        results.append(digests(out))
    assert results == results[:1] * 4
    assert "tokens-00001.bin" in results[0] and "val/manifest.json" in results[0]


def test_ids_that_are_drawn_are_ours(batch_of, tokenizer_json, tmp_path):
    names: list[str] = []
    layout, sizes = Layout(sampling=0.1), Sizes(sample_bytes=1)
    encode_shards(
        [batch_of(*rows(9))], tokenizer_json, tmp_path, layout, 1, None, sizes, record=names.append
    )
    assert names == ["ours, not gigatoken: it does not draw ids"]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_bad_document_is_named_whatever_the_workers(
    batch_of, tokenizer_json, tmp_path, workers
):
    batches = [batch_of(("a", "cat")), batch_of(("b", None)), batch_of(("c", None))]
    with pytest.raises(LlmcurateError, match="document b: its text is null"):
        encode_shards(iter(batches), tokenizer_json, tmp_path, workers=workers)


KILLED = """
import os, signal, sys
from pathlib import Path
import pyarrow.parquet as pq
from tokenize_kit.shards.writer import Layout, Sizes, encode_shards

def batches():
    for number, batch in enumerate(pq.ParquetFile(sys.argv[1]).iter_batches(50)):
        if number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch

sizes = Sizes(piece_bytes=500, save_bytes=900, sample_bytes=int(sys.argv[4]))
layout = Layout(shard_tokens=900)
encode_shards(batches(), Path(sys.argv[2]), Path(sys.argv[3]), layout, 2, sizes=sizes)
"""


@pytest.mark.parametrize(("killed_by", "resumed_by"), [(1 << 20, 500), (500, 1 << 20)])
def test_after_a_kill_the_next_run_writes_the_bytes_of_an_undisturbed_one(
    batch_of, tokenizer_json, tmp_path, killed_by, resumed_by
):  # the size of the sample: texts below it are encoded by our kernels
    import pyarrow as pa

    source = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_batches([batch_of(*rows(300))]), source)
    layout = Layout(shard_tokens=900)
    encode_shards(pq.ParquetFile(source).iter_batches(7), tokenizer_json, tmp_path / "a", layout)
    out = tmp_path / "b"
    out.mkdir()
    command = [sys.executable, "-c", KILLED, source, tokenizer_json, out, killed_by]
    assert subprocess.run(map(str, command), check=False).returncode == -signal.SIGKILL
    assert not (out / "manifest.json").exists()
    again, sizes, said = pq.ParquetFile(source).iter_batches(50), Sizes(sample_bytes=resumed_by), []
    encode_shards(again, tokenizer_json, out, layout, 2, said.append, sizes)
    assert "encoding resumes after them" in said[0]
    assert digests(out) == digests(tmp_path / "a")


def test_results_come_in_order_and_few_items_wait():
    under_way, most, lock = 0, 0, threading.Lock()

    def slow(item):
        time.sleep(0.02 if item == 0 else 0.001)
        return item

    def items():
        nonlocal under_way, most
        for number in range(40):
            with lock:
                under_way += 10
                most = max(most, under_way)
            yield number

    results = []
    for item in in_order(slow, items(), 3, lambda item: 10, 60):
        with lock:
            under_way -= 10
        results.append(item)
    assert results == list(range(40))
    assert 30 <= most <= 60 + 2 * 10  # one more is read, one is in the hands of the caller


def test_an_item_over_the_limit_goes_alone():
    alone = in_order(str, iter([1, 99, 2]), 2, int, 10)
    assert list(alone) == ["1", "99", "2"]


def test_an_error_is_raised_after_the_results_before_it():
    def items():
        yield from range(5)
        raise RunFailed("the sixth")

    results = []
    with pytest.raises(LlmcurateError, match="the sixth"):
        for item in in_order(lambda item: item, items(), 2, most=100):
            results.append(item)
    assert results == [0, 1, 2, 3, 4]
