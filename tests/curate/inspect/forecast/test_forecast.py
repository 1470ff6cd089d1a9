"""A forecast from runs written by hand, checked by hand."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest

from curate.errors import UsageError
from curate.formats.inputs import InputFile, InputPlan, Slice
from curate.inspect.forecast.forecast import forecast
from curate.inspect.forecast.measured import of_record, read
from curate.inspect.forecast.prices import Prices, parse_prices
from curate.inspect.forecast.sources import groups, line
from curate.inspect.forecast.terminal import text
from curate.run.plan import plan_run
from curate.steps.recipe import parse

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


def told(data: dict, of=None, *, size: int = 10_000, workers: int = 4, **options):
    measured = of_record(data, "the sample")
    assert measured is not None
    return forecast(plan(of, size), [(measured,)], workers, Prices(), **options)


def by_name(found):
    return {(s.name if not s.text_in else s.name[:2]): s for s in found.stages}


def test_ten_times_the_input_takes_ten_times_the_seconds_bytes_and_documents():
    found = told(record())
    stages = by_name(found)
    assert found.documents == 1000
    first, second = stages["00"], stages["01"]
    assert (first.documents_in, first.documents_out) == (1000, 500)
    assert (first.text_in, first.text_out) == (40_000, 6000)
    assert (second.documents_out, second.text_out) == (pytest.approx(460), pytest.approx(5400))
    cpu = {one.label: one.cpu for one in first.steps}
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


def test_what_one_process_does_is_not_divided_by_workers():
    stages = by_name(told(record(), workers=100))
    for name, seconds in (
        ("planning", 10), ("settling ids", 30), ("dedup_exact: deciding", 50), ("report", 100)
    ):  # fmt: skip
        assert stages[name].single
        assert stages[name].cpu == stages[name].wall == pytest.approx(seconds)
    assert not stages["assembling"].single
    assert stages["assembling"].wall == pytest.approx(40 / 20)  # no more workers than partitions


def test_what_a_dedup_does_in_workers_is_divided_among_them():
    data = record()
    data["stages"][0]["decided"]["tasks_cpu"] = 8.0
    decided = by_name(told(data))["dedup_exact: deciding"]
    assert not decided.single
    assert (decided.cpu, decided.wall) == pytest.approx((50 + 80, 50 + 80 / 4))


def test_without_the_seconds_of_workers_that_is_said():
    data = record()
    data["stages"][0]["decided"]["tasks_cpu"] = None  # Ray does not count them
    assert "no figure for dedup_exact: deciding" in told(data).missing


def test_sketches_are_written_and_read_and_decisions_too():
    found = told(record())
    assert found.total("shuffled") == pytest.approx(2 * 4000 + 2 * 1000)
    # kept, keys, rejected, ids, sketch of 20 partitions; three; corpus, rejected and manifests
    assert found.total("objects") == 5 * 20 + 1 + 3 * 20 + 2 * 20 + 2


def test_a_cost_is_hours_requests_and_storage_at_the_prices():
    first = by_name(told(record()))["00"]
    prices = Prices()
    expected = first.cpu / 3600 * prices.cpu_hour + 100 / 1000 * prices.put
    expected += 20 / 1000 * prices.get + first.bytes_out / 1e9 * prices.gb_month
    assert first.cost == pytest.approx(expected)


def test_a_step_without_figures_is_named_and_counts_as_no_zero():
    other = recipe(RECIPE + "  - pii: {emails: true}\n  - tokenizer: {vocab: 500}\n")
    found = told(record(), other)
    assert any("no figure for step pii" in m for m in found.missing)
    assert "no figure for product tokenizer" in found.missing
    (pii,) = [one for s in found.stages for one in s.steps if one.label == "pii"]
    assert pii.cpu is None
    assert any(row.split() == ["pii", "?"] for row in text(found).split("\n"))


def test_without_any_figure_of_bytes_or_starts_that_is_said():
    data = record()
    for stage in data["stages"]:
        del stage["written"], stage["start"]
    found = told(data)
    assert by_name(found)["00"].bytes_out is None
    assert "no figure for the start of workers and partitions" in found.missing
    assert "no figure for bytes that stage 0 writes" in found.missing
    assert "no figure for bytes of dedup_exact's sketches" in found.missing


def test_other_settings_take_the_figures_of_the_same_step_and_say_so():
    found = told(record(), recipe(RECIPE.replace("min: 300", "min: 200")))
    assert any("document_length: measured with other settings (min: 300)" in n for n in found.notes)
    assert by_name(found)["00"].cpu == by_name(told(record()))["00"].cpu


def test_runs_without_cpu_seconds_stand_in_with_those_of_the_clock_and_say_so():
    data = record()
    for stage in data["stages"]:
        stage["seconds"] = stage.pop("cpu")
    found = told(data)
    assert any("seconds of the clock" in n for n in found.notes)
    assert {one.label: one.cpu for one in by_name(found)["00"].steps}["extract"] == 80
    assert by_name(found)["dedup_exact: deciding"].cpu == pytest.approx(90)


def test_as_if_takes_the_size_given_and_counts_partitions_by_their_bytes():
    found = told(record(), as_if=10**12)
    assert (found.bytes, found.partitions) == (10**12, -(-(10**12) // (16 << 20)))
    assert by_name(found)["00"].documents_in == pytest.approx(10**11)


def test_another_kind_of_input_is_noticed():
    data = record()
    data["inputs"][0] |= {"path": "in.jsonl", "format": "jsonl"}
    assert any("archive.gz, what was measured jsonl" in n for n in told(data).notes)


def _run(documents: int, seconds: float):
    data = record()
    data["totals"]["read"] = documents
    data["driver"]["cpu"]["report"] = seconds
    return of_record(data, "run")


def test_two_sizes_part_what_is_fixed_from_what_grows():
    assert line([(_run(100, 6.0), _run(1000, 15.0))], "report") == pytest.approx((5.0, 0.01))


def test_the_fixed_part_of_another_table_is_taken_off_a_single_run():
    table = (_run(100, 6.0), _run(1000, 15.0))
    assert line([(_run(2000, 45.0),), table], "report") == pytest.approx((5.0, 0.02))
    # little more than the fixed part says nothing of what grows: the table's slope then
    assert line([(_run(200, 9.0),), table], "report") == pytest.approx((7.0, 0.01))


def test_the_largest_runs_give_the_line_and_those_of_the_same_settings_that_of_a_step():
    large = [replace(run, recipe="large") for run in (_run(10, 1.0), _run(50_000, 20.0))]
    steep = [replace(run, recipe="steep") for run in (_run(10, 1.0), _run(40_000, 30.0))]
    table = (_run(100, 6.0), _run(1000, 15.0), *large, *steep)  # the first is small, and steeper
    assert line([table], "report")[1] == pytest.approx(29 / 39_990)


def test_a_step_is_decided_at_the_rate_of_its_own_settings():
    step = recipe().steps[2]
    runs = []
    for key, seconds in (("text", 2.0), ("url", 40.0)):
        of = recipe(RECIPE.replace("key: text", f"key: {key}").replace("small", key))
        for size in (1, 10):
            data = record(of)
            data["recipe"] = key
            data["stages"][0]["kept"] *= size
            data["stages"][0]["rejected"] *= size
            data["stages"][0]["read"] *= size
            data["stages"][0]["decided_cpu"] = 1.0 + seconds * size
            runs.append(of_record(data, key))
    assert line([tuple(runs)], "", step) == pytest.approx((1.0, 2.0 / 50))


def test_nothing_known_gives_no_line():
    assert line([(_run(100, 6.0),)], "teleporting") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0", b"{", b"[1]", b'{"stages": 3}', b"\xff\xfe", b'{"stages": [{}]}'],
    ids=["empty", "nul", "truncated", "list", "number", "no utf-8", "empty stage"],
)
def test_a_broken_record_is_refused_in_one_line(tmp_path: Path, content: bytes):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.json") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no finished run"):
        read(tmp_path / "nothing")


def test_a_run_over_nothing_gives_no_figures():
    data = record()
    data["totals"]["read"] = 0
    assert of_record(data, "empty") is None


def test_a_step_that_saw_nothing_has_no_figure():
    data = copy.deepcopy(record())
    data["stages"][1]["worked"] = {"dedup_exact": 0, "newline_runs": 0}
    assert any("no figure for step newline_runs" in m for m in told(data).missing)


def test_the_named_sample_goes_before_out_and_out_before_the_workspace(tmp_path: Path):
    from curate.run.workspace import Workspace

    for name in ("sample", "out", "runs/0001-a", "runs/0002-b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text(json.dumps(record()))
    space = Workspace(tmp_path, tmp_path / "runs")

    def first(sample, out):
        return Path(groups(recipe(), sample, out, space)[0][0].said).name

    assert first(tmp_path / "sample", tmp_path / "out") == "sample"
    assert first(None, tmp_path / "out") == "out"
    assert first(None, tmp_path / "new") == "0002-b"


def test_a_run_of_other_steps_is_passed_over(tmp_path: Path):
    (tmp_path / "run.json").write_text(json.dumps(record()))
    other = recipe("name: other\nsteps: [pii: {emails: true}]\n")
    assert [run.said for run in groups(other, None, tmp_path, None)[0]] != [str(tmp_path)]


@pytest.mark.parametrize("given", ["get", "get=x", "get=-1", "get=nan", "cpu=1"])
def test_a_price_that_is_none_is_refused(given: str):
    with pytest.raises(UsageError, match="--price"):
        parse_prices([given])


def test_prices_are_given_together_or_one_by_one():
    found = parse_prices(["cpu_hour=0.01,put=1", "gb-month=2"])
    assert (found.cpu_hour, found.put, found.gb_month, found.get) == (0.01, 1, 2, Prices().get)
