"""Pages that scripts build: their text comes from their data, and a column says so."""

from __future__ import annotations

import json
import time

import pytest

from curate.documents.documents import CORE, PAYLOAD, documents
from curate.extract.embedded import ENOUGH, FEW, SURER, embedded_text
from curate.extract.extraction import Extract

BODY = (
    "The river runs past the old mill, and nobody has worked there since the flood. In spring the "
    "wheel turns all the same, because nobody ever took it down. Children say that they hear it."
)
REPLY = (
    "I was there last year, and the wheel was gone by then, as far as I could see from the road."
)


def script(value: object, attributes: str = "type='application/ld+json'") -> str:
    return f"<script {attributes}>{json.dumps(value)}</script>"


ARTICLE = {"@type": "NewsArticle", "headline": "The old mill", "articleBody": BODY + "\n\n" + REPLY}
PAGES: dict[str, tuple[str, str, list[str]]] = {
    "an article": (script(ARTICLE), "json-ld", ["The old mill", BODY, REPLY]),
    "a thread in a graph": (
        script({"@graph": [{"@type": ["DiscussionForumPosting"], "text": f"<p>{BODY}</p>",
                            "comment": [{"@type": "Comment", "text": REPLY}]}]}),
        "json-ld", [BODY, REPLY],
    ),
    "a question and its answer": (
        script({"@type": "Question", "name": "What of the mill?",
                "acceptedAnswer": {"@type": "Answer", "text": f"<p>{BODY}<br>{REPLY}</p>"}}),
        "json-ld", ["What of the mill?", BODY + "\n" + REPLY],
    ),
    "the state of a framework": (
        script({"id": "x" * 99, "i18n": {"a": REPLY}, "uiMessages": {"a": REPLY},
                "body": [f"<p>{BODY}</p><p>{REPLY}"]},
               "id=__NEXT_DATA__ type='application/json'"),
        "hydration", [BODY, REPLY],
    ),
    "an assigned state": (
        f"<script>window.__INITIAL_STATE__ = {json.dumps([BODY, BODY, REPLY])};run()</script>",
        "hydration", [BODY, REPLY],
    ),
    "JSON in JSON in an attribute": (
        f"<div data-preloaded='{json.dumps([json.dumps({'a': f'<p>{BODY} {REPLY}'})])}'></div>",
        "hydration", [f"{BODY} {REPLY}"],
    ),
    "a template": (f"<template><p>{BODY}</p><p>{REPLY}</p></template>", "template", [BODY, REPLY]),
    "no frames": (
        f"<frameset><frame src=a><noframes><body><p>{BODY}</p><p>{REPLY}</p></noframes></frameset>",
        "template", [BODY, REPLY],
    ),
    "two articles alike": (script([ARTICLE, ARTICLE]), "json-ld", ["The old mill", BODY, REPLY]),
    "a description and the whole": (
        script({"@type": "Article", "description": BODY + BODY})
        + script([f"<p>{BODY} {REPLY} {k}" for k in range(9)], "type='application/json'"),
        "hydration", [f"{BODY} {REPLY} {k}" for k in range(9)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_text_comes_from_where_the_page_has_it(name: str) -> None:
    page, source, paragraphs = PAGES[name]
    assert embedded_text(f"<html><body><div id=root></div>{page}") == (
        "\n\n".join(paragraphs), source,
    )  # fmt: skip


def prose(size: int) -> str:
    """Text of so many characters that counts as prose."""
    return ("A word or two. " * size)[: size - 1] + "."


@pytest.mark.parametrize(
    ("stated", "data", "template", "source"),
    [
        (ENOUGH, 0, 0, "json-ld"),
        (ENOUGH - 1, 0, 0, None),
        (0, ENOUGH, 0, "hydration"),
        (0, ENOUGH - 1, 0, None),
        (ENOUGH, 2 * ENOUGH, 0, "json-ld"),
        (ENOUGH, SURER * ENOUGH - 1, 0, "json-ld"),
        (ENOUGH, SURER * ENOUGH, 0, "hydration"),
        (ENOUGH - 1, ENOUGH, 0, "hydration"),
        (0, ENOUGH, SURER * ENOUGH - 1, "hydration"),
        (0, ENOUGH, SURER * ENOUGH, "template"),
        (ENOUGH, SURER * ENOUGH, SURER * ENOUGH, "hydration"),
    ],
)
def test_a_less_reliable_source_wins_with_three_times_the_text(
    stated: int, data: int, template: int, source: str | None
) -> None:
    page = f"<template><p>{prose(template)}</p></template>" * bool(template)
    page += script([prose(data)], "type='application/json'") * bool(data)
    page += script({"@type": "Article", "articleBody": prose(stated)}) * bool(stated)
    found = embedded_text(page)
    assert (found and found[1]) == source
    sizes = {"json-ld": stated, "hydration": data, "template": template}
    assert found is None or len(found[0]) == sizes[found[1]]


def test_strings_of_forty_characters_are_looked_at() -> None:
    for size, source in ((40, "hydration"), (39, None)):
        strings = [f"{n} {prose(size - 2)}" for n in range(9)]
        assert {len(text) for text in strings} == {size}
        found = embedded_text(script(strings, "type=application/json"))
        assert (found and found[1]) == source


def test_names_of_elements_and_types_count_in_any_case() -> None:
    statement = json.dumps(ARTICLE)
    for start, end in (("SCRIPT TYPE='Application/LD+JSON'", "Script"), ("script", "SCRIPT")):
        attributes = "" if "TYPE" in start else " type=application/ld+json"
        found = embedded_text(f"<{start}{attributes}>{statement}</{end}>")
        assert found is not None and found[1] == "json-ld"


NONE = {
    "no data": "<p>x",
    "a shadow root": f"<template shadowrootmode=open><p>{BODY}</p><p>{REPLY}</p></template>",
    "no JSON": "<script type='application/ld+json'>{'a':</script>",
    "a site": script({"@type": "Organization", "description": BODY * 2}),
    "a short description": script({"@type": "Product", "description": BODY[:80]}),
    "settings": script({"css": "a{b:c}" * 99, "url": "https://x.test/" + "a/" * 99}, "type=json"),
    "messages of the interface": script({"messages": {"a": BODY * 2}}, "type=application/json"),
    "a function": f"<script>window.__NUXT__=(function(a){{return '{BODY * 2}'}})()</script>",
}


@pytest.mark.parametrize("name", NONE)
def test_embedded_data_without_text_gives_no_text(name: str) -> None:
    assert embedded_text(NONE[name]) is None


HOSTILE = {
    "scripts that do not end": "<script type=json>[" * 100_000,
    "tags that do not end": "<script " * 200_000,
    "lists in lists": script({}, "type=json").replace("{}", "[" * 1_000_000),
    "types in types": script({}).replace("{}", '{"@type":[' * 400 + "0" * 10**6 + "]}" * 400),
    "JSON in JSON": script(json.dumps(json.dumps(json.dumps(["[" * 99] * 9_999))), "type=json"),
    "attributes that do not end": "<p data-preloaded='" + 'x data-preloaded="' * 100_000,
    "half a pair": '<script type=application/json>["<p>\\ud800' + BODY * 2 + '"]</script>',
    "too large": script(BODY * 20_000, "type=json"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_costs_little_and_gives_storable_text(name: str) -> None:
    embedded_text(script(ARTICLE))  # compiled
    begin = time.process_time()
    found = embedded_text(HOSTILE[name])
    assert time.process_time() - begin < 5
    assert found is None or found[0].encode()


def test_embedded_data_replaces_a_nearly_empty_page_only_if_it_is_longer() -> None:
    sizes = ((FEW - 1, FEW), (FEW - 1, FEW - 1), (FEW, 2 * FEW))
    pages = [
        f"<p>{prose(own)}</p>" + script({"@type": "Article", "text": prose(data)})
        for own, data in sizes
    ]
    docs = documents(
        {"payload": [p.encode() for p in pages], "mime": ["text/html"] * 3}, (*CORE, *PAYLOAD)
    )
    out = Extract().apply(docs.within("extract"))
    assert out.table["extract.source"].to_pylist() == ["json-ld", "page", "page"]


def test_the_step_says_where_the_text_of_each_page_stood() -> None:
    own = "".join(f"<p>{BODY} {REPLY}</p>" for _ in range(3))
    pages = [own + script(ARTICLE), script(ARTICLE), "<p>Only a short note.</p>"]
    docs = documents(
        {"payload": [p.encode() for p in pages], "mime": ["text/html"] * 3}, (*CORE, *PAYLOAD)
    )
    for embedded, sources in ((True, ["page", "json-ld", "page"]), (False, ["page"] * 3)):
        out = Extract(embedded=embedded).apply(docs.within("extract"))
        assert out.table["extract.source"].to_pylist() == sources
        assert ("The old mill" in out.text[1].as_py()) == embedded


def links(count: int, text: str = "Another story about the town and its people") -> str:
    items = "".join(f"<li><a href=/{k}>{text}, number {k}</a></li>" for k in range(count))
    return f"<div><h3>Most read</h3><ul>{items}</ul></div>"


def sources(*pages: str) -> list[str]:
    """Where the step takes the texts of pages from."""
    docs = documents(
        {"payload": [p.encode() for p in pages], "mime": ["text/html"] * len(pages)},
        (*CORE, *PAYLOAD),
    )
    found: list[str] = Extract().apply(docs.within("extract")).table["extract.source"].to_pylist()
    return found


LONG = [f"{BODY} {REPLY} And {number} years later." for number in ("one", "two", "six", "ten")]
DATA = script({"page": {"body": LONG}}, "type=application/json")
STATED = script({"@type": "NewsArticle", "articleBody": "\n".join(LONG)})


def test_embedded_data_is_used_if_the_html_has_only_links() -> None:
    assert sources(links(8) + DATA, links(8) + STATED, links(8)) == ["hydration", "json-ld", "page"]


def test_a_list_whose_items_the_data_hold_is_the_page() -> None:
    items = [f"Another story about the town and its people, number {k}" for k in range(40)]
    data = script([f"{item}. {BODY}" for item in items], "type=application/json")
    assert sources(links(12) + data, links(40) + data) == ["page", "page"]


def test_a_body_twice_as_long_and_without_the_stated_text_is_the_page() -> None:
    notice = "".join(
        f"<p>We use cookies to store settings on your device, and partners {k} do so, too. You may"
        " accept them or choose others, and change this later at any time.</p>" for k in range(3)
    )  # fmt: skip
    teaser = "".join(f"<p>{text}</p>" for text in LONG[:2])
    assert sources(notice + STATED, teaser + STATED, notice + notice + notice + STATED) == [
        "json-ld", "page", "page",
    ]  # fmt: skip
