"""An encode that was killed goes on: the same bytes, and what was saved is not encoded again."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmcurate.base.errors import LlmcurateError
from tests.parameters import mostly_slow
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards import progress
from tokenize_kit.shards import writer as shards
from tokenize_kit.shards.texts import texts_of
from tokenize_kit.shards.writer import Layout, Sizes, encode_shards

SIZES = Sizes(save_bytes=1500)
ROWS = 300
LAYOUTS = {
    "one-side": {"shard_tokens": 900},
    "two-sides": {"shard_tokens": 900, "val_fraction": 0.2},
    "long-shards": {"val_fraction": 0.2, "append_eos": False},
    "shuffled": {"shard_tokens": 900, "val_fraction": 0.2, "shuffle": 3},
    "masked": {"shard_tokens": 900, "val_fraction": 0.3, "loss_mask": "learn"},
    "masked-shuffled": {"shard_tokens": 900, "shuffle": 1, "loss_mask": "learn"},
    "megatron": {"form": "megatron", "shard_tokens": 900, "val_fraction": 0.2},
    "nanogpt": {"form": "nanogpt", "val_fraction": 0.2},
    "sampled": {"shard_tokens": 900, "sampling": 0.3, "sampling_seed": 5},
}
# (layout, where it is killed: while a batch is read, or at the n-th call of a function)
KILLS = [
    ("two-sides", "progress.write_atomic", 3),
    ("two-sides", "writer._commit", 1),
    ("shuffled", "batch", 5),
    ("shuffled", "writer._manifests", 1),
    ("nanogpt", "shard_files.sync_open", 5),
    ("sampled", "batch", 5),
]
KILLED = """
import importlib, json, os, signal, sys
from pathlib import Path
import pyarrow.parquet as pq
from tokenize_kit.shards.writer import Layout, Sizes, encode_shards

source, tokenizer, out, layout, where, number = sys.argv[1:]
left = int(number)
os.fsync = lambda file: None  # the system lives on, and a busy disk takes seconds

