"""The extractor `blocks`: main text of whole pages, hostile pages, batches, and the step."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

from curate.documents.documents import CORE, PAYLOAD, documents
from curate.extract import tags
from curate.extract.blocks import look_at, main_text, main_texts, tables
from curate.extract.extraction import Extract
from curate.extract.render import Writing
from curate.extract.scan import count_tags
from curate.extract.tags import MAX_DEPTH, MAX_ELEMENTS
from tests.curate.extract.pages import MENU, PROSE, SENTENCES, extracted, page

COMMENTS = (
    "<div id=comments class=comment-list><h3>2 comments</h3><div class=comment><p>Anna says: what "
    "a lovely story, I was there last year.</p></div><div class=comment><p>Bert says: the wheel "
    "was taken down in May, as far as I know.</p></div></div>"
)
COOKIES = (
    "<div class=cookie-banner><p>We use cookies to give you the best experience. "
    "<a href=/p>Privacy policy</a></p><button>Accept</button></div>"
)


def test_main_text_is_the_article_alone() -> None:
    text = main_text(page(PROSE, COOKIES, COMMENTS))
    for sentence in SENTENCES:
        assert sentence in text
    for noise in ("Sport", "rivers", "rights", "cookies", "Accept", "Anna", "Bert"):
        assert noise not in text, noise


def test_headings_lists_tables_code_and_quotes_of_an_article_stay() -> None:
    paragraphs = PROSE.split("</p>")
    body = (
        "</p>".join(paragraphs[:4])
        + (
            "</p><h2>What is left of it</h2><ul><li>The wheel, which is made of oak and iron.</li>"
            "<li>Two stones, each of them as heavy as a cart.</li></ul>"
            "<blockquote><p>It will stand for longer than we do, said the old miller.</p>"
            "</blockquote>"
        )
        + "</p>".join(paragraphs[4:])
    )
    text = main_text(page(body), Writing("markdown"))
    assert "\n\n## What is left of it\n\n- The wheel, which is" in text
    assert "\n- Two stones" in text
    assert "\n\n> It will stand for longer" in text


def test_pages_without_an_article_element_and_in_other_scripts_work() -> None:
    chinese = (
        "河水流过古老的磨坊，自从那次洪水以后，就再也没有人在那里工作了。"
        "春天，水车依然转动，因为没有人把它拆下来。"
    )
    arabic = (
        "يجري النهر بجانب الطاحونة القديمة، ولم يعمل فيها أحد منذ الفيضان الكبير. "
        "وفي الربيع تدور العجلة كما كانت."
    )
    thai = "แม่น้ำไหลผ่านโรงสีเก่า ไม่มีใครทำงานที่นั่นอีกเลยตั้งแต่น้ำท่วมใหญ่ พอถึงฤดูใบไม้ผลิกังหันก็ยังหมุนอยู่เหมือนเดิม"
    for prose in (chinese, arabic, thai):
        body = "".join(f"<p>{prose}</p>" for _ in range(5))
        html = f"<body><ul>{MENU}</ul><div><div>{body}</div></div><div><a href=/>Top</a></div>"
        text = main_text(html)
        assert text.split("\n\n").count(prose) == 5
        assert "Sport" not in text


def test_a_page_of_one_short_paragraph_still_gives_it() -> None:
    assert "short note" in main_text(f"<nav>{MENU}</nav><p>Only a short note.</p>")


def test_texts_do_not_depend_on_the_batch() -> None:
    pages = [page(PROSE), "", None, "<p>x", page(PROSE[:300]), page("<p>é中ไ</p>" * 30)]
    together = main_texts(pa.array(pages, pa.large_string())).text.to_pylist()
    alone = [main_text(p) if p else "" for p in pages]
    assert together == alone
    sliced = pa.array([*pages, *pages], pa.large_string())[6:]
    assert main_texts(sliced).text.to_pylist() == together


def tags_of(html: str) -> int:
    data = np.frombuffer(html.encode(), np.uint8).copy()
    return int(count_tags(data, 0, len(data)))


HOSTILE = {
    "nested": "<div>x" * 100_000,
    "nested inline": "<b><i><x-y>x" * 50_000,
    "nested lists": "<ul><li>x" * 50_000,
    "nested tables": "<table><tr><td>x" * 50_000,
    "nested quotations": "<blockquote><p>x" * 50_000,
    "end tags alone": "</div></span></x>" * 50_000,
    "end tags of what is far outside": "<p>" + "<b>" * 500 + "</p><i></x>" * 50_000,
    "attributes": "<p " + "a=b class='comment nav' " * 100_000 + ">x",
    "a long attribute": "<p class='" + "nav " * 500_000 + "'>x",
    "a style of blanks": "<p style='" + ("d" + " " * 80) * 20_000 + "'>x",
    "quotes that do not end": "<p title='" * 100_000,
    "entities": "<p>" + "&amp;&nGt;&#8364;&x" * 100_000,
    "numbers without end": "<p>&#" + "9" * 1_000_000,
    "comments that do not end": "<!--" * 200_000,
    "scripts that do not end": "<script>x</script" * 50_000,
    "raw elements that do not end": "<p>x<title><svg><iframe>" * 20_000,
    "JSON-LD of one key": "<script type=application/ld+json>" + '"author":{' * 50_000 + "</script>",
    "line breaks": "a<br>" * 200_000,
    "blanks": "<p>" + " \n" * 500_000 + "x",
    "a long line": "<p>" + "x" * 2_000_000,
    "< alone": "<" * 500_000,
    "cells": "<table><tr>" + "<td>x" * 50_000 + "</table>",
    "text between cells": "<table><tr>" + "<td>x</td>y" * 30_000 + "</table>",
    "captions between cells": "<table><tr>" + "<td>x</td><caption>y</caption>" * 30_000,
    "rows within cells": "<table>" + "<tr><td>x<td><p>y</p>" * 30_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_output_for_a_hostile_page_is_bounded_by_its_size(name: str) -> None:
    html = "<html><body>" + HOSTILE[name]
    seen = look_at(html)
    tags = tags_of(html)
    assert len(seen.blocks) <= tags + 2 and len(seen.nodes) <= tags + 2
    assert sum(len(t.encode()) for t in seen.texts) <= len(html)
    parents = seen.nodes[:, 1]
    assert (parents[1:] < np.arange(1, len(parents))).all()
    for output in ("text", "markdown"):
        text = main_text(html, Writing(output, links="keep", comments="mark"))
        assert len(text.encode()) <= 64 * len(html)


def test_elements_nest_as_deep_as_browsers_let_them() -> None:
    seen = look_at("<div>x" * 2000)
    depth = np.zeros(len(seen.nodes), np.int64)
    for k in range(1, len(depth)):
        depth[k] = depth[seen.nodes[k, 1]] + 1
    assert depth.max() == MAX_DEPTH and len(seen.texts) == 2000


def test_a_page_of_too_many_elements_is_rejected_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    html = b"<p>x" * (MAX_ELEMENTS + 1)
    docs = extracted(html, page(PROSE).encode())
    assert [(d.rule, d.rows.tolist(), d.values.tolist()) for d in docs.drops] == [
        ("too_many_elements", [0], [MAX_ELEMENTS + 1])
    ]
    assert docs.drops[0].thresholds[0] == MAX_ELEMENTS
    monkeypatch.setattr(tags, "MAX_ELEMENTS", 3)
    assert [len(d.drops) for d in (extracted(b"<p>x" * 3), extracted(b"<p>x" * 4))] == [0, 1]
    assert docs.text[0].as_py() == "" and SENTENCES[0] in docs.text[1].as_py()


def test_the_step_adds_what_pages_state_as_columns() -> None:
    meta = '<meta name=author content="Ada"><meta name=date content=2020-01-02>'
    meta += "<meta property=og:site_name content='The Mill'>"
    docs = extracted(page(PROSE, before=meta).encode(), b"<p>Nothing is stated here.</p>", b"")
    table = docs.table
    assert table["title"].to_pylist() == ["The old mill", None, None]
    assert table["extract.author"].to_pylist() == ["Ada", None, None]
    assert table["extract.lang_hint"].to_pylist() == ["en", None, None]
    assert table["extract.site"].to_pylist() == ["The Mill", None, None]
    assert [d and d.isoformat() for d in table["extract.published"].to_pylist()] == [
        "2020-01-02T00:00:00+00:00", None, None,
    ]  # fmt: skip
    kinds, chances = (table[f"extract.{c}"].to_pylist() for c in ("kind", "kind_probability"))
    assert kinds[0] == "article" and chances[0] > 0.5 and kinds[2] is chances[2] is None
    assert [(d.rule, d.rows.tolist()) for d in docs.drops] == [("no_text", [2])]


def test_columns_have_their_types_in_the_empty_batch_too() -> None:
    empty = extracted().table.schema
    assert empty.field("extract.published").type == pa.timestamp("us", tz="UTC")
    assert empty.field("title").type == pa.string()
    assert empty == extracted(page(PROSE).encode()).table.schema


def test_markdown_is_an_option_of_the_step() -> None:
    html = page(f"{PROSE}<h2>What is left of it</h2>{PROSE}").encode()
    plain, marked = (extracted(html, output=f).text[0].as_py() for f in ("text", "markdown"))
    assert "\n## What is left of it\n" in marked and "\nWhat is left of it\n" in plain
    assert re.sub(r"^#+ ", "", marked, flags=re.MULTILINE) == plain


def test_plain_text_passes_and_large_html_pages_are_rejected() -> None:
    docs = documents(
        {"payload": [b"a < b", b"<p>" + b"x" * 300], "mime": ["text/plain", "text/html"]},
        (*CORE, *PAYLOAD),
    )
    out = Extract(extractor="blocks", max_html_bytes=100).apply(docs.within("extract"))
    assert out.text[0].as_py() == "a < b"
    assert [(d.rule, d.rows.tolist()) for d in out.drops] == [("html_too_large", [1])]


def test_tables_of_names_hold_every_name() -> None:
    from curate.extract.tags import ATTR, TAG, name_hash

    found = tables()
    for names, keys, values in (
        (TAG, found.tag_keys, found.tag_values),
        (ATTR, found.attributes[0], found.attributes[1]),
    ):
        for name, number in names.items():
            if name:
                assert values[np.flatnonzero(keys == name_hash(name.encode()))].tolist() == [number]
