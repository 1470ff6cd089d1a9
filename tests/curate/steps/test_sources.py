"""The source of a plug-in step is part of the stage key."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from curate.steps.functions import source_digest
from curate.steps.recipe import make_step

STEP = """
from typing import ClassVar
from curate.steps.contracts import Step
from {words} import LIMIT

class Short(Step):
    name: ClassVar[str] = "short"

    def apply(self, docs):
        import numpy
        sizes = numpy.array([len(text) for text in docs.text.to_pylist()], float)
        return docs.drop(sizes > LIMIT, "too_long", sizes, LIMIT)
"""


def plug_in(folder: Path, module: str) -> None:
    (folder / "short-1.0.dist-info").mkdir(parents=True)
    (folder / "short-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: short\nVersion: 1.0\n"
    )
    (folder / "short-1.0.dist-info/entry_points.txt").write_text(
        f"[llmcurate.steps]\nshort = {module}:Short\n"
    )


def test_an_edited_plug_in_is_computed_anew(bench, monkeypatch):
    folder = bench.folder / "plugins"
    plug_in(folder, "short_step")
    (folder / "short_step.py").write_text(STEP.format(words="short_words"))
    (folder / "short_words.py").write_text("LIMIT = 3.0\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    bench.jsonl("in.jsonl", [{"id": name, "text": name} for name in ("a", "bb", "cccc")])
    (bench.folder / "r.yaml").write_text("steps: [short]")
    command = ("run", "r.yaml", "in.jsonl", "-o", "out", "--workers", "1")
    assert bench.process(*command).returncode == 0
    assert bench.ids() == ["a", "bb"]
    assert "nothing to do" in bench.process(*command).stdout
    (folder / "short_words.py").write_text("LIMIT = 1.0\n")
    assert "nothing to do" not in bench.process(*command).stdout
    assert bench.ids() == ["a"]


def test_the_source_is_the_module_and_what_it_imports_from_its_package(tmp_path, monkeypatch):
    package = tmp_path / "short_package"
    files = {
        "__init__.py": "",
        "filters/__init__.py": "",
        "filters/short.py": STEP.format(words="..words"),
        "words.py": "from . import more\nLIMIT = more.LIMIT\n",
        "more.py": "LIMIT = 1.0\n",
        "training.py": "",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "short_package.filters.short"
    importlib.import_module(name)
    digests = {source_digest(name)}
    (package / "training.py").write_text("edited = True\n")
    assert source_digest(name) in digests
    for file in ("filters/short.py", "words.py", "more.py"):
        (package / file).write_text(f"{files[file]}\nedited = True\n")
        assert source_digest(name) not in digests, file
        digests.add(source_digest(name))
    identity = sys.modules[name].Short().identity()
    assert identity.contents["source"] in digests


def test_a_package_that_is_a_step_itself_has_the_source_of_what_it_imports(tmp_path, monkeypatch):
    package = tmp_path / "own_package"
    package.mkdir()
    files = {
        "__init__.py": "from .words import LIMIT\nfrom own_package import more\n",
        "words.py": "LIMIT = 1.0\n",
        "more.py": "",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("own_package")
    digests = {source_digest("own_package")}
    for file, text in files.items():
        (package / file).write_text(f"{text}\nedited = True\n")
        digests.add(source_digest("own_package"))
    assert len(digests) == 4


@pytest.mark.parametrize("name", ["c4", "dedup_minhash"])
def test_steps_of_curate_have_a_version_instead(name):
    assert "source" not in make_step(name, {}).identity().contents
