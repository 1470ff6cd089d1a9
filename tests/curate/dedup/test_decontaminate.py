"""Evaluation items in documents: which documents go, what is cut, and what is told of each item."""

from __future__ import annotations

import io
import json
import os
import random
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import reference_decontaminate as reference

from curate.database import database
from curate.dedup.decontaminate.step import Decontaminate
from curate.documents import documents
from curate.errors import CurateError, RunFailed, UsageError
from curate.recipe import build, make_step
from curate.sketches import Sketches
from curate.stage_work import sketch_rows

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
    known, names = [], []
    for name, of in items.items():
        lengths = sorted(len(reference.words(t)) for t in of)
        # numpy's percentile with method "lower", for fewer than 21 values the least one
        length = 50 if by_character else step.get("ngram", 8)
        if step["mode"] == "13-gram":
            length = min(max(lengths[int(0.05 * (len(lengths) - 1))], 8), 13)
        for k, text in enumerate(of):
            known.append(reference.windows(text, by_character, length, 25 if by_character else 8))
            names.append((f"{name}{k}", name))
    least = step.get("threshold", 0.7) if step["mode"] == "overlap" else 1e-9
    found = {}
    for row in rows:
        shares = reference.shares(row["text"], known, by_character)
        held = [round(s * len(set(w))) for s, w in zip(shares, known, strict=True)]
        best = max(range(len(known)), key=lambda i: (shares[i], held[i], -i))
        if shares[best] >= least:
            found[row["id"]] = (shares[best], *names[best])
    return found


@dataclass
class Here:
    """What a step decided, without a run around it: two batches, one after the other."""

    rows: dict[str, dict[str, Any]]  # what is kept, by id
    decisions: list[dict[str, Any]]
    found: dict[str, Any]
    items: list[dict[str, Any]]


def here(rows: list[dict[str, Any]], **choice: Any) -> Here:
    step = Decontaminate(**choice)
    step.open()
    half = len(rows) // 2
    batches = []
    for part, mine in enumerate((rows[:half], rows[half:])):
        batches.append((part, documents({c: [r[c] for r in mine] for c in ("id", "text")})))
    kept = {}
    with tempfile.TemporaryDirectory() as name, database(Path(name, "spill")) as db:
        folder = Path(name)
        db.register("rows", pa.concat_tables(sketch_rows(step, d.table, p) for p, d in batches))
        db.execute("CREATE VIEW sketches AS SELECT * FROM rows")
        found = step.resolve(Sketches(db, folder / "decisions.parquet", folder))
        decisions = pq.read_table(folder / "decisions.parquet")
        items = pq.read_table(folder / "contamination.parquet").to_pylist()
    for part, docs in batches:
        mine = decisions.filter(pc.equal(decisions["part"], part))
        done = step.apply(docs.within(step.label), mine)
        kept.update({row["id"]: row for row in done.split()[0].to_pylist()})
    return Here(kept, decisions.to_pylist(), found, items)


def contamination(bench, out: str = "out") -> list[dict[str, Any]]:
    return pq.read_table(bench.folder / out / "contamination.parquet").to_pylist()


def agree(bench, items, rows, settings) -> int:
    """Runs and compares with plain Python; returns how many documents went."""
    run = here(rows, evals=tuple(sets_of(bench, items)), **settings)
    wanted = expected(rows, items, settings)
    told = {d["id"]: (d["similarity"], d["partner_id"], d["partner_corpus"]) for d in run.decisions}
    assert told == {k: (pytest.approx(v[0]), *v[1:]) for k, v in wanted.items()}
    assert set(run.rows) == {r["id"] for r in rows} - set(wanted)
    assert {d["method"] for d in run.decisions} == {f"decontaminate:{settings['mode']}"}
    return len(wanted)


@pytest.mark.parametrize("settings", MODES, ids=str)
def test_documents_go_that_plain_python_finds_items_in(bench, settings):
    rows = corpus(ITEMS, COMMON)
    assert 20 <= agree(bench, ITEMS, rows, settings) < 75


@pytest.mark.skipif(not LONG.exists(), reason=f"no {LONG}; set LLMCURATE_SHARED")
@pytest.mark.parametrize("settings", MODES[:3], ids=str)
def test_documents_go_that_plain_python_finds_items_in_real_text(bench, settings):
    import zstandard

    items: dict[str, list[str]] = {}
    fill: list[str] = []
    for name in ("en", "th", "zh", "ru"):
        path = sorted(LONG.glob(f"{name}-*.jsonl.zst"))[0]
        with path.open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            text = " ".join(json.loads(line)["text"] for line in islice(lines, 40))
        items[name] = [text[k : k + 160] for k in range(2000, 6000, 700)]
        fill += [text[k : k + 30] for k in range(8000, 11_000, 30)]
    rows = corpus(items, fill, seed=3)
    assert agree(bench, items, rows, settings) > 20


