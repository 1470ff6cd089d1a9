"""One training run: step after step, with the log, held-out scores and checkpoints on the way."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from train.checkpoint import load_model, load_optimizer, load_state, save
from train.data.feed import Feed
from train.device import autocast, pick_device
from train.errors import TrainError
from train.evaluate import HeldOut, evaluate, scored, token_losses
from train.files import sync
from train.metrics import truncate
from train.model.decoder import Decoder
from train.optim.registry import optimizers
from train.optim.schedules import learning_rate
from train.plan import Plan
from train.summary import summarise

Progress = Callable[[dict[str, Any]], None]


class Run:
    """One training run, from start or checkpoint to the summary."""

    def __init__(self, plan: Plan, feed: Feed, out: Path) -> None:
        self.plan, self.sampler, self.out = plan, feed, out
        settings = plan.train
        self.device = pick_device(settings.device)
        self.scored = scored(feed, settings.eval_tokens, settings.context)
        self.model = Decoder(plan.model, attention=settings.attention)
        self.model.initialise(settings.seed)
        self.model.to(self.device).train()
        self.optimizer = optimizers(self.model, settings)
        self.tokens = 0
        self.scores: HeldOut | None = None

    def go(self, start: Path | None, on_progress: Progress | None) -> dict[str, Any]:
        settings, first = self.plan.train, 0
        if start is not None:
            load_model(start, self.model)
            load_optimizer(start, self.model, self.optimizer)
            first, self.tokens = load_state(start)
        metrics = self.out / "metrics.jsonl"
        truncate(metrics, first)
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
        return summarise(
            self.plan,
            self.out,
            self.sampler,
            self.model,
            scores=self.scores or self.evaluate(),
            tokens=self.tokens,
        )

    def steps(self, first: int) -> Iterator[dict[str, Any]]:
        """Train step after step; yields the metrics of each, ``step`` counting steps done."""
        settings = self.plan.train
        for step in range(first, settings.steps):
            began = time.perf_counter()
            rate = learning_rate(settings, step)
            self.optimizer.rate(rate)
            batch = self.sampler.batch(step)
            with autocast(self.device):
                losses = token_losses(self.model, batch, self.device)
            loss = losses.sum() / max(1, batch.tokens)  # of a batch in which nothing counts: 0
            self.optimizer.zero_grad()
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

    def evaluate(self) -> HeldOut:
        rows = self.plan.train.rows
        return evaluate(self.model, self.scored, batch_rows=rows, autocast=autocast(self.device))

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
