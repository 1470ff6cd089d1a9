"""`llmcurate check` names missing, changed and unexpected files; `--repair` makes them again."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

RECIPE = """
read: {partition_bytes: 8000, batch_rows: 20}
steps:
  - c4: {min_sentences: 2}
  - dedup_minhash: {bands: 8, rows: 4}
  - export
"""


@pytest.fixture(scope="module")
def made(shared_bench, make_pages):
    shared_bench.jsonl("in.jsonl", make_pages(60))
    shared_bench.run(RECIPE, shared_bench.folder / "in.jsonl", out="made")
    return shared_bench


@pytest.fixture
def out(made, request):
    made.out = made.folder / request.node.name
    shutil.copytree(made.folder / "made", made.out, copy_function=shutil.copy2)
    return made.out


def one(out, pattern):
    return sorted(out.glob(pattern))[-1]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.unlink()
    path.write_bytes(data)


def damage(out):
    """Five files that are not what was written; their names."""
    for pattern in ("stages/00-*/part-*.kept.parquet", "jsonl/*", "index/*/sketch-*.parquet"):
        flip(one(out, pattern))
    one(out, "rejected/*").unlink()
    shutil.copy(one(out, "corpus/*"), out / "corpus/part-00077.parquet")
    patterns = ("stages/00-*/part-*.kept.parquet", "jsonl/*", "index/*/sketch-*.parquet")
    names = [one(out, pattern).name for pattern in patterns]
    return [*names, "rejected/part-", "corpus/part-00077.parquet is not a file of this run"]


def test_a_finished_run_is_as_it_was_written(made, out):
    done = made.command("check", out, "--json", "--quiet")
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["faulty"] == 0, done.stdout
    sealed = [*out.rglob("*.parquet"), out / "run.json"]
    assert answer["files"] >= len(sealed)


def test_check_lists_each_changed_file_and_repair_remakes_them_all(made, out):
    names = damage(out)
    done = made.command("check", out)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and len(lines) == 6, done.stdout
    assert all(any(name in line for line in lines) for name in names)
    assert lines[-1].endswith("compared: 5 files missing, changed or unexpected")

    done = made.command("check", out, "--repair")
    assert done.returncode == 0, done.stderr + done.stdout
    assert made.bytes_of(out.name) == made.bytes_of("made")
    assert made.command("check", out).returncode == 0


def test_without_its_input_nothing_is_repaired_and_a_line_says_so(made, out):
    flip(one(out, "corpus/*"))
    source = made.folder / "in.jsonl"
    source.rename(made.folder / "away.jsonl")
    try:
        done = made.command("check", out, "--repair")
    finally:
        (made.folder / "away.jsonl").rename(source)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "in.jsonl was changed or removed" in done.stderr


def test_a_cache_that_was_taken_away_is_no_fault(made, out):
    shutil.rmtree(out / "stages")
    assert made.command("check", out).returncode == 0


def test_a_damaged_row_of_the_ledger_is_named(made, out):
    with sqlite3.connect(out / "ledger.db") as db:
        db.execute("UPDATE parts SET result = 'x' || result WHERE part = 1")
    db.close()
    done = made.command("check", out)
    assert done.returncode == 1 and "ledger.db has a damaged row" in done.stdout
    assert made.command("check", out, "--repair").returncode == 0


def test_an_earlier_corpus_is_compared_before_it_decides(made, out):
    flip(one(out, "index/*/sketch-*.parquet"))
    (made.folder / "again.yaml").write_text(
        f"steps:\n  - dedup_minhash: {{bands: 8, rows: 4, against: {out}}}\n"
    )
    done = made.command("run", "again.yaml", "in.jsonl", "-o", out / "../new", "--quiet")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "sketch-" in done.stderr and "check" in done.stderr and "--repair" in done.stderr


def test_a_folder_of_no_run_is_wrong_use(made, tmp_path):
    done = made.command("check", tmp_path)
    assert done.returncode == 2 and "holds no finished run" in done.stderr


def test_shards_and_a_tokenizer_are_checked_where_they_lie(made):
    tokenizer, shards = made.folder / "tokenizer", made.folder / "shards"
    source = made.folder / "in.jsonl"
    made.command("tokenizer", "train", source, "--vocab", "300", "-o", tokenizer)
    encode = ("tokenizer", "encode", source, "--tokenizer", tokenizer, "-o", shards)
    made.command(*encode)
    assert [made.command("check", folder).returncode for folder in (tokenizer, shards)] == [0, 0]

    flip(one(shards, "tokens-*.bin"))
    done = made.command("check", shards)
    assert done.returncode == 1 and "tokens-00000.bin is not what was written" in done.stdout
    done = made.command("check", shards, "--repair")
    assert done.returncode == 1 and "repeat the command of that run" in done.stderr
    made.command(*encode)
    assert made.command("check", shards).returncode == 0
