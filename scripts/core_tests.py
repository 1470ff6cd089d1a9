"""Runs core's tests in a copy of the checkout that has no lab: `make test-core`.

    python scripts/core_tests.py [--slice N] [ARGUMENTS of pytest]

Left out are tests in folders named lab, files that import it, and tests marked `lab`. --slice: one
of twenty parts of the files, by N modulo 20, so that each commit runs another one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = 20
LEFT_OUT = ("lab", "__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", "build")
OF_LAB = re.compile(
    r"^(from|import) (tests\.)?(curate|tokenize_kit|train)\.lab\b"
    r"|^pytestmark = pytest\.mark\.lab$",
    re.M,
)
# These look at the checkout as a whole, which is not there.
WHOLE = ("tests/test_*.py", "tests/docs/*", "tests/benchmarks/*", "tests/fuzz/*")


def needs_lab(test: Path) -> bool:
    """Return whether a file of tests imports the lab, or the conftest.py beside it does, or all of
    its tests are marked."""
    files = [test, test.with_name("conftest.py")]
    return any(OF_LAB.search(file.read_text("utf-8")) for file in files if file.is_file())


def main() -> int:
    """Returns pytest's exit code."""
    parser = argparse.ArgumentParser(description="Run core's tests with the lab hidden.")
    parser.add_argument("--slice", type=int, default=None)
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "core"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        index = [sys.executable, "-m", "curate.cli.reference"]  # without the lab's names
        subprocess.run(index, cwd=copy, env=environment, check=True, stdout=subprocess.DEVNULL)
        left_out = {path for pattern in WHOLE for path in copy.glob(pattern)}
        files = sorted(set(copy.glob("tests/**/test_*.py")) - left_out)
        files = [path for path in files if not needs_lab(path)]
        if options.slice is not None:
            files = files[options.slice % PARTS :: PARTS]
        print(f"core alone: {len(files)} files of tests", flush=True)
        tests = [str(path.relative_to(copy)) for path in files]
        command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadfile"]
        command += ["-p", "no:cacheprovider", "-m", "not slow and not lab", *arguments, *tests]
        return subprocess.run(command, cwd=copy, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
