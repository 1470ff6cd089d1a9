"""Kernels out of the cache: never stale, and never compiled again for the same sources."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

from llmcurate.base.kernels import cache as kernels_module

ROOT = Path(__file__).resolve().parents[4]
NUMBERS = np.arange(4)  # of sum 6
# In the order of their imports: a kernel, its helper in another module, and the helper's constant.
SOURCES = {
    "curate.made_up_factor": "FACTOR = 2\n",
    "curate.made_up_helper": (
        "from curate.made_up_factor import (\n    FACTOR,  # (a plain module's)\n)\n"
        "from llmcurate.base.kernels import njit\n"
        "@njit(nogil=True)\ndef scaled(x):\n    return x * FACTOR\n"
    ),
    "curate.made_up_total": (
        "from llmcurate.base.kernels import njit\nfrom curate import made_up_helper\n"
        "scaled = made_up_helper.scaled\n"
        "@njit(cache=True, nogil=True)\ndef total(numbers):\n"
        "    total = 0\n    for x in numbers:\n        total += scaled(x)\n    return total\n"
    ),
    "tokenize_kit.made_up_total": (
        "from llmcurate.base.kernels import njit\n"
        "@njit(cache=True, nogil=True)\ndef total(numbers):\n    return -1\n"
    ),
}
Clone = Callable[..., dict[str, ModuleType]]


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kernels"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """Writes SOURCES, some of them edited, to a new folder, and imports them from there."""
    monkeypatch.setattr(kernels_module, "STARTED", float("inf"))  # as if written before we started

    def cloned(**edited: str) -> dict[str, ModuleType]:
        root = tmp_path / f"clone-{len(list(tmp_path.iterdir()))}"
        modules = {}
        for package in ("curate", "tokenize_kit"):
            (root / package).mkdir(parents=True)
            (root / package / "__init__.py").touch()
        for name, source in SOURCES.items():
            path = root.joinpath(*name.split(".")).with_suffix(".py")
            path.write_text(edited.get(name.rpartition("_")[2], source))
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec and spec.loader
            modules[name] = module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, name, module)
            package, _, own = name.partition(".")
            monkeypatch.setattr(sys.modules[package], own, module, raising=False)
            spec.loader.exec_module(module)
        return modules

    importlib.import_module("tokenize_kit")
    importlib.import_module("curate")
    return cloned


def total(modules: dict[str, ModuleType], package: str = "curate") -> tuple[int, bool]:
    """(the sum, whether the kernel came from the cache)."""
    kernel = modules[f"{package}.made_up_total"].total
    return kernel(NUMBERS), sum(kernel.stats.cache_hits.values()) == 1


def test_another_clone_compiles_nothing(kernels: Path, clone: Clone) -> None:
    assert total(clone()) == (12, False)
    assert total(clone()) == (12, True)


@pytest.mark.parametrize(("features", "taken"), [("", True), ("+sse4.2", False)])
def test_a_wheels_machine_code_is_taken_where_the_processor_has_its_level(
    features: str, taken: bool, kernels: Path, clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = clone()["curate.made_up_total"].total
    assert kernel(NUMBERS) == 12
    codegen = kernel.targetctx.codegen()
    machine = (codegen.magic_tuple()[0], "this one", features or ",".join(kernels_module.HAS))
    monkeypatch.setattr(type(codegen), "magic_tuple", lambda _: machine)
    shipped = (machine[0], "x86-64-v3", "")
    name = kernel._cache._file(kernel.signatures[0], shipped)
    (compiled,) = kernels.rglob("*.nbc")
    compiled.rename(compiled.with_name(name))
    kernels.rename(kernels.with_name("wheel"))
    monkeypatch.setattr(kernels_module, "SHIPPED", kernels.with_name("wheel"))
    assert total(clone()) == (12, taken)
    assert kernels.exists() is not taken


def test_edited_modules_are_recompiled_and_older_versions_stay_cached(
    kernels: Path, clone: Clone
) -> None:
    helper = SOURCES["curate.made_up_helper"].replace("x * FACTOR", "x * FACTOR + 1")
    assert total(clone()) == (12, False)
    assert total(clone(helper=helper)) == (16, False)
    assert total(clone(factor="FACTOR = 3\n")) == (18, False)
    assert total(clone()) == (12, True)
    assert total(clone(helper=helper)) == (16, True)


def test_equal_names_in_two_packages_do_not_clash(kernels: Path, clone: Clone) -> None:
    modules = clone()
    assert total(modules) == (12, False)
    assert total(modules, "tokenize_kit") == (-1, False)
    assert total(clone(), "tokenize_kit") == (-1, True)


def test_kernels_work_without_a_writable_cache_folder(kernels: Path, clone: Clone) -> None:
    kernels.write_text("a file where the folder should be")
    assert total(clone()) == (12, False)
    assert total(clone()) == (12, False)


def test_a_file_cut_off_by_a_crash_is_compiled_again(kernels: Path, clone: Clone) -> None:
    assert total(clone()) == (12, False)
    (path,) = kernels.rglob("*.nbc")
    path.write_bytes(path.read_bytes()[:1000])
    assert total(clone()) == (12, False)
    assert total(clone()) == (12, True)
    assert list(path.parent.iterdir()) == [path]  # and nothing lies beside it


def test_processes_that_compile_for_different_types_share_a_folder(
    kernels: Path, clone: Clone
) -> None:
    """Both have looked before either wrote."""
    of_integers, of_floats = (clone()["curate.made_up_total"].total for _ in range(2))
    assert (of_integers(NUMBERS), of_floats(NUMBERS / 2)) == (12, 6.0)
    again = clone()["curate.made_up_total"].total
    assert (again(NUMBERS / 2), again(NUMBERS)) == (6.0, 12)
    assert sum(again.stats.cache_hits.values()) == 2


def test_files_that_change_while_a_process_runs_are_not_trusted(
    kernels: Path, clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may hold their old content."""
    modules = clone()
    path = modules["curate.made_up_factor"].__file__
    assert path
    monkeypatch.setattr(kernels_module, "STARTED", Path(path).stat().st_mtime - 1)
    assert total(modules) == (12, False)
    assert not kernels.exists()


