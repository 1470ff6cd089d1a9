"""The URL filter: what is blocked, in whatever spelling, and what is not."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from curate.documents.documents import CORE, PAYLOAD, documents
from curate.fetch.published import Published
from curate.filters import url
from curate.filters.url import UrlFilter
from llmcurate.base.errors import LlmcurateError, UsageError
from tests.curate.one_file_web import OneFileWeb


@pytest.fixture
def lists(tmp_path: Path):
    """Writes a list and returns its path."""

    def write(*lines: str, name: str = "list.txt") -> str:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    return write


def reasons(step: UrlFilter, *urls: str | None) -> list[list[tuple[str, str | None]]]:
    """(rule, detail) of every reason of every URL."""
    ids = [str(i) for i in range(len(urls))]
    docs = step.apply(documents({"id": ids, "url": list(urls)}).within(step.name))
    rejected = {row["id"]: row["reasons"] for row in docs.split()[1].to_pylist()}
    return [[(r["rule"], r["detail"]) for r in rejected.get(i, [])] for i in ids]


def rules(step: UrlFilter, *urls: str | None) -> list[str | None]:
    """The only rule that drops each URL."""
    dropped = reasons(step, *urls)
    assert all(len(r) < 2 for r in dropped)
    return [r[0][0] if r else None for r in dropped]


def test_a_domain_blocks_itself_and_its_subdomains(lists) -> None:
    step = UrlFilter(domains=lists("bad.example", "deep.worse.example"))
    blocked = ["http://bad.example/", "https://a.b.bad.example/x", "bad.example/x", "//bad.example"]
    assert rules(step, *blocked) == ["domain"] * 4
    free = ["http://notbad.example/", "http://bad.example.org/", "http://worse.example/bad.example"]
    assert rules(step, *free) == [None] * 3
    assert reasons(step, "http://x.deep.worse.example")[0] == [("domain", "deep.worse.example")]


def test_a_host_blocks_itself_only(lists) -> None:
    step = UrlFilter(hosts=lists("blog.example.org"))
    urls = ["http://blog.example.org/a", "http://example.org", "http://a.blog.example.org"]
    assert rules(step, *urls) == ["host", None, None]


def test_keep_lists_keep_what_any_of_them_has_and_nothing_else(lists) -> None:
    step = UrlFilter(
        keep_domains=lists("news.example", name="domains.txt"),
        keep_hosts=lists("www.paper.example", name="hosts.txt"),
        keep_urls=lists("https://blog.example/post?utm_source=x", name="urls.txt"),
    )
    kept = [
        "http://a.news.example/x",
        "https://WWW.paper.example./y",
        "http://www.blog.example/post/",
    ]
    assert rules(step, *kept) == [None] * 3
    gone = [
        "http://paper.example/y",
        "http://blog.example/other",
        "http://oldnews.example",
        None,
        "",
    ]
    assert rules(step, *gone) == ["not_listed"] * 5
    assert reasons(step, "http://blog.example/other")[0] == [("not_listed", "blog.example")]


def test_an_allowed_domain_is_spared_by_every_rule(lists) -> None:
    listed = lists("a.example", name="hosts.txt")
    words = {"banned_words": lists("a", name="words.txt"), "banned_subwords": lists("exam")}
    for setting in (
        {"domains": listed}, {"hosts": listed}, {"urls": listed}, {"exclude": "a.example"}, words,
        {"keep_hosts": lists("b.example", name="keep.txt")},
    ):  # fmt: skip
        assert rules(UrlFilter(allow="A.Example", **setting), "http://a.example/") == [None]
        assert reasons(UrlFilter(**setting), "http://a.example/") != [[]]


def test_a_keep_list_spares_nothing_from_the_block_lists(lists) -> None:
    step = UrlFilter(
        keep_domains=lists("news.example", name="keep.txt"), exclude="ads.news.example"
    )
    assert rules(step, "http://news.example", "http://ads.news.example") == [None, "excluded"]
    alone = UrlFilter(keep_domains=lists(name="empty.txt"))
    assert rules(alone, "http://news.example") == ["not_listed"]


def hosts_of(lists, *lines: str) -> tuple[list[str | None], list[str]]:
    """The rules of a.example to d.example by a list, and what is said of it."""
    step = UrlFilter(domains=lists(*lines))
    return rules(step, *(f"http://{x}.example/" for x in "abcd")), step.notes()


@pytest.mark.parametrize(
    "lines",
    [
        ["||a.example^", "||B.example^$third-party,important"],
        ["[Adblock Plus 2.0]", "! comment", "||a.example^", "||b.example", "! ||c.example^"],
        ["\ufeff# hosts", "127.0.0.1 localhost", "0.0.0.0 a.example # ad", "0.0.0.0\tB.EXAMPLE\r"],
        ["::1 localhost ip6-loopback", "192.0.2.1 a.example b.example", "0.0.0.0 0.0.0.0"],
        ["address=/a.example/0.0.0.0", "server=/b.example/"],
        ["local=/a.example/b.example/", "; comment", "## comment", "#####"],
        ["*.a.example", "||*.b.example^"],
    ],
)
def test_lists_of_adblock_hosts_and_dnsmasq_have_domains(lists, lines: list[str]) -> None:
    assert hosts_of(lists, *lines) == (["domain", "domain", None, None], [])


def test_rules_on_other_things_than_domains_are_counted(lists) -> None:
    rules_of_pages = ["@@||c.example^", "##.banner", "d.example##.ad", "||d.example^$script"]
    addresses = ["||d.example/ad^", "|https://d.example/", "/banner/*/ad", "&ad=", "-ads-"]
    found, said = hosts_of(lists, "[Adblock]", "||a.example^", *rules_of_pages, *addresses)
    assert found == ["domain", None, None, None]
    assert len(said) == 1
    assert said[0].endswith("1 domain used, 9 rules ignored (not about whole domains)")


@pytest.mark.parametrize("line", ["/banner/ad", "a b", "bad.example/page", "a|b", "x=y", "<html>"])
def test_a_line_of_no_kind_is_refused_with_its_number(lists, line: str) -> None:
    with pytest.raises(UsageError, match=r"list\.txt:3: .* is not a host"):
        hosts_of(lists, "a.example", "# comment", line, "*")


def test_a_list_without_entries_is_reported(lists) -> None:
    found, said = hosts_of(lists, "", "# nothing yet", "127.0.0.1 localhost")
    assert found == [None] * 4
    assert said[0].endswith("list.txt has no entries, so it has no effect")
    (line,) = UrlFilter(urls=lists("# no page", name="pages.txt")).notes()
    assert line.endswith("pages.txt has no entries, so it has no effect")


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> bytes:
    """An archive that stands for UT1's, in an empty cache."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, entry in (("urls", b"c.example/page\n"), ("domains", b"a.example\n")):
            member = tarfile.TarInfo(name)
            member.size = len(entry)
            tar.addfile(member, io.BytesIO(entry))
    data = raw.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    ut1 = Published("https://x.test/ut1.tar.gz", len(data), digest, "lists/ut1.tar.gz")
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(url, "PUBLISHED", {"domains": {"ut1": ut1}, "urls": {"ut1": ut1}})
    return data


