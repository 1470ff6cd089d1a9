"""Kept against dropped: lengths, languages and domains are those of the documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.inspect.report.documents import count_lengths, gather, replaced
from curate.inspect.report.store import opened
from curate.run.records import read_record
from llmcurate.base.messages import json_values

LONG = "The river runs past the old mill and nobody works there any more. "
URLS = (
    "https://www.a.test/1",
    "http://b.co.uk:80/x",
    "https://u@B.co.uk/y",
    "https://[::1]/",
    None,
)


@pytest.fixture(scope="module")
def out(shared_bench: Any) -> Path:
    rows = [
        {
            "text": LONG * (1 + i) if i % 4 else "zu kurz",
            "url": URLS[i % 5],
            "lang": "en" if i % 4 else "de",
        }
        for i in range(40)
    ]
    shared_bench.run([{"document_length": {"min": 5}}], shared_bench.jsonl("in.jsonl", rows))
    folder: Path = shared_bench.folder / "out"
    return folder


def test_labels_are_counted_by_what_became_of_their_documents(out: Path) -> None:
    with opened(out) as store:
        assert store is not None
        kept = gather(store)
    assert kept.languages == {"en": (30, 0), "de": (0, 10)}
    assert kept.domains == {"b.co.uk": (12, 4), "[::1]": (6, 2), "a.test": (6, 2)}
    assert kept.other_domains == 0


def test_documents_with_unreadable_characters_are_reported(bench: Any) -> None:
    pages = [f"<p>{LONG}größe" * 3 for _ in range(3)]
    for i, page in enumerate(pages):
        (bench.folder / f"{i}.html").write_bytes(page.encode() + b"\xff" * i)
    bench.run(["extract"], *(bench.folder / f"{i}.html" for i in range(3)))
    for group_bytes in (1, 1 << 40):
        with opened(bench.folder / "out", group_bytes=group_bytes) as store:
            assert store is not None
            (line,) = replaced(store)
        assert line.startswith("2 documents with 3 replacement characters (U+FFFD)")
    assert line in read_record(bench.folder / "out")["notices"]


def test_lengths_are_characters_of_all_texts(out: Path) -> None:
    with opened(out) as store:
        assert store is not None
        lengths = count_lengths(store)
    assert lengths is not None and lengths.one_in == 1
    assert lengths.all.counts.sum() == 40 and lengths.gone.counts.sum() == 10
    assert lengths.gone.counts[0] == 10 and lengths.medians[1] == len("zu kurz")
    figures = read_record(out)["figures"]
    assert figures["lengths"] == json.loads(json.dumps(json_values(lengths)))


def test_of_many_row_groups_always_the_same_ones_are_read(out: Path) -> None:
    with opened(out) as store:
        assert store is not None
        doubled = type(store)(
            store.db, store.kept * 6, store.gone * 6, {}, store.names, False, threads=2
        )
        whole = count_lengths(doubled)
        parts = [count_lengths(doubled, most_bytes=whole_bytes(doubled) // 3) for _ in range(2)]
    assert whole is not None and whole.one_in == 1 and whole.all.counts.sum() == 240
    dumps = [json_values(part) for part in parts if part is not None]
    assert dumps[0] == dumps[1] and dumps[0]["one_in"] in (3, 4)
    assert sum(dumps[0]["histogram"]["counts"]) == 40 * 6 // dumps[0]["one_in"]


def whole_bytes(store: Any) -> int:
    from curate.inspect.report.documents import _row_groups

    return sum(size for paths in (store.kept, store.gone) for _, _, size in _row_groups(paths))


def test_the_report_has_lengths_languages_and_domains(out: Path) -> None:
    page = (out / "report.html").read_text()
    for anchor in ("lengths", "languages", "domains"):
        assert f'href="#{anchor}"' in page and f'id="{anchor}"' in page
    assert "documents by length, kept and dropped" in page
    assert 'aria-label="12 of 16 kept"' in page
