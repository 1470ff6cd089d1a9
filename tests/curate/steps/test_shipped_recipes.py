"""The shipped recipes run, and name where their constants come from."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from curate.api.outcome import carry_out
from curate.demo.texts import load_articles
from curate.errors import UsageError
from curate.run.outcome import Options
from curate.steps.recipe import load
from curate.steps.shipped import names

PUBLISHED = ("c4", "dclm-baseline", "fineweb", "massiveweb", "pile-cc", "refinedweb")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("fasttext") is None:
        pytest.skip("no fasttext for this Python")
    from curate.demo.language import train_demo_model

    return train_demo_model(tmp_path_factory.mktemp("language"), quiet=True)


@pytest.fixture(scope="module")
def quality_model(shared_bench: Any) -> Path:
    """A quality model: the English articles against those in other languages."""
    pytest.importorskip("fasttext_pybind")
    from curate.engines.local import call_apart
    from curate.scoring.language.examples import Training
    from curate.scoring.quality.train import Texts, train

    sets = []
    for name, english in (("good", True), ("rest", False)):
        rows = [a for a in load_articles() if (a.lang == "en") == english]
        path = shared_bench.jsonl(f"{name}.jsonl", [{"id": a.id, "text": a.text} for a in rows])
        sets.append(Texts([str(path)], True))
    small = Training(
        dim=8, minn=0, maxn=0, word_ngrams=2, loss="softmax", bucket=2000, held_out=0.0
    )
    train(*sets, shared_bench.folder / "quality", small, call_apart)
    return Path(shared_bench.folder / "quality" / "quality.bin")


@pytest.fixture(scope="module")
def articles(shared_bench: Any) -> Path:
    """The demo's articles as JSON lines, each twice with another address, and one in bad shape."""
    rows = [
        {"id": f"{a.id}/{n}", "text": a.text, "url": f"https://site{n}.example/{a.id}"}
        for a in load_articles()
        for n in range(2)
    ]
    return shared_bench.jsonl("articles.jsonl", [*rows, {"id": "bare", "text": "", "url": None}])


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_recipe_keeps_prose_and_drops_the_rest(
    name: str, model: Path, quality_model: Path, articles: Path, shared_bench: Any
) -> None:
    if name == "pile-cc" and find_spec("justext") is None:
        pytest.skip("justext is not installed")
    sets = () if name == "c4" else (f"language.model={model}",)
    if name == "dclm-baseline":
        sets += (f"quality.model={quality_model}",)
    out = shared_bench.folder / name
    totals = carry_out(load(name, sets), [str(articles)], out, Options(1, True)).totals()
    assert totals["read"] == totals["kept"] + totals["rejected"]
    kept = shared_bench.ids(name)
    english = {a.id for a in load_articles() if a.lang == "en"}
    if name != "c4":
        assert {i.rpartition("/")[0] for i in kept} <= english
    copies = [i.rpartition("/")[0] for i in kept]
    assert len(copies) == len(set(copies)) > 60


def test_wangchanberta_keeps_thai_text_and_cleans_it(shared_bench: Any) -> None:
    thai = [a for a in load_articles() if a.lang == "th"]
    rows = [{"id": a.id, "text": a.text} for a in thai]
    rows += [{"id": "copy", "text": thai[0].text}, {"id": "short", "text": "ไป"}]
    rows += [{"id": "dirty", "text": f"{thai[1].text}\n(;) มากกกกกก &amp;  ครับ"}]
    rows += [{"id": a.id, "text": a.text} for a in load_articles() if a.lang == "en"][:3]
    source = shared_bench.jsonl("thai.jsonl", rows)
    out = shared_bench.folder / "thai"
    totals = carry_out(load("wangchanberta-th"), [str(source)], out, Options(1, True)).totals()
    kept = {r["id"]: r["text"] for r in shared_bench.rows("thai")}
    assert {a.id for a in thai} - set(kept) <= {thai[0].id}  # its copy may stay instead
    assert len(kept) == len(thai) + 1
    assert kept["dirty"].endswith(" มาก & ครับ")
    assert not any("\n" in text for text in kept.values())
    assert totals["by_rule"]["wangchanberta.no_thai"] == 3
    assert totals["by_rule"]["document_length.too_short"] == 1


def test_dclm_without_a_model_says_where_one_comes_from(
    articles: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLMCURATE_QUALITY_MODEL", raising=False)
    with pytest.raises(
        UsageError, match=r"train one with `llmcurate quality train`, or fetch DCLM"
    ):
        recipe = load("dclm-baseline", (f"language.model={model}",))
        carry_out(recipe, [str(articles)], tmp_path / "out", Options(1, True))


@pytest.mark.parametrize("name", (*PUBLISHED, "wangchanberta-th", "ccnet-llama1"))
def test_a_published_recipe_says_whose_it_is(name: str) -> None:
    text = files("pipelines").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    assert " et al. 20" in text.split("name:")[0]
    assert name in names()


def test_ccnet_cuts_paragraphs_that_come_twice_and_the_unexpected_tail(
    model: Path, shared_bench: Any
) -> None:
    english = [a for a in load_articles() if a.lang == "en"]
    train = shared_bench.jsonl("wiki.jsonl", [{"text": a.text} for a in english[::2]])
    settings = {"vocab": 400, "variant": "ccnet", "order": 3, "discount_fallback": True}
    shared_bench.run([{"perplexity_model": settings}], train, out="models/en")
    menu = "Home | News | Contact | Imprint | Privacy"
    rows = [{"id": a.id, "text": f"{menu}\n{a.text}", "url": None} for a in load_articles()]
    rows.append({"id": "short", "text": f"{menu}\n{english[0].text[:200]}", "url": None})
    path = shared_bench.jsonl("ccnet.jsonl", rows)
    models = shared_bench.folder / "models/{lang}/perplexity.bin"
    sets = (f"language.model={model}", f"perplexity.model={models}")
    recipe = load("ccnet-llama1", sets)
    totals = carry_out(
        recipe, [str(path)], shared_bench.folder / "ccnet", Options(1, True)
    ).totals()
    assert totals["read"] == totals["kept"] + totals["rejected"] == len(rows)
    kept, gone = shared_bench.rows("ccnet"), shared_bench.rows("ccnet", "rejected")
    assert {r["perplexity.bucket"] for r in kept} == {"head", "middle"}
    assert all(menu not in r["text"] and r["lang"] == "en" for r in kept)
    assert {r["rule"] for r in gone} == {"too_short", "language", "bucket"}
    tail = [r for r in gone if r["rule"] == "bucket"]
    assert min(r["value"] for r in tail) >= max(r["perplexity.score"] for r in kept)
    assert 0.38 < len(tail) / (len(tail) + len(kept)) < 0.45
