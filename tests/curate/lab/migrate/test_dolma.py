"""Dolma's taggers, mixer and deduper: each condition becomes the step with its rule."""

from __future__ import annotations

import json
import re

import pytest

from curate.lab.migrate import dolma
from llmcurate.base.errors import UsageError
from tests.curate.lab.migrate.peer_texts import edited, kept, migrated, settings, web_texts

GOPHER = "gopher_rules__gopher_v1__"


def mixer(exclude: list[str] = [], include: list[str] = [], spans: list[object] = []) -> str:  # noqa: B006
    stream = {
        **{"name": "a", "documents": ["in/*.gz"], "attributes": ["x"]},
        **{"filter": {"exclude": exclude, "include": include}, "span_replacement": spans},
    }
    return json.dumps({"streams": [stream]}, indent=1)


def below(attribute: str, limit: float) -> str:
    name = f"@.{attribute}"
    return f"$.attributes[?({name} && {name}[0] && {name}[0][2] < {limit})]"


def above(attribute: str, limit: float, sign: str = ">") -> str:
    return f"$.attributes[?(@.{attribute}[0][2] {sign} {limit})]"


def test_gophers_conditions_are_two_steps_with_the_other_rules_off() -> None:
    text = mixer(
        [
            below(f"{GOPHER}word_count", 80),
            above(f"{GOPHER}word_count", 150),
            above(f"{GOPHER}fraction_of_characters_in_most_common_2gram", 0.2),
            above(f"{GOPHER}fraction_of_characters_in_duplicate_10grams", 0.1),
        ]
    )
    quality, repetition = migrated(dolma, text, "mixer.json").steps
    assert settings(quality)["min_words"] == 80 and settings(quality)["max_words"] == 150
    assert settings(quality)["min_stop_words"] == 0
    assert settings(repetition)["max_top_n_gram_chars"] == {"2": 0.2}
    assert settings(repetition)["max_duplicate_n_gram_chars"] == {"10": 0.1}
    assert settings(repetition)["variant"] == "dolma"
    assert (quality.stands_for, repetition.stands_for) == (2, 2)


# The attributes of taggers/gopher.py and taggers/length.py, written from their descriptions.
@pytest.mark.parametrize(
    ("condition", "rule"),
    [
        (below(f"{GOPHER}word_count", 80), lambda t: len(t.split()) >= 80),
        (
            below(f"{GOPHER}fraction_of_words_with_alpha_character", 0.95),
            lambda t: (
                sum(map(bool, map(re.compile("[A-Za-z]").search, t.split())))
                >= 0.95 * len(t.split())
            ),
        ),
        (
            above(f"{GOPHER}fraction_of_duplicate_lines", 0.3),
            lambda t: (
                sum(t.split("\n").count(line) > 1 for line in t.split("\n"))
                <= 0.3 * len(t.split("\n"))
            ),
        ),
        (below("a__char_length_with_paragraphs_v1__document", 500), lambda t: len(t) >= 500),
        (above("a__char_length_v1__length", 500, ">="), lambda t: len(t) < 500),
    ],
)
def test_a_condition_drops_what_the_attribute_says(condition: str, rule) -> None:
    done = migrated(dolma, mixer([condition]), "mixer.json")
    expected = [rule(text) for text in web_texts()]
    assert kept(done.steps) == expected and 5 < sum(expected) < 195


def test_an_include_keeps_what_its_condition_says() -> None:
    condition = "$.attributes[?(@.exp__char_length_v1__length[0][2] < 500)]"
    (step,) = migrated(dolma, mixer(include=[condition]), "mixer.json").steps
    assert kept([step]) == [len(text) < 500 for text in web_texts()]
    several = migrated(dolma, mixer(include=[condition, condition]), "mixer.json")
    assert not several.steps and several.total == 2


def test_conditions_of_jq_are_read_too() -> None:
    name = ".attributes.exp__gopher_v2__word_count"
    test = 'type == "array" and length > 0 and .[0] != null and .[0][2] != null'
    condition = f"({name} | if {test} then .[0][2] < 50 else false end)"
    (step,) = migrated(dolma, mixer([condition]), "mixer.json").steps
    assert settings(step)["min_words"] == 50


@pytest.mark.parametrize(
    ("condition", "step", "some"),
    [
        (above("a__tokenizer_repetitions_v2r2__doc_max_score_repetition", 100, ">="),
         "periodic_repetition", {"min_times": 100}),
        (above("a__pii_regex_with_counts_fast_v2__doc_count", 5), "pii", {"max_found": 5}),
        (below("a__ft_lang_id_en_doc_v2__en", 0.5), "language", {"keep": ["en"], "threshold": 0.5}),
        (above("a__jigsaw_nsfw_document_v1____label__nsfw", 0.5), "tagger", {"action": "drop"}),
        ("$@.attributes[?(@.bff_duplicate_docs && @.bff_duplicate_docs[0] &&"
         " @.bff_duplicate_docs[0][2] >= 1.0)]", "dedup_bloom", {"mode": "dolma-document"}),
        (above("paloma_documents_bff_duplicates", 1.0, ">="), "bloom_file", {"key": "text"}),
        (above("documents_bff_duplicates", 1.0, ">="), "dedup_bloom", {"mode": "dolma-document"}),
        (above("bff_duplicate_paragraph_spans", 1.0, ">="), "dedup_bloom",
         {"mode": "dolma-paragraph"}),
        (above("bff_duplicate_paragraph_spans_decontamination", 1.0, ">="), "decontaminate",
         {"mode": "overlap"}),
        (below("whitespace_tokenizer_with_paragraphs_v1__document", 50), "document_length",
         {"unit": "words", "words": "split", "min": 50}),
        ("$.attributes[?(@['u__blocklist_hosts_porn_v1__url'] && !@['u__allowlist_v1__url'])]",
         "url_filter", {"hosts": "blocklist_hosts_porn_v1.txt", "allow": "@allowlist_v1.txt"}),
    ],
)  # fmt: skip
def test_the_step_of_a_condition(condition: str, step: str, some: dict[str, object]) -> None:
    (mapped,) = migrated(dolma, mixer([condition]), "mixer.json").steps
    assert mapped.step == step and some.items() <= settings(mapped).items()


