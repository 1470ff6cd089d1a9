"""Damaged shards and run files: training gives the right weights or a one-line error."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from llmcurate.base.disk.files import clear_dead, write_atomic
from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import MODEL
from train.config import TrainConfig
from train.data.shards import Comparison, read_shards
from train.loop.pretrain import pretrain
from train.runs.checkpoint import complete

TRAIN = TrainConfig(
    **{"steps": 6, "rows": 2, "context": 32, "warmup": 1, "eval_every": 6, "checkpoint_every": 2},
    **{"keep_checkpoints": 3, "device": "cpu", "eval_tokens": 64},
)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(complete(out / "checkpoints")[-1] / "model.safetensors")


@pytest.fixture(scope="module")
def whole(shard_folder, tmp_path_factory) -> Path:
    """A folder with shards, and with a run stopped after its last checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    torch.set_num_threads(1)
    shutil.copytree(shard_folder, folder / "shards")
    pretrain(folder / "shards", folder / "out", model=MODEL, train=TRAIN)
    return folder


def damage(path: Path, draw: random.Random) -> str:
    """A bit flipped, the file cut, deleted, or swapped with one beside it."""
    kind = draw.choice(["flip", "cut", "delete", "swap"])
    data = bytearray(path.read_bytes())
    beside = sorted(p for p in path.parent.iterdir() if p.is_file() and p != path)
    if kind == "flip":
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
    elif kind == "cut":
        path.write_bytes(data[: draw.randrange(len(data))])
    elif kind == "delete":
        path.unlink()
    elif beside:
        other = draw.choice(beside)
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    return kind


def right_or_one_line(whole: Path, folder: Path, seeds: range) -> None:
    files = sorted(
        p.relative_to(whole) for p in whole.rglob("*") if p.is_file() and p.stat().st_size
    )
    for seed in seeds:
        draw = random.Random(seed)
        copy = folder / str(seed)
        shutil.copytree(whole, copy)
        name = files[(seed * 7) % len(files)]
        what = damage(copy / name, draw)
        # A run that is done reads no shards; before its end it does.
        if name.parts[0] == "shards":
            (copy / "out" / "train.json").unlink()
        try:
            pretrain(copy / "shards", copy / "out", model=MODEL, train=TRAIN)
        except LlmcurateError as error:
            assert "\n" not in str(error), (name, what)
            # Shards of another manifest, or of none, are other shards: wrong use.
            assert error.exit_code == 1 or what == "swap" or name.name == "manifest.json", name
        else:
            ours = weights(copy / "out")
            for key, tensor in weights(whole / "out").items():
                assert torch.equal(tensor, ours[key]), (name, what)
        shutil.rmtree(copy)


def test_a_damaged_file_gives_the_right_weights_or_one_line(whole, tmp_path):
    right_or_one_line(whole, tmp_path, range(12))


@pytest.mark.slow
def test_a_hundred_more_damaged_files_give_the_right_weights_or_one_line(whole, tmp_path):
    right_or_one_line(whole, tmp_path, range(100, 200))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_flipped_token_ends_training_and_leaves_nothing_that_was_trained_on_it(whole, tmp_path):
    shutil.copytree(whole / "shards", tmp_path / "shards")
    flip(tmp_path / "shards" / "tokens-00001.bin")
    with pytest.raises(LlmcurateError, match=r"tokens-00001\.bin: damaged.*encode again") as caught:
        pretrain(tmp_path / "shards", tmp_path / "out", model=MODEL, train=TRAIN)
    assert caught.value.exit_code == 1
    assert not complete(tmp_path / "out" / "checkpoints")
    shutil.copytree(whole / "shards", tmp_path / "shards", dirs_exist_ok=True)
    pretrain(tmp_path / "shards", tmp_path / "out", model=MODEL, train=TRAIN)
    ours, theirs = weights(tmp_path / "out"), weights(whole / "out")
    assert all(torch.equal(tensor, ours[name]) for name, tensor in theirs.items())


def test_a_file_compared_once_is_read_again_only_where_it_changed(whole, tmp_path, monkeypatch):
    shutil.copytree(whole / "shards", tmp_path / "shards")
    digest, hashed = Comparison._digest, []

    def counting(self: Comparison, path: Path) -> str | None:
        hashed.append(path.name)
        return digest(self, path)

    monkeypatch.setattr(Comparison, "_digest", counting)
    shards = read_shards(tmp_path / "shards")
    for _ in range(2):
        comparison = Comparison([shards], tmp_path / "compared.jsonl", 0)
        comparison.wait()
        comparison.close()
    assert sorted(hashed) == sorted(path.name for path, _ in shards.sums)
    flip(tmp_path / "shards" / "documents-00000.parquet")
    comparison = Comparison([shards], tmp_path / "compared.jsonl", 4)
    with pytest.raises(LlmcurateError, match=r"documents-00000\.parquet: damaged"):
        comparison.wait()
    comparison.close()
    assert comparison.failed and comparison.since == 4


def test_a_damaged_log_is_noticed_and_the_weights_are_right(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "copy")
    out = tmp_path / "copy" / "out"
    (out / "train.json").unlink()
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(lines[:2] + lines[3:]))
    notices: list[str] = []
    pretrain(whole / "shards", out, model=MODEL, train=TRAIN, on_notice=notices.append)
    assert any("metrics.jsonl: damaged before step 7" in line for line in notices)


def test_a_first_loss_that_the_log_has_lost_is_not_stated(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "copy")
    out = tmp_path / "copy" / "out"
    (out / "train.json").unlink()
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])["loss"]
    (out / "metrics.jsonl").write_text("")
    shutil.rmtree(sorted((out / "checkpoints").iterdir())[-1])
    summary = pretrain(whole / "shards", out, model=MODEL, train=TRAIN)
    assert summary["first_loss"] is None and summary["last_loss"] < first


def test_what_a_killed_process_left_half_written_goes_and_that_of_a_live_one_stays(tmp_path):
    dead, live = 2**22 + 1, 1  # no process has a number so large
    for process in (dead, live):
        (tmp_path / f".part-{process}-0123abcd-a.json").write_bytes(b"half")
        (tmp_path / f".part-{process}-0123abcd-b.json").write_bytes(b"half")
    write_atomic(tmp_path / "a.json", b"{}")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        "a.json",
        f".part-{live}-0123abcd-a.json",
        *(f".part-{process}-0123abcd-b.json" for process in (dead, live)),
    }
    clear_dead(tmp_path)
    assert not (tmp_path / f".part-{dead}-0123abcd-b.json").exists()
