"""`whatif --apply` with other settings of what looks at the whole corpus: its decisions are made
anew, the stage behind it measures only what they let in or cut otherwise, and sketches are made
again only where a setting enters them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from curate.inspect.whatif import stored as stored_rows
from curate.inspect.whatif.apply import apply
from curate.run.outcome import Measured, Options
from curate.run.worker import partition as stage
from tests.curate.inspect.whatif.quick_runs import no_reports, perplexity_step, quality_step  # noqa: F401
from tests.curate.inspect.whatif.stage_rows import folders, stored, to_measure, to_sketch

WORDS = "the house stands on a hill and the river below it runs clear and cold to be that".split()
RARE = [f"{a}{b}" for a in ("mea", "lan", "or", "win", "gar") for b in ("dow", "tern", "chard")]
FILES, EACH = 2, 60

COPIES: list[Any] = [
    {"pii": {}},
    {"dedup_exact": {"key": "url"}},
    {"document_length": {"min": 6}},
    {"c4": {"min_sentences": 1, "min_words_per_line": 3}},
    {"dedup_minhash": {"threshold": 0.6, "permutations": 32, "verify": 0.5}},
    {"gopher_quality": {"min_words": 12}},
    "cut",
    {"newline_runs": {}},
    {"fineweb_quality": {}},
]
PASSAGES: list[Any] = [
    {"pii": {}},
    {"dedup_passages": {"min_sentences": 2}},
    {"gopher_quality": {"min_words": 12}},
    {"dedup_suffix_array": {"threshold": 40, "min_chars": 20}},
    {"newline_runs": {}},
    {"dedup_bloom": {"ngram": 4, "threshold": 0.7}},
    {"fineweb_quality": {}},
]
RECIPES = {"copies": COPIES, "passages": PASSAGES}
NEW_SKETCHES = {
    "dedup_exact.normalize=false",
    "dedup_minhash.threshold=0.8",
    "dedup_passages.survivor=longest",  # c4 prefers by the md5 of URLs
}


def rows(seed: int) -> list[dict[str, Any]]:
    """Documents of lines of 4 to 12 words with addresses, some lines and whole texts copies."""
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    lines: list[str] = []
    for i in range(EACH):
        own = []
        for _ in range(draw.randint(1, 6)):
            words = draw.choices(WORDS + RARE, k=draw.randint(4, 12))
            line = draw.choice(lines) if lines and draw.random() < 0.2 else " ".join(words) + "."
            lines.append(line)
            own.append(line)
        text = "\n".join(own)
        if i % 4 == 3:  # a copy with a few other words
            words = found[draw.randrange(len(found))]["text"].split(" ")
            for _ in range(draw.randint(0, 5)):
                words[draw.randrange(len(words))] = draw.choice(RARE)
            text = " ".join(words)
        text += f"\nmail me{i}@site.com today please." if i % 5 == 0 else ""
        slash = "/" if i % 2 else ""
        url = f"http://a.test/{draw.randrange(90)}{slash}"
        found.append({"text": text, "url": url, "lang": "en", "date": f"2024-01-{i % 28 + 1:02d}"})
    return found


@pytest.fixture(scope="module")
def bench(shared_bench: Any) -> Any:
    for i in range(FILES):
        shared_bench.jsonl(f"in/{i}.jsonl", rows(i))
    for name, steps in RECIPES.items():
        _run(shared_bench, steps, name)
    return shared_bench


def _run(bench: Any, steps: list[Any], out: str, *sets: str) -> None:
    read = {"partition_bytes": 12_000, "batch_rows": 25}
    bench.run(steps, bench.folder / "in", out=out, read=read, sets=sets)


def _applied(bench: Any, steps: list[Any], out: str, *sets: str) -> list[Measured]:
    """What each stage measured of `--apply`, of which all is held against a full run."""
    made, full = (f"{out}-{sets[0]}-{how}" for how in ("applied", "run"))
    measured = apply(bench.folder / out, sets, bench.folder / made, Options(1, True)).measured
    _run(bench, steps, full, *sets)
    assert bench.bytes_of(made) == bench.bytes_of(full)
    record = json.loads((bench.folder / made / "run.json").read_text())
    new_run = json.loads((bench.folder / full / "run.json").read_text())
    for one, two in zip(record["stages"], new_run["stages"], strict=True):
        for key in ("read", "kept", "rejected", "bytes_out", "primary", "reasons", "cut"):
            assert one[key] == two[key], key
    old, new = (folders(bench.folder / n) for n in (out, made))
    for k, one in enumerate(measured):
        if old[k].name == new[k].name:
            assert one.measured == 0
            continue
        chain = record["stages"][k]["steps"]
        applied = any(old[k - 1].glob("decisions-*"))
        assert one.measured == len(to_measure(old, new, k, chain, applied))
        assert one.why == ""
        if "decides" in record["stages"][k] and not one.why_sketched:
            assert one.sketched == to_sketch(old[k], new[k])
    return measured


@pytest.mark.parametrize(("recipe", "change"), [
    ("copies", "dedup_exact.survivor=first"),
    ("copies", "dedup_exact.normalize=false"),
    ("copies", "dedup_minhash.threshold=0.8"),
    ("copies", "dedup_minhash.verify=0.8"),
    ("copies", "dedup_minhash.survivor=newest"),
    ("passages", "dedup_passages.survivor=longest"),
    ("passages", "dedup_passages.keep=none"),
    ("passages", "dedup_suffix_array.min_chars=600"),
    ("passages", "dedup_suffix_array.threshold=28"),
    ("passages", "dedup_bloom.threshold=0.5"),
], ids=lambda value: value)  # fmt: skip
def test_the_stage_behind_measures_only_what_it_lets_in_or_cuts_otherwise(
    bench: Any, recipe: str, change: str
) -> None:
    measured = _applied(bench, RECIPES[recipe], recipe, change)
    new = folders(bench.folder / f"{recipe}-{change}-applied")
    old = folders(bench.folder / recipe)
    behind = next(k for k, (a, b) in enumerate(zip(old, new, strict=True)) if a.name != b.name)
    sketching = measured[behind - 1]
    assert all(m.taken > 0 for m in measured)
    assert stored(old[behind], "kept") != stored(new[behind], "kept")
    if change in NEW_SKETCHES:
        name = change.partition("=")[0]
        assert sketching.why_sketched == f"{name} changes what is sketched"
        assert sketching.sketched > 0
    else:
        assert sketching.sketched == 0 and not sketching.why_sketched


@pytest.fixture(scope="module")
def scores(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Two steps that decide by what the whole corpus scores, each with steps behind it."""
    folder = tmp_path_factory.mktemp("models")
    share = quality_step(folder, RARE, WORDS, keep_fraction=0.7)
    steps: list[Any] = [
        {"pii": {}},
        {"document_length": {"min": 8}},
        perplexity_step(folder, WORDS + RARE[:3], head=40, tail=80, keep=["head", "middle"]),
        {"gopher_quality": {"min_words": 12}},
        {"newline_runs": {}},
        share or {"dedup_exact": {}},
        {"fineweb_quality": {}},
    ]
    _run(bench, steps, "scores")
    return steps


