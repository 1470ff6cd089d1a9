"""The result of a run: its documents in Arrow and other libraries, its report, and its products."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from curate.documents.attributes import unpack
from llmcurate import Corpus, Result
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench, pages


@pytest.fixture(scope="module")
def result(shared_bench: Bench) -> Result:
    source = shared_bench.jsonl("in.jsonl", pages(60))
    corpus = Corpus.read(source).filter("c4", min_sentences=2).dedup("exact")
    return corpus.run(shared_bench.folder / "out", workers=1, quiet=True)


def test_documents_are_those_of_the_folders(result: Result, shared_bench: Bench) -> None:
    assert result.corpus.to_arrow(["id"])["id"].to_pylist() == shared_bench.ids()
    assert unpack(result.rejected.to_arrow()).to_pylist() == shared_bench.rows(kind="rejected")
    assert len(result.corpus) + len(result.rejected) == result.counts["read"] == 60
    assert result.corpus.head(3).num_rows == 3
    core = ["id", "text", "url", "date", "source", "lang"]
    assert result.corpus.columns == [*core, "extra", "score", "attributes"]
    assert {"rule", "value", "threshold"} <= set(result.rejected.columns)
    assert repr(result.corpus).startswith(f"corpus of {result.out}: {len(result.corpus)} documents")


def test_scores_are_columns_where_they_are_named(result: Result, shared_bench: Bench) -> None:
    assert result.corpus.scores == ["edits", "c4.lines", "c4.lines_kept", "c4.sentences"]
    table = result.corpus.to_arrow(["id", "c4.sentences"])
    rows = shared_bench.rows()
    assert table.to_pylist() == [{n: row[n] for n in ("id", "c4.sentences")} for row in rows]


def test_other_libraries_read_the_corpus_of_a_result(
    result: Result, shared_bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import duckdb
    import pyarrow as pa

    pytest.importorskip("datasets")
    ids = shared_bench.ids()
    assert result.corpus.to_pandas(["id"])["id"].tolist() == ids
    assert pa.table(result.corpus)["id"].to_pylist() == ids
    frame = pytest.importorskip("polars").DataFrame(result.corpus)
    assert frame["id"].to_list() == result.corpus.to_polars()["id"].to_list() == ids
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path))
    assert list(result.corpus.to_datasets()["id"]) == ids
    assert [row["id"] for row in result.corpus.to_datasets(streaming=True)] == ids
    dataset = result.rejected.dataset()
    query = "SELECT rule, count(*) FROM dataset GROUP BY 1"
    assert sum(n for _, n in duckdb.sql(query).fetchall()) == dataset.count_rows()


def test_a_column_that_is_not_there_is_named(result: Result) -> None:
    with pytest.raises(UsageError, match="has no column 'txt'; choose from id, text"):
        result.corpus.to_pandas(["txt"])


def test_one_column_may_be_named_without_a_list(result: Result) -> None:
    assert result.corpus.to_arrow("id") == result.corpus.to_arrow(["id"])


def test_a_changed_step_without_a_mapping_is_refused(result: Result) -> None:
    with pytest.raises(UsageError, match=r"c4=5: give a mapping, c4=\{'key': value\}"):
        result.whatif(c4=5)  # type: ignore[arg-type]


def test_a_library_that_is_not_there_is_named(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(UsageError, match="pip install polars"):
        result.corpus.to_polars()


def test_a_notebook_shows_the_report_in_a_frame(result: Result) -> None:
    shown = result.report._repr_html_()
    page = result.report.path.read_text(encoding="utf-8")
    head, _, rest = shown.partition('srcdoc="')
    inner, _, tail = rest.partition('"')
    base = '<base href="about:srcdoc">'  # links to chapters stay in the frame
    assert base in html.unescape(inner) and html.unescape(inner).replace(base, "") == page
    assert head == "<iframe " and 'sandbox=""' in tail and tail.endswith("></iframe>")
    assert "<style" not in shown and "<script" not in shown


def test_an_explanation_prints_as_the_command_does(result: Result, shared_bench: Bench) -> None:
    id = result.rejected.head(1)["id"][0].as_py()
    account = result.explain(id)
    done = shared_bench.command("explain", id, "--in", result.out)
    assert str(account) + "\n" == done.stdout and repr(account) == str(account)
    assert account.status == "rejected"
    with pytest.raises(UsageError, match="did you mean d0"):
        result.explain("d0")


def test_a_result_is_opened_again(result: Result) -> None:
    again = Result.open(str(result.out))
    assert again.counts == result.counts and again.record == result.record
    assert [step.name for step in again.recipe.steps] == ["c4", "dedup_exact"]
    assert "min_sentences: 2" in str(again.recipe)
    assert f"kept {result.counts['kept']} documents" in repr(again)
    assert json.loads(json.dumps(again.counts)) == again.counts


def test_opening_a_folder_without_a_finished_run_is_a_one_line_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match=f"{path} holds no finished run"):
            Result.open(path)


def test_a_refreshed_home_is_a_result(bench: Bench) -> None:
    bench.jsonl("in/a.jsonl", pages(20))
    (bench.folder / "r.yaml").write_text("steps: [c4]")
    line = ("refresh", "r.yaml", "in", "-o", "home")
    assert bench.command(*line).returncode == 0
    bench.jsonl("in/b.jsonl", [{**row, "id": f"n{row['id']}"} for row in pages(10, seed=1)])
    assert bench.command(*line).returncode == 0
    home = Result.open(bench.folder / "home")
    current = bench.rows("home", "current")
    assert home.corpus.to_arrow(["id"])["id"].to_pylist() == [row["id"] for row in current]
    assert home.explain(current[0]["id"]).status == "kept"
    assert home.report.path.is_file() and len(home.rejected)


def test_products_are_made_of_a_result(result: Result, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no tokenizer: give tokenizer=, its folder"):
        result.encode(tmp_path / "shards")
    with pytest.raises(UsageError, match="has no token shards: call `encode` first"):
        result.pretrain(tmp_path / "model")
    with pytest.raises(UsageError, match="has documents but no product"):
        result.card  # noqa: B018
    tokenizer = result.train_tokenizer(tmp_path / "tok", vocab=300, quiet=True)
    assert tokenizer.card["vocab"] == 300 and (tokenizer.out / "tokenizer.json").is_file()
    with pytest.raises(UsageError, match="tok has no corpus"):
        tokenizer.encode(tmp_path / "shards")
    shards = result.encode(tmp_path / "shards", tokenizer, workers=1, quiet=True)
    assert shards.card["documents"] == len(result.corpus)
    assert Result.open(shards.out).products["shards"] == shards.card
    settings = {"steps": 2, "rows": 2, "context": 32, "model": "tiny"}
    model = shards.pretrain(tmp_path / "model", quiet=True, **settings)
    assert model.card["steps"] == 2 and model.report.path.is_file()
    assert (model.out / "metrics.jsonl").read_text().count("\n") == 2


def test_products_of_the_recipe_itself_serve_by_default(bench: Bench) -> None:
    corpus = Corpus.read(bench.jsonl("in.jsonl", pages(20))).dedup().step("tokenizer", vocab=280)
    result = corpus.run(bench.folder / "out", workers=1, quiet=True)
    shards = result.encode(bench.folder / "shards", quiet=True)
    assert shards.card["vocab_size"] == result.card["vocab"] == 280


def test_out_may_be_a_url(bench: Bench) -> None:
    import fsspec

    source = bench.jsonl("in.jsonl", pages(10))
    url, scratch = "memory://api-bucket/out", bench.folder / "scratch"
    result = Corpus.read(source).dedup().run(url, scratch=scratch, workers=1, quiet=True)
    assert result.out == scratch and len(result.corpus) == result.counts["kept"] > 0
    part = result.corpus.files[0]
    assert fsspec.filesystem("memory").cat(f"{url}/corpus/{part.name}") == part.read_bytes()
    with pytest.raises(UsageError, match="scratch is for an OUT that is a URL"):
        Corpus.read(source).dedup().run(bench.folder / "out", scratch=scratch)
