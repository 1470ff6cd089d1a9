"""Tiles that are measured on a card are the fastest, right, and measured once."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch

pytest.importorskip("triton")

import triton

from tests.train.attention.cases import mask
from train.attention import attend
from train.attention.flash import op, tune
from train.attention.flash.op import Tile, Tiles
from train.config import TrainConfig
from train.loop import backends
from train.model.presets import preset

pytestmark = pytest.mark.skipif(not op.INTERPRETED, reason="TRITON_INTERPRET is 0")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path))
    monkeypatch.setattr(op, "MEASURED", {})


BEST = {
    "forward": Tile(64, 32, 4, 3),
    "of_queries": Tile(32, 64, 4, 2),
    "of_keys": op.SMALL.of_keys,
}
KEY = 16, torch.float32, False


def measure():
    q = torch.randn(1, 1, 16, 16, requires_grad=True)
    tune.measure(q, (torch.arange(16) >= 7).long()[None])


def times(monkeypatch, tried):
    """Each kernel but the best costs, and large tiles do not run at all."""

    def bench(step):
        tiles = op.MEASURED[KEY]
        tried.append(tiles)
        if 128 in (tiles.forward.queries, tiles.of_queries.queries, tiles.of_keys.queries):
            raise RuntimeError("out of resource: shared memory")
        return 1.0 + sum(getattr(tiles, kernel) != tile for kernel, tile in BEST.items())

    monkeypatch.setattr(triton.testing, "do_bench", bench)


def test_the_fastest_tile_of_each_kernel_is_measured_once(monkeypatch, tmp_path):
    tried = []
    times(monkeypatch, tried)
    for _ in range(3):
        measure()
        assert op.MEASURED.pop(KEY) == Tiles(**BEST)
    assert len(tried) == 3 * (1 + len(tune.CANDIDATES))
    (path,) = (tmp_path / "tiles").iterdir()
    for content in (b"[", b"[[1]]", b"null"):
        path.write_bytes(content)
        measure()
        assert op.MEASURED.pop(KEY) == Tiles(**BEST)


def test_what_is_timed_is_a_step_of_the_kernels_and_right_with_each_candidate(monkeypatch):
    q, k, v = torch.randn(3, 1, 2, 40, 16)
    own = mask(40, 40, documents=torch.arange(40)[None] // 13)
    wanted, differences = attend(q, k, v, own, "eager"), []

    def bench(step):
        (gradient,) = step()
        assert gradient.isfinite().all() and gradient.any()
        difference = (attend(q, k, v, own, "triton") - wanted).abs().max()
        differences.append(float(difference))
        return len(differences)

    monkeypatch.setattr(triton.testing, "do_bench", bench)
    monkeypatch.setattr(tune, "KERNELS", ("forward",))
    measure()
    assert len(differences) == 1 + len(tune.CANDIDATES) and max(differences) < 1e-5


@pytest.mark.parametrize(
    ("card", "deterministic", "measured"), [(8, False, True), (8, True, False), (9, False, False)]
)
def test_only_cards_without_a_table_are_measured_and_no_deterministic_run(
    card, deterministic, measured, monkeypatch
):
    calls = []
    monkeypatch.setattr(op, "refusal", lambda q, slopes: None)
    monkeypatch.setattr(backends, "generation", lambda device: card)
    monkeypatch.setattr(backends, "fault", lambda *case: None)
    monkeypatch.setattr(
        tune, "measure", lambda q, own: calls.append((q.shape[-1], q.dtype, own.tolist()[0][-1]))
    )
    train = TrainConfig(attention="triton", precision="bf16", deterministic=deterministic)
    assert backends.try_kernels(preset("tiny"), train, CPU) == []
    assert calls == ([(32, torch.bfloat16, 7)] if measured else [])
