"""The built wheel works without the checkout."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_recipes_and_the_demo_web_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"llmcurate/pipelines/c4.yaml", "llmcurate/pipelines/demo.yaml"} <= set(names)
    assert {"llmcurate/pipelines/recipe.schema.json", "llmcurate/py.typed"} <= set(names)
    assert "llmcurate/pipelines/schedule/crontab" in names
    assert "llmcurate/pipelines/demo/web/truth.jsonl" in names
    assert any(n.startswith("llmcurate/pipelines/demo/texts/") for n in names)
    templates = {
        f"llmcurate/base/pages/templates/{n}" for n in ("page.html", "style.css", "report.html")
    }
    assert templates <= set(names)
    tops = {n.split("/")[0] for n in names}
    assert {n for n in tops if not n.endswith(".dist-info")} == {
        "curate",
        "tokenize_kit",
        "train",
        "llmcurate",
    }


def test_a_wheel_with_machine_code_is_for_one_python_and_kind_of_machine(
    tmp_path: Path,
) -> None:
    (tmp_path / "code/module/stamp").mkdir(parents=True)
    (tmp_path / "code/module/stamp/kernel.nbc").write_bytes(b"code")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environment = {**os.environ, "MACHINE_CODE": str(tmp_path / "code")}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=environment)
    (wheel,) = tmp_path.glob("*.whl")
    assert "llmcurate/machine_code/module/stamp/kernel.nbc" in zipfile.ZipFile(wheel).namelist()
    assert sys.implementation.cache_tag.replace("cpython-", "-cp") in wheel.name
    assert not wheel.name.endswith("-none-any.whl")


def run_alone(wheel: Path, folder: Path, *arguments: str) -> str:
    """What a command prints that finds nothing but the wheel's files."""
    site = folder / "site"
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import curate.cli.app; assert 'site' in curate.__file__, curate.__file__\n"
        "sys.exit(curate.cli.app.invoke(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_alone_runs_a_filter_in_a_worker(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": "a", "text": "Short."}\n')
    printed = run_alone(wheel, tmp_path, "filter", "gopher_quality", "in.jsonl", "-o", "out")
    assert "kept 0 documents" in printed and (tmp_path / "out/report.html").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)  # the wheel's kernels may be compiled from nothing
def test_the_wheel_alone_runs_the_demo_and_it_proves_itself(wheel: Path, tmp_path: Path) -> None:
    settings = ["--set", "pretrain.steps=8", "--set", "pretrain.context=64"]
    printed = run_alone(wheel, tmp_path, "demo", "--json", *settings)
    outcome = json.loads(printed.splitlines()[-1])
    assert outcome["read"] == outcome["kept"] + outcome["rejected"]
    kinds = {row["kind"] for row in outcome["plants"]}
    assert {"boilerplate", "gibberish", "wrong_language", "pii: email", "near_dup 0.95"} <= kinds
    for row in outcome["plants"]:
        assert row["precision"] in (None, 1.0), row
        if row["expected"] > 0.98:  # of less alike copies, chance decides how many are found
            assert row["recall"] == 1.0, row
    run = tmp_path / "demo" / "runs" / "0001-demo"
    for name in (
        "report.html",
        "run.json",
        "corpus.json",
        "decisions.parquet",
        "tokenizer.json",
        "manifest.json",
        "tokens-00000.bin",
        "tokens-00000.idx",
        "documents-00000.parquet",
        "checkpoints/step-0000008/model.safetensors",
    ):
        assert (run / name).is_file(), name
    assert (tmp_path / "demo" / "llmcurate.yaml").is_file()
    # Typed again it says that there is nothing to do: same web, same settings.
    run_alone(wheel, tmp_path, "demo", "--json", *settings)
    assert [p.name for p in (tmp_path / "demo" / "runs").iterdir()] == ["0001-demo"]


# Names of modules of libraries and of Python, and of ours, that files of the user's may have.
OTHERS = ["datasets.py", "tokenizers.py", "typing.py", "numba.py", "queue.py", "tomllib.py"]
OTHERS += ["pipelines/__init__.py", "tokenize_kit/__init__.py"]
OURS = ["train.py", "curate/__init__.py", "llmcurate/__init__.py"]


