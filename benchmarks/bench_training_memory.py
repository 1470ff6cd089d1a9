"""The estimate of training memory against what training takes on a CPU.

    python benchmarks/bench_training_memory.py

For five cases, each in a process of its own: `train.measure.estimate.training_memory`, and the most
memory of two steps of AdamW beyond what the process had before. The estimate counts tensors, so it
is compared with a process whose C library gives large blocks back at once; what its heap keeps
otherwise, by default, is printed beside. Exit status 1 where the estimate is off by more than 10 %.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import sized

LIMIT = 0.10
CASES = [
    ("tiny", 8, 256, False),
    ("30m", 1, 128, False),
    ("30m", 4, 512, False),
    ("30m", 4, 512, True),
    ("gpt2", 2, 256, False),
]


def measure(name: str, rows: int, context: int, recompute: bool) -> dict[str, float]:
    """Estimate and measured bytes of one case, in this process."""
    import torch

    from train.config import TrainConfig
    from train.measure.describe import training_memory
    from train.model.decoder import Decoder
    from train.model.presets import preset
    from train.objectives.example import Example
    from train.objectives.losses import Losses

    def step(model: Decoder, optimizer: torch.optim.Optimizer, shape: tuple[int, int]) -> None:
        tokens = torch.randint(0, model.config.vocab, shape)
        documents = torch.zeros(shape, dtype=torch.long)
        example = Example(inputs=tokens, targets=tokens, documents=documents)
        loss = Losses(model, TrainConfig())(example)["objective"].sum
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def build(config: object) -> tuple[Decoder, torch.optim.Optimizer]:
        model = Decoder(config)  # type: ignore[arg-type]
        model.stack.recompute = recompute
        return model, torch.optim.AdamW(model.parameters(), fused=True)

    torch.set_num_threads(1)
    step(*build(preset("tiny", context=64)), (1, 64))  # what PyTorch loads when first used
    config = preset(name, context=context)
    estimate = training_memory(config, rows=rows, context=context, recompute=recompute).peak
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    built = build(config)
    for _ in range(2):
        step(*built, (rows, context))
    return {"estimate": estimate, "measured": resident("VmHWM") - before}


def resident(key: str) -> int:
    """A memory figure of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system has no /proc/self/status: run on Linux")


def main() -> int:
    if len(sys.argv) > 1:
        name, rows, context, recompute = json.loads(sys.argv[1])
        print(json.dumps(measure(name, rows, context, recompute)))
        return 0
    worst = 0.0
    for case in CASES[: sized(None, 1)]:
        command = [sys.executable, __file__, json.dumps(case)]
        results = []
        for more in ({"MALLOC_MMAP_THRESHOLD_": "65536"}, {}):
            environment = {**os.environ, **more}
            run = subprocess.run(command, check=True, capture_output=True, env=environment)
            results.append(json.loads(run.stdout))
        estimate, measured, kept = (
            results[0]["estimate"] / 1e6,
            results[0]["measured"] / 1e6,
            results[1]["measured"] / 1e6,
        )
        off = estimate / measured - 1
        worst = max(worst, abs(off))
        name, rows, context, recompute = case
        print(
            f"{name:6} {rows} x {context:4}{' recompute' if recompute else '':10}  "
            f"estimate {estimate:7.0f} MB, measured {measured:7.0f} MB: {100 * off:+.1f} %; "
            f"default heap {kept:7.0f} MB"
        )
    print(f"worst {100 * worst:.1f} %, limit {100 * LIMIT:.0f} %")
    return int(worst > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
