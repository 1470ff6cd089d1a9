"""The demo web is as its truth file describes it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import NamedTuple

import pytest
from resiliparse.extract.html2text import extract_plain_text
from warcio.archiveiterator import ArchiveIterator

from curate.demo.language import load_articles
from curate.demo.web import DemoWeb, Page, build_web, read_truth

POLICY = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
KINDS = {
    "clean": 60,
    "exact_dup": 12,
    "near_dup": 24,
    "substring_dup": 8,
    "url_dup": 4,
    "boilerplate": 10,
    "blocked_url": 5,
    "gibberish": 8,
    "lorem": 4,
    "curly": 5,
    "policy": 4,
    "pii": 6,
    "wrong_language": 45,
    "short": 4,
    "js_required": 4,
}
LANGUAGES = {"de": 8, "fr": 6, "es": 5, "th": 8, "zh": 8, "ja": 4, "ru": 4, "ar": 3, "hi": 3}


def c4_reference(text: str) -> str:
    """Return C4's page cleaning in the order of its published code; "" if the page is dropped."""
    kept = []
    for line in text.splitlines():
        line = re.sub(r"\[\d*\]|\[edit\]|\[citation needed\]", "", line.strip())
        if not line.endswith((".", "?", "!", '"')) or line.endswith("..."):
            continue
        if len(line.split()) < 5:
            continue
        lowered = line.lower()
        if "lorem ipsum" in lowered:
            return ""
        if "javascript" in lowered:
            continue
        if "{" in line:
            return ""
        if any(phrase in lowered for phrase in POLICY):
            continue
        kept.append(line)
    sentences = sum(len(re.findall(r'[.?!]["\')]?(?=\s|$)', line)) for line in kept)
    return "\n".join(kept) if sentences >= 3 else ""


class Record(NamedTuple):
    """A response with its body decoded by the charset in the truth."""

    date: str
    url: str
    body: str
    raw: bytes
    content_type: str


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> DemoWeb:
    return build_web(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def truth(web: DemoWeb) -> list[Page]:
    return read_truth(web.truth)


@pytest.fixture(scope="module")
def texts() -> set[str]:
    return {article.text for article in load_articles()}


@pytest.fixture(scope="module")
def records(web: DemoWeb, truth: list[Page]) -> dict[str, Record]:
    charsets = {r.id: r.charset for r in truth}
    out = {}
    for path in web.paths:
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream):
                record_id = record.rec_headers.get_header("WARC-Record-ID").strip("<>")
                if record.rec_type != "response" or record_id not in charsets:
                    continue
                raw = record.content_stream().read()
                out[record_id] = Record(
                    record.rec_headers.get_header("WARC-Date"),
                    record.rec_headers.get_header("WARC-Target-URI"),
                    raw.decode(charsets[record_id].replace("windows-874", "cp874")),
                    raw,
                    record.http_headers.get_header("Content-Type"),
                )
    return out


@pytest.fixture(scope="module")
def cleaned(records: dict[str, Record]) -> dict[str, str]:
    return {
        i: c4_reference(extract_plain_text(r.body, main_content=True, preserve_formatting=True))
        for i, r in records.items()
    }


def test_files_that_are_there_stay_as_they_are(web: DemoWeb) -> None:
    stamps = [path.stat().st_mtime_ns for path in (*web.paths, web.truth)]
    web.paths[0].write_bytes(b"")
    again = build_web(web.truth.parent)
    assert again == web and again.paths[0].stat().st_size
    assert [path.stat().st_mtime_ns for path in (*again.paths, again.truth)][1:] == stamps[1:]


def test_every_record_parses_and_is_a_gzip_member_of_its_own(web: DemoWeb) -> None:
    types: Counter[str] = Counter()
    members = 0
    for path in web.paths:
        members += path.read_bytes().count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00")
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                record.content_stream().read()
                types[record.rec_type] += 1
    assert types["warcinfo"] == len(web.paths)
    assert types["request"] == types["response"] == web.documents + web.others
    assert members >= sum(types.values())


def test_counts_are_as_promised(truth: list[Page]) -> None:
    kinds = Counter(r.kind for r in truth)
    assert set(kinds) == set(KINDS)
    assert {k: n for k, n in kinds.items() if n < KINDS[k]} == {}
    languages = Counter(r.lang for r in truth if r.kind == "wrong_language")
    assert {k: n for k, n in LANGUAGES.items() if languages[k] < n} == {}
    assert len(truth) == 320
    assert len({r.url.split("/")[2] for r in truth}) >= 25


def test_every_id_of_the_truth_is_in_the_archive_once(
    truth: list[Page], records: dict[str, Record]
) -> None:
    ids = [r.id for r in truth]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(records)
    assert all(r.url == records[r.id].url for r in truth)
    assert {r.source_id for r in truth if r.source_id} <= set(ids)


