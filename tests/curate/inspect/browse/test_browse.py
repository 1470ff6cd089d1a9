"""`llmcurate browse`: search, cuts and clusters; hostile text is escaped, other origins refused."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.edits import Edit
from curate.inspect.browse.library import Library, Query, library
from curate.inspect.browse.originals import replay
from curate.inspect.browse.pages import list_page
from curate.inspect.browse.server import Server
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench
from tests.curate.inspect.browse.chromium import Browser
from tests.curate.inspect.browse.served import HOSTILE, STEPS, get, rows
from tests.llmcurate.base.pages.structure import check_structure


@pytest.fixture(scope="module")
def out(shared_bench: Any) -> Path:
    path = shared_bench.jsonl("in.jsonl", rows())
    shared_bench.run(STEPS, path)
    folder: Path = shared_bench.folder / "out"
    return folder


@pytest.fixture(scope="module")
def books(out: Path) -> Iterator[Library]:
    with library(out) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(books: Library) -> Iterator[Server]:
    with Server(books, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ids(books: Library, **fields: Any) -> list[str]:
    return [id[:3].strip("<") for id, _ in books.places(Query(**fields), 0, 100)]


@pytest.mark.parametrize(("fields", "wanted"), [
    ({"words": "PAGE 33 of"}, ["d33"]),
    ({"words": "a.test/41"}, ["d41"]),
    ({"words": "d55"}, ["d55"]),
    ({"words": "%"}, []),
    ({"words": "' OR 1=1 --"}, []),
    ({"rule": "document_length.too_short"}, ["d9", "d19", "d29", "d39", "d49", "d59", "d69"]),
    ({"rule": "document_length.too_short", "lang": "de"}, []),
    ({"column": "document_length.words", "most": 2.0, "status": "rejected"},
     ["d9", "d19", "d29", "d39", "d49", "d59", "d69"]),
    ({"column": "document_length.words", "least": 500.0}, []),
    ({"status": "rejected", "rule": "dedup_exact.same_url"}, ["d21"]),
], ids=str)  # fmt: skip
def test_search_finds(books: Library, fields: dict[str, Any], wanted: list[str]) -> None:
    assert ids(books, **fields) == wanted


def test_pages_of_fifty_hold_every_document_once_kept_ones_first(
    server: Server, books: Library
) -> None:
    pages = [get(server, f"/?page={number}")[1] for number in (0, 1)]
    led = [re.findall(r"[?&;]id=(d[0-9]+)", page) for page in pages]
    assert [len(each) for each in led] == [50, 20] and len({*led[0], *led[1]}) == 70
    assert "next 50" in pages[0] and "next 50" not in pages[1]
    kept = [status for page in pages for status in re.findall(r'"tag (kept|gone)">', page)]
    assert kept == sorted(kept, reverse=True)


def test_choices_say_how_many_documents_they_would_show(books: Library) -> None:
    everything = books.counts(Query())
    assert everything["lang"] == {"de": 35, "en": 35} and everything["domain"] == {"a.test": 69}
    assert sum(everything["status"].values()) == 70 == everything["source"]["in.jsonl"]
    asked = Query(words="page", rule="document_length.too_short", lang="de", status="kept")
    counts = books.counts(asked)
    for field in books.facets:
        for value, number in counts[field].items():
            assert len(ids(books, **asdict(asked) | {field: value})) == number
    assert not books.counts(Query(words="nobody wrote this"))["status"]


def test_a_large_run_counts_no_domains_and_says_so(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.inspect.browse.library.MOST_COUNTED", 69)
    with library(out) as books:
        assert "domain" not in books.counts(Query(domain="a.test"))
        assert books.counts(Query(domain="a.test", lang="en"))["lang"] == {"de": 35, "en": 34}
        assert "are not counted" in list_page(books, Query())


def test_counts_of_the_latest_searches_are_kept(books: Library) -> None:
    before = [books.counts(Query(words=str(n))) for n in range(9)]
    assert [books.counts(Query(words=str(n))) for n in range(9)] == before


@pytest.mark.parametrize(("order", "first"), [
    ("longest", "d7"), ("shortest", "d9"), ("id", "d0"), ("lowest", "d9"), ("highest", "d7"),
])  # fmt: skip
def test_documents_come_in_the_order_that_was_asked_for(
    books: Library, order: str, first: str
) -> None:
    assert ids(books, order=order, column="document_length.words")[0] == first


def test_a_seed_is_an_order_and_every_document_comes_once(books: Library) -> None:
    orders = [ids(books, order="random", seed=seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == sorted(orders[2])


def test_a_document_leads_to_its_neighbours_in_the_list(server: Server) -> None:
    list_of = "lang=en&amp;order=id"
    _, page, _ = get(server, "/document?lang=en&order=id&id=d15&at=3")
    assert "4 of 35" in page
    for id, number in (("d13", 2), ("d17", 4)):
        assert f'href="/document?{list_of}&amp;at={number}&amp;id={id}#hit"' in page
    _, page, _ = get(server, "/document?lang=en&order=id&id=d1&at=0")
    assert "previous</a>" not in page and "next \u2192</a>" in page


def test_the_list_has_titles_totals_and_the_report(server: Server, books: Library) -> None:
    _, page, _ = get(server, "/?lang=en&page=0")
    check_structure(page)
    assert "1 to 35 of 35" in page and "<bdi>The page of 33</bdi>" in page
    assert "aria-current=true>\n<span>en</span> <b>35</b>" in page
    assert "<span>document_length: too short</span> <b>7</b>" in page and 'href="/report"' in page
    assert page.index("name=column") < page.index("name=least") < page.index("name=most")


def test_a_document_says_its_rules_in_words_and_its_scores_as_bars(server: Server) -> None:
    _, page, _ = get(server, "/document?id=d9")
    check_structure(page)
    page = page.replace("<wbr>", "")
    assert "document_length: too short" in page and "drops if words is below 20" in page
    assert 'aria-label="2, 0 to ' in page and "limit 20" in page
    assert page.index("<h2>Why it was dropped</h2>") < page.index("<h2>Text</h2>")
    assert "Dropped by" in page and "value 2, limit 20" in page


def test_the_report_leads_to_the_documents(server: Server, out: Path) -> None:
    status, page, headers = get(server, "/report")
    assert status == 200 and "'sha256-" in headers["Content-Security-Policy"]
    check_structure(page)
    led = [html.unescape(a) for a in re.findall(r'<a href="(/document[^"]*)"', page)]
    assert led and all(get(server, address)[0] == 200 for address in led)
    assert "<script" not in page and 'href="/document' not in (out / "report.html").read_text()


def test_a_cluster_is_found_and_its_duplicates_shown_side_by_side(
    books: Library, server: Server
) -> None:
    decision = books.decisions("d21")[0]
    asked = f"{decision.method}:{decision.cluster}"
    assert sorted(ids(books, cluster=asked)) == ["d20", "d21"]
    status, page, _ = get(server, "/document?id=d21")
    assert status == 200 and "class=sides" in page
    assert "<del>21 </del>" in page and "<ins>20 </ins>" in page
    assert 'href="/document?id=d20"' in page


def test_cuts_are_struck_through_and_replacements_underlined(server: Server) -> None:
    _, page, _ = get(server, "/document?id=d3")
    assert re.search(r'<del title="cut by c4\.\w+">menu 3\n?</del>', page)
    _, page, _ = get(server, "/document?id=d8")
    assert "someone@example.org</del><ins" in page
    assert "<dt>" in page and "scores</summary>" in page


def test_a_changed_input_is_reported_instead_of_guessed(bench: Any) -> None:
    path = bench.jsonl("in.jsonl", rows()[:4])
    bench.run([{"c4": {"min_sentences": 2}}], path)
    bench.jsonl("in.jsonl", [r | {"text": r["text"].replace("river", "brook")} for r in rows()[:4]])
    with library(bench.folder / "out") as books, Server(books, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _, page, _ = get(server, "/document?id=d3")
        server.shutdown()
    assert "is not available" in page and "<del" not in page and "menu" not in page


def test_hostile_text_is_text(server: Server) -> None:
    name = quote(f"d7{HOSTILE}")
    for path in ("/", "/?words=somebody", f"/document?id={name}", f"/?words={quote(HOSTILE)}"):
        status, page, headers = get(server, path)
        assert status == 200
        assert page.count("<script") == 1 and "<img" not in page and "\u202e" not in page
        assert page.count("</style>") == 1 and 'href="javascript' not in page
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'") and policy.count("script-src 'sha256-") == 1


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1", "localhost:1", ""])
def test_another_host_name_is_refused(server: Server, host: str) -> None:
    status, page, _ = get(server, "/", host=host or "0.0.0.0")
    assert status == 403 and "d1" not in page


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_allowed(server: Server, method: str) -> None:
    assert get(server, "/", method=method)[0] == 501
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(("path", "status"), [
    ("/nothing", 404), ("/document?id=no", 404), ("/document", 404), ("/../etc/passwd", 404),
    ("/?least=x", 400), ("/?page=-1", 400), ("/?page=999999999", 400), ("/?column=id%22", 400),
    ("/?cluster=x", 400), ("/?status=x", 400), ("/?order=x", 400), ("/?order=highest", 400),
    ("/?seed=-1", 400), ("/document?id=d3&at=x", 400), ("/?words=" + "x" * 9000, 400),
    ("/?" + "&".join(f"a{i}=1" for i in range(60)), 400), ("/?words=%00%ff", 200),
], ids=lambda v: str(v)[:24])  # fmt: skip
def test_wrong_requests_are_answered_in_one_line(server: Server, path: str, status: int) -> None:
    assert get(server, path)[0] == status


def test_a_taken_port_and_a_folder_that_is_no_run_are_refused(
    books: Library, server: Server, bench: Any
) -> None:
    with pytest.raises(UsageError, match="give another"):
        Server(books, server.server_port)
    for arguments in (("browse", "nowhere"), ("browse", "nowhere", "--port", "70000")):
        done = bench.command(*arguments)
        assert done.returncode == 2 and done.stderr.count("\n") == 1


PIECE = st.text("ab\u00e4\n", max_size=6).map(str.encode)


@given(st.lists(st.tuples(PIECE, PIECE, PIECE), max_size=4), PIECE)
def test_edits_are_replayed_in_any_number_of_steps(
    spans: list[tuple[bytes, bytes, bytes]], end: bytes
) -> None:
    """Each span: text before it, what is cut, what is put; a second step cuts the middle third."""
    original, edited, edits, at = b"", b"", [], 0
    for before, cut, put in spans:
        start = at + len(before)
        put_text = put.decode()
        edits.append(Edit("a", "r", start, start + len(cut), put_text))
        original, edited, at = original + before + cut, edited + before + put, start + len(cut)
    original, edited = original + end, edited + end
    a, z = len(edited) // 3, 2 * len(edited) // 3
    edits.append(Edit("b", "r", a, z, ""))
    final = edited[:a] + edited[z:]
    runs = replay(original, edits, final)
    assert runs is not None
    assert b"".join(r.text for r in runs if not r.put) == original
    assert b"".join(r.text for r in runs if not r.cut) == final
    assert replay(original, edits, final + b"x") is None


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


def quiet(browser: Browser, width: int, own: str) -> None:
    """Nothing is wider than the window, nothing ran, nothing was asked of others."""
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("typeof window.hacked") == "undefined" and not browser.dialogs
    assert all(r.startswith((own, "about:", "data:")) for r in browser.requests)


def focus(browser: Browser) -> str:
    return str(browser.value("document.activeElement.name || document.activeElement.href || ''"))


@pytest.mark.parametrize("width", [360, 1280])
def test_chromium_searches_and_reads_by_keyboard(
    server: Server, browser: Browser, width: int
) -> None:
    browser.requests.clear()
    browser.open(server.address, width)
    quiet(browser, width, server.address)
    while focus(browser) != "words":
        browser.press("Tab", 9)
    browser.type("somebody wrote")
    browser.press("Enter", 13, "\r")
    browser.wait("location.search.includes('somebody')")
    assert browser.value("document.querySelectorAll('.hit').length") == 1
    while "/document?" not in focus(browser):
        browser.press("Tab", 9)
    browser.press("Enter", 13, "\r")
    browser.wait("location.pathname === '/document'")
    assert "<script>" in browser.value("document.querySelector('pre').textContent")
    quiet(browser, width, server.address)
    for path in ("document?id=d21", "report"):
        browser.open(f"{server.address}{path}", width)
        quiet(browser, width, server.address)


ODD = [
    "a/b", "a%2Fb", "a#hit", "a?id=d1&words=x", "a b+c", "..", "\"onclick=alert(1) x='",
    "\u202egnp", "nul\x00", "<script>window.hacked=1</script>", "javascript:window.hacked=1",
    "</bdi></a></main><img src=x onerror=window.hacked=1>", "{{ 7*7 }}", "\U0001f600", "z" * 2000,
]  # fmt: skip


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A run whose ids, URLs and texts are all odd, and rejected for what they hold."""
    bench = Bench(tmp_path_factory.mktemp("odd"))
    pages = [{"id": o, "text": f"{o} {{", "url": f"{o}//{o}", "title": o, "lang": o} for o in ODD]
    bench.run([{"c4": {"min_sentences": 0}}], bench.jsonl("in.jsonl", pages))
    with library(bench.folder / "out") as books, Server(books, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def click(browser: Browser, expression: str, condition: str) -> None:
    browser.value(f"{expression}.click()")
    browser.wait(condition)


def test_chromium_reads_and_labels_documents_of_any_id(odd: Server, browser: Browser) -> None:
    browser.requests.clear()
    browser.open(f"{odd.address}?order=id", 360)
    quiet(browser, 360, odd.address)
    link, key = "document.querySelectorAll('.hit h2 a')[0]", "n"
    click(browser, link, "location.pathname === '/document'")
    for number in range(len(ODD)):
        browser.wait(
            f"document.querySelector('.top .note').textContent.startsWith('{number + 1} of')"
        )
        quiet(browser, 360, odd.address)
        browser.press("g", 71, "g")
        browser.wait("document.querySelector('[aria-pressed]') !== null")
        browser.press(key, 78, key)
    assert {label.id for label in odd.library.labels.of("good")} == set(ODD)


def test_chromium_has_keys_for_all_and_the_hit_in_view(server: Server, browser: Browser) -> None:
    browser.open(f"{server.address}?words=somebody", 1280)
    browser.press("j", 74, "j")
    assert browser.value("document.activeElement.closest('.hit') !== null")
    browser.press("Enter", 13, "\r")
    browser.wait("location.hash === '#hit' && document.querySelector('.verdict') !== null")
    assert browser.value("document.querySelector('#hit').textContent") == "somebody"
    browser.open(f"{server.address}document?id=d8&words=example&at=1#hit", 360)
    inside = "(r => r.top > 0 && r.bottom < innerHeight)(document.querySelector('#hit, h1')"
    browser.wait(f"{inside}.getBoundingClientRect())")
    for key, code, wanted in (("?", 191, "document.querySelector('.keys').open"),
                              ("l", 76, "location.pathname === '/'")):  # fmt: skip
        browser.press(key, code, key)
        browser.wait(wanted)
    browser.press("/", 191, "/")
    assert focus(browser) == "words"
