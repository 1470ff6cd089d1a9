"""Products: built once, put at OUT's root, built anew only when what they are made from changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from curate.steps.recipe import compose
from llmcurate.base.errors import LlmcurateError, UnexpectedError, UsageError

STEPS = ["dedup_exact", {"tokenizer": {"vocab": 300}}, "shards"]
TRAIN = {"pretrain": {"steps": 2, "rows": 2, "context": 32, "warmup": 1, "eval_every": 1}}


def times(out: Path, *names: str) -> list[int]:
    return [(out / n).stat().st_mtime_ns for n in names]


@pytest.fixture(scope="module")
def built(shared_bench, make_pages):
    """A finished run with a tokenizer and shards."""
    shared_bench.jsonl("in.jsonl", make_pages(120))
    shared_bench.run(STEPS, shared_bench.folder / "in.jsonl", out="built")
    return shared_bench


def test_products_lie_at_the_root_in_the_layout_of_the_contract(built):
    out = built.folder / "built"
    manifest = json.loads((out / "manifest.json").read_text())
    wanted = "version dtype vocab_size tokenizer_sha256 special_ids documents tokens bytes files"
    assert set(wanted.split()) <= set(manifest)
    assert {
        "tokenizer.json",
        "tokens-00000.bin",
        "tokens-00000.idx",
        "documents-00000.parquet",
    } <= {p.name for p in out.iterdir()}
    tokens = np.fromfile(out / "tokens-00000.bin", manifest["dtype"])
    ends = np.fromfile(out / "tokens-00000.idx", "uint64")
    table = pq.read_table(out / "documents-00000.parquet")
    assert table.column_names == ["id", "source", "lang", "tokens", "bytes"]
    assert len(tokens) == manifest["tokens"] == ends[-1]
    assert table["id"].to_pylist() == built.ids("built")


def test_a_second_run_builds_nothing(built):
    out = built.folder / "built"
    names = ("tokenizer.json", "manifest.json", "tokens-00000.bin")
    before = times(out, *names)
    assert built.run(STEPS, built.folder / "in.jsonl", out="built").nothing_new
    assert times(out, *names) == before


def test_another_vocabulary_rebuilds_products_but_not_the_corpus_and_back_reuses_all(built):
    out = built.folder / "vocab"
    source = built.folder / "in.jsonl"
    built.run(STEPS, source, out="vocab")
    corpus = times(out, "corpus/part-00000.parquet", "corpus.json")
    first = (out / "tokenizer.json").read_bytes(), (out / "tokens-00000.bin").read_bytes()
    built.run(STEPS, source, out="vocab", sets=("tokenizer.vocab=310",))
    second = (out / "tokenizer.json").read_bytes(), (out / "tokens-00000.bin").read_bytes()
    assert first[0] != second[0] and first[1] != second[1]
    assert times(out, "corpus/part-00000.parquet", "corpus.json") == corpus
    first_times = {p: p.stat().st_mtime_ns for p in (out / "stages").rglob("*") if p.is_file()}
    built.run(STEPS, source, out="vocab")
    third = (out / "tokenizer.json").read_bytes(), (out / "tokens-00000.bin").read_bytes()
    assert third == first
    now = {p: p.stat().st_mtime_ns for p in first_times if not p.name.startswith("stage")}
    assert now == {p: t for p, t in first_times.items() if p in now}


@pytest.mark.lab
def test_products_without_documents_stand_alone_in_a_clean_folder(built):
    source = built.folder / "in.jsonl"
    steps = [{"tokenizer": {"vocab": 300}}]
    outcome = built.run(steps, source, out="clean")
    out = built.folder / "clean"
    names = {path.name for path in out.iterdir()} - {".run"}
    assert "tokenizer.json" in names
    assert all(name.startswith(("tokenizer", "special_tokens", "card")) for name in names)
    assert {"ledger.db", "run.json", "recipe.yaml", "report.html", "stages"} <= {
        path.name for path in (out / ".run").iterdir()
    }
    assert outcome.paths()["report"] == f"{out}/.run/report.html"
    assert built.run(steps, source, out="clean").nothing_new
    (out / "tokenizer.json").unlink()
    built.run(steps, source, out="clean")
    assert (out / "tokenizer.json").exists()


@pytest.mark.parametrize("gone", ["tokenizer.json", "tokens-00000.bin", "manifest.json"])
def test_a_missing_product_file_is_put_back(built, gone):
    out = built.folder / f"gone-{gone}"
    shutil.copytree(built.folder / "built", out)
    whole = (out / gone).read_bytes()
    (out / gone).unlink()
    assert not built.run(STEPS, built.folder / "in.jsonl", out=out.name).nothing_new
    assert (out / gone).read_bytes() == whole


def test_products_survive_the_loss_of_the_cache(built):
    out = built.folder / "cacheless"
    shutil.copytree(built.folder / "built", out)
    shutil.rmtree(out / "stages")
    source = built.folder / "in.jsonl"
    assert built.run(STEPS, source, out="cacheless").nothing_new
    built.run(STEPS, source, out="cacheless", sets=("shards.shard_tokens=2000",))
    manifest = json.loads((out / "manifest.json").read_text())
    assert len([n for n in manifest["files"] if n.endswith(".bin")]) > 1
    assert all((out / n).exists() for n in manifest["files"])


def test_files_of_earlier_settings_are_removed(built):
    out = built.folder / "fewer"
    source = built.folder / "in.jsonl"
    built.run(STEPS, source, out="fewer", sets=("shards.shard_tokens=1000",))
    assert (out / "tokens-00001.bin").exists()
    built.run(STEPS, source, out="fewer")
    assert not (out / "tokens-00001.bin").exists()
    manifest = json.loads((out / "manifest.json").read_text())
    assert {p.name for p in out.glob("tokens-*.bin")} <= set(manifest["files"])


def test_a_failure_while_encoding_leaves_no_manifest(built, monkeypatch):
    import tokenize_kit.shards.writer

    class Stop(Exception):
        pass

    def stop(*arguments):
        raise Stop

    source = built.folder / "in.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(tokenize_kit.shards.writer, "encode_json", stop)
        with pytest.raises(UnexpectedError):
            built.run(STEPS, source, out="stopped")
    out = built.folder / "stopped"
    assert not (out / "manifest.json").exists() and not list(out.glob("tokens-*"))
    assert (out / "corpus.json").exists() and (out / "tokenizer.json").exists()
    tokenizer = times(out, "tokenizer_card.json")
    built.run(STEPS, source, out="stopped")
    assert times(out, "tokenizer_card.json") == tokenizer
    assert (out / "manifest.json").read_bytes() == (
        built.folder / "built/manifest.json"
    ).read_bytes()


def test_a_model_is_trained_once_and_anew_when_the_vocabulary_changes(built):
    pytest.importorskip("torch")
    out = built.folder / "model"
    source = built.folder / "in.jsonl"
    steps = [*STEPS, TRAIN]
    built.run(steps, source, out="model")
    weights = out / "checkpoints/step-0000002/model.safetensors"
    before = weights.stat().st_mtime_ns
    assert built.run(steps, source, out="model").nothing_new
    assert weights.stat().st_mtime_ns == before
    corpus = times(out, "corpus.json")
    built.run(steps, source, out="model", sets=("tokenizer.vocab=310",))
    assert weights.stat().st_mtime_ns > before
    assert times(out, "corpus.json") == corpus
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2


def test_training_continues_under_settings_that_change_no_result_and_to_more_steps(built):
    pytest.importorskip("torch")
    out = built.folder / "more"
    source = built.folder / "in.jsonl"
    settings = TRAIN["pretrain"] | {"schedule": "constant"}
    built.run([*STEPS, {"pretrain": settings}], source, out="more")
    first = (out / "metrics.jsonl").read_text()
    before = times(out, "train.json")
    free = settings | {"spike": "skip", "log_every": 3}
    built.run([*STEPS, {"pretrain": free}], source, out="more")
    assert times(out, "train.json") == before
    built.run([*STEPS, {"pretrain": free | {"steps": 4}}], source, out="more")
    assert (out / "metrics.jsonl").read_text().startswith(first)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 4
    cosine = free | {"schedule": "cosine"}
    built.run([*STEPS, {"pretrain": cosine}], source, out="more")  # another plan: set aside
    assert (out / "metrics.jsonl").read_text() != first
    with pytest.raises(LlmcurateError, match="depend on the number: use 2 steps"):
        built.run([*STEPS, {"pretrain": cosine | {"steps": 9}}], source, out="more")


@pytest.mark.slow  # test_distributed.py trains so in every run of the tests
def test_a_model_is_trained_by_two_processes(built):
    pytest.importorskip("torch")
    settings = TRAIN["pretrain"] | {"processes": 2, "device": "cpu"}
    built.run([*STEPS, {"pretrain": settings}], built.folder / "in.jsonl", out="processes")
    summary = json.loads((built.folder / "processes/train.json").read_bytes())
    assert summary["timing"]["processes"] == 2 and summary["steps"] == 2


def test_the_error_of_several_processes_is_the_line_of_one():
    from curate.products.pretraining import _failure

    log = (
        "W1121 torch/distributed/run.py: Setting OMP_NUM_THREADS\n"
        "error: rows is 3: 2 processes of 1 micro-batches cannot share them equally\n"
        "error: rows is 3: 2 processes of 1 micro-batches cannot share them equally\n"
        "train FAILED\nRoot Cause:\n  rank      : 0\n  exitcode  : 2 (pid: 7)\n"
    )
    failure = _failure(log, 1)
    assert str(failure).startswith("rows is 3: 2 processes") and "\n" not in str(failure)
    assert failure.exit_code == 2 and _failure(log.replace(": 2 (", ": 1 ("), 1).exit_code == 1
    assert str(_failure("Traceback\n\nKilled\n", 137)) == "Traceback / Killed"
    assert str(_failure("", 9)) == "torchrun ended with status 9"


BANNER = (
    "W1121 12:00:00 7 torch/distributed/run.py:874] \n"
    "W1121 12:00:00 7 torch/distributed/run.py:874] *****\n"
    "W1121 12:00:00 7 torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment variable\n"
)
ROOT_CAUSE = (
    "E1121 12:00:00 7 torch/distributed/elastic/api.py:1002] failed (exitcode: 1)\n"
    'Traceback (most recent call last):\n  File "run.py", line 1\n    run(args)\n'
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\nFailures:\n"
    "[1]:\n  exitcode  : -15 (pid: 8)  (SIGTERM)\n"
    "  traceback : Signal 15 (SIGTERM) received by PID 8\n"
    "Root Cause (first observed failure):\n[0]:\n"
)


@pytest.mark.parametrize("rank", ["", "[rank1]: "])
def test_the_line_of_a_bug_in_several_processes_is_its_exception(rank):
    from curate.products.pretraining import _failure

    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no such rank\n'
    lines = "".join(f"{rank}{line}\n" for line in trace.splitlines())
    log = BANNER + lines + ROOT_CAUSE + "  exitcode  : 1 (pid: 9)\n  traceback : To enable see\n"
    assert str(_failure(log, 1)) == "ValueError: no such rank"


def test_the_line_of_a_killed_process_is_the_signal_of_the_first():
    from curate.products.pretraining import _failure

    killed = "  exitcode  : -9 (pid: 9)\n  traceback : Signal 9 (SIGKILL) received by PID 9\n"
    assert str(_failure(BANNER + ROOT_CAUSE + killed, 1)) == "Signal 9 (SIGKILL) received by PID 9"


def test_torchruns_banner_is_no_error():
    from curate.products.pretraining import _failure

    assert str(_failure(BANNER, 0)) == "torchrun ended with status 0"


def test_every_setting_of_training_can_be_given_in_a_recipe():
    from dataclasses import fields

    from curate.products.pretraining import PretrainProduct
    from train.config import RunBudget, TrainConfig

    ours, defaults = PretrainProduct.model_fields, TrainConfig()
    for field in fields(TrainConfig):
        default = getattr(defaults, field.name)
        assert ours[field.name].default == getattr(default, "kind", default), field.name
    of_budget = {field.name for field in fields(RunBudget)}
    own = {"model", "shards", "processes", "plan"}
    assert set(ours) - {field.name for field in fields(TrainConfig)} == own | of_budget


def test_products_without_document_steps_read_the_input_itself(built):
    rows = [{"text": f"{i} " + "x y z " * 60} for i in range(20)]
    built.jsonl("one/a.jsonl", rows)
    built.jsonl("two/a.jsonl", rows)
    steps = [{"tokenizer": {"vocab": 300}}, "shards"]
    folders = [built.folder / "one", built.folder / "two"]
    built.run(steps, *folders, out="direct", read={"partition_bytes": 2000})
    ids = pq.read_table(built.folder / "direct/documents-00000.parquet")["id"].to_pylist()
    assert ids[:20] == ids[20:] == [f"a.jsonl#{i}" for i in range(20)]


def test_several_sizes_get_a_folder_each_and_no_shards(built):
    source = built.folder / "in.jsonl"
    tokenizer = {"tokenizer": {"vocab": "300,310", "pattern": "llama3", "pad_to": 64}}
    built.run([tokenizer], source, out="sizes")
    out = built.folder / "sizes"
    cards = [json.loads((out / f"{n}/tokenizer_card.json").read_text()) for n in (300, 310)]
    assert [card["vocab_asked"] for card in cards] == [300, 310]
    assert "320, 320 tokens" in (out / ".run" / "report.html").read_text()
    assert not (out / "tokenizer.json").exists()
    with pytest.raises(UsageError, match="several sizes; encode in a separate run"):
        built.run([tokenizer, "shards"], source, out="sizes-shards")
    named = {"shards": {"tokenizer": str(out / "310")}}
    built.run([named], source, out="sizes-named")
    assert json.loads((built.folder / "sizes-named/manifest.json").read_text())["vocab_size"] == 320


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"vocab": "3OO"}, "'3OO': give one number or several"),
        ({"vocab": [400, 20]}, "vocab 20: ask for 258 or more"),
        ({"pattern": "gpt9"}, "choose one of gpt2, cl100k"),
        ({"digits": "double"}, "choose one of single, triples"),
        ({"model": "unigram", "min_frequency": 8}, "min-frequency: not for unigram"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_wrong_settings_of_a_tokenizer_are_refused_before_anything_is_read(settings, message):
    with pytest.raises(UsageError, match=f"step tokenizer: .*{message}"):
        compose("t", [("tokenizer", settings)], ())


def test_a_tokenizer_is_trained_on_a_sample_with_weights_of_any_column(built):
    rows = [{"text": f"{i} " + "x y z " * 60, "lang": "en", "kind": "ab"[i % 2]} for i in range(40)]
    built.jsonl("kinds/a.jsonl", rows)
    source = built.folder / "kinds"
    settings = {"vocab": 300, "sample_bytes": 5000, "weights": "kind=b:2.5"}
    for name, steps in (("kinds-direct", []), ("kinds-staged", ["dedup_exact"])):
        built.run([*steps, {"tokenizer": settings}], source, out=name)
    cards = [
        json.loads((built.folder / name / "tokenizer_card.json").read_text())
        for name in ("kinds-direct", "kinds-staged")
    ]
    assert cards[0] == cards[1]
    assert cards[0]["bytes"] <= 5000 and cards[0]["sample"]["documents_of"] == 40
    assert {v: d["weight"] for v, d in cards[0]["mixture"]["values"].items()} == {"a": 1, "b": 2.5}
    with pytest.raises(LlmcurateError, match="no document has a column 'tongue'") as caught:
        built.run([{"tokenizer": settings | {"weights": "tongue=b:2"}}], source, out="tongue")
    assert caught.value.exit_code == 2
