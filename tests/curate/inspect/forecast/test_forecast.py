"""A forecast from runs written by hand, checked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from curate.formats.inputs import InputPlan, Slice
from curate.formats.listing import InputFile
from curate.inspect.forecast.forecast import (
    DedupFigures,
    Figures,
    Growth,
    Prices,
    find_figures,
    forecast,
    package_table,
    parse_prices,
    read_figures,
    run_figures,
    text,
)
from curate.run.plan import plan_run
from curate.steps.recipe import parse
from llmcurate.base.errors import UsageError

RECIPE = """
name: small
steps:
  - extract: {extractor: resiliparse}
  - document_length: {unit: chars, min: 300}
  - dedup_exact: {key: text}
  - newline_runs: {most: 2}
"""


def recipe(changed: str = RECIPE):
    return parse(changed, "small.yaml", ())


def plan(of=None, size: int = 10_000, parts: int = 20):
    of = of or recipe()
    file = InputFile("in.warc.gz", "in.warc.gz", "archive", "gzip", size, "stamp")
    return plan_run(of, InputPlan((file,), tuple((Slice(0, i, i + 1),) for i in range(parts))))


def record(of=None) -> dict:
    """1,000 stored bytes of 100 pages of 4,000 bytes in all, which hold 800 bytes of text; half of
    them are long enough, 4 of those 50 are copies. Seconds are such that rates are round."""
    steps = (of or recipe()).steps
    return {
        "recipe": "small",
        "inputs": [{"path": "in.warc.gz", "format": "archive", "bytes": 1000}],
        "partitions": 2,
        "steps": [
            {"label": s.label, "name": s.name, "settings": s.model_dump(mode="json")} for s in steps
        ],
        "totals": {"read": 100, "bytes_in": 4000},
        "driver": {"cpu": {"planning": 1.0, "assembling": 4.0, "report": 10.0}, "peak_bytes": 77},
        "stages": [
            {
                "steps": ["extract", "document_length"],
                "read": 100, "kept": 50, "rejected": 50, "bytes_in": 4000, "bytes_out": 600,
                "seconds": {}, "peak_bytes": 1000,
                "cpu": {"read": 2.0, "extract": 8.0, "document_length": 1.6, "write": 0.8,
                        "dedup_exact": 0.3, "start": 6.0},
                "start": [1.0, 5.0],
                "written": {"kept": 300, "keys": 50, "rejected": 200, "ids": 100, "sketch": 400,
                            "decisions": 100},
                "primary": {"document_length.too_short": 50}, "cut": {}, "cut_bytes": {},
                "text_in": {"extract": 0, "document_length": 800},
                "payload_in": {"extract": 4000, "document_length": 0},
                "text_out": {"extract": 800, "document_length": 600},
                "worked": {"extract": 4000, "document_length": 800, "dedup_exact": 600},
                "decides": "dedup_exact", "decided": {"seconds": 9.0}, "decided_cpu": 5.0,
                "settle_cpu": 3.0,
            },
            {
                "steps": ["dedup_exact", "newline_runs"],
                "read": 50, "kept": 46, "rejected": 4, "bytes_in": 0, "bytes_out": 540,
                "seconds": {}, "peak_bytes": 2000,
                "cpu": {"read": 0.6, "dedup_exact": 0.6, "newline_runs": 1.2, "write": 0.6,
                        "start": 2.0},
                "start": [1.0, 1.0],
                "written": {"kept": 270, "keys": 46, "rejected": 30},
                "primary": {"dedup_exact.duplicate": 4}, "cut": {}, "cut_bytes": {},
                "text_in": {"dedup_exact": 600, "newline_runs": 550},
                "payload_in": {}, "text_out": {"dedup_exact": 550, "newline_runs": 540},
                "worked": {"dedup_exact": 600, "newline_runs": 600},
            },
        ],
    }  # fmt: skip


NOTHING = Figures("a table of nothing", 0, 0.0, frozenset())


def told(data: dict, of=None, *, size: int = 10_000, workers: int = 4, table=NOTHING, **options):
    figures = run_figures(data, "the sample", table)
    return forecast(plan(of, size), [figures, table], workers, Prices(), **options)


def by_name(predicted):
    return {(s.name if s.peak_bytes is None else s.name[:2]): s for s in predicted.stages}


def test_ten_times_the_input_takes_ten_times_the_seconds_bytes_and_documents():
    result = told(record())
    stages = by_name(result)
    assert result.documents == 1000
    first, second = stages["00"], stages["01"]
    assert (first.documents_in, first.documents_out) == (1000, 500)
    assert second.documents_out == pytest.approx(460)
    cpu = {step.label: step.cpu for step in first.steps}
    assert cpu == pytest.approx(
        {
            "read": 20, "extract": 80, "document_length": 16, "write": 8,
            "dedup_exact: sketching": 3,
            "start": 20 * 1.0 + 4 * 4.0,  # each partition a second, each worker four more
        }
    )  # fmt: skip
    assert first.cpu == pytest.approx(sum(cpu.values()))
    assert first.wall == pytest.approx(first.cpu / 4)
    assert first.bytes_in == 10_000
    assert first.bytes_out == pytest.approx(10 * (300 + 50 + 200 + 100 + 400))
    assert second.bytes_in == pytest.approx(10 * 350)
    assert second.bytes_out == pytest.approx(10 * (270 + 46 + 30))
    assert (first.peak_bytes, second.peak_bytes) == (1000, 2000)


def test_single_process_work_is_not_divided_by_workers():
    stages = by_name(told(record(), workers=100))
    for name, seconds in (
        ("planning", 1), ("settling ids", 30), ("dedup_exact: deciding", 50), ("report", 100)
    ):  # fmt: skip
        assert stages[name].single
        assert stages[name].cpu == stages[name].wall == pytest.approx(seconds)
    assert not stages["assembling"].single
    assert stages["assembling"].wall == pytest.approx(40 / 20)  # no more workers than partitions


def test_dedup_work_in_workers_is_divided_by_their_number():
    data = record()
    data["stages"][0]["decided"]["tasks_cpu"] = 8.0
    decided = by_name(told(data))["dedup_exact: deciding"]
    assert not decided.single
    assert (decided.cpu, decided.wall) == pytest.approx((50 + 80, 50 + 80 / 4))


def test_a_record_without_worker_seconds_gives_a_note():
    data = record()
    data["stages"][0]["decided"]["tasks_cpu"] = None  # Ray does not count them
    assert "no figure for dedup_exact: deciding" in told(data).missing


def test_a_small_corpus_has_the_share_of_workers_that_large_ones_have():
    dedups = {"dedup_exact": DedupFigures(0.0, 0.0, 0.0, Growth(0.0, 1.0), 0.25)}
    table = Figures("table", 1, 1.0, frozenset(), dedups=dedups)
    decided = by_name(told(record(), table=table))["dedup_exact: deciding"]
    assert decided.cpu == pytest.approx(50) and not decided.single
    assert decided.wall == pytest.approx(50 * 0.75 + 50 * 0.25 / 4)


def test_files_and_requests_are_counted_by_partition():
    result = told(record())
    # kept, keys, rejected, ids, sketch of 20 partitions; three; corpus, rejected and manifests; the
    # ledger, the plan, manifests
    assert result.total("objects") == 5 * 20 + 1 + 1 + 3 * 20 + 2 * 20 + 2 + 3


def test_a_cost_is_hours_requests_and_storage_at_the_prices():
    first = by_name(told(record()))["00"]
    prices = Prices()
    expected = first.cpu / 3600 * prices.cpu_hour + first.objects / 1000 * prices.put
    expected += 20 / 1000 * prices.get + first.bytes_out / 1e9 * prices.gb_month
    assert first.cost == pytest.approx(expected)


def test_a_step_without_figures_is_named_and_not_counted_as_zero():
    other = recipe(RECIPE + "  - pii: {emails: true}\n  - tokenizer: {vocab: 500}\n")
    result = told(record(), other)
    assert any("no figure for step pii" in line for line in result.missing)
    assert "no figure for product tokenizer" in result.missing
    (pii,) = [step for s in result.stages for step in s.steps if step.label == "pii"]
    assert pii.cpu is None
    assert any(row.split() == ["pii", "?"] for row in text(result).split("\n"))


def test_a_step_missing_from_the_run_takes_the_packages_figures_and_a_note_says_so():
    other = recipe(RECIPE + "  - pii: {emails: true}\n")
    result = told(record(), other, table=package_table())
    assert any(note.startswith("pii: from the package's table") for note in result.notes)


def test_other_settings_take_the_figures_of_the_same_step_and_say_so():
    result = told(record(), recipe(RECIPE.replace("min: 300", "min: 200")))
    assert "document_length: measured with other settings (min: 300)" in result.notes
    assert by_name(result)["00"].cpu == by_name(told(record()))["00"].cpu


def test_as_if_sets_the_input_size_and_counts_partitions_by_bytes():
    result = told(record(), as_if=10**12)
    assert (result.bytes, result.partitions) == (10**12, 4096)
    assert by_name(result)["00"].documents_in == pytest.approx(10**11)


def test_another_kind_of_input_is_noticed():
    data = record()
    data["inputs"][0] |= {"path": "in.jsonl", "format": "jsonl"}
    assert any("archive, but jsonl was measured" in note for note in told(data).notes)


def test_the_fixed_part_of_the_table_is_taken_off_a_run():
    table = Figures("table", 1, 1.0, frozenset(), once={"report": Growth(2.0, 0.5)})
    assert run_figures(record(), "run", table).once["report"] == Growth(2.0, (10.0 - 2.0) / 100)
    # Little more than the fixed part says nothing of what grows: the table's seconds then.
    table = Figures("table", 1, 1.0, frozenset(), once={"report": Growth(5.0, 0.01)})
    assert run_figures(record(), "run", table).once["report"] == Growth(9.0, 0.01)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0", b"{", b"[1]", b'{"stages": 3}', b"\xff\xfe", b'{"stages": [{}]}'],
    ids=["empty", "nul", "truncated", "list", "number", "no utf-8", "empty stage"],
)
def test_a_broken_record_is_refused_in_one_line(tmp_path: Path, content: bytes):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.json") as caught:
        read_figures(tmp_path, NOTHING)
    assert "\n" not in str(caught.value)


def test_a_run_over_nothing_and_no_run_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no finished run"):
        read_figures(tmp_path / "nothing", NOTHING)
    data = record()
    data["totals"]["read"] = 0
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match="has no usable figures"):
        read_figures(tmp_path, NOTHING)


def test_the_named_sample_goes_before_out_and_out_before_the_workspace(tmp_path: Path):
    from curate.run.workspace import Workspace

    for name in ("sample", "out", "runs/0001-a", "runs/0002-b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text(json.dumps(record()))
    space = Workspace(tmp_path, tmp_path / "runs")

    def first(sample, out):
        return Path(find_figures(recipe(), sample, out, space)[0].source).name

    assert first(tmp_path / "sample", tmp_path / "out") == "sample"
    assert first(None, tmp_path / "out") == "out"
    assert first(None, tmp_path / "new") == "0002-b"


def test_a_run_of_other_steps_is_passed_over(tmp_path: Path):
    (tmp_path / "run.json").write_text(json.dumps(record()))
    other = recipe("name: other\nsteps: [pii: {emails: true}]\n")
    (table,) = find_figures(other, None, tmp_path, None)
    assert table.source.startswith("the package's table")


@pytest.mark.parametrize("price", ["get", "get=x", "get=-1", "get=nan", "cpu=1"])
def test_an_invalid_price_is_refused(price: str):
    with pytest.raises(UsageError, match="--price"):
        parse_prices([price])


def test_prices_are_given_together_or_one_by_one():
    prices = parse_prices(["cpu_hour=0.01,put=1", "gb-month=2"])
    assert (prices.cpu_hour, prices.put, prices.gb_month, prices.get) == (0.01, 1, 2, Prices().get)


def test_driver_costs_grow_with_the_number_of_partitions():
    few, many = (told(record(), as_if=size).stages[-1] for size in (10**15, 10**16))
    assert few.single and few.name == "driving"
    assert many.cpu == pytest.approx(10 * few.cpu, rel=1e-3)
    assert many.bytes_out == pytest.approx(10 * few.bytes_out, rel=1e-3)
    assert many.peak_bytes > few.peak_bytes
    plain = told(record(), recipe("steps: [extract]"), as_if=10**16).stages[-1]
    assert plain.peak_bytes < 2 << 30 < many.peak_bytes  # a dedup holds more of each


def test_planning_is_counted_by_files_and_by_places_where_archives_are_cut():
    data, table = record(), replace(NOTHING, cut=0.1)
    data["inputs"] *= 2  # two files in two partitions: nothing was cut
    # One file in 20 partitions, at half a second a file.
    assert by_name(told(data, table=table))["planning"].cpu == pytest.approx(0.5 + 19 * 0.1)
    data["partitions"] = 7  # of the second that planning took half was for five cuts
    assert by_name(told(data, table=table))["planning"].cpu == pytest.approx(0.25 + 19 * 0.1)


@pytest.mark.parametrize(("name", "alone", "tasks"), [("report", 2, 3), ("settling ids", 4, 5)])
def test_on_a_large_corpus_single_process_work_is_split_into_tasks(
    name: str, alone: int, tasks: int
):
    split = {"report": (2e-6, 3e-6), "settling ids": (4e-6, 5e-6)}
    table = replace(NOTHING, split=split)
    large = told(record(), as_if=10**12, table=table)
    entry, documents = by_name(large)[name], large.documents
    assert not entry.single
    assert entry.cpu == pytest.approx((alone + tasks) * 1e-6 * documents)
    assert entry.wall == pytest.approx((alone + tasks / 4) * 1e-6 * documents)
    assert by_name(told(record(), table=table))[name].single


def test_a_run_whose_tasks_counted_the_report_says_nothing_of_one_process():
    data = record()
    data["driver"]["cpu"]["report, in workers"] = 3.0
    figures = run_figures(data, "run", replace(NOTHING, once={"report": Growth(1.0, 0.5)}))
    assert not {"report", "settling ids", "report, in workers"} & set(figures.once)
