"""WAT records become documents: title and description as text, all else as columns."""

from __future__ import annotations

import json
from pathlib import Path

from tests.curate.formats.portions import REAL, corrupt, events, needs_real, rows, skipped
from tests.curate.lab.formats.wat_files import LINKS, envelope, wat


def test_a_page_is_a_document_with_what_is_stated_of_it(tmp_path: Path) -> None:
    (row,) = rows(events(wat(tmp_path / "a.warc.wat.gz", envelope())))
    assert row.text == "The mill\n\nWhat the mill is."
    assert (row.id, row.url) == ("urn:uuid:1", "https://mill.test/")
    assert row.date is not None and row.date.isoformat() == "2024-05-18T01:58:10+00:00"
    assert row.extra is not None
    assert json.loads(row.extra["wat.links"]) == LINKS
    assert json.loads(row.extra["wat.headers"])["Server"] == "nginx"
    where = [row.extra[f"wat.{name}"] for name in ("file", "offset", "length")]
    assert where == ["crawl.warc.gz", 80610308, 423]


def test_records_that_are_no_documents_in_a_warc_are_none_in_a_wat(tmp_path: Path) -> None:
    others = [envelope("request"), envelope(status="404"), envelope(mime="image/png")]
    found = events(wat(tmp_path / "a.wat.gz", *others))
    assert not rows(found)
    assert skipped(found) == ["wat:request", "wat:response:image/png", "wat:response:status-404"]


def test_an_envelope_without_a_page_is_an_empty_text_and_damage_is_named(tmp_path: Path) -> None:
    bare = envelope()
    del bare["Envelope"]["Payload-Metadata"]["HTTP-Response-Metadata"]["HTML-Metadata"]
    odd = {"Envelope": {"WARC-Header-Metadata": {"WARC-Type": ["response"]}, "Payload-Metadata": 3}}
    found = events(wat(tmp_path / "a.wat.gz", bare, '{"Envelope":', odd, envelope()))
    assert [row.text for row in rows(found)] == ["", "The mill\n\nWhat the mill is."]
    (what,) = corrupt(found)
    assert what.startswith("WAT envelope: not JSON")


def test_a_run_carries_the_columns(bench) -> None:
    path = wat(bench.folder / "a.warc.wat.gz", envelope(), envelope(status="500"))
    outcome = bench.run([{"document_length": {"unit": "chars", "min": 1}}], path)
    (document,) = bench.rows()
    assert document["wat.title"] == "The mill" and document["wat.length"] == 423
    assert outcome.totals().skipped == 1


@needs_real
def test_a_real_wat_file_is_recognised_by_name_and_by_content(tmp_path: Path) -> None:
    real = REAL / "commoncrawl-whirlwind" / "whirlwind.warc.wat.gz"
    assert skipped(events(real)) == ["warcinfo", "wat:request"]
    unnamed = tmp_path / "unnamed"
    unnamed.write_bytes(real.read_bytes())
    assert skipped(events(unnamed)) == ["warcinfo", "wat:request"]
