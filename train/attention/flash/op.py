"""The operator ``llmcurate::flash_attention`` and the operator of its gradient. Both declare the
shapes of their results for tracing, so ``torch.compile`` keeps them in its graph and does not trace
inside them."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from llmcurate.base.errors import UsageError
from train.attention.flash import backward, forward
from train.attention.flash.spans import Spans
from train.device import generation

# Block sizes by head_dim and GPU. Other blocks add up in another order, so that a run's bits depend
# on them. ``benchmarks/attention.py --tune`` tries others; enter what it finds here. On a card that
# the table lacks, tune.py measures some, but never for a run with ``deterministic``.


@dataclass(frozen=True)
class Tile:
    """The sizes of a kernel's block: its numbers of queries and keys, the warps of a program, the
    stages of its pipeline, and the most ``registers`` that a thread may use. With fewer registers,
    more programs run on a multiprocessor at once."""

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """The keyword arguments to launch a kernel with this tile."""
        sizes = {"QUERIES": self.queries, "KEYS": self.keys}
        sizes |= {"num_warps": self.warps, "num_stages": self.stages}
        return sizes if self.registers is None else {**sizes, "maxnreg": self.registers}


@dataclass(frozen=True)
class Tiles:
    """The tiles of the kernels that multiply matrices: ``forward`` for the forward pass,
    ``of_queries`` for the gradient of queries, ``of_keys`` for the gradient of keys and values.
    ``of_shared``, if given, replaces ``of_keys`` if several query heads share a key head."""

    forward: Tile
    of_queries: Tile
    of_keys: Tile
    of_shared: Tile | None = None


# By head_dim, padded to a power of two, and if rows are long. If a mask leaves a query few keys,
# small blocks waste less. Those of 64 and 128 are the fastest that were tried on an H200
# (docs/performance.md), causal, with documents of 600 and 1,000 tokens, and with shared keys.
_H64 = Tiles(
    Tile(64, 64, 4, 3, 128), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3, 168), Tile(64, 64, 4, 3)
)
_H256 = Tiles(Tile(128, 64, 8, 2), Tile(64, 64, 8, 2), Tile(64, 64, 8, 2))
HOPPER: dict[tuple[int, bool], Tiles] = {
    (64, True): _H64,
    (64, False): _H64,
    (128, True): Tiles(
        Tile(128, 128, 8, 3), Tile(128, 64, 8, 3), Tile(64, 64, 4, 2), Tile(32, 64, 4, 3)
    ),
    (128, False): Tiles(Tile(64, 64, 4, 3), Tile(64, 32, 4, 3), Tile(32, 64, 4, 3)),
    (256, True): _H256,
    (256, False): _H256,
}
# Number of keys that a query may see from which rows are long: at 1,024 the small blocks were
# faster, at 4,096 the large ones.
LONG = 2_048
# Ampere and later with 99 KiB of shared memory per block, as consumer cards have.
OTHER: dict[int, Tiles] = {
    64: Tiles(Tile(128, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 64, 4, 2)),
    128: Tiles(Tile(128, 32, 4, 2), Tile(64, 32, 4, 2), Tile(32, 64, 4, 2)),
    256: Tiles(Tile(64, 32, 4, 1), Tile(32, 32, 4, 1), Tile(32, 32, 4, 1)),
}
_SMALL = Tile(16, 16, 1, 1)
# For the interpreter, and for float32 on a GPU, whose exact products use no tensor cores.
SMALL = Tiles(_SMALL, _SMALL, _SMALL)
SINGLE = Tiles(Tile(32, 32, 4, 1), Tile(32, 32, 4, 1), Tile(32, 32, 4, 1))


# What tune.py measured on this card, by padded head_dim, dtype and if rows are long.
MEASURED: dict[tuple[int, torch.dtype, bool], Tiles] = {}


def padded(head_dim: int) -> int:
    """Return how many dimensions a kernel computes with: the next power of two, at least 16."""
    return max(16, 1 << (head_dim - 1).bit_length())


def tiles(head_dim: int, dtype: torch.dtype, device: torch.device, long: bool) -> Tiles:
    """Return the tiles for a head_dim of up to 256. ``long``: True for ``LONG`` or more keys."""
    if (measured := MEASURED.get((padded(head_dim), dtype, long))) is not None:
        return measured
    if device.type != "cuda":
        return SMALL
    if dtype == torch.float32:
        return SINGLE if padded(head_dim) <= 128 else SMALL
    size = max(64, padded(head_dim))
    return HOPPER[size, long] if generation(device) == 9 else OTHER[size]


# Triton decides this when a kernel is defined, so it holds for the whole process.
INTERPRETED: bool = not isinstance(forward.kernel, triton.JITFunction)
MOST_HEAD_DIM = 256


def refusal(q: Tensor, slopes: Tensor | None) -> str | None:
    """Return why the kernels cannot run on such queries in this process, or None if they can."""
    if slopes is not None and slopes.requires_grad and torch.is_grad_enabled():
        return "gradients of ALiBi's slopes"
    if q.shape[-1] > MOST_HEAD_DIM:
        return f"a head_dim of {q.shape[-1]}, only up to {MOST_HEAD_DIM}"
    if q.device.type == "cpu" and not INTERPRETED:
        return "a CPU, but for tests, which set TRITON_INTERPRET=1 before triton is imported"
    if INTERPRETED and q.dtype not in (torch.float32, torch.float16):
        return f"{q.dtype} under TRITON_INTERPRET=1, where products of it are wrong: use float32"
    return None


def _like_rows(x: Tensor) -> Tensor:
    """Return an empty tensor of shape [batch, heads, length, head_dim], whose order in memory is
    [batch, length, heads, head_dim], so that the layer after attention needs no copy."""
    batch, heads, length, size = x.shape
    return x.new_empty(batch, length, heads, size).transpose(1, 2)


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(*tensors: Tensor) -> list[int]:
    return [step for tensor in tensors for step in tensor.stride()[:3]]


def _on(device: torch.device) -> AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _constants(
    starts: Tensor | None,
    prefix: Tensor | None,
    slopes: Tensor | None,
    causal: bool,
    window: int,
    sinks: int,
    head_dim: int,
) -> dict[str, int]:
    return {
        "CAUSAL": causal,
        "DOCUMENTS": starts is not None,
        "WINDOW": window > 0,
        "SINKS": window > 0 and sinks > 0,
        "PREFIX": prefix is not None,
        "SLOPES": slopes is not None,
        "HEAD_DIM": head_dim,
        "PADDED_DIM": padded(head_dim),
    }


LOG2E = 1.0 / math.log(2.0)
# Schemas are written out: PyTorch 2.4 cannot infer them from annotations that are strings.
_MASK = (
    "Tensor? starts, Tensor? ends, Tensor? origins, Tensor? prefix, Tensor? reach, "
    "Tensor? slopes, bool causal, int window, int sinks"
)
_FORWARD = f"(Tensor q, Tensor k, Tensor v, {_MASK}) -> (Tensor, Tensor)"
_BACKWARD = (
    "(Tensor grad, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_MASK}) -> (Tensor, Tensor, Tensor)"
)


@torch.library.custom_op("llmcurate::flash_attention", mutates_args=(), schema=_FORWARD)
def operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor | None,
    ends: Tensor | None,
    origins: Tensor | None,
    prefix: Tensor | None,
    reach: Tensor | None,
    slopes: Tensor | None,
    causal: bool,
    window: int,
    sinks: int,
) -> tuple[Tensor, Tensor]:
    """Return attention [batch, heads, queries, head_dim] and logsumexp float32 [batch, heads,
    queries]. ``window``: 0 for none. For other arguments see ``flash_attention`` and ``Spans``."""
    q, k, v = _dense(q), _dense(k), _dense(v)
    batch, heads, length, size = q.shape
    out = _like_rows(q)
    lse = q.new_empty(batch, heads, length, dtype=torch.float32)
    if not out.numel():
        return out, lse
    tile = tiles(size, q.dtype, q.device, _long(k, starts, window)).forward
    with _on(q.device):
        forward.kernel[(triton.cdiv(length, tile.queries), heads, batch)](
            *(q, k, v, out, lse, starts, ends, origins, prefix, reach, _slopes(slopes)),
            *_strides(q, k, v, out),
            _origins_stride(origins),
            *(heads // k.shape[1], length, k.shape[2], size**-0.5 * LOG2E, window, sinks),
            **_constants(starts, prefix, slopes, causal, window, sinks, size),
            **tile.options,
        )
    return out, lse


@torch.library.custom_op("llmcurate::flash_attention_backward", mutates_args=(), schema=_BACKWARD)
def backward_operator(
    grad: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    starts: Tensor | None,
    ends: Tensor | None,
    origins: Tensor | None,
    prefix: Tensor | None,
    reach: Tensor | None,
    slopes: Tensor | None,
    causal: bool,
    window: int,
    sinks: int,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, grad, out = (_dense(q), _dense(k), _dense(v), _dense(grad), _dense(out))
    batch, heads, length, size = q.shape
    of_q, of_k, of_v = _like_rows(q), _like_rows(k), _like_rows(k)
    if not of_q.numel():
        return of_q, of_k.zero_(), of_v.zero_()
    chosen = tiles(size, q.dtype, q.device, _long(k, starts, window))
    kind = _constants(starts, prefix, slopes, causal, window, sinks, size)
    scaled = _slopes(slopes)
    rows = lse.new_empty(*lse.shape, 2)
    lse_strides = [0, 0, 0] if grad_lse is None else _strides(grad_lse)
    numbers = (heads // k.shape[1], length, k.shape[2], size**-0.5 * LOG2E, size**-0.5)
    with _on(q.device):
        backward.rows_kernel[(triton.cdiv(length, 64), heads, batch)](
            *(out, grad, lse, grad_lse, rows),
            *_strides(out, grad),
            *(*lse_strides, length),
            LSE=grad_lse is not None,
            HEAD_DIM=size,
            PADDED_DIM=padded(size),
            QUERIES=64,
        )
        tile = chosen.of_queries
        backward.queries_kernel[(triton.cdiv(length, tile.queries), heads, batch)](
            *(q, k, v, grad, rows, of_q, starts, ends, origins, prefix, reach, scaled),
            *_strides(q, k, v, grad, of_q),
            _origins_stride(origins),
            *(*numbers, window, sinks),
            **kind,
            **tile.options,
        )
        shared = heads > k.shape[1]
        tile = chosen.of_shared if shared and chosen.of_shared else chosen.of_keys
        backward.keys_kernel[(triton.cdiv(k.shape[2], tile.keys), k.shape[1], batch)](
            *(q, k, v, grad, rows, of_k, of_v, starts, ends, origins, prefix, scaled),
            *_strides(q, k, v, grad, of_k),
            _origins_stride(origins),
            *(*numbers, window, sinks),
            **kind,
            SHARED=shared,
            **tile.options,
        )
    return of_q, of_k, of_v


def _long(k: Tensor, starts: Tensor | None, window: int) -> bool:
    return starts is None and not window and k.shape[2] >= LONG


def _slopes(slopes: Tensor | None) -> Tensor | None:
    return None if slopes is None else slopes.float().contiguous() * LOG2E


def _origins_stride(origins: Tensor | None) -> int:
    return 0 if origins is None or origins.shape[0] == 1 else origins.stride(0)


@operator.register_fake
def _(q: Tensor, k: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _like_rows(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@backward_operator.register_fake
def _(
    grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _like_rows(q), _like_rows(k), _like_rows(k)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:9])
    ctx.plain = inputs[9:]
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, *spans = ctx.saved_tensors
    if grad is None and grad_lse is None:
        return (None,) * 12
    if grad is None:
        grad = torch.zeros_like(out)
    gradients = backward_operator(grad, grad_lse, q, k, v, out, lse, *spans, *ctx.plain)
    return (*gradients, *(None,) * 9)


operator.register_autograd(_gradient, setup_context=_keep)


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    window: int | None = None,
    sinks: int = 0,
    slopes: Tensor | None = None,
    spans: Spans = Spans(),
) -> tuple[Tensor, Tensor]:
    """Return the attention of q over k and v, and the natural logarithm of each softmax's sum.

    ``q``: [batch, heads, queries, head_dim]. If there are fewer queries than keys, the queries are
    those of the last tokens. ``k``, ``v``: [batch, kv_heads, keys, head_dim]. The result has q's
    shape and dtype, the logarithms are float32 [batch, heads, queries].

    ``spans``: documents and prefix; without them each row is one document. ``slopes``: ALiBi's,
    [heads], without a gradient. ``window`` and ``sinks`` are numbers of keys, sinks from the start
    of the document. Raises ``LlmcurateError`` if the kernels do not support these tensors."""
    if refused := refusal(q, slopes):
        raise UsageError(f"attention triton does not support {refused}")
    return operator(
        *(q, k, v, spans.starts, spans.ends, spans.origins, spans.prefix, spans.reach, slopes),
        *(causal, window or 0, sinks if window else 0),
    )
