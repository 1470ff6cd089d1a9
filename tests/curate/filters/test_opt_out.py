"""Opt-outs of publishers: where they are found, how they are read, which documents they drop."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import CORE, PAYLOAD, Documents, documents
from curate.filters import opt_out as opt_out_kept
from curate.filters.opt_out import OptOut, Sites
from curate.filters.opt_out_meta import find_metas, names_table, tag_forbids
from curate.text.buffers import text_buffers
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.filters.robots_archives import record, sites

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
NAMES = ("x-robots-tag", "robots", "tdm-reservation", "gptbot")


def page(text: str | bytes, headers: str | None = None, url: str = "https://x.test/a") -> Documents:
    data = text.encode() if isinstance(text, str) else text
    columns = {
        "url": [url],
        "payload": [data],
        "mime": ["text/html"],
        "opt_out_headers": [headers],
    }
    return documents(columns, (*CORE, *PAYLOAD)).within("opt_out")


def reasons(docs: Documents, **settings) -> list[tuple[str, str]]:
    outcome = OptOut(**settings).apply(docs)
    return [(d.rule, d.details[0]) for d in outcome.drops if d.details and d.details[0]]


def metas(*pages: bytes) -> list[tuple[int, str, bytes]]:
    """(row, name, content) of what the kernel finds."""
    data, offsets = text_buffers(pa.array(pages, pa.large_binary()))
    tags = find_metas(data, offsets, *names_table(NAMES))
    return [(row, NAMES[k], data[a:z].tobytes()) for row, k, a, z in tags.tolist()]


class _Reference(HTMLParser):
    """The same by Python's own parser, for heads that it and browsers read alike."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple[str, str]] = []
        self.over = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.over = self.over or tag == "body"
        if tag != "meta" or self.over:
            return
        first: dict[str, str] = {}
        for name, value in attrs:
            first.setdefault(name, value or "")
        name, equiv = (first.get(k, "").strip().lower() for k in ("name", "http-equiv"))
        if "content" in first and name in NAMES[1:]:
            self.found.append((name, first["content"]))
        elif "content" in first and equiv == NAMES[0]:
            self.found.append((equiv, first["content"]))


QUOTED = st.tuples(
    st.sampled_from(["name", "NAME", "http-equiv", "content", "property", "x"]),
    st.sampled_from([' = "', "='", "="]),
    st.sampled_from(["robots", "GPTBot", "tdm-reservation", "X-Robots-Tag", "noai", "1", "other"]),
).map(lambda p: p[0] + p[1] + p[2] + ("" if p[1] == "=" else p[1][-1]))
PARTS = st.one_of(
    st.lists(QUOTED, max_size=4).map(lambda a: f"<meta {' '.join(a)}>"),
    st.lists(QUOTED, max_size=3).map(lambda a: f"<META\n{' '.join(a)} />"),
    st.sampled_from(
        ["<!-- <meta name=robots content=a> -->", "<script>'<meta name=robots content=b>'</script>",
         "<STYLE>/* <meta name=robots content=c> */</style>", "<title>t</title>", "text", "&lt;",
         "<metax name=robots content=d>", "<p title='<'>", "<link rel=x>", "<body>"]
    ),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PARTS, max_size=8).map("".join))
def test_the_kernel_finds_what_an_html_parser_finds(text: str) -> None:
    expected = [(0, name, content.encode()) for name, content in _Reference(text).found]
    assert metas(text.encode()) == expected


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60) | st.just(b"<meta name=robots content='noai"), max_size=5))
def test_no_bytes_are_too_odd_and_rows_do_not_mix(pages: list[bytes]) -> None:
    together = metas(*pages)
    alone = [(row, *tag[1:]) for row, markup in enumerate(pages) for tag in metas(markup)]
    assert together == alone


@pytest.mark.parametrize(
    "text",
    [
        "<meta name=robots content=noai",
        "<title><meta name=robots content=noai></title>",
        "<head></head><meta name=robots content=noai>",
        "<!-- <meta name=robots content=noai>",
        "<meta name=robots>",
        "<meta http-equiv=robots content=noai>",
        "<meta name=x-robots-tag content=noai>",
    ],
)
def test_only_meta_tags_of_the_head_are_read(text: str) -> None:
    assert metas(text.encode()) == []


def test_more_meta_tags_than_the_buffer_holds_are_found() -> None:
    meta = b"<meta name=robots content=all>"
    assert len(metas(meta * 70, b"", meta * 70)) == 140


