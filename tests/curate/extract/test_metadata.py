"""Metadata of pages: title, date, author, language, site."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from curate.extract.blocks import main_texts
from curate.extract.days import day_in
from curate.extract.metadata import author, language_tag, published
from curate.extract.metadata_choice import byline, name_of, resolved, signed, title_of
from curate.extract.net import KINDS


def stated(page: str, url: str = "") -> list[str | None]:
    """Title, date, author and language."""
    return main_texts(pa.array([page], pa.large_string())).stated(0, url)[:4]


def site(page: str, url: str = "") -> str | None:
    return main_texts(pa.array([page], pa.large_string())).stated(0, url)[4]


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
    "of two statements of one rank the first": (
        "<meta name=author content=Ada><meta name=author content=Bo><meta name=date content=2020-"
        "01-02><meta name=pubdate content=2021-01-02><meta name=citation_title content=A>"
        "<meta name=DC.title content=B><meta name=language content=de><meta name=language "
        "content=fr>",
        ["A", "2020-01-02", "Ada", "de"],
    ),
    "of two statements the one of the higher rank": (
        "<html xml:lang=fr lang=de><meta name=dc.creator content=Ada><meta name=author content=Bo>"
        "<meta property=og:article:published_time content=2020-01-02><meta property="
        "article:published_time content=2021-01-02><meta name=twitter:title content=A>"
        "<meta property=og:title content=B>",
        ["B", "2021-01-02", "Bo", "de"],
    ),
    "a value too long to count, and the second best": (
        f"<meta property=og:title content='{'A' * 1001}'><meta name=headline content=B>",
        ["B", None, None, None],
    ),
    "a value as long as may be": (
        f"<meta property=og:title content='{'A' * 1000}'><meta name=headline content=B>",
        ["A" * 1000, None, None, None],
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
    "JSON-LD of the article": (
        LD.format(
            '{"@graph":[{"@type":"WebPage","datePublished":"2001-01-01","author":{"@id":"#p"}},'
            '{"@type":"Person","@id":"#p","name":"Bo"},{"@type":["NewsArticle"],"datePublished":'
            '"2021-03-04","author":[{"@id":"#p"},{"@type":"Person","name":"Cy"},'
            '{"@type":"Organization","name":"Daily"}],"comment":{"@type":"Comment","author":"Di"}}]}'
        ),
        [None, "2021-03-04", "Bo, Cy", None],
    ),
    "JSON-LD of a page of a shop": (
        LD.format('{"@type":"WebPage","datePublished":"2021-03-04","author":""}'), [None] * 4,
    ),
    "JSON-LD with line feeds in strings": (
        LD.format('{"@type":"Article","author":"Bo\nLi"}'), [None, None, "Bo Li", None],
    ),
    "JSON-LD of lists in lists": (LD.format("[" * 9999 + '"author"'), [None] * 4),
    "an organization gives way to a name that readers see": (
        LD.format('{"@type":"Article","author":{"@type":"Organization","name":"Daily"}}')
        + "<h1>A</h1><p>By <a>Bo Li</a> <p>text",
        ["A", None, "Bo Li", None],
    ),
    "persons of the article before meta": (
        LD.format('{"@type":"Article","author":{"@type":"Person","name":"Ada"}}')
        + "<meta name=author content=Bo><p class=author>Cy</p>",
        [None, None, "Ada", None],
    ),
    "a meta author before what readers see": (
        "<p itemprop=author>Cy</p><meta name=author content=Bo>", [None, None, "Bo", None],
    ),
    "itemprop before rel before class": (
        "<p class=author>Ada</p><a rel=author>Bo</a><p itemprop=author>Cy</p>",
        [None, None, "Cy", None],
    ),
    "rel before class": ("<p class=author>Ada</p><a REL=Author>Bo</a>", [None, None, "Bo", None]),
    "the day of JSON-LD before those of meta and time": (
        LD.format('{"@type":"Article","datePublished":"2021-03-04","dateModified":"2022-01-01"}')
        + "<meta name=date content=2020-01-02><time datetime=2019-01-02>",
        [None, "2021-03-04", None, None],
    ),
    "the day of meta before those of time and of a change": (
        LD.format('{"@type":"Article","author":"","dateModified":"2022-01-01"}')
        + "<time datetime=2019-01-02></time><meta name=date content=2020-01-02>",
        [None, "2020-01-02", None, None],
    ),
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
    "the heading that the title confirms": (
        "<title>Old mills | The Daily</title><h1>The Daily</h1><h1>Old <b>mi</b>lls</h1>",
        ["Old mills", None, None, None],
    ),
    "no heading confirms the title": (
        "<title>Old mills - The Daily</title><h1>Menu</h1>", ["Old mills", None, None, None],
    ),
    "a site's name in front": (
        "<title>Daily: old | Mills</title><meta property=og:site_name content='Daily: old'>",
        ["Mills", None, None, None],
    ),
    "an element that says author": (
        '<div class="post-author"><img><!-- a > b --><a href=/bo>By Bo Li</a><i>3 posts</i></div>',
        [None, None, "Bo Li", None],
    ),
    "rel=author": ("<a rel=author>Bo</a>", [None, None, "Bo", None]),
    "itemprop": (
        "<p itemprop=author><span itemprop=name>bo_12</span><span>9,999</span>",
        [None, None, "bo_12", None],
    ),
    "authors of comments and of related articles": (
        "<div class=comments><p class=author>Bo</div><li class=related><p class=author>Cy",
        [None] * 4,
    ),
    "a day is no author": (
        "<p class=byline>Sat, 20 Dec 2025</p>", [None, "2025-12-20", None, None],
    ),
    "a day that readers see": (
        "<html lang=de><p class=post-date>Am <b>5. M&auml;rz 2021</b></p>",
        [None, "2021-03-05", None, "de"],
    ),
    "a day below the heading": (
        "<h1>A</h1><p>text</p><p>Updated 3/4/2021</p>", ["A", "2021-03-04", None, None],
    ),
    "a day above the heading": ("<p>4 March 2021<h1>A</h1>", ["A", "2021-03-04", None, None]),
    "the day's order by the language": (
        "<html lang=en-GB><h1>A</h1><p>3/4/2021", ["A", "2021-04-03", None, "en-GB"],
    ),
    "the day's order by a language of any spelling": (
        "<html lang=' EN_us '><h1>A</h1><p>3/4/2021", ["A", "2021-03-04", None, "EN_us"],
    ),
    "terms of RDFa with a prefix": (
        "<span property='dc:date dc:created' content=2021-03-04></span>"
        "<meta property=schema:headline content=A>",
        ["A", "2021-03-04", None, None],
    ),
    "a term without a prefix before one with one": (
        "<meta property=x:author content=Ada><meta name=dc.creator content=Bo>",
        [None, None, "Bo", None],
    ),
    "microdata that readers see": (
        "<p itemprop=datePublished>4 March 2021", [None, "2021-03-04", None, None],
    ),
    "an element that says time": (
        "<p class=timestamp>2021-03-04 21:06:57", [None, "2021-03-04 21:06:57", None, None],
    ),
    "the day of a comment": (
        "<div class=comments><meta itemprop=dateCreated content=2019-01-01>"
        "<p itemprop=datePublished content=2020-01-01></div>",
        [None, "2019-01-01", None, None],
    ),
    "of several days that readers see the one by the heading": (
        "<p class=date>1 May 2020<h1>A</h1><p>4 March 2021<div class=date>2 May 2020</div>",
        ["A", "2021-03-04", None, None],
    ),
    "a year of the Buddhist era": (
        "<time datetime=2564-03-04>", [None, "2021-03-04", None, None],
    ),
    "a site's name as Chinese pages join it": (
        "<title>国家食品药品监督管理局签署备忘录_要闻_正北方网</title>",
        ["国家食品药品监督管理局签署备忘录_要闻", None, None, None],
    ),
    "a script in a heading": (
        "<h1><script>x</script>A<br>B<svg><text>c</svg></h1>", ["A B", None, None, None],
    ),
    "a heading without end": ("<title>x</title><h1>A <i", ["x", None, None, None]),
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
    assert language_tag("zh-Hans") == "zh-Hans" and language_tag("ZH-tw") == "zh-TW"
    assert language_tag("EN_us") == "en-US" and language_tag("sr-Latn-rs") == "sr-Latn-RS"
    assert language_tag("en-us,en") == "en-US" and language_tag("en_US.UTF-8") == "en-US"
    assert language_tag("de, fr") == language_tag("de;q=1") == "de"
    for value in (None, "", "UTF-8", "Deutsch!", "x", "de-", "<script>", "en\n"):
        assert language_tag(value) is None, value


def test_dates_are_times_in_utc() -> None:
    assert published("2021-03-04T05:06:07+02:00") == datetime(
        2021, 3, 4, 3, 6, 7, tzinfo=timezone.utc
    )
    assert published("2021-03-04 junk") == datetime(2021, 3, 4, tzinfo=timezone.utc)
    assert published("Thu, 04 Mar 2021 05:06:07 GMT") == datetime(2021, 3, 4, tzinfo=timezone.utc)
    for value in (None, "", "yesterday", "2021-13-45", "9999-99-99"):
        assert published(value) is None, value


DAYS = """March 4, 2021|Mar. 4th 2021|4 March 2021|4th of March 2021|4. März 2021|4 mars 2021
4 de marzo de 2021|4 marzo 2021|4 de março de 2021|4 maart 2021|04.03.2021|4-3-2021|2021/3/4
2021.03.04|2021年3月4日|2021 Mar 4|3/4/2021|Thursday,March 4, 2021|posted on 4-Mar-2021, 5 pm"""


@pytest.mark.parametrize("text", DAYS.replace("\n", "|").split("|"))
def test_a_day_is_read(text: str) -> None:
    assert day_in(text) == "2021-03-04"


ABROAD = """4 Μαρτίου 2021|Πέμπτη, 4 ΜΑΡΤΙΟΥ 2021|4 marca 2021|4 марта 2021 г.|4 березня 2021
4 март 2021|4. března 2021|4 Mart 2021|4. maaliskuuta 2021|2021. március 4.|4 martie 2021|4. 3. 2021
4 مارس 2021|٤ مارس، ٢٠٢١|4 آذار 2021|2021년 3월 4일|2021. 3. 4.|2021年3月4日|令和3年3月4日
民國110年3月4日|4 มีนาคม 2564|๔ มี.ค. ๒๕๖๔|4 มีนาคม พ.ศ. 2564
4 de marzo del 2021|20210304|20210304050607"""


@pytest.mark.parametrize("text", ABROAD.replace("\n", "|").split("|"))
def test_a_day_is_read_in_other_languages_calendars_and_digits(text: str) -> None:
    assert day_in(text) == "2021-03-04"


# The months' names of Unicode CLDR, by their number.
MONTHS = {
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października "
    "listopada grudnia",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "el": "Ιανουαρίου Φεβρουαρίου Μαρτίου Απριλίου Μαΐου Ιουνίου Ιουλίου Αυγούστου Σεπτεμβρίου "
    "Οκτωβρίου Νοεμβρίου Δεκεμβρίου",
    "ar": "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
    "th": "มกราคม กุมภาพันธ์ มีนาคม เมษายน พฤษภาคม มิถุนายน กรกฎาคม สิงหาคม กันยายน ตุลาคม พฤศจิกายน ธันวาคม",
    "tr": "Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",
    "fi": "tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta "
    "syyskuuta lokakuuta marraskuuta joulukuuta",
    "cs": "ledna února března dubna května června července srpna září října listopadu prosince",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre "
    "dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro "
    "dezembro",
}


@pytest.mark.parametrize("language", MONTHS)
def test_each_month_name_of_a_language_is_recognised(language: str) -> None:
    found = [day_in(f"7 {month} 2021") for month in MONTHS[language].split()]
    assert found == [f"2021-{month:02}-07" for month in range(1, 13)]


def test_short_names_of_months_are_whole_words() -> None:
    assert day_in("7 gru 2021") == day_in("7 Ara. 2021") == "2021-12-07"
    assert day_in("7 grubs 2021") is day_in("7 Arabs 2021") is None


def test_an_incomplete_or_impossible_date_is_not_read() -> None:
    for text in (
        "",
        "March 2021",
        "31 February 2021",
        "4 maı 2021",
        "style 4, 2021",
        "4 March 1821",
        "version 1.2.2021.4",
        "2021",
    ):
        assert day_in(text) is None, text
    assert day_in("25/12/2021") == day_in("12/25/2021") == "2021-12-25"
    assert day_in("3/4/2021", month_first=False) == "2021-04-03"
    assert day_in("12/5/2021", month_first=False) == day_in("12.5.2021") == "2021-05-12"
    assert day_in("5/12/2021", month_first=False) == "2021-12-05"
    assert day_in("12/5/2021") == day_in("5-12-2021") == "2021-12-05"


def test_days_since_1990_are_read_and_the_first_of_them() -> None:
    assert day_in("31 December 1989, printed on 1 January 1990") == "1990-01-01"
    assert day_in("1989-12-31") is None
    assert day_in("30 February 2021, 2 March 2021, 1 March 2021") == "2021-03-02"


@pytest.mark.parametrize(
    ("titles", "site", "headings", "title"),
    [
        ([], None, [], None),
        ([], None, ["A", "B"], "A"),
        (["old mills"], None, ["Old river", "Mills day"], "Old river"),  # of equals the first
        (["old mills"], None, ["Rivers", "The old mills", "Old mills today"], "The old mills"),
        (["old mills"], None, ["River", "Old river bank"], "old mills"),  # no more than 0.4 alike
        (["old mills", "new mill"], None, ["Menu", "New mill"], "New mill"),
        (["Abcd and more"], None, ["Abcd and"], "Abcd and"),
        (["Abcdefgh"], None, ["Abcd"], "Abcd"),  # half of it
        (["Abcdefghi"], None, ["Abcd"], "Abcdefghi"),
        (["The mills | Daily News"], "DAILY NEWS", [], "The mills"),
        (["Daily News | The mills"], "daily  news!", [], "The mills"),
    ],
)
def test_a_title_is_the_heading_most_like_it(
    titles: list[str], site: str | None, headings: list[str], title: str | None
) -> None:
    assert title_of(titles, site, headings) == title


SITES: dict[str, tuple[str, str, str | None]] = {
    "Open Graph before JSON-LD and application-name": (
        LD.format('{"@type":"Article","author":"A","publisher":{"name":"Publisher"}}')
        + "<meta name=application-name content=App><meta property=og:site_name content=Daily>",
        "", "Daily",
    ),
    "the site of JSON-LD before the publisher of its article": (
        LD.format(
            '[{"@type":"Article","author":"A","publisher":{"name":"Publisher"}},'
            '{"@type":"WebSite","name":"Daily"}]'
        ),
        "", "Daily",
    ),
    "the publisher of the article": (
        LD.format('{"@type":"Article","author":"A","publisher":{"@id":"#p"}}').replace(
            "</script>", "</script>" + LD.format('{"@id":"#p","name":"Daily","author":""}'), 1
        ),
        "", "Daily",
    ),
    "the part of the title that the host spells": (
        "<title>Nuts &amp; Bolts | Old mills | More</title>", "https://www.nuts-bolts.co.uk/a",
        "Nuts & Bolts",
    ),
    "no part of less than half of the host": (
        "<title>Old | The mills</title>", "http://oldmills.org", None,
    ),
    "what stands behind the heading": (
        "<title>Старые мельницы — Рязанские новости</title><h1>Старые мельницы</h1>",
        "http://rzn.info/", "Рязанские новости",
    ),
    "a heading that the host does not spell wholly": (
        "<title>Mills | River News</title><h1>Mills</h1>", "http://mill.test/", "River News",
    ),
    "a heading that it spells wholly": (
        "<title>Mill | Old rivers</title><h1>Mill</h1>", "http://mill.test/", "Mill",
    ),
    "a day behind the heading": ("<title>Mills | 4 March 2021</title><h1>Mills</h1>", "", None),
    "nothing": ("<title>Old mills | Rivers</title>", "http://[::1/", None),
}  # fmt: skip


@pytest.mark.parametrize("name", SITES)
def test_a_page_names_its_site(name: str) -> None:
    page, url, expected = SITES[name]
    assert site(page, url) == expected


@pytest.mark.parametrize("path", ["2021/03/04/mills", "news/2021-03-04-mills", "20210304/a.html"])
def test_machine_readable_dates_win_over_a_date_in_the_url(path: str) -> None:
    url = f"https://example.org/{path}?d=/2019/01/01/"
    assert stated("<time datetime=2020-01-01>", url)[1] == "2021-03-04"
    assert stated("<meta name=date content=2020-01-01>", url)[1] == "2020-01-01"
    assert stated("", "https://example.org/?/2021/03/04/")[1] is None


def test_a_listing_page_with_several_dates_has_no_date() -> None:
    days = "<p class=date>4 March 2021</p><p class=date>3 March 2021</p>"
    found = main_texts(pa.array([days, days[:31]], pa.large_string()))
    for kind, expected in (("listing", None), ("article", "2021-03-04")):
        found.kinds[:] = KINDS.index(kind)
        assert [found.stated(row)[1] for row in (0, 1)] == [expected, "2021-03-04"]


def test_names_are_of_two_to_a_hundred_characters_and_bylines_of_sixty() -> None:
    for size, name in ((1, False), (2, True), (100, True), (101, False)):
        assert (name_of("by " + "A" * size) is not None) == name
    for size, name in ((60, True), (61, False)):
        assert (byline(["A" * size]) is not None) == name
    assert byline(["A B C D E F"]) == "A B C D E F" and byline(["A B C D E F G"]) is None
    assert name_of("BY Ada Lovelace | Daily") == byline(["By: Ada Lovelace"]) == "Ada Lovelace"
    assert signed(["B" * 200, "written BY", "Ada"]) == "Ada"


def test_hostile_pages_cost_what_their_bytes_do() -> None:
    pages = [
        LD.format('{"author":[' + "{}," * 80_000 + "{}]}") * 4,
        "<h1>" + "<" * 100_000,
        "<h1>" * 20_000 + "<title>" + " | " * 300 + "</title>",
        "<p class=author>" * 20_000,
        "<title>a</title><h1>" + "&nbsp;" * 1000 + "<!--" * 20_000,
    ]
    stated("")
    begin = time.process_time()
    for page in pages:
        stated(page)
    assert time.process_time() - begin < 5


def test_an_address_is_no_author() -> None:
    assert author("https://example.org/ada") is None and author("Ada") == "Ada"


def test_a_reference_of_thousands_of_digits_is_a_replacement_character() -> None:
    number = "&#" + "9" * 5000 + ";"
    assert resolved(f"a{number}b &amp;".encode()) == "a\ufffdb &"
