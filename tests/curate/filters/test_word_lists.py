"""Own lists of words: in the recipe or in a file, for every step with such rules."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.documents.edits import edits_of
from curate.filters.bad_words import BadWords
from curate.filters.c4 import C4
from curate.filters.gopher import GopherQuality
from curate.filters.refinedweb import RefinedWebLines
from curate.lab.filters.code import Code
from curate.lab.filters.roots import Roots, RootsWords
from curate.steps.contracts import Settings, Step
from curate.steps.recipe import parse
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench
from tests.curate.filters.filter_texts import applied

PROSE = "The cat sat on the mat. The dog sat on the rug. The bird sat in the tree."
ENGLISH = {"min_sentences": 0, "min_words_per_line": 1, "require_end_mark": False}


def cut_rules(step: Step, text: str) -> list[str]:
    docs = step.apply(documents({"id": ["a"], "text": [text]}).within(step.name))
    return [edit.rule for row in docs.split()[0].to_pylist() for edit in edits_of(row)]


def dropped_by(step: Step, text: str, **columns: list[str]) -> set[str]:
    docs = step.apply(documents({"id": ["a"], "text": [text], **columns}).within(step.name))
    return {drop.rule for drop in docs.drops}


def test_the_phrases_of_c4_are_the_users() -> None:
    page = "Ponemos GALLETAS en tu equipo\nUse cookies here\nWe need JavaScript\nEl texto queda"
    assert cut_rules(C4(**ENGLISH), page) == ["policy", "javascript"]
    own = C4(**ENGLISH, policy_phrases=["galletas"], javascript_phrases=[])
    assert cut_rules(own, page) == ["policy"]
    filler = C4(**ENGLISH, lorem_ipsum_phrases=["texto queda"])
    assert dropped_by(filler, page) == {"lorem_ipsum"}


def test_case_is_folded_outside_ascii_too() -> None:
    own = C4(**ENGLISH, policy_phrases=["Политика", "ökotext", "kjekk"])
    assert cut_rules(own, "ПОЛИТИКА тут\nHier ÖKOTEXT da\nDet er \u212ajekk\nEt politik") == [
        "policy"
    ]


@given(
    st.lists(st.text("kvaеé[\u212a", min_size=1, max_size=4), min_size=1, max_size=9),
    st.text("kKvVaAеЕéÉ[\u212ab", max_size=12),
)
def test_phrases_are_found_as_in_lower_case_text(phrases: list[str], inner: str) -> None:
    """Also with more phrases than the search has bits, and with anchors side by side."""
    step = C4(**ENGLISH, policy_phrases=phrases)
    is_there = any(phrase.lower() in inner.lower() for phrase in phrases)
    # A page without any other line is dropped.
    assert dropped_by(step, f"x{inner}x") == ({"no_line_left"} if is_there else set())


def test_stop_words_of_the_user_count_in_every_language(tmp_path: Path) -> None:
    text = "der Hund und die Katze und der Vogel saßen hier auf dem Baum " * 6
    english = GopherQuality(min_words=0, profile="none")
    assert dropped_by(english, text) == {"stop_words"}
    file = tmp_path / "german.txt.gz"
    file.write_bytes(gzip.compress(b"# the most frequent\nder\nund\r\n\ndie\n"))
    for own in (["der", "und", "die"], file):
        for lang in ("en", "de"):
            step = GopherQuality(min_words=0, stop_words=own)
            docs = documents({"id": ["a"], "text": [text], "lang": [lang]}).within(step.name)
            assert step.apply(docs).table["gopher_quality.stop_words"].to_pylist() == [3]
    dolma = GopherQuality(variant="dolma", min_words=0, stop_words=("der", "und"))
    assert applied(dolma, [text])[0].table["gopher_quality.stop_words"].to_pylist() == [24]


def test_other_steps_take_lists_too(tmp_path: Path) -> None:
    assert cut_rules(
        RefinedWebLines(counted=["leser"], max_removed_words=1), f"5 Leser\n{PROSE}"
    ) == ["counter"]
    assert (
        cut_rules(RefinedWebLines(counted=["leser"], max_removed_words=1), f"5 likes\n{PROSE}")
        == []
    )
    (tmp_path / "ends.txt").write_text("weiterlesen\n", encoding="utf-8")
    ends = RefinedWebLines(line_ends=tmp_path / "ends.txt", max_removed_words=1)
    assert cut_rules(ends, f"Der Hund Weiterlesen\n{PROSE}") == ["line_end"]
    words = RootsWords(lang="en", address_parts=["ftp:"])
    assert cut_rules(words, "see ftp:x and http:y") == ["address"]
    code = Code(generated_phrases=["Erzeugt von"], max_mean_line=999)
    assert dropped_by(code, f"# erzeugt von make\n{PROSE}") == {"generated"}
    assert dropped_by(BadWords(badwords=["mat", "rat"]), PROSE) == {"bad_word"}
    assert dropped_by(BadWords(badwords=["mat"], badwords_lang="de"), PROSE, lang=["en"]) == set()
    assert "flagged_words" in dropped_by(Roots(lang="en", flagged_words=["Cat"]), PROSE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\n\xff\xfe\n", r"list\.txt:2: not UTF-8 text"),
        (b"good\nof the\n", r"list\.txt:2: 'of the' is more than one word"),
        (b"x" * 201, r"list\.txt:1: 'x+' is no entry: .* one entry per line"),
        (b"a\0b", r"list\.txt:1: 'a\\x00b' is no entry"),
        (b"# nothing\n\n", r"list\.txt has no entries"),
        (None, r"cannot read .*list\.txt"),
    ],
)
def test_a_bad_file_is_named_with_its_line_before_the_run(
    bench: Bench, content: bytes | None, message: str
) -> None:
    path = bench.folder / "list.txt"
    if content is not None:
        path.write_bytes(content)
    source = bench.jsonl("in.jsonl", [{"text": PROSE}])
    with pytest.raises(UsageError, match=message) as caught:
        bench.run([{"gopher_quality": {"stop_words": str(path)}}], source)
    assert "\n" not in str(caught.value) and not (bench.folder / "out" / "corpus").exists()


def test_a_bad_entry_of_a_recipe_is_named_with_its_line() -> None:
    for entry, step in (("of the", "gopher_quality: {stop_words"), ("", "c4: {policy_phrases")):
        with pytest.raises(UsageError, match=rf"^r\.yaml:1: .*{entry!r} is "):
            parse(f"steps: [{{{step}: [{entry!r}]}}}}]", "r.yaml")


def test_the_content_of_a_list_decides_the_signature(tmp_path: Path) -> None:
    def signature(step: Settings) -> object:
        return step.identity().values

    path = tmp_path / "list.txt"
    path.write_text("one\n", encoding="utf-8")
    before = signature(C4(policy_phrases=path))
    assert signature(C4(policy_phrases=path)) == before
    path.write_text("two\n", encoding="utf-8")
    assert signature(C4(policy_phrases=path)) != before
