"""A command over the work of other settings is refused, or the old work is set aside whole."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest

from curate.cli.app import invoke
from llmcurate.base.disk.files import file_digest
from tests.parameters import mostly_slow

WORDS = "the cat sat on a mat and the rat ate that hat by the old mill near the river".split()
TRAIN = ["--steps", "2", "--rows", "2", "--context", "32", "--eval-every", "1", "--warmup", "1"]
SMALL = ["--order", "2", "--discount-fallback"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with documents, a tokenizer and shards."""
    folder, draw = tmp_path_factory.mktemp("inputs"), random.Random(1)
    for name, count in (("a", 60), ("b", 61)):
        rows = [
            {"id": f"{n}", "text": " ".join(draw.choices(WORDS, k=40)), "lang": "ab"[n % 2]}
            for n in range(count)
        ]
        lines = "\n".join(map(json.dumps, rows)) + "\n"
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    source = str(folder / "a.jsonl")
    assert not invoke(["tokenizer", "train", source, "-o", f"{folder}/tok", "--vocab", "290", "-q"])
    shards = ["--tokenizer", f"{folder}/tok", "-o", f"{folder}/shards", "-q"]
    assert not invoke(["tokenizer", "encode", source, *shards])
    return folder


@pytest.fixture(scope="module")
def with_ngrams(inputs: Path) -> Path:
    """The same folder, with an n-gram model, which the lab trains."""
    train = ["perplexity", "train", str(inputs / "a.jsonl"), "-o", f"{inputs}/ngrams"]
    assert not invoke([*train, *SMALL, "-q"])
    return inputs


def files(out: Path) -> dict[str, str]:
    """Digests of what a command leaves for readers."""
    paths = [out] if out.is_file() else sorted(p for p in out.rglob("*") if p.is_file())
    paths = [p for p in paths if p.name != "ledger.db" and ".run" not in p.parts]
    return {str(p.relative_to(out)): file_digest(p) for p in paths}


QUALITY = ["quality", "train", "--positive", "a.jsonl", "--negative", "b.jsonl", "--dim", "2"]
QUALITY += ["--bucket", "2000"]
EXTEND = ["tokenizer", "extend", "tok", "--on", "a.jsonl"]
CHANGED = {
    "tokenizer": (
        ["tokenizer", "train", "a.jsonl"],
        ["--vocab", "290"],
        ["--vocab", "295"],
        "vocab 290, not 295",
    ),
    "shards": (
        ["tokenizer", "encode", "a.jsonl", "--tokenizer", "tok"],
        [],
        ["--no-eos"],
        "eos true, not false",
    ),
    "n-gram model": (
        ["perplexity", "train", "a.jsonl", "--discount-fallback"],
        ["--order", "2"],
        ["--order", "3"],
        "order 2, not 3",
    ),
    "language model": (
        ["language", "train", "a.jsonl", "--bucket", "100"],
        ["--epochs", "1"],
        ["--epochs", "2"],
        "epochs 1, not 2",
    ),
    "export": (["export", "a.jsonl"], [], ["--compression", "gz"], "compression zst, not gz"),
    "search index": (["search", "build"], ["a.jsonl"], ["b.jsonl"], "/b.jsonl ("),
    "mix": (["mix", "x=a.jsonl", "y=b.jsonl"], [], ["--seed", "3"], "seed 0, not 3"),
    "classifier": (
        [*QUALITY, "--bucket", "100"],
        ["--epochs", "1"],
        ["--epochs", "2"],
        "epochs 1, not 2",
    ),
    "converted tokenizer": (
        ["tokenizer", "convert", "tok", "--to"],
        ["tiktoken"],
        ["tokenizer.json"],
        "to tiktoken, not tokenizer.json",
    ),
    "extended tokenizer": (EXTEND, ["--vocab", "303"], ["--vocab", "304"], "vocab 303, not 304"),
    "pruned tokenizer": (
        ["tokenizer", "prune", "tok", "--on", "a.jsonl", "--vocab"],
        ["285"],
        ["280"],
        "vocab 285, not 280",
    ),
    "model": (
        ["pretrain", "shards", *TRAIN],
        ["--lr", "0.005"],
        ["--lr", "0.001"],
        "lr 0.005, not 0.001",
    ),
}


