"""Choices of the default recipe, each trained with three seeds at two sizes (docs/training.md).

    python benchmarks/bench_recipe.py TEXT -o OUT --other OTHER           # two hours
    python benchmarks/bench_recipe.py TEXT -o OUT --other OTHER --depths 1 --seeds 0 1 2

TEXT and OTHER are texts. No training reads OTHER, which comes from another source. Each variant is
compared with another one, from which it differs in one thing. Differences of the loss on OTHER, and
on held-out documents of TEXT, are paired by depth and seed; a 95 % interval that excludes 0
decides. Each training runs on one thread. The same command again continues after the last finished
training: OUT/results.json has the results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import sized  # noqa: E402

VOCAB, CONTEXT, ROWS = sized(2048, 512), 128, 8
STEPS = sized({1: 300, 2: 200}, {1: 6})  # by depth
EVAL_TOKENS = sized(32_768, 1024)
LOSSES = ("other", "held out")
RECIPE: Any = object()  # the default recipe's value
# The name of a variant, the one that it is compared with, and what it changes. Its other settings
# are those of the compared one. Names that begin with "model." are settings of the model; "rate" is
# a factor on lr; "patch" names a change to the code; "stages" have (share of the steps, rows,
# context) each.
ADAMW = {
    **{"model.zero_projections": False, "model.head.tied": True, "model.embedding.std": None},
    **{"embedding_rate": 1.0, "head_rate": 1.0, "beta1": 0.9, "optimizer": "adamw"},
    **{"schedule": "cosine", "lr": 0.003, "lr_floor": 0.1, "warmup": 20, "weight_decay": 0.1},
}
MUON = {
    **{"optimizer": "muon", "schedule": "wsd", "decay": 0.5},
    **{"lr": RECIPE, "lr_floor": 0.05, "warmup": RECIPE},
}
OWN_RATES = {
    **{"model.head.tied": RECIPE, "model.embedding.std": RECIPE},
    **{"embedding_rate": RECIPE, "head_rate": RECIPE, "beta1": RECIPE},
}
DEFAULT = "default recipe"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamW, cosine": ("", ADAMW),
    "AdamW, rate x 2": ("AdamW, cosine", {"rate": 2.0}),
    "AdamW, rate x 4": ("AdamW, cosine", {"rate": 4.0}),
    "Muon, WSD": ("AdamW, cosine", MUON),
    "zero projections": ("Muon, WSD", {"model.zero_projections": True}),
    DEFAULT: ("zero projections", OWN_RATES),
    "smaller embedding": (DEFAULT, {"model.embedding.std": 0.2}),
    "rate x 1.5": (DEFAULT, {"rate": 1.5}),
    "NorMuon": (DEFAULT, {"patch": "NorMuon"}),
    "Polar Express": (DEFAULT, {"patch": "Polar Express"}),
    "cautious decay": (DEFAULT, {"patch": "cautious decay"}),
    "cap on logits": (DEFAULT, {"model.head.softcap": 15.0}),
    "QK norm": (DEFAULT, {"model.attention.qk_norm": True}),
    "relu2": (DEFAULT, {"model.feed_forward.activation": "relu2"}),
    "value embeddings": (DEFAULT, {"patch": "value embeddings"}),
    "residual weights": (DEFAULT, {"patch": "residual weights"}),
    "short rows first": (
        DEFAULT,
        {"stages": [(0.5, 2 * ROWS, CONTEXT // 2), (0.5, ROWS, CONTEXT)]},
    ),
    "larger batches": (
        DEFAULT,
        {
            "stages": [
                (2 / 3, ROWS // 2, CONTEXT),
                (1 / 3, ROWS, CONTEXT),
                (1 / 6, 2 * ROWS, CONTEXT),
            ]
        },
    ),
}


def settings_of(name: str) -> dict[str, Any]:
    """Return all settings of a variant: its changes after those of the variants before it."""
    before, changes = VARIANTS[name]
    return (settings_of(before) if before else {}) | changes


def resolved(name: str, depth: int) -> dict[str, Any]:
    """Return the settings of a variant at a depth, with the default recipe's values."""
    from train.recipe import default_training

    own = {key: value for key, value in settings_of(name).items() if value is not RECIPE}
    settings = default_training(steps=STEPS[depth], depth=depth) | own
    settings["lr"] *= settings.pop("rate", 1.0)
    if own.get("model.feed_forward.activation") == "relu2":
        settings["model.feed_forward.width"] = 256 * depth  # as many weights as with a gate
    return settings


