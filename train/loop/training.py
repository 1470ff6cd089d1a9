"""One training run: step after step, with its log, held-out scores and checkpoints.

A step is a loss spike if its loss or gradient norm is not finite. With ``spike_factor`` over 0, a
step is also a loss spike if its loss exceeds median + factor x MAD of the last ``spike_window``
losses that were not spikes (MAD: median absolute deviation; at least 0.001). The setting ``spike``
decides:

stop      the run ends and keeps its last checkpoint
skip      the weights are not updated, and the data of the step is not used
rollback  the run returns to its last checkpoint and then passes over (skips) the data of the last
          ``spike_batches`` steps up to the spike (Chowdhery et al. 2022, section 5.1)

A skipped step changes no weight. It still counts as a step for the learning rate and the order of
data. A resumed run takes the same decisions and ends with the same bits.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from llmcurate.base.disk.files import replacing, write_atomic
from llmcurate.base.disk.sealed_json import encode_json, seal, unseal
from llmcurate.base.disk.units import counted, format_duration
from llmcurate.base.errors import LlmcurateError, RunFailed
from llmcurate.base.index import modules_of
from llmcurate.base.messages import json_values
from train.config import TrainConfig, locate, model_at
from train.data.feed import Feed
from train.device import peak_memory, uncompiled
from train.loop.distributed import Ranks, place_model, reshard
from train.loop.evaluate import SCORES, Scores, Scoring, Text, evaluate, held_out_rows, terms_of
from train.loop.start import (
    Conversion,
    conversion_line,
    conversion_losses,
    load_start_weights,
    teacher_of,
)
from train.loop.training_step import Stepper
from train.measure.accounting import run_cost
from train.measure.describe import peak_of
from train.model.config import ModelConfig
from train.model.convert import conversions
from train.model.decoder import Decoder
from train.model.positions import Rotary
from train.objectives.losses import Losses
from train.objectives.objectives import both_ways, kind_of
from train.optim.optimizers import Average, optimizers
from train.optim.schedules import learning_rate
from train.runs import checkpoint
from train.runs.metrics import Log, Pending
from train.runs.plan import Plan

LEAST_MAD = 0.001
MAX_SPIKES = 10  # in a window; the run stops if there are more


class Guard:
    """Detector of loss spikes, which is given the losses of a run in the order of its steps."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.losses: deque[float] = deque(maxlen=config.spike_window)
        self.spikes: list[int] = []

    def reason(self, step: int, loss: float, norm: float) -> str | None:
        """Return why this step is a loss spike, else None. Call it once for each step."""
        reason = self._rule(loss, norm)
        if reason is None:
            self.losses.append(loss)
            return None
        window = self.config.spike_window
        self.spikes = [*(s for s in self.spikes if s > step - window), step]
        return reason

    def _rule(self, loss: float, norm: float) -> str | None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return f"loss {loss}, or its gradient, is not a finite number"
        window, factor = self.config.spike_window, self.config.spike_factor
        if not factor or len(self.losses) < window:
            return None
        middle = statistics.median(self.losses)
        mad = statistics.median(abs(loss_before - middle) for loss_before in self.losses)
        bound = middle + factor * max(mad, LEAST_MAD)
        if loss <= bound:
            return None
        return (
            f"loss {loss:.3f} is over {bound:.3f}: median {middle:.3f} + {factor:g} x MAD {mad:.3f}"
        )

    def dump(self) -> dict[str, list[float]]:
        return {"losses": list(self.losses), "spikes": [*self.spikes]}

    def load(self, state: Any) -> None:
        try:
            losses = [float(value) for value in state["losses"]]
            spikes = [int(value) for value in state["spikes"]]
        except (TypeError, KeyError) as error:
            raise ValueError("losses or spikes are missing") from error
        self.losses = deque(losses, maxlen=self.config.spike_window)
        self.spikes = spikes


@dataclasses.dataclass(frozen=True)
class Spike:
    """A loss spike. The data of steps ``first`` to ``step`` (the first step is 1) is passed
    over."""

    JSON = ("step", "from=first", "reason", "documents")
    step: int
    first: int
    reason: str
    documents: list[str]


