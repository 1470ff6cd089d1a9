"""Memory of checkpoints under FSDP2, and of their export, on a CPU.

    python benchmarks/bench_checkpoint_memory.py     # --model 124m: ten minutes

Processes of gloo, 2 and then 4, train a model for a few steps with AdamW and an average, by the
trainer's own loop, and write a checkpoint, each its part. For each process: the most memory during
a step and during the checkpoint, beyond what it had before the model was built. Then the checkpoint
of 4 is exported, and beside its file stands the most memory that the export has of its own (pages
of the checkpoint, which is mapped, can be given back, and do not count). Exit status 1 where a
checkpoint takes over 1.1 times what a step does, or the export more than its largest file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import reached, sized  # noqa: E402

CHECKPOINT_LIMIT, EXPORT_LIMIT = 1.1, 1.0
PROCESSES, CONTEXT, STEPS = sized((2, 4), (2,)), sized(256, 64), sized(4, 2)


def memory(key: str) -> int:
    """A memory figure of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system has no /proc/self/status: run on Linux")


def train(data: str, out: str, name: str) -> None:
    """In each process: train, and write peaks of memory into ``OUT/memory-RANK.json``."""
    import torch
    import torch.distributed as dist

    from train.config import TrainConfig
    from train.loop.pretrain import pretrain
    from train.loop.training import Run

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    peaks: dict[str, list[int]] = {"steps": [], "save": []}
    before: list[int] = []

    def watched(method: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            try:
                return method(*arguments)
            finally:
                peaks[kind].append(memory("VmHWM"))

        return call

    def build(self: Run, own: Callable[[Run], None] = Run.build) -> None:
        before.append(memory("VmRSS"))
        own(self)
        self.stepper.step = watched(self.stepper.step, "steps")  # type: ignore[method-assign]

    Run.build = build  # type: ignore[method-assign]
    Run.save = watched(Run.save, "save")  # type: ignore[method-assign]
    ranks = dist.get_world_size()
    config = TrainConfig(
        steps=STEPS,
        rows=ranks,
        context=CONTEXT,
        parallel="fsdp",
        ema=0.99,
        device="cpu",
        eval_tokens=CONTEXT,
        eval_every=STEPS,
        checkpoint_every=STEPS,
    )
    pretrain(Path(data), Path(out), model=name, changes={"vocab": 32_000}, train=config)
    figures = {kind: max(values[-2:]) - before[0] for kind, values in peaks.items()}
    Path(out, f"memory-{dist.get_rank()}.json").write_text(json.dumps(figures))
    dist.barrier()
    dist.destroy_process_group()


def export(run: str, out: str) -> None:
    """Export; print the most memory of its own, and the sizes."""
    from train.hf.export import chosen
    from train.hf.export import export as write
    from train.runs.checkpoint import weights_of

    size = weights_of(chosen(Path(run))[0]).bytes
    before, own, done = memory("RssAnon"), [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            own[0] = max(own[0], memory("RssAnon"))
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    write(Path(run), Path(out))
    done.set()
    thread.join()
    files = [file.stat().st_size for file in Path(out).glob("*.safetensors")]
    print(json.dumps({"own": own[0] - before, "weights": size, "largest": max(files)}))


def child(*arguments: str, launcher: tuple[str, ...] = ()) -> str:
    command = [sys.executable, *launcher, __file__, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="30m")
    name, worst = parser.parse_args().model, 0.0
    from bench_pretrain import shards

    with tempfile.TemporaryDirectory() as folder:
        data = str(shards(Path(folder)))
        for count in PROCESSES:
            out = Path(folder, str(count))
            launcher = ("-m", "torch.distributed.run", "--standalone")
            launcher += ("--nproc-per-node", str(count))
            child("--train", data, str(out), name, launcher=launcher)
            for rank in range(count):
                peak = json.loads((out / f"memory-{rank}.json").read_bytes())
                ratio = peak["save"] / peak["steps"]
                worst = max(worst, ratio)
                print(
                    f"{name}, process {rank + 1} of {count}: step {peak['steps'] / 1e6:,.0f} MB, "
                    f"checkpoint {peak['save'] / 1e6:,.0f} MB, ratio {ratio:.2f}"
                )
        size = json.loads(child("--export", str(out), str(Path(folder, "hf"))))
    over = size["own"] / size["largest"]
    print(
        f"export of {size['weights'] / 1e6:,.0f} MB in parts: {size['own'] / 1e6:,.0f} MB of its "
        f"own, largest file {size['largest'] / 1e6:,.0f} MB, ratio {over:.2f}"
    )
    print(f"limits: checkpoint {CHECKPOINT_LIMIT}, export {EXPORT_LIMIT}")
    return int(not reached(worst <= CHECKPOINT_LIMIT and over <= EXPORT_LIMIT))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(*sys.argv[2:])
    elif sys.argv[1:2] == ["--export"]:
        export(*sys.argv[2:])
    else:
        raise SystemExit(main())