@pytest.mark.parametrize(
    ("value", "directive"),
    [
        ("noai", "noai"),
        ("noindex, NoAI", "noai"),
        ("noindex", None),
        ("gptbot: noindex", "gptbot: noindex"),
        ("all, GPTBot : NOINDEX", "gptbot: noindex"),
        ("  GPTBOT:None ;x", "gptbot: none"),
        ("Max-Snippet : 20 , NoAI", "noai"),
        ("GPTBot: nofollow, none", "gptbot: none"),
        ("googlebot: noai", None),
        ("googlebot: noindex, noai", None),  # the name holds for what stands behind it
        ("noai, googlebot: noindex", "noai"),
        ("*: noai", "*: noai"),
        ("unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT, noai", "noai"),
        ("max-snippet: 20, noimageai", "noimageai"),
        ("", None),
        (":,::,", None),
    ],
)
def test_a_header_speaks_to_all_or_to_the_agents_that_it_names(
    value: str, directive: str | None
) -> None:
    assert tag_forbids(value, {"noai", "noimageai"}, {"gptbot"}) == directive


@pytest.mark.parametrize(
    ("text", "headers", "expected"),
    [
        ("<meta name=robots content='index, noai'>", None, [("meta_robots", "robots: noai")]),
        ("<meta name=ROBOTS content='NO&#65;I'>", None, [("meta_robots", "robots: noai")]),
        ("<meta name=robots content=noindex>", None, []),
        ("<meta name=GPTBot content=noindex>", None, [("meta_robots", "gptbot: noindex")]),
        ("<meta name=googlebot content=noai>", None, []),
        ("<meta http-equiv=X-Robots-Tag content=noai>", None, [("meta_robots", "noai")]),
        ("", "x-robots-tag: all\nx-robots-tag: noai", [("x_robots_tag", "noai")]),
        ("", "x-robots-tag: GPTBot: none", [("x_robots_tag", "gptbot: none")]),
        ("", "x-robots-tag: gptBOT: NOINDEX", [("x_robots_tag", "gptbot: noindex")]),
        ("", "x-robots-tag: NoAI", [("x_robots_tag", "noai")]),
        ("<meta name=GPTBOT content='None'>", None, [("meta_robots", "gptbot: none")]),
        ("<meta name=' Robots ' content='NOAI'>", None, [("meta_robots", "robots: noai")]),
        ("", "tdm-reservation: 1", [("tdm_reservation", "header tdm-reservation: 1")]),
        ("", "tdm-reservation: 2", []),
        (
            "<meta name=tdm-reservation content=1>",
            "tdm-reservation: 0",
            [("tdm_reservation", "meta tdm-reservation: 1")],
        ),
        ("<meta name=tdm-reservation content=0>", "tdm-reservation: 1", []),
    ],
)
def test_each_word_has_its_rule_and_is_its_detail(
    text: str, headers: str | None, expected: list[tuple[str, str]]
) -> None:
    assert reasons(page(text, headers)) == expected
    assert reasons(page(text, headers), meta=False, headers=False, tdm=False) == []


def test_a_page_counts_before_its_headers_and_these_before_the_file_of_its_site(
    tmp_path: Path,
) -> None:
    tdm = b'[{"location": "/", "tdm-reservation": 1}]'
    archive = tmp_path / "robots.warc"
    archive.write_bytes(record("https://x.test/.well-known/tdmrep.json", tdm))
    meta = "<meta name=TDM-Reservation content={}>"
    for text, header, line in (
        ("", None, "tdmrep.json: /"),
        ("", "0", None),
        ("", "1", "header tdm-reservation: 1"),
        ("", "2", "tdmrep.json: /"),
        (meta.format(0), None, None),
        (meta.format(0), "1", None),
        (meta.format(" 1 "), "0", "meta tdm-reservation: 1"),
    ):
        docs = page(text, header and f"tdm-reservation: {header}")
        found = reasons(docs, robots_txt=str(archive))
        assert found == ([("tdm_reservation", line)] if line else []), (text, header)


def test_search_directives_count_only_if_the_recipe_lists_them() -> None:
    docs = page("<meta name=robots content=noindex>", "x-robots-tag: none")
    dropped = reasons(docs, directives=("noindex", "none"))
    assert dropped == [("x_robots_tag", "none"), ("meta_robots", "robots: noindex")]
    assert reasons(docs, directives=("NoIndex", "NONE")) == dropped


def test_pages_in_utf_16_are_read_and_plain_text_is_not() -> None:
    text = "<meta name=robots content=noai>"
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        mark = b"" if encoding == "utf-16" else "\ufeff".encode(encoding)
        assert reasons(page(mark + text.encode(encoding))) == [("meta_robots", "robots: noai")]
    plain = page(text)
    table = plain.table.set_column(
        plain.table.column_names.index("mime"), "mime", pa.array(["text/plain"])
    )
    assert reasons(Documents(table, step="opt_out")) == []


