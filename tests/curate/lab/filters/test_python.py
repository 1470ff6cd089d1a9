"""Filters that are functions in files of the user's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from curate.steps.functions import FunctionInFile
from curate.steps.recipe import load, parse
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.conftest import Bench
from tests.parameters import mostly_slow

ROWS = [
    {"id": "a", "text": "hello there", "url": "u1", "score": 0.5},
    {"id": "b", "text": "hi", "url": "u2", "score": 0.1},
    {"id": "c", "text": "eeee eee", "url": "u2", "score": 0.9},
    {"id": "d", "text": "no such lttr", "url": "u3", "score": 0.2},
]
RULES = """
import pyarrow as pa
import pyarrow.compute as pc
from limits import SHORTEST

def keep(text, metadata):
    if len(text) < SHORTEST:
        return f"too short: {len(text)} characters"
    return metadata["url"] != "u2"

def density(text) -> float:
    return text.count("e") / len(text)

def number(text):
    return 5

def nothing(text):
    pass

def fails(text):
    if text.startswith("eeee"):
        return {}[
            text
        ]
    return True

def leaves(text):
    raise SystemExit("bye\\x1b[31m\\nnow")

def remarks(text, metadata):
    return f"too short in {metadata['id']}"

def long(batch: pa.Table):
    assert "payload" not in batch.column_names
    return pc.greater(pc.utf8_length(batch["text"]), 8)

def reasons(batch):
    return pa.array([None if url == "u1" else f"from:{url}" for url in batch["url"].to_pylist()])

def scores(batch):
    return batch["score"]

def too_few(batch):
    return [True]
"""


@pytest.fixture
def rules(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Documents, and a file of functions with one beside it."""
    monkeypatch.chdir(bench.folder)
    monkeypatch.setenv("LLMCURATE_ALLOW_PYTHON", "1")
    bench.jsonl("in.jsonl", ROWS)
    (bench.folder / "my_rules.py").write_text(RULES, encoding="utf-8")
    (bench.folder / "limits.py").write_text("SHORTEST = 4\n", encoding="utf-8")
    return bench


def filtered(bench: Bench, settings: str | dict[str, object], out: str = "out") -> list[str]:
    """The ids that stay."""
    bench.run([{"python": settings}], "in.jsonl", out=out)
    return bench.ids(out)


def reasons_in(bench: Bench) -> dict[str, tuple[str, str | None]]:
    return {row["id"]: (row["rule"], row["detail"]) for row in bench.rows(kind="rejected")}


def test_false_drops_and_a_text_is_the_reason(rules: Bench) -> None:
    assert filtered(rules, "my_rules.py:keep") == ["a", "d"]
    assert reasons_in(rules) == {"b": ("too_short", "2 characters"), "c": ("keep", None)}


def test_a_number_is_a_measure_under_the_limits_of_the_recipe(rules: Bench) -> None:
    settings = {"function": "my_rules.py:density", "min": 0.01, "max": 0.5}
    assert filtered(rules, settings) == ["a"]
    reasons = {row["id"]: (row["rule"], row["value"]) for row in rules.rows(kind="rejected")}
    assert reasons == {"b": ("too_low", 0.0), "c": ("too_high", 0.875), "d": ("too_low", 0.0)}
    assert [row["python.density"] for row in rules.rows()] == [3 / 11]


def test_a_measure_without_limits_is_a_column(rules: Bench) -> None:
    assert filtered(rules, "my_rules.py:density") == ["a", "b", "c", "d"]
    assert [row["python.density"] for row in rules.rows()] == [3 / 11, 0.0, 0.875, 0.0]


