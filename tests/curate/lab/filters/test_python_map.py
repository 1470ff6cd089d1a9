"""Texts and columns changed by functions in files of the user's."""

from __future__ import annotations

import json
import linecache
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.documents.edits import edited, edits_of
from curate.lab.filters.python import PythonMap
from curate.steps.recipe import parse
from llmcurate import Corpus
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.conftest import Bench
from tests.parameters import mostly_slow

ROWS = [{"id": "a", "text": "hello thère"}, {"id": "b", "text": "hi"}, {"id": "c", "text": "é"}]
MAPS = """
from sizes import MOST

def shorten(text, metadata):
    return {"text": text[:MOST], "chars": len(text), "of": metadata["id"]}

def draw(text, rng):
    return {"number": rng.random()}

def draw_all(documents, rng):
    return [{"number": r.random(), "text": d["text"] + "."} for d, r in zip(documents, rng)]

def fails(text):
    return {"hello": 1}.get(text) or [][len(text)]

def nothing(text):
    pass

def half_a_pair(text):
    return "\\ud800"

def no_integer(text):
    return {"chars": 1.5}

def undeclared(text):
    return {"wrong": 1}

def too_few(documents):
    return ["one"]

def a_text(documents):
    return "abc"
"""


@pytest.fixture
def maps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Documents, and a file of functions with one beside it."""
    monkeypatch.chdir(bench.folder)
    monkeypatch.setenv("LLMCURATE_ALLOW_PYTHON", "1")
    bench.jsonl("in.jsonl", ROWS)
    (bench.folder / "my_maps.py").write_text(MAPS, encoding="utf-8")
    (bench.folder / "sizes.py").write_text("MOST = 9\n", encoding="utf-8")
    return bench


def mapped(bench: Bench, function: str, out: str = "out", **settings: Any) -> list[dict[str, Any]]:
    bench.run(
        [{"python_map": {"function": f"my_maps.py:{function}", **settings}}], "in.jsonl", out=out
    )
    return sorted(bench.rows(out), key=lambda row: str(row["id"]))


def test_texts_change_and_declared_columns_are_added(maps: Bench) -> None:
    rows = mapped(maps, "shorten", columns={"chars": "int", "of": "str", "score": "float"})
    assert [row["text"] for row in rows] == ["hello thè", "hi", "é"]
    names = ("python_map.chars", "python_map.of", "python_map.score")
    assert [tuple(row[n] for n in names) for row in rows] == [
        (11, "a", None),
        (2, "b", None),
        (1, "c", None),
    ]
    (edit,) = edits_of(rows[0])
    assert (edit.name, edit.start, edit.end, edit.replacement) == ("python_map.shorten", 10, 12, "")
    explained = maps.command("explain", "a", "--in", "out").stdout
    assert 'cut by python_map.shorten: bytes 10 to 12 of its input: "re"' in explained


def test_a_random_generator_depends_on_the_document_alone(maps: Bench) -> None:
    columns = {"number": "float"}
    first = {row["id"]: row["python_map.number"] for row in mapped(maps, "draw", columns=columns)}
    assert len(set(first.values())) == 3
    maps.jsonl("in.jsonl", ROWS[::-1])
    again = mapped(maps, "draw_all", "again", columns=columns, batch=True)
    assert {row["id"]: row["python_map.number"] for row in again} == first
    assert [row["text"] for row in again] == ["hello thère.", "hi.", "é."]


def test_a_random_filter_keeps_the_same_documents_whatever_the_batches(maps: Bench) -> None:
    (maps.folder / "half.py").write_text("def keep(text, rng):\n    return rng.random() < 0.5\n")
    rows = [{"text": f"number {n}"} for n in range(400)]
    maps.jsonl("many.jsonl", rows)
    for out, read in (("one", {}), ("many", {"batch_bytes": 1024})):
        maps.run([{"python": "half.py:keep"}], "many.jsonl", out=out, read=read)
    assert maps.ids("one") == maps.ids("many") and 150 < len(maps.ids("one")) < 250


DRAWING = """
from pathlib import Path
from time import sleep

def numbered(text, metadata, rng):
    while metadata["id"] == "d60" and Path("wait").exists():
        sleep(0.02)
    return {"text": f"{rng.random()} {text}", "draw": rng.randrange(1000)}
