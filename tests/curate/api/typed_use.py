"""The Python API as a program of others uses it: `make lint` checks its types, nothing runs it.

What is wrong on purpose says so, and mypy warns where it would no longer see it.
"""

from __future__ import annotations

from pathlib import Path

from llmcurate import Corpus, Result, load_recipe, run_recipe, steps


def curated(folder: Path) -> Result:
    corpus = Corpus.read("crawl/*.warc.gz", Path("more"), limit=1000).extract(output="markdown")
    corpus = corpus.language(keep=["en"]).filter("gopher_quality", len).dedup("minhash")
    recipe: str = str(corpus.recipe)
    print(recipe, load_recipe("c4").name)
    return corpus.run(folder, workers=2)


def by_steps() -> Corpus:
    corpus = Corpus.read("in").step(steps.GopherQuality(min_words=40, variant="dolma"))
    return corpus.step(steps.Language(keep=["en"])).step(steps.ColumnFilter(column="votes", min=2))


def looked_at(result: Result) -> tuple[int, list[str], float]:
    kept: int = len(result.corpus)
    print(result.explain("id").status, result.report.path.name, result.counts["read"])
    rows: int = result.rejected.to_arrow(["id", "rule"]).num_rows
    vocabulary: Result = result.train_tokenizer("tok", vocab=8000)
    model = result.encode("shards", tokenizer=vocabulary).pretrain(Path("model"), steps=10)
    return kept + rows, result.corpus.columns, float(model.card["last_loss"])


def wrong(result: Result) -> None:
    run_recipe("c4", "in", "out", workers="four")  # type: ignore[arg-type]
    run_recipe("c4", "in", "out", c4=5)  # type: ignore[arg-type]
    Corpus.read("in").run()  # type: ignore[call-arg]
    Corpus.read("in").lang()  # type: ignore[attr-defined]
    result.corpus.to_pandas(columns=5)  # type: ignore[arg-type]
    steps.GopherQuality(min_word=40)  # type: ignore[call-arg]
    steps.GopherQuality(variant="gopher")  # type: ignore[arg-type]
    steps.ColumnFilter()  # type: ignore[call-arg]
    steps.Gopher()  # type: ignore[attr-defined]
    result.counts = {}  # type: ignore[misc]
