"""A model on paper: what it is made of, what it costs, what bounds it, whether it fits, and what
serving it takes: weights in several precisions, keys and values, texts at once."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import change
from train.config import TrainConfig
from train.measure import accounting
from train.model.attention_settings import Grouped, Latent
from train.model.config import Attention, ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Experts
from train.model.plugin_settings import Plugin
from train.objective_settings import Masked
from train.objectives.example import Example
from train.objectives.losses import Losses, chunk_of
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
        held = sum(weight.numel() * weight.element_size() for weight in model.parameters())
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
        weights=held,
        gradients=held,
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


# The share of a GPU's memory that weights and cache may take; activations and buffers need the
# rest. That of vLLM (gpu_memory_utilization).
USABLE = 0.9
BATCHES = (1, 8, 32)
# Weights of the matrices in blocks, bits; others stay in bf16, as in GPTQ.
PRECISIONS = {"bf16": 16, "8 bit": 8, "4 bit": 4}
GROUP = 128  # weights that share a scale of 16 bits and a zero point (Frantar et al. 2023)


def weight_bytes(config: ModelConfig, bits: int = 16) -> int:
    """Bytes of all weights that serving needs where matrices in blocks are kept in so many bits."""
    each = float(bits) if bits == 16 else bits + (16 + bits) / GROUP
    total = 0.0
    for role, numbers, _ in accounting.weights(config):
        if role.part in ("mtp", "generator"):
            continue
        total += numbers * (each if role.use == "matrix" else 16) / 8
    return round(total)


def most_texts(config: ModelConfig, memory: float, context: int, bits: int = 16) -> int:
    """How many texts of ``context`` tokens a GPU of ``memory`` bytes serves at once, keys and
    values in bf16; 0 where one is too many, or the weights alone are too large.
    """
    room = USABLE * memory - weight_bytes(config, bits)
    return max(0, int(room // accounting.cache_bytes(config, context)))


def serving(config: ModelConfig, *, memory: float, context: int, batch: int = 1) -> dict[str, Any]:
    """As plain values: bytes, and how many texts at once fit into ``memory`` bytes of a GPU.
    ``heads``: the model as it is beside the same one with other numbers of keys to its queries.
    """
    contexts = sorted({max(1, context // 4), max(1, context // 2), context})
    batches = sorted({*BATCHES, batch})
    return {
        "usable": USABLE * memory,
        "weights": {name: weight_bytes(config, bits) for name, bits in PRECISIONS.items()},
        "contexts": contexts,
        "cache": [
            {
                "batch": texts,
                "bytes": [texts * accounting.cache_bytes(config, length) for length in contexts],
            }
            for texts in batches
        ],
        "most": {
            name: [most_texts(config, memory, length, bits) for length in contexts]
            for name, bits in PRECISIONS.items()
        },
        "heads": [
            {
                "kind": accounting.sharing(shared),
                "kv_heads": shared.attention.kv_heads,
                "own": shared.attention == config.attention,
                "bytes_per_token": accounting.cache_bytes_per_token(shared),
                "weights": weight_bytes(shared),
                "most": [most_texts(shared, memory, length) for length in contexts],
            }
            for shared in _shared(config)
        ],
    }


def _shared(config: ModelConfig) -> list[ModelConfig]:
    """With as many keys as queries, with the model's own number or else 8, and with one. Of latent
    attention these have the plain dimensions of its heads (DeepSeek-V2, table 1), and it is last.
    """
    own_attention = config.attention
    if isinstance(own_attention, Latent):
        heads, size = own_attention.heads, own_attention.plain_dim
        grouped_attention = Grouped(heads=heads, kv_heads=heads, head_dim=size)
        return [*_shared(dataclasses.replace(config, attention=grouped_attention)), config]
    heads = config.attention.heads
    kv_heads = config.attention.kv_heads
    grouped = [8] if kv_heads in (1, heads) and heads % 8 == 0 else []
    counts = sorted({heads, kv_heads, *grouped, 1}, reverse=True)
    return [change(config, {"attention.kv_heads": count}, "model") for count in counts]


@dataclass(frozen=True)
class Gpu:
    """``flops``: dense bfloat16 with float32 accumulation, FLOP/s; ``memory``: bytes;
    ``bandwidth``: bytes/s. From NVIDIA's data sheets. ``pattern``: what CUDA calls it.
    """

    name: str
    pattern: str
    flops: float
    memory: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """FLOPs a byte from which on an operation is bound by arithmetic."""
        return self.flops / self.bandwidth


# A part that is not here has no peak: a guess would make the share wrong without a sign.
GPUS: tuple[Gpu, ...] = (
    Gpu("H200", r"H200", 989e12, 141e9, 4.8e12),
    Gpu("H100", r"H100( 80GB HBM3| SXM5.*)?", 989e12, 80e9, 3.35e12),
    Gpu("H100 PCIe", r"H100 PCIe", 756e12, 80e9, 2.0e12),
    Gpu("A100 80GB", r"A100(-|  ?)(SXM4|PCIE|PCIe)-80GB", 312e12, 80e9, 2.039e12),
    Gpu("A100 40GB", r"A100(-|  ?)(SXM4|PCIE|PCIe)-40GB", 312e12, 40e9, 1.555e12),
    Gpu("L40S", r"L40S", 362e12, 48e9, 0.864e12),
    Gpu("RTX 4090", r"GeForce RTX 4090", 165e12, 24e9, 1.008e12),
    Gpu("B200", r"B200", 2250e12, 180e9, 8.0e12),
)


def gpu(name: str) -> Gpu | None:
    """The GPU that CUDA, or a user, calls ``name``; None where it is not in the table."""
    plain = name.removeprefix("NVIDIA ").strip()
    return next(
        (entry for entry in GPUS if re.fullmatch(entry.pattern, plain, re.I)), None
    ) or next((entry for entry in GPUS if entry.name.lower() == plain.lower()), None)


def peak(name: str) -> float | None:
    """FLOP/s of the GPU that CUDA calls ``name``, or None."""
    entry = gpu(name)
    return entry.flops if entry else None


def peak_of(device: torch.device) -> float | None:
    """FLOP/s of a device, or None for a CPU and for a GPU that is not in the table."""
    return peak(torch.cuda.get_device_name(device)) if device.type == "cuda" else None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """``flops`` and ``bytes`` of the forward pass over one layer (the head: over the model).

    An operation whose intensity (FLOPs a byte moved) is below the GPU's ridge, FLOP/s over bytes/s,
    waits for memory (Williams et al. 2009). It reads its inputs and weights once and writes its
    outputs once; attention is a fused kernel, which does not write its scores.
    """

    name: str
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes


def training(config: ModelConfig, *, rows: int, context: int, width: int = 2) -> list[Operation]:
    """The forward pass over rows of ``context`` tokens, ``width`` bytes a number. The backward
    pass does twice the work on twice the data, so its intensities are about the same.
    """
    tokens = rows * context
    keys = accounting.attended(config, 0, context)
    own = config.attention
    read = own.kv_heads * (own.head_dim + own.value_dim) * tokens
    sizes = own.head_dim, own.value_dim
    return _operations(config, tokens, keys, read, *sizes, width, made=True, source=context)


def decoding(config: ModelConfig, *, batch: int, context: int, width: int = 2) -> list[Operation]:
    """One new token for each of ``batch`` texts whose caches hold ``context`` tokens. Latent
    attention looks at the compressed vectors themselves.
    """
    attention = config.attention
    kept = attention.sight(0).kept
    held = context if kept is None else min(context, kept)
    read, sizes = attention.cached * batch * held, (attention.head_dim, attention.value_dim)
    if isinstance(attention, Latent):
        sizes = attention.rank + attention.rotary_dim, attention.rank
    return _operations(config, batch, held, read, *sizes, width, made=False, source=context)


def _operations(
    config: ModelConfig,
    tokens: int,
    keys: float,
    read: int,
    size: int,
    value: int,
    width: int,
    *,
    made: bool,
    source: int,
) -> list[Operation]:
    """``read``: numbers of keys and values; ``size`` and ``value``: dimensions of a query and of
    what attention sums, as it meets them. ``source``: tokens that cross-attention sees, whose keys
    and values are ``made`` here or cached.
    """
    attention, hidden, own = config.attention, config.hidden, config.feed_forward
    gates = 2 if own.gated else 1

    times, matrices, shared = 1, 1.0, 0
    if isinstance(own, Experts):  # those that any token meets are read, this many on average
        times, shared = own.top_k, own.shared_width
        matrices = own.count * (1 - (1 - own.top_k / own.count) ** tokens)

    def matmul(
        name: str, inputs: int, outputs: int, times: int = 1, matrices: float = 1.0
    ) -> Operation:
        moved = times * tokens * (inputs + outputs) + matrices * inputs * outputs
        flops = 2.0 * times * tokens * inputs * outputs
        return Operation(name=name, flops=flops, bytes=moved * width)

    beside = [
        matmul("shared feed-forward in", hidden, gates * shared),
        matmul("shared feed-forward out", shared, hidden),
    ]

    def cross() -> list[Operation]:
        queries, pairs = attention.heads * size, attention.kv_heads * (size + value)
        texts = tokens // source if made else tokens
        return [
            matmul("cross queries, keys, values", hidden, queries + pairs * made),
            Operation(
                name="cross-attention",
                flops=2.0 * tokens * attention.heads * (size + value) * source,
                bytes=(2.0 * tokens * queries + texts * source * pairs) * width,
            ),
            matmul("cross output", queries, hidden),
        ]

    def of_file(part: str) -> Operation:
        """The matrices of a part whose class a file has, as its modules' roles say."""
        blocks = config.layers + (0 if config.encoder is None else config.encoder.layers)
        known = ((role, met) for role, _, met in accounting.weights(config) if role.use == "matrix")
        numbers = sum(met for role, met in known if role.part == part) / blocks
        return Operation(
            name=f"{part.replace('_', '-')} of a file",
            flops=2.0 * tokens * numbers,
            bytes=(2.0 * tokens * hidden + numbers) * width,
        )

    looks = Operation(
        name="attention",
        flops=2.0 * tokens * attention.heads * (size + value) * keys,
        bytes=(tokens * attention.heads * (size + value) + read) * width,
    )
    out = matmul("attention output", attention.heads * attention.value_dim, hidden)
    within = matmul("feed-forward in", hidden, gates * own.width, times, matrices)
    return [
        # Squared, summed, scaled and weighted: about five operations a number.
        Operation(
            name="norm and residual", flops=5.0 * tokens * hidden, bytes=3 * tokens * hidden * width
        ),
        *(
            [of_file("attention"), looks]
            if isinstance(attention, Plugin)
            else [*_projections(attention, hidden, matmul), looks, out]
        ),
        *([] if config.encoder is None else cross()),
        *(
            [of_file("feed_forward")]
            if isinstance(own, Plugin)
            else [within, matmul("feed-forward out", own.width, hidden, times, matrices)]
        ),
        *(beside if shared else ()),
        matmul("output head", hidden, config.head_shape[0]),
    ]


