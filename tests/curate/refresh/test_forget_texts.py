"""After `forget` no file under HOME holds what a forgotten document said, but for hashes of it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from curate.refresh import forgetting
from tests.curate.refresh.growing import Home, Row

LINES = "River mill house stone water {0}. Light field horse wagon {0}. Road bridge winter {0}."
STEPS = [
    {"c4": {"min_sentences": 2}},
    {"dedup_exact": {}},
    {"dedup_minhash": {}},
    {"pii": {"emails": True}},
]
# Words that occur nowhere else; each document is decided by another step.
SECRETS = ("xylokept", "xyloshort", "xylocopy", "xylocut", "xylotitle")


def said(n: int, words: str) -> str:
    return "\n".join(LINES.format(f"{words} number{n} line{k}") for k in range(4))


def row(id_: str, url: str, text: str, title: str = "a title") -> Row:
    return {"id": id_, "url": url, "text": text, "title": title}


def rows() -> list[Row]:
    secret = "xylokept xylocut"
    kept = said(0, secret) + f"\nWrite to {secret.replace(' ', '.')}@mail.test for more of it now."
    return [
        *(
            {"id": f"o{n}", "url": f"https://other.test/{n}", "text": said(n, "plain")}
            for n in (1, 2)
        ),
        {"id": "kept", "url": "https://gone.test/1", "text": kept, "title": "xylotitle"},
        {
            "id": "short",
            "url": "https://gone.test/2",
            "text": "xyloshort only",
            "title": "xylotitle",
        },
        # A copy under another name of a document that goes, rejected as such.
        {"id": "copy", "url": "https://copies.test/", "text": kept, "title": "a copy"},
    ]


def contents(path: Path) -> bytes:
    """All that a file says, unpacked."""
    if path.suffix == ".parquet":
        table = pq.ParquetFile(path).read()
        return (repr(table.to_pydict()) + repr(table.schema.metadata)).encode()
    data = path.read_bytes()
    if path.suffix == ".db":
        with sqlite3.connect(path) as db:
            names = [
                n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            tables = [db.execute(f"SELECT * FROM {name}").fetchall() for name in names]
            data += repr(tables).encode()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def holding(home: Path) -> dict[str, list[str]]:
    """Files below HOME that hold a secret."""
    matches = {}
    for path in sorted(p for p in home.rglob("*") if p.is_file()):
        text = contents(path)
        if words := [s for s in SECRETS if s.encode() in text]:
            matches[str(path.relative_to(home))] = words
    return matches


@pytest.fixture(scope="module")
def before(shared_bench):
    home = Home(shared_bench, STEPS, "texts")
    home.refresh(shared_bench.jsonl("texts.jsonl", rows()))
    return home


def test_a_dry_run_says_what_would_go_and_leaves_all_as_it_is(before):
    home, held = before, holding(before.path)
    done = home.bench.command("forget", home.path, "--domain", "gone.test", "--purge", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "would remove 1 document, 0 older snapshots\n"
    assert holding(home.path) == held and "kept" in home.ids()


def test_no_file_holds_what_a_forgotten_document_said(before):
    home = before
    (run,) = (home.path / "runs").iterdir()
    kinds = {Path(name).name for name in holding(home.path)}
    assert kinds >= {"run.json", "report.html", "ledger.db", "part-00000.parquet"}
    done = home.bench.command("forget", home.path, "--domain", "gone.test", "--purge", "--json")
    assert done.returncode == 0, done.stderr
    assert holding(home.path) == {}
    assert "erased: text of 2 rejected documents" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["emptied"] == 2
    gone = {r["id"]: r for r in home.bench.rows(f"texts/runs/{run.name}", "rejected")}
    assert {i: (r["step"], r["rule"], r["text"]) for i, r in gone.items()} == {
        "short": ("c4", gone["short"]["rule"], ""),
        "copy": ("dedup_exact", gone["copy"]["rule"], ""),
    }
    manifest = json.loads((run / "rejected.json").read_text())
    assert (manifest["documents"], manifest["text_bytes"]) == (2, 0)
    assert home.ids() == ["o1", "o2"]
    assert home.bench.command("explain", "short", "--in", home.path).returncode == 0


def test_a_copy_that_comes_later_is_still_found_and_says_nothing_afterwards(before):
    home = before
    later = [
        row("later", "https://copies.test/2", rows()[2]["text"]),
        row("again", "https://gone.test/9", said(7, "xylokept")),
        row("o3", "https://other.test/3", said(3, "plain")),
    ]
    done = home.refresh(home.bench.jsonl("later.jsonl", later))
    assert home.ids() == ["o1", "o2", "o3"]
    assert (done.forgotten, done.scrubbed.documents) == (1, 1)
    assert holding(home.path) == {}


def test_a_forget_killed_while_emptying_texts_is_finished_by_the_next(bench, monkeypatch):
    home = Home(bench, [{"c4": {"min_sentences": 2}}])
    home.refresh(bench.jsonl("in.jsonl", rows()[:4]))

    def stop(path):  # the texts of the file are emptied by then
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "file_record", stop)
        assert bench.command("forget", home.path, "--domain", "gone.test").returncode == 1
    assert bench.command("forget", home.path, "--domain", "gone.test", "--purge").returncode == 0
    again = bench.command("refresh", json_recipe(bench), bench.folder / "in.jsonl", "-o", home.path)
    assert again.returncode in (0, 3), again.stderr
    assert bench.command("forget", home.path, "--id", "nobody", "--purge").returncode == 0
    (run,) = (home.path / "runs").iterdir()
    manifest = json.loads((run / "rejected.json").read_text())
    assert manifest["text_bytes"] == 0 and "stale" not in manifest
    assert holding(home.path) == {}


def json_recipe(bench) -> Path:
    path = bench.folder / "r.json.yaml"
    path.write_text(json.dumps({"steps": [{"c4": {"min_sentences": 2}}]}))
    return path


def test_texts_in_sketches_are_emptied_and_search_indexes_removed(bench):
    home = Home(bench, [{"dedup_suffix_array": {}}])
    home.refresh(bench.jsonl("in.jsonl", rows()))
    done = home.bench.command("forget", home.path, "--domain", "gone.test", "--purge")
    assert done.returncode == 0, done.stderr
    assert holding(home.path) == {}
    assert "dedup_suffix_array: index deleted" in done.stderr
    later = [row("o3", "https://other.test/3", said(3, "plain") + "\n" + said(1, "plain"))]
    assert home.refresh(bench.jsonl("later.jsonl", later)).totals.kept == 1
    kept = next(r for r in home.rows() if r["id"] == "o3")
    assert "number3" in kept["text"] and "number1" not in kept["text"], "earlier ones still count"
