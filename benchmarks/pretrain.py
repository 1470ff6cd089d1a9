"""Training steps on one GPU: tokens a second, MFU and peak memory, with each option on its own.

    python benchmarks/pretrain.py              # under 8 minutes on one GPU

The presets 124m and 350m on packed documents of 600 tokens on average, the trainer's own step with
its data, in a process of its own for each line; the first line of a preset has everything on, the
others change one thing. Timed steps run with PyTorch's check that nothing waits for the device: a
step that does fails. MFU is model FLOPs (train/measure/accounting.py: 6 a matmul weight, causal
attention once) over the data sheet's dense bf16 peak. Exit status 1 where 124m is under 35 %
or 350m under 40 %. Without a GPU: `tiny` on the CPU, a few steps a line, and no target.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

VOCAB, END, MEAN = 32_000, 0, 600
TARGETS = {"124m": 0.35, "350m": 0.40}
SECONDS = 450  # lines not begun by then are left out, which counts as a miss
FULL = {"compile": True, "precision": "bf16", "attention": "auto"}
# What is changed, beside settings: "fused" and "ahead" are not settings, and are taken away here.
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("all on", {}),
    ("attention flex", {"attention": "flex"}),
    ("attention sdpa, dense mask", {"attention": "sdpa"}),
    ("not compiled", {"compile": False}),
    ("logits of all tokens at once", {"loss_chunk": 1 << 30}),
    ("optimiser not fused", {"fused": False}),
    ("data not ahead", {"ahead": False}),
    ("deterministic", {"deterministic": True}),
    ("float32", {"precision": "fp32", "attention": "flex"}),
]
ON_GPU = [("124m", 2048, 16, CHANGES), ("350m", 2048, 24, CHANGES[:1])]
ON_CPU = [
    (
        "tiny",
        256,
        4,
        [
            ("all on, not compiled", {"compile": False, "precision": "fp32"}),
            (
                "attention eager",
                {"compile": False, "precision": "fp32", "attention": "eager"},
            ),
            ("bfloat16", {"compile": False}),
            ("data not ahead", {"compile": False, "precision": "fp32", "ahead": False}),
        ],
    )
]


def data(folder: Path, tokens: int) -> Path:
    """Tokens as nanoGPT's .bin has them: documents of drawn lengths, each ended."""
    import numpy as np

    draw = np.random.default_rng(0)
    drawn = draw.integers(1, VOCAB, tokens, dtype=np.uint16)
    ends = np.cumsum(draw.geometric(1 / MEAN, tokens // MEAN * 2))
    drawn[ends[ends < tokens]] = END
    (folder / "train.bin").write_bytes(drawn.tobytes())
    return folder


def line(preset_name: str, context: int, rows: int, changes: dict[str, Any], shards: Path) -> None:
    """In a process of its own: train, print the figures."""
    import torch

    from train.config import TrainConfig
    from train.data.feed import Feed
    from train.device import same_bits
    from train.loop.backends import layer_backends
    from train.loop.distributed import Ranks
    from train.loop.start import with_model_defaults
    from train.loop.training import Run
    from train.model.presets import preset
    from train.runs.plan import Plan

    gpu = torch.cuda.is_available()
    if not gpu:
        torch.set_num_threads(1)
    fused, ahead = changes.pop("fused", True), changes.pop("ahead", True)
    warm, timed = (8, 20) if gpu else (2, 8)
    settings = TrainConfig(
        steps=warm + timed,
        rows=rows,
        context=context,
        vocab_size=VOCAB,
        end_of_text=END,
        eval_tokens=1,
        lr=1e-4,
        **(FULL | changes),
    )
    model = preset(preset_name, vocab=VOCAB, context=context)
    settings = with_model_defaults(model, settings)
    device = torch.device("cuda" if gpu else "cpu")
    feed, ranks = Feed(shards, settings), Ranks(device=device)
    determined = same_bits(device, settings.deterministic)
    with determined, tempfile.TemporaryDirectory() as folder:
        plan = Plan(model=model, train=settings, shards=feed.fingerprint)
        run = Run(plan, feed, Path(folder), ranks)
        try:
            figures = steps(run, warm, timed, fused, ahead)
        finally:
            run.stepper.close()
            run.saver.close()
    figures["attention"] = layer_backends(model, settings, device)[0].backend
    speed = rows * context / figures["seconds"]
    figures |= {"tokens_per_second": speed, "mfu": None}
    if run.peak is not None:
        figures["mfu"] = speed * run.flops / run.peak
    print(json.dumps(figures))


def steps(run: Any, warm: int, timed: int, fused: bool, ahead: bool) -> dict[str, Any]:
    """Seconds a step, and the most memory."""
    import resource

    import torch

    stepper, gpu = run.stepper, torch.cuda.is_available()
    if not fused:
        for part in run.optimizer.parts:
            for group in part.optimizer.param_groups:
                group["fused"] = False
    if not ahead:
        stepper.close()
        stepper.ahead = Behind(stepper.batches)
    for step in range(warm):
        stepper.step(step, 1e-4)
    if not gpu:
        spans = []
        for step in range(warm, warm + timed):
            began = time.perf_counter()
            stepper.step(step, 1e-4)
            spans.append(time.perf_counter() - began)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"seconds": statistics.median(spans), "peak": peak}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_sync_debug_mode("error")  # between lines of the log nothing waits
    began = time.perf_counter()
    for step in range(warm, warm + timed):
        stepper.step(step, 1e-4)
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / timed
    return {"seconds": seconds, "peak": torch.cuda.max_memory_allocated()}


class Behind:
    """In place of the thread that makes data: makes it when it is asked for."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __call__(self, step: int) -> Any:
        return self.make(step)

    def close(self) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--line", help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="tiny on a CPU, one line")
    asked = parser.parse_args()
    if asked.line:
        name, context, rows, changes, shards = json.loads(asked.line)
        line(name, context, rows, changes, Path(shards))
        return 0
    import torch

    gpu = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if gpu else "no GPU here: tiny on one thread of the CPU"
    print(f"{where}, PyTorch {torch.__version__}")
    print(f"{'preset':7}{'':30}{'attention':>10}{'tokens/s':>10}{'MFU':>8}{'peak GB':>9}")
    began, missed = time.perf_counter(), 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        shards = data(Path(folder), 4_000_000 if gpu else 200_000)
        for name, context, rows, changes in ON_GPU if gpu else ON_CPU:
            for what, change in changes[:1] if asked.smoke else changes:
                if time.perf_counter() - began > SECONDS:
                    print(f"{name:7}{what:30} not measured: out of time")
                    missed += 1
                    continue
                arguments = json.dumps([name, context, rows, change, str(shards)])
                command = [sys.executable, __file__, "--line", arguments]
                done = subprocess.run(command, capture_output=True, text=True, env=environment)
                if done.returncode:
                    why = (done.stderr.strip().splitlines() or ["no message"])[-1]
                    print(f"{name:7}{what:30} failed: {why[:100]}", flush=True)
                    missed += 1
                    continue
                result = json.loads(done.stdout.splitlines()[-1])
                share = "-" if result["mfu"] is None else f"{result['mfu']:.1%}"
                print(
                    f"{name:7}{what:30}{result['attention']:>10}{result['tokens_per_second']:10,.0f}"
                    f"{share:>8}{result['peak'] / 1e9:9.1f}",
                    flush=True,
                )
                if what == "all on" and result["mfu"] is not None:
                    missed += result["mfu"] < TARGETS[name]
    print(f"{time.perf_counter() - began:.0f} s, {missed} targets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
