"""`whatif --apply` measures the documents that are new to a stage, or enter it otherwise, and no
others; the bytes are those of a run with these settings."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow.parquet as pq
import pytest

from curate.corpus.stage_files import part_path
from curate.filters.c4 import C4
from curate.inspect.whatif.apply import apply
from curate.run.outcome import Measured, Options
from curate.run.worker import partition as stage
from curate.steps.recipe import make_step
from tests.curate.inspect.whatif.quick_runs import no_reports, quality_step  # noqa: F401
from tests.curate.inspect.whatif.stage_rows import folders, to_measure, to_sketch

WORDS = "the house stands on a hill and the river below it runs clear and cold to be that".split()
GOOD = "river meadow lantern orchard window garden".split()
FILES, EACH = 2, 110
Home = tuple[Any, list[dict[str, Any]]]


def rows(seed: int) -> list[dict[str, Any]]:
    """Documents of 0 to 90 words, some of them copies, two or three to a URL."""
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    for i in range(EACH):
        lines = [
            " ".join(draw.choices(WORDS + GOOD[: i % 7], k=draw.randint(2, 14))).capitalize()
            + draw.choice("...,")
            for _ in range(draw.randint(0, 9))
        ]
        text = "\n".join(lines)
        if i % 11 == 10:
            text = found[draw.randrange(len(found))]["text"]
        found.append({"text": text, "url": f"http://a.test/{draw.randrange(90)}", "lang": "en"})
    found[7]["id"] = "twice"
    found[12]["text"] = None  # refused by the reader
    return found


@pytest.fixture(scope="module")
def home(shared_bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("model")
    quality = quality_step(folder, GOOD, WORDS, threshold=0.05)
    steps: list[Any] = [
        {"gopher_quality": {"min_words": 30}},
        {"document_length": {"max": 80}},
        {"dedup_exact": {"key": "url", "survivor": "first"}},
        {"c4": {"min_sentences": 1, "min_words_per_line": 4}},
        {"fineweb_quality": {}},
        "cut",
        quality or {"wangchanberta": {}},
        {"dedup_passages": {"unit": "line", "survivor": "longest", "min_sentences": 0}},
        {"gopher_repetition": {}},
    ]
    for i in range(FILES):
        shared_bench.jsonl(f"in/{i}.jsonl", rows(i))
    _run(shared_bench, steps, "out")
    return shared_bench, steps


def _run(bench: Any, steps: list[Any], out: str, *sets: str) -> None:
    read = {"partition_bytes": 20_000, "batch_rows": 40}
    bench.run(steps, bench.folder / "in", out=out, read=read, sets=sets)


DONE: dict[tuple[str, ...], tuple[str, list[Measured]]] = {}


def _applied(home: Home, *sets: str) -> tuple[str, list[Measured]]:
    """(the folder's name, what each stage measured) of `--apply` with these settings, made once."""
    bench, _ = home
    if sets not in DONE:
        name = f"applied{len(DONE)}"
        done = apply(bench.folder / "out", sets, bench.folder / name, Options(1, True))
        DONE[sets] = name, done.measured
    return DONE[sets]


@pytest.mark.parametrize("sets", [
    ("gopher_quality.min_words=40",),
    ("gopher_quality.min_words=20",),
    ("document_length.max=60", "gopher_quality.min_words=29"),
    ("fineweb_quality.min_end_marks=0.02", "gopher_repetition.max_top_n_gram_chars={2: 0.05}"),
], ids=lambda sets: sets[0])  # fmt: skip
def test_each_stage_measures_what_is_new_to_it_and_leaves_the_bytes_of_a_full_run(
    home: Home, sets: tuple[str, ...]
) -> None:
    bench, steps = home
    name, measured = _applied(home, *sets)
    _run(bench, steps, f"{name}_run", *sets)
    assert bench.bytes_of(name) == bench.bytes_of(f"{name}_run") != bench.bytes_of("out")
    old, new = (folders(bench.folder / n) for n in ("out", name))
    first = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a.name != b.name)
    assert [m.measured for m in measured[:first]] == [0] * first
    # No edit stands behind the rules that change.
    assert measured[first].measured == 0 < measured[first].documents
    chains = [
        s["steps"] for s in json.loads((new[0].parents[1] / "run.json").read_text())["stages"]
    ]
    for k in range(first + 1, len(new)):
        applied = chains[k][0].startswith("dedup")
        assert measured[k].measured == len(to_measure(old, new, k, chains[k], applied))
        assert measured[k].taken == measured[k].documents - measured[k].measured
        assert measured[k].measured < measured[k].documents / 2
    for k, one in enumerate(measured):
        sketched = any(new[k].glob("decisions-*.parquet")) and k >= first
        assert one.sketched == (to_sketch(old[k], new[k]) if sketched else 0)
        assert one.why == ""