def test_ut1_is_fetched_once_and_checked(archive: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    web = OneFileWeb(monkeypatch, archive)
    step = UrlFilter(domains="ut1", urls="ut1")
    assert step.to_fetch() == ["https://x.test/ut1.tar.gz"]
    assert step.without_missing_files() is step and step.notes() == []
    pages = [
        "http://www.a.example",
        "http://b.example",
        "http://c.example/page",
        "http://c.example",
    ]
    assert rules(step, *pages) == ["domain", None, "url", None]
    assert len(web.asked) == 1 and UrlFilter(domains="ut1").to_fetch() == []


@pytest.mark.parametrize("content", [b"another", None])
def test_without_ut1_the_step_goes_with_its_other_lists_and_says_so(
    archive: bytes, monkeypatch, lists, capsys, content: bytes | None
) -> None:
    OneFileWeb(monkeypatch, content)
    other = lists("b.example")
    step = UrlFilter(domains=("ut1", other), urls="ut1").without_missing_files()
    assert (step.domains, step.urls) == ((other,), ())
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("url_filter: runs without domains=ut1, urls=ut1 (download failed: ")
    assert rules(step, "http://a.example", "http://b.example") == [None, "domain"]


def test_the_published_lists_are_those_of_datatrove() -> None:
    assets = Path(pytest.importorskip("datatrove").__file__).parent / "assets"
    for of in url.PUBLISHED.values():
        for file in of.values():
            data = (assets / Path(file.place).name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)


SPELLINGS = [
    "HTTP://BAD.Example/",
    "http://bad.example.:8080/",
    "http://bad.example:/",
    "http://user:secret@bad.example/",
    "http://good.example@bad.example/",
    "http://good.example:80@www.bad.example/",
    "http:\\\\bad.example\\path",
    "http:///bad.example/",
    "http://b%61d.ex%41mple/",
    "  http://bad.example/\n",
    "http://bad\t.example/",
    "http://bad。example/",
    "http://ｂad.example/",
    "http://bad.example?q",
    "http://bad.example#top",
    "https://bad.example",
    "ftp://bad.example/file",
]


@pytest.mark.parametrize("url", SPELLINGS)
def test_no_spelling_of_a_host_escapes(lists, url: str) -> None:
    assert rules(UrlFilter(domains=lists("bad.example")), url) == ["domain"]


def test_a_host_that_only_looks_listed_passes(lists) -> None:
    step = UrlFilter(domains=lists("bad.example"))
    urls = ["http://bad.example@good.example/", "http://good.example/@bad.example", "mailto:x"]
    assert rules(step, *urls, "http://", "http://[::1]:80/", "?", "...", "\x00") == [None] * 8


def test_unicode_and_punycode_hosts_are_one(lists) -> None:
    puny = "xn--" + "хорошо".encode("punycode").decode() + ".example"
    for entry in ("хорошо.example", "ХОРОШО.example", puny, puny.upper()):
        step = UrlFilter(domains=lists(entry))
        urls = [f"http://{puny}/", "http://www.хорошо.EXAMPLE/", "http://%D1%85орошо.example/"]
        assert rules(step, *urls) == ["domain"] * 3
    assert rules(UrlFilter(domains=lists("straße.example")), "http://strasse.example") == [None]
    assert rules(UrlFilter(domains=lists("x.example")), "http://xn--\x7f99999999.example") == [None]


def test_pages_are_compared_without_scheme_www_tracking_fragment_and_last_slash(lists) -> None:
    step = UrlFilter(urls=lists("https://www.Example.org/Some/page/?utm_source=feed", "a.example"))
    same = [
        "http://example.org/some/page",
        "https://www.example.org:443/some/page//",
        "http://example.org/some/p%61ge?ref=x",
        "http://example.org/some/page?feed#part",
        "http://user@example.org/SOME/page#part",
    ]
    assert rules(step, *same) == ["url"] * 5
    other = ["http://example.org/some/page/2", "http://example.org/some/page?id=1"]
    assert rules(step, *other, "http://m.example.org/some/page") == [None] * 3
    assert reasons(step, "https://www.a.example/", "https://a.example/b") == [
        [("url", "a.example")],
        [],
    ]


def test_one_whole_banned_word_is_enough_in_any_case(lists) -> None:
    step = UrlFilter(banned_words=lists("lewd", "2g1c", "red light", "nsfw"))
    blocked = [
        *("http://a.example/lewd", "http://a.example/LEWD", "http://a.example/x_Lewd-1.html"),
        *("http://lewd.example", "http://a.example/?q=lewd", "http://a.example/%6Cewd"),
        *("http://a.example/lewd18", "http://a.example/2g1c", "http://a.example/Red_Light"),
        *("http://a.example/red%20light", "http://a.example/red+light", "a.example/#lewd"),
    ]
    assert rules(step, *blocked) == ["banned_word"] * len(blocked)
    free = ["http://a.example/lewdness", "http://a.example/unlewd", "http://a.example/12g1c"]
    assert (
        rules(step, *free, "http://a.example/redlight", "http://user.lewd@a.example") == [None] * 5
    )
    assert reasons(step, "http://a.example/nsfw/lewd")[0] == [("banned_word", "nsfw, lewd")]


def test_words_of_all_scripts_are_found(lists) -> None:
    step = UrlFilter(banned_words=lists("казино", "色情", "größe", "কাজ"))
    urls = [
        "http://a.example/%D0%9A%D0%90%D0%97%D0%98%D0%9D%D0%9E/",
        "http://a.example/онлайн-казино",
        "http://a.example/免费色情网站",  # scripts without spaces have no word ends
        "http://a.example/GRÖSSE",
        "http://a.example/gro\u0308ße",
        "http://a.example/কাজ",
        "http://a.example/ＮＳ/казино",
    ]
    assert rules(step, *urls) == ["banned_word"] * len(urls)
    assert rules(step, "http://a.example/казиношка", "http://a.example/কাজা") == [None, None]


def test_two_different_soft_words_drop_and_one_twice_does_not(lists) -> None:
    soft = lists("escort", "webcam", "babes")
    urls = ["a.example/escort", "a.example/escort/escort", "a.example/Escort/webcam"]
    assert rules(UrlFilter(soft_words=soft), *urls) == [None, None, "soft_words"]
    assert rules(UrlFilter(soft_words=soft, max_soft_words=3), *urls) == [None] * 3
    assert rules(UrlFilter(soft_words=soft, max_soft_words=1), *urls) == ["soft_words"] * 3


def test_subwords_are_found_anywhere_in_a_part_of_the_url(lists) -> None:
    step = UrlFilter(banned_subwords=lists("porn", "ball gag"))
    urls = ["freeporn4you.example", "a.example/P-O-R-N", "a.example/ball%20gags", "por.n.example"]
    assert rules(step, *urls) == ["banned_subword"] * 4
    assert rules(step, "a.example/map/ornaments", "a.example/?por=n") == [None, None]


def test_allowed_domains_always_pass(lists) -> None:
    step = UrlFilter(
        domains=lists("bad.example", name="domains"),
        banned_words=lists("lewd", name="words"),
        allow=["fine.bad.example", "@" + lists("xn--e1afmkfd.example", name="allow")],
    )
    urls = ["http://www.fine.bad.example/lewd", "http://пример.example/lewd", "http://bad.example"]
    assert rules(step, *urls) == [None, None, "domain"]


def test_excluded_domains_have_a_rule_of_their_own() -> None:
    step = UrlFilter(exclude=["wikipedia.org", "github.com"])
    urls = ["https://de.m.wikipedia.org/wiki/A", "https://github.com", "https://github.io"]
    assert rules(step, *urls) == ["excluded", "excluded", None]


def test_a_page_collects_all_its_reasons(lists) -> None:
    words = lists("lewd")
    step = UrlFilter(exclude="bad.example", banned_words=words, banned_subwords=words)
    assert [r for r, _ in reasons(step, "http://bad.example/lewd")[0]] == [
        "excluded",
        "banned_word",
        "banned_subword",
    ]


def test_null_and_empty_urls_pass_and_are_counted(lists) -> None:
    step = UrlFilter(domains=lists("bad.example"), banned_words=lists("lewd", name="w"))
    docs = step.apply(documents({"url": [None, "", "bad.example"]}).within("url_filter"))
    assert docs.table["url_filter.known"].to_pylist() == [False, False, True]
    assert docs.marked().tolist() == [False, False, True]


def test_the_url_filter_runs_on_payloads_before_extraction(lists) -> None:
    columns: dict[str, Any] = {
        "id": ["a", "b"],
        "text": [None, None],
        "url": ["http://bad.example", "http://good.example"],
        "payload": [b"<p>a", b"<p>b"],
        "mime": ["text/html"] * 2,
        "charset": [None] * 2,
    }
    docs = documents(columns, (*CORE, *PAYLOAD)).within("url_filter")
    kept, rejected = UrlFilter(domains=lists("bad.example")).apply(docs).split()
    assert kept["payload"].to_pylist() == [b"<p>b"] and kept["text"].null_count == 1
    assert rejected["id"].to_pylist() == ["a"]


def test_lists_may_be_several_gzipped_and_commented(lists, tmp_path: Path) -> None:
    packed = tmp_path / "more.gz"
    packed.write_bytes(gzip.compress(b"# hosts\n0.0.0.0 two.example\r\n127.0.0.1\tthree.example"))
    plain = lists(
        "", "# comment", "  one.example  # why", "*.four.example", ".five.example", "#six"
    )
    step = UrlFilter(domains=[plain, str(packed)])
    urls = [f"http://{n}.example" for n in ("one", "two", "three", "four", "five", "six")]
    assert rules(step, *urls) == ["domain"] * 5 + [None]
    assert step.resources() == [plain, str(packed)]


def test_a_list_by_url_needs_its_sha256(lists, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"url_filter\.sha256"):
        UrlFilter(domains="https://lists.example/domains.txt").open()
    path = Path(lists("bad.example"))
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    UrlFilter(domains=str(path), sha256={str(path): right}).open()
    with pytest.raises(UsageError, match=r"has sha256 .*, expected"):
        UrlFilter(domains=str(path), sha256={str(path): "0" * 64}).open()


@pytest.mark.parametrize("line", ["a.example/page", "two words", "?", "http://", "x.example?q"])
def test_a_line_that_is_no_host_is_named(lists, line: str) -> None:
    with pytest.raises(UsageError, match=r"list\.txt:3: .* is not a host"):
        UrlFilter(domains=lists("good.example", "münchen.example", line)).open()


def test_wrong_lists_are_refused(lists, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere"):
        UrlFilter(urls=str(tmp_path / "nowhere")).open()
    with pytest.raises(UsageError, match="contains no words"):
        UrlFilter(banned_words=lists("# nothing", "---")).open()
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"x" * 99)[:-9])
    with pytest.raises(UsageError, match="damaged"):
        UrlFilter(domains=str(tmp_path / "broken.gz")).open()
    with pytest.raises(ValidationError):
        UrlFilter(max_soft_words=0)


