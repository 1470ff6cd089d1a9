"""The optimisers AdamW, Muon, Adafactor and Lion, and the weights that each updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from llmcurate.base.errors import UsageError
from train.config import TrainConfig
from train.model.roles import roles
from train.split import gather, local, mesh_of, shares, split_like, spread


def mapped(work: Callable[[Tensor], Tensor], tensors: list[Tensor]) -> Iterator[Tensor]:
    """Apply ``work`` to whole matrices of one shape, stacked to [n, rows, columns]. Yield the
    result for each matrix. If matrices are split over processes, each process gathers and computes
    a share of the matrices, and sends the results to the others. Results are split like inputs."""
    mesh = mesh_of(tensors[0])
    if mesh is None:
        yield from work(torch.stack(tensors))
        return
    ranks, here = mesh.mesh.flatten().tolist(), mesh.get_rank()
    size = -(-len(tensors) // len(ranks))
    own = None
    for turn, rank in enumerate(ranks):  # all processes must take part in each gather
        part = [gather(tensor) for tensor in tensors[turn * size : (turn + 1) * size]]
        if rank == here and part:
            own = work(torch.stack(part))
    for number, tensor in enumerate(tensors):
        rank = ranks[number // size]
        if rank == here:
            assert own is not None
            whole = own[number % size].contiguous()
        else:
            whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        spread(whole, mesh, rank)
        yield split_like(whole, tensor)


class Average:
    """An exponential moving average of the weights, for evaluation, generation and export: after
    each step, average = decay x average + (1 - decay) x weights. In the first steps the decay is
    only (1 + step) / (10 + step), because otherwise the initial weights would count for long."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.model = decay, model
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in self.model.named_parameters():
            local(self.weights[name]).lerp_(local(parameter), 1 - decay)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Replace the model's weights by the average until the context ends."""
        kept = {name: local(p).clone() for name, p in self.model.named_parameters()}
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                local(parameter).copy_(local(self.weights[name]))
            try:
                yield
            finally:
                for name, parameter in self.model.named_parameters():
                    local(parameter).copy_(kept[name])


class Optimizers:
    """The optimisers of a model, one for each kind of weight. All do their steps together."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = [part for part in parts if _weights(part)]
        self._state = {id(w): part.state[w] for part in self.parts for w in _weights(part)}

    def rate(self, lr: float) -> None:
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr * group["rate"]

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return all state tensors by names "<state>.<parameter>", split as the weights are."""
        return {
            f"{key}.{name}": value
            for name, weight in model.named_parameters()
            for key, value in self._state.get(id(weight), {}).items()  # {} if it is not trained
        }


def with_state(
    optimizer: torch.optim.Optimizer,
    state: Callable[[Tensor], dict[str, torch.Size]],
    *,
    split: bool = True,
) -> torch.optim.Optimizer:
    """Fill an optimiser's state with zeros. ``state`` is a function from a weight to the names and
    shapes of its state. ``split``: True if the state is split over processes as the weight is."""
    for weight in _weights(optimizer):
        for name, shape in state(weight).items():
            if split and shape == weight.shape:
                zeros = torch.zeros_like(weight, requires_grad=False)
            else:  # PyTorch counts steps in float32
                dtype = weight.dtype if shape or not split else torch.float32
                zeros = torch.zeros(shape, dtype=dtype, device=weight.device)
            optimizer.state[weight][name] = zeros
    return optimizer


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


# The uses of weights (``Role``). Weight decay applies to the first two. A norm's scale or a rare
# token's embedding would shrink in steps that give it no gradient.
USES = ("matrix", "head", "lookup", "vector")


