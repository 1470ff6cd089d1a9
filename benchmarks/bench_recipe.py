"""Choices of the default recipe, each trained with three seeds at three sizes (docs/training.md).

    python benchmarks/bench_recipe.py TEXT -o OUT                        # an hour
    python benchmarks/bench_recipe.py TEXT -o OUT --depths 1 2 --seeds 0 1 2

TEXT is a folder of texts. Each variant is compared with another one, from which it differs in one
thing. Differences of the held-out loss are paired by depth and seed; a 95 % interval that excludes
0 decides. Each training runs on one thread. The same command again continues after the last
finished training: OUT/results.json has the results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import sized  # noqa: E402

VOCAB, CONTEXT, ROWS = sized(2048, 512), 128, 8
STEPS = sized({1: 300, 2: 200, 3: 80}, {1: 6})  # by depth
EVAL_TOKENS = sized(32_768, 1024)
# The name of a variant, the one that it is compared with, and what it changes. Its other settings
# are those of the compared one; None is the default recipe's value. Names that begin with "model."
# are settings of the model; "rate" is a factor on lr. The last variant is the default recipe.
ADAMW = {
    **{"model.zero_projections": False, "model.attention.qk_norm": False, "optimizer": "adamw"},
    **{"schedule": "cosine", "lr": 0.003, "lr_floor": 0.1, "warmup": 20, "weight_decay": 0.1},
}
MUON = {
    **{"optimizer": "muon", "schedule": "wsd", "decay": 0.5},
    **{"lr": None, "lr_floor": 0.05, "warmup": None},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamW, cosine": ("", ADAMW),
    "AdamW, rate x 2": ("AdamW, cosine", {"rate": 2.0}),
    "AdamW, rate x 4": ("AdamW, cosine", {"rate": 4.0}),
    "Muon, WSD": ("AdamW, cosine", MUON),
    "Muon, rate x 2": ("Muon, WSD", {"rate": 2.0}),
    "QK norm": ("Muon, WSD", {"model.attention.qk_norm": True}),
    "zero projections": ("Muon, WSD", {"model.zero_projections": True}),
    "NorMuon": ("zero projections", {"optimizer": "normuon"}),
    "default recipe": (
        "AdamW, cosine",
        MUON | {"model.zero_projections": True, "optimizer": "normuon"},
    ),
}


def settings_of(name: str) -> dict[str, Any]:
    """Return all settings of a variant: its changes after those of the variants before it."""
    before, changes = VARIANTS[name]
    return (settings_of(before) if before else {}) | changes


def resolved(name: str, depth: int) -> dict[str, Any]:
    """Return the settings of a variant at a depth, with the default recipe's values."""
    from train.recipe import default_training

    own = {key: value for key, value in settings_of(name).items() if value is not None}
    settings = default_training(steps=STEPS[depth], depth=depth) | own
    settings["lr"] *= settings.pop("rate", 1.0)
    return settings


def prepare(text: Path, out: Path) -> Path:
    """Train a tokenizer on the text and write its shards; return their folder."""
    tokenizer, shards = out / "tokenizer", out / "shards"
    command = [sys.executable, "-m", "llmcurate", "tokenizer"]
    train = ["train", str(text), "-o", str(tokenizer), "--vocab", str(VOCAB), "-q"]
    encode = ["encode", str(text), "--tokenizer", str(tokenizer), "-o", str(shards), "-q"]
    for words in (train, encode):
        subprocess.run([*command, *words], check=True, stdout=sys.stderr)
    return shards


def trained(name: str, depth: int, seed: int, shards: Path) -> dict[str, float]:
    """Train a variant once; return the held-out loss and the CPU seconds per step."""
    from train.config import TrainConfig
    from train.loop.pretrain import pretrain
    from train.recipe import default_model

    steps, prefix, settings = STEPS[depth], "model.", resolved(name, depth)
    of_model = {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}
    of_training = {k: v for k, v in settings.items() if not k.startswith(prefix)}
    fixed = {"steps": steps, "rows": ROWS, "context": CONTEXT, "seed": seed}
    rare = {"eval_every": steps, "checkpoint_every": steps, "eval_tokens": EVAL_TOKENS}
    config = TrainConfig(**(of_training | fixed | rare), log_every=1)
    clock: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        summary = pretrain(
            shards,
            Path(folder) / "model",
            model=default_model(depth, vocab=VOCAB, context=CONTEXT),
            changes=of_model,
            train=config,
            on_progress=lambda line: clock.append(time.process_time()),
        )
    # The first steps build kernels, the last one includes the evaluation.
    seconds = (clock[-2] - clock[1]) / (len(clock) - 3)
    return {"loss": summary["held_out_loss"], "seconds": seconds}


def rows(results: dict[str, dict[str, float]], depths: list[int], seeds: list[int]) -> list[str]:
    """Return the lines of the table, for the variants whose trainings are finished."""
    from train.evaluate.paired import Mean

    lines = [
        f"{'variant':<22}{'compared with':<20}{'loss':>7}  {'difference (95 % interval)':<30}"
        f"{'pairs':>5}  {'time of a step':>14}"
    ]
    for name, (before, _) in VARIANTS.items():
        own = {(d, s): results.get(key(name, d, s)) for d in depths for s in seeds}
        done = {place: result for place, result in own.items() if result is not None}
        if not done:
            continue
        loss = Mean.over([result["loss"] for result in done.values()]).mean
        line = f"{name:<22}{before:<20}{loss:>7.4f}"
        pairs = [
            (result, other)
            for (depth, seed), result in done.items()
            if before and (other := results.get(key(before, depth, seed))) is not None
        ]
        if pairs:
            difference = Mean.over([own["loss"] - other["loss"] for own, other in pairs]).text()
            ratio = sum(own["seconds"] for own, _ in pairs) / sum(x["seconds"] for _, x in pairs)
            line += f"  {difference:<30}{len(pairs):>5}  {100 * (ratio - 1):>+12.0f} %"
        lines.append(line)
    return lines


def key(name: str, depth: int, seed: int) -> str:
    """Return the key of a training in the results: all that decides its figures."""
    sizes = {"depth": depth, "steps": STEPS[depth], "seed": seed}
    return json.dumps(resolved(name, depth) | sizes, sort_keys=True)


def main() -> None:
    """Train what is not yet trained; print the table after each variant."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--depths", nargs="+", type=int, choices=STEPS, default=list(STEPS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path = asked.out / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    shards = prepare(asked.text, asked.out)
    compared = {VARIANTS[name][0] for name in asked.variants}
    for name in (name for name in VARIANTS if name in {*asked.variants, *compared}):
        for depth in asked.depths:
            for seed in asked.seeds:
                if (own := key(name, depth, seed)) not in results:
                    results[own] = trained(name, depth, seed, shards)
                    path.write_text(json.dumps(results, indent=1))
        print("\n".join(rows(results, asked.depths, asked.seeds)), flush=True)


if __name__ == "__main__":
    main()
