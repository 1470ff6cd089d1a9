"""Cutting passages of evaluation items, the contamination file, and refused settings."""

from __future__ import annotations

import json
import random

import pyarrow.parquet as pq
import pytest

from curate.steps.recipe import build, make_step
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from tests.curate.dedup import reference_decontaminate as reference
from tests.curate.dedup.decontaminate_cases import (
    COMMON,
    ITEMS,
    contamination,
    corpus,
    here,
    sets_of,
)


def cut_reference(text: str, wanted: set, chars: int, piece: int, most: int) -> str | None:
    """The text without matches and what stands around them; None where the document goes."""
    positions = {len(text[:k].encode()): k for k in range(len(text) + 1)}
    gone = [False] * len(text)
    for _, a, z in reference.positions(text, False, wanted):
        for k in range(max(0, positions[a] - chars), min(len(text), positions[z] + chars)):
            gone[k] = True
    if not any(gone):
        return text
    parts = "".join("\0" if g else c for g, c in zip(gone, text, strict=True)).split("\0")
    parts = [p for p in parts if p]
    kept = [p for p in parts if len(p) >= piece]
    return "\n\n".join(kept) if kept and len(parts) <= most else None


@pytest.mark.parametrize(("chars", "piece", "most"), [(0, 0, 100), (20, 40, 100), (5, 1, 3)])
def test_passages_are_cut_as_plain_python_cuts_them(bench, chars, piece, most):
    draw = random.Random(8)
    items = [" ".join(f"é{k}w{i}" for i in range(20)) for k in range(5)]
    rows = []
    for k in range(60):
        text = ""
        for _ in range(draw.randrange(6)):
            words = draw.choice(items).split()
            a = draw.randrange(8)
            text += " ".join(words[a : a + draw.randrange(5, 20)])
            text += " " + "".join(draw.choices("xy zü中 ", k=draw.randrange(90)))
        text = items[k % 5] if k % 20 == 19 else text
        rows.append({"id": f"d{k:02d}", "text": text or "empty"})
    path = bench.jsonl("set.jsonl", [{"id": str(k), "text": t} for k, t in enumerate(items)])
    step = {"action": "cut", "context": chars, "min_piece": piece, "max_pieces": most}
    run = here(rows, evals=str(path), **step)
    wanted = {w for t in items for w in reference.windows(t, False, 13, 8)}
    remaining = {r["id"]: cut_reference(r["text"], wanted, chars, piece, most) for r in rows}
    kept = {k: v for k, v in remaining.items() if v is not None}
    assert {k: r["text"] for k, r in run.rows.items()} == kept
    assert len(kept) < len(rows) and any("\n\n" in text for text in kept.values())
    texts = {r["id"]: r["text"].encode() for r in rows}
    ends: dict[str, int] = {}
    for d in run.decisions:
        a, z = d["span_start"], d["span_end"]
        texts[d["id"]][a:z].decode()
        assert a > ends.get(d["id"], -1)
        ends[d["id"]] = z
    edits = [edit for row in run.rows.values() for edit in row["edits"] or []]
    assert {e["rule"] for e in edits} == {"passage", *(["short_piece"] if piece > 1 else [])}
    assert {e["replacement"] for e in edits} == {"", "\n\n"}


def test_a_cut_names_the_item_that_most_of_the_passage_is_of(bench):
    step = {"evals": sets_of(bench, ITEMS), "action": "cut", "min_piece": 0, "context": 10}
    step["evals"] = tuple(step["evals"])
    text = f"{'Much text before. ' * 9}{ITEMS['math'][0]}{' Much text behind.' * 9}"
    rows = [{"id": "d", "text": text}, {"id": "e", "text": "A long text of its own. " * 20}]
    (decided,) = here(rows, **step).decisions
    assert (decided["partner_id"], decided["partner_corpus"]) == ("math0", "math")
    start = text.index("Janet")
    assert (decided["span_start"], decided["similarity"]) == (start - 10, 1.0)


def test_items_are_counted_alike_whether_documents_go_or_passages(bench):
    evals = tuple(sets_of(bench, ITEMS))
    rows = corpus(ITEMS, COMMON)
    drop, cut = (here(rows, evals=evals, action=action).items for action in ("drop", "cut"))
    assert drop == cut
    assert 0 < max(item["documents"] for item in cut) < len(rows)


