"""From band keys to decisions: as plain Python decides, however memory is cut, after any death."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_here import environment

from curate.atomic import replacing
from curate.database import database
from curate.dedup import phases
from curate.dedup.minhash import candidates as minhash_candidates
from curate.dedup.minhash import decisions as minhash_decisions
from curate.dedup.minhash import ordered as minhash_ordered
from curate.dedup.minhash import verify as minhash_verify
from curate.dedup.minhash.forest import NONE, clear_roots, flatten, follow, members_of_two
from curate.dedup.minhash.step import DedupMinhash, binary_rows
from curate.dedup.shuffle import buckets as shuffle_buckets
from curate.dedup.shuffle import candidates as shuffle_candidates
from curate.dedup.shuffle import groups as shuffle_groups
from curate.dedup.shuffle import keys as shuffle_keys
from curate.dedup.shuffle import partitions as shuffle_partitions
from curate.documents import documents
from curate.sketches import Sketches, SketchFile, view

BANDS, ROWS = 4, 3
WORDS = [f"w{i}" for i in range(300)]


def with_keys(keys: list[list[int] | None], seed: int = 0) -> pa.Table:
    """Sketches of documents with those band keys; None: a text without shingles."""
    draw = random.Random(seed)
    matrix = np.array([k or [0] * BANDS for k in keys], np.uint64).reshape(-1, BANDS)
    count = len(keys)
    return pa.table(
        {
            "bands": binary_rows(matrix, np.array([k is not None for k in keys], np.bool_)),
            "url_md5": pa.nulls(count, pa.string()),
            "size": pa.array([draw.randrange(5) for _ in keys], pa.int64()),
            "date": pa.nulls(count, pa.string()),
            "source": pa.nulls(count, pa.string()),
            "score": pa.nulls(count, pa.float64()),
            "n": np.arange(count),
            "id": [f"é{draw.randrange(10**9):09d}-{i}" for i in range(count)],
        }
    )


def texts(count: int, seed: int = 0) -> list[str]:
    """Near copies, chains of them, and texts alone; some without words."""
    draw = random.Random(seed)
    found: list[str] = []
    for i in range(count):
        words = draw.choices(WORDS, k=40)
        if i % 3 and found:
            words = draw.choice(found[-9:]).split() or words
            for _ in range(draw.randrange(4)):
                words[draw.randrange(len(words))] = draw.choice(WORDS)
        found.append("..." if i % 20 == 19 else " ".join(words))
    return found


def write(folder: Path, table: pa.Table, parts: int = 3) -> tuple[SketchFile, ...]:
    cuts = [len(table) * p // parts for p in range(parts + 1)]
    files = []
    for part in range(parts):
        path = folder / f"part-{part}.parquet"
        rows = table.slice(cuts[part], cuts[part + 1] - cuts[part])
        number = pa.array(np.full(len(rows), part), pa.int32())
        pq.write_table(rows.append_column("part", number), path, row_group_size=7)
        files.append(SketchFile(part, path, part))
    return tuple(files)


def decide(folder: Path, files: tuple[SketchFile, ...], step: DedupMinhash) -> dict[str, Any]:
    own = folder / "own"
    own.mkdir(exist_ok=True)
    with database(folder / "spill") as db, replacing(folder / "decisions.parquet") as aside:
        view(db, files)
        return step.resolve(Sketches(db, aside, own, files))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return pq.ParquetFile(folder / "decisions.parquet").read().to_pylist()


def expected(files: tuple[SketchFile, ...], first: bool) -> list[dict[str, Any]]:
    """The decisions as plain Python makes them from the band keys."""
    rows = [row for file in files for row in pq.ParquetFile(file.path).read().to_pylist()]
    buckets = defaultdict(list)
    for d, row in enumerate(rows):
        if row["bands"] is not None:
            for band in range(BANDS):
                buckets[row["bands"][8 * band : 8 * band + 8]].append(d)
    buckets = {key: members for key, members in buckets.items() if len(members) > 1}
    found = sorted({d for members in buckets.values() for d in members})
    order = found if first else sorted(found, key=lambda d: (-rows[d]["size"], rows[d]["id"]))
    place = {d: k for k, d in enumerate(order)}
    held = [{place[d] for d in members} for members in buckets.values()]
    weights: dict[int, Counter[int]] = defaultdict(Counter)
    for members in held:
        head = min(members)
        for k in members - {head}:
            weights[k][head] += 1
            if not first:
                weights[head][k] += 1
    partner = {k: min(w, key=lambda o: (-w[o], o)) for k, w in weights.items()}
    parent = list(range(len(order)))

    def root(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    for k, w in weights.items():
        for other in [partner[k]] if first else w:
            x, y = sorted((root(k), root(other)))
            parent[y] = x
    members = [k for k in range(len(order)) if k in weights or root(k) != k]
    members += [root(k) for k in members]
    name = [rows[d]["id"] for d in order]
    clusters = sorted({name[root(k)] for k in members})
    decided = []
    for d, k in sorted((order[k], k) for k in set(members)):
        alone = root(k) == k
        shared = 0 if alone else sum({k, partner[k]} <= m for m in held)
        decided.append(
            {
                "part": rows[d]["part"],
                "n": rows[d]["n"],
                "drop": not alone,
                "id": name[k],
                "cluster": clusters.index(name[root(k)]),
                "kept_id": name[root(k)],
                "partner_id": None if alone else name[partner[k]],
                "similarity": None if alone else pytest.approx((shared / BANDS) ** (1 / ROWS)),
                "method": "minhash",
                "span_start": None,
                "span_end": None,
            }
        )
    return decided


def random_keys(count: int, values: int, seed: int) -> list[list[int] | None]:
    """Keys of few values a band, spread over 64 bits, so that many documents share some."""
    draw = random.Random(seed)
    keys: list[list[int] | None] = []
    for _ in range(count):
        one = [(draw.randrange(values) * BANDS + b) * 0x9E3779B97F4A7C15 for b in range(BANDS)]
        keys.append(None if draw.random() < 0.1 else [k % 2**64 for k in one])
    return keys


@pytest.mark.parametrize("survivor", ["longest", "first"])
@pytest.mark.parametrize(("count", "values"), [(60, 200), (60, 40), (200, 3), (1, 5), (0, 5)])
def test_decisions_are_those_of_plain_python(tmp_path, survivor, count, values):
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        files = write(folder, with_keys(random_keys(count, values, seed), seed))
        step = DedupMinhash(bands=BANDS, rows=ROWS, survivor=survivor)
        counts = decide(folder, files, step)
        want = expected(files, survivor == "first")
        assert rows_of(folder) == want
        assert counts["members"] == len(want)
        assert counts["dropped"] == sum(row["drop"] for row in want)
        assert counts["clusters"] == len({row["cluster"] for row in want})
        assert list((folder / "own").iterdir()) == []


def small(monkeypatch) -> None:
    """Every buffer so small that each is filled many times."""
    monkeypatch.setattr(shuffle_partitions, "SEGMENT", 64)
    monkeypatch.setattr(shuffle_partitions, "PARTITION", 50)
    monkeypatch.setattr(shuffle_partitions, "LARGE", 40)
    monkeypatch.setattr(shuffle_keys, "READ", 60)
    monkeypatch.setattr(shuffle_buckets, "CHUNK", 30)
    monkeypatch.setattr(shuffle_buckets.chunks, "__defaults__", (30,))
    monkeypatch.setattr(shuffle_candidates.candidate_batches, "__defaults__", (9,))
    monkeypatch.setattr(shuffle_groups, "GROUP", 120)
    monkeypatch.setattr(minhash_candidates, "BATCH", 11)
    monkeypatch.setattr(minhash_candidates, "MAPPED", 0)
    monkeypatch.setattr(minhash_decisions, "BATCH", 11)
    monkeypatch.setattr(minhash_verify, "MAPPED_MEMBERS", 8)
    monkeypatch.setattr(minhash_verify, "TEXTS", 7)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"survivor": "first"},
    {"verify": 0.6},
    {"verify": 0.6, "survivor": "first"},
    {"verify": 0.6, "verify_by": "signature", "bits": 5},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_decisions_do_not_depend_on_how_memory_is_cut(tmp_path, monkeypatch, settings):
    step = DedupMinhash(bands=12, rows=3, **settings)
    table = sketched(step, texts(300))
    kept = []
    for name in ("large", "small"):
        folder = tmp_path / name
        folder.mkdir()
        files = write(folder, table)
        if name == "small":
            small(monkeypatch)
        counts = decide(folder, files, step)
        assert counts["dropped"] > 50
        kept.append((counts, rows_of(folder)))
    assert kept[0] == kept[1]


def sketched(step: DedupMinhash, found: list[str]) -> pa.Table:
    docs = documents({"id": [str(i) for i in range(len(found))], "text": found})
    names = pa.array([f"d{i * 7919 % 10**4:04d}" for i in range(len(found))])
    return (
        step.sketch(docs)
        .append_column("n", pa.array(np.arange(len(found))))
        .append_column("id", names)
    )


class Killed(BaseException):
    pass


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_resolve_that_died_in_any_phase_decides_the_same(tmp_path, monkeypatch, settings):
    """It dies with each phase's files written, before and after they are committed; what was
    committed is not made again."""
    step = DedupMinhash(bands=12, rows=3, **settings)
    table = sketched(step, texts(200))
    (tmp_path / "whole").mkdir()
    decide(tmp_path / "whole", write(tmp_path / "whole", table), step)
    want = (tmp_path / "whole/decisions.parquet").read_bytes()
    folder = tmp_path / "killed"
    folder.mkdir()
    files = write(folder, table)
    names = ["keys", "buckets", "candidates", "ordered", "compared", "edges"]
    if not step.verify:
        names.remove("compared")
    commit, committed = phases._commit, []

    def dying(done, phase):
        real = Path.rename
        committed.append(phase.name)

        def rename(path, target):
            if Path(target).name != f"phase-{phase.name}":
                return real(path, target)
            if len(committed) == 1:
                raise Killed
            real(path, target)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            commit(done, phase)

    monkeypatch.setattr(phases, "_commit", dying)
    for name in names:
        committed.clear()
        with pytest.raises(Killed):
            decide(folder, files, step)
        assert committed == [name]
        committed[:] = ["an earlier one"]
        with pytest.raises(Killed):
            decide(folder, files, step)
        assert committed == ["an earlier one", name]
    assert not (folder / "decisions.parquet").exists()
    decide(folder, files, step)
    assert (folder / "decisions.parquet").read_bytes() == want
    assert list((folder / "own").iterdir()) == []


KILLER = """
import os, signal, sys
from pathlib import Path
from curate.dedup import phases
from curate.dedup.minhash import resolve as minhash_resolve
from curate.dedup.minhash.step import DedupMinhash
from test_minhash_resolve import decide
from curate.sketches import SketchFile

