"""examples/step-package: it installs, passes its own test, and llmcurate knows its step."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_example_of_a_package_installs_passes_its_test_and_runs(bench, monkeypatch) -> None:
    package, site = bench.folder / "mine", bench.folder / "site"
    shutil.copytree(ROOT / "examples/step-package", package)
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", "-q", *offline, "--target", site, package]
    subprocess.run(install, check=True)
    monkeypatch.setenv("PYTHONPATH", str(site))
    tested = bench.process("steps", "share_of_digits")
    assert "max_share: number, 0 to 1, by default 0.2" in tested.stdout, tested.stderr
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # its output is read below
    own = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", package]
    done = subprocess.run(own, cwd=package, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout

    bench.jsonl("in.jsonl", [{"id": "a", "text": "12 34 56"}, {"id": "b", "text": "Words."}])
    (bench.folder / "r.yaml").write_text("steps: [{share_of_digits: {max_share: 0.5}}]")
    run = bench.process("run", "r.yaml", "in.jsonl", "-o", "out", "--workers", "1")
    assert run.returncode == 0, run.stderr
    assert bench.ids() == ["b"]
    (row,) = bench.rows(kind="rejected")
    assert (row["rule"], row["value"], row["threshold"]) == ("too_high", 0.75, 0.5)
