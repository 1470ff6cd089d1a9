"""The recipe of a migration, recognising a tool, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from curate.lab.migrate.migration import (
    MappedStep,
    Migration,
    Setting,
    migrate,
    read_configuration,
)
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench
from tests.curate.lab.migrate.conftest import Migrate

SCRIPT = "from datatrove.pipeline.filters import *\nGopherQualityFilter()\nRegexFilter('x')\n"

EMPTY: list[object] = []  # one object, which YAML would name at its second place

short = st.text(max_size=30)
plain = short | st.integers() | st.booleans() | st.floats(allow_nan=False) | st.none()


@given(
    st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(short, inner)),
    short,
)
@example("\x85", "\x85")
@example({"\x85": [None, True, 1.5]}, "")
@example([EMPTY, EMPTY], "")
@example(["a\nb", 1, "\x85", "\u2028"], "a\nb: c\x85- d")
def test_any_value_and_origin_are_read_back_from_the_recipe(value: Any, origin: str) -> None:
    nested = Setting("inner", (Setting("a", value, origin),), origin)
    step = MappedStep("c4", (Setting("value", value, origin), nested), origin)
    recipe = Migration("A tool", Setting("input", "in", origin), (step,), ()).recipe("name")
    (entry,) = yaml.safe_load(recipe)["steps"]
    assert entry == {"c4": {"value": value, "inner": {"a": value}}}


def test_a_recipe_without_steps_says_so() -> None:
    assert "steps: []" in Migration("A tool", None, (), ()).recipe("name")


def test_steps_that_our_checks_refuse_are_not_in_the_recipe() -> None:
    wrong = MappedStep("c4", (Setting("min_sentences", -1, "line 2: x"),), "line 2: x", 3)
    read = (Setting("limit", 0, "line 1: y"), Setting("share", 0.5, "line 1: y"))
    done = Migration("A tool", None, (wrong,), (), read).checked()
    assert (done.steps, done.mapped, done.total) == ((), 0, 3)
    assert [each.name for each in done.read] == ["share"]
    assert sorted(str(remark) for remark in done.remarks)[0].startswith("line 1: y: differs: ")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("absent.py", None, "no such file"),
        ("huge.py", b"#" * (1 << 20) + b"#", "at most 1 MiB"),
        ("binary.py", b"\xff\xfe\0", "not UTF-8 text"),
        ("deep.json", b"[" * 100_000, "nested|deep|damaged"),
        ("bad.json", b"{", "damaged JSON"),
        ("bomb.yaml", b"a: &a [x]\nb: &b [*a, *a]\n" + b"c: [" * 60, "nested more than"),
        ("bad.yaml", b"a: b: c", "bad.yaml:1: not YAML"),
        ("other.yaml", b"a: 1", "none of DataTrove, DCLM"),
        ("other.py", b"print(1)", "none of DataTrove, DCLM"),
        ("bad.py", b"x = 1\ndef f(:\n", "bad.py:2: not Python: invalid syntax"),
    ],
)
def test_other_files_are_one_line(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=f"(?i){says}") as error:
        migrate(path)
    assert "\n" not in str(error.value)


def test_json_with_a_mark_of_byte_order_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a":\t[1]}')
    assert read_configuration(path)[1] == {"a": [1]}


def test_a_tool_that_does_not_exist_is_named(migrated: Migrate) -> None:
    with pytest.raises(UsageError, match="--from trove: choose one of datatrove, dclm"):
        migrated(SCRIPT, tool="trove")


def test_the_command_writes_the_recipe_and_lists_the_rest(bench: Bench) -> None:
    (bench.folder / "theirs.py").write_text(SCRIPT)
    done = bench.command("migrate", "theirs.py", "-o", "recipe.yaml")
    assert done.returncode == 0 and not done.stdout
    assert done.stderr.splitlines() == [
        "line 3: RegexFilter: not mapped: write the pattern as keep(text, metadata) in a file, for"
        " the step `python`",
        "mapped 1 of 2 steps",
        "next: llmcurate run recipe.yaml IN -o OUT",
    ]
    bench.jsonl("in.jsonl", [{"id": "a", "text": "Too short."}])
    run = bench.command("run", "recipe.yaml", "in.jsonl", "-o", "out", "--dry-run")
    assert run.returncode == 0, run.stderr

    again = bench.command("migrate", "theirs.py")
    assert again.stdout == (bench.folder / "recipe.yaml").read_text()
    assert again.stderr.splitlines() == done.stderr.splitlines()[:-1]

    refused = bench.command("migrate", "theirs.py", "-o", "recipe.yaml")
    assert refused.returncode == 2 and "recipe.yaml exists" in refused.stderr


def test_without_a_step_the_command_fails_and_writes_no_recipe(bench: Bench) -> None:
    (bench.folder / "theirs.py").write_text("import datatrove\nRegexFilter('x')\n")
    done = bench.command("migrate", "theirs.py", "-o", "recipe.yaml")
    assert done.returncode == 1 and not (bench.folder / "recipe.yaml").exists()
    assert "mapped 0 of 1 step" in done.stderr and "no step is left" in done.stderr
