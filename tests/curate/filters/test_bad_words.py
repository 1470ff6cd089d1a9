"""The bad word rule: boundaries, languages, softening by URL, checked lists."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from curate.documents.documents import documents
from curate.filters import bad_words as badwords
from curate.filters.bad_words import BadWords
from curate.filters.c4 import C4
from llmcurate.base.disk.files import cache_folder
from llmcurate.base.errors import UsageError
from tests.curate.one_file_web import OneFileWeb

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))

GOOD = "The cat sat on the mat. The dog sat on the rug. The bird sat in the {} tree."


@pytest.fixture
def word_list(tmp_path) -> Path:
    path = tmp_path / "words.jsonl"
    terms = [("en", "badword"), ("en", "two words"), ("en", "c++"), ("ja", "悪い"), ("de", "übel")]
    path.write_text("".join(json.dumps({"lang": a, "term": b}) + "\n" for a, b in terms))
    return path


def found(word_list, text: str, lang: str | None = None, url: str | None = None, **settings):
    step = C4(badwords=str(word_list), **settings)
    step.open()
    docs = documents({"id": ["a"], "text": [GOOD.format(text)], "lang": [lang], "url": [url]})
    rejected = step.apply(docs.within("c4")).split()[1]
    assert set(rejected["rule"].to_pylist()) <= {"bad_word"}
    return rejected["detail"].to_pylist()[0] if len(rejected) else None


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("badword", "badword"),
        ("BadWord", "badword"),
        ("(badword)", "badword"),
        ("-badword-", "badword"),
        ("two words", "two words"),
        ("c++", "c++"),
        ("badwords", None),
        ("abadword", None),
        ("badword_", None),
        ("ébadword", None),
        ("two  words", None),
        ("übel", None),
    ],
)
def test_a_word_counts_between_boundaries_only(word_list, text, detail):
    assert found(word_list, text) == detail


def test_a_word_at_either_end_of_the_page_counts(word_list):
    pattern = badwords.patterns(str(word_list), None)["en"]
    assert pattern.search("badword and more")
    assert pattern.search("more and badword")


def test_japanese_has_no_boundaries(word_list):
    assert found(word_list, "とても悪いです", lang="ja") == "悪い"
    assert found(word_list, "とても悪いです", lang="en") is None


def test_the_language_decides_and_unknown_ones_use_the_default(word_list):
    assert found(word_list, "übel", lang="de") == "übel"
    for lang in ("de-AT", "DE", "De_at", "deu", "deu_Latn", "de-x-wild"):
        assert found(word_list, "übel", lang=lang) == "übel", lang
    assert found(word_list, "badword", lang="de") is None
    assert found(word_list, "übel", badwords_lang="de") == "übel"
    assert found(word_list, "badword", lang="xx") is None


def test_the_prefix_tree_matches_what_plain_alternatives_match():
    import re

    words = ["a", "ab", "abc", "abd", "b.", "b", "bcd e", "ü"]
    tree = badwords.badwords_regex(words, "en")
    plain = re.compile(r"(?:\W|^)(" + "|".join(map(re.escape, words)) + r")(?:\W|$)")
    for text in ["a", "xab", "ab", "abx abd", "b.", "b.x", "bcd  e bcd e", "-ü-", "üb", "", "b,"]:
        assert bool(tree.search(text)) == bool(plain.search(text)), text


def test_softened_by_the_md5_of_the_url(word_list):
    urls = [f"https://example.org/{i}" for i in range(400)]
    quarter = [found(word_list, "badword", url=u, badwords_fraction=0.25) for u in urls]
    expected = [int(hashlib.md5(u.encode()).hexdigest(), 16) % 4 < 1 for u in urls]
    assert [q is not None for q in quarter] == expected
    assert found(word_list, "badword", url=urls[0], badwords_fraction=0.0) is None
    assert found(word_list, "badword", url=None, badwords_fraction=1.0) == "badword"


def test_another_sha256_is_refused(word_list):
    right = hashlib.sha256(word_list.read_bytes()).hexdigest()
    assert badwords.read_words(str(word_list), right.upper())["de"] == ["übel"]
    with pytest.raises(UsageError, match=r"has sha256 .*, expected"):
        C4(badwords=str(word_list), badwords_sha256="0" * 64).open()


def test_a_missing_list_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*nowhere\.txt"):
        C4(badwords=str(tmp_path / "nowhere.txt")).open()


def test_a_url_needs_its_sha256():
    with pytest.raises(UsageError, match="badwords_sha256"):
        C4(badwords="https://example.org/words.txt").open()


def test_a_line_without_a_word_is_named(tmp_path):
    path = tmp_path / "words.jsonl"
    path.write_text('{"term": "x"}\n{"lang": "en"}\n')
    with pytest.raises(UsageError, match=r"words\.jsonl:2 has no word"):
        badwords.read_words(str(path), None)


def test_a_list_without_words_is_refused(tmp_path):
    path = tmp_path / "words.jsonl"
    path.write_text('{"lang": "de", "term": " "}\n')
    with pytest.raises(UsageError, match="no word for language 'de'"):
        C4(badwords=str(path)).open()


def test_plain_lines_are_of_the_default_language(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("übel\n")
    assert found(path, "übel", badwords_lang="de") == "übel"
    assert found(path, "übel") == "übel" and found(path, "übel", lang="de") is None


def test_a_dialects_words_are_its_languages(tmp_path):
    path = tmp_path / "words.jsonl"
    path.write_text('{"lang": "fr-CA-u-sd-caqc", "term": "osti"}\n')
    assert found(path, "osti", lang="fr") == "osti"


def test_plain_lines_are_english_and_gzip_is_unpacked(tmp_path):
    path = tmp_path / "words.txt.gz"
    path.write_bytes(gzip.compress(b"one\n\ntwo words\n"))
    assert badwords.read_words(str(path), None) == {"en": ["one", "two words"]}


@pytest.fixture
def nothing_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")


def pin(monkeypatch, **lists: bytes) -> None:
    """Makes these contents the published lists, by language."""
    files = {
        k: replace(badwords.LISTS[k], size=len(v), sha256=hashlib.sha256(v).hexdigest())
        for k, v in lists.items()
    }
    monkeypatch.setattr(badwords, "LISTS", files)


@pytest.mark.usefixtures("nothing_fetched")
def test_a_published_list_is_fetched_once_and_checked(monkeypatch):
    pin(monkeypatch, en=b"badword\n")
    web = OneFileWeb(monkeypatch, b"badword\n")
    assert C4(badwords="ldnoobw:en").to_fetch() == [
        "https://raw.githubusercontent.com/LDNOOBW/"
        "List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words/"
        "25e679f03d96baa721cde20db9944649e8d0a844/en"
    ]
    assert found("ldnoobw:en", "badword") == "badword"
    assert found("ldnoobw:en", "good") is None
    assert len(web.asked) == 1
    assert C4(badwords="ldnoobw:en").to_fetch() == []


@pytest.mark.usefixtures("nothing_fetched")
@pytest.mark.parametrize("content", [b"another\n", b"badword\nmore\n", None])
def test_a_bad_word_list_with_another_content_is_not_used(monkeypatch, content):
    pin(monkeypatch, en=b"badword\n")
    OneFileWeb(monkeypatch, content)
    with pytest.raises(UsageError, match=r"no bad word list: give .*\(download failed"):
        C4(badwords="ldnoobw:en").open()
    assert not list(cache_folder().rglob("en"))


@pytest.mark.usefixtures("nothing_fetched")
def test_without_path_or_network_one_line_says_what_to_give():
    with pytest.raises(UsageError) as caught:
        C4(badwords="ldnoobw:en").resources()
    line = str(caught.value)
    assert line.startswith(
        "no bad word list: give --set c4.badwords=PATH, or switch the rule off with"
    )
    assert "25e679f03d96baa721cde20db9944649e8d0a844/en" in line and "\n" not in line


@pytest.mark.usefixtures("nothing_fetched")
def test_where_a_published_list_cannot_be_had_the_step_goes_without_and_says_so(capsys):
    step = C4(badwords="ldnoobw:en").without_missing_files()
    assert step.badwords is None and step.notes() and not step.resources()
    (line,) = capsys.readouterr().err.splitlines()
    without = "c4: runs without badwords=ldnoobw:en (LLMCURATE_OFFLINE is set)"
    assert line == f"{without}; the next run with a network fetches them"


def test_a_users_own_bad_word_list_is_kept(word_list):
    step = C4(badwords=str(word_list))
    assert step.without_missing_files() is step


@pytest.mark.usefixtures("nothing_fetched")
def test_lists_are_by_language_and_leave_out_what_c4_leaves_out(monkeypatch):
    words = "グロ\n悪い\n".encode()
    pin(monkeypatch, **{"ja": words, "fr": words, "fr-CA-u-sd-caqc": words, "de": words})
    web = OneFileWeb(monkeypatch, words)
    assert badwords.read_words("ldnoobw:ja,fr", None) == {
        "ja": ["悪い"],
        "fr": ["グロ", "悪い"] * 2,
    }
    assert len(web.asked) == 3
    assert set(badwords.read_words("ldnoobw", None)) == {"ja", "fr", "de"}
    assert len(web.asked) == 4
    with pytest.raises(UsageError, match="ldnoobw has no list for xx; it has de, fr, ja"):
        badwords.read_words("ldnoobw:xx", None)


def test_the_checksums_are_those_of_the_lists():
    path = SHARED / "corpora" / "lists" / "ldnoobw.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path}; set LLMCURATE_SHARED")
    words: dict[str, list[str]] = {}
    for line in gzip.decompress(path.read_bytes()).splitlines():
        entry = json.loads(line)
        words.setdefault(entry["lang"], []).append(entry["term"])
    assert set(words) == set(badwords.LISTS)
    same = set()
    for lang, file in badwords.LISTS.items():
        for end in ("", "\n"):
            data = ("\n".join(words[lang]) + end).encode()
            if (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256):
                same.add(lang)
    # C4's English list is an older one; that of Hindi has spaces at the ends of lines.
    assert set(badwords.LISTS) - same == {"en", "hi"}


@pytest.mark.parametrize("lang", ["ja", "jpn", "jpn_Jpan"])
def test_the_rule_alone_takes_the_list_of_a_pages_language(word_list, lang):
    step = BadWords(badwords=str(word_list))
    texts = ["とても悪いこと", "{ badword }", "badword"]
    langs = [lang, "en", lang]
    docs = documents({"id": ["a", "b", "c"], "text": texts, "lang": langs})
    rejected = step.apply(docs.within("bad_words")).split()[1]
    assert rejected["id"].to_pylist() == ["a", "b"]
    assert BadWords().apply(docs) is docs
    assert BadWords().notes() and not step.notes()
