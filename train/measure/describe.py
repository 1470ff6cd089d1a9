"""Describe a model without training it: its parts, costs and bottlenecks, and the memory for both
training and serving.
"""

from __future__ import annotations

import dataclasses
import math
import re
import weakref
from collections.abc import Callable
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
from train.device import autocast
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
    """Memory in bytes. ``activations`` are the tensors kept for the backward pass. ``peak`` is the
    most memory in use at any time, including weights and optimizer."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int


class Tracker(TorchDispatchMode):
    """Counter of the bytes of tensor storages: ``live`` bytes now, ``peak`` bytes at most."""

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
        weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
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
    """Return the memory of a training step on ``rows`` x ``context`` tokens; an encoder-decoder
    also reads as many source tokens.

    ``precision`` is fp32, or bf16 (autocast over float32 weights). ``loss_chunk`` is the training
    setting. Not counted: buffers inside kernels, PyTorch itself (some hundred MB), and memory that
    the allocator holds unused. On a CPU, the C library's heap takes 5 to 20 % more, unless
    MALLOC_MMAP_THRESHOLD_=65536 makes the heap return large blocks."""
    with FakeTensorMode(), Tracker() as tracker:
        model = Decoder(config)
        for stack in model.stacks:
            stack.recompute = recompute
        parameter_bytes = sum(weight.nbytes for weight in model.parameters())
        tokens = torch.zeros(rows, context, dtype=torch.long)
        # Autograd adds a tied head's gradient to the embedding's in place, but not under a Tracker.
        # So head and embedding are separate here.
        tied = model.head_weights()
        untied = tied._replace(weight=tied.weight.detach().requires_grad_())
        vars(model)["head_weights"] = lambda: untied
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
        with autocast(torch.device("cpu"), precision):
            terms = losses(example).values()
            loss = torch.stack([term.sum for term in terms if term.weight]).sum()
            del terms
        # The head's gradient already exists after the loss, and is counted among the gradients.
        head = sum(weight.nbytes for weight in untied[:2] if weight is not None)
        activations = tracker.live - before - head
        loss.backward()
        del loss
        before, highest = tracker.live, tracker.peak
        stepped = optimizers(model, dataclasses.replace(TrainConfig(), optimizer=optimizer))
        stepped.step()
        state = tracker.live - before
    return Memory(
        weights=parameter_bytes,
        gradients=parameter_bytes,
        optimizer=state,
        activations=activations,
        peak=max(tracker.peak, highest + state),
    )


# The share of a GPU's memory for weights and cache, as in vLLM (gpu_memory_utilization);
# activations and buffers need the rest.
USABLE = 0.9
BATCHES = (1, 8, 32)
# Bits of the matrices in blocks; other weights are in bf16, as in GPTQ.
PRECISIONS = {"bf16": 16, "8 bit": 8, "4 bit": 4}
GROUP = 128  # weights that share a scale of 16 bits and a zero point (Frantar et al. 2023)


def weight_bytes(config: ModelConfig, bits: int = 16) -> int:
    """Return the bytes of the weights in serving. ``bits``: the bits per number in the matrices of
    blocks; other weights have 16."""
    each = float(bits) if bits == 16 else bits + (16 + bits) / GROUP
    total = 0.0
    for role, numbers, _ in accounting.weights(config):
        if role.part in ("mtp", "generator"):
            continue
        total += numbers * (each if role.use == "matrix" else 16) / 8
    return round(total)


def most_texts(config: ModelConfig, memory: float, context: int, bits: int = 16) -> int:
    """Return the number of texts of ``context`` tokens that fit into ``memory`` bytes with the
    weights."""
    room = USABLE * memory - weight_bytes(config, bits)
    return max(0, int(room // accounting.cache_bytes(config, context)))


def serving(config: ModelConfig, *, memory: float, context: int, batch: int = 1) -> dict[str, Any]:
    """Return what serving needs: the bytes of weights and cache, and how many texts fit into
    ``memory`` bytes of a GPU. In the result, "heads" lists these figures for variants of the model
    with other numbers of key-value heads."""
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
            for shared in _kv_variants(config)
        ],
    }


def _kv_variants(config: ModelConfig) -> list[ModelConfig]:
    """Return variants of the model with other numbers of key-value heads. Latent attention becomes
    multi-head attention with head_dim = the unrotated key dimension (DeepSeek-V2, table 1)."""
    own_attention = config.attention
    if isinstance(own_attention, Latent):
        heads, size = own_attention.heads, own_attention.plain_dim
        grouped_attention = Grouped(heads=heads, kv_heads=heads, head_dim=size)
        return [*_kv_variants(dataclasses.replace(config, attention=grouped_attention)), config]
    heads = config.attention.heads
    kv_heads = config.attention.kv_heads
    grouped = [8] if kv_heads in (1, heads) and heads % 8 == 0 else []
    counts = sorted({heads, kv_heads, *grouped, 1}, reverse=True)
    return [change(config, {"attention.kv_heads": count}, "model") for count in counts]


@dataclass(frozen=True)
class Gpu:
    """A GPU by NVIDIA's data sheets: ``flops`` in FLOP/s (dense bfloat16, accumulated in float32),
    ``memory`` in bytes, ``bandwidth`` in bytes/s. CUDA's name for the GPU matches ``pattern``."""

    name: str
    pattern: str
    flops: float
    memory: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """The FLOPs per byte above which an operation waits for compute, not for memory."""
        return self.flops / self.bandwidth


