"""XHTML as XML's rules read it, compared with expat, and as HTML where the page says HTML."""

from __future__ import annotations

import time
from xml.etree import ElementTree

import pytest

from curate.documents.documents import CORE, PAYLOAD, documents
from curate.extract.blocks import look_at
from curate.extract.extraction import Extract
from curate.extract.markup import from_xhtml, lost_xhtml, with_shadow_roots
from curate.extract.tags import NAMES, VOID
from tests.curate.doubling import grows_linearly

TEXTS = (
    "The ferry crossed the river twice a day, and the ferryman knew every passenger by name.",
    "In winter the crossing took longer, since ice gathered along the banks of the river.",
)
SEEN = "".join(f"<p>{text}</p>" for text in TEXTS)
NAMESPACE = "{http://www.w3.org/1999/xhtml}"
NOT_SHOWN = {
    *("head", "script", "style", "title", "iframe", "textarea", "select", "template", "svg"),
    *("math", "button", "audio", "video", "canvas", "object", "noframes", "noembed"),
}


def xhtml(body: str, head: str = "<title>t</title>") -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml">'
        f"<head>{head}</head><body>{body}</body></html>"
    )


def by_expat(page: str) -> str:
    """The text of a well-formed page, white space in single blanks."""

    def shown(element: ElementTree.Element) -> str:
        name = element.tag.removeprefix(NAMESPACE)
        inside = "" if name in NOT_SHOWN else (element.text or "") + "".join(map(shown, element))
        edge = " " if name in ("p", "div", "br", "li") else ""
        return edge + inside + edge + (element.tail or "")

    return " ".join(shown(ElementTree.fromstring(page)).split())


def by_blocks(page: str) -> str:
    return " ".join(" ".join(look_at(from_xhtml(page)).texts).split())


def extracted(pages: list[str], mime: str, extractor: str = "blocks") -> list[str]:
    docs = documents(
        {"payload": [p.encode() for p in pages], "mime": [mime] * len(pages)}, (*CORE, *PAYLOAD)
    )
    step = Extract(extractor=extractor)  # type: ignore[arg-type]
    return [text or "" for text in step.apply(docs.within("extract")).text.to_pylist()]


EMPTY = [name for name in NAMES if name not in ("", "html", "head", "body", *VOID)]


@pytest.mark.parametrize("name", [*EMPTY, *VOID, "x-unknown", "TITLE"])
def test_every_element_may_be_empty(name: str) -> None:
    for tag in (f"<{name}/>", f'<{name} class="a > b" />', f"<{name}></{name}>"):
        page = xhtml(tag + SEEN + tag)
        assert by_blocks(page) == by_expat(page) == " ".join(TEXTS)


