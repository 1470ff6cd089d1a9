"""Loss spikes: a stated rule, and what is done about a step that breaks it.

A step is a spike where its loss or the norm of its gradient is not a number, and, with ``factor``
over 0, where its loss is over median + factor x MAD of the last ``window`` losses that were no
spikes (MAD: the median distance from the median; at least 0.001).

stop      the run ends, its last checkpoint kept
skip      the weights stay as they were, and the step's data is passed over
rollback  the run goes back to its last checkpoint and, when it comes there again, passes over the
          data of the last ``batches`` steps up to the spike (Chowdhery et al. 2022, section 5.1)

Passing over changes no weight: the count of steps, the rate and the order of data go on as if the
step had been. What was recorded decides the same way again, so a resume ends with the same bits.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import deque
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import encode_json, seal, unseal
from llmcurate.base.errors import RunFailed
from train.config import TrainConfig

LEAST_MAD = 0.001
MOST = 10  # spikes in a window: more are not accidents, and the run stops


class Guard:
    """Watches the losses of a run, in the order of its steps."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.losses: deque[float] = deque(maxlen=config.spike_window)
        self.spikes: list[int] = []

    def reason(self, step: int, loss: float, norm: float) -> str | None:
        """Why this step is a spike, or None; called once a step."""
        broken = self._rule(loss, norm)
        if broken is None:
            self.losses.append(loss)
            return None
        window = self.config.spike_window
        self.spikes = [*(s for s in self.spikes if s > step - window), step]
        return broken

    def _rule(self, loss: float, norm: float) -> str | None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return f"loss {loss}, or its gradient, is not a number"
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

    def dump(self) -> dict[str, Any]:
        return {"losses": list(self.losses), "spikes": self.spikes}

    def load(self, state: Any) -> None:
        """Take over what ``dump`` gave, as JSON has it; raises ``ValueError``."""
        try:
            losses = [float(value) for value in state["losses"]]
            spikes = [int(value) for value in state["spikes"]]
        except (TypeError, KeyError) as error:
            raise ValueError("no losses and spikes") from error
        self.losses = deque(losses, maxlen=self.config.spike_window)
        self.spikes = spikes


class PassedOver:
    """spikes.json: the steps whose data a rollback passes over, and why."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reasons: list[tuple[range, str]] = []
        self.spikes: list[dict[str, Any]] = []
        if path.is_file():
            try:
                self.spikes = unseal(json.loads(path.read_bytes()))["spikes"]
                for spike in self.spikes:
                    self._pass(spike)
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise RunFailed(f"{path}: cannot be read ({error}); delete it") from error

    def add(self, *, first: int, step: int, reason: str, documents: list[str], write: bool) -> None:
        """Pass over the data of the steps ``first`` to ``step``, counted from 0."""
        spike = {"step": step + 1, "from": first + 1, "reason": reason, "documents": documents}
        self.spikes.append(spike)
        self._pass(spike)
        if write:
            write_atomic(self.path, encode_json(seal({"version": 1, "spikes": self.spikes})))

    def _pass(self, spike: dict[str, Any]) -> None:
        steps = range(int(spike["from"]) - 1, int(spike["step"]))
        self._reasons.append((steps, f"passed over: step {spike['step']}: {spike['reason']}"))

    def reason(self, step: int) -> str | None:
        """The spike for which the data of ``step``, counted from 0, is passed over, or None."""
        return next((reason for steps, reason in self._reasons[::-1] if step in steps), None)
