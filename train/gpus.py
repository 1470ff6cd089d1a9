"""What GPUs can do: for the share of a peak that training uses (MFU), and for what bounds it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Gpu:
    """``flops``: dense bfloat16 with float32 accumulation, FLOP/s; ``memory``: bytes;
    ``bandwidth``: bytes/s. From NVIDIA's data sheets. ``pattern``: what CUDA calls it.
    """

    name: str
    pattern: str
    flops: float
    memory: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """FLOPs a byte from which on an operation is bound by arithmetic."""
        return self.flops / self.bandwidth


# A part that is not here has no peak: a guess would make the share wrong without a sign.
GPUS: tuple[Gpu, ...] = (
    Gpu("H200", r"H200", 989e12, 141e9, 4.8e12),
    Gpu("H100", r"H100( 80GB HBM3| SXM5.*)?", 989e12, 80e9, 3.35e12),
    Gpu("H100 PCIe", r"H100 PCIe", 756e12, 80e9, 2.0e12),
    Gpu("A100 80GB", r"A100(-|  ?)(SXM4|PCIE|PCIe)-80GB", 312e12, 80e9, 2.039e12),
    Gpu("A100 40GB", r"A100(-|  ?)(SXM4|PCIE|PCIe)-40GB", 312e12, 40e9, 1.555e12),
    Gpu("L40S", r"L40S", 362e12, 48e9, 0.864e12),
    Gpu("RTX 4090", r"GeForce RTX 4090", 165e12, 24e9, 1.008e12),
    Gpu("B200", r"B200", 2250e12, 180e9, 8.0e12),
)


def gpu(name: str) -> Gpu | None:
    """The GPU that CUDA, or a user, calls ``name``; None where it is not in the table."""
    plain = name.removeprefix("NVIDIA ").strip()
    return next((one for one in GPUS if re.fullmatch(one.pattern, plain, re.I)), None) or next(
        (one for one in GPUS if one.name.lower() == plain.lower()), None
    )


def peak(name: str) -> float | None:
    """FLOP/s of the GPU that CUDA calls ``name``, or None."""
    found = gpu(name)
    return found.flops if found else None


def peak_of(device: torch.device) -> float | None:
    """FLOP/s of a device, or None for a CPU and for a GPU that is not in the table."""
    return peak(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
