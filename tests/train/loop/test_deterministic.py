"""Runs use no operation that PyTorch lists as nondeterministic on a GPU.

The operations are recorded above the device, on a CPU. A back end that only a GPU takes (our Triton
kernels, SDPA's on a GPU) is one operation there, whose own determinism this does not test.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from train.config import TrainConfig
from train.loop.pretrain import pretrain


class Recorded(TorchDispatchMode):
    """The names of all operations, with their tensors' dtypes as they were called."""

    def __init__(self):
        super().__init__()
        self.calls = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        result = out[0] if isinstance(out, (tuple, list)) and out else out
        floating = isinstance(result, torch.Tensor) and result.is_floating_point()
        self.calls.add((func.overloadpacket.__name__, floating))
        return out


def refused():
    """Return the operations that raise in PyTorch's deterministic mode, by its own documentation:
    {name's first letters: True if only for floats}."""
    text = torch.use_deterministic_algorithms.__doc__
    _, _, text = text.partition("operations will throw a")
    names = {}
    for kind, name, rest in re.findall(r"\* :(\w+):`torch\.([\w.]+)`(.*)", text):
        if "quantized" in rest:  # resize_, of tensors that nothing here makes
            continue
        name = name.rpartition(".")[2]
        if kind == "class":  # AdaptiveMaxPool2d: adaptive_max_pool2d
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
        # As operations: upsample_*, and of two kernels of NLLLoss that of images (NLLLoss2d.cu).
        name = {"interpolate": "upsample", "nll_loss": "nll_loss2d", "nlll_oss": "nll_loss2d"}.get(
            name, name
        )
        names[name] = "floating point" in rest
    return names


def nondeterministic(recorded):
    return {
        name
        for name, floating in recorded.calls
        for start, of_floats in refused().items()
        if name.lstrip("_").startswith(start) and (floating or not of_floats)
    }


def test_the_list_names_operations_that_the_recorder_finds():
    assert {"avg_pool3d", "cumsum", "histc", "bincount", "upsample", "nll_loss2d"} <= {*refused()}
    x = torch.rand(1, 2, 6, 6, requires_grad=True)
    with Recorded() as recorded:
        x.cumsum(-1)
        torch.arange(3).cumsum(0)
        torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear").sum().backward()
        torch.nn.functional.nll_loss(x, torch.zeros(1, 6, 6, dtype=torch.long))
        torch.nn.functional.nll_loss(x[:, :, 0, 0], torch.zeros(1, dtype=torch.long))
    found = nondeterministic(recorded)
    assert {"cumsum", "upsample_bilinear2d_backward", "nll_loss2d_forward"} <= found
    assert ("cumsum", False) in recorded.calls and "nll_loss_forward" not in found


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("tiny", {"attention.window": 8, "attention.sinks": 2}),
        *(
            pytest.param(name, {}, marks=pytest.mark.lab)
            for name in ("mixtral-tiny", "deepseek-tiny", "bert-tiny", "electra-tiny", "t5-tiny")
        ),
    ],
)
def test_a_run_needs_no_operation_without_a_deterministic_form(
    model, changes, shard_folder, tmp_path
):
    train = TrainConfig(steps=2, context=32, rows=2, eval_tokens=100, deterministic=True)
    with Recorded() as recorded:
        pretrain(shard_folder, tmp_path, model=model, changes=changes, train=train)
    assert any("backward" in name for name, _ in recorded.calls)
    assert nondeterministic(recorded) == set()
