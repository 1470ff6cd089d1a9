"""A trace of some steps by torch.profiler, for Perfetto or chrome://tracing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from llmcurate.base.disk.atomic import replacing

WARM_UP = 2  # steps before those traced: the first compiles and allocates, the next warms the tool


@contextmanager
def profiled(out: Path, steps: int, left: int, device: torch.device) -> Iterator[Callable[[], Any]]:
    """A function to call after each step. Of ``left`` steps to come it has ``steps`` traced, after
    two where there are so many, into OUT/profile/trace.json; evaluations and checkpoints between
    them are in it. A run that ends before leaves what was traced.
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