"""


def test_killed_and_resumed_by_another_number_of_workers_random_texts_are_the_same_bytes(
    maps: Bench,
) -> None:
    (maps.folder / "drawing.py").write_text(DRAWING)
    maps.jsonl("many.jsonl", [{"id": f"d{i}", "text": f"text {i} " + "x" * 100} for i in range(99)])
    step = {"python_map": {"function": "drawing.py:numbered", "columns": {"draw": "int"}}}
    read = {"partition_bytes": 2000}
    (maps.folder / "r.yaml").write_text(json.dumps({"steps": [step], "read": read}))
    (maps.folder / "wait").touch()
    killed = maps.start("run", "r.yaml", "many.jsonl", "-o", "out", "--workers", "2")
    until = time.monotonic() + 60
    while len(list(maps.folder.glob("out/stages/00-*/part-*.kept.parquet"))) < 3:
        assert time.monotonic() < until and killed.poll() is None
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (maps.folder / "out/corpus").exists()
    (maps.folder / "wait").unlink()
    done = maps.command("run", "r.yaml", "many.jsonl", "-o", "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    for workers in (1, 2):
        maps.run([step], "many.jsonl", out=f"of-{workers}", workers=workers, read=read)
        assert maps.bytes_of(f"of-{workers}") == maps.bytes_of("out")
    assert len({row["python_map.draw"] for row in maps.rows("out")}) > 80


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    mostly_slow(
        [
            ("fails", {}, r"my_maps\.py:14: IndexError: .* \(fails, .* python_map on document a\)"),
            ("undeclared", {}, r".*\{'wrong': 1\} for document a: declare it, .*\{wrong: str\}`"),
            (
                "too_few",
                {"batch": True},
                r".*too_few returned 1 values for 3 .*\(the first is a\)",
            ),
            ("nothing", {}, r".*:nothing returned None for document a: return the text or a .*"),
            ("half_a_pair", {}, r".* returned '\\ud800' for document a: it has a lone surrogate.*"),
            ("no_integer", {"columns": {"chars": "int"}}, r".* 'chars' as int64"),
            ("a_text", {"batch": True}, r".*it returned a str, .* batch that begins with a\)"),
        ],
        3,
    ),
)
def test_an_error_is_one_line_with_file_function_and_document(
    maps: Bench, function: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunFailed) as caught:
        mapped(maps, function, **settings)
    assert re.fullmatch(message, str(caught.value)) and caught.value.exit_code == 1


def test_a_column_has_a_known_type() -> None:
    with pytest.raises(UsageError, match=r"r\.yaml:1: python_map\.columns\.n"):
        parse("steps: [{python_map: {function: a.py:f, columns: {n: list}}}]", "r.yaml")


def test_an_edited_function_is_computed_anew(maps: Bench) -> None:
    columns = {"chars": "int", "of": "str"}
    mapped(maps, "shorten", columns=columns)
    (maps.folder / "sizes.py").write_text("MOST = 1\n", encoding="utf-8")
    assert [row["text"] for row in mapped(maps, "shorten", columns=columns)] == ["h", "h", "é"]


def louder(text: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"text": text.upper(), "source": metadata["id"]}


def test_a_function_object_is_mapped_from_python(tmp_path: Path) -> None:
    corpus = Corpus.read(ROWS).map(louder, columns={"source": "str"})
    assert corpus.recipe.steps[0].function.endswith(f"{Path(__file__).name}:louder")
    assert f"{PythonMap(function=louder).function}" == corpus.recipe.steps[0].function


def test_a_function_of_a_notebook_is_mapped_with_its_random_generator(
    maps: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMCURATE_CACHE", str(maps.folder / "cache"))
    cell = MAPS[MAPS.index("def draw(") : MAPS.index("def draw_all(")]
    linecache.cache["<cell>"] = (len(cell), None, cell.splitlines(True), "<cell>")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, "<cell>", "exec"), names)
    columns = {"number": "float"}
    step = {"function": PythonMap(function=names["draw"]).function, "columns": columns}
    maps.run([{"python_map": step}], "in.jsonl", out="cell")
    mapped(maps, "draw", "file", columns=columns)
    of_cell, of_file = (
        {row["id"]: row["python_map.number"] for row in maps.rows(out)} for out in ("cell", "file")
    )
    assert of_cell == of_file


@pytest.fixture(scope="module")
def replacing(tmp_path_factory: pytest.TempPathFactory) -> PythonMap:
    """A step that replaces each text by the column `after`."""
    file = tmp_path_factory.mktemp("replacing") / "replacing.py"
    file.write_text("def replaced(text, metadata):\n    return metadata['after']\n")
    return PythonMap(function=f"{file}:replaced")


@given(st.text(max_size=12), st.text(max_size=12), st.integers(0, 3))
def test_the_recorded_edit_turns_the_old_text_into_the_new_one(
    replacing: PythonMap, before: str, after: str, shared: int
) -> None:
    after = before[:shared] + after + before[len(before) - shared :]
    table = {"id": ["a"], "text": [before], "after": [after]}
    docs = replacing.apply(documents(table).within("python_map"))
    assert docs.text.to_pylist() == [after]
    edits = edits_of(docs.split()[0].to_pylist()[0])
    assert edited(before.encode(), edits).decode() == after
