"""MediaWiki dumps: articles as text, whatever the packing and however the file is cut."""

from __future__ import annotations

import bz2
import lzma
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from curate.formats import kinds
from curate.lab.formats.mediawiki import Site, _in_one_variant, plain_text
from llmcurate.base.errors import UsageError
from tests.curate.doubling import grows_linearly
from tests.curate.formats.portions import corrupt, events, rows, skipped
from tests.curate.lab.formats.mediawiki_dumps import HEAD, TAIL, multistream, page


def test_an_article_is_its_title_and_its_text(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text(HEAD + page(7) + TAIL, encoding="utf-8")
    (row,) = rows(events(tmp_path / "dump.xml"))
    assert row.text == "Page 7\n\nSome text."
    assert (row.id, row.lang, row.extra) == ("anwiki:7", "an", {"wiki.title": "Page 7"})
    assert row.url == "https://an.wikipedia.org/wiki/Page_7"
    assert row.date is not None and row.date.isoformat() == "2024-05-08T10:00:00+00:00"


def test_redirects_talk_and_other_models_are_other_records(tmp_path: Path) -> None:
    pages = page(1) + page(2, space=1) + page(3, more='<redirect title="Page 1" />')
    pages += page(4).replace("wikitext", "css")
    (tmp_path / "dump.xml").write_text(HEAD + pages + TAIL, encoding="utf-8")
    found = events(tmp_path / "dump.xml")
    assert len(rows(found)) == 1
    assert skipped(found) == ["wiki:model-css", "wiki:namespace-1", "wiki:redirect"]


def test_wikitext_is_prose_without_templates_tables_notes_and_links_to_files() -> None:
    wikitext = """{{Infobox|a=b}}'''Escopete''' is a [[village]]<ref>{{cite}} a note</ref> in
[[Spain|the ''Kingdom'']].[[Imachen:x.jpg|thumb|A caption with [[a link]]]]
== History ==
* one
* [http://x.test two]
{| class="wikitable"
| cell
|}
== Formulas ==
<math>E=mc^2</math>&nbsp;&lt;<br/>next<!-- gone --> __NOTOC__
== Notes ==
<references/>
=== More ===
[[Categor\u00eda:Foo]]
"""
    site = Site(dropped=frozenset(("imachen", "categor\u00eda")))
    assert plain_text(wikitext, site) == (
        "Escopete is a village in\nthe Kingdom.\n\nHistory\n\n* one\n* two\n\n"
        "Formulas\n\n$E=mc^2$ <\nnext"
    )


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Alabama''' ({{IPA|x}}) is", "Alabama is"),
        ("Achilles ({{lang|x}}; {{y}}, ''Akhilleus'', {{z}}) was", "Achilles (Akhilleus) was"),
        ("a function f(x, y) and g()", "a function f(x, y) and g()"),
        ("Here.\n[[be-x-old:There]]\n[[bg:There]]", "Here."),
        ("See [[de:Dort|there]] and [[Re:Zero]]", "See there and Re:Zero"),
    ],
)
def test_remains_of_templates_and_links_to_other_wikis_are_removed(
    wikitext: str, text: str
) -> None:
    assert plain_text(wikitext, Site()) == text


def test_a_page_made_to_be_slow_is_named_and_not_parsed(tmp_path: Path) -> None:
    pages = page(1, "<ref>" * 20_000) + page(2, "{|\n" * 20_000) + page(3)
    (tmp_path / "dump.xml").write_text(HEAD + pages + TAIL)
    found = events(tmp_path / "dump.xml")
    assert [row.id for row in rows(found)] == ["anwiki:3"]
    assert ["wikitext cannot be parsed" in what for what in corrupt(found)] == [True, True]


# Each form of a rule (www.mediawiki.org/wiki/Writing_systems/Syntax), and what it shows.
@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("a -{zh-hant:電腦; zh-hans:计算机;}- b", "a 计算机 b"),
        ("-{zh-tw:乙;zh-hk:丙}-", "乙"),
        ("-{sr-ec:Београд; sr-el:Beograd}-", "Београд"),
        ("-{A|zh-cn:网络;zh-tw:網路}-", "网络"),
        ("a-{H|zh-cn:网络;zh-tw:網路}-b", "ab"),
        ("a-{-|zh-cn:网络;zh-tw:網路}-b", "ab"),
        ("a-{T|zh-cn:网络;zh-tw:網路}-b", "ab"),
        ("-{R|zh-cn:as it is}-", "zh-cn:as it is"),
        ("-{as it is}- and -{re:zero}-", "as it is and re:zero"),
        ("-{zh-hans;zh-hant|文字}-", "文字"),
        ("-{巨集=>zh-cn:宏;}-", "宏"),
        ("-{zh-hans:[[a|b]] &lt; c;zh-hant:d}-", "b < c"),
        ("-{zh-hans:a{{x|y}}-b;zh-hant:c}-", "a-b"),
        ("-{zh-hans:a-{zh-cn:b;zh-tw:c}-;zh-hant:d}-", "ab"),
        ("-{{x}}- and -{ never closed", "-- and -{ never closed"),
        ("<math>e^{-{x}-y}</math>", "$e^{-{x}-y}$"),
    ],
)
def test_a_text_in_variants_of_its_language_has_one_of_them(rule: str, shown: str) -> None:
    assert plain_text(rule, Site(lang="zh")) == shown


def test_other_languages_have_no_variants() -> None:
    assert plain_text("a -{b}- c", Site(lang="en")) == "a -{b}- c"


@pytest.mark.parametrize("unit", ["-{", "-{a}-", "-{A ", "-{zh:;", "}}-", "<math>", "-{}}"])
def test_variants_take_linear_time(unit: str) -> None:
    assert grows_linearly(_in_one_variant, lambda n: unit * (n // len(unit)), 50_000)


@pytest.mark.parametrize(
    "unit",
    [
        "<p>",
        "<p ",
        "<a></b>",
        "<div><br/>",
        "[[{{]]}}",
        "<nowiki>",
        "<0x0A>",
        "::",
        "<ref",
        "]] [[",
    ],
)
def test_no_repeated_wikitext_takes_long(unit: str) -> None:
    began = time.process_time()
    with suppress(ValueError):
        plain_text(unit * (20_000 // len(unit)), Site())
    assert time.process_time() - began < 2


def test_pages_are_read_wherever_lines_end(tmp_path: Path) -> None:
    """Also where the file is cut into partitions at any byte."""
    pages = [page(n, f"Text {n} with <page> and </page> in it.") for n in range(12)]
    (tmp_path / "as.xml").write_text(HEAD + "".join(pages) + TAIL)
    expected = rows(events(tmp_path / "as.xml"))
    assert len(expected) == 12
    one_line = (HEAD + "".join(pages) + TAIL).replace("\n", "")
    marked = one_line.replace("<page>", '<page xml:lang="an"\n>').replace("</page>", "</page >")
    marked = marked.replace("<id>", "<!-- <page> </page> --><x><![CDATA[</page><page>]]></x><id>")
    for name, text in (("one.xml", one_line), ("marked.xml", marked)):
        (tmp_path / name).write_text(text)
        found = rows(events(tmp_path / name))
        assert [(r.id, r.text) for r in found] == [(r.id, r.text) for r in expected]
    for size in (100, 333, 1000):
        found = rows(events(tmp_path / "one.xml", size))
        assert [(r.id, r.text) for r in found] == [(r.id, r.text) for r in expected]


def test_cut_and_oversized_pages_are_named_on_one_line_too(tmp_path: Path) -> None:
    cut, large = page(1).replace("</page>", ""), page(2, "x" * 9000)
    text = (HEAD + cut + large + page(3) + cut).replace("\n", "")
    (tmp_path / "dump.xml").write_text(text)
    found = events(tmp_path / "dump.xml", max_record=2000)
    assert corrupt(found) == ["a page is cut short"] * 2
    refused, whole = rows(found)
    assert refused.reject is not None and refused.reject[0] == "record_too_large"
    assert whole.id == "anwiki:3"


def test_a_multistream_dump_is_cut_at_its_streams(tmp_path: Path) -> None:
    path = tmp_path / "anwiki-pages-articles-multistream.xml-p1p99.bz2"
    ids = multistream(path, 80)
    from curate.formats.inputs import plan_inputs

    assert len(plan_inputs([str(path)], 100_000).partitions) > 3
    found = events(path, 100_000)
    assert [row.id for row in rows(found)] == ids and not corrupt(found)


@pytest.mark.parametrize("size", [200, 333, 1000])
def test_a_plain_dump_is_cut_anywhere(tmp_path: Path, size: int) -> None:
    (tmp_path / "dump.xml").write_text(HEAD + "".join(map(page, range(20))) + TAIL)
    found = events(tmp_path / "dump.xml", size)
    assert [row.id for row in rows(found)] == [f"anwiki:{n}" for n in range(20)]
    assert not corrupt(found)


@pytest.mark.parametrize(
    "pack",
    [bz2.compress, lzma.compress, zstandard.ZstdCompressor().compress],
    ids=["bz2", "xz", "zstd"],
)
def test_any_packing_is_read(tmp_path: Path, pack) -> None:
    (tmp_path / "dump.xml.packed").write_bytes(pack((HEAD + page(1) + TAIL).encode()))
    assert len(rows(events(tmp_path / "dump.xml.packed"))) == 1


def test_damage_ends_with_its_page(tmp_path: Path) -> None:
    cut = page(2).partition("</text>")[0] + "\n"
    bad = page(3).replace("<title>", "<title>&bomb; ")
    entity = page(4).replace("  <page>\n", '  <page>\n<!DOCTYPE a [<!ENTITY b "c">]>\n')
    (tmp_path / "dump.xml").write_text(HEAD + page(1) + cut + bad + entity + page(5) + TAIL)
    found = events(tmp_path / "dump.xml")
    assert [row.id for row in rows(found)] == ["anwiki:1", "anwiki:5"]
    assert [what.partition(":")[0] for what in corrupt(found)] == [
        "a page is cut short", "not XML", "not XML",
    ]  # fmt: skip


def test_a_damaged_stream_costs_its_pages_alone(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    ids = multistream(path, 20)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 50] = b"\0" * 50
    path.write_bytes(data)
    found = events(path)
    assert 10 <= len(rows(found)) < 20 and {row.id for row in rows(found)} <= set(ids)
    assert any(what.startswith("bzip2") for what in corrupt(found))


def test_a_page_beyond_the_limit_is_rejected_and_not_held(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text(HEAD + page(1, "x\n" * 9000) + page(2) + TAIL)
    first, second = rows(events(tmp_path / "dump.xml", max_record=4000))
    assert first.reject is not None and first.reject[0] == "record_too_large"
    assert second.id == "anwiki:2"


def test_a_missing_extra_is_one_line_for_a_file_and_a_notice_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate.formats.listing import find_files

    (tmp_path / "dump.xml").write_text(HEAD + TAIL)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    monkeypatch.setattr(kinds, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"dump.xml: pip install 'llmcurate\[wiki\]' reads it$"):
        find_files([str(tmp_path / "dump.xml")])
    listed = find_files([str(tmp_path)])
    assert [f.rel for f in listed.files] == ["a.jsonl"]
    assert listed.notices[0].endswith("dump.xml: pip install 'llmcurate[wiki]' reads it")
