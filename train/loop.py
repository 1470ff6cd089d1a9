"""Pre-train a model on token shards: the loop, its log, and the resume.

OUT/  checkpoints/step-0000020/   see checkpoint.py
      metrics.jsonl               a line a step: what is reproducible, and "timing"
      train.json                  the summary; written last, so its presence means done
      sample.txt  tokenizer.json  a text the model wrote; the shards' tokenizer
      shards.json                 where the shards lie (which.py)
      spikes.json  tensorboard/   what a rollback passes over; by option
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.attends import attends, said
from train.checkpoint import complete, load_plan, load_state, newest, no_link, step_of
from train.config import TrainConfig
from train.data.feed import Feed
from train.distributed import Ranks, ranks
from train.errors import TrainError
from train.files import remove, write_atomic
from train.model.config import ModelConfig
from train.plan import Plan, make_plan
from train.run import Progress, Run
from train.summary import summarise
from train.which import remember


def pretrain(
    shards: Path | None,
    out: Path,
    *,
    model: ModelConfig | str = "tiny",
    train: TrainConfig | None = None,
    resume: bool = True,
    on_progress: Progress | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train ``model`` on the shards, or on the settings' sources; returns the summary. It is a
    configuration, a preset's name, or the folder of a trained model whose weights are the first.

    Stopped at any point and started again with the same settings, it goes on from the newest
    checkpoint, and on a CPU (same PyTorch, same number of threads) ends with the same bits as a run
    never stopped. A finished run returns at once. ``resume=False`` deletes the run in ``out`` and
    starts over. ``on_progress`` gets each line of metrics, ``on_notice`` before it how the text was
    packed, how often it is gone through, and how attention is computed. Raises ``TrainError``;
    training that diverges stops, its last checkpoint kept.
    """
    plan, data = make_plan(shards, model, train or TrainConfig())
    with ranks(plan.train) as group:
        if not group.first:
            on_progress = on_notice = None
        return _pretrain(plan, data, out, resume, on_progress, on_notice, group)


def _pretrain(
    plan: Plan,
    data: Feed,
    out: Path,
    resume: bool,
    on_progress: Progress | None,
    on_notice: Callable[[str], None] | None,
    group: Ranks,
) -> dict[str, Any]:
    checkpoints = out / "checkpoints"
    if group.first:
        out.mkdir(parents=True, exist_ok=True)
        if not resume:
            remove(checkpoints)
            (out / "spikes.json").unlink(missing_ok=True)
    group.wait()
    no_link(checkpoints)
    start = _start(plan, checkpoints)
    done = start is not None and load_state(start).step == plan.train.steps
    if done and (summary := _finished(out / "train.json")):
        return summary
    group.wait()  # all have looked at what is there
    if group.first:
        (out / "train.json").unlink(missing_ok=True)
        (out / "tokenizer.json").unlink(missing_ok=True)
        if data.tokenizer is not None:
            write_atomic(out / "tokenizer.json", data.tokenizer.read_bytes())
        remember(out, data)
    if on_notice is not None:
        for line in (*data.notices(), said(attends(plan.model, plan.train, group.device))):
            on_notice(line)
    run = Run(plan, data, out, group)
    run.go(start, on_progress)
    return summarise(run)


def _start(plan: Plan, checkpoints: Path) -> Path | None:
    """The checkpoint to go on from, or None; raises where going on would not be exact."""
    start = newest(checkpoints)
    if start is None:
        return None
    made = load_plan(start)
    if differ := plan.differences(made):
        raise TrainError(
            f"{start} was made under other settings ({'; '.join(differ)}): use those, another "
            "output folder, or no resume",
            exit_code=2,
        )
    settled = plan.settled(made)
    if step_of(start) > settled:
        early = [path for path in complete(checkpoints) if step_of(path) <= settled]
        first = f"delete those after {early[-1].name}" if early else "use another output folder"
        raise TrainError(
            f"{start} was made for {made.train.steps} steps, and from step {int(settled) + 1} the "
            f"learning rates of schedule {plan.train.schedule} depend on that: use "
            f"{made.train.steps} steps, or to train {plan.train.steps}, {first}",
            exit_code=2,
        )
    return start


def _finished(path: Path) -> dict[str, Any] | None:
    try:
        summary = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None
