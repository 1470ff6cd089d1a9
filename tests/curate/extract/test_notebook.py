"""Jupyter notebooks as text; files that are no notebooks stay or are rejected with a reason."""

from __future__ import annotations

import json
from typing import Any

from curate.documents.documents import CORE, PAYLOAD, Documents, documents
from curate.extract.notebook import Notebook


def cell(kind: str, source: Any, **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "source": source, "metadata": {}, **more}


def notebook(*cells: dict[str, Any], language: str | None = "python") -> str:
    info = {"language_info": {"name": language}} if language else {}
    return json.dumps({"nbformat": 4, "metadata": info, "cells": list(cells)})


CELLS = (
    cell("markdown", ["# Mean\n", "\n", "Of numbers."]),
    cell("code", "x = [1, 2]\nsum(x)", outputs=[{"output_type": "stream", "text": ["3\n"]}]),
    cell("code", ["y"], outputs=[{"data": {"text/plain": ["2"], "image/png": "AAAA"}}]),
    cell("code", ""),
)


def text_of(step: Notebook, text: str, path: str | None = "a.ipynb") -> tuple[str, Documents]:
    columns: dict[str, Any] = {"id": ["a"], "text": [text]}
    docs = step.apply(documents(columns | ({"path": [path]} if path else {})).within(step.name))
    return docs.text[0].as_py(), docs


def test_a_script_has_prose_as_comments_and_no_output() -> None:
    text, docs = text_of(Notebook(), notebook(*CELLS))
    assert text == "# # Mean\n#\n# Of numbers.\n\nx = [1, 2]\nsum(x)\n\ny"
    assert docs.table["notebook.language"].to_pylist() == ["python"]
    scala = notebook(cell("markdown", "Note"), cell("code", "val x = 1"), language="scala")
    assert text_of(Notebook(), scala)[0] == "// Note\n\nval x = 1"


def test_markdown_has_code_and_what_it_printed_in_fences() -> None:
    text, _ = text_of(Notebook(format="markdown"), notebook(*CELLS))
    assert text == (
        "# Mean\n\nOf numbers.\n\n```python\nx = [1, 2]\nsum(x)\n```\n\n```\n3\n```\n\n"
        "```python\ny\n```\n\n```\n2\n```"
    )


def test_format_3_has_its_cells_in_worksheets() -> None:
    sheet = {"cells": [{"cell_type": "code", "input": ["z = 1"]}]}
    old = json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [sheet]})
    assert text_of(Notebook(), old)[0] == "z = 1"


def test_without_a_path_the_text_says_what_it_is() -> None:
    assert text_of(Notebook(), notebook(*CELLS), None)[0].startswith("# # Mean")
    other = json.dumps({"a": 1})
    assert text_of(Notebook(), other, None)[0] == other
    assert text_of(Notebook(), notebook(*CELLS), "a.json")[0] == notebook(*CELLS)


def test_lone_surrogates_and_pages_next_to_a_notebook_do_no_harm() -> None:
    assert text_of(Notebook(), notebook(cell("code", "a = '\ud800'")))[0] == "a = '?'"
    columns = {
        "id": ["a", "b"],
        "text": [notebook(*CELLS), None],
        "path": ["a.ipynb", "b.html"],
        "payload": [None, b"<p>page</p>"],
    }
    docs = Notebook().apply(documents(columns, (*CORE, *PAYLOAD)).within("notebook"))
    assert docs.table["payload"].to_pylist() == [None, b"<p>page</p>"]
    assert docs.text.to_pylist()[1] is None


def test_invalid_and_empty_notebooks_are_rejected_with_a_reason() -> None:
    for text in ("{", "[]", '{"cells": 3}', '{"nbformat": 4}', "[" * 100_000):
        _, rejected = text_of(Notebook(), text)[1].split()
        assert rejected["rule"].to_pylist() == ["no_notebook"], text[:20]
    _, rejected = text_of(Notebook(), notebook(cell("code", " ")))[1].split()
    assert rejected["rule"].to_pylist() == ["no_cell"]