folder, victim = Path(sys.argv[1]), sys.argv[2]
commit, forget = phases._commit, minhash_resolve.forget

def dying(done, phase):
    if phase.name == victim:
        make = phase.make
        def halfway(aside, done):
            make(aside, done)
            os.kill(os.getpid(), signal.SIGKILL)
        phase = phases.Phase(phase.name, halfway, phase.frees)
    commit(done, phase)

phases._commit = dying
if victim == "decisions":
    minhash_resolve.forget = lambda home: os.kill(os.getpid(), signal.SIGKILL)
files = tuple(SketchFile(p, folder / f"part-{p}.parquet", p) for p in range(3))
decide(folder, files, DedupMinhash(bands=12, rows=3, verify=0.6))
"""


@pytest.mark.parametrize(
    "victims",
    [["edges"], pytest.param(["buckets", "edges", "decisions"], marks=pytest.mark.slow)],
    ids=len,
)
def test_kill_9_in_some_phases_and_the_last_process_decides_the_same(tmp_path, victims):
    step = DedupMinhash(bands=12, rows=3, verify=0.6)
    table = sketched(step, texts(200))
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        files = write(tmp_path / name, table)
    decide(tmp_path / "whole", write(tmp_path / "whole", table), step)
    folder = tmp_path / "killed"
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([environment()["PYTHONPATH"], here, str(Path(here).parent)])
    for victim in victims:
        done = subprocess.run(
            [sys.executable, "-c", KILLER, str(folder), victim],
            env={**os.environ, "PYTHONPATH": paths},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "decisions.parquet").exists()
    decide(folder, files, step)
    both = [(tmp_path / name / "decisions.parquet").read_bytes() for name in ("whole", "killed")]
    assert both[0] == both[1]


@pytest.mark.parametrize("seed", range(5))
def test_a_forest_is_flat_with_the_least_node_as_root(seed):
    draw = np.random.default_rng(seed)
    partner = np.full(40, NONE, np.uint32)
    for x in range(1, 40):
        if draw.random() < 0.7:
            partner[x] = draw.integers(0, x)
    parent = np.arange(40, dtype=np.uint32)
    follow(parent, partner)
    flatten(parent)
    for x in range(40):
        y = x
        while partner[y] != NONE:
            y = int(partner[y])
        assert parent[x] == y
    bits = members_of_two(parent)
    several = {x for x in range(40) if (parent == parent[x]).sum() > 1}
    assert {x for x in range(40) if bits[x >> 6] >> np.uint64(x & 63) & np.uint64(1)} == several
    clear_roots(parent, partner)
    assert all(partner[x] == NONE for x in range(40) if parent[x] == x)


def test_ids_are_found_by_number(tmp_path):
    names = ["ä", "", "bc", "d" * 300]
    data = [n.encode() for n in names]
    (tmp_path / "ids.utf8").write_bytes(b"".join(data))
    np.cumsum([0, *map(len, data)]).astype(np.int64).tofile(tmp_path / "ids.i64")
    ids = minhash_candidates.Ids(tmp_path)
    which = np.array([3, 0, NONE, 1, 2, 0], np.uint32)
    assert ids.of(which).to_pylist() == [names[3], "ä", "", "", "bc", "ä"]
    assert ids.of(which[:0]).to_pylist() == []


@pytest.mark.parametrize("seed", range(3))
def test_bits_are_counted_and_listed(seed):
    draw = np.random.default_rng(seed)
    bits = draw.integers(0, 2**64, 5, np.uint64)
    bits[1], bits[2] = 0, np.uint64(2**64 - 1)
    plain = [i for i in range(320) if int(bits[i // 64]) >> (i % 64) & 1]
    before = shuffle_candidates.ones_before(bits)
    assert before.tolist() == [sum(i < 64 * w for i in plain) for w in range(6)]
    for first, stop in ((0, 320), (3, 3), (70, 200), (319, 320)):
        found = shuffle_candidates.set_bits(bits, first, stop) + first
        assert found.tolist() == [i for i in plain if first <= i < stop]


def test_buckets_are_rewritten_in_order_of_preference():
    bits = np.array([0b1101, 1 << 63], np.uint64)  # documents 0, 2, 3 and 127
    order = np.array([2, 0, 3, 1], np.uint32)
    members = np.array([0, 3, 127, 0, 2, 2, 3, 127], np.uint32)
    sizes = np.array([3, 2, 3], np.uint32)
    minhash_ordered.renumber(members, sizes, bits, shuffle_candidates.ones_before(bits), order)
    assert members.tolist() == [1, 2, 3, 0, 2, 0, 1, 3]


def test_more_documents_than_numbers_are_refused(tmp_path, monkeypatch):
    from curate.errors import RunFailed

    files = write(tmp_path, with_keys(random_keys(12, 5, 0)))
    monkeypatch.setattr(shuffle_keys, "MOST", 12)
    with pytest.raises(RunFailed, match="dedup compares up to 11 documents at once, these are 12"):
        shuffle_keys.documents_in(shuffle_groups.groups(files), "dedup")