# A GPU that is not listed has no peak. A guess would make the reported utilisation silently wrong.
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
    """Return the GPU that CUDA or a user calls ``name``; None if it is not in ``GPUS``."""
    plain = name.removeprefix("NVIDIA ").strip()
    return next(
        (entry for entry in GPUS if re.fullmatch(entry.pattern, plain, re.I)), None
    ) or next((entry for entry in GPUS if entry.name.lower() == plain.lower()), None)


def peak_of(device: torch.device) -> float | None:
    """Return the FLOP/s of a device; None for a CPU and for a GPU that is not in ``GPUS``."""
    entry = gpu(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return entry.flops if entry else None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation in one layer or in the model's head, with the ``flops`` and ``bytes`` of its
    forward pass. It reads inputs and weights once and writes outputs once. If its FLOPs per byte
    are below the GPU's ``ridge``, the operation waits for memory (Williams et al. 2009). Attention
    is counted as a fused kernel, which does not write its scores."""

    name: str
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes


WIDTH = 2  # bytes per number, in bfloat16


def training(config: ModelConfig, *, rows: int, context: int) -> list[Operation]:
    """Return the operations of the forward pass. The backward pass takes twice the FLOPs and bytes,
    so its FLOPs per byte are about the same."""
    tokens = rows * context
    keys = accounting.attended(config, 0, context)
    own = config.attention
    read = own.kv_heads * (own.head_dim + own.value_dim) * tokens
    sizes = own.head_dim, own.value_dim
    return _operations(config, tokens, keys, read, *sizes, projected=True, source=context)


def decoding(config: ModelConfig, *, batch: int, context: int) -> list[Operation]:
    """Return the operations that add one token to each of ``batch`` texts of ``context`` tokens."""
    attention = config.attention
    cached = attention.pattern(0).cached_tokens
    keys = context if cached is None else min(context, cached)
    read, sizes = attention.cached * batch * keys, (attention.head_dim, attention.value_dim)
    if isinstance(attention, Latent):
        sizes = attention.rank + attention.rotary_dim, attention.rank
    return _operations(config, batch, keys, read, *sizes, projected=False, source=context)


def _operations(
    config: ModelConfig,
    tokens: int,
    keys: float,
    read: int,
    size: int,
    value: int,
    *,
    projected: bool,
    source: int,
) -> list[Operation]:
    attention, hidden, own = config.attention, config.hidden, config.feed_forward
    gates = 2 if own.gated else 1

    times, matrices, shared = 1, 1.0, 0
    if isinstance(own, Experts):  # on average, this many experts are read
        times, shared = own.top_k, own.shared_width
        matrices = own.count * (1 - (1 - own.top_k / own.count) ** tokens)

    def matmul(
        name: str, inputs: int, outputs: int, times: int = 1, matrices: float = 1.0
    ) -> Operation:
        moved = times * tokens * (inputs + outputs) + matrices * inputs * outputs
        flops = 2.0 * times * tokens * inputs * outputs
        return Operation(name=name, flops=flops, bytes=moved * WIDTH)

    shared_expert = [
        matmul("shared feed-forward in", hidden, gates * shared),
        matmul("shared feed-forward out", shared, hidden),
    ]

    def cross() -> list[Operation]:
        queries, pairs = attention.heads * size, attention.kv_heads * (size + value)
        texts = tokens // source if projected else tokens
        return [
            matmul("cross queries, keys, values", hidden, queries + pairs * projected),
            Operation(
                name="cross-attention",
                flops=2.0 * tokens * attention.heads * (size + value) * source,
                bytes=(2.0 * tokens * queries + texts * source * pairs) * WIDTH,
            ),
            matmul("cross output", queries, hidden),
        ]

    def plugin(part: str) -> Operation:
        blocks = config.layers + (0 if config.encoder is None else config.encoder.layers)
        known = ((role, n) for role, _, n in accounting.weights(config) if role.use == "matrix")
        numbers = sum(n for role, n in known if role.part == part) / blocks
        return Operation(
            name=f"{part.replace('_', '-')} plugin",
            flops=2.0 * tokens * numbers,
            bytes=(2.0 * tokens * hidden + numbers) * WIDTH,
        )

    attention_scores = Operation(
        name="attention",
        flops=2.0 * tokens * attention.heads * (size + value) * keys,
        bytes=(tokens * attention.heads * (size + value) + read) * WIDTH,
    )
    out = matmul("attention output", attention.heads * attention.value_dim, hidden)
    within = matmul("feed-forward in", hidden, gates * own.width, times, matrices)
    return [
        # Square, sum, scale and weight: about five operations per number.
        Operation(
            name="norm and residual", flops=5.0 * tokens * hidden, bytes=3 * tokens * hidden * WIDTH
        ),
        *(
            [plugin("attention"), attention_scores]
            if isinstance(attention, Plugin)
            else [*_projections(attention, hidden, matmul), attention_scores, out]
        ),
        *([] if config.encoder is None else cross()),
        *(
            [plugin("feed_forward")]
            if isinstance(own, Plugin)
            else [within, matmul("feed-forward out", own.width, hidden, times, matrices)]
        ),
        *(shared_expert if shared else ()),
        matmul("output head", hidden, config.head_shape[0]),
    ]


def _projections(
    own: Attention, hidden: int, matmul: Callable[[str, int, int], Operation]
) -> list[Operation]:
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
    """Return the GPU of this name. If there is none, raise ``LlmcurateError`` with all names."""
    if (entry := gpu(name)) is None:
        names = ", ".join(each.name for each in GPUS)
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
    tokens: int | None = None,
) -> dict[str, Any]:
    """Return all figures of the model: bytes, FLOPs, FLOPs per byte. A training step takes ``rows``
    rows of ``context`` tokens, decoding takes ``batch`` texts of that length. The whole training
    takes ``tokens``, or else 20 per parameter."""
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
    active = accounting.active_parameters(config)
    tokens = tokens or round(accounting.TOKENS_PER_PARAMETER * active)
    return {
        "config": dataclasses.asdict(config),
        "row": accounting.architecture_row(config),
        "parameters": dataclasses.asdict(counted) | {"total": counted.total},
        **({"active_parameters": active} if config.sparse else {}),
        "training_flops_per_token": flops,
        "training_tokens": tokens,
        "training_flops": 6.0 * active * tokens,  # Kaplan et al. 2020: 6 N D
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
            **vars(operation),
            "intensity": operation.intensity,
            "bound": "compute" if operation.intensity >= device.ridge else "memory",
        }
        for operation in operations
    ]
