"""Processes that train together. They are forked from one that has imported what they need, which
takes seconds: once for all tests, not once for each process of each of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.model.config import ModelConfig

Run = tuple[Path, Path, ModelConfig, TrainConfig]  # from which folder, into which
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        __name__,
        "tests.train.loop.split_models",
        "torch.distributed.fsdp",
        "torch.distributed.tensor.debug",
        "torch.distributed.tensor.parallel",
    ]
)


def together(count: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns in the first of ``count`` processes that call it, joined by gloo."""
    with tempfile.TemporaryDirectory() as folder:
        ends = []
        for rank in range(count):
            end, theirs = _FORKS.Pipe(duplex=False)
            place = (theirs, rank, count, f"file://{folder}/store")
            _FORKS.Process(target=_join, args=(*place, work, arguments), daemon=True).start()
            theirs.close()
            ends.append(end)
        answers = [end.recv() if end.poll(240) else (None, "no answer") for end in ends]
    failed = [error for _, error in answers if error]
    assert not failed, "\n".join(failed)
    return answers[0][0]


def train_together(count: int, runs: Iterable[Run]) -> None:
    """Each run by ``count`` processes, one after another in the same ones."""
    together(count, _train, list(runs))


def marked(cases: Iterable[str], slow: Collection[str]) -> list[Any]:
    """The names of cases as parameters of tests, these among them marked as slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in cases]


def at_hand(
    request: pytest.FixtureRequest, cases: Iterable[str], slow: Collection[str]
) -> list[str]:
    """The cases that tests of a file need: the slow ones where a test of them runs."""
    chosen = [item for item in request.session.items if item.path == request.path]
    names = {item.callspec.params.get("name") for item in chosen if hasattr(item, "callspec")}
    return [name for name in cases if name not in slow or name in names]


def lines(out: Path) -> list[dict[str, Any]]:
    """What a run has written down of its steps."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def _join(
    end: Connection, rank: int, count: int, store: str, work: Callable[..., Any], arguments: Any
) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
        end.send((work(*arguments), ""))
        dist.destroy_process_group()
    except BaseException:
        end.send((None, traceback.format_exc()))


def _train(runs: list[Run]) -> None:
    for data, out, model, plan in runs:
        pretrain(data, out, model=model, train=plan)
