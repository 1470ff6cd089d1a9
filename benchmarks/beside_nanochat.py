"""Losses and speed of pre-training beside nanochat's model and optimizer, on the same tokens.

    git clone https://github.com/karpathy/nanochat
    python benchmarks/beside_nanochat.py SHARDS --nanochat nanochat     # 450 steps of 64 x 1,024

SHARDS is a folder that `llmcurate pretrain` reads. The two models train in turn, nanochat's
first, in separate processes. Ours is trained by `pretrain` as a user runs it. The checkout provides
nanochat's GPT and its optimizer. The plain loop around them is in this file, with the rates and
schedules of nanochat's `base_train`: rates times the square root of the batch over 2^19
tokens, warm-up, a linear fall over the last 65 % of the steps, and a momentum and a weight decay of
Muon that change with the step.

Both read the same rows in the same order. Both are scored on the same held-out documents by the
same cross-entropy; in these rows each document is alone. Tokens per second are the median over the
intervals between log lines, without the first two, in which a model may be compiled.

What decides the comparison besides the optimizers:
- Rows hold several documents. In nanochat a token sees all earlier tokens of its row, in ours only
  those of the same document.
- nanochat has a feed-forward without gate, a table of embeddings for the values of every second
  layer, and a cap of 15 on logits, which its loss includes. The tables take memory but
  no matrix products: compare the two columns of parameters.
- On a Hopper GPU with the package `kernels`, nanochat runs FlashAttention 3, otherwise PyTorch's
  SDPA. SDPA needs a dense mask for nanochat's windows (--windows SSSL), so the default here is L:
  every layer sees all earlier tokens.
- The rates were tuned at 2^19 tokens per step. At batches of a few thousand tokens the square root
  makes them too small; --lr-scale replaces it.
- nanochat's FP8, its data loader and its evaluations are not used.

Without --nanochat only ours runs. On a CPU nothing is compiled, and everything is in float32.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import own_pages, peak_mib  # noqa: E402

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from train.config import TrainConfig
    from train.data.feed import Feed
    from train.model.config import ModelConfig
    from train.objectives.example import Example

STAND_IN = ROOT / "benchmarks" / "peers" / "nanochat_stand_in"
HEAD_DIM, WIDTH_PER_LAYER = 128, 64  # nanochat's base_train at 92d63d4 (July 2026)
# The same script's defaults.
RATES = {"embedding_lr": 0.3, "unembedding_lr": 0.008, "matrix_lr": 0.02, "scalar_lr": 0.5}
WEIGHT_DECAY, BATCH_TOKENS, TUNED_DEPTH = 0.28, 2**19, 12
WARMUP, FALL, FLOOR = 40, 0.65, 0.05
MOMENTA, MOMENTUM_STEPS = (0.85, 0.97, 0.90), 400  # first, highest, last
INTERVALS = 20  # in which speed is measured, of a run
SCORED_ROWS = 16  # at once


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training run: the folder of shards, its sizes, and how much of it is scored."""

    shards: str
    nanochat: str | None
    steps: int
    rows: int
    context: int
    depth: int
    vocab: int | None
    end_of_text: int | None
    eval_tokens: int
    windows: str
    lr_scale: float | None
    lr: float | None = None
    seed: int = 0

    def settings(self, **own: Any) -> TrainConfig:
        """Return settings of training that decide which rows a step reads."""
        from train.config import TrainConfig

        return TrainConfig(
            steps=self.steps,
            rows=self.rows,
            context=self.context,
            vocab_size=self.vocab,
            end_of_text=self.end_of_text,
            seed=self.seed,
            **own,
        )

    @property
    def warmup(self) -> int:
        """nanochat's warm-up, but at most a tenth of the steps. Ours has the same."""
        return max(1, min(WARMUP, self.steps // 10))

    @property
    def interval(self) -> int:
        """Steps between log lines, at which the CPU waits for the device."""
        return max(1, self.steps // INTERVALS)


def our_model(job: Job, vocab: int) -> ModelConfig:
    """Return our default model of nanochat's depth, which has its width, too."""
    from train.recipe import default_model

    return default_model(job.depth, vocab=vocab, context=job.context)


def our_settings(job: Job, **own: Any) -> TrainConfig:
    """Return the settings of our default recipe, with another rate if one is asked for."""
    from train.recipe import default_training

    recipe = default_training(steps=job.steps, depth=job.depth)
    rate = {} if job.lr is None else {"lr": job.lr}
    return job.settings(**{**recipe, **rate, **own})


def rate_share(step: int, steps: int, warmup: int) -> float:
    """Return the share of the learning rates that nanochat has at a step (the first is 0)."""
    if step < warmup:
        return (step + 1) / warmup
    left = (steps - step) / max(1, round(FALL * steps))
    return min(1.0, left + (1 - left) * FLOOR)


def muon_momentum(step: int, steps: int) -> float:
    """Return Muon's momentum at a step: it rises over 400 steps and falls with the rate."""
    first, highest, last = MOMENTA
    if step < MOMENTUM_STEPS:
        return first + (highest - first) * step / MOMENTUM_STEPS
    left = min(1.0, (steps - step) / max(1, round(FALL * steps)))
    return last + (highest - last) * left


def set_rates(optimizers: list[Any], step: int, job: Job) -> None:
    """Set rates, momentum and weight decay of a step in each group; Muon's have a momentum."""
    share = rate_share(step, job.steps, job.warmup)
    decay = 0.5 * (1 + math.cos(math.pi * step / job.steps))
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = group["initial_lr"] * share
        if "initial_decay" in group:
            group["momentum"] = muon_momentum(step, job.steps)
            group["weight_decay"] = group["initial_decay"] * decay


def known(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that this version of nanochat has."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


def their_model(job: Job, depth: int, vocab: int) -> Any:
    """Return nanochat's model of this depth, without memory, as its base_train.py shapes it."""
    import torch
    from nanochat.gpt import GPT, GPTConfig

    heads = -(-depth * WIDTH_PER_LAYER // HEAD_DIM)
    shape = {"sequence_len": job.context, "vocab_size": vocab, "n_layer": depth}
    shape |= {"n_head": heads, "n_kv_head": heads, "n_embd": heads * HEAD_DIM}
    with torch.device("meta"):
        return GPT(GPTConfig(**shape, **known(GPTConfig, {"window_pattern": job.windows})))


def their_optimizers(model: Any, job: Job, vocab: int) -> list[Any]:
    """Return nanochat's optimizers, with the rates of a batch of this size."""
    batch = job.rows * job.context / BATCH_TOKENS
    scale = math.sqrt(batch) if job.lr_scale is None else job.lr_scale
    tuned = their_model(job, TUNED_DEPTH, vocab)
    # So that rate x weight decay x steps is the same for each size (Wang and Aitchison 2024).
    decay = WEIGHT_DECAY * math.sqrt(batch) * scaling_weights(tuned) / scaling_weights(model)
    set_up = getattr(model, "setup_optimizer", None) or model.setup_optimizers
    rates = {name: rate * scale for name, rate in RATES.items()} | {"weight_decay": decay}
    made = set_up(**known(set_up, rates))
    optimizers = list(made) if isinstance(made, (list, tuple)) else [made]
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if group.get("momentum"):
            group["initial_decay"] = group["weight_decay"]
    return optimizers


def scaling_weights(model: Any) -> int:
    """Count the weights of blocks and head, by which nanochat scales its weight decay."""
    parts = (model.transformer["h"], model.lm_head)
    return sum(weight.numel() for part in parts for weight in part.parameters())


def theirs(job: Job) -> dict[str, Any]:
    """Train nanochat's model by a plain loop. Return its figures."""
    import torch

    from train.data.feed import Feed
    from train.device import pick_device
    from train.loop.training_step import Prefetcher
    from train.objectives.causal import Causal
    from train.objectives.example import IGNORED, examples

    device, settings = pick_device("auto"), job.settings()
    gpu = device.type == "cuda"
    if not gpu:
        torch.compiler.set_stance("force_eager")  # the optimizer compiles its functions
    feed = Feed(Path(job.shards), settings)
    vocab = feed.vocabulary.size
    torch.manual_seed(job.seed)
    model = their_model(job, job.depth, vocab).to_empty(device=device)
    model.init_weights()
    optimizers = their_optimizers(model, job, vocab)
    trained = torch.compile(model, dynamic=False) if gpu else model

    def read(example: Example) -> tuple[Tensor, Tensor]:
        targets = example.targets.masked_fill(example.targets == IGNORED, -1)
        return example.inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)

    def batch(step: int) -> Example:
        example = examples(Causal(), feed.rows, feed.numbered(step), seed=job.seed)
        return example.pinned() if gpu else example

    ahead = Prefetcher(batch, job.steps)
    # Losses that were kept one by one would hold their neighbours in the heap of a CPU.
    losses = torch.zeros(job.steps, device=device)
    intervals, targets, began = [], 0, time.perf_counter()
    for step in range(job.steps):
        example = ahead(step)
        targets += example.tokens
        set_rates(optimizers, step, job)
        loss = trained(*read(example))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        losses[step] = loss.detach()
        if (step + 1) % job.interval == 0:
            losses[step].item()  # waits for the device
            intervals.append((time.perf_counter() - began) / job.interval)
            began = time.perf_counter()
    ahead.close()
    peak = peak_bytes(device)
    model.eval()
    scored = score(
        feed, job, lambda example: model(*read(example), loss_reduction="none").flatten()
    )
    linear = [m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear)]
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "in_products": sum(linear),
        "losses": losses.tolist(),
        "intervals": intervals,
        "targets": targets,
        "peak": peak,
        "device": where(device),
        **scored,
    }


def ours(job: Job) -> dict[str, Any]:
    """Train our model as `llmcurate pretrain` does. Return its figures."""
    import torch

    from train.data.feed import Feed
    from train.device import autocast, pick_device
    from train.loop.pretrain import pretrain
    from train.measure.accounting import matmul_parameters, parameters
    from train.model.decoder import Decoder
    from train.objectives.losses import token_losses
    from train.runs.checkpoint import checkpoint_to_use, load_model

    device = pick_device("auto")
    settings = our_settings(
        job,
        compile=device.type == "cuda",
        log_every=job.interval,
        eval_every=job.steps,
        eval_tokens=1,
        checkpoint_every=job.steps,
    )
    feed = Feed(Path(job.shards), settings)
    config = our_model(job, feed.vocabulary.size)
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        pretrain(Path(job.shards), out, model=config, train=settings, on_progress=lines.append)
        peak = peak_bytes(device)
        last = checkpoint_to_use(out, "last")
        assert last is not None
        model = Decoder(config)
        load_model(last, model, average=True)
    model.eval().to(device)

    @torch.no_grad()
    def nats(example: Example) -> Tensor:
        with autocast(device, settings.precision):
            return token_losses(model, example.on(device))

    return {
        "parameters": parameters(config),
        "in_products": matmul_parameters(config),
        "losses": [line["loss"] for line in lines],
        # All lines of an interval have its mean.
        "intervals": [
            line["timing"]["seconds"] for line in lines if line["step"] % job.interval == 0
        ],
        "targets": lines[-1]["tokens"],
        "peak": peak,
        "device": where(device),
        **score(feed, job, nats),
    }


def score(feed: Feed, job: Job, nats: Callable[[Example], Tensor]) -> dict[str, Any]:
    """Return the loss per token of held-out documents, each alone in its rows, and the number of
    scored tokens. ``nats`` returns the loss of each target of a batch, 0 for padding."""
    import torch

    from train.data.rows import Rows
    from train.loop.evaluate import choose
    from train.objectives.causal import Causal
    from train.objectives.example import examples

    ((path, shards),) = feed.shards.items()
    chosen = choose(shards, feed.held_out[path], job.eval_tokens)
    rows = Rows(shards, chosen, job.context, packing="padding", most=job.eval_tokens)
    total, tokens = 0.0, 0
    with torch.no_grad():
        for first in range(0, rows.count, SCORED_ROWS):
            numbers = range(first, min(first + SCORED_ROWS, rows.count))
            example = examples(Causal(), rows, [(row, 0) for row in numbers], seed=job.seed)
            total += nats(example).double().sum().item()
            tokens += example.tokens
    return {"held_out": total / tokens, "scored": tokens}


def peak_bytes(device: torch.device) -> int:
    """Return the most memory of the device that training had, on a CPU that of the process."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return round(peak_mib() * 2**20)


def where(device: torch.device) -> str:
    import torch

    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    return f"{name}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}"


def measured(who: str, job: Job) -> dict[str, Any]:
    """Train in a separate process. Return the figures, with tokens per second."""
    paths = [str(ROOT), *([job.nanochat] if who == "nanochat" and job.nanochat else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, __file__, "--run", who, json.dumps(dataclasses.asdict(job))]
    print(f"training {who}, seed {job.seed} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{who} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    later = figures["intervals"][2:] or figures["intervals"]
    figures["speed"] = job.rows * job.context / statistics.median(later)
    last = figures["losses"][-max(1, job.steps // 10) :]
    figures["loss"] = statistics.fmean(last)
    return figures


def shown(who: str, seed: int, figures: dict[str, Any]) -> str:
    return (
        f"{who:11}{seed:4}{figures['parameters'] / 1e6:10,.1f}{figures['in_products'] / 1e6:10,.1f}"
        f"{figures['speed']:10,.0f}{figures['peak'] / 1e9:9.2f}{figures['loss']:11.4f}"
        f"{figures['held_out']:10.4f}"
    )


def compare(job: Job, seeds: int) -> None:
    """Train both models with each seed, and print their figures."""
    names = [*(["nanochat"] if job.nanochat else []), "llmcurate"]
    runs: list[dict[str, dict[str, Any]]] = []
    for seed in range(seeds):
        runs.append({})
        for who in names:
            figures = measured(who, dataclasses.replace(job, seed=seed))
            if not runs[0]:
                print(figures["device"])
                print(
                    f"depth {job.depth}, {job.steps:,} steps of {job.rows} rows of {job.context:,}"
                    f" tokens; {figures['scored']:,} held-out tokens; losses in nats per token"
                )
                print(
                    f"{'':11}{'seed':>4}{'params M':>10}{'products':>10}{'tokens/s':>10}"
                    f"{'peak GB':>9}{'last tenth':>11}{'held out':>10}"
                )
            runs[-1][who] = figures
            print(shown(who, seed, figures), flush=True)
        read = {(figures["targets"], figures["scored"]) for figures in runs[-1].values()}
        if len(read) > 1:
            raise SystemExit(f"not the same tokens were trained on and scored: {read}")
    if not job.nanochat:
        print("without --nanochat CHECKOUT only ours is measured")
        return
    speed = statistics.fmean(r["llmcurate"]["speed"] / r["nanochat"]["speed"] for r in runs)
    behind = [r["llmcurate"]["held_out"] - r["nanochat"]["held_out"] for r in runs]
    spread = f" (from {min(behind):+.4f} to {max(behind):+.4f})" if len(runs) > 1 else ""
    print(
        f"llmcurate beside nanochat: {speed:.2f} times the tokens/s, held-out loss"
        f" {statistics.fmean(behind):+.4f}{spread}"
    )


def bytes_as_tokens(folder: Path) -> Path:
    """Write the pages of docs/ as nanoGPT's .bin: a token per byte, 256 after each page."""
    import numpy as np

    pages = [np.frombuffer(page.encode(), np.uint8).astype(np.uint16) for page in own_pages()]
    ended = [np.append(page, np.uint16(256)) for page in pages]
    (folder / "train.bin").write_bytes(np.concatenate(ended).tobytes())
    return folder


def smoke() -> None:
    """Train the stand-in for nanochat and ours for a few steps."""
    sizes = {"steps": 6, "rows": 2, "context": 64, "depth": 2, "eval_tokens": 2000}
    text = {"vocab": 257, "end_of_text": 256, "windows": "L", "lr_scale": None}
    with tempfile.TemporaryDirectory() as folder:
        shards = str(bytes_as_tokens(Path(folder)))
        compare(Job(shards=shards, nanochat=str(STAND_IN), **sizes, **text), seeds=1)
    print("in place of nanochat a stand-in was trained, so the figures say nothing about it")


def main() -> int:
    if sys.argv[1:2] == ["--run"]:
        job = Job(**json.loads(sys.argv[3]))
        print(json.dumps({"nanochat": theirs, "llmcurate": ours}[sys.argv[2]](job)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("shards", nargs="?", metavar="SHARDS", help="folder of token shards")
    parser.add_argument("--nanochat", type=Path, metavar="CHECKOUT", help="folder of nanochat")
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--rows", type=int, default=64, help="rows of a step")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--depth", type=int, default=12, help="layers; the width is 64 times that")
    parser.add_argument("--vocab", type=int, help="for shards that do not record it")
    parser.add_argument("--end-of-text", type=int, help="for shards that do not record it")
    parser.add_argument("--eval-tokens", type=int, default=131_072, help="held-out tokens to score")
    parser.add_argument("--windows", default="L", help="nanochat's window_pattern, such as SSSL")
    parser.add_argument("--lr-scale", type=float, help="factor of nanochat's learning rates")
    parser.add_argument("--lr", type=float, help="our learning rate, in place of the recipe's")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each model")
    parser.add_argument("--smoke", action="store_true", help="a few steps beside a stand-in")
    asked = vars(parser.parse_args())
    seeds = asked.pop("seeds")
    if asked.pop("smoke"):
        smoke()
        return 0
    if asked["shards"] is None:
        parser.error("give SHARDS, a folder that llmcurate pretrain reads")
    if asked["nanochat"] is not None:
        if not (asked["nanochat"] / "nanochat" / "gpt.py").is_file():
            parser.error(f"{asked['nanochat']}: no nanochat/gpt.py; give nanochat's main folder")
        asked["nanochat"] = str(asked["nanochat"].resolve())
    compare(Job(**asked), seeds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