class PassedOver:
    """The file spikes.json: steps whose data is passed over after a rollback, and why."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spikes: list[Spike] = []
        if path.is_file():
            try:
                for spike in unseal(json.loads(path.read_bytes()))["spikes"]:
                    step, first = int(spike["step"]), int(spike["from"])
                    self.spikes.append(Spike(step, first, spike["reason"], spike["documents"]))
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise RunFailed(f"{path}: cannot be read ({error}); delete it") from error

    def add(self, spike: Spike, *, write: bool) -> None:
        self.spikes.append(spike)
        if write:
            spikes = json_values(self.spikes)
            write_atomic(self.path, encode_json(seal({"version": 1, "spikes": spikes})))

    def reason(self, step: int) -> str | None:
        """Return why the data of ``step`` (counted from 0) is passed over, or None if it is not."""
        for spike in self.spikes[::-1]:
            if spike.first <= step + 1 <= spike.step:
                return f"passed over: step {spike.step}: {spike.reason}"
        return None


WARM_UP = 2  # untraced steps: the first compiles and allocates, the next warms up the profiler


@contextmanager
def profiled(out: Path, steps: int, left: int, device: torch.device) -> Iterator[Callable[[], Any]]:
    """Yield a function to call after each step. The context traces ``steps`` steps into
    OUT/profile/trace.json. If the run has enough steps ``left``, two steps of warm-up come first.
    Evaluations and checkpoints are traced, too.
    """
    if not steps:
        yield lambda: None
        return
    kinds = [ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    first = 1 if left >= steps + WARM_UP else 0
    plan = schedule(wait=first, warmup=first, active=steps, repeat=1)

    def write(trace: Any) -> None:
        (out / "profile").mkdir(exist_ok=True)
        with replacing(out / "profile" / "trace.json") as aside:
            trace.export_chrome_trace(str(aside))

    with profile(activities=kinds, schedule=plan, on_trace_ready=write) as running:
        yield running.step


@contextmanager
def compiling(say: Callable[[str], object], first: float = 5.0) -> Iterator[None]:
    """Call ``say`` with a line about the time that the ``with`` block takes: after ``first``
    seconds, after twice as many and so on, and at its end. A shorter block causes no call."""
    began, ended = time.perf_counter(), threading.Event()

    def wait() -> None:
        after = first
        while not ended.wait(max(0.0, began + after - time.perf_counter())):
            say(f"compiling the model, {format_duration(after)} so far")
            after *= 2

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if (seconds := time.perf_counter() - began) >= first:
        say(f"compiled in {format_duration(seconds)}; a later run finds it in the cache")


class Pace:
    """Estimator of the seconds left, from the operations left and the operations per second so far.
    Steps are not counted, because they differ between stages. The first call of ``left`` starts the
    measurement, so compilation is left out."""

    def __init__(self, model: ModelConfig, train: TrainConfig, done: int) -> None:
        self._model, self._train = model, train
        self._began = time.perf_counter(), self._operations(done)
        self._settled = False

    def left(self, done: int) -> float | None:
        """Return the estimated seconds left after ``done`` steps; None if nothing is measured."""
        (then, before), now, work = self._began, time.perf_counter(), self._operations(done)
        if not self._settled:
            self._began, self._settled = (now, work), True
            if self._train.compile and work:
                return None
        return work * (now - then) / (before - work) if work else 0.0

    def _operations(self, done: int) -> float:
        return run_cost(self._model, self._train, done)[1]


Progress = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of a model during training: on held-out text, and on other ``texts`` by name."""

    held_out: Scores
    texts: dict[str, Scores]


class _RolledBack(Exception):
    """Raised after a loss spike, to continue from the last checkpoint."""


