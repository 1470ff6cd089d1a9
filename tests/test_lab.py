"""The lab hidden: core runs from an archive to a model in a copy that has no lab, and so does
examples/speedrun.py, the map of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/speedrun.py"
PRESETS = """
import train.hf.families
from train.model.presets import PRESETS

assert "llama3-8b" in PRESETS and "bert-base" not in PRESETS
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("core")
    for package in ("llmcurate", "curate", "tokenize_kit", "train"):
        hidden = shutil.ignore_patterns("lab", "__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=hidden)
    shutil.copytree(ROOT / "pipelines", folder / "pipelines")
    (folder / "docs").mkdir()
    run(folder, "-m", "curate.cli.reference")  # the index without the lab
    return folder


def run(core: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=core,
        env={**os.environ, "PYTHONPATH": str(core)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_and_presets_are_of_core(core: Path) -> None:
    pytest.importorskip("torch")
    shown = run(core, "-m", "llmcurate", "--help")
    assert " pretrain " in shown and " verify " not in shown
    run(core, "-c", PRESETS)


def test_the_map_goes_from_an_archive_to_text_that_a_model_wrote(core: Path) -> None:
    pytest.importorskip("torch")
    text = EXAMPLE.read_text(encoding="utf-8")
    small = text.replace("vocab=4096", "vocab=400").replace("steps=100, rows=8", "steps=2, rows=2")
    assert small.count("vocab=400)") == small.count("steps=2,") == 1
    (core / "small.py").write_text(small, encoding="utf-8")
    printed = run(core, "small.py")
    assert "duplicate of" in printed and "400 tokens" in printed
    assert printed.splitlines()[-1].startswith("report: speedrun/corpus/report.html")


def test_the_map_is_at_most_120_lines() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 120
