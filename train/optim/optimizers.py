"""The optimisers AdamW, Muon, NorMuon, Adafactor and Lion, and the weights that each updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from llmcurate.base.errors import UsageError
from train.config import TrainConfig
from train.model.roles import roles
from train.split import by_mesh, gather, local, mesh_of, shares, split_like, spread


def mapped(work: Callable[[Tensor], Tensor], tensors: list[Tensor]) -> Iterator[Tensor]:
    """Apply ``work`` to whole matrices of one shape, stacked to [n, rows, columns]. Yields the
    result for each matrix, split as the matrix is. If the tensors are split over processes, each
    process computes some of the matrices and broadcasts the results, so that each is computed once.
    """
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
    """An exponential moving average of the weights, which is evaluated, sampled from and exported.
    After every step it moves towards the weights by 1 - decay. At first the decay is smaller, (1 +
    step) / (10 + step), because otherwise the initial weights would count for long.
    """

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


@dataclass(frozen=True, kw_only=True)
class Part:
    """An optimiser and its state. ``state(weight)``: names and shapes of the tensors that it keeps
    for a weight. ``split``: True if these tensors are split over processes as the weight is.
    """

    optimizer: torch.optim.Optimizer
    state: Callable[[Tensor], dict[str, torch.Size]]
    split: bool = True


class Optimizers:
    """The optimisers of a model, one for each kind of weight. All do their steps together."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = [part for part in parts if _weights(part)]
        self._of = {id(weight): part for part in self.parts for weight in _weights(part)}

    def rate(self, lr: float) -> None:
        for part in self.parts:
            for group in part.optimizer.param_groups:
                group["lr"] = lr * group.get("rate", 1.0)

    def zero_grad(self) -> None:
        for part in self.parts:
            part.optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        for part in self.parts:
            part.optimizer.step()

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return all state tensors by names "<state>.<parameter>", split as the weights are. The
        tensors are zeros before an optimiser's first step.
        """
        tensors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            if id(parameter) not in self._of:  # not trained
                continue
            kept = self._state(parameter)
            for key, value in self._zeros(parameter, kept).items():
                tensors[f"{key}.{name}"] = value
        return tensors

    def blank(self, model: nn.Module) -> dict[str, Tensor]:
        """Set all state tensors to zeros, to be filled, and return them as ``state`` does."""
        for parameter in model.parameters():
            if id(parameter) not in self._of:
                continue
            kept = self._state(parameter)
            kept.clear()
            kept |= self._zeros(parameter, kept)
        return self.state(model)

    def _zeros(self, parameter: Tensor, kept: dict[str, Tensor]) -> dict[str, Tensor]:
        part = self._of[id(parameter)]
        return {
            key: kept[key] if key in kept else _zeros(parameter, shape, split=part.split)
            for key, shape in part.state(parameter).items()
        }

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        kept: dict[str, Tensor] = self._of[id(parameter)].optimizer.state[parameter]
        return kept


def _zeros(parameter: Tensor, shape: torch.Size, *, split: bool) -> Tensor:
    if split and shape == parameter.shape:
        return torch.zeros_like(parameter, requires_grad=False)
    dtype = parameter.dtype if shape or not split else torch.float32  # as PyTorch counts steps
    return torch.zeros(shape, dtype=dtype, device=parameter.device)


def _weights(part: Part) -> list[Tensor]:
    return [weight for group in part.optimizer.param_groups for weight in group["params"]]


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The trained weights of a model, each in one list.

    ``hidden``: matrices between hidden states, which Muon updates.
    ``head``: the matrix of the output head, if it is not the embedding's.
    ``embeddings``: lookup tables, also if the head uses them.
    ``vectors``: norms and biases.
    ``rates``: learning rate of a weight, by its ``id``, relative to the run's.

    Only ``hidden`` and ``head`` have weight decay, because a norm's scale and the embedding of a
    rare token should not shrink for lack of gradients.
    """

    hidden: list[nn.Parameter]
    head: list[nn.Parameter]
    embeddings: list[nn.Parameter]
    vectors: list[nn.Parameter]
    rates: dict[int, float] = field(default_factory=dict)

    @property
    def decayed(self) -> list[nn.Parameter]:
        return [*self.hidden, *self.head]

    @property
    def exempt(self) -> list[nn.Parameter]:
        return [*self.embeddings, *self.vectors]