@pytest.mark.lab
@pytest.mark.parametrize("kind", CHANGED)
def test_other_settings_are_refused_by_name_and_restart_sets_the_old_aside(
    inputs, tmp_path, monkeypatch, capsys, kind
):
    if kind == "model":
        pytest.importorskip("torch")
    common, settings, others, named = CHANGED[kind]
    monkeypatch.chdir(inputs)
    out = tmp_path / "out"
    assert invoke([*common, *settings, "-o", str(out)]) == 0
    made = files(out)
    capsys.readouterr()
    assert invoke([*common, *others, "-o", str(out)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{out} was made with " in error and named in error
    assert error.endswith("give another -o, or --restart, which sets the old one aside as out.1")
    assert files(out) == made and not (tmp_path / "out.1").exists()
    assert invoke([*common, *settings, "-o", str(out)]) == 0
    assert files(out) == made
    assert invoke([*common, *others, "-o", str(out), "--restart"]) == 0
    assert files(tmp_path / "out.1") == made != files(out)
    assert f"{out} is now {out}.1" in capsys.readouterr().err


@pytest.mark.lab
def test_a_converted_n_gram_model_is_a_file_that_is_set_aside(with_ngrams, tmp_path, capsys):
    source, target = with_ngrams / "ngrams/perplexity.bin", tmp_path / "model.arpa"
    convert = ["perplexity", "convert", str(source), "-o", str(target)]
    assert invoke(convert) == 0 and invoke(convert) == 0
    copy = tmp_path / "copy.bin"
    copy.write_bytes(source.read_bytes())
    assert invoke(["perplexity", "convert", str(copy), "-o", str(target)]) == 2
    assert re.search(f"{target} was made with source .*, not .*copy.bin", capsys.readouterr().err)
    assert invoke(["perplexity", "convert", str(copy), "-o", str(target), "--restart"]) == 0
    assert (tmp_path / "model.arpa.1").is_file() and target.is_file()


@pytest.mark.lab
def test_another_command_and_files_of_the_user_are_not_overwritten(inputs, tmp_path, capsys):
    out, source = tmp_path / "out", str(inputs / "a.jsonl")
    train = ["tokenizer", "train", source, "-o", str(out), "--vocab", "290", "-q"]
    assert invoke(train) == 0
    prune = ["tokenizer", "prune", str(out), "--on", source, "--vocab", "280", "-o", str(out)]
    assert invoke(prune) == 2
    assert "holds tokenizer.json, which another command made: give another -o\n" in (
        capsys.readouterr().err
    )
    assert invoke([*prune, "--restart"]) == 2  # it would rename what it reads
    convert = ["tokenizer", "convert", str(inputs / "tok"), "--to", "tokenizer.json", "-o"]
    assert invoke([*convert, str(tmp_path / "tok")]) == 0
    shutil.rmtree(tmp_path / "tok")
    shutil.copytree(out, tmp_path / "tok")
    assert invoke([*convert, str(tmp_path / "tok")]) == 2  # it made another one there
    card = tmp_path / "mine/tokenizer_card.json"
    card.parent.mkdir()
    card.write_text("{}")
    mine = ["tokenizer", "train", source, "-o", str(card.parent), "--vocab", "290", "-q"]
    assert invoke(mine) == 2 and card.read_text() == "{}"
    assert f"{card} exists and is not part of this tokenizer: move it away" in (
        capsys.readouterr().err
    )
    card.rename(tmp_path / "moved.json")
    assert invoke(mine) == 0 and files(card.parent) == files(out)


def test_a_refused_conversion_leaves_nothing(inputs, tmp_path):
    convert = ["tokenizer", "convert", str(inputs / "tok"), "--to", "sentencepiece", "-o"]
    assert invoke([*convert, str(tmp_path / "out")]) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.lab
def test_another_path_to_the_same_tokenizer_or_worker_count_is_no_difference(
    inputs, tmp_path, monkeypatch
):
    monkeypatch.chdir(inputs)
    encode = ["tokenizer", "encode", "a.jsonl", "-o", f"{tmp_path}/out", "-q"]
    assert invoke([*encode, "--tokenizer", "tok"]) == 0
    assert invoke([*encode, "--tokenizer", "tok/tokenizer.json", "--workers", "2"]) == 0


@pytest.mark.lab
def test_an_input_that_changed_or_is_read_in_part_is_named(inputs, tmp_path, capsys):
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_bytes((inputs / "a.jsonl").read_bytes())
    train = ["tokenizer", "train", str(source), "-o", str(out), "--vocab", "290", "-q"]
    assert invoke(train) == 0
    assert invoke([*train, "--limit", "9"]) == 2
    assert "made with read.limit none, not 9; input" in capsys.readouterr().err
    source.write_bytes((inputs / "b.jsonl").read_bytes())
    assert invoke(train) == 2
    error = capsys.readouterr().err
    assert re.search(r"made with input .*in.jsonl \(\w+\), not .*in.jsonl \(\w+\): give", error)


@pytest.mark.lab
def test_a_build_that_wrote_nothing_does_not_block_other_settings(inputs, tmp_path, monkeypatch):
    from tokenize_kit.learn import training

    def fail(*_):
        raise KeyboardInterrupt

    train = ["tokenizer", "train", str(inputs / "a.jsonl"), "-o", f"{tmp_path}/out", "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_on_corpus", fail)
        assert invoke([*train, "--vocab", "290"]) == 130
    assert invoke([*train, "--vocab", "295"]) == 0


@pytest.mark.lab
def test_restart_refuses_what_it_cannot_set_aside(inputs, tmp_path, monkeypatch, capsys):
    source, out = tmp_path / "out/in.jsonl", tmp_path / "out"
    out.mkdir()
    source.write_bytes((inputs / "a.jsonl").read_bytes())
    train = ["tokenizer", "train", str(source), "-o", str(out), "--vocab", "290", "-q"]
    assert invoke(train) == 0
    assert invoke([*train, "--restart"]) == 2
    assert f"where {source} is read: give another -o" in capsys.readouterr().err
    assert invoke([*train, "--vocab", "295"]) == 2  # nor is it advised
    assert "--restart" not in capsys.readouterr().err
    elsewhere = [*train[:2], str(inputs / "a.jsonl"), *train[3:]]
    monkeypatch.chdir(out)
    assert invoke([*elsewhere, "--restart"]) == 2
    assert "contains your current folder" in capsys.readouterr().err
    url = [*elsewhere[:4], "memory://bucket/out", *elsewhere[5:], "--restart"]
    assert invoke(url) == 2
    assert "OUT is a URL: give another URL" in capsys.readouterr().err


@pytest.mark.lab
def test_in_a_workspace_a_restart_takes_the_next_number(inputs, tmp_path, monkeypatch):
    assert invoke(["init", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    train = ["tokenizer", "train", str(inputs / "a.jsonl"), "--vocab", "290", "-q"]
    for given in ([], ["--restart"], ["--restart", "-o", "runs/0002-tokenizer"]):
        assert invoke([*train, *given]) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["0001-tokenizer", "0002-tokenizer", "0002-tokenizer.1"]
    from curate.run.workspace import find

    assert find(tmp_path).newest("tokenizer")[1].name == "0002-tokenizer"


@pytest.mark.lab
@pytest.mark.parametrize("moment", ["rename", "sync_path"])
def test_a_restart_that_is_killed_leaves_the_old_work_whole(inputs, tmp_path, monkeypatch, moment):
    out = tmp_path / "out"
    train = ["tokenizer", "train", str(inputs / "a.jsonl"), "-o", str(out), "-q", "--vocab"]
    assert invoke([*train, "290"]) == 0
    made = files(out)

    def kill(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if moment == "sync_path":
            patch.setattr("llmcurate.base.disk.files.sync_path", kill)
        else:
            patch.setattr(Path, moment, kill)
        assert invoke([*train, "295", "--restart"]) == 130
    old = out if moment == "rename" else tmp_path / "out.1"
    assert files(old) == made
    assert invoke([*train, "295", *(["--restart"] if moment == "rename" else [])]) == 0
    assert files(tmp_path / "out.1") == made


RECIPE = """\
name: all
steps:
  - dedup_exact
  - tokenizer: {vocab: 290}
  - shards
  - pretrain: {steps: 2, rows: 2, context: 32, warmup: 1, eval_every: 1, lr: 0.005}
"""


@pytest.fixture(scope="module")
def trained(inputs) -> list[str]:
    """The command of a run that ends in a model, done once in the folder `trained`."""
    pytest.importorskip("torch")
    (inputs / "all.yaml").write_text(RECIPE)
    command = ["run", str(inputs / "all.yaml"), str(inputs / "a.jsonl"), "--workers", "1", "-q"]
    assert invoke([*command, "-o", str(inputs / "trained")]) == 0
    return command


LEFT = ("checkpoints", "metrics.jsonl", "train.json", "tokenizer.json", "compared.jsonl")


@pytest.mark.lab
@pytest.mark.parametrize("moves", mostly_slow([None, 1, 5, 0, 3], 3))
def test_a_run_keeps_the_model_of_other_settings_as_model_1_also_when_killed_at_it(
    inputs, trained, tmp_path, monkeypatch, capsys, moves
):
    """moves: renames before a kill."""
    out = tmp_path / "out"
    shutil.copytree(inputs / "trained", out)
    made = {name: files(out / name) for name in LEFT}
    change = [*trained, "-o", str(out), "--set", "pretrain.lr=0.001"]
    if moves is not None:
        real, done = Path.rename, []

        def rename(path, target):
            if "model.1" in str(target):
                if len(done) == moves:
                    raise KeyboardInterrupt
                done.append(path)
            return real(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            assert invoke(change) == 130
        assert files(out / "checkpoints") == made["checkpoints"]
    assert invoke(change) == 0
    error = capsys.readouterr().err
    assert f"{out}: the model made with lr 0.005, not 0.001 is now in {out}/model.1" in error
    assert {name: files(out / "model.1" / name) for name in LEFT} == made
    assert files(out / "checkpoints") != made["checkpoints"] and not (out / "model.2").exists()
    stages = {path.name.rpartition("-")[0] for path in (out / "stages").iterdir()}
    assert stages == {"00-read", "01-dedup_exact", "02-tokenizer", "03-shards"}


@pytest.mark.lab
def test_a_run_of_other_documents_keeps_model_and_stages(inputs, trained, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(inputs / "trained", out)
    made = files(out / "checkpoints")
    other = [str(inputs / "b.jsonl") if word.endswith("a.jsonl") else word for word in trained]
    assert invoke([*other, "-o", str(out)]) == 0
    assert files(out / "model.1/checkpoints") == made
    assert len(list((out / "stages").glob("*-tokenizer-*"))) == 2
