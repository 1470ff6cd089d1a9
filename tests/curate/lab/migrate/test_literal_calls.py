"""Calls in Python scripts: which arguments are constants, and scripts that are hostile."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.lab.migrate.literal_calls import Call, calls_of
from llmcurate.base.errors import UsageError

PATH = Path("script.py")


def argument(text: str) -> Any:
    """The only argument of the last call of `Step` in a script."""
    call = calls_of(text, PATH, {"Step"})[-1]
    assert isinstance(call, Call)
    return call.arguments[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Step(-0.5)", -0.5),
        ("Step(None)", None),
        ("Step([1, ('a', True)])", (1, ("a", True))),
        ("N = 5\nStep({'n': N})", {"n": 5}),
        ("A = 's3://x'\nB = f'{A}/y'\nStep(B + '/z')", "s3://x/y/z"),
        ("import os\nA = 'x'\nStep(os.path.join(A, 'y'))", "x/y"),
        ("c = Config(n=3)\nStep(c.n)", 3),
        ("p.add_argument('-t', '--max-n', default=7)\nargs = p.parse_args()\nStep(args.max_n)", 7),
        ("N = 1\ndef f():\n    N = 2\n    Step(N)", 2),
        ("N = 1\ndef f():\n    M = 2\nStep(N)", 1),
    ],
)
def test_constants_are_followed(text: str, value: object) -> None:
    assert argument(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "N = 1\nif x:\n    N = 2\nStep(N)",
        "for N in range(3):\n    Step(N)",
        "def f(N=1):\n    Step(N)",
        "N = 1\nN += 1\nStep(N)",
        "Step(f'{x:.2f}')",
        "Step(lambda doc: True)",
        "Step([n for n in range(3)][0])",
        "N = N\nStep(N)",
    ],
)
def test_what_is_not_constant_is_no_value(text: str) -> None:
    assert type(argument(text)).__name__ == "Expression"


def test_calls_are_found_wherever_they_stand_in_the_order_of_the_script() -> None:
    text = (
        "from a import Step as S\n"
        "def run():\n"
        "    pipeline = [S(1), Other(), rule]\n"
        "    pipeline.append(S(2))\n"
        "    if x: pipeline += [a.b.Step(3)]\n"
    )
    found = calls_of(text, PATH, {"Step"})
    assert [(str(each), each.line) for each in found] == [
        ("Step(...)", 3),
        ("Other(...)", 3),
        ("Step(...)", 4),
        ("Step(...)", 5),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Step(1)\0",
        "(" * 100_000,
        "x = " + "-" * 100_000 + "1",
        "Step(" + " + ".join(["1"] * 50_000) + ")",
        "Step(a" + ".b" * 50_000 + ")",
        "if a: pass\n" + "elif a: pass\n" * 20_000,
        "print 'Python 2'",
    ],
)
def test_a_script_that_cannot_be_parsed_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"script.py.*: not Python: .+") as error:
        calls_of(text, PATH, {"Step"})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("pair", ["a{0} + a{0}", "[a{0}, a{0}]", "(a{0}, {{'k': a{0}}})"])
def test_names_that_double_each_other_end(pair: str) -> None:
    text = "a0 = 'x'\n" + "".join(f"a{i + 1} = {pair.format(i)}\n" for i in range(100))
    assert len(calls_of(text + "Step(a100)\n", PATH, {"Step"})) == 1


def test_a_script_is_not_executed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    text = f"import os\n__import__('os').mkdir({str(victim)!r})\nStep(os.mkdir({str(victim)!r}))\n"
    assert isinstance(argument(text), Call)
    assert not victim.exists()


@given(st.text(alphabet="Step()[]{}=,:.'\"\n +-*ab1\0\\{f", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(UsageError):
        calls_of(text, PATH, {"Step"})
