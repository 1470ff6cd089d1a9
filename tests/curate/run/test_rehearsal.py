"""A rehearsal compiles all kernels that a run needs, and leaves nothing else."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from curate.run.messages import Rehearsed, RehearseStage, RehearseStep, StepRecord
from curate.run.worker import rehearsal
from curate.run.worker.stage import load_stage
from llmcurate.base.kernels import compile_time, locks

RECIPE = """
name: web
steps:
  - url_filter
  - extract
  - gopher_repetition
  - gopher_quality
  - c4
  - fineweb_quality
  - dedup_minhash
  - pii
"""


@pytest.fixture
def web(bench, make_pages):
    """A recipe that has a step of each kind, and a folder of pages."""
    (bench.folder / "web.yaml").write_text(RECIPE)
    (bench.folder / "pages").mkdir()
    for row in make_pages(12):
        text = row["text"].replace("\n", "<p>")
        page = f"<html><body><p>{text} Write to a.b@example.org.</body></html>"
        (bench.folder / "pages" / f"{row['id']}.html").write_text(page)
    return bench


def compiled(bench) -> list[float]:
    """CPU seconds of compilation by stage."""
    record = json.loads((bench.folder / "out/run.json").read_text())
    return [stage["compiled"] for stage in record["stages"]]


def test_after_a_warmup_a_run_compiles_nothing(web):
    done = web.command("warmup", "web.yaml", "--json")
    assert json.loads(done.stdout)["steps"] == 8 and not json.loads(done.stdout)["missing"]
    web.command("run", "web.yaml", "pages", "-o", "out")
    assert compiled(web) == [0.0, 0.0]
    done = web.command("warmup", "web.yaml")
    assert done.stdout.startswith("prepared 8 steps, compiled 0 kernels to ")


def test_a_stage_rehearses_the_later_stages_too(web, monkeypatch):
    web.command("run", "web.yaml", "pages", "-o", "out")
    first, second = sorted((web.folder / "out/stages").glob("*/stage*.json"))
    labels = []
    monkeypatch.setattr(rehearsal, "rehearse", lambda step, folder: labels.append(step.label))
    rehearsal.rehearse_all(RehearseStage(first, backwards=True))
    assert labels == [
        "pii", "dedup_minhash", "fineweb_quality", "c4", "gopher_quality", "gopher_repetition",
        "extract", "url_filter",
    ]  # fmt: skip
    labels.clear()
    rehearsal.rehearse_all(RehearseStage(second, backwards=True))
    assert labels == ["pii"]
    assert load_stage(second).spec.of == 8


def test_a_step_whose_kernels_another_process_compiles_is_passed_over(web, monkeypatch):
    web.command("run", "web.yaml", "pages", "-o", "out")
    labels = []

    def rehearse(step, folder) -> None:
        if step.label == "c4":
            compile_time.on_busy()
        labels.append(step.label)

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    first, _ = sorted((web.folder / "out/stages").glob("*/stage*.json"))
    rehearsal.rehearse_all(RehearseStage(first, backwards=True))
    assert "c4" not in labels and len(labels) == 7
    assert compile_time.on_busy is not locks.refuse


def test_a_step_that_fails_in_rehearsal_fails_nothing(web, monkeypatch):
    web.command("run", "web.yaml", "pages", "-o", "out")

    def rehearse(step, folder) -> None:
        raise ValueError(step.label)

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    first, _ = sorted((web.folder / "out/stages").glob("*/stage*.json"))
    rehearsal.rehearse_all(RehearseStage(first, backwards=True))


def test_a_warmup_says_which_steps_it_could_not_rehearse(bench):
    (bench.folder / "web.yaml").write_text(
        "name: web\nsteps:\n  - quality: {model: nowhere.bin}\n  - document_length\n"
    )
    done = bench.command("warmup", "web.yaml")
    ready, missing = done.stdout.splitlines()
    assert ready.startswith("prepared 1 step, ")
    assert missing.startswith("not compiled: quality: ") and "nowhere.bin" in missing


@pytest.mark.lab
def test_a_warmup_runs_no_code_that_a_recipe_names(bench):
    source = "raise SystemExit('it ran')\ndef keep(text, metadata):\n    return True\n"
    (bench.folder / "mine.py").write_text(source)
    (bench.folder / "web.yaml").write_text("name: web\nsteps:\n  - python: mine.py:keep\n")
    done = bench.command("warmup", "web.yaml")
    assert done.returncode == 0 and "not compiled: python: runs code outside" in done.stdout


def test_a_step_that_cannot_work_on_the_sample_is_named(monkeypatch):
    def rehearse(step, folder) -> None:
        raise ValueError(step.label)

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    task = RehearseStep(StepRecord("c4", "c4", {}), wait=True)
    assert rehearsal.rehearse_one(task) == Rehearsed(missing="ValueError: c4")


def test_a_rehearsal_of_products_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rehearsal.rehearse_products()
    assert not list(Path(tmp_path).iterdir())
