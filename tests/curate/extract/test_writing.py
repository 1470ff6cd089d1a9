"""Settings of what is written: comments, tables, links, Markdown, and a kind that is known."""

from __future__ import annotations

import re
import time

import numpy as np
import pyarrow as pa
import pytest

from curate.extract.blocks import main_texts
from curate.extract.evaluate import words
from curate.extract.links import absolute
from curate.extract.net import fitted
from curate.extract.render import Writing
from tests.curate.extract.pages import PROSE, extracted, page

PROSES = {
    "en": PROSE,
    "de": "<p>Der Fluss fließt an der alten Mühle vorbei, und seit der Flut arbeitet dort niemand "
    "mehr. Im Frühling dreht sich das Rad trotzdem, weil es niemand abgebaut hat.</p>",
    "fr": "<p>La rivière passe devant le vieux moulin, et personne n'y travaille depuis la crue. "
    "Au printemps, la roue tourne encore, parce que personne ne l'a démontée.</p>",
    "th": "<p>แม่น้ำไหลผ่านโรงสีเก่า ไม่มีใครทำงานที่นั่นอีกเลยตั้งแต่น้ำท่วมใหญ่ "
    "พอถึงฤดูใบไม้ผลิกังหันก็ยังหมุนอยู่เหมือนเดิม</p>",
    "ja": "<p>川は古い水車小屋のそばを流れ、洪水のあと、そこで働く人はもう誰もいません。"
    "春になると、誰も取り外さなかったので、水車はそれでも回ります。</p>",
    "ar": "<p>يجري النهر بجانب الطاحونة القديمة، ولم يعمل فيها أحد منذ الفيضان الكبير. "
    "وفي الربيع تدور العجلة كما كانت، لأن أحدا لم يفككها.</p>",
}
SAID = {
    "en": ("Anna", "3 days ago", "What a lovely story, I was there last year with my children."),
    "de": ("Jürgen", "vor 3 Tagen", "Eine schöne Geschichte, ich war letztes Jahr auch dort."),
    "fr": ("Chloé", "il y a 3 jours", "Une très belle histoire, j'y étais l'année dernière."),
    "th": ("สมชาย", "3 วันที่แล้ว", "เรื่องนี้น่ารักมาก ปีที่แล้วฉันก็ไปที่นั่นกับลูก"),
    "ja": ("田中", "2024年5月3日", "とても素敵なお話です。去年、子どもたちと行きました。"),
    "ar": ("ليلى", "قبل ٣ أيام", "قصة جميلة جدا، كنت هناك في العام الماضي مع أطفالي."),
}
MARKUP = {
    "WordPress": (
        "<div id=comments class=comments-area><h2>2 comments</h2><ol class=comment-list>{}</ol>"
        "<div id=respond class=comment-respond><h3>Leave a reply</h3><form><p>Your address will "
        "not be published, and fields that are needed are marked.</p></form></div></div>",
        "<li class='comment even'><footer><b class=fn>{}</b></footer><div><a href=#c>{}</a></div>"
        "<div class=comment-content><p>{}</p></div><a href=/r>Reply</a></li>",
    ),
    "itemprop": (
        "<section>{}</section>",
        "<div itemprop=comment itemscope><p>{}</p><p>{}</p><p>{}</p></div>",
    ),
    "itemtype": (
        "<section><div>{}</div></section>",
        "<div itemscope itemtype=https://schema.org/UserComments><p>{}</p><p>{}</p><p>{}</p></div>",
    ),
    "equal elements": ("<ul class=k1>{}</ul>", "<li class=k2><b>{}</b><div>{}</div><p>{}</p></li>"),
}


def with_comments(lang: str, markup: str = "WordPress") -> str:
    section, one = MARKUP[markup]
    body = PROSES[lang] * (1 if lang == "en" else 5)
    return page(f"{body}</article>{section.format(one.format(*SAID[lang]) * 2)}<article>")


def text(html: str, **settings: str) -> str:
    found: str = (
        main_texts(
            pa.array([html], pa.large_string()), Writing(**settings), urls=["https://a.org/b/c"]
        )
        .text[0]
        .as_py()
    )
    return found


