"""Files of an OUT that changed at rest, or while a run goes on: the right bytes are made anew, or
one line says why not."""

from __future__ import annotations

import io
import os
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from curate.corpus.sizes import Sizes
from curate.engines.base import WorkerBug
from curate.run import driver, ledger
from curate.run.driver import carry_out
from curate.run.intact import MOST_ANEW, Intact
from curate.run.records import Options
from curate.steps.recipe import parse
from llmcurate.base.disk.files import listening
from llmcurate.base.errors import Damaged, LlmcurateError, RunFailed
from tests.curate.conftest import Bench, digests
from tests.parameters import mostly_slow

RECIPE = """
read: {partition_bytes: 8000, batch_rows: 20}
steps:
  - c4: {min_sentences: 2}
  - dedup_exact: {key: url}
  - pii
  - dedup_minhash: {bands: 8, rows: 4}
  - export
"""
# Nothing but what is behind these is computed where they change.
LATER = ("dedup_exact.survivor=first", "dedup_minhash.survivor=newest", "export.compression=gz")


@pytest.fixture(scope="module")
def made(shared_bench, make_pages):
    """A finished run, and what runs with other settings give."""
    shared_bench.jsonl("in.jsonl", make_pages(80))
    (shared_bench.folder / "recipe.yaml").write_text(RECIPE)
    for name, sets in (("made", ()), *((s, (s,)) for s in LATER)):
        shared_bench.run(RECIPE, shared_bench.folder / "in.jsonl", out=name, sets=sets)
    return shared_bench


class Done(NamedTuple):
    """How a run ended; 2 stands for a traceback of a worker."""

    returncode: int
    stderr: str