CONSTRUCTS = {
    "CDATA": xhtml(f"<p>1 <![CDATA[ < 2 & <b>bold</b> ]]></p>{SEEN}"),
    "CDATA in a script": xhtml(f"<script>//<![CDATA[\nx('</script><p>no</p>')//]]></script>{SEEN}"),
    "a comment in a script": xhtml(f"<script><!-- </script><p>no</p> --></script>{SEEN}"),
    "tags in a script": xhtml(f"<script>x('<script src=\"y\"/>')</script>{SEEN}", "<style/>")
    .replace("x('<", "x('&lt;"),
    "an instruction": xhtml(f"<?php if (a > b) ?>{SEEN}"),
    "a comment": xhtml(f"<!-- <p>no</p> <script/> -->{SEEN}"),
    "a break with an end tag": xhtml(f"<p>one<br></br>two</p>{SEEN}"),
    "a self-closed tag in a value": xhtml(f"<p title='&lt;script/>'>a</p>{SEEN}"),
    "a slash that ends a value": xhtml(f'<a href="x/">a</a><a href="/"/>{SEEN}'),
    "declared entities": xhtml(SEEN).replace("?>\n", "?>\n<!DOCTYPE html [\n<!ENTITY a 'b'>\n]>"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_is_read_as_an_xml_parser_reads_it(name: str) -> None:
    assert by_blocks(CONSTRUCTS[name]) == by_expat(CONSTRUCTS[name])


LOST = ("script", "style", "title", "iframe", "textarea", "select", "template", "noscript")


@pytest.mark.parametrize("extractor", ["blocks", "text", "resiliparse"])
@pytest.mark.parametrize("mime", ["application/xhtml+xml", "text/xml", "application/xml"])
def test_no_extractor_loses_a_page_of_xml_after_an_empty_element(extractor: str, mime: str) -> None:
    body = f"<div><p>{TEXTS[0]} {TEXTS[1]}</p><p>{TEXTS[1]} {TEXTS[0]}</p></div>"
    pages = [xhtml(f"<{name}/>{body}", f'<{name} class="x"/>') for name in LOST]
    for text in extracted(pages, mime, extractor):
        assert text.count(TEXTS[0]) == text.count(TEXTS[1]) == 2 and "<" not in text


@pytest.mark.parametrize("extractor", ["blocks", "text", "resiliparse"])
def test_html_that_would_lose_its_text_is_read_as_xml(extractor: str) -> None:
    body = "".join(f"<div><p>{TEXTS[0]} {TEXTS[1]}</p></div>" for _ in range(3))
    tail = f"<script>x()</script>{TEXTS[0]}"
    lost = [f"<html><head><script src='a.js'/></head><body>{b}</body>" for b in (body, body + tail)]
    for text in extracted(lost, "text/html", extractor):
        assert TEXTS[0] in text and TEXTS[1] in text


def test_feeds_and_pages_without_a_sign_of_xhtml_stay_as_they_are() -> None:
    feed = "<?xml version='1.0'?><rss><title/><description><![CDATA[<p>a</p>]]></description></rss>"
    assert extracted([feed], "text/xml") == [feed]
    assert lost_xhtml("<p>one<br/><img src=a /><a href=b/>two</p>") is None


def test_a_value_without_quotes_may_end_with_a_slash() -> None:
    assert from_xhtml("<a href=x/>a</a>") == "<a href=x/>a</a>"
    assert from_xhtml("<a href='x'/>a") == "<a href='x'></a>a"


def test_data_in_scripts_of_xhtml_stay_data() -> None:
    page = '<script type="application/ld+json"><![CDATA[{"a": "<p>b</p> &"}]]></script>'
    assert from_xhtml(page).endswith('>{"a": "<p>b<\\/p> &"}</script>')


def test_every_extractor_sees_shadow_roots() -> None:
    page = f"<x-a><template shadowrootmode=open><p>{TEXTS[0]}</p></template></x-a>{TEXTS[1]}"
    assert with_shadow_roots(page).startswith("<x-a><shadow-root><p>")
    assert with_shadow_roots("</template>shadowroot") == "</template>shadowroot"
    for extractor in ("blocks", "text"):
        assert TEXTS[0] in extracted([f"<body>{page} {page}</body>"], "text/html", extractor)[0]


HOSTILE = [
    "<!--",
    "<![CDATA[",
    "<a '",
    '<a "',
    "<a b='c'",
    "<script/>",
    "<?",
    "<!DOCTYPE [",
    "<a <",
]


def test_a_name_or_a_template_that_nothing_ends_takes_linear_time() -> None:
    assert grows_linearly(lost_xhtml, lambda n: "<p/><" + "a" * n, 20_000)
    attributes = "shadowroot=open "
    assert grows_linearly(with_shadow_roots, lambda n: "<template " + attributes * n, 4_000)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_markup_takes_linear_time(piece: str) -> None:
    assert grows_linearly(lost_xhtml, lambda n: "<title/>" + piece * n, 20_000)


def test_large_pages_cost_little() -> None:
    begin = time.process_time()
    from_xhtml("<p class='a'/>" * 300_000)
    assert time.process_time() - begin < 5