def test_other_thresholds_of_a_measure_are_counted_from_the_run(rules: Bench) -> None:
    filtered(rules, {"function": "my_rules.py:density", "max": 0.5})
    done = rules.command("whatif", "out", "--set", "python.max=1", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["gained"]["documents"] == 1


@pytest.mark.parametrize(
    ("function", "limits", "kept"),
    mostly_slow(
        [
            ("scores", {"min": 0.2, "max": 0.5}, ["a", "d"]),
            ("reasons", {}, ["a"]),
            ("long", {}, ["a", "d"]),
        ],
        2,
    ),
)
def test_a_function_may_take_an_arrow_table(
    rules: Bench, function: str, limits: dict[str, float], kept: list[str]
) -> None:
    settings = {"function": f"my_rules.py:{function}", "batch": True, **limits}
    assert filtered(rules, settings) == kept


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("fails", r"my_rules\.py:22: KeyError: 'eeee eee' \(fails, step python on document c\)"),
        ("leaves", r"my_rules\.py:\d+: SystemExit: bye\S* now \(.* python on document a\)"),
        ("number", r"my_rules\.py:number returned 5 for document a: for a measure set `min`.*"),
        ("nothing", r"my_rules\.py:nothing returned None for document a: return True, False.*"),
    ],
)
def test_an_error_in_a_user_function_is_one_line_with_the_document(
    rules: Bench, function: str, message: str
) -> None:
    with pytest.raises(RunFailed) as caught:
        rules.run([{"python": f"my_rules.py:{function}"}], "in.jsonl")
    assert re.fullmatch(message, str(caught.value)) and caught.value.exit_code == 1
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("value", ["math.inf", "math.nan", "10**400"])
def test_a_measure_that_no_limit_can_judge_is_refused(rules: Bench, value: str) -> None:
    (rules.folder / "odd.py").write_text(f"import math\ndef odd(text) -> float: return {value}\n")
    with pytest.raises(RunFailed, match=r"odd\.py:odd returned .* a measure is at most 1e\+18"):
        rules.run([{"python": {"function": "odd.py:odd", "max": 1}}], "in.jsonl")


def test_an_array_of_another_length_is_refused(rules: Bench) -> None:
    with pytest.raises(RunFailed, match=r"too_few returned 1 values for 4 documents"):
        rules.run([{"python": {"function": "my_rules.py:too_few", "batch": True}}], "in.jsonl")


def test_remarks_on_single_documents_are_no_rules(rules: Bench) -> None:
    rows = [{"id": f"d{n}", "text": "x"} for n in range(101)]
    rules.jsonl("many.jsonl", rows)
    with pytest.raises(RunFailed, match=r"more than 100 different reasons .* after a colon"):
        rules.run([{"python": "my_rules.py:remarks"}], "many.jsonl")


def test_a_failing_file_is_a_one_line_error(rules: Bench) -> None:
    (rules.folder / "broken.py").write_text("import json\n\njson.loads('')\ndef keep(t): pass\n")
    with pytest.raises(RunFailed, match=r"broken\.py:3: JSONDecodeError: .*when its file was run"):
        rules.run([{"python": "broken.py:keep"}], "in.jsonl")


@pytest.mark.parametrize("edited", ["my_rules.py", "limits.py"])
def test_an_edited_function_is_computed_anew(rules: Bench, edited: str) -> None:
    """In workers that have loaded it before, too."""
    filtered(rules, "my_rules.py:keep")
    path = rules.folder / edited
    text = path.read_text(encoding="utf-8").replace("SHORTEST = 4", "SHORTEST = 12")
    path.write_text(text.replace("< SHORTEST", "< 12"), encoding="utf-8")
    assert filtered(rules, "my_rules.py:keep") == ["d"]
    again = rules.run([{"python": "my_rules.py:keep"}], "in.jsonl")
    assert again.nothing_new


def test_an_edit_while_a_run_works_is_noticed(rules: Bench) -> None:
    from curate.run.plan import make_plan, stage_folder
    from curate.run.worker.stage import load_stage

    rules.run([{"python": "my_rules.py:keep"}], "in.jsonl")
    recipe = parse("steps: [{python: my_rules.py:keep}]", "r.yaml")
    plan = make_plan(recipe, ["in.jsonl"])
    spec = stage_folder(rules.folder / "out", plan.stages[0].folder_name) / "stage.json"
    assert load_stage(spec)
    (rules.folder / "limits.py").write_text("SHORTEST = 5\n", encoding="utf-8")
    spec.touch()
    with pytest.raises(RunFailed, match="python: its source has changed"):
        load_stage(spec)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("my_rules.py:kep", "my_rules.py has no function 'kep'; did you mean 'keep'"),
        ("later.py:keep", "later.py:keep is an async function: define it by `def` alone"),
        ("absent.py:keep", r"absent\.py:keep: cannot read the file \(No such file"),
        ("broken.py:keep", r"broken\.py:1: "),
        ("my_rules:keep", "write FILE.py:FUNCTION, as in my_rules.py:keep"),
        ("https://a.test/my_rules.py:keep", "write FILE.py:FUNCTION"),
    ],
)
def test_a_function_that_is_not_there_is_wrong_use(
    rules: Bench, function: str, message: str
) -> None:
    (rules.folder / "broken.py").write_text("def keep(:\n", encoding="utf-8")
    (rules.folder / "later.py").write_text("async def keep(text):\n    return True\n")
    with pytest.raises(UsageError, match=message):
        rules.run([{"python": function}], "in.jsonl")


