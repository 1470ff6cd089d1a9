"""`llmcurate new step` writes a package that installs, passes its test and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from curate.cli.new import texts

ROOT = Path(__file__).parents[3]


def test_a_new_step_installs_passes_its_test_and_runs_in_a_recipe(bench, monkeypatch) -> None:
    assert bench.command("new", "step", "mostly_numbers", "-o", "mine").returncode == 0
    package, site = bench.folder / "mine", bench.folder / "site"
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", "-q", *offline, "--target", site, package]
    subprocess.run(install, check=True)
    monkeypatch.setenv("PYTHONPATH", str(site))
    tested = bench.process("steps", "mostly_numbers")
    assert "max_share: number, 0 to 1, by default 0.2" in tested.stdout, tested.stderr
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # its output is read below
    own = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", package]
    done = subprocess.run(own, cwd=package, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout

    bench.jsonl("in.jsonl", [{"id": "a", "text": "12 34 56"}, {"id": "b", "text": "Words."}])
    (bench.folder / "r.yaml").write_text("steps: [{mostly_numbers: {max_share: 0.5}}]")
    run = bench.process("run", "r.yaml", "in.jsonl", "-o", "out", "--workers", "1")
    assert run.returncode == 0, run.stderr
    assert bench.ids() == ["b"]
    (row,) = bench.rows(kind="rejected")
    assert (row["rule"], row["value"], row["threshold"]) == ("too_high", 0.75, 0.5)


@pytest.mark.parametrize("name", ["x", "none", "step", "my_share_of_digits"])
def test_any_name_gives_code_that_the_linter_passes(name: str, tmp_path: Path) -> None:
    for file, text in texts(name).items():
        (tmp_path / file).write_text(text)
    rules = ["--isolated", "--select", "E,F,I,B,UP", "--line-length", "100"]
    command = [sys.executable, "-m", "ruff", "check", *rules, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "share" not in texts(name)["pyproject.toml"] or "share" in name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["c4"], "'c4': llmcurate has that already"),
        (["read"], "'read': llmcurate has that already"),
        (["Share-Of"], "'Share-Of': write small letters, digits and _, as in share_of_digits"),
        (["new_one", "-o", "taken"], "taken is there already: name another folder with -o"),
    ],
)
def test_a_name_or_a_folder_that_is_taken_is_one_line(bench, arguments, says) -> None:
    (bench.folder / "taken").mkdir()
    done = bench.command("new", "step", *arguments)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
    assert list(bench.folder.rglob("*.py")) == []