def test_explain_names_the_item_and_its_set(bench):
    rows = [{"id": "d", "text": f"See: {ITEMS['math'][1]}"}, {"id": "e", "text": "Nothing."}]
    source = bench.jsonl("in.jsonl", rows)
    sets = [a for path in sets_of(bench, ITEMS) for a in ("--evals", path)]
    done = bench.command("decontaminate", source, *sets, "-o", "out", "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert "math: 1 of 2 checked items (50.0%) are in 1 document\n" in done.stdout
    assert "math: 3 items, windows of 8 words" in done.stderr
    printed = bench.command("explain", "d", "--in", "out").stdout
    assert "dropped by decontaminate.contaminated: value 1 (math1 in math)" in printed
    again = bench.command("decontaminate", source, *sets, "-o", "out", "--json", "--quiet")
    record = json.loads(again.stdout.splitlines()[-1])
    assert record["by_rule"] == {"decontaminate.contaminated": 1}
    assert record["paths"]["contamination"] == "out/contamination.parquet"


def test_explain_names_the_item_of_a_cut(bench):
    rows = [{"id": "d", "text": f"{'Before. ' * 60}{ITEMS['math'][1]}{' After.' * 60}"}]
    step = {"decontaminate": {"evals": sets_of(bench, ITEMS), "action": "cut", "context": 9}}
    bench.run([step], bench.jsonl("in.jsonl", rows))
    printed = bench.command("explain", "d", "--in", "out").stdout
    (line,) = [line for line in printed.split("\n") if "math1" in line]
    assert "contain the item math1 in math" in line and "and 9 characters around it" in line


def test_a_deleted_contamination_file_is_rewritten_and_disappears_with_its_step(bench):
    source = bench.jsonl("in.jsonl", corpus(ITEMS, COMMON))
    step = {"decontaminate": {"evals": sets_of(bench, ITEMS)}}
    path = bench.folder / "out/contamination.parquet"
    bench.run([step], source)
    content = path.read_bytes()
    assert bench.run([step], source).nothing_new
    path.unlink()
    assert not bench.run([step], source).nothing_new
    assert path.read_bytes() == content
    both = [step, {"decontaminate": {"evals": sets_of(bench, ITEMS)[:1], "mode": "overlap"}}]
    bench.run(both, source)
    second = bench.folder / "out/contamination#2.parquet"
    assert path.read_bytes() == content and pq.read_metadata(second).num_rows == 3
    bench.run([{"dedup_exact": {}}, step], source)
    assert path.exists() and not second.exists()
    assert (bench.folder / "out/index/dedup_exact").is_dir()
    bench.run([{"document_length": {"min": 1}}], source)
    assert not path.exists() and not (bench.folder / "out/index").exists()


def test_changed_items_are_looked_for_again(bench):
    rows = [{"id": "d", "text": ITEMS["math"][1]}, {"id": "e", "text": ITEMS["math"][0]}]
    source = bench.jsonl("in.jsonl", rows)
    for k, gone in ((0, "e"), (1, "d")):
        items = bench.jsonl("set.jsonl", [{"id": "i", "text": ITEMS["math"][k]}])
        bench.run([{"decontaminate": {"evals": str(items)}}], source)
        assert bench.ids("out", "rejected") == [gone]


def test_files_left_by_a_killed_resolve_change_nothing(bench):
    source = bench.jsonl("in.jsonl", corpus(ITEMS, COMMON))
    step = [{"decontaminate": {"evals": sets_of(bench, ITEMS)}}]
    bench.run(step, source, out="calm")
    bench.run(step, source)
    (own,) = bench.folder.glob("out/stages/*/resolve-*")
    for path in (own / ".part-99-contamination.parquet", own / "contamination.parquet"):
        path.unlink(missing_ok=True)
        path.write_bytes(b"torn")
    (decisions,) = bench.folder.glob("out/stages/*/decisions-*.parquet")
    decisions.unlink()
    (bench.folder / "out/contamination.parquet").unlink()
    bench.run(step, source)
    assert bench.bytes_of() == bench.bytes_of("calm")
    assert contamination(bench) == contamination(bench, "calm")
    assert [p.name for p in own.iterdir()] == ["contamination.parquet"]


def test_a_set_of_everyday_text_stops_the_run(bench):
    line = " ".join(COMMON)
    rows = [{"id": f"d{k}", "text": f"{line} {k}"} for k in range(30)] + [{"id": "x", "text": "y"}]
    items = bench.jsonl("set.jsonl", [{"text": line}])
    step = {"decontaminate": {"evals": str(items)}}
    with pytest.raises(RunFailed, match=r"decontaminate would remove 30 of 31 documents"):
        bench.run([step], bench.jsonl("in.jsonl", rows))


def test_empty_and_odd_documents_are_searched(bench):
    q = ITEMS["math"][1]
    texts = ["", "\0", q.replace(" ", "\0"), " ", "?!", f"{q}\0{q}"]
    rows = [{"id": f"d{k}", "text": t} for k, t in enumerate(texts)]
    run = here(rows, evals=tuple(sets_of(bench, ITEMS)))
    assert list(run.rows) == ["d0", "d1", "d3", "d4"]
    assert {d["partner_id"] for d in run.decisions} == {"math1"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "evals"),
        ({"evals": "a.jsonl", "threshold": 0.5}, "threshold: needs mode: overlap"),
        ({"evals": "a.jsonl", "ngram": 5}, "ngram: needs mode: overlap"),
        ({"evals": "a.jsonl", "samples": 3}, "samples: needs mode: 50-char"),
        ({"evals": "a.jsonl", "mode": "8-gram"}, "mode"),
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        build("r", [make_step("decontaminate", settings)])


def test_the_command_wants_items(bench):
    done = bench.command("decontaminate", bench.jsonl("in.jsonl", [{"text": "a"}]), "-o", "out")
    assert (done.returncode, done.stderr) == (
        2,
        "llmcurate: give the evaluation sets: --evals FILE (repeatable)\n",
    )
    with pytest.raises(LlmcurateError, match="cannot read absent"):
        bench.run([{"decontaminate": {"evals": "absent.jsonl"}}], bench.folder / "in.jsonl")
