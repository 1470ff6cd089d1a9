"""Tokens a second of CPU time in training on one core, beside litgpt's at equal shapes.

    sh benchmarks/peer_env.sh litgpt        # once
    python benchmarks/bench_pretrain.py     # --rounds N

The presets `tiny` and `30m`: ours is `train.loop.pretrain.pretrain` as a user runs it, with
data, documents that do not see each other, and metrics;
litgpt's the body of its loop on tokens in memory, without
documents. The two in turn, in processes of their own, one thread each (ours has another that makes
the data, which counts); medians of the processes' CPU seconds over all steps but the first of each,
since these depend less than the clock on what else the machine does. Exit status 1 where ours is
slower.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import without  # noqa: E402

TARGET = 1.0
# preset, context, rows, steps
CASES = [("tiny", 256, 8, 24), ("30m", 512, 4, 8)]


def shards(folder: Path) -> Path:
    """Documents of words in a random order, encoded with a vocabulary of 300."""
    import random

    import pyarrow as pa

    from tokenize_kit.learn.training import train_tokenizer
    from tokenize_kit.shards.writer import Layout, encode_shards

    draw = random.Random(0)
    words = "the a cat dog bird sat ran flew on over under mat tree house and then it was".split()
    texts = [" ".join(draw.choices(words, k=draw.randrange(20, 2000))) for _ in range(300)]
    train_tokenizer(texts, folder / "tokenizer", vocab=300)
    batch = pa.RecordBatch.from_pylist([{"id": str(i), "text": t} for i, t in enumerate(texts)])
    encode_shards([batch], folder / "tokenizer" / "tokenizer.json", folder / "shards", Layout())
    return folder / "shards"


def ours(data: str, name: str, context: int, rows: int, steps: int) -> None:
    """In a process of its own: train, print what the steps took."""
    import time

    import torch

    from train.config import TrainConfig
    from train.loop.pretrain import pretrain
    from train.model.presets import preset

    torch.set_num_threads(1)
    plan = TrainConfig(
        steps=steps,
        rows=rows,
        context=context,
        device="cpu",
        eval_every=10**6,
        eval_tokens=1,
        log_every=1,
        checkpoint_every=10**6,
    )
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        summary = pretrain(
            Path(data),
            Path(folder),
            model=preset(name, context=context),
            train=plan,
            on_progress=lambda line: ends.append(time.process_time()),
        )
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    # The first step's beginning is not known; the last one is followed by the checkpoint.
    seconds = [later - sooner for sooner, later in itertools.pairwise(ends[:-1])]
    print(json.dumps({"seconds": seconds, "peak_mib": peak, "parameters": summary["parameters"]}))


def run(command: list[str]) -> dict:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> int:
    if sys.argv[1:2] == ["--ours"]:
        data, name, *numbers = sys.argv[2:]
        ours(data, name, *map(int, numbers))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    peer = ROOT / ".bench" / "litgpt" / "bin" / "python"
    without("litgpt", peer)
    if not peer.is_file():
        raise SystemExit("no litgpt here: sh benchmarks/peer_env.sh litgpt")
    from train.model.presets import preset

    worst = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        data = shards(Path(folder))
        for name, context, rows, steps in CASES:
            config = preset(name)
            settings = {key: getattr(config, key) for key in ("vocab", "layers", "hidden")}
            settings |= {key: getattr(config.attention, key) for key in ("heads", "kv_heads")}
            settings["mlp_hidden"] = config.feed_forward.width
            settings |= {"context": context, "rows": rows, "steps": steps}
            times: dict[str, list[float]] = {"ours": [], "litgpt": []}
            results: dict[str, dict] = {}
            for _ in range(rounds):
                numbers = [str(value) for value in (context, rows, steps)]
                own = [sys.executable, __file__, "--ours", str(data), name, *numbers]
                theirs = [str(peer), str(ROOT / "benchmarks/peers/litgpt_steps.py")]
                for who, command in (("ours", own), ("litgpt", [*theirs, json.dumps(settings)])):
                    results[who] = run(command)
                    times[who] += results[who]["seconds"]
            if results["ours"]["parameters"] != results["litgpt"]["parameters"]:
                raise SystemExit(f"{name}: the two models are not of one shape")
            speed = {who: rows * context / statistics.median(times[who]) for who in times}
            ratio = speed["ours"] / speed["litgpt"]
            worst = min(worst, ratio)
            print(
                f"{name:5} {rows} x {context}: ours {speed['ours']:,.0f} tokens/s of CPU in "
                f"{results['ours']['peak_mib']:,.0f} MiB, litgpt {speed['litgpt']:,.0f} in "
                f"{results['litgpt']['peak_mib']:,.0f}: {ratio:.2f} times"
            )
    print(f"least {worst:.2f}, wanted {TARGET:.2f}")
    return int(worst < TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