@pytest.mark.parametrize("markup", MARKUP)
@pytest.mark.parametrize("lang", SAID)
def test_comments_are_kept_dropped_and_marked_in_every_language(lang: str, markup: str) -> None:
    html, (name, _, said) = with_comments(lang, markup), SAID[lang]
    kept, dropped, marked = (
        text(html, kind="article", comments=c) for c in ("keep", "drop", "mark")
    )
    assert kept.count(said) == 2 and name in kept and said not in dropped
    assert "address" not in kept
    before, after = marked.split("\n\n=== Comments ===\n\n")
    assert (before, after.count(said)) == (dropped, 2)
    assert kept == f"{before}\n\n{after}"


def test_the_mark_is_a_heading_in_markdown_and_absent_without_comments() -> None:
    settings = {"output": "markdown", "comments": "mark", "kind": "article"}
    assert "\n\n## Comments\n\n" in text(with_comments("en"), **settings)
    assert "Comments" not in text(page(PROSE), **settings)


@pytest.mark.parametrize("kind", ["forum", "documentation", "listing"])
def test_only_articles_have_comments(kind: str) -> None:
    html = with_comments("en")
    assert len({text(html, kind=kind, comments=c) for c in ("auto", "keep", "drop", "mark")}) == 1


NOT_COMMENTS = {
    "an article in an element that says so": f"<div class=has-comments>{PROSE}</div>",
    "the number of comments": f"<div class=comments><p>3 comments, 3 May 2024</p></div>{PROSE}",
    "a heading whose id says so": f"{PROSE}<h2 id=respond>How to respond</h2>{PROSE[:300]}",
    "closed comments": f"{PROSE}<div class=comments><p>Comments are closed on this page.</p></div>",
    "years": PROSE + "<div class=s><div>1995</div><p>They built a second wheel.</p></div>" * 3,
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_COMMENTS)
def test_blocks_that_are_no_comments_are_not_marked(name: str) -> None:
    html = page(NOT_COMMENTS[name])
    plain = text(html, kind="article")
    assert text(html, kind="article", comments="mark") == plain


TABLE = "<table><tr><th>{0}<th>B|C<tr><td>{1}<td>12<tr><td>x<td><table><tr><td>in</table></table>"
DATA = "<table><tr><th>Part<th>a|b<tr><td>{}<td>12</table>"
LAYOUT = f"<table><tr><td>{PROSE}<td><p>One.</p><p>Two more of them.</p></table>"


def whole(html: str, **settings: str) -> str:
    """All blocks of a page, whatever the network thinks of them."""
    net = fitted()
    net = net._replace(out=np.zeros_like(net.out), out_bias=np.full(1, 30, np.float32))
    pages = pa.array([html], pa.large_string())
    found: str = main_texts(pages, Writing(**settings), net, ["https://a.org/b/c"]).text[0].as_py()
    return found


@pytest.mark.parametrize("lang", SAID)
def test_tables_of_data_are_kept_dropped_or_markdown(lang: str) -> None:
    cell = SAID[lang][2]
    html = f"<p>before</p>{DATA.format(cell)}<p>behind</p>"
    assert whole(html) == f"before\n\nPart | a|b\n{cell} | 12\n\nbehind"
    assert whole(html, tables="drop") == "before\n\nbehind"
    table = f"| Part | a\\|b |\n|---|---|\n| {cell} | 12 |"
    assert whole(html, tables="markdown") == f"before\n\n{table}\n\nbehind"
    assert whole(html, output="markdown") == whole(html, tables="markdown")


def test_tables_for_layout_stay_and_nested_ones_are_such() -> None:
    nested = "<table><tr><td>a<td>b<tr><td>x<td><table><tr><td>in</table></table>"
    for html in (LAYOUT, nested):
        assert len({whole(html, tables=t) for t in ("keep", "drop", "markdown")}) == 1


def test_a_caption_stands_apart_from_a_table_of_markdown() -> None:
    html = "<table><caption>Parts</caption><tr><td>a<td>b</table>"
    assert whole(html, tables="markdown") == "Parts\n\n| a | b |\n|---|---|"
    assert whole(html) == "Parts\na | b"