def test_the_file_is_looked_for_beside_the_recipe_then_here(
    rules: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = rules.folder / "recipes"
    sub.mkdir()
    (sub / "my.yaml").write_text("steps: [{python: my_rules.py:keep}]", encoding="utf-8")
    named = load("recipes/my.yaml").steps[0].model_dump()["function"]
    assert named == f"{rules.folder / 'my_rules.py'}:keep"
    (sub / "my_rules.py").write_text("def keep(text):\n    return True\n", encoding="utf-8")
    named = load("recipes/my.yaml").steps[0].model_dump()["function"]
    assert Path(named.rpartition(":")[0]).samefile(sub / "my_rules.py")
    monkeypatch.chdir(sub)
    assert load("my.yaml").steps[0].model_dump()["function"] == named


# A recipe of a stranger's.

MARK = (
    "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef keep(t): return True\n"
)


@pytest.fixture
def stranger(rules: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A recipe whose file of functions leaves a mark where it is run."""
    monkeypatch.delenv("LLMCURATE_ALLOW_PYTHON")
    (rules.folder / "stranger.py").write_text(MARK, encoding="utf-8")
    (rules.folder / "r.yaml").write_text("steps: [{python: stranger.py:keep}]", encoding="utf-8")
    return rules


@pytest.mark.parametrize(
    "command",
    [
        ("run", "r.yaml", "in.jsonl", "-o", "out", "--workers", "1"),
        ("refresh", "r.yaml", "in.jsonl", "-o", "home", "--workers", "1"),
    ],
)
def test_a_recipe_that_names_python_runs_where_it_is_allowed(
    stranger: Bench, command: tuple[str, ...]
) -> None:
    refused = stranger.command(*command)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert "stranger.py:keep: read it, then allow it by --allow-python" in refused.stderr
    assert stranger.command(*command, "--dry-run").returncode == 0
    assert not (stranger.folder / "ran").exists()
    assert stranger.command(*command, "--allow-python").returncode == 0
    assert (stranger.folder / "ran").exists()


def test_a_finished_run_of_a_stranger_is_looked_at_without_its_python(
    stranger: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("run", "r.yaml", "in.jsonl", "-o", "out", "--workers", "1", "--allow-python")
    assert stranger.command(*line).returncode == 0
    (stranger.folder / "ran").unlink()
    assert stranger.command("explain", "a", "--in", "out").returncode == 0
    assert stranger.command("whatif", "out").returncode == 0
    applied = stranger.command("whatif", "out", "--set", "python.min=1", "--apply")
    assert applied.returncode == 2 and "LLMCURATE_ALLOW_PYTHON=1" in applied.stderr
    assert not (stranger.folder / "ran").exists()


def test_the_command_filter_takes_functions_and_their_limits(stranger: Bench) -> None:
    line = ("filter", "my_rules.py:density,my_rules.py:keep", "in.jsonl", "-o", "out")
    done = stranger.command(*line, "--max", "0.5", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["by_rule"] == {
        "python#2.too_short": 1,
        "python.too_high": 1,
    }


def test_a_function_object_is_named_by_its_file() -> None:
    named = FunctionInFile.of(test_a_function_object_is_named_by_its_file)
    assert named.path.samefile(__file__) and str(named).endswith(f":{named.name}")
    with pytest.raises(UsageError, match="is not a top-level function"):
        FunctionInFile.of(lambda text: True)
    made: dict[str, object] = {}
    exec("def keep(text): return True", made)
    with pytest.raises(UsageError, match="the source of keep is not available"):
        FunctionInFile.of(made["keep"])  # type: ignore[arg-type]