def prepare(text: Path, other: Path | None, out: Path) -> tuple[Path, dict[str, str]]:
    """Train a tokenizer on the text and write the shards of both; return their folders."""
    tokenizer, shards, judged = out / "tokenizer", out / "shards", out / "other"
    command = [sys.executable, "-m", "llmcurate", "tokenizer"]
    train = ["train", str(text), "-o", str(tokenizer), "--vocab", str(VOCAB), "-q"]
    encode = ["encode", str(text), "--tokenizer", str(tokenizer), "-o", str(shards), "-q"]
    todo = [train, encode]
    if other is not None:
        todo.append(["encode", str(other), "--tokenizer", str(tokenizer), "-o", str(judged), "-q"])
    for words in todo:
        subprocess.run([*command, *words], check=True, stdout=sys.stderr)
    return shards, {} if other is None else {"other": str(judged)}


def trained(
    name: str, depth: int, seed: int, shards: Path, judged: dict[str, str]
) -> dict[str, float]:
    """Train a variant once; return the losses and the CPU seconds per step."""
    from benchmarks.recipe_choices import PATCHES
    from train.config import Stage, TrainConfig
    from train.loop.pretrain import pretrain
    from train.recipe import default_model

    steps, prefix, settings = STEPS[depth], "model.", resolved(name, depth)
    patch = PATCHES[settings.pop("patch")]() if "patch" in settings else nullcontext()
    stages = [
        Stage(steps=max(1, round(share * steps)), rows=rows, context=context)
        for share, rows, context in settings.pop("stages", [])
    ]
    steps = sum(stage.steps for stage in stages) or steps
    of_model = {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}
    of_training = {k: v for k, v in settings.items() if not k.startswith(prefix)}
    fixed = {"steps": steps, "rows": ROWS, "context": CONTEXT, "seed": seed}
    rare = {"eval_every": steps, "checkpoint_every": steps, "eval_tokens": EVAL_TOKENS}
    config = TrainConfig(
        **(of_training | fixed | rare), stages=tuple(stages), eval=judged, log_every=1
    )
    clock: list[float] = []
    with tempfile.TemporaryDirectory() as folder, patch:
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
    other = {name: scores["loss"] for name, scores in summary["eval"].items()}
    return {"held out": summary["held_out_loss"], "seconds": seconds, **other}


def rows(results: dict[str, dict[str, float]], depths: list[int], seeds: list[int]) -> list[str]:
    """Return the lines of the table, for the variants whose trainings are finished."""
    from train.evaluate.paired import Mean

    lines = [
        f"{'variant':<18}{'compared with':<18}{'depths':<8}{'text':<10}{'loss':>7}  "
        f"{'difference (95 % interval)':<30}{'pairs':>5}  {'time of a step':>14}"
    ]
    for name, (before, _) in VARIANTS.items():
        for chosen in [[depth] for depth in depths] + ([depths] if len(depths) > 1 else []):
            places = [(depth, seed) for depth in chosen for seed in seeds]
            done = [place for place in places if key(name, *place) in results]
            for text in LOSSES if done else ():
                own = {place: results[key(name, *place)] for place in done}
                if any(text not in result for result in own.values()):
                    continue
                loss = Mean.over([result[text] for result in own.values()]).mean
                shown = "+".join(map(str, chosen))
                line = f"{name:<18}{before:<18}{shown:<8}{text:<10}{loss:>7.4f}"
                pairs = [
                    (result, other)
                    for place, result in own.items()
                    if before and (other := results.get(key(before, *place))) is not None
                ]
                if pairs:
                    difference = Mean.over([result[text] - other[text] for result, other in pairs])
                    ratio = sum(x["seconds"] for x, _ in pairs) / sum(
                        y["seconds"] for _, y in pairs
                    )
                    line += (
                        f"  {difference.text():<30}{len(pairs):>5}  {100 * (ratio - 1):>+12.0f} %"
                    )
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
    parser.add_argument("--other", type=Path, help="a text of another source, to judge on")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--depths", nargs="+", type=int, choices=STEPS, default=list(STEPS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path = asked.out / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    shards, judged = prepare(asked.text, asked.other, asked.out)
    compared = {VARIANTS[name][0] for name in asked.variants}
    for name in (name for name in VARIANTS if name in {*asked.variants, *compared}):
        for depth in asked.depths:
            for seed in asked.seeds:
                if (own := key(name, depth, seed)) not in results:
                    results[own] = trained(name, depth, seed, shards, judged)
                    path.write_text(json.dumps(results, indent=1))
        print("\n".join(rows(results, asked.depths, asked.seeds)), flush=True)


if __name__ == "__main__":
    main()
