"""Our attention kernels compiled for GPUs, on a machine that needs none: what each takes.

    python benchmarks/attention_compile.py          # head_dim 64, 128, 256; Hopper and Ampere
    python benchmarks/attention_compile.py --gpu 90 --head-dim 128 --masks all

Triton brings NVIDIA's assembler with it. The operator and its gradient are called as on a GPU, up
to the launch. Of every kernel and its tile (attention/flash/op.py): shared memory, registers a
thread, bytes a thread that did not fit in them, and whether the tensor cores' instructions are
used. Exit status 1 where shared memory does not fit the GPU, those instructions are missing, or so
much is spilled that the tile is a mistake. It says nothing of speed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["TRITON_INTERPRET"] = "0"  # read when triton is imported

import torch
import triton
from triton.backends.compiler import GPUTarget

from train.attention.flash import op
from train.attention.flash.op import HOPPER, OTHER, padded
from train.attention.flash.spans import spans

# Bytes of shared memory a block may have, by compute capability; 8.6 and 8.9 have the least.
SHARED = {90: 227 * 1024, 80: 99 * 1024}
PRODUCTS = {90: "wgmma.mma_async", 80: "mma.sync"}
MOST_SPILLED = 1024  # bytes a thread
AT = torch.arange(300)
DOCUMENTS, PREFIX = (AT >= 100).long()[None], torch.zeros(1, 300, dtype=torch.bool)
MASKS: dict[str, dict[str, Any]] = {
    "causal": {},
    "documents": {"spans": spans(keys=300, documents=DOCUMENTS, prefix=None, positions=None)},
    "all": {
        "window": 64,
        "sinks": 1,
        "slopes": torch.ones(4),
        "spans": spans(keys=300, documents=DOCUMENTS, prefix=PREFIX, positions=AT[None]),
    },
}


class NoGpu:
    """The driver that Triton asks before a launch."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # what is compiled is kept by device

    def get_current_stream(self, device: int) -> int:
        return 0


class Compiled:
    """A kernel that is compiled instead of launched, and reported."""

    def __init__(
        self, name: str, kernel: Any, report: Callable[[str, Any, dict[str, Any]], None]
    ) -> None:
        self.name, self.kernel, self.report = name, kernel, report

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kind: Any) -> None:
            self.report(self.name, self.kernel.warmup(*args, grid=grid, **kind), kind)

        return launch


def assembled(code: str) -> str:
    """The figures of NVIDIA's assembler on a kernel."""
    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    arch = re.search(r"\.target (\w+)", code)
    assert arch is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(code)
        command = [str(assembler), "-v", f"-arch={arch[1]}", str(file), "-o", f"{file}.out"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpu", type=int, action="append", choices=sorted(SHARED))
    parser.add_argument("--head-dim", type=int, action="append")
    parser.add_argument("--masks", action="append", choices=list(MASKS))
    asked = parser.parse_args()
    wrong = compiled = gpu = 0
    mask = ""

    def report(name: str, kernel: Any, kind: dict[str, Any]) -> None:
        nonlocal wrong, compiled
        code, shared = kernel.asm["ptx"], kernel.metadata.shared
        log = assembled(code)
        registers = re.search(r"Used (\d+) registers", log)
        spilled = re.search(r"(\d+) bytes spill stores", log)
        assert registers is not None and spilled is not None
        fits = shared <= SHARED[gpu] and int(spilled[1]) <= MOST_SPILLED
        fits &= name == "rows" or PRODUCTS[gpu] in code
        compiled, wrong = compiled + 1, wrong + (not fits)
        keys = kind.get("KEYS", "")
        print(
            f"sm_{gpu} {kind['HEAD_DIM']:4} {mask:9} {name:8} {kind['QUERIES']:4} x {keys:<4}"
            f"{shared / 1024:5.0f} KiB, {registers[1]:>3} registers, {spilled[1]:>4} bytes spilled"
            f"{'' if fits else ': WRONG'}",
            flush=True,
        )

    op.forward.kernel = Compiled("forward", op.forward.kernel, report)
    for name in ("rows", "queries", "keys"):
        kernel = getattr(op.backward, f"{name}_kernel")
        setattr(op.backward, f"{name}_kernel", Compiled(name, kernel, report))
    op.refusal = lambda *_: None
    for gpu in asked.gpu or (90, 80):
        triton.runtime.driver.set_active(NoGpu(gpu))
        op.tiles = lambda size, dtype, device, long, gpu=gpu: (
            HOPPER[max(64, padded(size)), long] if gpu == 90 else OTHER[max(64, padded(size))]
        )
        for head_dim in asked.head_dim or (64, 128, 256):
            for mask in asked.masks or ("causal", "all"):
                kv_heads = 4 if mask == "causal" else 2  # groups of one compiles to other code
                q, k, v = (
                    torch.zeros(1, 300, heads, head_dim, dtype=torch.bfloat16)
                    .transpose(1, 2)
                    .requires_grad_()
                    for heads in (4, kv_heads, kv_heads)
                )
                op.flash_attention(q, k, v, **MASKS[mask])[0].sum().backward()
    print(f"{compiled} kernels compiled, {wrong} of them wrong")
    return 0 if compiled and not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