LINKS = {
    "<a href=/d?x=1&amp;y=2>one</a>": "[one](https://a.org/d?x=1&y=2)",
    "<a href='e f(1)|`'> one <b>two</b> </a>": "[one two](https://a.org/b/e%20f%281%29%7C%60)",
    "<a href=//b.org/>[1] x</a>": "[\\[1\\] x](https://b.org/)",
    "<a href='JavaScript:alert(1)'>x</a>": "x",
    "<a href='java\tscript:alert(1)'>x</a>": "x",
    "<a href=data:text/html,x>x</a>": "x",
    "<a href='http://['>x</a>": "x",
    "<a href=''>x</a>": "x",
    "<a href=#top>x</a>": "x",
    "<a href=/d><img src=x></a>x": "x",
    "<a href=/d>x<a href=/e>y</a>": "[x](https://a.org/d)[y](https://a.org/e)",
    "<a href=/d><div>x</div><div>y</div></a>": "[x](https://a.org/d)\n\ny",
    "<pre>é <a href=/d>é  </a></pre><p><b>ééé</b><a href=/d>é</a>": (
        "```\né é\n```\n\nééé[é](https://a.org/d)"
    ),
    "<pre><a href=/d>x</a></pre>": "```\nx\n```",
    "<h2><a href=/d>x</a></h2>": "## [x](https://a.org/d)",
    "<base href=https://b.org/z/><p><a href=d>x</a>": "[x](https://b.org/z/d)",
    "<table><tr><td><a href='d|'>x|</a><td>y</table>": (
        "| [x\\|](https://a.org/b/d%7C) | y |\n|---|---|"
    ),
}


@pytest.mark.parametrize("html", LINKS)
def test_links_are_absolute_and_cannot_break_markdown(html: str) -> None:
    assert whole(html, output="markdown", links="keep") == LINKS[html]
    assert "](" not in whole(html, output="markdown") + whole(html, links="keep")


def test_a_page_without_a_url_has_its_absolute_links_alone() -> None:
    assert absolute("d", "") is absolute("/d", "") is None
    assert absolute("http://b.org/é", "") == "http://b.org/é"
    assert absolute("http://b.org/" + "x" * 2000, "") is None


@pytest.mark.parametrize("lang", SAID)
def test_markdown_without_its_marks_has_the_words_of_the_text(lang: str) -> None:
    name, _, said = SAID[lang]
    html = (
        f"<h2>{name}</h2><p>{said}</p><ul><li>{said}<ol><li>1. {name}</ol></ul><blockquote>{said}"
        f"<pre>{name}\n {said}</pre></blockquote>{DATA.format(said)}<p><a href=/{name}>{said}</a>"
    )
    for links in ("drop", "keep"):
        marked = whole(html, output="markdown", links=links)
        plain = re.sub(r"\]\([^\s()]*\)", "]", marked)
        assert words(plain) == words(whole(html))


def test_a_kind_that_is_known_replaces_the_guess() -> None:
    html = page(PROSE).encode()
    for kind in ("article", "forum", "listing"):
        docs = extracted(html, kind=kind)
        assert docs.table["extract.kind"].to_pylist() == [kind]
        assert docs.table["extract.kind_probability"].to_pylist() == [1.0]
    assert extracted(html).table["extract.kind_probability"][0].as_py() < 1


HOSTILE = {
    "cells": "<table>" + "<tr><td>x<td>y|" * 50_000 + "</table>",
    "links": "<p>" + "<a href='/[]()'>x [</a>" * 20_000,
    "a link around blocks": f"<a href=/{'x' * 1900}>" + "<div>x</div>" * 20_000,
    "links without ends": "<a href=/d>x" * 20_000,
    "bases": "<base <base href=" * 100_000,
    "nested comments": "<p>" + PROSE * 3 + "<div class=comment>x 3:00" * 20_000,
    "forms in comments": PROSE + "<div class=comment>" + "<form>x" * 20_000,
    "rows of equal elements": PROSE + "<div><p>Anna 3:00<p>y</div>" * 20_000,
    "equal elements within each other": PROSE + "<div><p>Anna 3:00<p>y" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_and_text_of_a_hostile_page_stay_linear(name: str) -> None:
    settings = {"output": "markdown", "links": "keep", "comments": "mark", "kind": "article"}
    text("<p>compiled", **settings)
    began = time.process_time()
    for get in (text, whole) if "cells" not in name else (whole,):
        found = get(HOSTILE[name], tables="markdown", **settings)
        assert len(found.encode()) <= 40 * len(HOSTILE[name])
    assert time.process_time() - began < 8
