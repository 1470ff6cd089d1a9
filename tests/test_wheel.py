"""What the built wheel alone can do, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
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
    assert {"pipelines/c4.yaml", "pipelines/demo.yaml"} <= set(names)
    assert {"pipelines/recipe.schema.json", "curate/py.typed"} <= set(names)
    assert "pipelines/schedule/crontab" in names
    assert any(n.startswith("pipelines/demo/texts/") for n in names)
    templates = {f"curate/pages/templates/{n}" for n in ("page.html", "style.css", "report.html")}
    assert templates <= set(names)
    tops = {n.split("/")[0] for n in names}
    assert {n for n in tops if not n.endswith(".dist-info")} == {
        "curate",
        "tokenize_kit",
        "train",
        "kernel_cache",
        "pipelines",
    }


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
    # Typed again it says that all is done: same web, same settings.
    run_alone(wheel, tmp_path, "demo", "--json", *settings)
    assert [p.name for p in (tmp_path / "demo" / "runs").iterdir()] == ["0001-demo"]


def test_the_citation_names_the_version_that_is_built(wheel: Path) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f"-{citation['version']}-" in wheel.name
