"""`make mutants`: the mutants it draws, and their results on a package of three lines.

The parser that it reads code with takes a second to import: tests that need it do so."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parameters import mostly_slow

ROOT = Path(__file__).parents[1]
BORDERS = '''\
"""How old one is."""
LEAST = 18


def grown(age):
    return age >= LEAST


def left(age):
    return LEAST - age
'''
KERNEL = (
    "from numba import njit\nLIMIT = 3\n\n\n@njit(nogil=True)\ndef over(n):\n    return n > LIMIT\n"
)
CLAIM = """\
from small.borders import grown


def test_grown_begins_at_eighteen():
    assert grown(18) and not grown(17)
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    for name, text in {
        "small/borders.py": BORDERS,
        "small/kernel.py": KERNEL,
        "tests/small/test_borders.py": CLAIM,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_seed_draws_the_same_mutants_on_different_lines_and_none_in_kernels(small: Path) -> None:
    from scripts.mutants import draw

    drawn = draw(small, ["small"], 1, 10)
    assert drawn == draw(small, ["small"], 1, 10)
    assert sorted((m.path, m.line) for m in drawn) == [("small/borders.py", n) for n in (2, 6, 10)]
    assert draw(small, ["small"], 1, 2) == drawn[:2]


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ('print("no file", file)', {'print("no file", None)', 'print("no file", )'}),
        ('raise Error(f"{n + 1} files")', set()),
        ("n: Literal[1]", set()),
        ('if kind == "a": pass', {'"XXaXX"', '"A"', "!="}),
        ("os.kill(process, 9)", set()),
    ],
)
def test_messages_types_and_signals_are_left_as_they_are(code: str, changes: set[str]) -> None:
    from scripts.mutants import slip

    made = {m.change for n in range(50) if (m := slip("m.py", code, 1, random.Random(n)))}
    assert len(made) == len(changes)
    assert all(any(change in one for one in made) for change in changes)


@pytest.mark.parametrize(
    "functions", mostly_slow([2, 1]), ids=["of many, those that enter", "of few, all tests"]
)
def test_a_slip_that_a_test_sees_is_killed_and_others_are_listed(
    small: Path, functions: int
) -> None:
    more = "\n\ndef since(age):\n    return age - LEAST\n" * (functions - 1)
    (small / "small/borders.py").write_text(BORDERS + more)
    subprocess.run(["git", "init", "-q", small], check=True)
    script = [sys.executable, str(ROOT / "scripts/mutants.py"), "small", "--load", ""]
    lines = subprocess.check_output([*script, "--root", str(small)], text=True).splitlines()
    test = "tests/small/test_borders.py::test_grown_begins_at_eighteen"
    assert {f"small/borders.py:{n} killed by {test}" for n in (2, 6)} < set(lines)
    assert f"small/borders.py:10 survived (tests: {2 - functions})" in lines
    assert "-    return LEAST - age" in lines
    share = {1: "3 (67%)", 2: "4 (50%)"}[functions]
    assert lines[-1] == f"killed 2 of {share}, {functions} survived, 0 timed out"
    assert (small / "small/borders.py").read_text() == BORDERS + more