class Installed:
    """The command of the installed wheel, typed in a folder that holds files with such names."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder, home = folder / "work", folder / "env"
        venv.create(home)
        (site,) = home.glob("lib/python*/site-packages")
        zipfile.ZipFile(wheel).extractall(site)
        libraries = [path for path in sys.path if path.endswith("-packages")]
        (site / "libraries.pth").write_text("\n".join(libraries) + "\n")
        self.python, self.script = home / "bin/python", home / "bin/llmcurate"
        self.script.write_text(
            "import sys\nfrom llmcurate.__main__ import main\nsys.exit(main())\n"
        )
        for name in OTHERS + OURS:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"print('RAN {name}')\nraise SystemExit('RAN {name}')\n")
        texts = [f"Mill number {n} is an old mill. " * 9 for n in range(40)]
        lines = [json.dumps({"id": f"{n}", "text": text}) for n, text in enumerate(texts)]
        (self.folder / "in.jsonl").write_text("\n".join(lines) + "\n")
        steps = "- gopher_quality: {min_words: 5}\n- python: my_rules.py:keep\n- dedup_minhash\n"
        (self.folder / "mine.yaml").write_text(f"steps:\n{steps}")
        rule = "from words import MILL\n\n\ndef keep(text, metadata):\n    return MILL in text\n"
        (self.folder / "my_rules.py").write_text(rule)
        (self.folder / "words.py").write_text("MILL = 'old mill'\n")

    def __call__(self, line: str, path: str = "", code: int = 0) -> str:
        """What `llmcurate LINE` prints, or `python LINE` if it begins with -. path: PYTHONPATH."""
        start = [] if line.startswith("-") else [self.script]
        done = subprocess.run(
            [self.python, *start, *shlex.split(line)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "LLMCURATE_ALLOW_PYTHON": "1", "PYTHONPATH": path},
        )
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"{line}: {printed}"
        assert "RAN" not in printed, f"{line}: {printed}"
        return printed


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def without_ours(installed: Installed) -> Iterator[Installed]:
    """The same where `python -m` finds our packages."""
    for name in OURS:
        (installed.folder / name).rename(installed.folder / f"{name}.away")
    yield installed
    for name in OURS:
        (installed.folder / f"{name}.away").rename(installed.folder / name)


def test_no_file_of_the_users_is_imported_by_a_run_and_its_workers(installed: Installed) -> None:
    assert "fineweb" in installed("recipes")
    assert "read 40 documents" in installed("run mine.yaml in.jsonl -o small --workers 2")


@pytest.mark.parametrize("path", ["", ".:"])
def test_python_m_and_pythonpath_put_no_file_before_a_library(
    without_ours: Installed, path: str
) -> None:
    assert "fineweb" in without_ours("-m llmcurate recipes", path)
    assert "usage: python -m train" in without_ours("-m train --help", path)
    assert "fineweb" in without_ours("recipes", path)


def test_a_notebooks_import_names_the_file_that_hides_a_module(without_ours: Installed) -> None:
    # Python's own modules that a notebook's process has loaded before its folder is on the path.
    loaded = "import sys; here = sys.path.pop(0); import typing; sys.path.insert(0, here)"

    def last_line(code: str) -> str:
        return without_ours(f"-c '{code}'", code=1).splitlines()[-1]

    def line_of(file: str, module: str) -> str:
        path = without_ours.folder / file
        return f"ImportError: {path} hides the module {module} that llmcurate needs: rename it"

    assert last_line("from llmcurate import Corpus") == line_of("typing.py", "typing")
    assert last_line(f"{loaded}; import train.data.shards") == line_of("queue.py", "queue")
    assert last_line(f"{loaded}; import curate.text.tables") == line_of("numba.py", "numba")
    (without_ours.folder / "train.py").write_text("raise SystemExit('RAN')\n")
    code = f"{loaded}; import curate.products.pretraining"
    assert last_line(code) == line_of("train.py", "train")


@pytest.mark.slow  # the ones above stand for it
@pytest.mark.timeout(900)
def test_no_file_of_the_users_is_imported_by_any_command(installed: Installed) -> None:
    pytest.importorskip("torch")
    for workers in (1, 2):
        installed(f"run mine.yaml in.jsonl -o run{workers} --workers {workers}")
    installed("dedup in.jsonl -o dedup --method minhash --workers 2")
    installed("dedup compare in.jsonl -o compared --methods exact,minhash")
    installed("tokenizer train in.jsonl -o tok --vocab 300")
    installed("tokenizer encode in.jsonl -o shards --tokenizer tok")
    for processes in (1, 2):
        small = "--steps 2 --rows 2 --context 16"
        installed(f"pretrain shards -o model{processes} --processes {processes} {small}")
    installed("generate Mill --model model2 --max-tokens 3")
    for line in ("verify dedup", "check run2", "stats in.jsonl", "explain 7 --in run2", "schema"):
        installed(line)
    installed("whatif run2 --set gopher_quality.min_words=9")
    installed("warmup mine.yaml --workers 1")


def test_the_citation_names_the_version_that_is_built(wheel: Path) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f"-{citation['version']}-" in wheel.name