def test_an_admitted_document_displaces_a_later_one_and_a_removed_one_lets_its_copy_back(
    home: Home,
) -> None:
    bench, _ = home
    before = {r["id"]: r for r in bench.rows("out", "rejected")}
    fewer, more = (_applied(home, f"gopher_quality.min_words={n}")[0] for n in (20, 40))
    displaced = {r["id"] for r in bench.rows(fewer, "rejected") if r["step"] == "dedup_exact"}
    assert displaced - before.keys()
    copies = {i for i, r in before.items() if r["step"] == "dedup_exact"}
    assert copies & set(bench.ids(more))


def test_a_first_stage_without_an_edit_behind_its_change_does_not_read_its_input(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = home
    name, _ = _applied(home, "gopher_quality.min_words=20")
    folder = folders(bench.folder / name)[0]
    (spec,) = map(str, folder.glob("stage*.json"))
    was = {"bytes_in": 5, "skipped": {}, "corrupt": 0, "corrupt_examples": [], "batches": [40] * 2}
    files = sorted(folder.glob("part-00000.*"))
    before = [p.read_bytes() for p in files]
    monkeypatch.delattr(stage, "PartitionReader")
    with pytest.raises(NameError):
        stage.run_partition({"spec": spec, "part": 0})
    numbers = pq.read_table(part_path(folder, 0, "ids")).num_rows
    was["batches"] = [40] * (numbers // 40) + [numbers % 40]
    done = stage.run_partition({"spec": spec, "part": 0, "was": was})
    assert (done["read"], done["measured"], done["bytes_in"]) == (numbers, 0, 5)
    assert [p.read_bytes() for p in files] == before


def test_an_edit_behind_a_looser_limit_begins_with_the_text_that_is_stored(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = [
        {"newline_runs": {}},
        {"gopher_quality": {"min_words": 30}},
        {"c4": {"min_sentences": 1, "min_words_per_line": 4}},
        {"document_length": {"max": 80}},
    ]
    bench.jsonl("in/0.jsonl", [r | {"text": f"{r['text']}\n\n\n\n."} for r in rows(5)
                              if r["text"] is not None])  # fmt: skip
    _run(bench, steps, "out")
    for sets in (("gopher_quality.min_words=20",), ("gopher_quality.min_words=35",)):
        name = sets[0][-2:]
        done = apply(bench.folder / "out", sets, bench.folder / f"a{name}", Options(1, True))
        _run(bench, steps, f"r{name}", *sets)
        assert bench.bytes_of(f"a{name}") == bench.bytes_of(f"r{name}")
        changed = [r for r in bench.rows(f"r{name}", "rejected") if r["step"] != "read"]
        old = {r["id"]: r["step"] for r in bench.rows("out", "rejected")}
        new = {r["id"]: r["step"] for r in changed}
        # c4 edits what neither it nor a step before it marked.
        before, after = (
            {i for i, step in found.items() if step in ("gopher_quality", "c4")}
            for found in (old, new)
        )
        assert done.measured[0].measured == len(before ^ after) > 0
    # Texts of rejected documents are stored as they entered; those of edited ones are not.
    (spec,) = map(str, folders(bench.folder / "a20")[0].glob("stage*.json"))
    numbers = done.totals()["read"]
    was = {"bytes_in": 0, "skipped": {}, "corrupt": 0, "corrupt_examples": []}
    was |= {"batches": [40] * (numbers // 40) + [numbers % 40]}
    monkeypatch.delattr(stage, "PartitionReader")
    assert stage.run_partition({"spec": spec, "part": 0, "was": was})["measured"] > 0
    (spec,) = map(str, folders(bench.folder / "a35")[0].glob("stage*.json"))
    with pytest.raises(NameError):
        stage.run_partition({"spec": spec, "part": 0, "was": was})


def test_a_stage_that_cannot_be_decided_anew_runs_and_says_why(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, steps = home
    name, measured = _applied(home, "c4.min_words_per_line=5")
    assert measured[1].measured == measured[1].documents > 0 == measured[0].measured
    assert measured[1].why == "c4.min_words_per_line changes what is measured, or what is cut"
    assert measured[2].measured < measured[2].documents and not measured[2].why
    _run(bench, steps, "cuts", "c4.min_words_per_line=5")
    assert bench.bytes_of(name) == bench.bytes_of("cuts")
    monkeypatch.setattr(C4, "whole_batch", True)
    kept = part_path(folders(bench.folder / "out")[3], 0, "kept")
    kept.rename(bench.folder / "away")
    try:
        _, measured = _applied(home, "gopher_quality.min_words=25")
    finally:
        (bench.folder / "away").rename(kept)
    assert measured[1].why == "c4 looks at whole batches"
    assert measured[1].measured == measured[1].documents and not measured[2].why
    assert measured[3].why.endswith("is gone, or lacks parts")
    assert measured[3].measured == measured[3].documents


def test_columns_of_earlier_steps_come_and_go_without_measuring(bench: Any) -> None:
    passages = {"unit": "line", "min_sentences": 0}
    steps: list[Any] = [{"dedup_passages": passages}, "cut", {"document_length": {"min": 10}}]
    steps += [{"dedup_exact": {}}, {"gopher_quality": {"min_words": 20}}]
    bench.jsonl("in/0.jsonl", rows(3))
    _run(bench, steps, "out")
    sets = ("dedup_passages.min_sentences=6",)
    measured = apply(bench.folder / "out", sets, bench.folder / "a", Options(1, True)).measured
    _run(bench, steps, "r", *sets)
    assert bench.bytes_of("a") == bench.bytes_of("r") != bench.bytes_of("out")
    # Cut before, and now dropped as they came.
    cut = sum(r["rule"] == "few_sentences" for r in bench.rows("r", "rejected"))
    assert cut > 0 and [m.measured for m in measured] == [0, cut, 0, 0]
    assert not any(m.why for m in measured)
    back = ("dedup_passages.min_sentences=0",)
    measured = apply(bench.folder / "r", back, bench.folder / "b", Options(1, True)).measured
    assert bench.bytes_of("b") == bench.bytes_of("out")
    assert [m.measured for m in measured[:3]] == [0, cut, cut] and not any(m.why for m in measured)


def test_the_command_says_how_many_documents_each_stage_measured(home: Home) -> None:
    bench, _ = home
    done = bench.command(
        "whatif", "out", "--set", "gopher_quality.min_words=28", "--apply", "-o", "said", "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])["measured"]
    lines = [x for x in done.stderr.splitlines() if ": measured " in x]
    assert [m["stage"] for m in found] == [x.split(": measured")[0] for x in lines]
    assert found[0]["measured"] == 0 < found[1]["measured"] < found[1]["documents"]
    said = f"measured {found[1]['measured']} of {found[1]['documents']} documents"
    assert f"{said}, took over {found[1]['taken']}" in lines[1]


def test_a_model_of_embeddings_is_given_whole_batches() -> None:
    assert make_step("dedup_semantic", {"embedding": "somewhere"}).whole_batch
    assert not make_step("dedup_semantic", {}).whole_batch
