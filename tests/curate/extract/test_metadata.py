"""What pages state of themselves: title, date, author, language."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from curate.extract.blocks import main_texts
from curate.extract.metadata import author, language_tag, published


def stated(page: str) -> list[str | None]:
    return main_texts(pa.array([page], pa.large_string())).stated(0)


LD = '<script type="application/ld+json">{}</script>'
PAGES: dict[str, tuple[str, list[str | None]]] = {
    "nothing": ("<p>text</p>", [None, None, None, None]),
    "title and lang": (
        "<html lang=de-at><title>\n A &amp; B\n </title>", ["A & B", None, None, "de-at"],
    ),
    "Open Graph before title": (
        '<title>Site</title><meta property="og:title" content="Mills">', ["Mills"] + 3 * [None],
    ),
    "the first title": ("<title>one</title><svg><title>two</title></svg>", ["one"] + 3 * [None]),
    "names in any case": (
        "<META NAME=Author CONTENT='Ada L.'><meta name='DC.Date' content=2020-01-02>",
        [None, "2020-01-02", "Ada L.", None],
    ),
    "JSON-LD": (
        LD.format(
            '{"@type":"NewsArticle", "headline" : "A \\u201equote\\"", '
            '"datePublished":"2021-03-04T05:06:07Z","author":[{"@type":"Person","name":"Bo"}]}'
        ),
        ["A „quote\"", "2021-03-04T05:06:07Z", "Bo", None],
    ),
    "JSON-LD cut off": (LD.format('{"headline":"A'), [None] * 4),
    "JSON-LD with a bad escape": (LD.format('{"headline":"\\q"}'), [None] * 4),
    "JSON-LD with half a pair": (LD.format('{"headline":"x\\ud83d"}'), ["x?", None, None, None]),
    "another script": ('<script>{"headline":"A"}</script>', [None] * 4),
    "time": ("<time datetime=2019-05-06>May</time>", [None, "2019-05-06", None, None]),
    "time published": (
        "<time datetime=2018-01-01></time><time itemprop=datePublished datetime=2019-05-06>",
        [None, "2019-05-06", None, None],
    ),
    "content-language": (
        "<meta http-equiv=Content-Language content=fr>", [None, None, None, "fr"],
    ),
    "an endless value": (f'<meta name=author content="{"a" * 5000}">', [None] * 4),
    "an empty value": ('<title>x</title><meta property="og:title" content="">', ["x"] + 3 * [None]),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_states(name: str) -> None:
    page, expected = PAGES[name]
    assert stated(page) == expected


def test_each_page_of_a_batch_keeps_its_own() -> None:
    pages = ["<title>é</title>", None, "", "<title>b</title>"]
    found = main_texts(pa.array(pages, pa.large_string()))
    assert [found.stated(row)[0] for row in range(4)] == ["é", None, None, "b"]


def test_languages_are_written_as_bcp_47_does() -> None:
    assert language_tag("de_at") == "de-AT" and language_tag("EN") == "en"
    assert language_tag("zh-Hans") == "zh-Hans"
    for value in (None, "", "Deutsch!", "x", "de-", "<script>", "en\n"):
        assert language_tag(value) is None, value


def test_dates_are_times_in_utc() -> None:
    assert published("2021-03-04T05:06:07+02:00") == datetime(
        2021, 3, 4, 3, 6, 7, tzinfo=timezone.utc
    )
    assert published("2021-03-04 junk") == datetime(2021, 3, 4, tzinfo=timezone.utc)
    for value in (None, "", "yesterday", "04.03.2021", "2021-13-45", "9999-99-99"):
        assert published(value) is None, value


def test_an_address_is_no_author() -> None:
    assert author("https://example.org/ada") is None and author("Ada") == "Ada"
