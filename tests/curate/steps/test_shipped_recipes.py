"""The shipped recipes run, and name where their constants come from."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from curate.demo.language import load_articles
from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.recipe import load
from curate.steps.shipped import names
from llmcurate.base.errors import UsageError

PUBLISHED = ("c4", "c4@paper", "dclm-baseline", "fineweb", "massiveweb", "pile-cc", "refinedweb")


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
    from curate.scoring.language.train import Training
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
    sets: tuple[str, ...] = (f"language.model={model}",)
    if name.startswith("c4"):
        sets += ("c4.badwords=null",)
    if name in ("dclm-baseline", "pile-cc"):
        sets += (f"quality.model={quality_model}",)
    out = shared_bench.folder / name
    totals = carry_out(load(name, sets), [str(articles)], out, Options(1, True)).totals()
    assert totals.read == totals.kept + totals.rejected
    kept = shared_bench.ids(name)
    english = {a.id for a in load_articles() if a.lang == "en"}
    assert {i.rpartition("/")[0] for i in kept} <= english
    copies = [i.rpartition("/")[0] for i in kept]
    assert len(copies) == len(set(copies)) > 60


def test_c4_without_network_says_at_once_what_it_needs(
    articles: Path, shared_bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LLMCURATE_LID_MODEL", raising=False)
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path))
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")
    done = shared_bench.command("run", "c4", str(articles), "-o", "none")
    assert done.returncode == 2 and done.stderr.count("\n") == 2
    without, error = done.stderr.splitlines()
    assert without.startswith("c4: runs without badwords=ldnoobw:en (LLMCURATE_OFFLINE is set); ")
    assert "language.model=PATH" in error and "lid.176.ftz" in error


def test_c4_of_the_paper_takes_shorter_lines_of_longer_pages(
    model: Path, shared_bench: Any
) -> None:
    """A page of three sentences is C4's by its code and not by the text; a line of three words is
    none by its code and one by the text; a span of three sentences stands once."""
    english = [a.text for a in load_articles() if a.lang == "en"][:2]
    three = "The river runs past the old mill. Nobody works there now. The wheel stands still."
    pages = {"three": three, "lines": f"{english[0]}\nThe mill stands.", "copy": english[1]}
    pages["copied"] = f"{english[1]}\n{three} The owner of it all has gone away to town."
    rows = [{"id": k, "text": v, "url": f"https://x.example/{k}"} for k, v in pages.items()]
    source = shared_bench.jsonl("paper.jsonl", rows)
    sets = (f"language.model={model}", "c4.badwords=null")
    texts = {}
    for name in ("c4", "c4@paper"):
        recipe = load(name, sets)
        carry_out(recipe, [str(source)], shared_bench.folder / f"out-{name}", Options(1, True))
        texts[name] = {r["id"]: r["text"] for r in shared_bench.rows(f"out-{name}")}
    assert "three" in texts["c4"] and "three" not in texts["c4@paper"]
    assert "The mill stands." not in texts["c4"]["lines"]
    assert texts["c4@paper"]["lines"].endswith("The mill stands.")
    assert not {"copy", "copied"} <= set(texts["c4@paper"])


def test_unfiltered_c4_keeps_english_pages_whatever_they_hold(
    model: Path, shared_bench: Any
) -> None:
    """What C4's heuristics drop stays: short pages, lines that are no sentences, copies of another
    address; another language and an older copy of a page go."""
    english = [a.text for a in load_articles() if a.lang == "en"][:2]
    german = next(a.text for a in load_articles() if a.lang == "de")
    menu = english[0].replace(". ", "\n").replace(".", "") + "\nJavaScript { lorem ipsum }"
    pages = {"menu": menu, "copy": english[1], "copied": english[1], "german": german}
    rows = [{"id": k, "text": v, "url": f"https://x.example/{k}"} for k, v in pages.items()]
    rows.append({"id": "again", "text": english[1], "url": "https://x.example/copy"})
    rows[1]["date"], rows[-1]["date"] = "2020-01-01", "2019-01-01"
    long = {
        "id": "long",
        "text": english[0] * (190_000 // len(english[0]) + 1),
        "url": "https://y.example",
    }
    source = shared_bench.jsonl("unfiltered.jsonl", [*rows, long])
    recipe = load("c4-unfiltered", (f"language.model={model}",))
    carry_out(recipe, [str(source)], shared_bench.folder / "out-unfiltered", Options(1, True))
    assert set(shared_bench.ids("out-unfiltered")) == {"menu", "copy", "copied"}


@pytest.mark.lab
@pytest.mark.parametrize("name", ["c4-realnewslike", "c4-webtextlike"])
def test_a_variant_of_c4_is_c4_on_the_pages_of_a_list(
    name: str, model: Path, tmp_path: Path
) -> None:
    """Its steps after the filter have the settings that c4's have."""
    chosen = tmp_path / "list.txt"
    chosen.write_text("https://a.example/1\n", encoding="utf-8")
    news = name == "c4-realnewslike"
    keys = ("keep_domains", "keep_hosts") if news else ("keep_urls",)
    own = ("c4.badwords=null", f"language.model={model}")  # they would be fetched
    variant = load(name, [*own, *(f"url_filter.{key}={chosen}" for key in keys)])
    first, *rest = variant.steps
    assert first.name == "url_filter"
    whole = [step.identity() for step in load("c4", own).steps]
    assert [step.identity() for step in rest if step.name != "cut"] == whole