class Run:
    """A training run, from its start or a checkpoint to the last step. ``check`` is called before
    each step and stops the run if it raises. ``texts`` are scored besides the held-out text.
    """

    def __init__(
        self,
        plan: Plan,
        feed: Feed,
        out: Path,
        ranks: Ranks,
        check: Callable[[], object] = bool,
        on_notice: Callable[[str], object] = bool,
        texts: dict[str, Text] | None = None,
    ) -> None:
        self.check, self.on_notice = check, on_notice
        self.plan, self.sampler, self.out, self.ranks = plan, feed, out, ranks
        settings = plan.train
        modules_of("train.lab.tasks")
        self.own_scores = SCORES.get(kind_of(settings))
        if self.own_scores is None:
            self.scored = held_out_rows(feed, settings.eval_tokens, settings.context)
        self.texts = texts or {}
        self.converted: Conversion | None = None
        self.passed = PassedOver(out / "spikes.json")
        parts = ranks.shards(settings)
        self.saver = checkpoint.Saver(out / "checkpoints", plan, first=ranks.first, parts=parts)
        positions, flops = run_cost(plan.model, settings)
        self.flops = flops / positions
        self.peak = peak_of(ranks.device)
        self.build()

    def build(self) -> None:
        """Build the model, the optimizer and all other state for the first step."""
        settings, ranks = self.plan.train, self.ranks
        build = partial(Decoder, self.plan.model, attention=settings.attention)
        self.model = place_model(build, settings, ranks).train()
        for stack in self.model.stacks:
            stack.recompute = settings.recompute
        self.model.both_ways = both_ways(settings)
        start = self.plan.start
        if start is None or checkpoint.newest(self.out / "checkpoints") is not None:
            self.model.initialise(settings.seed)
        else:
            if any(step.anew for step in conversions(start.config, self.plan.model)):
                self.model.initialise(settings.seed)
            load_start_weights(start, self.model)
        self.optimizer = optimizers(self.model, settings)
        teacher = None if self.plan.teacher_start is None else teacher_of(self.plan.teacher_start)
        if teacher is not None:
            teacher.to(ranks.device)
        self.stepper = Stepper(self.model, self.optimizer, self.sampler, settings, ranks, teacher)
        self.average = Average(self.model, settings.ema) if settings.ema else None
        self.guard = Guard(settings)
        self.tokens, self.rotation_stage = 0, -1
        self.scores: Evaluation | None = None

    def train_to_end(self, start: Path | None, on_progress: Progress | None) -> None:
        """Train from ``start`` (None: the beginning) to the end. Roll back after loss spikes."""
        settings = self.plan.train
        try:
            while True:
                first = self.load(start)
                if start is None and self.converted is None:
                    self.converted = conversion_losses(
                        self.plan,
                        self.sampler,
                        self.ranks.device,
                        lambda: self.evaluate().held_out,
                    )
                    if self.converted is not None:
                        self.on_notice(conversion_line(self.converted))
                log = self.log(first, start)
                traced = settings.profile if self.ranks.first else 0
                left = settings.steps - first
                try:
                    with profiled(self.out, traced, left, self.ranks.device) as traced_step:
                        self.steps(first, log, on_progress, traced_step)
                    self.saver.wait()
                    break
                except _RolledBack:
                    self.stepper.close()
                    self.saver.wait()
                    self.ranks.wait()
                    start = checkpoint.newest(self.out / "checkpoints")
                    self.build()
                finally:
                    if log is not None:
                        log.close()
        finally:
            self.stepper.close()
            self.saver.close()
        self.ranks.wait()

    def log(self, first: int, start: Path | None) -> Log | None:
        """Open the log at step ``first``. Compare its earlier lines with their checksum in the
        checkpoint ``start``. Return None in processes that write no log."""
        if not self.ranks.first:
            return None
        expected = checkpoint.load_state(start).log if start is not None else ""
        log = Log(self.out, first, self.plan, expected=expected)
        if log.damaged:
            self.on_notice(
                f"{log.path}: damaged before step {first + 1}; readable lines are kept, but figures"
                " of those steps may be wrong; the weights are not affected"
            )
        return log

    def load(self, start: Path | None) -> int:
        """Load the checkpoint ``start``, if any. Return the number of steps done so far."""
        if start is None:
            return 0
        checkpoint.load_model(start, self.model)
        state_of = self.optimizer.state(self.model)
        checkpoint.fill(start, checkpoint.stored(start, "optimizer"), state_of)
        if self.average is not None:
            average = checkpoint.stored(start, "average")
            checkpoint.fill(start, average, self.average.weights)
        state = checkpoint.load_state(start)
        self.tokens = state.tokens
        if state.guard is not None:
            try:
                self.guard.load(state.guard)
            except ValueError as error:
                raise RunFailed(f"{start / 'state.json'}: {error}; delete {start}") from error
        return state.step

    def steps(
        self,
        first: int,
        log: Log | None,
        on_progress: Progress | None,
        traced_step: Callable[[], object],
    ) -> None:
        """Train step after step, and call ``traced_step`` after each step. The CPU waits for the
        device only when lines are logged, or after every step if the run's setting ``spike`` is
        ``skip`` (no update in a step with a loss spike)."""
        settings, pending = self.plan.train, Pending()
        pace, epochs = Pace(self.plan.model, settings, first), self.sampler.summary().epochs
        positions, _ = run_cost(self.plan.model, settings)
        reasons: dict[int, tuple[str, int]] = {}

        def allow(loss: float, norm: float) -> bool:
            reason = self.guard.reason(step, loss, norm)
            if reason is not None:
                reasons[step] = reason, self.recent_spikes(step)
            return reason is None

        for step in range(first, settings.steps):
            self.check()
            self.set_rotation(step)
            rate, done = learning_rate(settings, step), step + 1
            measured = None
            if self.passed.reason(step) is None:
                skips = settings.spike == "skip"
                compiles = settings.compile and step == first
                with compiling(self.on_notice) if compiles else nullcontext():
                    measured = self.stepper.step(step, rate, allow if skips else None)
                if self.average is not None and measured.updated:
                    self.average.update(step)
            traced_step()
            pending.add(done, rate, measured)
            scored = done == settings.steps or done % settings.eval_every == 0
            saved = self.saver.due(done)
            # The first step compiles, so its time is not averaged with others.
            if not (scored or saved or step == first or done % settings.log_every == 0):
                continue
            lines: list[dict[str, Any]] = []
            try:
                for line in pending.collect():
                    lines.append(self.line(line, reasons))
            except LlmcurateError:
                if log is not None:
                    log.write(lines)
                raise
            if lines and lines[0]["step"] == 1 and self.converted is not None:
                lines[0]["converted"] = dataclasses.asdict(self.converted)
            self.scores = self.evaluate() if scored else None
            if self.scores is not None:
                lines[-1]["held_out"] = dataclasses.asdict(self.scores.held_out)
                if self.texts:
                    lines[-1]["eval"] = json_values(self.scores.texts)
                if measured is not None and (shares := measured.shares()) is not None:
                    lines[-1]["loads"] = shares
            if log is not None:
                log.write(lines)
            if saved:
                if log is not None:
                    log.sync()
                self.save(done, log)
            if on_progress is not None:
                left, _ = run_cost(self.plan.model, settings, done)
                ahead = {"steps": settings.steps, "seconds_left": pace.left(done)}
                ahead["epochs"] = epochs * (1 - left / positions)
                for line in lines:
                    on_progress({**line, **ahead})
            pending.restart()

    def set_rotation(self, step: int) -> None:
        """Set the frequencies of rotary positions for the training stage that contains ``step``."""
        stage, _ = locate(self.plan.train, step)
        if self.rotation_stage == stage:
            return
        for stack in self.model.stacks:
            if isinstance(stack.positions, Rotary):
                stack.positions.tune(model_at(self.plan.model, self.plan.train, stage))
        self.rotation_stage = stage

    def line(self, line: dict[str, Any], reasons: dict[int, tuple[str, int]]) -> dict[str, Any]:
        """Complete a step's log ``line`` by further figures, and handle the step if it is a loss
        spike. ``reasons`` has (reason, number of recent spikes) for each skipped step."""
        settings, step = self.plan.train, line["step"] - 1
        updated = line.pop("updated")
        if (skipped := self.passed.reason(step)) is not None:
            line["skipped"] = skipped
        else:
            if not settings.z_loss:
                del line["z_loss"]
            if settings.spike != "skip":
                reason = self.guard.reason(step, line["loss"], line["grad_norm"])
                if reason is not None:
                    self.spike(step, reason)
            elif not updated:
                line["skipped"], recent = reasons[step]
                line["documents"] = self.sampler.document_ids(step)
                self.raise_if_too_many_spikes(step, line["skipped"], recent)
        if updated:
            self.tokens += line["tokens"]
        line["tokens"] = self.tokens
        rate = line.pop("read") / max(line["timing"]["seconds"], 1e-9)
        line["timing"] |= {"tokens_per_second": rate, "flops_per_second": rate * self.flops}
        line["timing"]["memory"] = peak_memory(self.ranks.device)
        if self.peak is not None:
            line["timing"]["mfu"] = rate * self.flops / (self.peak * self.ranks.count)
        return line

    def spike(self, step: int, reason: str) -> None:
        """Raise ``RunFailed`` for a loss spike, or ``_RolledBack``, after which the run continues
        from its last checkpoint. The setting ``spike`` decides. ``reason`` is for messages."""
        settings, ids = self.plan.train, self.sampler.document_ids(step)
        if settings.spike == "stop":
            raise RunFailed(
                f"step {step + 1}: {reason}; lower lr (now {settings.lr}), set spike to "
                f"skip, or look at the batch's documents: {_shown(ids)}"
            )
        self.raise_if_too_many_spikes(step, reason, self.recent_spikes(step))
        self.saver.wait()
        self.ranks.wait()
        start = checkpoint.newest(self.out / "checkpoints")
        checkpoint_step = checkpoint.load_state(start).step if start is not None else 0
        first = max(checkpoint_step, step + 1 - settings.spike_batches)
        self.passed.add(Spike(step + 1, first + 1, reason, ids), write=self.ranks.first)
        raise _RolledBack

    def recent_spikes(self, step: int) -> int:
        """Count the loss spikes in the last ``spike_window`` steps, including those rolled back."""
        before = [spike.step - 1 for spike in self.passed.spikes]
        first = step - self.plan.train.spike_window
        return len({spike for spike in (*before, *self.guard.spikes) if first < spike <= step})

    def raise_if_too_many_spikes(self, step: int, reason: str, recent: int) -> None:
        settings = self.plan.train
        if recent > MAX_SPIKES:
            raise RunFailed(
                f"step {step + 1}: {reason}; {recent} of the last"
                f" {counted(settings.spike_window, 'step')} were "
                f"spikes: lower lr (now {settings.lr}); the last batch's documents: "
                f"{_shown(self.sampler.document_ids(step))}"
            )

    def evaluate(self) -> Evaluation:
        """Score held-out text by the run's objective, other texts by next-token prediction."""
        settings = self.plan.train
        scoring = Scoring(self.ranks, settings.rows, settings.precision, settings.loss_chunk)
        with uncompiled(), self.average.swapped() if self.average is not None else nullcontext():
            held_out = self._held_out(scoring)
            texts = {
                name: text.score(text.nats(self.model, scoring))
                for name, text in self.texts.items()
            }
            reshard(self.model)
        return Evaluation(held_out=held_out, texts=texts)

    def _held_out(self, scoring: Scoring) -> Scores:
        model, objective, settings = self.model, self.stepper.objective, self.plan.train
        if self.own_scores is not None:
            return self.own_scores(model, self.sampler, objective, scoring)
        scores = evaluate(model, self.scored, objective, scoring)
        terms = terms_of(Losses(model, settings), self.scored, objective, scoring)
        return dataclasses.replace(scores, terms=terms)

    def save(self, step: int, log: Log | None) -> None:
        scores = None if self.scores is None else dataclasses.asdict(self.scores.held_out)
        state = checkpoint.State(
            step=step,
            tokens=self.tokens,
            held_out=scores,
            guard=self.guard.dump(),
            log="" if log is None else log.checksum,
        )
        self.saver.save(self.model, self.optimizer, self.average, state)


def _shown(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