def test_named_tuples_are_told_apart_by_their_fields() -> None:
    def described(fields: str) -> str:
        return kernels_module._described(numba.typeof((namedtuple("Tables", fields)(1, 2), 0)))

    assert described("first second") != described("second first")


def test_the_last_written_versions_stay(tmp_path: Path) -> None:
    for age in range(12):
        (tmp_path / str(age)).mkdir()
        os.utime(tmp_path / str(age), (1e9 - age, 1e9 - age))
    kernels_module._prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {str(age) for age in range(8)}


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"NUMBA_CACHE_DIR": "/n", "LLMCURATE_CACHE": "/a"}, "/n"),
        ({"LLMCURATE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/kernels"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/llmcurate/kernels"),
        ({"HOME": "/c"}, "/c/.cache/llmcurate/kernels"),
    ],
)
def test_kernels_folder_follows_the_environment_variables(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NUMBA_CACHE_DIR", "LLMCURATE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert kernels_module.kernels_folder() == Path(folder)


def test_every_import_of_our_modules_is_seen() -> None:
    """As Python's own parser sees them, in all modules that kernels are compiled from."""
    closure: set[str] = set()
    for package in kernels_module.PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "@njit(cache=True" in path.read_text(encoding="utf-8"):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                closure |= kernels_module.import_closure(str(ROOT), module).keys()
    assert len(closure) > 100
    for module in closure:
        path = ROOT.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        source = kernels_module.read_source(str(ROOT), module)
        assert source
        seen = {(name, taken) for name, names in source.imports for taken in (names or ("",))}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            pairs: set[tuple[str, str]] = set()
            if isinstance(node, ast.ImportFrom):
                assert node.module and not node.level, module
                pairs = {(node.module, alias.name) for alias in node.names if alias.name != "*"}
            elif isinstance(node, ast.Import):
                pairs = {(alias.name, "") for alias in node.names}
            ours = {pair for pair in pairs if pair[0].split(".")[0] in kernels_module.PACKAGES}
            assert ours <= seen, (module, ours - seen)
