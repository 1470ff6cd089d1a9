"""The processes of a run, as torchrun starts them: DDP, FSDP2, or a single process.

The processes form a grid (PyTorch's DeviceMesh) of ``replicate`` x ``shard`` x ``tensor``.
Processes with successive ranks are neighbours along ``tensor``. Processes that differ only in
``tensor`` read the same tokens; all others read different tokens. FSDP2 splits weights along
``shard`` and repeats them along ``replicate``. The rows of a step do not depend on the number of
processes, and checkpoints can be loaded by any number.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.checkpoint import set_checkpoint_early_stop

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from train.attention import ContextParallel
from train.config import TrainConfig, stages_of
from train.device import computes_in, on_meta, pick_device
from train.model.attention_settings import Latent
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.plugins import plugins
from train.model.positions import positions
from train.split import local


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process: its ``rank`` among ``count`` processes, and the ``device`` it computes on.
    ``mesh``: the grid of all processes, with the axes replicate, shard and tensor (None for a
    single process). ``context``: how many neighbours along the axis shard divide the tokens of the
    same rows. ``tensor``: how many processes divide the matrices of each block."""

    device: torch.device
    rank: int = 0
    count: int = 1
    context: int = 1
    tensor: int = 1
    mesh: DeviceMesh | None = None
    sharers: Any = None  # the group of processes that read pieces of the same rows as this one

    @property
    def first(self) -> bool:
        """True for the one process that writes files and reports progress."""
        return self.rank == 0

    @property
    def readers(self) -> int:
        """The number of processes that read different tokens. Gradients are averaged over these."""
        return self.count // self.tensor

    @property
    def parts(self) -> int:
        """The number of parts into which the rows of a step are divided."""
        return self.readers // self.context

    @property
    def part(self) -> int:
        """The index of the part of the rows that this process reads."""
        return self.rank // (self.tensor * self.context)

    @property
    def reader(self) -> int:
        """The index of this process among the ``readers``, which read different tokens. Processes
        that differ only in the grid's axis ``tensor`` have the same index."""
        return self.rank // self.tensor

    @property
    def context_parallel(self) -> ContextParallel | None:
        """The split of each row's tokens among processes; None if each process reads whole rows."""
        if self.context == 1:
            return None
        place = self.reader % self.context
        return ContextParallel(group=self.sharers, rank=place, count=self.context)

    def share(self, rows: Sequence[int]) -> Sequence[int]:
        """Return this process's part of ``rows``. ``self.parts`` must divide the number of rows."""
        size = len(rows) // self.parts
        return rows[self.part * size : (self.part + 1) * size]

    def shards(self, config: TrainConfig) -> bool:
        """Return True if the weights are split over the processes."""
        return self.mesh is not None and (config.parallel == "fsdp" or self.tensor > 1)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of ``value`` over the ``readers``, the processes that read different
        tokens. Also set ``value`` to the sum."""
        for dim in (0, 1):  # replicate and shard
            if self.mesh is not None and self.mesh.size(dim) > 1:
                dist.all_reduce(value, group=self.mesh.get_group(dim))
        return value

    def total_of(self, values: Any) -> Any:
        """Return the ``total`` of numpy ``values``, as an array."""
        return self.total(torch.from_numpy(values).to(self.device)).cpu().numpy()

    def agreed(self, value: Tensor) -> Tensor:
        """Return the first process's ``value`` in every process, as a tensor on the CPU."""
        on_device = value.to(self.device)
        dist.broadcast(on_device, 0)
        return on_device.cpu()

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()


def processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def parts_of(config: TrainConfig, count: int) -> int:
    """Return the number of parts into which ``count`` processes divide the rows of a step. Raises
    ``LlmcurateError`` if ``count`` is not a multiple of replicas x tensor x context_parallel in
    ``config``, if these settings cannot be combined, or if the parts would not be equal."""
    context = config.context_parallel
    together = config.replicas * context * config.tensor
    if count % together:
        each = f"replicas {config.replicas} x tensor {config.tensor}"
        each += f" x context_parallel {context}" if context > 1 else ""
        raise UsageError(f"{each} on {counted(count, 'process')}: start a multiple of {together}")
    readers = count // config.tensor
    parts = readers // context
    if config.tensor > 1 and readers > 1 and config.parallel != "fsdp":
        raise UsageError(
            f"tensor {config.tensor} with parallel {config.parallel} on {count} processes: set"
            f" parallel to fsdp (and replicas to {readers} to keep whole weights in each)"
        )
    rows = [stage.rows for stage in stages_of(config)]
    if uneven := [n for n in rows if n % (parts * config.accumulate)]:
        raise UsageError(
            f"rows is {uneven[0]}: {parts} processes of {config.accumulate} micro-batches cannot "
            f"share them equally; choose a multiple of {parts * config.accumulate}"
        )
    contexts = [stage.context for stage in stages_of(config)]
    if context > 1 and (uneven := [n for n in contexts if n % (2 * context)]):
        raise UsageError(
            f"context is {uneven[0]}: with context_parallel {context} choose a multiple of"
            f" {2 * context}"
        )
    return parts