def group(model: nn.Module) -> Groups:
    groups = Groups(hidden=[], head=[], embeddings=[], vectors=[])
    lists = {
        "matrix": groups.hidden,
        "head": groups.head,
        "lookup": groups.embeddings,
        "vector": groups.vectors,
    }
    for _, parameter, role in roles(model):
        if parameter.requires_grad:
            lists[role.use].append(parameter)
            groups.rates[id(parameter)] = role.rate
    return groups


def _decay_groups(
    decayed: list[nn.Parameter],
    exempt: list[nn.Parameter],
    config: TrainConfig,
    rates: dict[int, float],
) -> list[dict[str, Any]]:
    """Return parameter groups for torch's optimisers, each with one weight decay, rate and mesh of
    processes. In a step, a weight decays by ``weight_decay`` times the run's learning rate, not
    times its own."""
    groups = []
    for weights, decay in ((decayed, config.weight_decay), (exempt, 0.0)):
        for rate in sorted({rates.get(id(weight), 1.0) for weight in weights}) or [1.0]:
            of_rate = [weight for weight in weights if rates.get(id(weight), 1.0) == rate]
            for own in by_mesh(of_rate) or [[]]:
                groups.append({"params": own, "weight_decay": decay / rate, "rate": rate})
    return groups


def _momentum_state(weight: Tensor) -> dict[str, torch.Size]:
    return {"momentum": weight.shape}


def adamw(groups: Groups, config: TrainConfig) -> list[Part]:
    """Return AdamW (Loshchilov and Hutter 2019), in PyTorch's fused version."""
    return [_adamw_part(groups.decayed, groups.exempt, config, groups.rates)]


