"""When and by whom checkpoints are written: at once, or by a thread beside training."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from torch import Tensor

from train.average import Average
from train.checkpoint import Keep, Snapshot, State, Tensors, write
from train.model.decoder import Decoder
from train.optim.part import Optimizers
from train.optim.schedules import decay_begins
from train.optim.whole import whole
from train.plan import Plan


class Saver:
    """Writes a run's checkpoints. ``beside``: a thread writes a copy; the next save waits for it,
    so that at most one copy is held. ``writes``: this process does; others gather only.
    """

    def __init__(self, folder: Path, plan: Plan, *, writes: bool) -> None:
        self.folder, self.plan, self.writes = folder, plan, writes
        settings = plan.train
        self.trunk = decay_begins(settings) if settings.schedule.startswith("wsd") else None
        self.keep = Keep(newest=settings.keep_checkpoints, best=settings.keep_best, step=self.trunk)
        self.beside = settings.async_checkpoints
        self._pool = ThreadPoolExecutor(1) if self.beside and writes else None
        self._writing: Future[Path] | None = None

    def due(self, step: int) -> bool:
        """After ``step`` steps: every ``checkpoint_every``, at the end, and before WSD's decay,
        from where more steps, or a decay on other data, may begin.
        """
        settings = self.plan.train
        return step in (settings.steps, self.trunk) or step % settings.checkpoint_every == 0

    def save(
        self, model: Decoder, optimizer: Optimizers, average: Average | None, state: State
    ) -> None:
        """Gather (every process must call) and write."""
        tensors = {
            "model": {name: whole(value) for name, value in model.state_dict().items()},
            "optimizer": optimizer.dump(model),
        }
        if average is not None:
            tensors["average"] = average.dump()
        if not self.writes:
            return
        self.wait()
        copied = {name: self._on_cpu(part) for name, part in tensors.items()}
        snapshot = Snapshot(plan=self.plan, state=state, tensors=copied)
        if self._pool is None:
            write(self.folder, snapshot, self.keep)
        else:
            self._writing = self._pool.submit(write, self.folder, snapshot, self.keep)

    def wait(self) -> None:
        """Until what was begun is written; raises what went wrong there."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _on_cpu(self, tensors: Tensors) -> Tensors:
        return {name: self._copy(value) for name, value in tensors.items()}

    def _copy(self, value: Tensor) -> Tensor:
        value = value.detach().contiguous()
        return value.clone() if self.beside and value.device.type == "cpu" else value.cpu()
