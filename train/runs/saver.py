"""The checkpoints of a run: when they are due, and writing them while it goes on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch.distributed as dist

from train.model.decoder import Decoder
from train.optim.optimizers import Optimizers
from train.optim.schedules import decay_begins
from train.optim.weights import Average
from train.runs.checkpoint import Keep, Snapshot, State, Tensors, unwritten, write, writing
from train.runs.plan import Plan


class Saver:
    """Writes a run's checkpoints: the first process whole tensors, or, where they are split, each
    its parts. ``beside``: a thread writes a copy; the next save waits for it, so that at most one
    copy is held.
    """

    def __init__(self, folder: Path, plan: Plan, *, first: bool, parts: bool) -> None:
        self.folder, self.plan, self.parts, self.writes = folder, plan, parts, first or parts
        settings = plan.train
        self.trunk = decay_begins(settings) if settings.schedule.startswith("wsd") else None
        self.keep = Keep(newest=settings.keep_checkpoints, best=settings.keep_best, step=self.trunk)
        self.beside = settings.async_checkpoints
        self._pool = ThreadPoolExecutor(1) if self.beside and self.writes else None
        self._writing: Future[None] | None = None
        # Processes that write while they train must not mix up what they say of both.
        self._group = dist.new_group(backend="gloo") if parts else None

    def due(self, step: int) -> bool:
        """After ``step`` steps: every ``checkpoint_every``, at the end, and before WSD's decay,
        from where more steps, or a decay on other data, may begin.
        """
        settings = self.plan.train
        return step in (settings.steps, self.trunk) or step % settings.checkpoint_every == 0

    def save(
        self, model: Decoder, optimizer: Optimizers, average: Average | None, state: State
    ) -> None:
        """Write what is now, or begin to; every process must call."""
        if not self.writes:
            return
        self.wait()
        tensors = {"model": model.state_dict(), "optimizer": optimizer.state(model)}
        if average is not None:
            tensors["average"] = average.weights
        if self._pool is None:
            self._write(tensors, state)
        else:
            copied = {kind: _copies(values) for kind, values in tensors.items()}
            self._writing = self._pool.submit(self._write, copied, state)

    def _write(self, tensors: dict[str, Tensors], state: State) -> None:
        if self._group is None:
            snapshot = Snapshot(plan=self.plan, state=state, tensors=tensors)
            write(self.folder, snapshot, self.keep)
            return
        from train.runs.parts import write_parts

        begin = partial(writing, self.folder, self.plan, state, self.keep)
        try:
            write_parts(tensors, begin, self._group)
        except OSError as error:  # of another process
            raise unwritten(self.folder, state, error) from error

    def wait(self) -> None:
        """Until what was begun is written; raises what went wrong there."""
        if self._writing is not None:
            begun, self._writing = self._writing, None
            begun.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None


def _copies(tensors: Tensors) -> Tensors:
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}
