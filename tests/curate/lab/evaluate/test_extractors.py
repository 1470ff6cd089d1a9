"""`llmcurate extract-eval`: pages with gold are scored, all others are counted."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from curate.lab.evaluate.extractors import Evaluation, read_gold, record_key
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from tests.curate.conftest import Bench
from tests.llmcurate.base.pages.structure import check_structure

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[5] / "shared"))
WCXB = SHARED / "corpora" / "wcxb"

MAIN = "The river runs past the old mill, and nobody works there any more, says the miller."
MORE = "In spring the wheel turns all the same, because the water does not ask for a reason."
SCRIPT = "<script>alert(1)</script>"


def page(title: str = "Mills") -> str:
    return (
        f"<html lang=en-GB><head><title>{title} | River News</title>"
        '<meta name=author content="Ada Lovelace"><meta name=date content=2024-05-31></head>'
        "<body><nav><a href=/>Home</a> <a href=/a>About us</a></nav>"
        f"<main><h1>{title}</h1><p>{MAIN}</p><p>{MORE}</p></main>"
        "<footer><a href=/imprint>Imprint</a></footer></body></html>"
    )


def archive(path: Path, pages: list[tuple[str, str, str]]) -> Path:
    """A WARC file of (number of the record's id, URL, HTML)."""
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number, url, html in pages:
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
            name = f"<urn:uuid:00000000-0000-0000-0000-{number:0>12}>"
            record = writer.create_warc_record(
                url,
                "response",
                payload=io.BytesIO(html.encode()),
                http_headers=head,
                warc_headers_dict={"WARC-Record-ID": name},
            )
            writer.write_record(record)
    return path


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pages = [
        ("1", "http://mill.test/1", page()),
        ("2", "http://mill.test/2", page("Wheels")),
        ("3", "http://www.dam.test/3", page("Dams").replace(MORE, f"{MORE} &lt;b&gt;")),
        ("4", "http://other.test/", page("Others")),
        ("1", "http://mill.test/1", page()),
        ("5", "http://empty.test/", "<html><body></body></html>"),
    ]
    return archive(tmp_path_factory.mktemp("crawl") / "crawl.warc.gz", pages)


def gold_of(bench: Bench, *rows: dict[str, Any]) -> Path:
    return bench.jsonl("gold.jsonl", rows)


ROWS: list[dict[str, Any]] = [
    {
        "record_id": "<urn:uuid:00000000-0000-0000-0000-000000000001>",
        "text": f"{MAIN}\n{MORE}",
        "title": "Mills",
        "author": "Bo Ek",
        "date": "2024-05-31",
        "page_type": "article",
        "with": ["old mill"],
        "without": ["Imprint"],
    },
    {"url": "http://mill.test/2", "text": f"{MAIN} {SCRIPT} was here", "page_type": "article"},
    {
        "record_id": "00000000-0000-0000-0000-000000000003",
        "with": ["wheel turns", "not on the page"],
        "page_type": "news",
        "lang": "de",
    },
    {"url": "http://empty.test/", "text": ""},
    {"url": "http://gone.test/", "text": "gone"},
]


@pytest.fixture
def evaluation(bench: Bench, crawl: Path) -> Evaluation:
    return Evaluation(gold_of(bench, *ROWS), [str(crawl)], ("text", "blocks"), quiet=True)


@pytest.fixture
def scored(evaluation: Evaluation) -> dict[str, Any]:
    return json_values(evaluation)


def test_every_page_and_every_row_of_gold_is_accounted_for(evaluation: Evaluation) -> None:
    assert evaluation.counts == {
        "gold": 5,
        "pages": 4,
        "sites": 3,
        "gold_without_page": 1,
        "gold_with_refused_page": 0,
        "gold_repeated": 0,
        "pages_without_gold": 1,
        "pages_repeated": 1,
    }
    said = evaluation.text()
    assert "1 gold rows have no page" in said and "1 pages have no gold" in said


def test_scores_are_those_of_words_snippets_and_fields(scored: dict[str, Any]) -> None:
    first, _, third, empty = (row["scores"] for row in scored["pages"])
    wanted = MAIN.split() + MORE.split()
    menus = 7  # Home, About us, the heading, Imprint; Mills | River News stands in the title alone
    assert first["text"]["words"]["recall"] == 1
    assert first["text"]["words"]["precision"] >= len(wanted) / (len(wanted) + menus)
    assert first["text"]["snippets"] == {"tp": 1, "fp": 1, "fn": 0, "tn": 0}
    assert first["blocks"]["title"] == "right" and first["blocks"]["author"] == "wrong"
    assert first["blocks"]["date"] == "right" and first["text"]["date"] == "missing"
    assert "words" not in third["blocks"] and third["blocks"]["snippets"]["fn"] == 1
    assert empty["blocks"]["words"]["f1"] == 1 and empty["blocks"]["reason"] == "no_text"


def test_groups_and_differences_have_figures_with_intervals(scored: dict[str, Any]) -> None:
    kinds = {group["name"]: group for group in scored["page_types"]}
    assert list(kinds) == ["article", "news", None] and kinds["article"]["pages"] == 2
    assert kinds["news"]["extractors"]["blocks"]["words.f1"] == [None, None, None]
    assert kinds["news"]["extractors"]["blocks"]["snippets.recall"][0] == 0.5
    assert {group["name"] for group in scored["languages"]} == {"en", "de", None}
    value, low, high = scored["all"]["extractors"]["text"]["words.f1"]
    assert low < value < high
    f1 = [scored["all"]["extractors"][name]["words.f1"][0] for name in ("text", "blocks")]
    assert scored["differences"]["blocks"]["words.f1"][0] == pytest.approx(f1[1] - f1[0], abs=2e-6)


def test_the_command_writes_figures_and_a_page_that_runs_no_script(
    bench: Bench, crawl: Path
) -> None:
    gold = gold_of(bench, *ROWS)
    done = bench.command("extract-eval", gold, crawl, "-o", "out", "--extractor", "text")
    assert done.returncode == 0, done.stderr
    assert "F1 of words" in done.stdout and "out/extract-eval.html" in done.stderr
    figures = json.loads((bench.folder / "out" / "extract-eval.json").read_text())
    assert figures["extractors"] == ["text"] and len(figures["pages"]) == 4
    html = (bench.folder / "out" / "extract-eval.html").read_text()
    check_structure(html)
    assert SCRIPT not in html and "&lt;" in html and "<del>" in html and "<ins>" in html


def test_settings_of_the_step_can_be_set(bench: Bench, crawl: Path) -> None:
    gold = gold_of(bench, *ROWS)
    line = ("extract-eval", gold, crawl, "--set", "extract.max_html_bytes=10", "--json")
    done = bench.command(*line)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)["pages"][0]["scores"]["blocks"]
    assert scores["reason"] == "html_too_large" and scores["words"]["f1"] == 0


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "line 1: not JSON"),
        ({"text": "a"}, "give `record_id` or `url`"),
        ({"url": "u"}, "give `text`, or snippets"),
        ({"url": "u", "text": 3}, "`text` must be a string"),
        ({"url": "u", "with": "a"}, "`with` must be a list of strings"),
        ({"url": "u", "text": "a", "date": "May 5"}, "write it as 2024-05-31"),
        ({"url": "u", "text": "a"}, "no row matches a page of the input"),
    ],
)
def test_wrong_gold_is_a_one_line_error(bench: Bench, crawl: Path, row: Any, says: str) -> None:
    done = bench.command("extract-eval", bench.jsonl("gold.jsonl", [row]), crawl)
    assert done.returncode == 2 and says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_absent_files_and_unknown_extractors_are_a_one_line_error(
    bench: Bench, crawl: Path
) -> None:
    gold = gold_of(bench, *ROWS)
    for arguments, says in (
        (("no.jsonl", crawl), "no.jsonl"),
        ((gold, "no.warc"), "no.warc does not exist"),
        ((gold, crawl, "--extractor", "magic"), "choose one of blocks, resiliparse"),
    ):
        done = bench.command("extract-eval", *arguments)
        assert done.returncode == 2 and says in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_gold_is_read_compressed_and_from_either_form_of_an_id(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl.gz"
    row = {"record_id": "urn:uuid:AB", "text": "a", "author": ["Ada", "Bo"]}
    path.write_bytes(gzip.compress(json.dumps(row).encode() + b"\n\n"))
    (gold,) = read_gold(str(path))
    assert gold.author == "Ada, Bo" and gold.with_ == ()
    assert record_key("<urn:uuid:AB>") == record_key("ab") == record_key(" urn:uuid:ab ")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UsageError, match="corrupt data"):
        read_gold(str(path))


@pytest.mark.slow
def test_scores_of_real_pages_are_those_of_a_count_by_hand(bench: Bench) -> None:
    if not (WCXB / "dev.warc.gz").exists():
        pytest.skip(f"no pages in {WCXB}: set LLMCURATE_SHARED to the folder of real texts")
    with gzip.open(WCXB / "dev-gold.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines][::20]
    scored = Evaluation(gold_of(bench, *rows), [str(WCXB / "dev.warc.gz")], quiet=True)
    figures = json_values(scored)
    assert figures["counts"]["pages"] == len(rows)
    assert figures["counts"]["gold_without_page"] == 0
    by_hand = []
    for page in scored.pages:
        ours, gold = (re.findall(r"\w+", t.lower()) for t in (page.texts[0], page.gold.text or ""))
        left = list(gold)
        for word in ours:
            if word in left:
                left.remove(word)
        total = len(ours) + len(gold)
        by_hand.append(2 * (len(gold) - len(left)) / total if total else 1.0)
    value, low, high = figures["all"]["extractors"]["blocks"]["words.f1"]
    assert value == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-6)
    assert 0.6 < low < value < high < 0.95
    assert len(scored.page()) < 2 << 20