def groups(
    model: nn.Module, config: TrainConfig, uses: Sequence[str] = USES
) -> list[dict[str, Any]]:
    """Return the trained weights of the kinds ``uses``, such as "matrix", in groups for torch's
    optimisers. The weights of a group share their weight decay, their learning rate (relative to
    the run's) and their mesh of processes. In every group, decay per step is ``weight_decay`` times
    the run's rate."""
    rates = {"lookup": config.embedding_rate, "head": config.head_rate}
    found: dict[Any, list[nn.Parameter]] = {}
    for _, weight, role in roles(model):
        if weight.requires_grad and role.use in uses:
            rate = role.rate * rates.get(role.use, 1.0)
            decay = config.weight_decay / rate if role.use in USES[:2] else 0.0
            found.setdefault((decay, rate, mesh_of(weight)), []).append(weight)
    return [
        {"params": weights, "weight_decay": decay, "rate": rate}
        for (decay, rate, _), weights in found.items()
    ] or [{"params": []}]


def _momentum_state(weight: Tensor) -> dict[str, torch.Size]:
    return {"momentum": weight.shape}


def adamw(
    model: nn.Module, config: TrainConfig, uses: Sequence[str] = USES
) -> list[torch.optim.Optimizer]:
    """Return AdamW (Loshchilov and Hutter 2019), in PyTorch's fused version."""

    def state(weight: Tensor) -> dict[str, torch.Size]:
        return {"step": torch.Size(), "exp_avg": weight.shape, "exp_avg_sq": weight.shape}

    optimizer = torch.optim.AdamW(
        groups(model, config, uses),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
    return [with_state(optimizer, state)]


_NEWTON_SCHULZ_STEPS = 5
# Bytes of matrices in one batch of Newton-Schulz steps: on a CPU, so that they fit its cache; on a
# GPU more, because a kernel launch takes longer than a small matrix.
PIECE_BYTES, GPU_PIECE_BYTES = 16 << 20, 256 << 20
# Jordan et al. 2024: the quintic polynomial that is steepest at 0 among those that, repeated, bring
# singular values in (0, 1] to about 0.7 to 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonal(matrices: Tensor) -> Tensor:
    """Return U V^T, approximately, for each matrix U S V^T of [..., rows, columns]. On a GPU this
    is computed in bfloat16, which is precise enough (Jordan et al. 2024), else in float32 or wider.
    """
    x = (matrices.bfloat16() if matrices.is_cuda else matrices).flatten(0, -3)
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(-2, -1) if tall else x
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)  # singular values below 1
    for _ in range(_NEWTON_SCHULZ_STEPS):
        square = x @ x.transpose(-2, -1)
        factor = torch.baddbmm(square, square, square, beta=_B, alpha=_C)
        x = torch.baddbmm(x, factor, x, beta=_A)
    x = x.transpose(-2, -1) if tall else x
    return x.to(matrices.dtype).reshape(matrices.shape)


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): the momentum of a hidden matrix, made orthogonal. Five
    Newton-Schulz steps, which need only matrix products, bring all its singular values near 1.
    AdamW updates embeddings, head and vectors. The update of an r x c matrix is scaled by 0.2
    sqrt(max(r, c)) to the size of AdamW's updates, so that both use the same rate and decay (Liu et
    al. 2025, "Muon is scalable for LLM training", 2.2)."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes.setdefault(weight.shape, []).append(weight)
            for weights in shapes.values():  # matrices of one shape are iterated over together
                on_cpu = weights[0].device.type == "cpu"
                piece = PIECE_BYTES if on_cpu else GPU_PIECE_BYTES
                size = max(1, piece // (weights[0].numel() * weights[0].element_size()))
                turn = size * shares(weights[0])
                for first in range(0, len(weights), turn):
                    self._update(weights[first : first + turn], group)

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        scale = 0.2 * max(weights[0].shape[-2:]) ** 0.5
        updates = list(mapped(orthogonal, self._nesterov(weights, group["momentum"])))
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"] * scale)

    def _nesterov(self, weights: list[Tensor], mu: float) -> list[Tensor]:
        momenta = [self.state[weight]["momentum"] for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - mu)
        torch._foreach_lerp_(gradients, momenta, mu)
        return gradients  # now Nesterov's updates


def muon(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """Return Muon for hidden matrices, and AdamW for all other weights."""
    settings = {"lr": config.lr, "momentum": config.momentum}
    optimizer = Muon(groups(model, config, USES[:1]), settings)
    return [with_state(optimizer, _momentum_state), *adamw(model, config, USES[1:])]


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al. 2023, algorithm 2): the update is the sign of a momentum. The state is one
    tensor per weight. A step changes each number of a weight by the learning rate, so the rate must
    be 3 to 10 times smaller than AdamW's, and the decay larger by the same factor.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                momentum, gradient = self.state[weight]["momentum"], weight.grad
                update = (momentum * beta1).add_(gradient, alpha=1 - beta1).sign_()
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"])
                momentum.mul_(beta2).add_(gradient, alpha=1 - beta2)


def lion(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    settings = {"lr": config.lr, "betas": (config.beta1, config.beta2)}
    optimizer = Lion(groups(model, config), settings)
    return [with_state(optimizer, _momentum_state)]


# Shazeer and Stern 2018, section 9: lower bounds of squared gradients and of a weight's scale.
_GRADIENT_EPS, _SCALE_EPS = 1e-30, 1e-3
_CLIP, _DECAY = 1.0, -0.8  # d of algorithm 4; beta2 is 1 - step ** _DECAY


class Adafactor(torch.optim.Optimizer):
    """Adafactor (Shazeer and Stern 2018, algorithms 4 and 5) without momentum. Second moments of an
    r x c matrix are stored as r + c means, of rows and of columns. The update is clipped to a root
    mean square (RMS) of 1 and multiplied by the weight's RMS. So ``lr`` is relative to the weight;
    the paper uses 0.01."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group["lr"], group["weight_decay"])

    def _update(self, weight: Tensor, rate: float, weight_decay: float) -> None:
        assert weight.grad is not None
        gradient, values = gather(weight.grad), gather(weight)
        state = self.state[weight]
        state["step"] += 1
        forget = state["step"] ** _DECAY  # 1 at the first step
        square = gradient.square() + _GRADIENT_EPS
        if gradient.dim() < 2:
            update = gradient * state["square"].lerp_(square, forget).rsqrt()
        else:
            rows = state["rows"].lerp_(square.mean(-1), forget)
            columns = state["columns"].lerp_(square.mean(-2), forget)
            row_factor = (rows / rows.mean(-1, keepdim=True)).rsqrt()
            update = gradient * row_factor[..., None] * columns.rsqrt()[..., None, :]
        update = update / (_rms(update) / _CLIP).clamp(min=1.0)
        update = update * (_rms(values).clamp(min=_SCALE_EPS) * rate)
        weight.mul_(1 - rate * weight_decay)
        weight.sub_(split_like(update, weight))


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def adafactor(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    optimizer = Adafactor(groups(model, config), {"lr": config.lr})
    return [with_state(optimizer, _adafactor_state, split=False)]


def _adafactor_state(parameter: Tensor) -> dict[str, torch.Size]:
    shape = parameter.shape
    if len(shape) < 2:
        return {"step": torch.Size(), "square": shape}
    columns = torch.Size([*shape[:-2], shape[-1]])
    return {"step": torch.Size(), "rows": shape[:-1], "columns": columns}


OPTIMIZERS: dict[str, Callable[[nn.Module, TrainConfig], list[torch.optim.Optimizer]]] = {
    "adamw": adamw,
    "muon": muon,
    "adafactor": adafactor,
    "lion": lion,
}


def optimizers(model: nn.Module, config: TrainConfig) -> Optimizers:
    check_optimizer(config.optimizer)
    return Optimizers(OPTIMIZERS[config.optimizer](model, config))


def check_optimizer(name: str) -> None:
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer {name!r}: choose one of {', '.join(OPTIMIZERS)}")