def test_opt_outs_are_dropped_with_reasons_and_other_documents_unchanged(
    tmp_path: Path, bench
) -> None:
    text = "<p>The river runs past the old mill and nobody works there any more today.</p>" * 3
    folder = tmp_path / "crawl"
    folder.mkdir()
    (folder / "pages.warc").write_bytes(
        record("https://x.test/open", text.encode())
        + record("https://x.test/private/a", text.encode())
        + record("https://y.test/h", text.encode(), "HTTP/1.1 200 OK\nX-Robots-Tag: noai")
        + record("https://z.test/m", b"<meta name=robots content=noai>" + text.encode())
    )
    (tmp_path / "robots.warc").write_bytes(
        record("https://x.test/robots.txt", b"User-agent: GPTBot\nDisallow: /private/\n")
    )
    step = {"opt_out": {"robots_txt": [str(tmp_path / "robots.warc")]}}
    # Not by `blocks`, whose kernels take long to compile.
    extract = {"extract": {"extractor": "resiliparse"}}
    bench.run([step, extract], folder, out="out")
    assert bench.ids("out") == ["https://x.test/open"]
    dropped = {r["id"]: (r["rule"], r["detail"]) for r in bench.rows("out", "rejected")}
    assert dropped == {
        "https://x.test/private/a": ("robots_txt", "GPTBot: Disallow: /private/"),
        "https://y.test/h": ("x_robots_tag", "noai"),
        "https://z.test/m": ("meta_robots", "robots: noai"),
    }
    (kept,) = bench.rows("out")
    bench.run([extract], folder, out="without")
    before = next(r for r in bench.rows("without") if r["id"] == kept["id"])
    assert kept.pop("opt_out.robots_known") is True and kept == before
    (tmp_path / "robots.warc").write_bytes(record("https://x.test/robots.txt", b""))
    bench.run([step, extract], folder, out="out")  # other content, other decisions
    assert len(bench.ids("out")) == 2


def test_behind_extract_it_has_no_pages_to_read(tmp_path: Path, bench) -> None:
    (tmp_path / "a.html").write_text("<p>text</p>")
    with pytest.raises(UsageError, match="step `opt_out` reads web pages: put it before"):
        bench.run(["extract", "opt_out"], tmp_path / "a.html")
    only = {"opt_out": {"headers": False, "meta": False, "tdm": False}}
    bench.run([{"extract": {"extractor": "resiliparse"}}, only], tmp_path / "a.html")


def test_the_filter_command_adds_extraction_after_opt_out(tmp_path: Path, bench) -> None:
    body = b"<p>The river runs past the old mill and nobody works there.</p>"
    plain, noai = record("https://x.test/a", body), "HTTP/1.1 200 OK\nX-Robots-Tag: noai"
    (tmp_path / "a.warc").write_bytes(plain + record("https://x.test/b", body, noai))
    plan = bench.command("filter", "opt_out", "a.warc", "-o", "out0", "--dry-run")
    assert "opt_out to extract: " in plan.stdout + plan.stderr
    line = ["opt_out,extract", "a.warc", "-o", "out0", "--set", "extract.extractor=resiliparse"]
    done = bench.command("filter", *line)
    assert done.returncode == 0, done.stderr
    assert bench.ids("out0") == ["https://x.test/a"]
    explained = bench.command("explain", "https://x.test/b", "--in", "out0").stdout
    assert "opt_out" in explained and "x_robots_tag" in explained and "noai" in explained
    done = bench.command("filter", "document_length,opt_out", "a.warc", "-o", "out2")
    assert done.returncode == 2 and "put it before `extract`" in done.stderr


def test_robots_txt_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "robots.txt").write_text("User-agent: *")
    for name, why in (("robots.txt", "is not an archive"), ("none.warc", "does not exist")):
        with pytest.raises(UsageError, match=rf"opt_out\.robots_txt: .*{why}"):
            OptOut(robots_txt=(str(tmp_path / name),)).identity()


def test_a_step_without_archives_of_robots_says_so() -> None:
    assert OptOut().notes() == ["opt_out: no robots_txt was given, so no robots.txt is applied"]
    assert OptOut(robots=False).notes() == []


REAL = SHARED / "corpora" / "real_warc"


@pytest.mark.skipif(not REAL.is_dir(), reason="no shared/corpora/real_warc")
def test_robots_txt_of_a_real_crawl_is_read() -> None:
    archive = next(REAL.rglob("post-blackout.warc.gz"))
    crawl_sites = Sites(("GPTBot",)).read([str(archive)])
    policy = crawl_sites.robots("http://wikimediafoundation.org")
    assert policy and "Disallow: /wiki/Special:Search" in policy[0][1]