def _adamw_part(
    decayed: list[nn.Parameter],
    exempt: list[nn.Parameter],
    config: TrainConfig,
    rates: dict[int, float],
) -> Part:
    optimizer = torch.optim.AdamW(
        _decay_groups(decayed, exempt, config, rates),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
    return Part(optimizer=optimizer, state=_adamw_state)


def _adamw_state(weight: Tensor) -> dict[str, torch.Size]:
    shape = weight.shape
    return {"step": torch.Size(), "exp_avg": shape, "exp_avg_sq": shape}


_NEWTON_SCHULZ_STEPS = 5
# Bytes of matrices that one process iterates over together: on a CPU what its cache holds; on a GPU
# a launch costs more than a small matrix.
PIECE_BYTES, GPU_PIECE_BYTES = 16 << 20, 256 << 20
# Jordan et al. 2024: the quintic steepest at 0 that keeps (0, 1] within about 0.7 to 1.2.
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
    """Muon (Jordan et al. 2024): the momentum of a hidden matrix, made orthogonal. The update keeps
    the directions of the momentum and makes their sizes equal, in five Newton-Schulz steps, which
    need only matrix products. AdamW updates embeddings, head and vectors. The update of an r x c
    matrix is scaled by 0.2 sqrt(max(r, c)), to the size of AdamW's updates, so that both use the
    same rate and decay (Liu et al. 2025, "Muon is scalable for LLM training", 2.2).
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            shapes: dict[tuple[torch.Size, Any], list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes.setdefault((weight.shape, mesh_of(weight)), []).append(weight)
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
        updates = self._balanced(weights, updates, group)
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"] * scale)

    def _balanced(
        self, weights: list[Tensor], updates: list[Tensor], group: dict[str, Any]
    ) -> list[Tensor]:
        """Return the updates as they are; NorMuon divides their rows."""
        return updates

    def _nesterov(self, weights: list[Tensor], mu: float) -> list[Tensor]:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - mu)
        torch._foreach_lerp_(gradients, momenta, mu)
        return gradients  # now Nesterov's updates


class NorMuon(Muon):
    """NorMuon (Li et al. 2025, arXiv 2510.05491, algorithm 1): Muon with updates that have about
    the same size for each output. Rows of an update are divided by the root of a running mean of
    their squares. The update is then scaled back to the norm that it has in Muon.
    """

    def _balanced(
        self, weights: list[Tensor], updates: list[Tensor], group: dict[str, Any]
    ) -> list[Tensor]:
        for weight in weights:
            if "square" not in self.state[weight]:
                self.state[weight]["square"] = _zeros(weight, weight.shape[:-1], split=False)
        whole = torch.stack([gather(update) for update in updates])
        squares = [self.state[weight]["square"] for weight in weights]
        torch._foreach_lerp_(squares, list(whole.square().mean(-1)), 1 - group["beta2"])
        balanced = whole / (torch.stack(squares).sqrt()[..., None] + group["eps"])
        before, after = (torch.linalg.matrix_norm(x, keepdim=True) for x in (whole, balanced))
        balanced *= before / after.clamp(min=group["eps"])  # the first gradients may be 0
        return [split_like(x, weight) for x, weight in zip(balanced, weights, strict=True)]


def muon(groups: Groups, config: TrainConfig) -> list[Part]:
    return _with_adamw(Muon, _momentum_state, groups, config)


def normuon(groups: Groups, config: TrainConfig) -> list[Part]:
    return _with_adamw(NorMuon, _normuon_state, groups, config)


def _normuon_state(weight: Tensor) -> dict[str, torch.Size]:
    return {"momentum": weight.shape, "square": weight.shape[:-1]}


def _with_adamw(
    kind: type[Muon],
    state: Callable[[Tensor], dict[str, torch.Size]],
    groups: Groups,
    config: TrainConfig,
) -> list[Part]:
    """Return the optimiser ``kind`` of hidden matrices, and AdamW for all other weights."""
    names = ("lr", "momentum", "weight_decay", "beta2", "eps")
    settings = {name: getattr(config, name) for name in names}
    optimizer = kind([{"params": groups.hidden}], settings)
    by_adamw = _adamw_part(groups.head, groups.exempt, config, groups.rates)
    return [Part(optimizer=optimizer, state=state), by_adamw]


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al. 2023, algorithm 2): the sign of a momentum. The state is one tensor per
    weight. A step changes each number of a weight by the learning rate, so Lion needs a rate 3 to
    10 times smaller than AdamW's, and a decay larger by the same factor.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                momentum, gradient = state["momentum"], weight.grad
                update = (momentum * beta1).add_(gradient, alpha=1 - beta1).sign_()
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"])
                momentum.mul_(beta2).add_(gradient, alpha=1 - beta2)


def lion(groups: Groups, config: TrainConfig) -> list[Part]:
    optimizer = Lion(
        _decay_groups(groups.decayed, groups.exempt, config, groups.rates),
        {"lr": config.lr, "betas": (config.beta1, config.beta2)},
    )
    return [Part(optimizer=optimizer, state=_momentum_state)]


# Shazeer and Stern 2018, section 9: lower bounds of squared gradients and of a weight's scale.
_GRADIENT_EPS, _SCALE_EPS = 1e-30, 1e-3
_CLIP, _DECAY = 1.0, -0.8  # d of algorithm 4; beta2 is 1 - step ** _DECAY


class Adafactor(torch.optim.Optimizer):
    """Adafactor (Shazeer and Stern 2018, algorithms 4 and 5) without momentum. Second moments of an
    r x c matrix are stored as r + c means, of rows and of columns. The update is clipped to a root
    mean square of 1 and multiplied by that of the weight, so ``lr`` is relative: 0.01 in the
    paper."""

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
        if not state:
            for name, shape in _adafactor_state(weight).items():
                state[name] = _zeros(weight, shape, split=False)
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


def adafactor(groups: Groups, config: TrainConfig) -> list[Part]:
    optimizer = Adafactor(
        _decay_groups(groups.decayed, groups.exempt, config, groups.rates),
        {"lr": config.lr},
    )
    return [Part(optimizer=optimizer, state=_adafactor_state, split=False)]


def _adafactor_state(parameter: Tensor) -> dict[str, torch.Size]:
    shape = parameter.shape
    if len(shape) < 2:
        return {"step": torch.Size(), "square": shape}
    columns = torch.Size([*shape[:-2], shape[-1]])
    return {"step": torch.Size(), "rows": shape[:-1], "columns": columns}


OPTIMIZERS: dict[str, Callable[[Groups, TrainConfig], list[Part]]] = {
    "adamw": adamw,
    "muon": muon,
    "normuon": normuon,
    "adafactor": adafactor,
    "lion": lion,
}


def optimizers(model: nn.Module, config: TrainConfig) -> Optimizers:
    check_optimizer(config.optimizer)
    return Optimizers(OPTIMIZERS[config.optimizer](group(model), config))


def check_optimizer(name: str) -> None:
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer {name!r}: choose one of {', '.join(OPTIMIZERS)}")
