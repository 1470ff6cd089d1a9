"""Whole runs of suffix-array dedup: workers, earlier corpora, kills, real source code."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.curate.dedup.reference_substrings import pages_of
from tests.parameters import mostly_slow

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("LLMCURATE_SHARED", ROOT.parent / "shared"))


@pytest.mark.parametrize(
    "choice",
    mostly_slow(
        [{"survivor": "longest", "boundary": "word"}, {"keep": "none", "survivor": "longest"}]
    ),
    ids=str,
)
def test_bytes_do_not_depend_on_workers_or_on_the_order_of_files(bench, choice):
    rows = pages_of(random.Random(3), 150)
    names = [bench.jsonl(f"in-{k}.jsonl", rows[k::4]) for k in range(4)]
    steps = [{"dedup_suffix_array": {"threshold": 60, "keep_index": False, **choice}}]
    for out, order, workers in (("one", 1, 1), ("two", 1, 2), ("turned", -1, 2)):
        bench.run(steps, *names[::order], out=out, workers=workers)
    assert bench.bytes_of("one") == bench.bytes_of("two")
    assert any(d["partner_id"] for d in bench.decisions("one"))
    for read in (bench.rows, bench.decisions):
        assert sorted(map(str, read("one"))) == sorted(map(str, read("turned")))


@pytest.mark.parametrize(
    "choice",
    mostly_slow([{"keep": "none"}, {}, {"boundary": "word"}, {"unit": "bytes"}]),
    ids=str,
)
def test_earlier_corpora_count_as_seen_and_are_named(bench, choice):
    draw = random.Random(11)
    both = pages_of(draw, 120)
    a, b = bench.jsonl("a.jsonl", both[:60]), bench.jsonl("b.jsonl", both[60:])
    step = {"threshold": 60, "keep_index": False, **choice}
    bench.run([{"dedup_suffix_array": step}], a, out="a")
    against = {**step, "against": [f"old={bench.folder / 'a'}"]}
    bench.run([{"dedup_suffix_array": against}], b, out="b", workers=2)
    bench.run([{"dedup_suffix_array": step}], a, b, out="both")
    alone = {r["id"]: r["text"] for r in bench.rows("b")}
    together = {r["id"]: r["text"] for r in bench.rows("both") if r["id"] in alone}
    assert alone == together
    named = {d["partner_corpus"] for d in bench.decisions("b")}
    assert "old" in named and {d["id"] for d in bench.decisions("b")} <= {
        r["id"] for r in both[60:]
    }


KILLER = """
import functools, json, os, signal, sys
from pathlib import Path
import importlib
module, name, call = sys.argv[1], sys.argv[2], int(sys.argv[3])
owner = importlib.import_module(module)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
original, seen = getattr(owner, last), 0
@functools.wraps(original)  # a task's kind is read from its annotations
def dying(*args, **kwargs):
    global seen
    seen += 1
    if seen == call:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)
setattr(owner, last, dying)
from curate.run.records import Options
from curate.run.stages import Stages
from curate.steps.recipe import parse
Stages.decides_in_worker = lambda *_: False  # this process is to die
from curate.run.driver import carry_out
carry_out(parse(Path("recipe.json").read_text(), "r", ()), sys.argv[4:5], Path(sys.argv[5]),
           Options(workers=1, quiet=True))
"""
# In each phase: before the first chunk of the index, behind it; while regions are found, behind
# them; behind a sorted chunk; while the decisions are made.
PHASES = [
    ("curate.dedup.suffix_array.search_index", "IndexWriter._close_chunk", 1),
    ("curate.dedup.suffix_array.search_index", "write_text", 1),
    ("curate.dedup.suffix_array.windows", "RegionsWriter.close", 1),
    ("curate.dedup.suffix_array.merge", "sort_chunk", 1),
    ("curate.dedup.suffix_array.merge", "find_cuts", 1),
    ("curate.dedup.suffix_array.repeats", "write_decisions", 1),
]


@pytest.mark.parametrize(("module", "name", "call"), mostly_slow(PHASES))
def test_killed_in_any_phase_the_run_ends_with_the_same_bytes(shared_bench, module, name, call):
    bench, out = shared_bench, f"{module}-{name}"
    source = bench.folder / "in.jsonl"
    recipe = {"steps": [{"dedup_suffix_array": {"threshold": 60}}]}
    if not source.exists():
        bench.jsonl("in.jsonl", pages_of(random.Random(9), 80))
        (bench.folder / "recipe.json").write_text(json.dumps(recipe))
        bench.run(recipe["steps"], source, out="whole")
    command = [sys.executable, "-c", KILLER, module, name, str(call), str(source), out]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, cwd=bench.folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True
    )
    assert done.returncode == -9, done.stderr.decode()
    bench.run(recipe["steps"], source, out=out)
    assert bench.bytes_of(out) == bench.bytes_of("whole")
    own, whole = (sorted((bench.folder / o).glob("index/*/own/*")) for o in (out, "whole"))
    assert [p.name for p in own] == [p.name for p in whole] and len(own) == 5
    assert [p.read_bytes() for p in own] == [p.read_bytes() for p in whole]


def test_licence_headers_of_real_source_code_are_found(bench):
    path = SHARED / "corpora/code/code.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path}: set LLMCURATE_SHARED to the folder of real texts")
    header = "Licensed to the Apache Software Foundation (ASF) under one"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    holders = [t for t in texts if header in t]
    assert len(holders) > 100
    bench.run([{"dedup_suffix_array": {}}], path)
    remaining = sum(header in r["text"] for r in bench.rows())
    # What stays differs in the marks of comments and in line ends.
    assert 0 < remaining < len(holders) / 20
    read = {f"code.jsonl.gz#{i}": t.encode() for i, t in enumerate(texts)}
    for d in bench.decisions()[::50]:
        if d["partner_id"]:
            passage = read[d["id"]][d["span_start"] : d["span_end"]]
            assert passage in read[d["partner_id"]]
