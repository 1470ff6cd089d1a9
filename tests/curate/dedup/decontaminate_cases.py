"""Cases of decontamination: items, a corpus with parts of them, the step alone."""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from curate.corpus.sketches import Sketches
from curate.dedup.decontaminate.decontamination import Decontaminate
from curate.documents.documents import documents
from curate.run.worker.stage import sketch_rows
from llmcurate.base.disk.database import scratch_database
from tests.curate.dedup import reference_decontaminate as reference

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
LONG = SHARED / "corpora/longtext"
COMMON = "the of and to in is it on that was for as with his they at be this have from".split()
ITEMS = {
    "math": [
        "Janet's ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes"
        " muffins for her friends every day with four. How much does she make at the market?",
        "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in"
        " total does it take?",
        "Too short to look for.",
    ],
    "other": [
        "Η γρήγορη καφετιά αλεπού πηδά πάνω από το τεμπέλικο σκυλί ενώ ΤΟ ΦΕΓΓΆΡΙ ανατέλλει αργά",
        "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย",
        "小明有十二个苹果,他给了小红三个,又从小刚那里得到了五个。请问小明现在一共有多少个苹果?",
    ],
}
MODES: list[dict[str, Any]] = [
    {"mode": "13-gram"},
    {"mode": "50-char"},
    {"mode": "overlap"},
    {"mode": "overlap", "ngram": 5, "threshold": 0.3},
]


def pieces(text: str, share: float) -> str:
    """The first part of a text, with other punctuation, spaces and case."""
    part = text[: int(len(text) * share)]
    return part.upper().replace(" ", " \n").replace(",", ";").replace("。", "!")


def corpus(items: dict[str, list[str]], fill: list[str], seed: int = 1) -> list[dict[str, Any]]:
    """Documents of filling; two of three hold more or less of an item."""
    draw = random.Random(seed)
    flat = [text for texts in items.values() for text in texts]
    rows = []
    for k in range(90):
        text = " ".join(draw.choices(fill, k=60))
        if k % 3:
            held = pieces(flat[k % len(flat)], draw.choice([0.2, 0.4, 0.6, 0.8, 0.95, 1.0]))
            text = f"{text}. {held} . {text}"
        if k % 10 == 7:
            text += f" {flat[(k + 2) % len(flat)]}"
        rows.append({"id": f"d{k:02d}", "text": text})
    return rows


def sets_of(bench, items: dict[str, list[str]]) -> list[str]:
    paths = []
    for name, of in items.items():
        rows = [{"id": f"{name}{k}", "text": t} for k, t in enumerate(of)]
        paths.append(str(bench.jsonl(f"{name}.jsonl", rows)))
    return paths


def expected(rows, items: dict[str, list[str]], step: dict[str, Any]) -> dict[str, tuple]:
    """Of each document that goes: the share, the item and the set that are named."""
    by_character = step["mode"] == "50-char"
    item_windows, names = [], []
    for name, of in items.items():
        lengths = sorted(len(reference.words(t)) for t in of)
        # numpy's percentile with method "lower", for fewer than 21 values the least one
        length = 50 if by_character else step.get("ngram", 8)
        if step["mode"] == "13-gram":
            length = min(max(lengths[int(0.05 * (len(lengths) - 1))], 8), 13)
        for k, text in enumerate(of):
            item_windows.append(
                reference.windows(text, by_character, length, 25 if by_character else 8)
            )
            names.append((f"{name}{k}", name))
    least = step.get("threshold", 0.7) if step["mode"] == "overlap" else 1e-9
    by_id = {}
    for row in rows:
        shares = reference.shares(row["text"], item_windows, by_character)
        held = [round(s * len(set(w))) for s, w in zip(shares, item_windows, strict=True)]
        best = max(range(len(item_windows)), key=lambda i: (shares[i], held[i], -i))
        if shares[best] >= least:
            by_id[row["id"]] = (shares[best], *names[best])
    return by_id


@dataclass
class Here:
    """What a step decided, without a run around it: two batches, one after the other."""

    rows: dict[str, dict[str, Any]]  # what is kept, by id
    decisions: list[dict[str, Any]]
    summary: dict[str, Any]
    items: list[dict[str, Any]]


def here(rows: list[dict[str, Any]], **choice: Any) -> Here:
    step = Decontaminate(**choice)
    step.open()
    half = len(rows) // 2
    batches = []
    for part, part_rows in enumerate((rows[:half], rows[half:])):
        batches.append((part, documents({c: [r[c] for r in part_rows] for c in ("id", "text")})))
    kept = {}
    with tempfile.TemporaryDirectory() as name, scratch_database(Path(name, "spill")) as db:
        folder = Path(name)
        db.register("rows", pa.concat_tables(sketch_rows(step, d.table, p) for p, d in batches))
        db.execute("CREATE VIEW sketches AS SELECT * FROM rows")
        summary = step.resolve(Sketches(db, folder / "decisions.parquet", folder)).record()
        decisions = pq.read_table(folder / "decisions.parquet")
        items = pq.read_table(folder / "contamination.parquet").to_pylist()
    for part, docs in batches:
        part_rows = decisions.filter(pc.equal(decisions["part"], part))
        done = step.apply(docs.within(step.label), part_rows)
        kept.update({row["id"]: row for row in done.split()[0].to_pylist()})
    return Here(kept, decisions.to_pylist(), summary, items)


def contamination(bench, out: str = "out") -> list[dict[str, Any]]:
    return pq.read_table(bench.folder / out / "contamination.parquet").to_pylist()


def agree(bench, items, rows, settings) -> int:
    """Runs and compares with plain Python; returns how many documents went."""
    run = here(rows, evals=tuple(sets_of(bench, items)), **settings)
    wanted = expected(rows, items, settings)
    decided = {
        d["id"]: (d["similarity"], d["partner_id"], d["partner_corpus"]) for d in run.decisions
    }
    assert decided == {k: (pytest.approx(v[0]), *v[1:]) for k, v in wanted.items()}
    assert set(run.rows) == {r["id"] for r in rows} - set(wanted)
    assert {d["method"] for d in run.decisions} == {f"decontaminate:{settings['mode']}"}
    return len(wanted)
