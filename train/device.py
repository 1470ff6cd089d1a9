"""The device that a model computes on, and in which dtype."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from train.errors import TrainError


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TrainError(f"device {name!r}: choose auto, cpu or cuda", exit_code=2) from error
    if device.type not in ("cpu", "cuda"):
        raise TrainError(f"device {name!r}: choose auto, cpu or cuda", exit_code=2)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainError(f"device {name!r}: this PyTorch sees no GPU; use cpu", exit_code=2)
    return device


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Matrix products in bfloat16, weights and sums in float32: with ``bf16``, and with ``auto`` on
    a GPU. ``fp32``: all in float32.
    """
    dtype = computes_in(device, precision)
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def computes_in(device: torch.device, precision: str) -> torch.dtype:
    """The dtype of matrix products."""
    half = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if half else torch.float32
