"""The memory that training takes, before anything is trained.

The step is run on tensors without storage (PyTorch's FakeTensorMode), and what would be alive is
counted: nothing is modelled that the trainer's own code does not say.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from train.config import TrainConfig
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.objective_settings import Masked
from train.objectives.example import Example
from train.objectives.losses import Losses
from train.optim.optimizers import optimizers


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes. ``activations``: what the backward pass needs, kept when the forward pass ends;
    ``peak``: the most that is alive at once, weights and optimiser included.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int


class Tracker(TorchDispatchMode):
    """Counts the bytes of storages alive: ``live`` now, ``peak`` at most."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self._add(value)
        return out

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def training_memory(
    config: ModelConfig,
    *,
    rows: int,
    context: int,
    precision: str = "fp32",
    recompute: bool | int = False,
    optimizer: str = "adamw",
    loss_chunk: int = 0,
) -> Memory:
    """What a step over ``rows`` x ``context`` tokens takes, with an encoder as many of source.

    ``precision``: fp32, or bf16 (autocast over float32 weights). ``loss_chunk``: as in training.
    Buffers inside kernels, PyTorch itself (some hundred MB) and what an allocator holds beyond its
    tensors are not counted: the C library's heap takes 5 to 20 % more on a CPU, unless it is told
    to give large blocks back (MALLOC_MMAP_THRESHOLD_=65536).
    """
    with FakeTensorMode(), Tracker() as tracker:
        model = Decoder(config)
        for stack in model.stacks:
            stack.recompute = recompute
        weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        tokens = torch.zeros(rows, context, dtype=torch.long)
        # Autograd adds a tied head's gradient to the embedding's in place, though not while it is
        # traced: here they are two.
        matrix, bias = model.head_weights()
        apart = matrix.detach().requires_grad_()
        vars(model)["head_weights"] = lambda: (apart, bias)
        losses = Losses(model, TrainConfig(loss_chunk=loss_chunk))
        scored = None if config.causal else torch.arange(math.ceil(Masked().rate * tokens.numel()))
        source = None if config.encoder is None else tokens
        chances = torch.zeros(rows, context, dtype=torch.float64)
        example = Example(
            inputs=tokens,
            targets=tokens,
            documents=None,
            scored=scored,
            source=source,
            chances=chances,
        )
        before = tracker.live
        with _autocast(precision):
            terms = losses(example).values()
            loss = torch.stack([term.sum for term in terms if term.weight]).sum()
            del terms
        # The loss has made the gradient of the head, which is one of the gradients.
        head = sum(w.numel() * w.element_size() for w in model.head_weights() if w is not None)
        activations = tracker.live - before - head
        loss.backward()
        del loss
        before, highest = tracker.live, tracker.peak
        stepped = optimizers(model, dataclasses.replace(TrainConfig(), optimizer=optimizer))
        stepped.step()
        state = tracker.live - before
    return Memory(
        weights=weights,
        gradients=weights,
        optimizer=state,
        activations=activations,
        peak=max(tracker.peak, highest + state),
    )


@contextlib.contextmanager
def _autocast(precision: str) -> Iterator[None]:
    if precision == "bf16":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            yield
    else:
        yield
