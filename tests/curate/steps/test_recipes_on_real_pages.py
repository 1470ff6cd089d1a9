"""Shipped recipes run to their end on real pages, with small models in place of published ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from warcio.archiveiterator import ArchiveIterator

from curate.demo.language import load_articles
from curate.steps.shipped import names, text_of
from tests.curate.conftest import Bench
from tests.curate.onnx_models import onnx_model, write_model

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
PAGES = SHARED / "corpora" / "wcxb" / "dev.warc.gz"
LANGUAGES = SHARED / "corpora" / "models" / "lid.176.ftz"
COUNT = 1497
RECIPES = sorted({*names()} - {"demo"})  # the demo's recipe runs over the demo's own web
# What a recipe reads where it differs from the pages themselves: their text, as rows.
ROWS = ("dolma-books", "dolma-code", "dolma-reddit", "dolma-wiki", "fineweb-edu", "starcoder")
ROWS += ("redpajama-v1-books", "redpajama-v1-github", *(n for n in RECIPES if "tokenizer-" in n))


@pytest.fixture(scope="module")
def made(shared_bench: Bench) -> Iterator[Bench]:
    """A folder with what the recipes want: models, lists, and the pages' text as rows."""
    if not (PAGES.exists() and LANGUAGES.exists()):
        pytest.skip(f"no {PAGES}: set LLMCURATE_SHARED to a folder that has it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMCURATE_LID_MODEL", str(LANGUAGES))
        english = [a.text for a in load_articles() if a.lang == "en"]
        other = [a.text for a in load_articles() if a.lang != "en"]
        good = shared_bench.jsonl("good.jsonl", [{"text": t} for t in english])
        bad = shared_bench.jsonl("bad.jsonl", [{"text": t} for t in other])
        sets = ("--positive", good, "--negative", bad, "--epochs", 5)
        done(shared_bench, "quality", "train", *sets, "-o", "quality")
        train = [{"perplexity_model": {"vocab": 400, "order": 3, "discount_fallback": True}}]
        shared_bench.run(train, good, out="models/en")
        write_model(shared_bench.folder / "edu", onnx_model(np.full((2, 1), 3.2), True), ["a", "b"])
        with PAGES.open("rb") as file:
            urls = [r.rec_headers["WARC-Target-URI"] for r in ArchiveIterator(file)]
        hosts = sorted({url.split("/")[2] for url in filter(None, urls)})
        for name, lines in (("urls", urls[::2]), ("hosts", hosts[::2]), ("words", ["gambling"])):
            (shared_bench.folder / f"{name}.txt").write_text("\n".join(map(str, lines)))
        shared_bench.run([{"extract": {"extractor": "blocks"}}], PAGES, out="text", workers=2)
        texts = shared_bench.rows("text")
        assert len(texts) > 0.9 * COUNT
        more = {"license": "MIT", "path": "a.py", "score": 5}
        rows = [{"id": r["id"], "text": r["text"], "body": r["text"], **more} for r in texts]
        shared_bench.jsonl("text.jsonl", [*rows[:40], *rows])  # and copies of some
        yield shared_bench


def done(bench: Bench, *arguments: Any) -> str:
    """The output of a command that ended well."""
    result = bench.process(*arguments, timeout=900)
    assert result.returncode == 0, result.stderr
    return result.stdout


def settings(name: str) -> Iterator[str]:
    """The options that stand for models and lists which nobody ships."""
    for label in (label_of(step) for step in yaml.safe_load(text_of(name))["steps"]):
        if label in ("c4", "bad_words"):
            yield f"{label}.badwords=words.txt"
        elif label in ("quality", "math_score"):
            yield f"{label}.model=quality/quality.bin"
        elif label == "tagger":
            for tagger in ("tagger", "tagger#2"):
                yield f"{tagger}.model=quality/quality.bin"
                yield from (f"{tagger}.tag=cc", f"{tagger}.threshold=1")
        elif label == "perplexity":
            yield "perplexity.model=models/{lang}/perplexity.bin"
        elif label == "classifier":
            yield "classifier.model=edu"
    if name in ("webtext", "c4-webtextlike"):
        yield "url_filter.keep_urls=urls.txt"
    elif name in ("realnews", "c4-realnewslike"):
        yield from ("url_filter.keep_domains=hosts.txt", "url_filter.keep_hosts=hosts.txt")


def label_of(step: str | dict[str, Any]) -> str:
    return step if isinstance(step, str) else next(iter(step))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_runs_to_its_end_on_real_pages(name: str, made: Bench) -> None:
    if name == "pile-cc" and find_spec("justext") is None:
        pytest.skip("justext is not installed")
    source = made.folder / "text.jsonl" if name in ROWS else PAGES
    options = [word for choice in settings(name) for word in ("--set", choice)]
    done(made, "run", name, source, "-o", f"of-{name}", "--workers", "2", *options)
    if name.startswith("tokenizer-"):
        assert list((made.folder / f"of-{name}").glob("tokenizer*"))
        return
    record = json.loads((made.folder / f"of-{name}" / "run.json").read_text())["totals"]
    assert record["read"] >= COUNT and record["read"] == record["kept"] + record["rejected"]
    assert len(made.ids(f"of-{name}")) == record["kept"]
    assert "nothing to do" in done(made, "run", name, source, "-o", f"of-{name}", *options)
