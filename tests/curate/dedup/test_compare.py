"""`compare`: normal forms in which texts are matched; the texts themselves do not change."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest

from curate.documents.documents import documents
from curate.steps.registry import step_class
from llmcurate.base.errors import UsageError

SENTENCES = (
    "Mùa xuân đã về trên khắp các nẻo đường, hoa đào nở rộ và mọi người đón năm mới.",
    "Trẻ con háo hức chờ đợi những phong bao lì xì từ ông bà và cha mẹ trong nhà.",
    "Cả gia đình quây quần bên bữa cơm tất niên và kể chuyện của năm cũ cho nhau nghe.",
)
PLAIN = " ".join(SENTENCES)
DECOMPOSED = unicodedata.normalize("NFD", PLAIN)
WIDE = "".join(chr(ord(c) + 0xFEE0) if "A" <= c <= "z" else c for c in PLAIN)
HYPHENED = re.sub(r"(\w)(\w)", "\\1\xad\\2\u200b", PLAIN)
METHODS = [
    *[("dedup_exact", {}), ("dedup_minhash", {}), ("dedup_minhash", {"preset": "lee2022"})],
    *[("dedup_minhash", {"shingle": "byte"}), ("dedup_passages", {})],
    *[("dedup_passages", {"unit": unit}) for unit in ("sentences", "paragraph")],
    *[("dedup_bloom", {"mode": m}) for m in ("old-both", "paragraph", "document")],
    *[("dedup_bloom", {"mode": f"dolma-{m}"}) for m in ("paragraph", "document")],
]


def kept(bench, texts: list[str], out: str, step: str, **settings: Any) -> list[str]:
    """The texts that stay of the given ones."""
    source = bench.jsonl(f"{out}.jsonl", [{"id": f"{i}", "text": t} for i, t in enumerate(texts)])
    settings = {"survivor": "first", "max_removal": 1.0, **settings}
    bench.run([{step: settings}], source, out=out)
    return [row["text"] for row in bench.rows(out)]


@pytest.mark.parametrize(("step", "settings"), METHODS)
def test_a_normal_form_matches_texts_in_another_spelling(bench, step, settings) -> None:
    texts = [PLAIN, DECOMPOSED, WIDE, HYPHENED]
    assert kept(bench, texts, "raw", step, **settings) == texts
    assert kept(bench, texts, "folded", step, compare="nfkc_cf", **settings) == [PLAIN]


def test_nfc_finds_decomposed_letters_alone(bench) -> None:
    texts = [DECOMPOSED, PLAIN, WIDE, HYPHENED]
    assert kept(bench, texts, "out", "dedup_exact", compare="nfc") == [DECOMPOSED, WIDE, HYPHENED]


def test_a_passage_matched_by_normal_form_is_cut_from_the_original_text(bench) -> None:
    texts = [f"{PLAIN}\nthe end", f"Ｂegin\xad\n{DECOMPOSED}\nthe rest\xad of it"]
    settings = {"compare": "nfkc_cf", "min_sentences": 0}
    after = [texts[0], "Ｂegin\xad\nthe rest\xad of it"]
    assert kept(bench, texts, "lines", "dedup_passages", **settings) == after
    settings = {"compare": "nfkc_cf", "mode": "paragraph"}
    assert kept(bench, texts, "bloom", "dedup_bloom", **settings) == after


@pytest.mark.parametrize("mode", ["13-gram", "50-char", "overlap", "jaccard"])
def test_an_item_is_found_in_another_form(bench, mode) -> None:
    item = bench.jsonl("items.jsonl", [{"id": "q", "text": PLAIN}])
    source = bench.jsonl("in.jsonl", [{"id": "d", "text": DECOMPOSED}, {"id": "e", "text": "No."}])
    for compare, ids in (("raw", ["d", "e"]), ("nfc", ["e"]), ("nfkc_cf", ["e"])):
        settings = {"evals": [str(item)], "mode": mode, "compare": compare}
        bench.run([{"decontaminate": settings}], source, out=compare)
        assert sorted(bench.ids(compare)) == ids


@pytest.mark.lab
@pytest.mark.parametrize(
    ("step", "settings", "why"),
    [
        ("dedup_suffix_array", {}, "should be 'raw'"),
        ("dedup_semantic", {}, "should be 'raw'"),
        ("dedup_exact", {"key": "url"}, "nfc cannot be combined with key: url"),
        (
            "dedup_bloom",
            {"key": "url", "mode": "dolma-document"},
            "cannot be combined with key: url",
        ),
        ("decontaminate", {"evals": ["x"], "action": "cut"}, "cannot be combined with action: cut"),
    ],
)
def test_compare_is_refused_for_steps_that_cannot_use_a_normal_form(step, settings, why) -> None:
    with pytest.raises(ValueError, match=why):
        step_class(step)(**settings, compare="nfc")


@pytest.mark.parametrize(("step", "settings"), METHODS)
def test_raw_leaves_identity_and_index_as_they_were(step, settings) -> None:
    raw, folded = (step_class(step)(**settings, compare=form) for form in ("raw", "nfkc_cf"))
    for values in (raw.identity().values, raw.sketch_identity().values, raw.comparable()):
        assert "compare" not in json.dumps(values, default=str)
    for values in (folded.identity().values, folded.comparable()):
        assert unicodedata.unidata_version in json.dumps(values, default=str)
    empty = documents({"text": []}).within(step)
    assert raw.sketch(empty).schema == folded.sketch(empty).schema


def test_an_index_of_another_form_cannot_be_compared_with(bench) -> None:
    kept(bench, [PLAIN], "old", "dedup_exact", compare="nfc")
    against = [str(bench.folder / "old")]
    assert kept(bench, [DECOMPOSED], "new", "dedup_exact", compare="nfc", against=against) == []
    with pytest.raises(UsageError, match="made with compare: nfc"):
        kept(bench, [DECOMPOSED], "other", "dedup_exact", compare="nfkc_cf", against=against)


@pytest.mark.parametrize("step", ["dedup_exact", "dedup_minhash"])
def test_a_run_reports_how_many_duplicates_a_normal_form_would_add_on_a_sample(bench, step) -> None:
    def said(out: str, texts: list[str], **settings: Any) -> list[str]:
        kept(bench, texts, out, step, **settings)
        record = json.loads((bench.folder / out / "run.json").read_text())
        return [notice for notice in record["notices"] if "compare" in notice]

    texts = [PLAIN, PLAIN, DECOMPOSED, WIDE, "Another text that has no copy"]
    (notice,) = said("raw", texts)
    assert f"{step}: in a sample of 4 kept texts, 2 differ from another only in case" in notice
    assert said("folded", texts, compare="nfkc_cf") == said("clean", [PLAIN, "One", "Two"]) == []