@contextmanager
def ranks(config: TrainConfig) -> Iterator[Ranks]:
    """Join the process group that torchrun started, if any, and yield this process's ``Ranks``. At
    the end leave the group, unless the caller had joined the group before."""
    device, count = pick_device(config.device), processes()
    parts_of(config, count)
    if count == 1 and not config.offload:  # offload needs FSDP2, even with one process
        yield Ranks(device=device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", device.index or 0)))
        torch.cuda.set_device(device)
    joined = dist.is_initialized()
    if not joined:
        on_gpu = "cpu:gloo,cuda:nccl" if config.offload else "nccl"  # offloaded weights use both
        alone: Any = {"store": dist.HashStore(), "rank": 0, "world_size": 1} if count == 1 else {}
        dist.init_process_group(on_gpu if device.type == "cuda" else "gloo", **alone)
    try:
        shape = (config.replicas, count // (config.replicas * config.tensor), config.tensor)
        names = ("replicate", "shard", "tensor")
        mesh = dist.init_device_mesh(device.type, shape, mesh_dim_names=names)
        yield Ranks(
            device=device,
            rank=dist.get_rank(),
            count=count,
            context=config.context_parallel,
            tensor=config.tensor,
            mesh=mesh,
            sharers=_sharers(config.context_parallel, config.tensor, count),
        )
    finally:
        if not joined:
            dist.destroy_process_group()


def _sharers(context: int, tensor: int, count: int) -> Any:
    if context == 1:
        return None
    size = context * tensor
    firsts = [start + place for start in range(0, count, size) for place in range(tensor)]
    groups = [list(range(first, first + size, tensor)) for first in firsts]
    group, _ = dist.new_subgroups_by_enumeration(groups)
    return group


def place_model(build: Callable[[], Decoder], config: TrainConfig, ranks: Ranks) -> Decoder:
    """Build the model on this device. Its weights have no values yet. They are split over processes
    if the settings say so."""
    if ranks.mesh is None or not ranks.shards(config):
        return build().to(ranks.device)
    with on_meta():
        model = build()
    if ranks.tensor > 1:
        _split_blocks(model, ranks.mesh["tensor"])
    if config.parallel == "fsdp" and (ranks.readers > 1 or config.offload):
        _shard(model, config, ranks.device, ranks.mesh)
    model.to_empty(device="cpu" if config.offload else ranks.device)
    for stack in model.stacks:
        for name, table in positions(stack.config).named_buffers():  # computed from the config
            setattr(stack.positions, name, table.to(ranks.device))
    return model


def _split_blocks(model: Decoder, mesh: DeviceMesh) -> None:
    from torch.distributed.tensor import DTensor, Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        parallelize_module,
    )

    if not hasattr(nn.utils, "get_total_norm"):
        raise UsageError("tensor needs PyTorch 2.6; leave it out")

    def read_together(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        # One shared input for all matrices, so that its gradient is summed only once.
        first = DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)
        return (first, *inputs[1:])

    plan: dict[str, ParallelStyle] = {}
    for name, module in model.named_modules():
        splits = [_split_of(child) for child in module.children()]
        if "outputs" in splits:
            module.register_forward_pre_hook(read_together)
        for split, style in (("outputs", ColwiseParallel), ("inputs", RowwiseParallel)):
            if _split_of(module) == split:
                plan[name] = style()
    parallelize_module(model, mesh, plan)
    size, place = model.config.attention.heads // mesh.size(), mesh.get_local_rank()
    for stack in model.stacks:
        stack.positions.heads = slice(size * place, size * (place + 1))


def _split_of(module: nn.Module) -> str:
    role = getattr(module, "roles", {}).get("weight")
    return role.split if isinstance(module, nn.Linear) and role is not None else ""


def check_split(model: ModelConfig, config: TrainConfig) -> None:
    """Raise ``LlmcurateError`` if ``tensor`` or ``context_parallel`` does not suit the model."""
    own, parts = model.attention, config.tensor
    present = {
        "attention latent": isinstance(own, Latent),
        f"head.mtp {model.head.mtp}": model.head.mtp > 0,
        "attention.dilations": any(pattern.dilations for pattern in model.patterns),
        "feed_forward experts": bool(model.sparse),
        "generator": model.generator is not None,
        f"position {model.position.kind}": model.position.in_attention,
        **{f"{name} {part.kind}": True for name, part in plugins(model).items()},
    }
    of_tensor = present | {"attention.qk_norm_whole": own.qk_norm_whole}
    of_context = present | {
        "attention.segment": model.patterns[0].segment is not None,
        "head.boundary": model.head.boundary,
        "encoder": model.encoder is not None,
    }
    for setting, count, kinds in (
        ("tensor", parts, of_tensor),
        ("context_parallel", config.context_parallel, of_context),
    ):
        for name in (name for name, is_set in kinds.items() if is_set and count > 1):
            raise UsageError(
                f"{setting} {count} with {name}: they cannot be combined; leave one of them out"
            )
    if config.expert_parallel and not model.sparse:
        raise UsageError(
            "expert_parallel: the model has no experts; leave it out, or set model.feed_forward"
        )
    for name, size in (
        ("attention.heads", own.heads),
        ("attention.kv_heads", own.kv_heads),
        ("feed_forward.width", model.feed_forward.width),
    ):
        if size % parts:
            raise UsageError(
                f"tensor {parts}: model.{name} is {size}, which {parts} processes cannot share"
                " equally; choose a divisor of it"
            )


def tensor_share(model: ModelConfig, config: TrainConfig) -> ModelConfig:
    """Return the model settings of the share that one process computes under tensor parallelism."""
    own, parts = model.attention, config.tensor
    if isinstance(own, Latent):  # its heads are not divided
        return model
    return replace(
        model,
        attention=replace(own, heads=own.heads // parts, kv_heads=own.kv_heads // parts),
        feed_forward=replace(model.feed_forward, width=model.feed_forward.width // parts),
    )


def sum_head_gradients(weights: Iterable[Tensor], ranks: Ranks) -> None:
    """Add up the gradients of ``weights`` over the processes that divide the attention heads. Each
    process has the whole weights, but its gradients come from its own heads only."""
    if ranks.mesh is None or ranks.tensor == 1:
        return
    for weight in weights:
        if weight.grad is not None:
            dist.all_reduce(local(weight.grad), group=ranks.mesh.get_group("tensor"))


def _shard(model: Decoder, config: TrainConfig, device: torch.device, grid: DeviceMesh) -> None:
    try:
        from torch.distributed.fsdp import (
            CPUOffloadPolicy,
            MixedPrecisionPolicy,
            OffloadPolicy,
            fully_shard,
            register_fsdp_forward_method,
        )
    except ImportError as error:
        raise UsageError("parallel fsdp needs PyTorch 2.6; use ddp") from error

    mesh = grid["replicate", "shard"] if config.replicas > 1 else grid["shard"]
    pinned = device.type == "cuda"
    place = CPUOffloadPolicy(pin_memory=pinned) if config.offload else OffloadPolicy()
    # Weights outside of blocks are not cast: embeddings start the residual stream in float32.
    half = computes_in(device, config.precision)
    policy = MixedPrecisionPolicy(
        param_dtype=half, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    exact = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    split = partial(fully_shard, mesh=mesh, offload_policy=place)
    if config.expert_parallel:
        divisions = [getattr(part, "divide_experts", None) for part in model.modules()]
        matrices = {each for divide in divisions if divide is not None for each in divide(mesh)}
        split = partial(split, ignored_params=matrices)
    blocks = {block: None for stack in model.stacks for block in stack.blocks}  # each once
    for block in (*blocks, *model.mtp):
        for part in (module for module in block.modules() if getattr(module, "exact", False)):
            split(part, mp_policy=exact)  # float32 in any block
        split(block, mp_policy=policy)
    split(model)
    register_fsdp_forward_method(model, "features")
    register_fsdp_forward_method(model, "replaced")


def parallel(objective: nn.Module, config: TrainConfig, ranks: Ranks) -> nn.Module:
    """Wrap the objective for all processes. With DDP, the backward pass averages the gradients."""
    if ranks.readers == 1 or config.parallel != "ddp" or ranks.mesh is None:
        return objective
    ids = [ranks.device.index] if ranks.device.type == "cuda" else None
    # Buffers are computed from the configuration in each process. PyTorch 2.13 renames the setting.
    wrapper = nn.parallel.DistributedDataParallel
    renamed = "forward_sync_buffers" in inspect.signature(wrapper).parameters
    buffers: Any = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    group = ranks.mesh.get_group("shard")
    return wrapper(
        objective, device_ids=ids, process_group=group, gradient_as_bucket_view=True, **buffers
    )


def exchanging(
    objective: nn.Module, model: Any, ranks: Ranks, *, last: bool
) -> AbstractContextManager[Any]:
    """Return the context for a micro-batch. Only a step's ``last`` one exchanges gradients."""
    if hasattr(model, "set_requires_gradient_sync"):  # FSDP2
        model.set_requires_gradient_sync(last)
    elif isinstance(objective, nn.parallel.DistributedDataParallel) and not last:
        return objective.no_sync()
    return set_checkpoint_early_stop(False) if ranks.tensor > 1 else nullcontext()


def reshard(model: Any) -> None:
    """Split gathered weights (FSDP2) again after a forward pass that no backward pass follows."""
    if hasattr(model, "reshard"):
        model.reshard()


def first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"
