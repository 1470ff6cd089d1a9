"""Peaks of GPUs, for the share of one that training uses (MFU)."""

from __future__ import annotations

import re

import torch

# Dense bfloat16 with float32 accumulation, FLOP/s, from NVIDIA's data sheets. A part that is not
# here has no peak: a guess would make the share wrong without a sign.
PEAKS: tuple[tuple[str, float], ...] = (
    (r"H200", 989e12),
    (r"H100( 80GB HBM3| SXM5.*)?", 989e12),
    (r"H100 PCIe", 756e12),
    (r"A100(-|  ?)(SXM4|PCIE|PCIe)-(40|80)GB", 312e12),
    (r"L40S", 362e12),
    (r"GeForce RTX 4090", 165e12),
    (r"B200", 2250e12),
)


def peak(name: str) -> float | None:
    """FLOP/s of the GPU that CUDA calls ``name``, or None."""
    plain = name.removeprefix("NVIDIA ").strip()
    return next((value for pattern, value in PEAKS if re.fullmatch(pattern, plain)), None)


def peak_of(device: torch.device) -> float | None:
    """FLOP/s of a device, or None for a CPU and for a GPU that is not in the table."""
    return peak(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
