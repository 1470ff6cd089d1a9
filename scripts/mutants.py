"""Slips put into a copy of the code, one at a time: those that no test notices are listed.

    make mutants FOLDER=curate/filters SEED=1 MUTANTS=200 SECONDS=3600

Lines are drawn from the folder, and of each line one of the slips that mutmut makes of it. It meets
the tests that enter its function, of a dozen files at most: those that are named for the module,
those that import it, the others of the mirrored folder. Left out are kernels and the constants of
their modules, types, messages (strings but for those that are compared or looked up), and signals,
which could reach processes of others.

Files of the copy stay as they are. Python gets the slip where it loads the module, in the process
of a test and in those that this one starts; so compiled kernels stay valid, and cores share the
copy. Tests that take three times as long with a slip count as timed out. The functions that a test
file enters are kept in build/mutants until code changes: a second draw is faster.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import gc
import hashlib
import importlib
import itertools
import json
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal, operator_string

ROOT = Path(__file__).resolve().parents[1]
LOADED = "hypothesis numpy numba pyarrow.parquet pydantic duckdb typer rich jinja2 tokenizers torch"
FILES = 12
FEW = 4
KERNELS = {"njit", "jit", "vectorize", "overload", "intrinsic", "register_jitable"}
LEFT_OUT = {"len", "isinstance", "cast", "kill", "killpg"}
TYPES_AND_MESSAGES = (
    *(cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom),
    *(cst.Raise, cst.Assert, cst.FormattedString),
)
WORDS = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
LOOKED_UP = (cst.Comparison, cst.ComparisonTarget, cst.Index, cst.DictElement)

# Every Python that a test starts loads this: it gives a slip to the import of its module, or notes
# at MUTANT_REACHED who enters which function.
HOOK = r"""
import os, sys, threading
from importlib.machinery import SourceFileLoader

seen, plain = set(), SourceFileLoader.get_code

def get_code(self, name):
    if self.path != os.environ.get("MUTANT_OF"):
        return plain(self, name)
    with open(os.environ["MUTANT"], "rb") as slip:
        return compile(slip.read(), self.path, "exec", dont_inherit=True)

def enter(frame, event, arg):
    code = frame.f_code
    if id(code) not in seen:
        seen.add(id(code))
        if code.co_filename.startswith(tree) and "MUTANT_REACHED" in os.environ:
            who = "own" if str(os.getpid()) == os.environ["MUTANT_PYTEST"] else "other"
            test = os.environ.get("PYTEST_CURRENT_TEST", "")
            line = "\t".join((code.co_filename[len(tree):], code.co_name, who, test))
            with open(os.environ["MUTANT_REACHED"], "ab", 0) as notes:
                notes.write(line.encode() + b"\n")

def trace():
    global tree
    tree = os.environ["MUTANT_TREE"] + os.sep
    threading.settrace(enter)
    sys.settrace(enter)

SourceFileLoader.get_code = get_code
if "MUTANT_REACHED" in os.environ:
    trace()