def test_spans_are_cut_and_replaced() -> None:
    spans = [
        {"span": "$.attributes.a__pii__EMAIL_ADDRESS", "min_score": 0.5, "replacement": "|||E|||"},
        {"span": "$.attributes.a__pii__IP_ADDRESS", "min_score": 0.5, "replacement": "|||E|||"},
        {"span": "$.attributes.a__not_alphanum__all_punct", "min_score": 0.5, "replacement": ""},
        {"span": "$.attributes.a__u__negative_paragraph", "min_score": -2, "replacement": ""},
        {"span": "$.attributes.a__jigsaw_nsfw_sentence_v2____label__nsfw", "min_score": 0.4,
         "replacement": ""},
        {"span": "$.attributes.pii.name", "min_score": 0.4, "replacement": ""},
    ]  # fmt: skip
    done = migrated(dolma, mixer(spans=spans), "mixer.json")
    pii, *cuts, tagger = done.steps
    assert settings(pii) == {
        **{"replacement": "token", "emails": True, "ips": True, "phones": False},
    }
    texts = edited(tuple(cuts), ["***\none two three\nnot this\n\nand four words here"])
    assert texts == ["one two three\nand four words here"]
    assert settings(tagger)["threshold"] == 0.4 and settings(tagger)["unit"] == "sentence"
    assert (done.mapped, done.total) == (5, 6)


def test_spans_of_duplicates_and_of_evaluation_data_are_cut() -> None:
    name = "$.attributes.bff_duplicate_paragraph_spans"
    names = (name, f"{name}_decontamination")
    spans = [{"span": name, "min_score": 0.5, "replacement": ""} for name in names]
    duplicates, evaluation = migrated(dolma, mixer(spans=[*spans]), "mixer.json").checked().steps
    assert settings(duplicates) == {"mode": "dolma-paragraph"}
    assert (evaluation.step, settings(evaluation)["action"]) == ("decontaminate", "cut")


def test_other_attributes_of_the_deduper_are_not_mapped() -> None:
    done = migrated(dolma, mixer([above("bff_duplicate_hashes", 1.0)]), "mixer.json")
    assert not done.steps and done.remarks[0].unmapped


@pytest.mark.parametrize(
    ("dedupe", "bloom", "step", "some"),
    [
        ({"documents": {"key": "$.metadata.url"}}, {"desired_false_positive_rate": 1e-15},
         "dedup_bloom", {"mode": "dolma-document", "key": "url", "false_positives": 1e-9}),
        ({"paragraphs": {}}, {"estimated_doc_count": 9}, "dedup_bloom",
         {"mode": "dolma-paragraph", "expected": 9}),
        ({"paragraphs": {"by_ngram": {"ngram_length": 6, "overlap_threshold": 0.5}}}, {},
         "dedup_bloom", {"mode": "paragraph", "ngram": 6, "threshold": 0.5}),
        ({"paragraphs": {}}, {"read_only": True}, "decontaminate", {"mode": "overlap"}),
    ],
)  # fmt: skip
def test_the_deduper(dedupe: object, bloom: object, step: str, some: dict[str, object]) -> None:
    text = json.dumps({"documents": ["a"], "dedupe": dedupe, "bloom_filter": bloom})
    (mapped,) = migrated(dolma, text, "dedupe.json").steps
    assert mapped.step == step and some.items() <= settings(mapped).items()


def test_streams_with_the_same_filters_are_one_recipe_of_all_their_inputs() -> None:
    same = {"documents": ["b"], "filter": {"exclude": [above(f"{GOPHER}word_count", 9)]}}
    other = {"documents": ["c"], "filter": {"exclude": [above(f"{GOPHER}word_count", 8)]}}
    done = migrated(dolma, json.dumps({"streams": [same, same, other]}), "mixer.json")
    assert done.input is not None and done.input.value == ["b", "b", "c"]
    assert len(done.steps) == 1 and (done.mapped, done.total) == (1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"streams": 3}', "streams must be a list"),
        ('{"streams": [3]}', "a stream must be a mapping"),
        ('{"streams": [{"filter": {"exclude": 3}}]}', "exclude must be a list"),
        ('{"streams": [{"span_replacement": [{"min_score": "x"}]}]}', "min_score must be a number"),
        ('{"dedupe": {"documents": 3}}', "documents must be a mapping"),
        ('{"dedupe": {}, "bloom_filter": {"read_only": 3}}', "read_only must be true or false"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^their.json:1: .*{message}"):
        migrated(dolma, text, "their.json")