@pytest.mark.lab
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
    assert totals.by_rule["wangchanberta.no_thai"] == 3
    assert totals.by_rule["document_length.too_short"] == 1


@pytest.mark.parametrize("name", ["dclm-baseline", "pile-cc"])
def test_without_a_quality_model_a_recipe_says_where_one_comes_from(
    name: str, articles: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "pile-cc" and find_spec("justext") is None:
        pytest.skip("justext is not installed")
    monkeypatch.delenv("LLMCURATE_QUALITY_MODEL", raising=False)
    with pytest.raises(
        UsageError, match=r"train one with `llmcurate quality train`, or fetch DCLM"
    ):
        recipe = load(name, (f"language.model={model}",))
        carry_out(recipe, [str(articles)], tmp_path / "out", Options(1, True))


@pytest.mark.lab
@pytest.mark.parametrize("name", sorted({*names()} - {"demo"}))
def test_a_published_recipe_says_whose_it_is(name: str) -> None:
    text = files("pipelines").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    assert re.search(r" (et al\.|and \w+) 20", text.split("name:")[0])
    assert load(name).paper


# Recipes that take texts as they are, and those that want a model or list of the user.
PLAIN = ("mc4", "oscar", "roots", "dolma-books", "dolma-wiki", "redpajama-v1-books")
WANTING = {
    "webtext": "no list openwebtext-urls.txt: give --set url_filter.keep_urls=FILE",
    "realnews": "no list news-domains.txt: give --set url_filter.keep_domains=FILE",
    "c4-webtextlike": "no list openwebtext-urls.txt: give --set url_filter.keep_urls=FILE",
    "c4-realnewslike": "no list news-domains.txt: give --set url_filter.keep_domains=FILE",
    "redpajama-v1": "no model matches models/{lang}/perplexity.bin",
    "dolma": "no model at models/jigsaw-hatespeech.bin: give --set tagger.model=PATH; train one",
    "dolma-reddit": "no model at models/jigsaw-hatespeech.bin: give --set tagger.model=PATH",
    "open-web-math": "no model at models/math/quality.bin: give --set math_score.model=PATH; train",
    "fineweb-edu": "fineweb-edu-classifier: neither a folder nor in the cache of the hub",
}


@pytest.mark.lab
@pytest.mark.parametrize("name", PLAIN)
def test_a_recipe_for_texts_keeps_whole_articles(
    name: str, model: Path, articles: Path, shared_bench: Any
) -> None:
    sets = (f"language.model={model}",) if "language:" in str(load(name)) else ()
    sets += ("bad_words.badwords=null",) if name == "mc4" else ()
    out = shared_bench.folder / name
    totals = carry_out(load(name, sets), [str(articles)], out, Options(1, True)).totals()
    assert totals.read == totals.kept + totals.rejected
    whole = {a.text for a in load_articles() if a.lang == "en"}
    texts = {r["text"].strip() for r in shared_bench.rows(name)}
    assert totals.kept > 60 or name == "oscar"  # the demo's articles have short lines
    assert name in ("oscar", "roots") or len(texts & {t.strip() for t in whole}) > 30


@pytest.mark.lab
@pytest.mark.parametrize("name", WANTING)
def test_without_its_model_or_list_a_recipe_ends_with_one_line_and_a_dry_run_shows_the_plan(
    name: str, model: Path, articles: Path, shared_bench: Any
) -> None:
    sets = ("--set", f"language.model={model}") if "language:" in str(load(name)) else ()
    sets += ("--set", "c4.badwords=null") if name.startswith("c4") else ()
    given = ("run", name, articles, *sets, "-o", f"wanting-{name}")
    done = shared_bench.command(*given)
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and WANTING[name] in line
    paper = shared_bench.command(*given, "--dry-run")
    assert paper.returncode == 0 and ": 0 of " in paper.stdout
    assert f"a run would fail: {line.removeprefix('llmcurate: ')}" in paper.stderr


@pytest.mark.lab
def test_dolma_cuts_sentences_by_the_users_models(
    model: Path, quality_model: Path, articles: Path, shared_bench: Any
) -> None:
    sets = [f"language.model={model}"]
    for label in ("tagger", "tagger#2"):
        sets += [f"{label}.model={quality_model}", f"{label}.tag=cc", f"{label}.threshold=0.9"]
    out = shared_bench.folder / "dolma-web"
    totals = carry_out(load("dolma", tuple(sets)), [str(articles)], out, Options(1, True)).totals()
    kept = shared_bench.rows("dolma-web")
    assert totals.kept == len(kept) > 60
    assert {"tagger.max_score", "tagger#2.max_score"} <= set(kept[0])
    assert all(r["tagger#2.max_score"] < 0.9 for r in kept)  # the first one has cut them


@pytest.mark.lab
def test_dolma_takes_comments_of_enough_length_and_votes(
    quality_model: Path, shared_bench: Any
) -> None:
    text = next(a.text for a in load_articles() if a.lang == "en" and len(a.text) > 600)
    rows = [
        {"id": "good", "body": text, "score": 2, "subreddit": "a"},
        {"id": "votes", "body": text[::-1], "score": 1, "subreddit": "a"},
        {"id": "short", "body": text[:499], "score": 9, "subreddit": "a"},
        {"id": "gone", "body": "[deleted]", "score": None, "subreddit": "a"},
    ]
    source = shared_bench.jsonl("comments.jsonl", rows)
    sets = [
        f"{label}.{key}"
        for label in ("tagger", "tagger#2")
        for key in (f"model={quality_model}", "tag=cc", "threshold=1")
    ]
    out = shared_bench.folder / "reddit"
    carry_out(load("dolma-reddit", tuple(sets)), [str(source)], out, Options(1, True))
    assert shared_bench.ids("reddit") == ["good"]
    gone = {r["id"]: r["rule"] for r in shared_bench.rows("reddit", "rejected")}
    assert gone == {"votes": "too_low", "short": "too_short", "gone": "too_short"}


FUNCTION = 'def area(width, height):\n    """The area of a field."""\n    return width * height\n'
SOURCES = [
    {"id": "plain", "text": FUNCTION * 3, "path": "a.py", "license": "MIT"},
    {"id": "copyleft", "text": f"x = 1\n{FUNCTION}", "path": "b.py", "license": "GPL-3.0-only"},
    {"id": "long", "text": "word " * 300, "path": "c.py", "license": "Apache-2.0"},
    {"id": "key", "text": f"# Copyright X\nkey = 'ghp_{'a1' * 18}'\nprint(key)\n", "path": "d.py",
     "license": "BSD-3-Clause"},
]  # fmt: skip


@pytest.mark.lab
@pytest.mark.parametrize("name", ["starcoder", "redpajama-v1-github", "dolma-code"])
def test_recipes_for_code_drop_by_licence_and_lines_and_replace_keys(
    name: str, shared_bench: Any
) -> None:
    source = shared_bench.jsonl("sources.jsonl", SOURCES)
    carry_out(load(name), [str(source)], shared_bench.folder / name, Options(1, True))
    kept = {r["id"]: r["text"] for r in shared_bench.rows(name)}
    assert set(kept) == {"plain", "key"} | ({"copyleft"} if name == "dolma-code" else set())
    assert ("ghp_" in kept["key"]) == (name == "redpajama-v1-github")
    assert ("Copyright" in kept["key"]) == (name == "starcoder")


@pytest.mark.lab
def test_ccnet_cuts_paragraphs_that_come_twice_and_those_too_unexpected_or_too_little(
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
    assert totals.read == totals.kept + totals.rejected == len(rows)
    kept, gone = shared_bench.rows("ccnet"), shared_bench.rows("ccnet", "rejected")
    assert all(menu not in r["text"] and r["lang"] == "en" for r in kept)
    assert {r["rule"] for r in gone} <= {"too_short", "language", "nothing_left", "language_score"}
    assert sum(r["perplexity.cut"] for r in kept) > 0
    record = json.loads((shared_bench.folder / "ccnet" / "run.json").read_text())
    (decided,) = [p for s in record["stages"] if (p := (s.get("decided") or {}).get("perplexity"))]
    buckets = decided["en"]["buckets"]
    scored = sum(n for name, n in buckets.items() if name != "all")
    assert buckets["tail"] / scored == pytest.approx(0.4, abs=0.02)
    assert 0 < buckets["low"] / scored < 0.02
