"""The report: one file, no outside requests, text from documents shown as text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from curate.inspect.report import page
from curate.inspect.report.page import RunPage, bytes_a_token, gather
from curate.inspect.report.rules import Rule
from curate.run import records
from curate.run.driver import carry_out
from curate.run.records import Options, RunRecord, funnel, funnel_rows, read_record, stages_of
from curate.steps.recipe import compose
from llmcurate.base.pages import charts
from llmcurate.base.pages.html import linked
from tests.llmcurate.base.pages.structure import check_structure

SENTENCES = "The river runs past the old mill. Nobody works there any more. It is quiet now."
HOSTILE = "</style></pre><script>alert('x')</script><img src=//evil.test/x> \0 \u202egnp.exe\u202c"


class Checked(HTMLParser):
    """Collects tags and attributes; fails on a tag that is closed but not open."""

    VOID = frozenset({"meta", "br", "wbr", "path", "use", "img", "link"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.stack: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.stack.pop() == tag


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    texts = [f"{SENTENCES} Page {i} ends here." for i in range(5)] + ["short", SENTENCES, SENTENCES]
    texts += [HOSTILE, "x" * 10_000_000 + "\n{", f"{SENTENCES}\n{HOSTILE}"]
    lines = [json.dumps({"text": t, "url": f"https://a.test/{HOSTILE}"}) for t in texts]
    lines.append(json.dumps({"id": "y" * 1_000_000 + HOSTILE, "text": "{ " + HOSTILE}))
    source = folder / "<script>alert(1)</script>.jsonl".replace("/", "_")
    source.write_text("\n".join([*lines, "{broken <b>"]))
    chosen: list[tuple[str, dict[str, Any]]] = [
        ("c4", {}),
        ("gopher_quality", {"min_words": 3, "min_stop_words": 1}),
        ("dedup_exact", {"survivor": "first"}),
    ]
    carry_out(compose("test", chosen, ()), [str(source)], folder / "out", Options(1, True))
    return folder / "out"


def test_the_funnel_adds_up_step_by_step(out: Path) -> None:
    record = read_record(out)
    steps = funnel_rows(stages_of(record))
    assert [(r.step, r.before, r.dropped, r.after) for r in steps] == [
        ("c4", 12, 4, 8),
        ("gopher_quality", 8, 5, 3),
        ("dedup_exact", 3, 2, 1),
    ]
    assert steps[2].rules == {"same_text": 2}
    assert "kept 1 document (" in funnel(RunRecord.of(record))


def test_bytes_of_text_go_down_the_funnel(out: Path) -> None:
    sizes = [n for r in funnel_rows(stages_of(read_record(out))) for n in (r.text_in, r.text_out)]
    assert sizes == sorted(sizes, key=lambda n: -(n or 0)) and sizes[-1] == len(SENTENCES)


def test_the_commonest_records_that_are_skipped_come_first_and_the_others_are_counted(
    out: Path,
) -> None:
    record = RunRecord.of(read_record(out))
    types = {f"type{number:02}": number for number in range(1, 13)}
    said = funnel(replace(record, totals=replace(record.totals, skipped_by_type=types)))
    assert "skipped: 12 type12, 11 type11," in said and "4 type04, 3 other types\n" in said


def test_a_skipped_rule_is_reported(out: Path) -> None:
    assert "no bad word list was given" in funnel(RunRecord.of(read_record(out)))
    assert "no bad word list was given" in (out / "report.html").read_text()


def test_the_page_is_well_formed(out: Path) -> None:
    check_structure((out / "report.html").read_text())


def test_the_page_asks_for_nothing_from_outside(out: Path) -> None:
    source = (out / "report.html").read_text()
    checked = Checked(source)
    assert not checked.stack or checked.stack == []
    assert not {"script", "img", "link", "iframe", "object", "form"} & set(checked.tags)
    for key, value in checked.attributes:
        assert not key.startswith("on") and key not in ("src", "srcset", "action")
        if key in ("href", "xlink:href"):
            assert value and value.startswith("#")
    assert not re.search(r"url\((?!#)|@import", source)
    assert "default-src 'none'" in source


def test_text_of_documents_cannot_leave_its_place(out: Path) -> None:
    source = (out / "report.html").read_text()
    assert "<script" not in source and "&lt;script&gt;" in source
    assert source.count("</style>") == 1
    assert "\0" not in source and "\u202e" not in source
    assert "\u2400" in source and "[U+202E]" in source


def test_ten_megabytes_in_a_line_make_no_large_page(out: Path) -> None:
    assert len((out / "report.html").read_bytes()) < 300_000
    assert len((out / "run.json").read_bytes()) < 100_000


def test_the_page_shows_rules_overlaps_cuts_duplicates_and_settings(out: Path) -> None:
    source = (out / "report.html").read_text()
    for anchor in ("funnel", "deciding", "rules", "cuts", "duplicates", "settings", "speed"):
        assert f'href="#{anchor}"' in source and f'id="{anchor}"' in source
    assert "<svg" in source and "limit 3" in source and "Overlap of rules" in source


def test_corrupt_lines_are_listed_with_file_and_offset(out: Path) -> None:
    record = read_record(out)
    assert record["totals"]["corrupt"] == 1
    listed = [json.loads(line) for line in (out / "corrupt.jsonl").read_text().splitlines()]
    assert listed[0]["offset"] > 0 and "not JSON" in listed[0]["what"]


def test_the_same_run_gives_the_same_page_by_any_number_of_threads(out: Path) -> None:
    record = read_record(out)
    pages = {RunPage(record, gather(out, threads=threads)).render() for threads in (1, 1, 3)}
    assert len(pages) == 1


def test_a_report_says_when_with_what_and_where_it_was_made(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": SENTENCES}] * 3)
    assert bench.process("filter", "c4", source, "-o", bench.folder / "out").returncode == 0
    record, written = read_record(bench.folder / "out"), bench.folder / "out" / "report.html"
    started, page_ = record["started"].replace("T", " ").replace("Z", " UTC"), written.read_text()
    assert record["command"] == f"llmcurate filter c4 {source} -o {bench.folder / 'out'}"
    assert f"<dd>{started}</dd>" in page_ and f"<dd>{record['command']}</dd>" in page_
    assert f"llmcurate {record['versions']['llmcurate']}</dd>" in page_
    assert f"{record['host']['system']} {record['host']['machine']}, " in page_
    before = [written.read_bytes(), (bench.folder / "out" / "run.json").read_bytes()]
    again = bench.command("filter", "c4", source, "-o", bench.folder / "out")
    assert "nothing to do" in again.stdout
    assert before == [written.read_bytes(), (bench.folder / "out" / "run.json").read_bytes()]


def test_a_command_is_recorded_without_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/bin/llmcurate", "run", "https://me:secret@a.test/b c"])
    assert records.command_line() == "llmcurate run 'https://...@a.test/b c'"
    monkeypatch.setattr("sys.argv", ["/bin/pytest", "run"])
    assert records.command_line() == ""


def test_the_deciding_rules_come_first_and_details_are_folded(out: Path) -> None:
    source = (out / "report.html").read_text()
    order = [source.index(f'id="{name}"') for name in ("look", "funnel", "deciding", "rules")]
    assert order == sorted(order)
    deciding = source[order[2] : order[3]]
    assert 1 <= deciding.count("<article") <= 3 and "limit" in deciding
    assert "<details open" not in re.sub("<details open><summary>similarity", "", source)
    assert source[order[3] :].count('<svg viewBox="0 0 120 24"') > 1  # a sparkline a rule


def test_rules_lead_to_their_documents_once_somebody_serves_them(out: Path) -> None:
    source = (out / "report.html").read_text()
    assert '<a data-rule="c4.few_sentences">' in source
    led = linked(source, lambda id: f"/document?id={len(id)}" if id else "/")
    assert '<a href="/?rule=c4.few_sentences" data-rule=' in led
    hostile = linked('<a data-rule="%22%3E%3Cb%3E">', lambda id: "/")
    assert hostile == '<a href="/?rule=%22%3E%3Cb%3E" data-rule="%22%3E%3Cb%3E">'


def test_suspicious_figures_are_listed_with_links() -> None:
    totals = {"read": 10, "corrupt": 2}
    figures = page.Figures()
    figures.rules.rules = {"l.l": Rule("l.l", 9, first=9, only=8), "c.c": Rule("c.c", 1, first=1)}
    figures.kept.languages = {"de": (0, 9), "en": (1, 0)}
    looks = RunPage({"totals": totals}, figures).looks()
    assert [look.anchor for look in looks] == ["deciding", "languages", "corrupt", "rules"]
    assert looks[0].line == "l.l drops 90.0\u00a0% of all documents"
    assert looks[1].line == "none of 9 documents in de is kept"
    assert looks[3].command == "llmcurate whatif OUT"
    said = RunPage({"totals": {**totals, "remark": "l dropped 90 %; mostly de"}}, figures).looks()
    assert [look.line for look in said] == [
        "l dropped 90 %; mostly de",
        *[x.line for x in looks[1:]],
    ]
    figures = page.Figures()
    assert RunPage({"totals": {"read": 10, "corrupt": 0}}, figures).looks() == []


def test_notices_on_skipped_files_come_last() -> None:
    notices = ["skipped a.bin: unknown format", "c4: no bad word list was given"]
    assert RunPage({"notices": notices}, page.Figures()).notices() == notices[::-1]


def test_rules_that_decided_nothing_are_folded(out: Path) -> None:
    record = read_record(out)
    idle = [n for n, r in record["figures"]["rules"].items() if not r["first"]]
    assert idle and len(idle) < len(record["figures"]["rules"])
    title = f"{len(idle)} rules that decided nothing"
    open_, found, _ = (out / "report.html").read_text().partition(title)
    assert found
    shown = re.sub("<wbr>", "", open_[open_.index('id="rules"') :])
    assert not [name for name in idle if f">{name}<" in shown]


def test_the_token_estimate_uses_known_bytes_per_token() -> None:
    totals = {"seconds": 1.0, "read": 9, "kept": 9, "rejected": 0, "bytes_out": 398_556}
    shards = {"makes": "shards", "tokens": 1, "bytes": 4}
    for products, shown in (([], "about 100,000"), ([shards], "99,639")):
        record = {"totals": totals, "products": products}
        assert (shown, "tokens") in RunPage(record, page.Figures()).totals()


def test_ids_are_links_only_when_given_addresses(out: Path) -> None:
    source = (out / "report.html").read_text()
    led = linked(source, lambda name: f"/document?id={len(name)}" if name else "")
    assert Checked(led).stack == [] and led.count('<a href="/document') > 3
    assert linked(led, lambda name: "") == led


def test_a_run_of_products_alone_has_a_page_that_makes_sense(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps({"text": SENTENCES * 9}) for _ in range(50)))
    chosen = [("tokenizer", {"vocab": 300})]
    carry_out(compose("tokens", chosen, ()), [str(source)], tmp_path / "out", Options(1, True))
    page_ = (tmp_path / "out" / ".run" / "report.html").read_text()
    assert "300 tokens" in page_ and 'id="products"' in page_ and 'id="rules"' not in page_


def test_a_report_that_fails_does_not_lose_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> str:
        raise ValueError("no <b> today")

    monkeypatch.setattr(page.RunPage, "render", broken)
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"text": SENTENCES}) + "\n")
    chosen: list[tuple[str, dict[str, Any]]] = [("c4", {})]
    carry_out(compose("test", chosen, ()), [str(source)], tmp_path / "out", Options(1, True))
    record = records.read_record(tmp_path / "out")
    assert record["totals"]["kept"] == 1 and record["figures"]["rules"] == {}
    assert any("no <b> today" in n for n in record["notices"])
    assert "no &lt;b&gt; today" in (tmp_path / "out" / "report.html").read_text()


def test_a_chart_that_fails_is_a_line_of_text(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*parts: Any) -> Any:
        raise ValueError("no number <here>")

    monkeypatch.setattr(charts, "svg", broken)
    source = RunPage(read_record(out), gather(out)).render()
    assert "<svg" not in source and "no number &lt;here&gt;" in source


def test_columns_of_the_input_may_have_any_name(bench: Any) -> None:
    names = ["filename", "file_row_number", "key", "r", "rule", "c4.x", 'a"b', "marks", "judge.<b>"]
    rows = [dict.fromkeys(names, i) | {"text": SENTENCES if i % 2 else "short"} for i in range(8)]
    bench.run([{"c4": {}}], bench.jsonl("in.jsonl", rows))
    record = read_record(bench.folder / "out")
    assert record["figures"]["rules"]["c4.few_sentences"]["marked"] == 4
    assert 'a"b' in record["figures"]["measures"]
    assert not [n for n in record["notices"] if "could not" in n]


def test_tokens_are_estimated_by_the_tokenizer_that_the_run_trained() -> None:
    card = {"measured": {"bytes_a_token": 4.656, "fertility": 1.25, "tokens": 9}}
    tokenizer = {"makes": "tokenizer", "card": card}
    shards = {"makes": "shards", "bytes": 900, "tokens": 200}
    assert bytes_a_token({"products": [tokenizer]}) == (4.656, False)
    assert bytes_a_token({"products": [tokenizer, shards]}) == (4.5, True)
    assert bytes_a_token({"products": []}) == (4.0, False)
    made = {"products": [{**tokenizer, "label": "t", "card": {**card, "vocab": 9, "bytes": 9}}]}
    shown = RunPage(made, page.Figures()).chapter("products")
    assert "<dt>bytes per token</dt><dd>4.656</dd>" in shown
    assert "<dt>tokens per word</dt><dd>1.250</dd>" in shown