def test_signals_and_ai_txt_drop_by_rules_of_their_own(tmp_path: Path) -> None:
    robots = b"User-agent: *\nContent-Signal: ai-train=no, search=yes\nAllow: /"
    held = [
        record("https://x.test/robots.txt", robots),
        record(
            "https://y.test/robots.txt",
            b"",
            "HTTP/1.1 301 Moved\nLocation: https://x.test/robots.txt",
        ),
        record("https://z.test/ai.txt", b"User-Agent: *\nDisallow: *.html\nAllow: *.jpg"),
        record("https://w.test/ai.txt", b"User-Agent: *\nDisallow: /", "HTTP/1.1 404 Not Found"),
        record("https://v.test/ai.txt", b"# Our pages\n- [About](/about): what we do\n"),
    ]
    (tmp_path / "robots.warc").write_bytes(b"".join(held))

    def why(url: str, **settings) -> list[tuple[str, str]]:
        return reasons(page("", url=url), robots_txt=str(tmp_path / "robots.warc"), **settings)

    line = "*: Content-Signal: ai-train=no, search=yes"
    assert why("https://x.test/a") == why("http://y.test/b") == [("content_signal", line)]
    assert why("https://x.test/a", signals=[]) == why("https://x.test/a", signals="ai-input") == []
    assert why("https://z.test/a.html") == [("ai_txt", "*: Disallow: *.html")]
    assert why("https://z.test/a.html", ai_txt=False) == why("https://z.test/a.jpg") == []
    assert why("https://w.test/") == why("https://v.test/about") == []


def test_workers_get_the_parsed_policies_unchanged(tmp_path: Path) -> None:
    robots = (
        "User-agent: *\nDisallow: /caf\u00e9*x$\nAllow: /\nContent-Signal: ai-train=no".encode()
    )
    tdm = b'[{"location": "/a*", "tdm-reservation": 1}]'
    moved = "HTTP/1.1 301 Moved\nLocation: https://a.test/robots.txt"
    held = sites(
        tmp_path,
        record("https://a.test/robots.txt", robots),
        record("https://b.test/robots.txt", robots),
        record("https://c.test/robots.txt", b"", moved),
        record("https://d.test/ai.txt", robots),
        record("https://d.test/.well-known/tdmrep.json", tdm),
        signals=("ai-train",),
    )
    opt_out_kept.write(held, tmp_path / "kept.sites")
    again = opt_out_kept.read(tmp_path / "kept.sites")
    for name in "abcdx":
        origin = f"https://{name}.test"
        for ask in ("robots", "signal", "ai"):
            assert getattr(again, ask)(origin) == getattr(held, ask)(origin)
        for path in ("/ab", "/b"):
            assert again.reservation(origin, path) == held.reservation(origin, path)
    assert again.reserve and again.signal("https://c.test")
    assert again.robots("https://a.test") is again.robots("https://b.test"), "one object"
    data = (tmp_path / "kept.sites").read_bytes()
    for damaged in (data[: len(data) // 2], b"[]", data.replace(b'"version":2', b'"version":9')):
        (tmp_path / "kept.sites").write_bytes(damaged)
        with pytest.raises(RunFailed, match=r"kept\.sites is damaged"):
            opt_out_kept.read(tmp_path / "kept.sites")


def test_an_archive_of_robots_is_read_once_and_its_damage_listed(tmp_path: Path, bench) -> None:
    (tmp_path / "pages").mkdir()
    for n in range(3):
        url = f"https://x.test/{'private/' if n else ''}{n}"
        (tmp_path / "pages" / f"{n}.warc").write_bytes(record(url, b"<p>A page about mills.</p>"))
    robots = record("https://x.test/robots.txt", b"User-agent: *\nDisallow: /private/\n")
    archive = tmp_path / "robots.warc"
    archive.write_bytes(robots + b"no record\r\n\r\n" + robots)
    step = {"opt_out": {"robots_txt": str(archive)}}
    done = bench.run([step, {"extract": {"extractor": "resiliparse"}}], tmp_path / "pages")
    assert len(bench.ids()) == 1 and done.totals().corrupt == 1
    (line,) = (bench.folder / "out/corrupt.jsonl").read_text().splitlines()
    assert f'"file": "{archive}", "offset": {len(robots)}' in line
    (kept,) = (bench.folder / "out/stages").glob("*/opt_out.sites")
    opened = OptOut(robots_txt=str(archive))
    archive.unlink()
    opened.open_in(kept.parent)
    url = "https://x.test/private/1"
    outcome = opened.apply(page("", url=url))
    assert [d.rule for d in outcome.drops if d.details and d.details[0]] == ["robots_txt"]
