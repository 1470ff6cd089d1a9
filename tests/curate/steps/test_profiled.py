"""Rules with limits per language, and explicit settings for all languages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curate.documents.documents import Documents, documents
from curate.documents.rejected import reasons_of
from curate.steps.contracts import Step
from curate.steps.recipe import make_step, parse
from llmcurate.base.errors import UsageError

THAI = "รัฐบาลประกาศว่าจะให้ความช่วยเหลือแก่ประชาชนที่ได้รับผลกระทบจากน้ำท่วมในหลายจังหวัดของภาคใต้ โดยไม่ต้องรอ "
GERMAN = (
    "Der Bundestag hat am Donnerstag in Berlin über die Verkehrssicherheitsverordnung beraten. "
)
ENGLISH = "The council has said that it will have a plan to be put to the vote of its members with "
RULES = ("gopher_quality", "gopher_repetition", "fineweb_quality")
ESTIMATE = {"words": "estimate"}


def varied(sentence: str, count: int = 12) -> str:
    """Sentences that differ, one a line."""
    return "\n".join(f"{sentence}{number}." for number in range(count))


def step_of(name: str, **settings: Any) -> Step:
    step = make_step(name, {**ESTIMATE, **settings})
    assert isinstance(step, Step)
    return step


def applied(name: str, rows: list[tuple[str, str | None]], **settings: Any) -> Documents:
    docs = documents({"text": [t for t, _ in rows], "lang": [lang for _, lang in rows]})
    return step_of(name, **settings).apply(docs.within(name))


def rules(docs: Documents) -> list[set[str]]:
    marked: list[set[str]] = [set() for _ in range(len(docs))]
    for drop in docs.drops:
        for row in drop.rows.tolist():
            marked[row].add(drop.rule)
    return marked


def test_a_language_is_judged_by_its_profile_and_english_by_the_rules_own() -> None:
    rows = [(varied(THAI), "th"), (varied(THAI), None), (varied(ENGLISH), "en")]
    thai, unlabelled, english = rules(applied("gopher_quality", rows))
    assert not thai and not english
    assert unlabelled >= {"long_words", "stop_words"}


def test_profile_none_judges_all_by_the_rules_own_limits() -> None:
    (thai,) = rules(applied("gopher_quality", [(varied(THAI), "th")], profile="none"))
    assert thai >= {"long_words", "stop_words"}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("variant", ["datatrove", "paper"])
def test_a_document_is_measured_alike_alone_and_among_other_languages(
    name: str, variant: str
) -> None:
    """The columns of each row are those of a batch of it alone: order and company change none."""
    rows = [(varied(THAI), "tha_Thai"), (varied(ENGLISH), "en"), ("", None), (varied(GERMAN), "de"),
            (varied(THAI, 3), "th"), (varied(ENGLISH, 2), None)]  # fmt: skip
    together = applied(name, rows, variant=variant)
    columns = [c for c in together.table.column_names if c.startswith(f"{name}.")]
    assert columns
    for row, document in enumerate(rows):
        alone = applied(name, [document], variant=variant)
        assert alone.table.select(columns).to_pylist()[0] == together.table.select(
            columns
        ).slice(row, 1).to_pylist()[0]  # fmt: skip
        assert rules(alone)[0] == rules(together)[row]


@pytest.mark.parametrize("name", RULES)
def test_english_is_measured_and_judged_as_without_profiles(name: str) -> None:
    rows = [(varied(ENGLISH), "en"), (varied(ENGLISH, 2), None), ("word " * 80, "eng_Latn")]
    auto, none = applied(name, rows), applied(name, rows, profile="none")
    assert auto.table == none.table and rules(auto) == rules(none)


def test_a_reason_has_the_threshold_that_held_for_its_document() -> None:
    rows = [("Rindfleischetikettierungsüberwachung " * 60, "de"), ("a" * 30 + " ", "en")]
    rows[1] = (rows[1][0] * 60, "en")
    _, rejected = applied("gopher_quality", rows).split()
    limits = {r.rule: r.threshold for r in reasons_of(rejected.to_pylist()[0])}
    english = {r.rule: r.threshold for r in reasons_of(rejected.to_pylist()[1])}
    assert limits["long_words"] == 15 and english["long_words"] == 10


def test_an_explicit_setting_applies_to_all_languages() -> None:
    text = "Rindfleischetikettierungsüberwachung und die der " * 30
    (auto,) = rules(applied("gopher_quality", [(text, "de")]))
    (given,) = rules(applied("gopher_quality", [(text, "de")], max_word_length=10))
    assert "long_words" not in auto and "long_words" in given


def test_written_settings_leave_out_what_profiles_decide_and_read_back_the_same() -> None:
    step = step_of("gopher_quality", min_words=20)
    written = step.resolved()
    assert "max_word_length" not in written and written["min_words"] == 20
    again = make_step("gopher_quality", written)
    assert again.limits() == step.limits()
    assert step_of("gopher_quality", profile="none").resolved()["max_word_length"] == 10
    given = make_step("gopher_quality", {**written, "max_word_length": 12})
    assert next(x for x in given.limits() if x.rule == "long_words").by_lang is False


def test_a_profile_of_ones_own_is_part_of_the_stage(tmp_path: Any) -> None:
    path = tmp_path / "profiles.yaml"
    path.write_text("nl: {stop_words: [de, het, een]}\n", "utf-8")
    recipe = f"steps: [gopher_quality: {{profile: {tmp_path}}}]"
    (step,) = parse(recipe, "x").steps
    before = step.identity()
    path.write_text("nl: {stop_words: [de, het, een, van]}\n", "utf-8")
    (step,) = parse(recipe, "x").steps
    assert step.identity() != before


def test_an_unknown_way_to_count_words_is_refused_when_the_recipe_is_read() -> None:
    for name, value, others in (
        ("ratios", "split", ""),
        ("document_length", "spilt", "split, unicode, "),
        ("gopher_quality", "tha,kligon=12", ""),
    ):
        with pytest.raises(UsageError) as error:
            parse(f"steps: [{{{name}: {{words: '{value}'}}}}]", "r.yaml")
        choices = f"auto, estimate, {others}tha, lao, zho"
        assert str(error.value) == f"r.yaml:1: {name}: words {value!r}: use {choices}"
    parse("steps: [{ratios: {words: 'lao=12, tha'}}, {document_length: {words: split}}]", "r.yaml")


def test_repeated_passages_are_found_whatever_precedes_them() -> None:
    """Clusters slide, so that no cut of words has to fall on the same place."""
    from curate.filters.gopher_measures import repetition_measures
    from curate.text.languages import shipped

    passage = THAI.replace(" ", "")
    shares = []
    for between in ("", "ก", "กา", "กาน"):
        docs = documents({"text": [passage + between + passage]}).within("r")
        table = repetition_measures(docs, "datatrove", shipped()["tha"]).table
        shares.append(table["r.duplicate_5_gram_chars"].to_numpy()[0])
    assert min(shares) > 0.4 and np.ptp(shares) < 0.03
