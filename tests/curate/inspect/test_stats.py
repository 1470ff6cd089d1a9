"""`llmcurate stats`: what a corpus is like, counted right, shown safely, in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from curate.formats.read_settings import ReadSettings
from curate.inspect import stats
from curate.inspect.stats import Statistics
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.messages import json_values
from tests.llmcurate.base.pages.structure import check_structure

ROWS: list[dict[str, Any]] = [
    {
        "text": "one two  three\n",
        "url": "https://www.bbc.co.uk/a",
        "lang": "en",
        "date": "2020-03-01",
    },
    {"text": "\u00e4\u00f6\u00fc \u65e5\u672c", "url": "http://a.b.example.org:80/", "lang": "de"},
    {"text": "x" * 1000, "url": "https://user@example.org/x?y", "lang": "en", "date": "2021-01-01"},
    {"text": "", "url": "nonsense", "date": "2022-01-01"},
    {"text": "n", "url": "http://192.168.0.1/", "score": 0.5},
    {"text": None, "url": "https://lost.test/"},
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stats") / "in.jsonl"
    rows = [{"score": i / 10, "nan": "text"} | row for i, row in enumerate(ROWS)]
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n{broken\n")
    return path


@pytest.fixture(scope="module")
def figures(source: Path) -> Statistics:
    return stats.gather([str(source)])


def test_lengths_are_characters_words_and_bytes_of_text(figures: Statistics) -> None:
    assert figures.documents == 5 and figures.without_text == 1 and figures.corrupt == 1
    texts = [r["text"] for r in ROWS if r["text"] is not None]
    for name, size in (
        ("characters", [len(t) for t in texts]),
        ("words", [len(t.split()) for t in texts]),
        ("bytes", [len(t.encode()) for t in texts]),
    ):
        values = figures.lengths[name]
        assert (values.least, values.most) == (min(size), max(size))
        assert values.mean == pytest.approx(sum(size) / len(size))
        assert values.p50 == sorted(size)[len(size) // 2]
        assert values.histogram.counts.sum() == len(size)


def test_numeric_columns_of_the_input_are_measures(figures: Statistics) -> None:
    assert set(figures.columns) == {"score"} and figures.columns["score"].count == 5


def test_labels_with_equal_counts_are_sorted_by_name(tmp_path: Path) -> None:
    names = ["z", "b", "c", "a", "c", "y"]
    rows = ", ".join(f"('{n}', '{n}.test', '{n}', NULL::TIMESTAMP, 1)" for n in names)
    with scratch_database(tmp_path / "spill") as db:
        size = stats._length("bytes")
        columns = f'lang, host, source, date, "{size}"'
        db.execute(f"CREATE VIEW docs AS SELECT * FROM (VALUES {rows}) d({columns})")
        labels = list(stats._labels(db))
    for group, end in zip(labels, ("", ".test", ""), strict=False):
        found = [(label, n) for label, n, _ in group.top]
        assert found == [(f"{n}{end}", 2 if n == "c" else 1) for n in "cabyz"]


def test_labels_are_counted_with_what_has_none(figures: Statistics) -> None:
    assert [r[:2] for r in figures.languages.top] == [("en", 2), ("de", 1)]
    assert figures.languages.documents == 3
    assert [r[:2] for r in figures.dates.top] == [("2020", 1), ("2021", 1), ("2022", 1)]


def test_domains_are_registered_ones_by_host(figures: Statistics) -> None:
    domains = {label: n for label, n, _ in figures.domains.top}
    assert domains == {"bbc.co.uk": 1, "example.org": 2, "192.168.0.1": 1}


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.ORG/path", "example.org"),
        ("https://user:pass@a.test:8080/", "a.test"),
        ("http://[::1]:80/x", "[::1]"),
        ("ftp://files.test", "files.test"),
        ("http://a.test?x=http://b.test/", "a.test"),
        ("no url", None),
        ("mailto:me@a.test", None),
        (None, None),
    ],
)
def test_hosts_are_the_host_names_of_urls(url: str | None, host: str | None) -> None:
    assert stats.hosts(pa.array([url], pa.string())).to_pylist() == [host]


def test_dates_within_two_years_are_counted_by_month(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        "\n".join(json.dumps({"text": "x", "date": f"2020-{m:02d}-05"}) for m in (1, 3))
    )
    assert [r[0] for r in stats.gather([str(path)]).dates.top] == ["2020-01", "2020-03"]


def test_any_cut_into_batches_gives_the_same_figures(source: Path, figures: Statistics) -> None:
    read = ReadSettings(batch_rows=1, partition_bytes=1024)
    assert json_values(stats.gather([str(source)], read)) == json_values(figures)


def test_the_corpus_of_a_run_is_read_with_its_annotations(bench: Any) -> None:
    rows = [{"text": "The river runs past the old mill. It is quiet. Nobody comes."}] * 3
    bench.run([{"c4": {}}], bench.jsonl("in.jsonl", rows))
    figures = stats.gather([str(bench.folder / "out")])
    assert figures.documents == 3 and figures.columns["c4.sentences"].p50 == 3


def test_web_pages_are_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html><body>text</body></html>")
    with pytest.raises(UsageError, match="llmcurate extract"):
        stats.gather([str(tmp_path / "page.html")])


def test_an_input_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": None, "id": "a"}) + "\n")
    with pytest.raises(RunFailed, match="no document was read: column text does not hold text"):
        stats.gather([str(tmp_path / "in.jsonl")])


def test_the_terminal_shows_a_line_a_measure_and_bars(figures: Statistics) -> None:
    shown = figures.text()
    assert shown.startswith("5 documents, 1.03 kB of text, 1 document without text, 1 corrupt")
    assert "characters" in shown and "median" in shown and "\u2588" in shown
    assert all(len(line) < 130 for line in shown.splitlines())
    assert figures.text("ascii").isascii()


def test_hostile_names_reach_neither_terminal_nor_page(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    row = {"text": "x", "lang": "\x1b[31m<script>", "source": "</style>\0\u202e", "a<b>\x07": 1}
    path.write_text("\n".join(json.dumps(row | {"a<b>\x07": i}) for i in range(3)))
    figures = stats.gather([str(path)])
    shown = figures.text()
    assert not set(shown) & set("\x1b\x07\0\u202e")
    page = figures.page()
    assert "<script" not in page and page.count("</style>") == 1 and not set(page) & set("\x1b\0")


def test_the_command_prints_writes_and_speaks_json(bench: Any, source: Path) -> None:
    done = bench.command("stats", source, "-o", "page")
    assert done.returncode == 0 and "5 documents" in done.stdout, done.stderr
    record = json.loads((bench.folder / "page" / "stats.json").read_text())
    page = (bench.folder / "page/stats.html").read_text()
    check_structure(page)
    assert record["documents"] == 5 and "<svg" in page
    done = bench.command("stats", source, "--json")
    assert json.loads(done.stdout.splitlines()[-1])["documents"] == 5
    done = bench.command("stats")
    assert done.returncode == 2 and "give IN" in done.stderr