def test_the_length_of_windows_is_the_fifth_percentile_between_8_and_13(bench):
    def length(words: list[int]) -> tuple[int, list[int]]:
        rows = [{"text": " ".join(f"w{i}x{k}" for k in range(n))} for i, n in enumerate(words)]
        path = str(bench.jsonl("set.jsonl", rows))
        found = Decontaminate(evals=(path,)).windows()
        return found.lengths["set"], (found.rows[1:] - found.rows[:-1]).tolist()

    # 40 items: the second shortest is the 5th percentile; what is shorter is one window
    assert length([20] * 40)[0] == 13
    assert length([9, 11, *[20] * 38]) == (11, [1, 1, *[10] * 38])
    assert length([9, *[12] * 9, *[20] * 30]) == (12, [*[1] * 10, *[9] * 30])
    assert length([3, 4, 5, *[20] * 30])[1][:4] == [0, 0, 0, 13]
    assert length([3, 4, 5, *[20] * 30])[0] == 8


@pytest.mark.parametrize("action", ["drop", "cut"])
def test_one_or_two_workers_leave_the_same_bytes(bench, action):
    rows = corpus(ITEMS, COMMON)
    source = bench.jsonl("in.jsonl", rows)
    step = {"evals": sets_of(bench, ITEMS), "action": action, "max_hits": 30}
    for workers in (1, 2):
        bench.run(
            [{"decontaminate": step}],
            source,
            out=f"out{workers}",
            workers=workers,
            read={"partition_bytes": 5000},
        )
    assert bench.bytes_of("out1") == bench.bytes_of("out2")
    one, two = (bench.folder / f"out{n}/contamination.parquet" for n in (1, 2))
    assert one.read_bytes() == two.read_bytes()


def test_each_item_is_reported(bench):
    q = ITEMS["math"]
    rows = [
        {"id": "whole", "text": f"Before it. {q[0]} After it."},
        {"id": "part", "text": f"Before it. {q[0][:110]} After it."},
        {"id": "none", "text": "Nothing of that kind is in this document."},
    ]
    step = {"evals": sets_of(bench, ITEMS)}
    outcome = bench.run([{"decontaminate": step}], bench.jsonl("in.jsonl", rows))
    found = contamination(bench)
    assert [(r["set"], r["item"]) for r in found] == [
        (name, f"{name}{k}") for name in ITEMS for k in range(3)
    ]
    first, second, short = found[:3]
    assert first["documents"] == first["contaminated"] == 2
    assert (first["best_overlap"], first["example"]) == (1.0, "whole")
    assert first["matched"] == q[0].rstrip("?")
    assert (second["documents"], second["best_overlap"], second["example"]) == (0, 0.0, None)
    assert (short["units"], short["windows"], short["matched"]) == (5, 0, None)
    decided = outcome.stages[0]["decided"]
    assert decided["sets"]["math"] == {"items": 3, "checked": 2, "hit": 1, "documents": 2}
    assert decided["notes"][0] == "math: 1 of 2 checked items (50.0%) are in 2 documents"
    assert "1 shorter than 8 not checked" in " ".join(decided["notes"])
    assert "math: 1 of 2 checked items" in (bench.folder / "out/report.html").read_text()


def test_the_longest_passage_of_the_best_document_is_shown(bench):
    text = " ".join(f"word{k}" for k in range(60))
    words = text.split()
    items = bench.jsonl("set.jsonl", [{"id": "i", "text": text}])
    held = f"{' '.join(words[:14])} gap {' '.join(words[20:45])} gap {' '.join(words[46:60])}"
    rows = [{"id": "a", "text": " ".join(words[30:50])}, {"id": "b", "text": held}]
    (found,) = here(rows, evals=str(items)).items
    assert (found["example"], found["matched"]) == ("b", " ".join(words[20:45]))
    assert found["best_overlap"] == pytest.approx((2 + 13 + 2) / 48)


def test_n_grams_in_more_documents_than_max_hits_are_ignored(bench):
    saying = "it was the best of times it was the worst of times my friend"
    question = "why does the moth fly to the lamp at night when all is dark"
    items = bench.jsonl("set.jsonl", [{"id": "i", "text": f"{saying}\n{question}"}])
    rows = [{"id": f"s{k}", "text": f"{saying} {saying} number {k}"} for k in range(4)]
    rows += [{"id": "q", "text": f"tell me {question} please"}]
    for limit, gone in ((None, 5), (4, 5), (3, 1)):
        run = here(rows, evals=str(items), max_hits=limit)
        assert len(rows) - len(run.rows) == gone
    assert "windows in more than 3 documents were ignored" in str(run.found["notes"])
    assert run.items[0]["documents"] == 1


