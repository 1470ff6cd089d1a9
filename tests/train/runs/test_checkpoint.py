"""Checkpoints: durable before they are called so, and the ones that stay."""

from __future__ import annotations

import pytest
import torch

from tests.disk_calls import disk_calls
from tests.train.data.feed_settings import MODEL
from train.config import TrainConfig
from train.runs.checkpoint import Keep, Saver, State, best, complete, superfluous, write
from train.runs.plan import Plan


def saved(folder, step, keep, loss=None):
    plan = Plan(model=MODEL, train=TrainConfig(), shards="")
    state = State(step=step, tokens=step, held_out=None if loss is None else {"loss": loss})
    return write(folder, plan, state, {"model": WEIGHTS}, keep)


WEIGHTS = {"weight": torch.zeros(2)}
ALL = Keep(newest=9)


def test_a_checkpoint_is_on_disk_before_it_has_its_name_and_before_an_older_one_goes(tmp_path):
    old = saved(tmp_path, 1, ALL)
    with disk_calls(tmp_path) as calls:
        new = saved(tmp_path, 2, Keep(newest=1))
    files = [f"sync {new.name}/{n}" for n in ("config.json", "model.safetensors", "state.json")]
    assert calls[:6] == [*files, f"sync {new.name}", f"rename {new.name}", "sync ."]
    assert not old.exists()


def test_of_equal_held_out_losses_the_first_is_the_best(tmp_path):
    losses = {1: 3.0, 2: 2.5, 3: None, 4: 2.5, 5: 2.75, 6: 3.5}
    steps = {step: saved(tmp_path, step, ALL, loss) for step, loss in losses.items()}
    assert best(complete(tmp_path)) == best(reversed(complete(tmp_path))) == steps[2]
    gone = superfluous(tmp_path, Keep(newest=2, best=True, step=4))
    assert gone == [steps[1], steps[3]]
    assert superfluous(tmp_path, Keep(newest=1)) == [steps[n] for n in (1, 2, 3, 4, 5)]
    assert best([steps[3]]) is None


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"schedule": "wsd", "decay": 0.25}, [5, 10, 14, 15, 18]),
        ({"schedule": "wsd-sqrt", "decay": 0.5}, [5, 9, 10, 15, 18]),
        ({"schedule": "cosine", "decay": 0.5}, [5, 10, 15, 18]),
    ],
)
def test_checkpoints_are_due_now_and_then_at_the_end_and_before_wsds_decay(
    settings, steps, tmp_path
):
    train = TrainConfig(steps=18, checkpoint_every=5, warmup=0, **settings)
    plan = Plan(model=MODEL, train=train, shards="")
    saver = Saver(tmp_path, plan, first=True, parts=False)
    assert [step for step in range(1, 19) if saver.due(step)] == steps
