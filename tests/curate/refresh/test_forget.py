"""Forgotten documents are removed from all snapshots, stay out later, and are on record."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.refresh import run
from curate.refresh.forgetting import Removals, hosts, normal_domain, normal_urls
from curate.refresh.outcome import RefreshOptions
from tests.curate.refresh.growing import Home
from tests.disk_calls import disk_calls

PAGES = [
    ("a", "https://www.one.test/page?utm_source=x"),
    ("b", "http://deep.sub.one.test:80/other"),
    ("c", "https://notone.test/page"),
    ("d", "https://user@two.test./x"),
    ("e", None),
    ("f", "https://three.test/one.test/"),
]
ROWS = [{"id": n, "url": u, "text": f"Text of {n}."} for n, u in PAGES]


def test_urls_in_normal_form_domains_with_all_below_and_ids():
    ids, urls = (pa.array(c, pa.string()) for c in zip(*PAGES, strict=True))

    def gone(*entries):
        by = Removals.of(entries).by(ids, urls).to_pylist()
        return [name for name, reason in zip("abcdef", by, strict=True) if reason]

    assert gone(("url", "http://one.test/page/")) == ["a"]
    assert gone(("domain", "one.test")) == ["a", "b"]
    assert gone(("domain", "sub.one.test"), ("id", "e")) == ["b", "e"]
    assert gone(("domain", "two.test"), ("url", "https://three.test/one.test")) == ["d", "f"]
    assert gone(("domain", "test")) == ["a", "b", "c", "d", "f"]
    assert gone(("id", "A"), ("url", "page")) == []
    both = Removals.of([("domain", "one.test"), ("id", "a")]).by(ids, urls).to_pylist()
    assert both[:3] == ["id", "domain", None]


@pytest.mark.parametrize(
    "url",
    ["https://Example.ORG/", "HTTP://EXAMPLE.org:80/x", "https://u:p@Sub.eXample.Org./?q#f"],
)
def test_a_domain_is_compared_whatever_the_case_of_a_url(url):
    by = Removals.of([("domain", normal_domain(" *.EXAMPLE.org. "))]).by(
        pa.array(["x"]), pa.array([url])
    )
    assert by.to_pylist() == ["domain"]


def same(*urls):
    return len({*normal_urls(pa.array(urls)).to_pylist()}) == 1


WORDS = st.text(st.sampled_from("abf=._/:@r?é\n"), max_size=8)


@given(
    st.sampled_from(["shop.test", "münchen.de", "a.b.test"]),
    WORDS.map(lambda text: text.replace("?", "").strip("/")),
    st.lists(WORDS.filter(lambda text: text.strip("/"))),
    st.lists(st.tuples(st.integers(0, 9), WORDS)),
    WORDS,
)
def test_spellings_of_one_page_are_the_same_url(host, path, parameters, tracking, fragment):
    tracked = [*parameters]
    for at, value in tracking:
        tracked.insert(at, f"utm_{value}")
    plain, other = (f"/{path}" + "?" * bool(p) + "&".join(p) for p in (parameters, tracked))
    spelled = host.upper().encode("idna").decode()
    assert same(f"http://{host}{plain}", f"HTTPS://a:b@www.{spelled}:443{other}#{fragment}")
    assert same(f"https://{host}{plain}", f"http://{host}:80{plain}//")
    assert not same(f"https://{host}{plain}", f"https://{host}:8080{plain}")


@given(st.lists(WORDS), st.lists(WORDS))
def test_pages_with_other_parameters_are_other_urls(some, others):
    queries = ["&".join(p).rstrip("/&") for p in (some, others)]
    assert same(*(f"https://shop.test/p?{q}" for q in queries)) == (
        queries[0].rstrip("/&") == queries[1].rstrip("/&")
    )


@pytest.mark.parametrize("end", ["", "?reference=11", "?feedback=1", "?ref_id=7&item=3", "?Utm_a"])
def test_only_utm_parameters_are_left_out(end):
    assert not same("https://shop.test/p?reference=10", f"https://shop.test/p{end}")
    assert same(f"https://shop.test/p{end}", f"https://shop.test/p{end}#top")


def test_hosts_in_punycode_and_unicode_are_the_same():
    names = ["münchen.de", "xn--mnchen-3ya.de", "XN--MNCHEN-3YA.DE", "MÜNCHEN.de"]
    urls = pa.array([f"http://{name}/x" for name in names])
    assert same(*urls.to_pylist())
    for name in names:
        for kept in (normal_domain(name), name.lower()):  # as earlier versions recorded it
            by = Removals.of([("domain", kept)]).by(urls, urls)
            assert by.to_pylist() == ["domain"] * 4


@pytest.mark.parametrize("url", ["", "x", "https://", "https:///path", "http://:80/", "\0"])
def test_a_url_without_a_host_is_of_no_domain(url):
    assert hosts(pa.array([url])).to_pylist()[0] in (None, "")


@pytest.fixture
def home(bench):
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(bench.jsonl("one.jsonl", ROWS))
    return home


def test_forgotten_documents_are_gone_at_once_and_when_they_come_again(home):
    first = home.path.joinpath("current").resolve().name
    listed = home.bench.folder / "list.txt"
    listed.write_text("# a takedown\ndomain One.test\nhttps://three.test/one.test/\n")
    done = home.bench.command("forget", home.path, "--list", listed, "--json")
    assert done.returncode == 0, done.stderr
    assert "1 older snapshot may still contain them" in done.stderr
    assert "domain one.test: 2 documents removed so far" in done.stderr
    assert home.ids() == ["c", "d", "e"] and len(home.ids(first)) == 6
    rows = home.removed()
    assert [(r["id"], r["by"]) for r in rows] == [("a", "domain"), ("b", "domain"), ("f", "url")]
    now = json.loads(done.stdout.splitlines()[-1])["snapshot"]
    assert {r["snapshot"] for r in rows} == {now}
    account = home.bench.command("explain", "f", "--in", home.path).stdout
    assert "f: forgotten (matched url)\n" in account and f"gone since snapshot {now}" in account
    again = [{"id": "g", "url": "https://one.test/new", "text": "New."}, {"text": "Newer."}]
    taken = home.refresh(home.bench.jsonl("two.jsonl", again), keep=1)
    assert taken.forgotten == 1 and taken.totals.kept == 2
    assert home.ids() == ["c", "d", "e", "two.jsonl#1"]
    manifest = home.manifest()
    assert manifest["removed"] == 4 and manifest["documents"] == 4
    assert home.snapshots() == [taken.name]
    beside = {p.name for p in (home.path / "corpus").iterdir()}
    assert beside == {taken.name, f"{taken.name}.json", f"{taken.name}.removed.parquet"}


def test_a_snapshot_is_on_disk_before_it_has_its_name_and_its_name_before_the_link(home):
    with disk_calls(home.path) as calls:
        name = run.forget(home.path, [("id", "a")], RefreshOptions(quiet=True)).name
    at, new = -1, f"corpus/{name}"
    for call in (
        *(f"sync {new}/part-00000.parquet", f"sync {new}", f"sync {new}.removed.parquet"),
        *(f"rename {new}.removed.parquet", f"sync {new}.json", f"rename {new}.json"),
        *("sync corpus", f"rename {new}", "sync corpus", "rename current", "sync ."),
    ):
        at = calls.index(call, at + 1)


def test_going_back_brings_nothing_forgotten_back(home):
    first = home.path.joinpath("current").resolve().name
    home.refresh(home.bench.jsonl("two.jsonl", [{"text": "More."}]))
    home.bench.command("forget", home.path, "--id", "a")
    done = home.bench.command("refresh", "--rollback", first, "-o", home.path)
    assert done.returncode == 0 and home.ids() == ["b", "c", "d", "e", "f"]
    assert home.refresh(home.bench.folder / "two.jsonl").inputs == 1


def test_each_rollback_to_the_parent_goes_one_ingest_back(home):
    first = home.path.joinpath("current").resolve().name
    second, _ = (home.refresh(home.bench.jsonl(f"{n}.jsonl", [{"text": n}])).name for n in "xy")
    home.bench.command("forget", home.path, "--id", "a")
    for ids, back in ((["b", "c", "d", "e", "f", "x.jsonl#0"], second), (list("bcdef"), first)):
        done = home.bench.command("refresh", "--rollback", "parent", "-o", home.path)
        assert f"back to {back}; 1 document forgotten since then: new snapshot" in done.stdout
        assert home.ids() == ids
    done = home.bench.command("refresh", "--rollback", "parent", "-o", home.path)
    assert done.returncode == 2 and "no snapshot before" in done.stderr


def test_a_part_that_cannot_be_read_is_named(home):
    (part,) = (home.path / "current").glob("part-*")
    part.write_bytes(b"PAR1")
    done = home.bench.command("forget", home.path, "--id", "a")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert part.name in done.stderr and "--rebuild" in done.stderr


def test_purging_removes_the_snapshots_that_hold_them(home):
    home.refresh(home.bench.jsonl("x.jsonl", [{"text": "x"}]))
    done = home.bench.command("forget", home.path, "--id", "a", "--purge")
    assert done.returncode == 0 and len(home.snapshots()) == 1
    assert "--rollback can no longer return to them (none remains)" in done.stdout
    back = home.bench.command("refresh", "--rollback", "parent", "-o", home.path)
    assert back.returncode == 2 and "any more (removed by forget --purge or --keep)" in back.stderr
    assert "1 document that matches these entries is now in no snapshot" in done.stdout
    again = home.bench.command("forget", home.path, "--id", "a", "--purge")
    assert "removed" not in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give what to forget"),
        (("--domain", "http://x.test/"), "write a host name"),
        (("--list", "none.txt"), "none.txt: cannot be read (No such file"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_a_one_line_error(home, arguments, message):
    done = home.bench.command("forget", home.path, *arguments)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1
    assert len(home.ids()) == 6