def test_urls_are_unique_except_for_recrawls(truth: list[Page]) -> None:
    def normal(url: str) -> str:  # C4's
        url = re.sub(r"https?://(www\.)?", "", url)
        return re.sub(r"\?(utm_|ref|feed).*", "", url).rstrip("/")

    recrawled = {normal(r.url) for r in truth if r.kind == "url_dup"}
    urls = Counter(normal(r.url) for r in truth)
    assert {u for u, n in urls.items() if n > 1} == recrawled


def test_a_recrawl_is_newer_and_differs(
    truth: list[Page], records: dict[str, Record], cleaned: dict[str, str]
) -> None:
    for row in truth:
        if row.kind == "url_dup":
            assert records[row.source_id].date > records[row.id].date
            assert cleaned[row.source_id] != cleaned[row.id] != ""


def test_charset_is_where_the_truth_says(truth: list[Page], records: dict[str, Record]) -> None:
    for row in truth:
        record = records[row.id]
        assert ("charset=" in record.content_type) == (row.declared == "header")
        meta = f'<meta charset="{row.charset}">'
        assert (meta in record.body) == (row.declared == "meta")
    used = {r.charset for r in truth}
    assert {"utf-8", "iso-8859-1", "windows-1252", "shift_jis"} <= used
    assert {"gb18030", "windows-874", "koi8-r"} <= used


def test_clean_articles_survive_extraction_and_c4_whole(
    truth: list[Page], cleaned: dict[str, str], texts: set[str]
) -> None:
    for row in truth:
        if row.kind in ("clean", "exact_dup") and not (row.cluster or "").startswith("passage"):
            assert any(text in cleaned[row.id] for text in texts), row.url
        if row.kind in ("clean", "exact_dup") and row.cluster:  # readers' comments are elsewhere
            assert cleaned[row.id] in texts, row.url


def test_c4_drops_the_junk_that_was_planted_for_it_and_no_prose(
    truth: list[Page], cleaned: dict[str, str]
) -> None:
    junk = {"short", "js_required", "policy", "lorem", "curly", "boilerplate"}
    for row in truth:
        dropped = cleaned[row.id] == ""
        if row.kind in junk:
            assert dropped, row
        elif row.lang == "en" and row.kind != "gibberish":
            assert not dropped, row


def test_exactly_the_planted_duplicates_are_equal_after_extraction(
    truth: list[Page], cleaned: dict[str, str]
) -> None:
    by_text = defaultdict(set)
    for row in truth:
        if cleaned[row.id]:
            by_text[cleaned[row.id]].add(row.id)
    groups = {frozenset(ids) for ids in by_text.values() if len(ids) > 1}
    clusters = defaultdict(set)
    for row in truth:
        if row.cluster and row.cluster.startswith("text-"):
            clusters[row.cluster].add(row.id)
    assert groups == {frozenset(ids) for ids in clusters.values()}
    assert {len(ids) for ids in groups} == {2, 3, 4}


def word_5grams(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def test_declared_similarity_is_the_measured_one(
    truth: list[Page], cleaned: dict[str, str]
) -> None:
    levels: Counter[float] = Counter()
    for row in truth:
        if row.kind == "near_dup":
            a, b = (word_5grams(cleaned[i]) for i in (row.id, row.source_id))
            measured = len(a & b) / len(a | b)
            assert measured == pytest.approx(row.similarity, abs=0.03)
            assert measured == pytest.approx(row.planted["jaccard"], abs=1e-3)
            levels[row.similarity] += 1
    assert set(levels) == {0.5, 0.6, 0.7, 0.8, 0.9, 0.95}
    assert min(levels.values()) >= 4


def test_shared_passages_occur_in_both_texts(truth: list[Page], cleaned: dict[str, str]) -> None:
    for row in truth:
        if row.kind == "substring_dup":
            passage = row.planted["passage"]
            assert passage in cleaned[row.id]
            assert passage in cleaned[row.source_id]
            assert row.planted["words"] >= 50
            assert row.planted["bytes"] == len(passage.encode())


def test_personal_data_are_in_the_text_and_fictional(
    truth: list[Page], cleaned: dict[str, str]
) -> None:
    types = set()
    for row in truth:
        if row.kind == "pii":
            for item in row.planted["pii"]:
                assert item["value"] in cleaned[row.id]
                types.add(item["type"])
                if item["type"] == "email":
                    assert item["value"].endswith(".example")
                if item["type"] == "phone":
                    assert re.search(r"555[-.]01\d\d", item["value"])
    assert types == {"email", "phone", "ip"}


def test_articles_hold_no_mark_that_would_drop_them() -> None:
    planted = {"short", "js_required", "policy", "lorem", "curly", "pii", "casino", "near_miss"}
    for article in load_articles():
        if article.section in planted or article.lang != "en":
            continue
        assert c4_reference(article.text) == article.text, article.id
        assert len(article.text.split()) >= 110, article.id
        assert len(article.title.split()) < 5 or article.title[-1] not in '.?!"', article.id