def kill_at(function):
    def instead(*arguments, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return instead

def batches():
    for number, batch in enumerate(pq.ParquetFile(source).iter_batches(50)):
        if where == "batch" and number == left:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch

if where != "batch":
    module, name = where.split(".")
    module = importlib.import_module(f"tokenize_kit.shards.{module}")
    setattr(module, name, kill_at(getattr(module, name)))
layout = Layout(**json.loads(layout))
encode_shards(batches(), Path(tokenizer), Path(out), layout, sizes=Sizes(save_bytes=1500))
"""


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the cat sat on the mat " * 20], out, vocab=300)
    return out / "tokenizer.json"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """300 documents, some of them empty, in a file of parquet."""
    texts = [f"the cat {k} sat on mat {k * 7919} ไทย\n" * (k % 9) for k in range(ROWS)]
    names = [f"d{k}" for k in range(ROWS)]
    learn = [[[0, min(5, len(text))]] for text in texts]
    columns = {"id": names, "source": ["s"] * ROWS, "lang": [None] * ROWS, "text": texts}
    path = tmp_path_factory.mktemp("source") / "in.parquet"
    lang = pa.nulls(ROWS, pa.string())
    pq.write_table(pa.table(columns | {"lang": lang, "learn": learn}), path)
    return path


@pytest.fixture(scope="module")
def whole(tokenizer_json, source, tmp_path_factory):
    """Digests of an undisturbed run of each layout."""
    digests_by_layout = {}
    for name, layout in LAYOUTS.items():
        out = tmp_path_factory.mktemp(name)
        encode_shards(batches(source), tokenizer_json, out, Layout(**layout))
        digests_by_layout[name] = digests(out)
    return digests_by_layout


@pytest.fixture
def encoded(tokenizer_json, source, monkeypatch):
    """encode(out, layout): (documents that were encoded, the messages)."""

    def encode(out, layout, chunks=None, workers=2):
        counts, lines = [], []
        vocabulary = shards.open_vocabulary(tokenizer_json)

        def counted(data, offsets):
            counts.append(len(offsets) - 1)
            return vocabulary.encode(data, offsets)

        def drawn(data, offsets, keys, rate):
            counts.append(len(offsets) - 1)
            return vocabulary.sample(data, offsets, keys, rate)

        with monkeypatch.context() as patch:
            patch.setattr(
                shards,
                "open_vocabulary",
                lambda *_: replace(vocabulary, encode=counted, sample=drawn),
            )
            documents = batches(source) if chunks is None else chunks
            encode_shards(documents, tokenizer_json, out, layout, workers, lines.append, SIZES)
        return sum(counts), lines

    return encode


def batches(source, last=None, size=50):
    """The documents; Ctrl-C in place of that batch."""
    for number, batch in enumerate(pq.ParquetFile(source).iter_batches(size)):
        if number == last:
            raise KeyboardInterrupt
        yield batch


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def killed(source, tokenizer_json, out, layout, where, number):
    command = [sys.executable, "-c", KILLED, source, tokenizer_json, out, json.dumps(layout)]
    command = [*map(str, command), where, str(number)]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    ("name", "where", "number"), mostly_slow(KILLS, 3), ids=[f"{k[0]}-{k[1]}-{k[2]}" for k in KILLS]
)
def test_killed_anywhere_it_continues_to_the_same_bytes(
    encoded, whole, source, tokenizer_json, tmp_path, name, where, number
):
    layout = LAYOUTS[name]
    killed(source, tokenizer_json, tmp_path, layout, where, number)
    assert not (tmp_path / "manifest.json").exists()
    count, messages = encoded(tmp_path, Layout(**layout))
    assert digests(tmp_path) == whole[name]
    before = int(re.fullmatch(r"(\d+) documents were encoded before .*", messages[0])[1])
    assert (before + count, len(messages)) == (ROWS, 1) and before >= 40


@pytest.mark.slow  # once is the test above
def test_killed_again_and_again_it_continues_each_time(
    encoded, whole, source, tokenizer_json, tmp_path
):
    layout = LAYOUTS["two-sides"]
    for position in (3, 5):
        killed(source, tokenizer_json, tmp_path, layout, "batch", position)
    count, messages = encoded(tmp_path, Layout(**layout), workers=1)
    assert count <= 100 and messages[0].startswith(f"{ROWS - count} documents were encoded before")
    assert digests(tmp_path) == whole["two-sides"]


def stopped(encoded, source, out, layout, last=4):
    with pytest.raises(KeyboardInterrupt):
        encoded(out, layout, batches(source, last), workers=1)
    assert (out / ".shards.partial" / progress.NAME).is_file()


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_after_ctrl_c_it_continues(encoded, whole, source, tmp_path, name):
    stopped(encoded, source, tmp_path, Layout(**LAYOUTS[name]))
    count, messages = encoded(tmp_path, Layout(**LAYOUTS[name]))
    assert count < ROWS and "encoding resumes" in messages[0]
    assert digests(tmp_path) == whole[name]


def test_ctrl_c_before_anything_is_saved_leaves_nothing(encoded, source, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        encoded(tmp_path, Layout(), batches(source, 0))
    assert not list(tmp_path.iterdir())


def test_with_other_settings_it_begins_anew_and_says_so(encoded, whole, source, tmp_path):
    stopped(encoded, source, tmp_path, Layout(shard_tokens=700))
    count, messages = encoded(tmp_path, Layout(**LAYOUTS["one-side"]))
    assert (count, len(messages)) == (ROWS, 1)
    assert messages[0].startswith("starting over: the tokenizer or a setting differs")
    assert digests(tmp_path) == whole["one-side"]


CHANGES = {
    "another-text": lambda table: table.set_column(
        3, "text", pa.array([f"x{t}" for t in table["text"].to_pylist()])
    ),
    "another-id": lambda table: table.set_column(
        0, "id", pa.array(["e0", *table["id"].to_pylist()[1:]])
    ),
    "another-mask": lambda table: table.set_column(
        4, "learn", pa.array([[[0, min(k % 9, 1)]] for k in range(ROWS)])
    ),
    "fewer-documents": lambda table: table.slice(0, 60),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_other_documents_are_refused_and_the_next_run_begins_anew(
    encoded, source, tokenizer_json, tmp_path, change
):
    layout = Layout(**LAYOUTS["masked"])
    out = tmp_path / "out"
    stopped(encoded, source, out, layout)
    other = tmp_path / "other.parquet"
    pq.write_table(CHANGES[change](pq.read_table(source)), other)
    with pytest.raises(LlmcurateError, match="differ from those of the stopped run: its files"):
        encoded(out, layout, batches(other))
    assert not list(out.iterdir())
    rows = pq.read_metadata(other).num_rows
    assert encoded(out, layout, batches(other)) == (rows, [])
    encode_shards(batches(other), tokenizer_json, tmp_path / "fresh", layout)
    assert digests(out) == digests(tmp_path / "fresh")


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def flip_rows(aside):
    names = json.loads((aside / progress.NAME).read_text())["files"]
    flip(aside / next(name for name in names if name.startswith("rows/")))


def count_wrongly(path):
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "documents": saved["documents"] - 1}))


DAMAGE = {
    "shard-cut-short": (lambda aside: cut(aside / "tokens-00000.bin", 10), "has changed"),
    "shard-flipped": (lambda aside: flip(aside / "tokens-00000.bin"), "has changed"),
    "rows-flipped": (lambda aside: flip_rows(aside), "has changed"),
    "progress-changed": (lambda aside: count_wrongly(aside / progress.NAME), "cannot be read"),
    "rows-gone": (lambda aside: [p.unlink() for p in (aside / "rows").iterdir()], "is missing"),
    "progress-cut-short": (lambda aside: cut(aside / progress.NAME, 99), "cannot be read"),
    "progress-of-nothing": (lambda aside: (aside / progress.NAME).write_text("[]"), "cannot be"),
    "progress-not-utf8": (lambda aside: (aside / progress.NAME).write_bytes(b"\xff"), "cannot be"),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_partial_encode_is_not_resumed(encoded, whole, source, tmp_path, damage):
    layout = Layout(**LAYOUTS["two-sides"])
    stopped(encoded, source, tmp_path, layout)
    harm, why = DAMAGE[damage]
    harm(tmp_path / ".shards.partial")
    count, messages = encoded(tmp_path, layout)
    assert count == ROWS and messages[0].startswith("starting over: ") and why in messages[0]
    assert digests(tmp_path) == whole["two-sides"]


def test_a_long_encode_saves_a_few_hundred_times(monkeypatch, tmp_path):
    monkeypatch.setattr(progress, "write_atomic", lambda *_: None)
    run, saves = progress.Progress(tmp_path / "aside", {}, save_bytes=1), []

    def checkpoint():
        saves.append(1)
        return {}, []

    for number in range(1, 20_001):
        run.advance(progress.Position(number, ""), 1, {"side": checkpoint})
    assert 200 < len(saves) < 500


def test_a_position_is_known_by_its_documents_however_they_lie_in_memory(source):
    table = pq.read_table(source)
    moved = pa.concat_tables([table.slice(0, 7), table]).slice(7)
    plain, shifted = (
        [texts.position for texts in texts_of(rows.combine_chunks().to_batches(100), "learn")]
        for rows in (table, moved)
    )
    assert plain == shifted and plain[-1].documents == ROWS