def test_other_limits_use_the_same_sketches(bench):
    source = bench.jsonl("in.jsonl", corpus(ITEMS, COMMON))
    step = {"evals": sets_of(bench, ITEMS)}
    bench.run([{"decontaminate": step}], source)
    before = {p: p.stat().st_mtime_ns for p in bench.folder.glob("out/stages/*/*sketch*")}
    bench.run([{"decontaminate": step | {"max_hits": 1}}], source)
    after = {p: p.stat().st_mtime_ns for p in bench.folder.glob("out/stages/*/*sketch*")}
    assert before == after and before


def test_text_that_many_items_share_is_no_item(bench):
    template = "Choose the one right answer to the following question out of these four words:"
    questions = [" ".join(f"q{k}w{i}" for i in range(9)) for k in range(6)]
    items = bench.jsonl("set.jsonl", [{"text": f"{template} {q}"} for q in questions])
    rows = [
        {"id": "guide", "text": f"Exams often say: {template} and so on."},
        {"id": "leak", "text": f"{template} {questions[2]}"},
    ]
    for limit, kept in ((100, []), (5, ["guide"]), (None, [])):
        run = here(rows, evals=str(items), max_items=limit)
        assert list(run.rows) == kept
        told = "windows that more than 5 items share" in str(run.found["notes"])
        assert told == (limit == 5)


def test_an_item_of_shared_text_alone_is_said_to_be_unchecked(bench):
    same = "one two three four five six seven eight nine ten eleven twelve thirteen"
    items = bench.jsonl("set.jsonl", [{"text": same}] * 4)
    step = Decontaminate(evals=(str(items),), max_items=3)
    assert "4 not checked, of text that many items share" in step.forecast()[0]
    assert len(step.windows().gram) == 0


def test_samples_are_some_of_the_windows_and_the_same_every_time(bench):
    text = "".join(random.Random(4).choices("abcdefghijklmnopqrstuvwxyz", k=400))
    items = bench.jsonl("set.jsonl", [{"id": "a", "text": text}, {"id": "b", "text": text[:30]}])

    def drawn(**more: Any) -> list[int]:
        found = Decontaminate(evals=(str(items),), mode="50-char", **more).windows()
        assert (found.end - found.start)[-1] == 30  # the whole of the short one
        return found.start[:-1].tolist()

    assert len(drawn()) == 351
    assert len(drawn(samples=3)) == 3
    assert drawn(samples=3) == drawn(samples=3) != drawn(samples=3, seed=1)
    assert set(drawn(samples=3)) <= set(range(351))


def cut_reference(text: str, wanted: set, chars: int, piece: int, most: int) -> str | None:
    """The text without matches and what stands around them; None where the document goes."""
    positions = {len(text[:k].encode()): k for k in range(len(text) + 1)}
    gone = [False] * len(text)
    for _, a, z in reference.places(text, False, wanted):
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
    left = {r["id"]: cut_reference(r["text"], wanted, chars, piece, most) for r in rows}
    kept = {k: v for k, v in left.items() if v is not None}
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


def test_explain_names_the_item_and_its_set(bench):
    rows = [{"id": "d", "text": f"See: {ITEMS['math'][1]}"}, {"id": "e", "text": "Nothing."}]
    source = bench.jsonl("in.jsonl", rows)
    sets = [a for path in sets_of(bench, ITEMS) for a in ("--evals", path)]
    done = bench.command("decontaminate", source, *sets, "-o", "out", "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert "math: 1 of 2 checked items (50.0%) are in 1 document\n" in done.stdout
    assert "math: 3 items, windows of 8 words" in done.stderr
    told = bench.command("explain", "d", "--in", "out").stdout
    assert "dropped by decontaminate.contaminated: value 1 (math1 in math)" in told
    again = bench.command("decontaminate", source, *sets, "-o", "out", "--json", "--quiet")
    record = json.loads(again.stdout.splitlines()[-1])
    assert record["by_rule"] == {"decontaminate.contaminated": 1}
    assert record["paths"]["contamination"] == "out/contamination.parquet"


def test_the_file_of_items_comes_back_and_goes_with_the_step(bench):
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


def test_what_a_killed_resolve_left_changes_nothing(bench):
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
        "llmcurate: name the test items: --evals FILE (repeatable)\n",
    )
    with pytest.raises(CurateError, match="cannot read absent"):
        bench.run([{"decontaminate": {"evals": "absent.jsonl"}}], bench.folder / "in.jsonl")
