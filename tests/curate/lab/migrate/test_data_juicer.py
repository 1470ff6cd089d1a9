"""Data-Juicer's operators do here what their published rules say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from curate.filters.special_characters import SPECIAL
from curate.lab.filters.roots import stripped
from curate.lab.migrate import data_juicer
from llmcurate.base.errors import UsageError
from tests.curate.lab.migrate.peer_texts import edited, kept, migrated, settings, web_texts


def recipe(*operators: object) -> str:
    return yaml.safe_dump({"process": list(operators)})


def words_of(text: str) -> list[str]:
    return [word for word in map(stripped, re.split("[ \n\t]", text)) if word]


def longest_line(text: str) -> int:
    return max(map(len, text.splitlines()))


def repeated_characters(text: str, n: int) -> float:
    counts = sorted(Counter(text[i : i + n] for i in range(len(text) - n + 1)).values())[::-1]
    most = min(int(len(counts) ** 0.5), sum(count > 1 for count in counts))
    return sum(counts[:most]) / sum(counts)


def repeated_words(text: str, n: int) -> float:
    words = words_of(text.lower())
    counts = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)).values()
    return sum(count for count in counts if count > 1) / sum(counts) if counts else 0.0


# Written from the descriptions of data_juicer/ops/filter.
EXACT: list[tuple[str, dict[str, float], Callable[[str], bool]]] = [
    (
        "alphanumeric_filter",
        {"min_ratio": 0.75},
        lambda t: sum(map(str.isalnum, t)) / len(t) >= 0.75,
    ),
    (
        "special_characters_filter",
        {"max_ratio": 0.24},
        lambda t: sum(c in SPECIAL for c in t) / len(t) <= 0.24,
    ),
    (
        "character_repetition_filter",
        {"rep_len": 5, "max_ratio": 0.2},
        lambda t: repeated_characters(t, 5) <= 0.2,
    ),
    (
        "word_repetition_filter",
        {"rep_len": 3, "max_ratio": 0.2},
        lambda t: repeated_words(t, 3) <= 0.2,
    ),
    ("text_length_filter", {"min_len": 300, "max_len": 900}, lambda t: 300 <= len(t) <= 900),
    ("words_num_filter", {"min_num": 80}, lambda t: len(words_of(t)) >= 80),
    (
        "average_line_length_filter",
        {"min_len": 35},
        lambda t: len(t) / len(t.splitlines()) >= 35,
    ),
    ("maximum_line_length_filter", {"max_len": 110}, lambda t: 10 <= longest_line(t) <= 110),
]


@pytest.mark.parametrize(("name", "params", "rule"), EXACT, ids=[case[0] for case in EXACT])
def test_a_filter_keeps_what_its_published_rule_keeps(
    name: str, params: dict[str, float], rule: Callable[[str], bool]
) -> None:
    done = migrated(data_juicer, recipe({name: params}))
    expected = [rule(text) for text in web_texts()]
    assert kept(done.steps) == expected and 5 < sum(expected) < 195


def test_the_share_of_listed_words_is_theirs(tmp_path: Path) -> None:
    operator = {"stopwords_filter": {"lang": "en", "min_ratio": 0.1}}
    (step,) = migrated(data_juicer, recipe(operator)).steps
    assert settings(step) == {"words": "stopwords.en.txt", "min": 0.1, "max": 1.0}
    (tmp_path / "stopwords.en.txt").write_text("the\nand\n")
    words_file = replace(step.settings[0], value=str(tmp_path / "stopwords.en.txt"))
    words = [words_of(text.lower()) for text in web_texts()]
    expected = [sum(w in ("the", "and") for w in each) / len(each) >= 0.1 for each in words]
    assert kept([replace(step, settings=(words_file, *step.settings[1:]))]) == expected
    assert 5 < sum(expected) < 195


def test_mappers_change_texts_as_theirs_do() -> None:
    texts = ["\n Write to a.b@c.example  now\t", "see https://a.example/x?y=(1) or", "“Ｏk”，—… １"]
    texts.append("from 192.168.0.255 or 2001:db8:0:0:0:0:0:1, version 1.2")
    names = ["clean_email", "clean_links", "punctuation_normalization", "whitespace_normalization"]
    names.append("clean_ip")
    email, links, signs, blanks, ips = (
        edited(migrated(data_juicer, recipe(f"{name}_mapper")).steps, texts) for name in names
    )
    assert email[0] == "\n Write to   now\t"
    assert links[1] == "see  or"
    assert signs[2] == '"Ｏk", - ... "'
    assert blanks[0] == "Write to a.b@c.example  now"
    assert ips[3] == "from  or , version 1.2"


def without_tables(text: str) -> str:
    for columns in range(2, 6):
        text = re.sub(rf"(?<=\n)((\S+?)([ |\t](\S+?)){{{columns - 1}}}\n+){{2,}}", "", text)
    return text


def test_signs_and_tables_are_removed_as_theirs_are() -> None:
    texts = [
        "◆ 中文 abc 12 é🙂|。!",
        "head\na b\nc d\n\none two three\n1 2 3\n4 5 6\nend",
        *web_texts(),
    ]
    operators = (
        {"remove_specific_chars_mapper": {"chars_to_remove": "◆é"}},
        {"remove_non_chinese_character_mapper": {"keep_number": False, "keep_punc": False}},
        {"remove_table_text_mapper": {"max_col": 5}},
    )
    signs, chinese, tables = (
        edited(migrated(data_juicer, recipe(each)).steps, texts) for each in operators
    )
    assert signs[0] == " 中文 abc 12 🙂。!"
    assert chinese[0] == "中文abc"
    assert tables[1] == "head\nend" and tables == [without_tables(text) for text in texts]


def test_a_random_share_is_read_and_a_random_number_is_not() -> None:
    drawn = migrated(data_juicer, recipe({"random_selector": {"select_ratio": 0.2}}))
    assert [(s.name, s.value) for s in drawn.read] == [("share", 0.2)]
    number = migrated(data_juicer, recipe({"random_selector": {"select_num": 20}}))
    assert number.remarks[0].unmapped


def test_filters_of_a_field_are_filters_of_a_column() -> None:
    numbers = {"specified_numeric_field_filter": {"field_key": "stars", "min_value": 5}}
    values = {"specified_field_filter": {"field_key": "kind", "target_value": ["a", 3, True]}}
    first, second = migrated(data_juicer, recipe(numbers, values)).checked().steps
    assert (first.step, settings(first)) == ("column_filter", {"column": "stars", "min": 5})
    assert settings(second) == {"column": "kind", "keep": ["a", "3", "true"]}
    inner = {"specified_field_filter": {"field_key": "meta.kind", "target_value": ["a"]}}
    assert "inside a column" in migrated(data_juicer, recipe(inner)).remarks[0].message


def test_a_pattern_and_its_text_of_their_own() -> None:
    operator = {"replace_content_mapper": {"pattern": "r'a.(b)'", "repl": "<\\1>"}}
    assert edited(migrated(data_juicer, recipe(operator)).steps, ["a\nb ab"]) == ["<b> ab"]


def test_defaults_of_theirs_are_written_out_with_their_origin() -> None:
    (step,) = migrated(data_juicer, recipe("alphanumeric_filter")).steps
    assert settings(step) == {"min": {"alphanumerics": 0.25}, "profile": "none"}
    (least,) = step.settings[0].value  # type: ignore[misc]
    assert least.origin == "alphanumeric_filter.min_ratio: default of Data-Juicer 1.4"


def test_deduplicators_have_their_constants() -> None:
    text = recipe(
        {"document_minhash_deduplicator": {"tokenization": "character", "jaccard_threshold": 0.8}},
        {"document_simhash_deduplicator": {"window_size": 3, "ignore_pattern": "\\p{P}"}},
    )
    minhash, simhash = migrated(data_juicer, text).steps
    assert settings(minhash) == {
        **{"shingle": "char", "ngram": 5, "threshold": 0.8, "permutations": 256},
        **{"normalize": "lower", "survivor": "first"},
    }
    assert settings(simhash) == {
        **{"shingle": "word", "ngram": 3, "max_distance": 4},
        **{"normalize": "datatrove", "survivor": "first"},
    }


def test_what_no_step_does_is_said_with_its_line() -> None:
    text = "dataset_path: a.jsonl\nprocess:\n  - image_shape_filter:\n      min_width: 5\n"
    done = migrated(data_juicer, text)
    assert done.input is not None and done.input.value == "a.jsonl"
    assert str(done.remarks[0]).startswith("line 3: image_shape_filter: not mapped")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("process: {a: 1}", "their.yaml:1: process must be a list"),
        ("process:\n- 3", "their.yaml:2: an operator must be a mapping"),
        ("process:\n- a: 3", "their.yaml:2: settings of a must be a mapping"),
        (
            "process:\n- words_num_filter:\n    max_num: few",
            "their.yaml:3: words_num_filter.max_num must be a number, not 'few'",
        ),
        (
            "process:\n- clean_email_mapper:\n    repl: 3",
            "their.yaml:3: clean_email_mapper.repl must be a text, not 3",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        migrated(data_juicer, text)


def test_hostile_yaml_is_refused_in_one_line() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefgh", "abcdefg", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for text in (bomb + "process: []", "process: " + "[" * 99, "process: !!python/object:os.x {}"):
        with pytest.raises(UsageError, match=r"^their\.yaml"):
            data_juicer.migrate(text, Path("their.yaml"), {"process": []})
