"""The HTML scanner: blocks of small pages and their text.

The last test compares the tokenizer with a slow one of a few lines.
"""

from __future__ import annotations

import html
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.extract.blocks import look_at, main_texts
from curate.extract.net import Net, fitted
from curate.extract.render import Writing


def blocks(page: str) -> list[str]:
    return look_at(page).texts


def written(page: str, markdown: bool = False) -> str:
    """All blocks of a page, whatever the model thinks of them."""
    net = Net(*(np.zeros_like(w) for w in fitted()))
    writing = Writing("markdown" if markdown else "text")
    found: str = main_texts(pa.array([page], pa.large_string()), writing, net).text[0]
    return found.as_py()  # type: ignore[attr-defined]


CONSTRUCTS: dict[str, tuple[str, list[str]]] = {
    "white space is single": ("<p> a \t b\n\n c </p>", ["a b c"]),
    "inline tags insert no space": ("<p>a<b>b</b><i>c</i>d</p>", ["abcd"]),
    "Thai at inline tags": ("<p>ภาษา<b>ไทย</b>เป็น</p>", ["ภาษาไทยเป็น"]),
    "a line break in Chinese": ("<p>这是一个\n中文文本</p>", ["这是一个中文文本"]),
    "a line break in Korean": ("<p>한국어\n문장</p>", ["한국어 문장"]),
    "a space in Chinese": ("<p>中文 文本</p>", ["中文 文本"]),
    "right to left": ("<p dir=rtl>שלום <b>עולם</b></p>", ["שלום עולם"]),
    "br": ("<p>one<br>two<br/>three</p>", ["one\ntwo\nthree"]),
    "two br part paragraphs": ("<div>one<br><br>two</div>", ["one", "two"]),
    "wbr": ("<p>Donau<wbr>dampf</p>", ["Donaudampf"]),
    "soft hyphens": ("<p>Donau&shy;dampf\u00adschiff</p>", ["Donaudampfschiff"]),
    "no-break spaces": ("<p>10&nbsp;km\u00a0h&#160;x</p>", ["10 km h x"]),
    "a byte order mark": ("<p>\ufeffa\ufeffb</p>", ["ab"]),
    "zero width joiners stay": ("<p>क्\u200dष</p>", ["क्\u200dष"]),
    "control characters part words": ("<p>a\x00b\x07\x08c &#1;d&#2;e&#x81;f</p>", ["a b c d e f"]),
    "control characters at tags": ("<p>a\x01<b>b</b>c<i>\x9f</i>d</p>", ["a bc d"]),
    "control characters elsewhere": (
        "<p>(\x01a\x02) \x03b\x04. \u201cc\x9d\u201d\x1b \u4e2d\x05\u6587</p>",
        ["(a) b. \u201cc\u201d \u4e2d\u6587"],
    ),
    "CR and CRLF": ("<p>a\rb\r\nc</p><p>中\r文\r\n本</p>", ["a b c", "中文本"]),
    "CR and CRLF in code": ("<pre>a\r  b\r\n\r\nc\n\rd</pre>", ["a\n  b\n\nc\n\nd"]),
    "CR by reference in code": ("<pre>a&#13;\nb&#13;c</pre>", ["a\nb c"]),
    "shadow roots": (
        "<p>a<x-b><template shadowrootmode=open><i>b</i></template></x-b>c</p>"
        "<template ShadowRoot='Closed'><p>d</template>"
        "<template shadowrootmode=x><p>e</template><template><p>f</template>",
        ["abc", "d"],
    ),
    "a shadow root in a template": (
        "<p>a</p><template><x-b><template shadowrootmode=open><p>b</template>c</x-b></template>d",
        ["a", "d"],
    ),
    "entities": ("<p>&lt;b&gt; &amp;amp; &eacute;&#x4e2d;&hellip;</p>", ["<b> &amp; é中…"]),
    "entities without semicolon": ("<p>A&amp B &notit; &copy2024</p>", ["A& B ¬it; ©2024"]),
    "no entities": ("<p>R&D & &; &# &#x; &unknown; a&b=c", ["R&D & &; &# &#x; &unknown; a&b=c"]),
    "windows-1252 numbers": ("<p>&#132;so&#147; &#150; &#133;</p>", ["„so“ – …"]),
    "numbers that are no character": ("<p>a&#0;b&#xD800;c&#x110000;d&#1;e</p>", ["a�b�c�d e"]),
    "a < in text": ("<p>1 < 2 and 3 <4, <3</p>", ["1 < 2 and 3 <4, <3"]),
    "tags in upper case": ("<P>one<DIV>two</DIV><Script>x()</SCRIPT>", ["one", "two"]),
    "end tags with what browsers allow in them": (
        "<p>a<script>x</script >b<script>x</SCRIPT\n>c<style>x</style\t>d<script>x</script/>e"
        "<script>x</script \r\n type=x>f<script>'</scripts>'</script>g</p >h</P\n>i",
        ["abcdefg", "h", "i"],
    ),
    "attributes without quotes": ("<p class=a id=b>one<a href=/x/>two</a></p>", ["onetwo"]),
    "a > in an attribute": ("<p title='a > b' data-x=\"<p>\">one</p>", ["one"]),
    "comments": ("<p>a<!-- <p>no</p> -->b<!---->c<!-->d<!-- x --!>e", ["abcde"]),
    "a comment without end": ("<p>one</p><!-- <p>two</p>", ["one"]),
    "conditional comments": (
        "<!--[if IE]><p>old</p><![endif]--><![if !IE]><p>new</p><![endif]>", ["new"],
    ),
    "CDATA": ("<p>a<![CDATA[ x ]]>b</p>", ["ab"]),
    "declarations": ("<?xml version='1.0'?><!DOCTYPE html><p>one</p></>", ["one"]),
    "script and style": (
        "<p>a<script>if (a<b) '<p>x</p>'</script>b<style>p{}</style>c</p>", ["abc"],
    ),
    "noscript and template": (
        "<p>a</p><noscript><p>x</p></noscript><template><p>y</p></template>", ["a", "x"],
    ),
    "what forms hold": (
        "<form>a<select><option>x</select><textarea>y</textarea><button>z</button>b</form>", ["ab"],
    ),
    "svg and title": ("<title>t</title><p>a<svg><title>x</title><text>y</text></svg>b", ["ab"]),
    "hidden": (
        "<p hidden>x</p><p>a<span style='color:red; DISPLAY : none'>y</span>b</p>", ["x", "ab"],
    ),
    "visible styles": ("<p style='display:block'>a<b style='visibility:visible'>b</b></p>", ["ab"]),
    "p without end tags": ("<p>one<p>two<div>three<p>four", ["one", "two", "three", "four"]),
    "li without end tags": ("<ul><li>one<li>two<ul><li>in</ul><li>three</ul>four",
                            ["one", "two", "in", "three", "four"]),
    "dt and dd without end tags": ("<dl><dt>t<dd>d<dt>u<dd>e</dl>", ["t", "d", "u", "e"]),
    "cells without end tags": ("<table><tr><td>a<td>b<tr><th>c</table>d", ["a", "b", "c", "d"]),
    "end tags without start": ("</div></p>one</b></td></table>two", ["one", "two"]),
    "a link that is not closed": ("<p><a href=x>one</p><p>two", ["one", "two"]),
    "the page ends in a tag": ("<p>one</p><p class='tw", ["one"]),
    "the page ends in a character reference": ("<p>one &am", ["one &am"]),
    "text after the body": ("<body><p>one</p></body></html>two", ["one", "two"]),
    "text before any tag": ("one<p>two", ["one", "two"]),
    "unknown elements": ("<my-app><x-p>one</x-p> two</my-app>", ["one two"]),
    "nothing": ("", []),
    "tags alone": ("<p></p><div> &nbsp; <br><br></div>", []),
    "ruby is kept": ("<p><ruby>漢<rt>かん</rt></ruby></p>", ["漢かん"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_is_read_as_a_browser_shows_it(name: str) -> None:
    page, expected = CONSTRUCTS[name]
    assert blocks(page) == expected


def test_preformatted_text_keeps_its_spaces() -> None:
    page = "<pre>\n  def f():\n\n\treturn <b>1</b>\n</pre>"
    assert blocks(page) == ["  def f():\n\n\treturn 1"]
    assert written(page) == "  def f():\n\n\treturn 1"
    assert written(page, markdown=True) == "```\n  def f():\n\n\treturn 1\n```"


LAYOUTS: dict[str, tuple[str, str, str]] = {
    "paragraphs": ("<p>one</p><p>two</p>", "one\n\ntwo", "one\n\ntwo"),
    "headings": ("<h1>Top</h1><p>a</p><h3>Sub</h3>", "Top\n\na\n\nSub", "# Top\n\na\n\n### Sub"),
    "a list": ("<ul><li>a</li><li>b</li></ul>", "- a\n- b", "- a\n- b"),
    "a numbered list": ("<ol><li>a<li>b</ol>", "1. a\n2. b", "1. a\n2. b"),
    "lists in lists": (
        "<ul><li>a<ol><li>x<li>y</ol></li><li>b</ul>",
        "- a\n  1. x\n  2. y\n- b", "- a\n  1. x\n  2. y\n- b",
    ),
    "an item of two paragraphs": (
        "<ul><li><p>a</p><p>b</p></li></ul>", "- a\n  b", "- a\n  b",
    ),
    "definitions": ("<dl><dt>t<dd>d<dt>u<dd>e</dl>", "t\nd\nu\ne", "t\nd\nu\ne"),
    "a table": (
        "<table><tr><th>a<th>b<tr><td>1<td>2|3<tr><td>4<td></table>",
        "a | b\n1 | 2|3\n4", "| a | b |\n|---|---|\n| 1 | 2\\|3 |\n| 4 | |",
    ),
    "a table with a caption": (
        "<table><caption>t</caption><tr><td>a<td>b</table>", "t\na | b",
        "t\n\n| a | b |\n|---|---|",
    ),
    "text between cells": (
        "<table><tr><td>a</td>b<td>c</td></tr></table>", "a\n\nb\n\nc", "a\n\nb\n\nc",
    ),
    "a table for layout": (
        "<table><tr><td><p>one</p><p>two</p><td><p>three</p></table>",
        "one\n\ntwo\n\nthree", "one\n\ntwo\n\nthree",
    ),
    "a quotation": (
        "<blockquote><p>a<br>b</p></blockquote><p>c</p>", "a\nb\n\nc", "> a\n> b\n\nc",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_structure_stays_readable(name: str) -> None:
    page, text, markdown = LAYOUTS[name]
    assert written(page) == text
    assert written(page, markdown=True) == markdown


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_what_is_written_holds_every_block_once_in_order(name: str) -> None:
    page, expected = CONSTRUCTS[name]
    text = re.sub(r"^\s*(- |\d+\. )|( \| )", " ", written(page), flags=re.MULTILINE)
    assert text.split() == " ".join(expected).split()
    assert main_texts(pa.array([page], pa.large_string())).text[0].as_py() is not None


def test_features_see_links_hints_and_elements() -> None:
    from curate.extract.inputs import INPUTS

    page = "<nav class=main-menu><a href=/>Home</a></nav><article><p>Hello there.</p></article>"
    seen = look_at(page)
    assert seen.texts == ["Home", "Hello there."]
    value = {name: seen.rows[:, k].tolist() for k, name in enumerate(INPUTS)}
    assert value["linked"] == [1, 0] and value["in nav"] == [1, 0]
    assert value["hint nav"] == [1, 0] and value["in article"] == [0, 1]
    assert value["ends"] == [0, 1] and value["tag p"] == [0, 1]
    assert np.isfinite(seen.rows).all()


INLINE = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>")


def slowly(page: str) -> str:
    """Text of a page of inline elements and comments, white space aside."""
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    return "".join(html.unescape(INLINE.sub("", page)).split())


PIECES = st.sampled_from(
    "<b> </b> <i/class='x>y'> </i> <span> </SPAN> <!--c>--> &amp; &lt; &#65; &#150; &eacute; < & "
    "&nosuch; word 中文 ไทย é ; 1<2 &notin; &not &ampere ü".split(" ")
)


@settings(max_examples=300)
@given(st.lists(st.one_of(PIECES, st.just(" ")), max_size=30))
def test_text_between_inline_tags_is_what_a_slow_reader_sees(pieces: list[str]) -> None:
    # A blank behind a lone "<" or "&" keeps it from joining what follows.
    page = "".join(p + " " if p in ("<", "&", "&not", "1<2") else p for p in pieces)
    assert "".join("".join(blocks(f"<p>{page}</p>")).split()) == slowly(page)


@settings(max_examples=300)
@given(st.text("<>/!-ab p=\"'&;#x1\n\u00ad中", max_size=60))
def test_any_page_gives_storable_text_no_longer_than_itself(page: str) -> None:
    seen = look_at(page)
    text = "".join(seen.texts)
    assert len(text.encode()) <= len(page.encode())
    assert np.isfinite(seen.rows).all()
    assert all(t == t.strip("\n ") and t for t in seen.texts)
