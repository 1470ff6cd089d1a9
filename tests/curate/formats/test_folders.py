"""Kinds of folders: recognised by their files, and refused with a fitting folder or command."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.cli.app import invoke
from curate.formats.folders import kinds_of, require_kind
from llmcurate.base.errors import UsageError

FILES = {
    "model": [
        *("checkpoints/step-0000001/optimizer.safetensors", "tokenizer.json", "sample.txt"),
        ".run/run.json",  # no OUT of documents, so no advice
    ],
    "checkpoint": ["model.safetensors", "optimizer.safetensors", "config.json"],
    "transformers": ["model.safetensors", "config.json", "tokenizer.json"],
    "shards": ["tokens-00000.bin", "manifest.json", "documents-00000.parquet"],
    "tokenizer": ["tokenizer.json", "merges.txt", "README.md"],
    "home": ["refresh.db"],
    "run": ["corpus.json", "corpus/part-00000.parquet"],
    "workspace": ["llmcurate.yaml"],
    "documents": ["a.jsonl"],
}


def folder_of(kind: str, folder: Path) -> Path:
    for name in FILES[kind]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("kind", FILES)
def test_the_kind_of_a_folder_follows_from_its_files(kind: str, tmp_path: Path) -> None:
    assert kinds_of(folder_of(kind, tmp_path / "x"))[0] == kind


@pytest.mark.parametrize(
    "file", ["train.bin", "fineweb_train_000001.bin", "a.idx", "a.ds", "a.mds.zstd"]
)
def test_shards_of_other_tools_are_shards_also_beside_a_tokenizer(
    file: str, tmp_path: Path
) -> None:
    folder_of("tokenizer", tmp_path)
    (tmp_path / file).touch()
    assert require_kind(tmp_path, "shards") == tmp_path


def test_documents_beside_a_tokenizer_are_read_and_an_unknown_folder_passes(tmp_path: Path) -> None:
    folder = folder_of("documents", folder_of("tokenizer", tmp_path / "both"))
    assert require_kind(folder, "documents") == folder
    assert require_kind(tmp_path, "model") == tmp_path and require_kind(tmp_path / "none", "model")


@pytest.mark.lab
@pytest.mark.parametrize(
    ("kind", "command", "says"),
    [
        ("model", "import {} -o out", "a trained model, not a model of transformers: `llmcurate"),
        ("tokenizer", "export {} -o out", "a tokenizer, not a folder of documents"),
        ("transformers", "dedup {} -o out", "`llmcurate import {} -o MODEL` makes"),
        ("shards", "generate --model {} hi", "`llmcurate pretrain {} -o MODEL` trains"),
        ("documents", "evaluate {} --on a=b.jsonl", "`llmcurate tokenizer encode {} --tokenizer"),
        ("documents", "whatif {}", "`llmcurate run RECIPE {} -o OUT` makes a run of it"),
        ("tokenizer", "pretrain {} -o out", "a tokenizer, not token shards"),
        ("model", "run c4 {} -o out", "not a folder of documents: `llmcurate generate"),
        ("transformers", "verify {}", "a model of transformers, not the OUT of a run"),
    ],
)
def test_a_command_names_the_kind_of_folder_it_was_given_and_the_kind_it_needs(
    kind: str,
    command: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder_of(kind, tmp_path / "given")
    assert invoke(command.format("given").split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and says.format("given") in lines[0]


def test_the_fitting_folder_near_by_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space = folder_of("workspace", tmp_path / "space")
    run = folder_of("run", space / "runs/0001-first")
    model = folder_of("model", space / "runs/0002-pretrain")
    for given, wanted, near in (
        (space, "model", model),
        (model / "checkpoints/step-0000001", "model", model),
        (run / "corpus", "run", run),
    ):
        with pytest.raises(UsageError, match=f"name {near.relative_to(tmp_path)}$"):
            require_kind(given, wanted)


def test_a_folder_with_checkpoints_is_exported_for_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate.cli import training

    exported = []
    monkeypatch.setattr(training, "export_model", lambda inputs, *rest: exported.append(inputs))
    model = str(folder_of("model", tmp_path / "model"))
    assert invoke(["export", model, "-o", str(tmp_path / "out")]) == 0
    assert exported == [[model]]