def test_without_a_list_the_report_says_so() -> None:
    assert "no list was given" in UrlFilter().notes()[0]
    assert UrlFilter(exclude="a.example").notes() == []


def test_empty_batch_and_slices(lists) -> None:
    step = UrlFilter(domains=lists("bad.example"), banned_words=lists("lewd", name="w"))
    assert len(step.apply(documents({"url": pa.array([], pa.string())}).within("u"))) == 0
    whole = documents({"url": ["a.example", None, "bad.example", "x.example/lewd", "b.example"]})
    part = type(whole)(whole.table.slice(1, 3)).within("url_filter")
    assert step.apply(part).marked().tolist() == [False, True, True]


def test_another_content_of_a_list_is_another_stage(lists) -> None:
    before = UrlFilter(domains=lists("a.example")).identity()
    after = UrlFilter(domains=lists("b.example")).identity()
    assert before.settings == after.settings and before != after


def test_a_run_filters_pages_before_they_are_extracted(bench, lists) -> None:
    warc = Path(bench.folder / "x.warc")
    warc.write_bytes(b"".join(_response(u) for u in ("http://bad.example/", "http://ok.example/")))
    steps = [{"url_filter": {"domains": lists("bad.example")}}, "cut", "extract"]
    bench.run(steps, warc)
    assert [r["url"] for r in bench.rows()] == ["http://ok.example/"]
    assert bench.rows()[0]["text"].strip() == "Some text here."
    rejected = bench.rows(kind="rejected")[0]
    assert (rejected["rule"], rejected["text"]) == ("domain", None)
    with pytest.raises(LlmcurateError, match="cannot read"):
        steps[0] = {"url_filter": {"domains": str(bench.folder / "none")}}
        bench.run(steps, warc, out="two")


def _response(url: str) -> bytes:
    body = b"<html><body><main><p>Some text here.</p></main></body></html>"
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\n"
        f"WARC-Record-ID: <urn:uuid:{hashlib.md5(url.encode()).hexdigest()}>\r\n"
        f"WARC-Date: 2020-01-01T00:00:00Z\r\nContent-Type: application/http;msgtype=response\r\n"
        f"Content-Length: {len(http)}\r\n\r\n"
    )
    return head.encode() + http + b"\r\n\r\n"