def _projections(
    own: Attention, hidden: int, matmul: Callable[[str, int, int], Operation]
) -> list[Operation]:
    """What makes queries, keys and values. In decoding the last matrix of latent attention goes
    into queries and sums, at the same cost.
    """
    width = own.heads * own.head_dim
    if not isinstance(own, Latent):
        return [matmul("queries, keys, values", hidden, width + 2 * own.kv_heads * own.head_dim)]
    short = own.query_rank
    queries = [matmul("queries", hidden, width)]
    if short is not None:
        queries = [matmul("queries, compressed", hidden, short), matmul("queries", short, width)]
    return [
        *queries,
        matmul("keys and values, compressed", hidden, own.rank + own.rotary_dim),
        matmul("keys and values", own.rank, own.heads * (own.plain_dim + own.value_dim)),
    ]


def find_gpu(name: str) -> Gpu:
    """The GPU of that name; raises ``LlmcurateError`` that lists them."""
    entry = gpu(name)
    if entry is None:
        names = ", ".join(gpu_entry.name for gpu_entry in GPUS)
        raise UsageError(f"gpu {name!r}: choose one of {names}")
    return entry


def describe(
    config: ModelConfig,
    *,
    device: Gpu,
    rows: int,
    context: int,
    batch: int,
    precision: str = "bf16",
    recompute: bool = False,
    optimizer: str = "adamw",
    preset: str | None = None,
) -> dict[str, Any]:
    """All of it as plain values: bytes, FLOPs, FLOPs a byte. ``rows`` of ``context`` tokens a step
    in training; ``batch`` texts of that length in decoding. ``preset``: the published model that
    it is.
    """
    if config.position.table and context > config.context:
        raise UsageError(f"context is {context}: the model has {config.context} positions")
    memory = training_memory(
        config,
        rows=rows,
        context=context,
        precision=precision,
        recompute=recompute,
        optimizer=optimizer,
        loss_chunk=chunk_of(config.vocab, device="cuda"),
    )
    counted = accounting.parts(config)
    flops = accounting.flops_per_token(config, context)
    return {
        "config": dataclasses.asdict(config),
        "row": accounting.architecture_row(config, preset),
        "parameters": dataclasses.asdict(counted) | {"total": counted.total},
        **({"active_parameters": accounting.active_parameters(config)} if config.sparse else {}),
        "training_flops_per_token": flops,
        "gpu": dataclasses.asdict(device) | {"ridge": device.ridge},
        "tokens_per_second_at_peak": device.flops / flops,
        "cache_bytes_per_token": accounting.cache_bytes_per_token(config),
        "cache_bytes": accounting.cache_bytes(config, context) * batch,
        "rows": rows,
        "context": context,
        "batch": batch,
        "precision": precision,
        "recompute": recompute,
        "optimizer": optimizer,
        "memory": dataclasses.asdict(memory),
        "fits": memory.peak <= device.memory,
        "training": _bounds(training(config, rows=rows, context=context), device),
        "decoding": _bounds(decoding(config, batch=batch, context=context), device),
        "serving": serving(config, memory=device.memory, context=context, batch=batch),
    }


def _bounds(operations: list[Operation], device: Gpu) -> list[dict[str, str | float]]:
    return [
        {
            "name": operation.name,
            "flops": operation.flops,
            "bytes": operation.bytes,
            "intensity": operation.intensity,
            "bound": "compute" if operation.intensity >= device.ridge else "memory",
        }
        for operation in operations
    ]
