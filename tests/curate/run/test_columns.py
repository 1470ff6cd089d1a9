"""The columns of corpus/: what users see, what reading it back gives, and what may be left out."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.run.homes import corpus_of
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench, pages

CORE = ["id", "text", "url", "date", "source", "lang"]
RECIPE = "columns: {}\nsteps: [c4, dedup_exact]"


@pytest.fixture(scope="module")
def made(shared_bench: Bench) -> Bench:
    """OUT `one` of JSON lines with a key that has a point."""
    rows = [{**row, "meta.rank": n} for n, row in enumerate(pages(40))]
    shared_bench.run(["c4", "dedup_exact"], shared_bench.jsonl("in.jsonl", rows), out="one")
    return shared_bench


def names(bench: Bench, out: str, kind: str = "corpus") -> list[str]:
    return list(pq.read_schema(bench.folder / out / kind / "part-00000.parquet").names)


def test_a_corpus_shows_core_columns_those_of_the_input_and_attributes(made: Bench) -> None:
    assert names(made, "one") == [*CORE, "extra", "meta.rank", "score", "attributes"]
    reasons = ["step", "rule", "value", "threshold", "detail", "reasons"]
    assert names(made, "one", "rejected") == [*names(made, "one"), *reasons]


@pytest.mark.parametrize("source", ["one", "one/corpus", "one/corpus/part-00000.parquet"])
def test_an_out_its_corpus_and_a_file_of_it_give_the_same_columns(made: Bench, source: str) -> None:
    steps = [{"column_filter": {"column": "c4.sentences", "min": 1}}]
    made.run(steps, made.folder / source, out="two")
    assert names(made, "two") == names(made, "one")
    assert [row["c4.sentences"] for row in made.rows("two")] == [
        row["c4.sentences"] for row in made.rows("one")
    ]


@pytest.mark.parametrize("source", ["one", "one/corpus"])
def test_a_dedup_keeps_the_best_by_a_score_of_an_earlier_run(made: Bench, source: str) -> None:
    made.run([{"dedup_exact": {"survivor": "best:c4.sentences"}}], made.folder / source, out="best")
    assert sorted(made.ids("best")) == sorted(made.ids("one"))


@pytest.mark.parametrize("source", ["one", "one/corpus"])
def test_stats_and_mixes_know_the_scores(made: Bench, source: str) -> None:
    shown = made.command("stats", made.folder / source)
    assert "c4.sentences" in shown.stdout and "meta.rank" in shown.stdout
    quality = ("--quality", "c4.sentences:4:1,2", "-q", "--restart")
    done = made.command("mix", f"a={made.folder / source}", "-o", "mixed", *quality)
    assert done.returncode == 0, done.stderr
    with_mix = [*CORE, "extra", "meta.rank", "score", "attributes", "mix.source", "mix.epoch"]
    assert sorted(names(made, "mixed")) == sorted(with_mix)


PRODUCTS = {
    "loss-00000.mask": [{"tokenizer": {"vocab": 300}}, {"shards": {"loss_mask": "learn"}}],
    "language.bin": [{"language_model": {"column": "kind", "bucket": 100, "epochs": 1}}],
    "search-ids.arrow": ["search_index"],
    "perplexity.bin": [{"perplexity_model": {"discount_fallback": True}}],
}


@pytest.mark.parametrize(
    "file", [*list(PRODUCTS)[:-1], pytest.param("perplexity.bin", marks=pytest.mark.lab)]
)
def test_products_of_an_out_of_its_corpus_and_of_the_input_are_the_same(bench: Bench, file) -> None:
    rows = [{**row, "learn": n % 3 == 0, "kind": "ab"[n % 2]} for n, row in enumerate(pages(40))]
    texts = bench.jsonl("in.jsonl", rows)
    bench.run(["ratios"], texts, out="one")
    made = []
    for number, source in enumerate((bench.folder / "one", bench.folder / "one/corpus", texts)):
        bench.run(PRODUCTS[file], source, out=f"product{number}")
        made.append((bench.folder / f"product{number}" / file).read_bytes())
    assert made[0] == made[1] == made[2]


def test_a_refresh_reads_the_corpus_of_a_run(made: Bench) -> None:
    (made.folder / "again.yaml").write_text(
        "steps: [{column_filter: {column: c4.sentences, min: 1}}]"
    )
    for home, source in (("home", "one"), ("other", "one/corpus")):
        done = made.command("refresh", "again.yaml", made.folder / source, "-o", home, "-q")
        assert done.returncode == 0 and f"{len(made.ids('one'))} kept" in done.stdout, done.stderr


def test_an_input_with_attributes_of_its_own_keeps_them_beside_ours(bench: Bench) -> None:
    texts = ["The river runs past the old mill."] * 2
    own = pa.array([{"toxicity": 0.5}, None])
    pq.write_table(pa.table({"text": texts, "attributes": own}), bench.folder / "in.parquet")
    bench.run([{"c4": {"min_sentences": 1}}], bench.folder / "in.parquet")
    assert names(bench, "out") == [*CORE, "input.attributes", "attributes"]
    assert bench.rows()[0]["input.attributes"] == {"toxicity": 0.5}


def test_columns_of_the_corpus_are_chosen_and_rejected_stays_whole(made: Bench) -> None:
    whole = names(made, "one", "rejected")
    for columns, left in (
        ("[url]", ["id", "text", "url"]),
        ("[-attributes]", names(made, "one")[:-1]),
    ):
        made.run(RECIPE.format(columns), made.folder / "in.jsonl", out="few")
        assert names(made, "few") == left and names(made, "few", "rejected") == whole
        assert made.ids("few") == made.ids("one")


def test_a_corpus_without_attributes_says_so_where_they_are_asked_for(made: Bench) -> None:
    made.run(RECIPE.format("[-attributes]"), made.folder / "in.jsonl", out="plain")
    with pytest.raises(UsageError, match="was written without attributes"):
        corpus_of(made.folder / "plain").need_whole()
    explained = made.command("explain", made.ids("plain")[0], "--in", made.folder / "plain")
    assert "written with --plain or --columns" in explained.stdout


def test_jsonl_exports_have_attributes_on_request(made: Bench) -> None:
    line = ("filter", "c4", made.folder / "in.jsonl", "-o", "lines", "--export", "jsonl", "-q")
    for more, has in (((), False), (("--columns", "url,attributes"), True)):
        assert made.command(*line, "--restart", *more).returncode == 0
        (path,) = (made.folder / "lines" / "jsonl").iterdir()
        first = json.loads(path.read_text().splitlines()[0])
        assert ("attributes" in first) == has
    assert set(first) == {"id", "text", "url", "attributes"}