@pytest.mark.parametrize("change", [
    "perplexity.tail=60",
    "perplexity.keep=[head,tail]",
    "perplexity.least=2",
    "quality.keep_fraction=0.5",
])  # fmt: skip
def test_another_share_scores_nothing_again(bench: Any, scores: list[Any], change: str) -> None:
    if "quality" in change and "quality" not in scores[5]:
        pytest.skip("no library trains a quality model here")
    measured = _applied(bench, scores, "scores", change)
    behind = 1 + change.startswith("quality")
    assert measured[behind - 1].sketched == 0 == measured[0].measured
    assert measured[behind].measured < measured[behind].documents / 2
    if behind == 2:  # no step behind it edits
        assert measured[behind].measured == 0


def test_a_cut_off_that_moves_measures_only_what_enters_or_passes_an_edit(
    bench: Any, scores: list[Any]
) -> None:
    measured = _applied(bench, scores, "scores", "document_length.min=14")
    assert measured[0].measured == 0
    below = [
        {r["id"]: r["threshold"] for r in bench.rows(f"scores{name}", "rejected")
         if r["rule"] == "low_score"}
        for name in ("", "-document_length.min=14-applied")
    ]  # fmt: skip
    if "quality" in scores[5]:
        moved = {i for i, t in below[1].items() if i in below[0] and t != below[0][i]}
        assert len(moved) > measured[2].measured


def test_a_step_from_elsewhere_measures_again_where_a_column_before_it_differs(
    bench: Any, scores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, made = bench.folder / "scores", bench.folder / "elsewhere"
    apply(home, ("perplexity.tail=60",), made, Options(1, True))
    old, new = folders(home), folders(made)
    (spec,) = new[1].glob("stage*.json")
    parts = range(len(list(new[1].glob("part-*.keys.parquet"))))

    def measured() -> int:
        return sum(stage.run_partition({"spec": str(spec), "part": p})["measured"] for p in parts)

    rows = [stored(f[1], "kept") | stored(f[1], "rejected") for f in (old, new)]
    again = to_measure(old, new, 1, ["perplexity", "gopher_quality", "newline_runs"], True)
    assert measured() == len(again)
    monkeypatch.setattr(stored_rows, "REGISTRY", {})  # it may read any column
    bucket = "perplexity.bucket"
    moved = {key for key, row in rows[1].items() if row[bucket] != rows[0][key][bucket]}
    files = sorted(new[1].glob("part-*"))
    before = [p.read_bytes() for p in files]
    assert moved - again and measured() == len(moved | again)
    assert [p.read_bytes() for p in files] == before
