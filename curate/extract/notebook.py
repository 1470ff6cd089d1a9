"""Jupyter notebooks as text: code with the prose as comments, or prose with the code in fences.

The forms follow StarCoder's jupyter-scripts and jupyter-structured (bigcode-dataset,
preprocessing). nbformat 4 has cells at the top, nbformat 3 in worksheets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from curate.documents.documents import PAYLOAD, Documents
from curate.steps.contracts import Step, step

# Comment signs by language of the kernel; `#` for all others.
_COMMENTS = {
    name: sign
    for sign, names in {
        "//": "c c++ c# csharp f# fsharp go groovy java javascript kotlin rust scala typescript"
        " node.js",
        "--": "haskell lua sql",
        "%": "matlab octave prolog",
        ";;": "clojure scheme",
    }.items()
    for name in names.split()
}


def _joined(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook. `printed` is its output as plain text, without pictures and errors."""

    is_code: bool
    source: str
    printed: str

    @classmethod
    def of(cls, cell: dict[str, Any]) -> Cell:
        source = _joined(cell.get("source", cell.get("input"))).strip("\n")
        printed = []
        for output in cell.get("outputs") or ():
            if isinstance(output, dict):
                data = output.get("data")
                plain = data.get("text/plain") if isinstance(data, dict) else None
                printed.append(_joined(output.get("text", plain)))
        return cls(cell.get("cell_type") == "code", source, "".join(printed).strip("\n"))


def cells_of(text: str) -> tuple[list[Cell], str] | None:
    """Return (cells that are not blank, language in lower case), or None for other texts."""
    try:
        notebook = json.loads(text)
        cells = notebook.get("cells")
        if cells is None:
            cells = [c for sheet in notebook["worksheets"] for c in sheet["cells"]]
        metadata = notebook.get("metadata") or {}
        kernel, info = metadata.get("kernelspec") or {}, metadata.get("language_info") or {}
        language = str(info.get("name") or kernel.get("language") or "python").lower()
        read = [Cell.of(cell) for cell in cells if isinstance(cell, dict)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return [cell for cell in read if cell.source.strip()], language


def _script(cells: list[Cell], language: str) -> str:
    sign = _COMMENTS.get(language, "#")
    return "\n\n".join(
        cell.source
        if cell.is_code
        else "\n".join(f"{sign} {line}".rstrip() for line in cell.source.split("\n"))
        for cell in cells
    )


def _markdown(cells: list[Cell], language: str) -> str:
    parts = []
    for cell in cells:
        parts.append(f"```{language}\n{cell.source}\n```" if cell.is_code else cell.source)
        if cell.is_code and cell.printed:
            parts.append(f"```\n{cell.printed}\n```")
    return "\n\n".join(parts)


@step("notebook")
class Notebook(Step):
    """Turns Jupyter notebooks into text; other documents pass unchanged.

    The column `language` has the language of a notebook's kernel.
    """

    paper: ClassVar[str] = "Li et al. 2023 (StarCoder), section 3.2; bigcode-dataset/preprocessing"

    format: Literal["script", "markdown"] = "script"
    """The text: script is the code with prose as comments and without output; markdown is the prose
    with code and printed output in fences."""
    path_column: str = "path"
    """The column with a file's path: if it ends in .ipynb, the file is a notebook. Without a path,
    a text is a notebook if it is JSON with cells."""

    def apply(self, docs: Documents) -> Documents:
        texts, rows = docs.text.to_pylist(), len(docs)
        paths: list[Any] = [None] * rows
        if self.path_column in docs.table.column_names:
            paths = docs.table[self.path_column].to_pylist()
        languages: list[str | None] = [None] * rows
        broken, empty = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        write = _script if self.format == "script" else _markdown
        changed = False
        for row, (text, path) in enumerate(zip(texts, paths, strict=True)):
            if not text or not _looks_like_one(text, path):
                continue
            parsed = cells_of(text)
            if parsed is None:
                broken[row] = True
                continue
            # JSON may contain half a surrogate pair, which UTF-8 cannot encode.
            texts[row] = write(*parsed).encode("utf-8", "replace").decode()
            languages[row] = parsed[1].encode("utf-8", "replace").decode()
            empty[row], changed = not texts[row].strip(), True
        if changed:
            pages = {n: docs.table[n] for n, _ in PAYLOAD if n in docs.table.column_names}
            docs = docs.replace(pa.array(texts, pa.large_string()))
            for name, column in pages.items():  # rows that `extract` has yet to read
                docs = replace(docs, table=docs.table.append_column(name, column))
        docs = docs.annotate("language", pa.array(languages, pa.string()))
        docs = docs.drop(broken, "no_notebook")
        return docs.drop(empty, "no_cell")


def _looks_like_one(text: str, path: Any) -> bool:
    if path is not None:
        return str(path).lower().endswith(".ipynb")
    return text.lstrip()[:1] == "{" and '"nbformat"' in text and '"cells"' in text
