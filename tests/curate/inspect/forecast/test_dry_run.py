"""`--dry-run` on the command line: what it prints, as text and JSON, and that it writes nothing."""

from __future__ import annotations

import json

import pytest

STEPS = [{"document_length": {"unit": "chars", "min": 30}}, {"dedup_exact": {"key": "text"}}]


@pytest.fixture(scope="module")
def ran(shared_bench, make_pages):
    """A finished run over 100 documents, and an input ten times as large."""
    shared_bench.jsonl("small/a.jsonl", make_pages(100))
    for k in range(10):
        shared_bench.jsonl(f"large/{k}.jsonl", make_pages(100, seed=k))
    recipe = json.dumps({"name": "mine", "steps": STEPS})
    (shared_bench.folder / "mine.yaml").write_text(recipe)
    shared_bench.run(recipe, shared_bench.folder / "small", out="sample")
    return shared_bench


def dry(bench, *arguments):
    return bench.command("run", "mine.yaml", *arguments, "--dry-run")


def test_the_plan_is_printed_and_below_it_what_it_takes(ran):
    done = dry(ran, "large", "-o", "out", "--sample", "sample", "--workers", "8")
    assert done.returncode == 0, done.stderr
    assert "document_length: " in done.stdout and "0 of " in done.stdout
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("forecast for ")]
    assert "8 workers: " in line and line.endswith("figures of sample")
    assert done.stdout.endswith(f"{line}\n")  # less than a minute of work needs no table
    assert not (ran.folder / "out").exists()


def test_json_says_the_same_as_one_object(ran):
    done = dry(ran, "large", "-o", "out", "--sample", "sample", "--json", "-q")
    (line,) = done.stdout.splitlines()
    plan = json.loads(line)
    assert plan["recipe"] == "mine" and len(plan["stages"]) == 2
    assert plan["stages"][0]["resolves"] == "dedup_exact"
    predicted = plan["forecast"]
    assert predicted["documents"] == pytest.approx(1000, rel=0.05)
    assert predicted["total"]["objects"] > 0
    assert predicted["bytes"] == plan["bytes"]


def test_without_a_sample_the_run_in_out_is_asked(ran):
    done = dry(ran, "small", "-o", "sample")
    assert "reused" in done.stdout and "figures of sample" in done.stdout


def test_without_a_run_the_forecast_uses_the_packages_figures_and_says_so(ran):
    done = dry(ran, "small", "-o", "new")
    assert "figures of the package's table (20" in done.stdout


def test_on_paper_there_need_be_no_input_and_no_out(ran):
    done = dry(ran, "--as-if", "100TB", "--workers", "1000")
    assert done.returncode == 0, done.stderr
    assert "forecast for 100 TB of input" in done.stdout and "1,000 workers" in done.stdout
    rows = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert {"planning", "settling", "total", "prices"} <= set(rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("small", "-o", "x", "--dry-run", "--sample", "large"), "holds no finished run"),
        (("small", "-o", "x", "--sample", "sample"), "add --dry-run"),
        (("small", "-o", "x", "--dry-run", "--as-if", "much"), "--as-if much"),
        (("small", "-o", "x", "--dry-run", "--price", "cpu_our=1"), "did you mean 'cpu_hour'"),
    ],
    ids=["no run", "no dry run", "no size", "no price"],
)
def test_wrong_use_is_a_one_line_error(ran, arguments, says):
    done = ran.command("run", "mine.yaml", *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert says in done.stderr
    assert not (ran.folder / "x").exists()


def test_other_commands_forecast_too(ran):
    done = ran.command("dedup", "small", "-o", "x", "--dry-run")
    assert done.returncode == 0 and "forecast for" in done.stdout


def test_a_run_that_begins_with_a_dedup_forecasts_too(ran):
    first = ran.command("dedup", "small", "-o", "deduped", "-q")
    done = ran.command("dedup", "large", "-o", "y", "--dry-run", "-q")
    assert first.returncode == done.returncode == 0 and "no figure" not in done.stdout
    again = ran.command("dedup", "small", "-o", "deduped", "--dry-run")
    assert "figures of deduped" in again.stdout and "no figure" not in again.stdout


def test_products_alone_have_a_plan_and_no_forecast(ran):
    steps = {"name": "words", "steps": [{"tokenizer": {"vocab": 500}}]}
    (ran.folder / "words.yaml").write_text(json.dumps(steps))
    done = ran.command("run", "words.yaml", "small", "-o", "x", "--dry-run", "--json")
    assert "forecast" not in done.stdout
    assert json.loads(done.stdout)["products"][0]["done"] is False