class Case:
    """A copy of that OUT, to be damaged and run again."""

    def __init__(self, bench, name: str) -> None:
        self.bench, self.name = bench, name
        self.out = bench.folder / "cases" / name
        shutil.copytree(bench.folder / "made", self.out)

    def path(self, pattern: str) -> Path:
        paths = sorted(self.out.glob(pattern))
        assert paths, f"no {pattern}"
        return paths[len(paths) // 2]

    def sql(self, text: str, *values: object) -> None:
        with sqlite3.connect(self.out / "ledger.db") as db:
            db.execute(text, values)
        db.close()

    def run(self, *sets: str) -> Done:
        """As the command line, with the workers of all tests."""
        said = io.StringIO()
        with redirect_stderr(said):
            try:
                recipe = parse(RECIPE, "recipe.yaml", sets)
                carry_out(recipe, [str(self.bench.folder / "in.jsonl")], self.out, Options(1))
                code = 0
            except LlmcurateError as error:
                print(error, file=said)
                code = 2 if isinstance(error, WorkerBug) or "\n" in str(error) else error.exit_code
        return Done(code, said.getvalue())

    def is_right(self, *sets: str) -> bool:
        whole = self.bench.folder / (sets[0] if sets else "made")
        return results(self.out) == results(whole)

    def mends(self, name: str, *sets: str) -> None:
        done = self.run(*sets)
        assert done.returncode == 0, done.stderr
        assert f"{name} " in done.stderr and "computed again" in done.stderr, done.stderr
        assert self.is_right(*sets)


def results(out: Path) -> dict[str, str]:
    """What a run promises to repeat."""
    files = [p for p in out.rglob("*") if p.is_file() and p.parts[len(out.parts)] == "jsonl"]
    return digests(out) | {p.relative_to(out).as_posix(): p.read_bytes().hex() for p in files}


@pytest.fixture
def case(made, request):
    return Case(made, request.node.name)


def changed(path: Path, data: bytes, touch: bool = True) -> None:
    """Writes the file anew, so that links of it in other folders stay; touch: and shows it."""
    before = path.stat()
    path.unlink()
    path.write_bytes(data)
    if not touch:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip(path: Path, at: float = 0.4, touch: bool = False) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 4
    changed(path, bytes(data), touch)


@pytest.mark.parametrize("kind", ["kept", "keys", "rejected", "ids"])
def test_a_flipped_bit_in_a_stage_is_mended_before_other_settings_use_it(case, kind):
    path = case.path(f"stages/00-*/part-*.{kind}.parquet")
    flip(path)
    case.mends(path.name, LATER[0])


def test_a_flipped_sketch_is_mended_before_it_is_decided_again(case):
    path = case.path("stages/01-*/part-*.sketch-*.parquet")
    flip(path)
    case.mends(path.name, LATER[1])


@pytest.mark.parametrize("sets", [LATER[2:], ()])
def test_half_of_the_decisions_gone_are_decided_again(case, sets):
    path = case.path("stages/00-*/decisions-*.parquet")
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table.slice(0, table.num_rows // 2), path)
    case.sql("UPDATE runs SET done = 0")
    case.mends(path.name, *sets)


@pytest.mark.parametrize("how", ["flip", "truncate", "extra"])
def test_a_corpus_that_is_another_is_not_all_done(case, how):
    path = case.path("corpus/*.parquet")
    if how == "flip":
        flip(path, touch=True)
    elif how == "truncate":
        changed(path, path.read_bytes()[:-100], touch=False)
    else:
        path = path.with_name("part-00099.parquet")
        shutil.copy(case.path("corpus/*.parquet"), path)
    case.mends(path.name)


def test_a_corpus_whose_times_alone_changed_is_all_done_and_compared_once(case):
    path = case.path("corpus/*.parquet")
    path.touch()
    assert "nothing to do" in case.run().stderr or case.is_right()
    db = sqlite3.connect(case.out / "ledger.db")
    name = path.relative_to(case.out).as_posix()
    row = db.execute("SELECT changed FROM files WHERE path = ?", (name,)).fetchone()
    assert row == (path.stat().st_mtime_ns,)


@pytest.mark.parametrize("name", ["run.json", "corpus.json", "index/*/index.json", "jsonl/*"])
def test_cut_records_and_products_are_written_anew(case, name):
    path = case.path(name)
    changed(path, path.read_bytes()[:50])
    case.mends(path.name)


def test_a_damaged_row_of_the_ledger_is_one_partition_that_is_not_done(case):
    case.sql("UPDATE parts SET result = replace(result, '\"kept\":', '\"kept\":1') WHERE part = 1")
    case.sql("UPDATE stages SET result = substr(result, 1, 30) WHERE stage LIKE '%:ids'")
    done = case.run(LATER[2])
    assert done.returncode == 0 and "its row of partition 1 of stage" in done.stderr
    assert case.is_right(LATER[2])


def test_a_ledger_that_is_no_database_any_more_is_a_one_line_error(case):
    data = bytearray((case.out / "ledger.db").read_bytes())
    data[16384:49152] = bytes(32768)
    changed(case.out / "ledger.db", bytes(data))
    done = case.run()
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "ledger.db is damaged" in done.stderr and "move it away" in done.stderr
    (case.out / "ledger.db").unlink()
    assert case.run().returncode == 0 and case.is_right()


@pytest.mark.parametrize("seed", mostly_slow(range(20)))
def test_a_large_ledger_shows_damage_when_it_is_read(made, monkeypatch, seed):
    """Its pages are not checked when it is opened."""
    monkeypatch.setattr(ledger, "CHECKED_BYTES", 0)
    case, draw = Case(made, f"pages-{seed}"), random.Random(seed)
    path = case.out / "ledger.db"
    data = bytearray(path.read_bytes())
    begin = draw.randrange(100, len(data))
    size = draw.choice([1, 8, 4096, 16384])
    data[begin : begin + size] = draw.randbytes(len(data[begin : begin + size]))
    changed(path, bytes(data))
    sets = (LATER[0],) if seed % 2 else ()
    done = case.run(*sets)
    right = done.returncode == 0 and case.is_right(*sets)
    told = done.returncode == 1 and "ledger.db" in done.stderr.splitlines()[-1]
    assert right or told, (done.returncode, done.stderr)


def random_damage(case: Case, seed: int) -> tuple[str, str, tuple[str, ...], str]:
    """One file of an OUT changed in one way; what was done, and how the run went on."""
    draw = random.Random(seed)
    kinds = sorted({_kind(p.relative_to(case.out)) for p in case.out.rglob("*") if p.is_file()})
    kind = draw.choice(kinds)
    files = [p for p in sorted(case.out.rglob("*")) if p.is_file()]
    path = draw.choice([p for p in files if _kind(p.relative_to(case.out)) == kind])
    how = draw.choice(["flip", "truncate", "swap", "delete"])
    sets = draw.choice([(), *((s,) for s in LATER)])
    unfinished = draw.random() < 0.5
    touch = not (sets or unfinished) or draw.random() < 0.5
    if unfinished:
        case.sql("UPDATE runs SET done = 0")
    size = path.stat().st_size
    if how == "flip" and size:
        flip(path, draw.random(), touch)
    elif how == "truncate":
        changed(path, path.read_bytes()[: draw.randrange(size + 1)], touch)
    elif how == "swap":
        changed(path, draw.choice(files).read_bytes(), touch)
    else:
        path.unlink()
    try:
        done = case.run(*sets)
    except Exception as error:
        done = Done(2, repr(error))
    right = done.returncode == 0 and case.is_right(*sets)
    told = done.returncode == 1
    outcome = "right bytes" if right else "one line" if told else "WRONG"
    return f"{how} {kind}", outcome, sets, done.stderr


def _kind(path: Path) -> str:
    """The name without its numbers."""
    stage = path.parts[1][:2] if path.parts[0] == "stages" else ""
    return f"{path.parts[0]}{stage} " + ".".join(p.split("-")[0] for p in path.name.split("."))


def wrong_outcomes(bench, seeds: range) -> list[object]:
    counts: Counter[str] = Counter()
    wrong: list[object] = []
    for seed in seeds:
        case = Case(bench, f"random-{seed}")
        what, outcome, sets, stderr = random_damage(case, seed)
        counts[outcome] += 1
        if outcome == "WRONG":
            print(seed, what, sets, stderr[-500:])
            wrong.append((seed, what, sets, stderr[-2000:]))
        shutil.rmtree(case.out)
    print(dict(counts))
    return wrong


def test_random_damage_ends_in_the_right_bytes_or_one_line(made):
    assert wrong_outcomes(made, range(4)) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_random_damages_end_in_the_right_bytes_or_one_line(made):
    assert wrong_outcomes(made, range(1000, 1500)) == []


# Damage while the run goes on that wrote the file.

KEYS = """
read: {partition_bytes: 6000, batch_rows: 20}
steps:
  - dedup_passages: {unit: line, max_removal: 1}
  - dedup_minhash: {bands: 8, rows: 4, verify: 0.6}
  - dedup_exact
  - export
"""
SUBSTRINGS = """
read: {partition_bytes: 12000, batch_rows: 20}
steps:
  - dedup_suffix_array: {threshold: 40, keep_index: true, max_removal: 1}
  - dedup_semantic: {dimensions: 8, clusters: 4, max_removal: 1}
  - export
"""
RECIPES = {"filters": RECIPE, "keys": KEYS, "substrings": SUBSTRINGS}
# So small that every phase of a resolve has several tasks.
SMALL = Sizes(
    task_partitions=3,
    task_documents=30,
    partition_pairs=60,
    query_documents=0,
    part_candidates=10,
    task_passages=60,
    slice_rows=60,
    sort_bytes=40_000,
    task_sketch_bytes=10_000,
    task_windows=4000,
    task_embeddings=30,
    task_cosines=60,
    task_products=60,
)


class Watched:
    """An engine; `now` is told of every result, before the driver has it."""

    def __init__(self, inner, now) -> None:
        self._inner, self._now = inner, now

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def __enter__(self):
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def map(self, *arguments, **how):
        for pair in self._inner.map(*arguments, **how):
            self._now()
            yield pair


EVERY = 0


class Meanwhile:
    """A run, and what is done to its OUT at a moment: when a task has its result, or the driver
    has put a file in its place. act: gets OUT and the file that the driver is about to seal."""

    def __init__(self, bench, recipe: str, out: Path) -> None:
        self.bench, self.recipe, self.out = bench, recipe, out
        self.moments = 0

    def run(self, moment: int = -1, act=lambda out, new: None) -> Done:
        self.moments = 0

        def now(new: Path | None = None) -> None:
            self.moments += 1
            if moment in (self.moments, EVERY):
                act(self.out, new)

        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), listening(now):
            opened = driver.open_engine
            patch.setattr(driver, "open_engine", lambda *a, **k: Watched(opened(*a, **k), now))
            try:
                recipe = parse(RECIPES[self.recipe], "recipe.yaml")
                source = [str(self.bench.folder / "in.jsonl")]
                carry_out(recipe, source, self.out, Options(1, sizes=SMALL))
                code = 0
            except LlmcurateError as error:
                print(error, file=said)
                code = 2 if isinstance(error, WorkerBug) else error.exit_code
        return Done(code, said.getvalue())


def committed_files(out: Path, new: Path | None) -> list[Path]:
    """What may be damaged: not what is half-written, nor what its writer is about to seal; the
    ledger is open."""
    paths = (p for p in sorted(out.rglob("*")) if p.is_file() and p != new)
    hidden = (".part-", ".spill")
    return [
        p
        for p in paths
        if "ledger.db" not in p.name
        and not any(h in piece for h in hidden for piece in p.relative_to(out).parts[:-1])
        and not p.name.startswith(hidden)
    ]


def when(pattern: str):
    """An `act` for every moment: flips a bit of the middle file of a pattern, once it is there."""
    done: list[Path] = []

    def act(out: Path, new: Path | None) -> None:
        paths = [p for p in sorted(out.glob(pattern)) if p != new]
        if paths and not done:
            done.append(paths[len(paths) // 2])
            flip(done[0], touch=done[0].parent.name in ("corpus", "jsonl"))

    return act, done


def damage_one(draw: random.Random, out: Path, new: Path | None, stale: Path | None) -> str:
    """Changes one file in one way; says what. stale: an OUT of another input."""
    paths = committed_files(out, new)
    if not paths:
        return "nothing"
    kind = draw.choice(sorted({_kind(p.relative_to(out)) for p in paths}))
    path = draw.choice([p for p in paths if _kind(p.relative_to(out)) == kind])
    how = draw.choice(["flip", "truncate", "delete", "exchange", "turn", "stale"])
    data = path.read_bytes()
    # Of what a run hands over, a time that stays the same says that it is finished.
    touch = path.relative_to(out).parts[0] != "stages" or draw.random() < 0.5
    if how == "delete":
        path.unlink()
    elif how == "flip" and data:
        flip(path, draw.random(), touch)
    elif how == "truncate":
        changed(path, data[: draw.randrange(len(data) + 1)], touch)
    elif how == "exchange":  # with another whole file of the same kind
        other = draw.choice([p for p in paths if _kind(p.relative_to(out)) == kind])
        changed(path, other.read_bytes(), touch)
        changed(other, data, touch)
    elif how == "turn":  # another file of the same size
        changed(path, data[len(data) // 2 :] + data[: len(data) // 2], touch)
    elif stale:  # a valid file of another run
        others = [p for p in sorted(stale.rglob(path.name.split("-")[0] + "*")) if p.is_file()]
        others = [p for p in others if _kind(p.relative_to(stale)) == kind]
        if others:
            changed(path, draw.choice(others).read_bytes(), touch)
    return f"{how} {kind} {path.name}"


@pytest.fixture(scope="module")
def whole(made, make_pages):
    """What undisturbed runs give, their moments, and a run of another input."""
    other = made.folder / "other.jsonl"
    made.jsonl(other.name, make_pages(80, 1))
    runs = {}
    for name, recipe in RECIPES.items():
        run = Meanwhile(made, name, made.folder / "whole" / name)
        assert run.run().returncode == 0
        made.run(recipe, other, out=f"stale/{name}")
        runs[name] = run.moments, results(run.out)
    return made, runs


def wrong_meanwhile(whole, seeds: range) -> list[object]:
    bench, runs = whole
    counts: Counter[str] = Counter()
    wrong: list[object] = []
    for seed in seeds:
        draw = random.Random(seed)
        name = draw.choice(sorted(runs))
        moments, right = runs[name]
        run = Meanwhile(bench, name, bench.folder / "meanwhile" / str(seed))
        what: list[str] = []

        def act(out: Path, new: Path | None, draw=draw, name=name, what=what) -> None:
            what.append(damage_one(draw, out, new, bench.folder / "stale" / name))

        moment = draw.randrange(1, moments + 1)
        try:
            done = run.run(moment, act)
        except Exception as error:
            done = Done(2, repr(error))
        if done.returncode == 0:
            outcome = "right bytes" if results(run.out) == right else "WRONG"
        else:
            outcome = "one line" if done.returncode == 1 else "WRONG"
        counts[outcome] += 1
        counts["said"] += "computed again" in done.stderr
        if outcome != "right bytes":
            print(seed, name, moment, what, outcome, done.stderr[-1500:])
        if outcome == "WRONG":
            wrong.append((seed, name, moment, what, done.stderr[-2000:]))
        shutil.rmtree(run.out)
    print(dict(counts))
    return wrong


@pytest.fixture(scope="module")
def small(tmp_path_factory, make_pages):
    """An undisturbed run of few documents."""
    bench = Bench(tmp_path_factory.mktemp("small"))
    bench.jsonl("in.jsonl", make_pages(60))
    run = Meanwhile(bench, "filters", bench.folder / "small")
    assert run.run().returncode == 0
    return bench, results(run.out)


READ_AGAIN = {
    "by a task of the next stage": "stages/00-*/part-*.kept.parquet",
    "by tasks of a dedup, in ranges": "stages/01-*/resolve-*/phase-keys/keys-*",
    "by a product": "corpus/part-*.parquet",
    "by all tasks of the next stage": "stages/00-*/decisions-*.parquet",
    "by a settlement of ids": "stages/00-*/part-*.ids.parquet",
    "by a dedup": "stages/01-*/part-*.sketch-*.parquet",
    "by tasks of a dedup, whole": "stages/01-*/resolve-*/phase-buckets/members-*",
    "when the corpus is put together": "stages/00-*/part-*.rejected.parquet",
    "by nobody": "jsonl/*",
}


@pytest.mark.parametrize("reads", mostly_slow(READ_AGAIN, 3))
def test_a_bit_flip_before_a_file_is_read_again_is_repaired_by_the_same_run(small, reads):
    bench, right = small
    act, damaged = when(READ_AGAIN[reads])
    run = Meanwhile(bench, "filters", bench.folder / reads.replace(" ", "-"))
    done = run.run(EVERY, act)
    assert done.returncode == 0 and damaged, done.stderr
    assert f"{damaged[0]} is not what was written: it is computed again" in done.stderr
    assert results(run.out) == right


def test_a_file_that_is_damaged_again_and_again_ends_the_run_with_a_line(small):
    def act(out: Path, new: Path | None) -> None:
        if new is not None and new.match("stages/01-*/stage*.json"):
            flip(next(out.glob("stages/00-*/part-00000.kept.parquet")))

    run = Meanwhile(small[0], "filters", small[0].folder / "again")
    done = run.run(EVERY, act)
    assert (
        done.returncode == 1
        and done.stderr.splitlines()[-1].count("computed again in this run") == 1
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_damages_while_the_run_goes_on_end_in_the_right_bytes_or_one_line(whole):
    assert wrong_meanwhile(whole, range(2000, 2500)) == []


def test_a_file_that_is_missing_again_does_not_blame_the_disk():
    intact = Intact(Options(1, quiet=True))
    intact.record_damage(Damaged("out/part is missing"))
    with pytest.raises(RunFailed, match="report this fault of llmcurate") as again:
        intact.record_damage(Damaged("out/part is missing"))
    assert "disk" not in str(again.value)
    for number in range(MOST_ANEW - 1):
        intact.record_damage(Damaged(f"out/part-{number} is not what was written"))
    with pytest.raises(RunFailed, match=f"after {MOST_ANEW} files .* whether the disk is faulty"):
        intact.record_damage(Damaged("out/other is not what was written"))