"""
hook: dict[str, Any] = {}


class Mutant(NamedTuple):
    """A slip. function: the innermost one around it; None in the body of a class or a module."""

    path: str
    line: int
    function: str | None
    code: str
    change: str


class Slips(cst.CSTVisitor):
    """The slips of some code: (line, function, node, the node in its place)."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, *, has_kernels: bool) -> None:
        self.has_kernels = has_kernels
        self.around: list[cst.CSTNode] = []
        self.functions: list[str] = []
        self.found: list[tuple[int, str | None, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.around.append(node)
        if isinstance(node, TYPES_AND_MESSAGES) or _is_kernel(node) or _name(node) in LEFT_OUT:
            return False
        if isinstance(node, cst.If) and _name(node.test) == "TYPE_CHECKING":
            return False
        if isinstance(node, cst.FunctionDef):
            self.functions.append(node.name.value)
        place = self.get_metadata(PositionProvider, node, None)
        if place and (self.functions or not self.has_kernels):
            function = self.functions[-1] if self.functions else None
            for kind, operator in mutation_operators:
                if isinstance(node, kind) and self._counts(node, operator):
                    for other in operator(node):
                        if operator is not operator_arg_removal or not _takes_words(node, other):
                            self.found.append((place.start.line, function, node, other))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self.around.pop()
        if isinstance(original_node, cst.FunctionDef) and not _is_kernel(original_node):
            self.functions.pop()

    def _counts(self, node: cst.CSTNode, operator: Any) -> bool:
        if operator is operator_string:
            parents = self.around[-2::-1]
            if isinstance(parents[0], cst.Element):  # of a tuple or a set, to look something up in
                parents = parents[2:]
            is_key = not isinstance(parents[0], cst.DictElement) or parents[0].key is node
            return isinstance(parents[0], LOOKED_UP) and is_key
        return not isinstance(node, (cst.Assign, cst.AnnAssign)) or not isinstance(
            node.value, WORDS
        )


def _name(node: cst.CSTNode) -> str:
    """The last name of what is called or named; empty for other nodes."""
    node = node.func if isinstance(node, cst.Call) else node
    node = node.attr if isinstance(node, cst.Attribute) else node
    return node.value if isinstance(node, cst.Name) else ""


def _is_kernel(node: cst.CSTNode) -> bool:
    decorators = node.decorators if isinstance(node, cst.FunctionDef) else ()
    return any(_name(decorator.decorator) in KERNELS for decorator in decorators)


def _takes_words(call: Any, other: Any) -> bool:
    """Say that the slip takes an argument that is for people, or puts None in its place."""
    kept = {id(argument) for argument in other.args}
    return any(id(arg) not in kept and isinstance(arg.value, WORDS) for arg in call.args)


def slip(path: str, source: str, line: int, chance: random.Random) -> Mutant | None:
    """One of the slips of a line, of those that compile; None where it has none."""
    for part in ast.parse(source).body:  # libcst is slow: it gets no more than it must
        first = min(n.lineno for n in (part, *getattr(part, "decorator_list", ())))
        last = part.end_lineno or 0
        if first <= line <= last:
            break
    else:
        return None
    lines = source.split("\n")
    wrapper = MetadataWrapper(cst.parse_module("\n".join(lines[first - 1 : last]) + "\n"))
    decorators = re.findall(r"^\s*@(?:\w+\.)*(\w+)", source, re.MULTILINE)
    visitor = Slips(has_kernels=not KERNELS.isdisjoint(decorators))
    wrapper.visit(visitor)
    found = [made for made in visitor.found if made[0] == line - first + 1]
    chance.shuffle(found)
    for _, function, node, other in found:
        module = wrapper.module.deep_replace(node, other)
        assert isinstance(module, cst.Module)
        changed = [*lines[: first - 1], *module.code.removesuffix("\n").split("\n"), *lines[last:]]
        change = list(difflib.unified_diff(lines, changed, n=0, lineterm=""))[3:]
        with contextlib.suppress(SyntaxError, ValueError):
            compile("\n".join(changed), path, "exec", dont_inherit=True)
            return Mutant(path, line, function, "\n".join(changed), "\n".join(change))
    return None


def draw(root: Path, folders: list[str], seed: int, count: int) -> list[Mutant]:
    """Return `count` slips of different lines; fewer where the folders have no more."""
    sources: dict[str, str] = {}
    for folder in map(root.joinpath, folders):
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            sources[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    lines = [
        (name, n)
        for name, source in sources.items()
        for n, text in enumerate(source.split("\n"), 1)
        if text.strip()
    ]
    chance = random.Random(seed)
    chance.shuffle(lines)
    drawn = (slip(name, sources[name], line, chance) for name, line in lines)
    return list(itertools.islice(filter(None, drawn), count))


class Lens:
    """A plug-in of pytest: runs the tests that are wanted, and notes the seconds of each."""

    def __init__(self, wanted: set[str] | None) -> None:
        self.wanted = wanted
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.wanted is not None:
            items[:] = [item for item in items if item.nodeid in self.wanted]

    def pytest_runtest_logstart(self) -> None:
        hook["seen"].clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


class Bench:
    """A copy of the code below a folder, and what runs its tests in children of this process."""

    def __init__(self, root: Path, folder: Path, drawn: list[Mutant]) -> None:
        self.folder, self.tree, self.kept = folder, folder / "tree", root / "build/mutants"
        self.kept.mkdir(parents=True, exist_ok=True)
        listing = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
        for name in subprocess.check_output(listing, text=True).split("\0"):
            if name and (root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.tree / name)
        (folder / "hook").mkdir()
        (folder / "hook/sitecustomize.py").write_text(HOOK)
        paths = sorted(set(self.tree.rglob("*.py")) - set((self.tree / "scripts").glob("*.py")))
        code = {path: path.read_text("utf-8") for path in paths}
        tests = sorted((self.tree / "tests").rglob("test_*.py"))
        self.tests = {path.relative_to(self.tree).as_posix(): code.pop(path) for path in tests}
        self.others = "".join(code.values())
        self.uses = Counter(test for slip in drawn for test in self.stages(slip.path)[0])

    def run(self, test: str, wanted: set[str] | None, limit: float, **env: str) -> Any:
        """Exit code of pytest on a file, seconds of tests, those that failed; None: too late."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        child = os.fork()
        if not child:
            try:
                self._pytest(test, wanted, folder, env)
            finally:
                os._exit(1)
        end = time.monotonic() + limit
        while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < end:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)
        figures = folder / "figures"
        died = [1, {}, ["the run of " + test]]
        result = (json.loads(figures.read_text()) if figures.exists() else died) if ended else None
        shutil.rmtree(folder, ignore_errors=True)
        return result

    def _pytest(
        self, test: str, wanted: set[str] | None, folder: Path, env: dict[str, str]
    ) -> None:
        os.setsid()
        os.chdir(self.tree)
        env |= {"MUTANT_TREE": str(self.tree), "MUTANT_PYTEST": str(os.getpid())}
        path = [str(self.folder / "hook"), str(self.tree)]
        env |= {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(path)}
        os.environ.update(env)
        sys.path[:0] = path[1:]
        tempfile.tempdir = None
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
        for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(file, stream)
        lens = Lens(wanted)
        if "MUTANT_REACHED" in env:
            hook["trace"]()
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
        options += [f"--basetemp={folder / 'tests'}", *([] if "MUTANT_REACHED" in env else ["-x"])]
        code = pytest.main([*options, test], [lens])
        figures = folder / "figures"
        figures.with_suffix(".new").write_text(json.dumps([code, lens.seconds, lens.failed]))
        figures.with_suffix(".new").replace(figures)

    def entered(self, test: str) -> tuple[dict[str, float], dict[str, list[int]]]:
        """Seconds of a file's tests that pass; by function, the numbers of those that enter it."""
        kept = self._kept(test)
        if not kept.exists():
            notes = Path(tempfile.mkstemp(dir=self.folder)[1])
            _, seconds, failed = self.run(test, None, 1800, MUTANT_REACHED=str(notes)) or (
                0,
                {},
                (),
            )
            seconds = {name: value for name, value in seconds.items() if name not in failed}
            functions: dict[str, set[str]] = {}
            for line in notes.read_text(encoding="utf-8", errors="replace").splitlines():
                path, function, process, at = (*line.split("\t", 3), "", "", "")[:4]
                # All tests stand on what a fixture, a value that is kept or a worker enters.
                name, _, phase = at.rpartition(" (")
                alone = phase == "call)" and process == "own" and "cache" not in self.tests[test]
                for key in (f"{path}:{function}", path) if at else (f"{path}:{function}",):
                    functions.setdefault(key, set()).update([name] if alone else seconds)
            numbers = {
                key: [n for n, name in enumerate(seconds) if name in names]
                for key, names in functions.items()
            }
            beside = kept.with_suffix(f".{os.getpid()}")
            beside.write_text(json.dumps([seconds, numbers]))
            beside.replace(kept)
        seconds, numbers = json.loads(kept.read_text())
        return seconds, numbers

    def _kept(self, test: str) -> Path:
        digest = hashlib.sha256("\0".join((self.others, test, self.tests[test])).encode())
        return self.kept / f"{digest.hexdigest()[:24]}.json"

    def stages(self, path: str) -> tuple[list[str], list[str]]:
        """The test files of a module's name or that import it, nearest first; those beside."""
        parts = Path(path).with_suffix("").parts
        folder = Path("tests", *parts[:-1])
        while not (self.tree / folder).is_dir():
            folder = folder.parent
        beside = [test for test in self.tests if Path(test).parent == folder]
        own = parts[len(folder.parts) - 1 :]
        named = [
            t for t in beside if any(_alike(Path(t).stem.removeprefix("test_"), p) for p in own)
        ]
        package, name = ".".join(parts[:-1]), parts[-1]
        uses = re.compile(rf"\b{re.escape(package)}(\.{name}\b|\b import .*\b{name}\b)")
        importers = [test for test, source in self.tests.items() if uses.search(source)]
        importers.sort(key=lambda test: test not in beside)
        near = list(dict.fromkeys([*named, *importers]))[:FILES]
        return near, [test for test in beside if test not in near][: FILES - len(near)]

    def passes(self, test: str, names: list[str]) -> bool:
        """Say that these tests pass without a slip, or are none: a slip can rename cases."""
        result = self.run(test, set(names) or None, 600)
        return result is not None and result[0] in (0, pytest.ExitCode.NO_TESTS_COLLECTED)

    def wanted(self, test: str, key: str | None) -> tuple[set[str] | None, float]:
        """The tests of a file that enter a function, or all, and the seconds that they may take.

        Of a file that few slips meet it is not looked up which these are: None.
        """
        if self.uses[test] < FEW and not self._kept(test).exists():
            return None, 600
        seconds, numbers = self.entered(test)
        names = list(seconds)
        found = set(names) if key is None else {names[n] for n in numbers.get(key, [])}
        return found, 20 + 3 * sum(seconds[name] for name in found)

    def judge(self, mutant: Mutant) -> str:
        """The word killed, survived or timed, and by which test, or how many did not notice."""
        file = Path(tempfile.mkstemp(dir=self.folder)[1])
        file.write_text(mutant.code, encoding="utf-8")
        env = {"MUTANT": str(file), "MUTANT_OF": str(self.tree / mutant.path)}
        key = f"{mutant.path}:{mutant.function}" if mutant.function else mutant.path
        tried = 0
        near, beside = self.stages(mutant.path)
        for stage in near, beside:
            for test in stage:
                whole = stage is near and mutant.function is None
                wanted, limit = self.wanted(test, None if whole else key)
                if wanted == set():
                    continue
                result = self.run(test, wanted, limit, **env)
                if wanted is None and result and result[0] and not self.passes(test, result[2]):
                    self.entered(test)  # it fails without a slip too, and is left out from now on
                    wanted, limit = self.wanted(test, None if whole else key)
                    if not wanted:
                        continue
                    result = self.run(test, wanted, limit, **env)
                if result is None:
                    return f"timed out in {test}"
                if result[0]:
                    return f"killed by {(result[2] or [test])[0]}"
                tried += len(result[1])
        return f"survived (tests: {tried})"


def _alike(test: str, module: str) -> bool:
    return f"{test}_".startswith(f"{module}_") or f"{module}_".startswith(f"{test}_")


def judge_all(bench: Bench, mutants: list[Mutant], end: float, jobs: int) -> list[str]:
    """Judge slips in `jobs` processes; return the verdicts on those begun before `end`."""
    waiting, give = os.pipe()
    results = bench.folder / "results"
    results.touch()
    for _ in range(jobs):
        if not os.fork():
            try:
                os.close(give)
                while (number := os.read(waiting, 4)) and time.monotonic() < end:
                    mutant = mutants[int.from_bytes(number, "big")]
                    verdict = bench.judge(mutant)
                    change = "" if verdict.startswith("killed") else f"\n{mutant.change}\n"
                    print(f"{mutant.path}:{mutant.line} {verdict}{change}", flush=True)
                    with results.open("a") as file:
                        file.write(verdict + "\n")
            finally:
                os._exit(0)
    os.close(waiting)
    with contextlib.suppress(BrokenPipeError):
        os.write(give, b"".join(n.to_bytes(4, "big") for n in range(len(mutants))))
    os.close(give)
    for _ in range(jobs):
        os.wait()
    return results.read_text().splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folders", nargs="+", help="folders or modules, from the root on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3600, help="then no new one is begun")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--load", default=LOADED, help="modules that all runs of tests share")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    # As in tests/conftest.py: these are read where modules are loaded.
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "TRITON_INTERPRET"):
        os.environ.setdefault(name, "1")
    if (kernels := args.root / "llmcurate/base/kernels/folder.py").exists():
        os.environ["NUMBA_CACHE_DIR"] = str(runpy.run_path(str(kernels))["kernels_folder"]())
    exec(HOOK, hook)
    for module in args.load.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()
    drawn = draw(args.root, args.folders, args.seed, args.mutants)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        verdicts = judge_all(Bench(args.root, Path(folder), drawn), drawn, end, args.jobs)
    counts = Counter(verdict.split()[0] for verdict in verdicts)
    tried = len(verdicts)
    print(
        f"killed {counts['killed']} of {tried} ({counts['killed'] / max(1, tried):.0%}),"
        f" {counts['survived']} survived, {counts['timed']} timed out"
        + (f"; no time for {len(drawn) - tried} more" if tried < len(drawn) else "")
    )


if __name__ == "__main__":
    main()
