"""Pre-train a model on token shards: the loop, its log, and the resume.

OUT/  checkpoints/step-0000020/   see checkpoint.py
      metrics.jsonl               a line a step: what is reproducible, and "timing"
      train.json                  the summary; written last, so its presence means done
      sample.txt  tokenizer.json  a text the model wrote; the shards' tokenizer
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from train.accounting import flops_per_token, parameters
from train.attention import BACKENDS
from train.checkpoint import (
    Plan,
    encode_json,
    load_model,
    load_optimizer,
    load_plan,
    load_state,
    newest,
    save,
    sync,
    write_atomic,
)
from train.config import TrainConfig
from train.data.rows import Rows, split
from train.data.sampler import Sampler
from train.data.shards import Shards, read_shards
from train.errors import TrainError
from train.evaluate import HeldOut, choose, evaluate, token_losses
from train.generate import continue_text, load_tokenizer
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.presets import preset
from train.optim.adamw import adamw, learning_rate

Progress = Callable[[dict[str, Any]], None]


def pretrain(
    shards: Path,
    out: Path,
    *,
    model: ModelConfig | str = "tiny",
    train: TrainConfig | None = None,
    resume: bool = True,
    on_progress: Progress | None = None,
) -> dict[str, Any]:
    """Train ``model`` (a config, or a preset's name) on the shards; returns the summary.

    Stopped at any point and started again with the same settings, it goes on from the newest
    checkpoint, and on a CPU (same PyTorch, same number of threads) ends with the same bits as a run
    never stopped. A finished run returns at once. ``resume=False`` deletes the run in ``out`` and
    starts over. ``on_progress`` gets each line of metrics. Raises ``TrainError``; training that
    diverges stops, its last checkpoint kept.
    """
    plan, data = _plan(shards, model, train or TrainConfig())
    checkpoints = out / "checkpoints"
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        shutil.rmtree(checkpoints, ignore_errors=True)
    start = newest(checkpoints)
    if start is not None and (differ := plan.differences(load_plan(start))):
        raise TrainError(
            f"{start} was made under other settings ({'; '.join(differ)}): use those, another "
            "output folder, or no resume",
            exit_code=2,
        )
    done = start is not None and load_state(start)[0] == plan.train.steps
    if done and (summary := _finished(out / "train.json")):
        return summary
    (out / "train.json").unlink(missing_ok=True)
    write_atomic(out / "tokenizer.json", (shards / "tokenizer.json").read_bytes())
    return _Run(plan, data, out).go(start, on_progress)


def _plan(shards: Path, model: ModelConfig | str, train: TrainConfig) -> tuple[Plan, Shards]:
    data = read_shards(shards)
    if isinstance(model, str):
        model = preset(model, vocab=data.vocab_size, context=train.context)
    if model.vocab < data.vocab_size:
        raise TrainError(
            f"vocab is {model.vocab}, the shards use {data.vocab_size} tokens: raise vocab",
            exit_code=2,
        )
    if model.context < train.context:
        raise TrainError(
            f"the model's context is {model.context}, training uses rows of {train.context}: "
            "make one fit the other",
            exit_code=2,
        )
    if train.attention != "auto" and train.attention not in BACKENDS:
        raise TrainError(
            f"attention {train.attention!r}: choose auto or one of {', '.join(BACKENDS)}",
            exit_code=2,
        )
    pick_device(train.device)  # refuse before anything is written
    return Plan(model=model, train=train, shards=data.fingerprint), data


def _finished(path: Path) -> dict[str, Any] | None:
    try:
        summary = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TrainError(f"device {name!r}: choose auto, cpu or cuda", exit_code=2) from error
    if device.type not in ("cpu", "cuda"):
        raise TrainError(f"device {name!r}: choose auto, cpu or cuda", exit_code=2)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainError(f"device {name!r}: this PyTorch sees no GPU; use cpu", exit_code=2)
    return device


class _Run:
    """One training run, from start or checkpoint to the summary."""

    def __init__(self, plan: Plan, shards: Shards, out: Path) -> None:
        self.plan, self.shards, self.out = plan, shards, out
        settings = plan.train
        self.device = pick_device(settings.device)
        ours, held_out = split(shards, held_out=settings.held_out, seed=settings.seed)
        self.held_out = held_out
        scored = choose(shards, held_out, settings.eval_tokens)
        self.eval_rows = Rows(shards, scored, settings.context)
        self.sampler = Sampler(
            Rows(shards, ours, settings.context, masked=True),
            batch_rows=settings.rows,
            seed=settings.seed,
        )
        self.model = Decoder(plan.model, attention=settings.attention)
        self.model.initialise(settings.seed)
        self.model.to(self.device).train()
        self.optimizer = adamw(self.model, settings)
        self.tokens = 0
        self.scores: HeldOut | None = None

    def go(self, start: Path | None, on_progress: Progress | None) -> dict[str, Any]:
        settings, first = self.plan.train, 0
        if start is not None:
            load_model(start, self.model)
            load_optimizer(start, self.model, self.optimizer)
            first, self.tokens = load_state(start)
        metrics = self.out / "metrics.jsonl"
        _truncate(metrics, first)
        with metrics.open("a", encoding="utf-8") as log:
            for line in self.steps(first):
                step = line["step"]
                last = step == settings.steps
                if last or step % settings.eval_every == 0:
                    self.scores = self.evaluate()
                    line["held_out"] = dataclasses.asdict(self.scores)
                log.write(json.dumps(line) + "\n")
                log.flush()
                if last or step % settings.checkpoint_every == 0:
                    sync(metrics)
                    self.save(step)
                if on_progress is not None:
                    on_progress({**line, "steps": settings.steps})
        return self.summarise(metrics)

    def steps(self, first: int) -> Iterator[dict[str, Any]]:
        """Train step after step; yields the metrics of each, ``step`` counting steps done."""
        settings = self.plan.train
        for step in range(first, settings.steps):
            began = time.perf_counter()
            rate = learning_rate(settings, step)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            batch = self.sampler.batch(step)
            with self.autocast():
                losses = token_losses(self.model, batch, self.device)
            loss = losses.sum() / max(1, batch.tokens)  # of a batch in which nothing counts: 0
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
            values = {"loss": float(loss.detach()), "lr": rate, "grad_norm": float(norm)}
            if not (math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])):
                raise TrainError(self.diverged(step, values["loss"]))
            self.optimizer.step()
            self.tokens += batch.tokens
            timing = {"seconds": time.perf_counter() - began}
            yield {"step": step + 1, **values, "tokens": self.tokens, "timing": timing}

    def diverged(self, step: int, loss: float) -> str:
        ids = self.sampler.document_ids(step)
        shown = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        return (
            f"step {step + 1}: loss {loss}, or its gradient, is not a number; lower lr (now "
            f"{self.plan.train.lr}) or look at the batch's documents: {shown}"
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """bfloat16 matmuls on a GPU; float32 throughout on a CPU."""
        if self.device.type == "cuda":
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return nullcontext()

    def evaluate(self) -> HeldOut:
        rows = self.plan.train.rows
        return evaluate(self.model, self.eval_rows, batch_rows=rows, autocast=self.autocast())

    def save(self, step: int) -> None:
        save(
            self.out / "checkpoints",
            plan=self.plan,
            model=self.model,
            optimizer=self.optimizer,
            step=step,
            tokens=self.tokens,
            keep=self.plan.train.keep_checkpoints,
        )

    def summarise(self, metrics: Path) -> dict[str, Any]:
        """Sample a text, write ``sample.txt`` and ``train.json``."""
        settings = self.plan.train
        scores = self.scores or self.evaluate()
        lines = _read_lines(metrics)
        sample = continue_text(
            self.model.eval(),
            load_tokenizer(self.out / "tokenizer.json"),
            "",
            max_tokens=min(200, self.plan.model.context),
            temperature=0.8,
            top_k=50,
            seed=settings.seed,
        )
        write_atomic(self.out / "sample.txt", (sample + "\n").encode("utf-8"))
        seconds = sum(line["timing"]["seconds"] for line in lines)
        attended = (settings.context + 1) / 2
        summary = {
            "parameters": parameters(self.plan.model),
            "flops_per_token": flops_per_token(self.plan.model, attended),
            "steps": settings.steps,
            "tokens": self.tokens,
            "epochs": settings.steps * settings.rows / self.sampler.rows.count,
            "first_loss": lines[0]["loss"] if lines else None,
            "last_loss": lines[-1]["loss"] if lines else None,
            "held_out_loss": scores.loss,
            "bits_per_byte": scores.bits_per_byte,
            "held_out_documents": len(self.held_out),
            "scored_documents": scores.documents,
            "scored_tokens": scores.tokens,
            "train_documents": sum(len(rows.documents) for rows in self.sampler.rows.sources),
            "train_tokens": self.sampler.rows.tokens,
            "device": self.device.type,
            "checkpoint": f"checkpoints/step-{settings.steps:07d}",
            "sample": sample,
            "plan": self.plan.to_json(),
            "timing": {"seconds": seconds, "tokens_per_second": self.tokens / max(seconds, 1e-9)},
        }
        write_atomic(self.out / "train.json", encode_json(summary))
        return summary


def _read_lines(metrics: Path) -> list[dict[str, Any]]:
    """The lines of a log; what follows a line cut off by a crash is not read."""
    lines: list[dict[str, Any]] = []
    if metrics.is_file():
        for line in metrics.read_bytes().splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                break
            if not isinstance(value, dict) or not isinstance(value.get("step"), int):
                break
            lines.append(value)
    return lines


def _truncate(metrics: Path, step: int) -> None:
    """Keep the lines of the first ``step`` steps: those after the checkpoint are made again."""
    kept = [json.dumps(line) + "\n" for line in _read_lines(metrics) if line["step"] <= step]
    write_atomic(metrics, "".join(kept).encode("utf-8"))
