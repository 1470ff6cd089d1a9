"""Mixture of experts: a router chooses a few feed-forwards for each token.

The hidden vectors of all tokens are the rows of a matrix. They are sorted by expert, and the rows
of each expert are one group in a grouped matrix product. No row is padded, and none is dropped
unless a capacity is set (MegaBlocks, Gale et al. 2023). The product is a custom operator, which
``torch.compile`` does not look into. The operator calls PyTorch's ``grouped_mm`` if possible, and
otherwise loops over the groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from llmcurate.base.errors import UsageError
from train.device import in_products
from train.model import feed_forward_settings as settings
from train.model import roles
from train.model.block import FEED_FORWARDS
from train.model.config import ModelConfig
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.layers import FUNCTIONS, FeedForward, Notes, random_numbers, site_key
from train.model.roles import Role
from train.split import split_like

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from train.model.layers import View


_NATIVE = getattr(F, "grouped_mm", None)  # not in every PyTorch
_ALIGNED = 16  # bytes: row sizes must be a multiple of it


def grouped_linear(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group of rows by the group's own matrix. Return [rows, outputs]. ``x`` [rows,
    inputs] is sorted by group. ``weight`` is [groups, outputs, inputs]. ``ends``: int32 [groups],
    the row after each group's last. Rows after the last group and their gradients are undefined."""
    out: Tensor = _linear(x, weight, ends)
    return out


def looped(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Compute ``grouped_linear`` in a loop. Rows after the last group are zeros."""
    out = x.new_zeros(len(x), weight.shape[1])
    first = 0
    for matrix, end in zip(weight, ends.tolist(), strict=True):
        torch.mm(x[first:end], matrix.t(), out=out[first:end])
        first = end
    return out


def _fits(x: Tensor, *widths: int) -> bool:
    if _NATIVE is None or x.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return False
    return all(width * x.element_size() % _ALIGNED == 0 for width in widths)


@torch.library.custom_op("llmcurate::grouped_linear", mutates_args=())
def _linear(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    if _NATIVE is not None and _fits(x, *weight.shape[1:]):
        out: Tensor = _NATIVE(x.contiguous(), weight.transpose(-2, -1), offs=ends)
        return out
    return looped(x, weight, ends)


@_linear.register_fake
def _(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@torch.library.custom_op("llmcurate::grouped_outer", mutates_args=())
def _outer(grad: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    if _NATIVE is not None and _fits(x, grad.shape[1], x.shape[1]):
        out: Tensor = _NATIVE(grad.t(), x.contiguous(), offs=ends)
        return out
    out = x.new_zeros(len(ends), grad.shape[1], x.shape[1])
    first = 0
    for total, end in zip(out, ends.tolist(), strict=True):
        torch.mm(grad[first:end].t(), x[first:end], out=total)
        first = end
    return out


@_outer.register_fake
def _(grad: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(ends.shape[0], grad.shape[1], x.shape[1])


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, ends = ctx.saved_tensors
    grad = grad.contiguous()
    of_x = of_weight = None
    if ctx.needs_input_grad[0]:
        of_x = grouped_linear(grad, weight.transpose(-2, -1), ends)
    if ctx.needs_input_grad[1]:
        of_weight = _outer(grad, x, ends)
    return of_x, of_weight, None


_linear.register_autograd(
    _gradient, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


class _Spread(torch.autograd.Function):
    """The rows ``order // times`` of x [tokens, n]: [tokens x times, n]. ``order`` is a permutation
    of 0 .. tokens x times - 1, and ``back`` is its inverse. The gradient is summed in a fixed
    order, unlike index_add on a GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor, times: int) -> Tensor:
        ctx.save_for_backward(back)
        ctx.times = times
        return x.index_select(0, order // times)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        (back,) = ctx.saved_tensors
        return grad.index_select(0, back).unflatten(0, (-1, ctx.times)).sum(1), None, None, None


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Exchange of rows (hidden vectors of tokens) among the processes of a ``group``. Each process
    has some of the experts."""

    group: Any

    def apply_remotely(
        self, rows: Tensor, ends: Tensor, apply: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return the experts' results for ``rows`` [n, hidden], which are sorted by expert. Each
        row is sent to the process that has its expert, and the result is sent back. ``ends``
        [experts] has the end of each expert's rows, for the experts of all processes. ``apply``
        gets the rows and ends for the experts of one process. After the last expert's rows, the
        result has zeros."""
        size = dist.get_world_size(self.group)
        counts = ends.long().diff(prepend=ends.new_zeros(1, dtype=torch.long))
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts, group=self.group)
        incoming = incoming.view(size, -1)  # [process, local expert]
        sent, got = torch.stack((counts.view(size, -1).sum(1), incoming.sum(1))).tolist()
        received = _Send.apply(rows[: sum(sent)], sent, got, self.group)
        experts = torch.arange(incoming.shape[1], device=rows.device).repeat(size)
        order = experts.repeat_interleave(incoming.flatten()).argsort(stable=True)
        results = apply(received.index_select(0, order), incoming.sum(0).cumsum(0).int())
        out = _Send.apply(results.index_select(0, order.argsort()), got, sent, self.group)
        return F.pad(out, (0, 0, 0, len(rows) - len(out)))

    def local_experts(self, weight: Any) -> Tensor:
        """Return this process's experts. Their gradients are divided by the number of processes."""
        out: Tensor = _Averaged.apply(weight.to_local(), dist.get_world_size(self.group))
        return out


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], got: list[int], group: Any) -> Tensor:
        ctx.way_back = got, sent, group
        out = rows.new_empty(sum(got), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), got, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        return _Send.apply(grad, *ctx.way_back), None, None, None


class _Averaged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> Tensor:
        ctx.count = count
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad / ctx.count, None


_SITES = 1 << 20  # first key of the random numbers of routers; dropout has smaller keys
_SECOND = 2 << 20  # first key of the random numbers for second experts
_BITS = 23  # bits used of each 24-bit random number


class Routed(NamedTuple):
    """The experts of each token. ``experts`` (int64, the chosen ones) and ``weights`` (of their
    outputs) are [batch, length, top_k]. ``scores`` and ``logits``, before the load-balancing bias
    is added, are float32 [batch, length, experts]. ``sent`` and ``kept`` are bool [batch, length,
    top_k], or None if True everywhere. ``sent``: the token goes to the expert. ``kept``: the expert
    has room for it."""

    experts: Tensor
    weights: Tensor
    scores: Tensor
    logits: Tensor
    sent: Tensor | None = None
    kept: Tensor | None = None


class Router(nn.Module):
    """The choice of experts, in float32 even under autocast (Fedus et al. 2022, section 2.4)."""

    exact = True

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        own, hidden = config.feed_forward, config.hidden
        assert isinstance(own, settings.Experts)
        site = _SITES + 2 * layer
        self.own, self.jitter_key, self.noise_key = own, site_key(site), site_key(site + 1)
        self.second_key = site_key(_SECOND + layer)
        matrix = Role(
            part="feed_forward",
            use="matrix",
            std=hidden**-0.5,
            fan_in=hidden,
            rate=1 / config.width_ratio,
        )
        self.weight = nn.Parameter(torch.zeros(own.count, hidden))
        self.noise = nn.Parameter(torch.zeros(own.count, hidden)) if own.noisy else None
        # The loads update the bias (``rebalance``), not a gradient.
        bias = torch.zeros(own.count)
        self.bias = nn.Parameter(bias, requires_grad=False) if own.bias_rate else None
        zeros = Role(part="feed_forward", use="matrix", fan_in=hidden, rate=1 / config.width_ratio)
        vector = Role(part="feed_forward", use="vector")
        roles.set_roles(self, weight=matrix, noise=zeros, bias=vector)

    def scored(self, x: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return logits and scores, both [batch, length, experts], of x [batch, length, hidden].
        ``draws``: int64 [batch, length], a random seed for each token; None adds no noise."""
        with torch.autocast(x.device.type, enabled=False):
            exact = x if x.dtype == torch.float64 else x.float()
            if draws is not None and self.own.jitter:
                even = 2 * _random(draws, self.jitter_key, exact) - 1
                exact = exact * (1 + self.own.jitter * even)
            logits = F.linear(exact, self.weight.to(exact.dtype))
            if draws is not None and self.noise is not None:
                normal = _random(draws, self.noise_key, logits).mul(2).sub(1).erfinv() * 2**0.5
                deviation = F.softplus(F.linear(exact, self.noise.to(exact.dtype)))
                logits = logits + normal * deviation
            own = self.own.scores
            return logits, logits.softmax(-1) if own == "softmax" else logits.sigmoid()

    def forward(self, x: Tensor, view: View) -> Routed:
        """Return scores and each token's chosen experts (none if experts choose tokens)."""
        own = self.own
        draws = view.draws if self.training and own.random else None
        if self.training and own.random and draws is None:
            draws = torch.randint(2**62, x.shape[:2], device=x.device)
        logits, scores = self.scored(x, draws)
        if own.routing == "expert_choice":
            return Routed(scores[..., :0].long(), scores[..., :0], scores, logits)
        order = scores.detach()
        if self.bias is not None:
            order = order + self.bias
        if own.top_groups < own.groups:
            order = self._within_groups(order)
        experts = order.topk(own.top_k, -1).indices
        weights = scores.gather(-1, experts)
        if own.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        sent = None
        if draws is not None and own.random_second:
            first, second = torch.ones_like(weights).bool().unbind(-1)
            second = 2 * weights[..., 1] > _random(draws, self.second_key, weights[..., :1])[..., 0]
            sent = torch.stack((first, second), -1)
        if own.scale != 1:
            weights = weights * own.scale
        limited = own.capacity is not None and self.training
        kept = self._kept(experts, sent, view.counted) if limited else sent
        return Routed(experts, weights, scores, logits, sent, kept)

    def _within_groups(self, order: Tensor) -> Tensor:
        """Set scores outside the best groups to -inf (DeepSeek-V2, 2.2.2; DeepSeek-V3, 2.1.2)."""
        own = self.own
        by_group = order.unflatten(-1, (own.groups, -1))
        size = by_group.shape[-1]
        ranks = by_group.topk(min(own.group_best, size), -1).values.sum(-1)
        best = ranks.topk(own.top_groups, -1).indices
        allowed = torch.zeros_like(by_group[..., 0]).scatter(-1, best, 1.0) > 0
        return order.masked_fill(~allowed.repeat_interleave(size, -1), float("-inf"))

    def _kept(self, experts: Tensor, sent: Tensor | None, counted: Tensor | None) -> Tensor:
        """Return bool [batch, length, top_k]: True if the chosen expert has room for the token.
        Room is counted for each row of a batch. Within a row, the first choices of all tokens come
        before their second choices. Padding and tokens that are not sent to the expert take no
        room."""
        assert self.own.capacity is not None
        _, length, choices = experts.shape
        room = math.ceil(self.own.capacity * length * choices / self.own.count)
        in_turn = experts.transpose(1, 2).flatten(1)
        ones = F.one_hot(in_turn, self.own.count)
        if counted is not None:
            ones = ones * counted.repeat(1, choices)[..., None]
        if sent is not None:
            ones = ones * sent.transpose(1, 2).flatten(1)[..., None]
        before = (ones.cumsum(1) - ones).gather(-1, in_turn[..., None])[..., 0]
        kept = (before < room).unflatten(1, (choices, length)).transpose(1, 2)
        return kept if sent is None else kept & sent

    @torch.no_grad()
    def rebalance(self, loads: Tensor) -> None:
        """Adjust the bias by ``bias_rate``. ``loads``: [experts], tokens per expert in a step."""
        if self.bias is not None:
            move = self.own.bias_rate * (loads.mean() - loads).sign()
            self.bias.add_(split_like(move.to(self.bias.dtype), self.bias))


def _random(draws: Tensor | None, key: int, like: Tensor) -> Tensor:
    assert draws is not None
    numbers = random_numbers(draws, key, like.shape[-1]) >> 1
    return (numbers.to(like.dtype) + 0.5) / 2**_BITS  # exact in float32: not rounded to 0 or 1


class Experts(nn.Module):
    """A mixture of experts, from [batch, length, hidden] to the same shape. The output for a token
    is the weighted sum of the outputs of its experts, plus the output of the shared feed-forward,
    if the model has one. ``gate``, ``up`` [experts, width, hidden] and ``down`` [experts, hidden,
    width] stack the matrices of the experts, each as in ``FeedForward``."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        own, hidden = config.feed_forward, config.hidden
        assert isinstance(own, settings.Experts)
        self.own, self.key = own, site_key(_SITES + 2 * layer)
        name, gated = ACTIVATIONS[own.activation]
        self.activation = FUNCTIONS[name]
        self.exchange: Exchange | None = None  # set if experts are split among processes
        self.router = None if own.routing == "hash" else Router(config, layer)
        inwards = nn.Parameter(torch.zeros(own.count, own.width, hidden))
        self.gate = nn.Parameter(torch.zeros_like(inwards)) if gated else None
        self.up = inwards
        self.down = nn.Parameter(torch.zeros(own.count, hidden, own.width))

        def role(inputs: int, shrink: float = 1.0) -> Role:
            return Role(
                part="feed_forward",
                use="matrix",
                std=shrink * inputs**-0.5,
                fan_in=inputs,
                rate=1 / config.width_ratio,
                active=own.top_k / own.count,
            )

        into, out = role(hidden, config.inner_scale), role(own.width, config.residual_scale)
        roles.set_roles(self, gate=into, up=into, down=out)
        self.shared = FeedForward(config, own.shared_width) if own.shared_width else None
        self.shared_gate = (
            roles.linear(hidden, 1, part="feed_forward", bias=False, rate=1 / config.width_ratio)
            if own.shared_gate
            else None
        )

    def forward(self, x: Tensor, view: View) -> tuple[Tensor, Notes]:
        routed = self._hashed(view) if self.router is None else self.router(x, view)
        chosen = self.own.routing == "expert_choice"
        out = (self._by_experts if chosen else self._by_tokens)(x, routed, view.counted)
        notes = self.notes(routed, view.counted) if self.training else {}
        if self.shared is not None:
            added, _ = self.shared(x)
            if self.shared_gate is not None:
                added = added * self.shared_gate(x).sigmoid()
            out = out + added
        return out, notes

    def _hashed(self, view: View) -> Routed:
        assert view.tokens is not None
        experts = random_numbers(view.tokens, self.key, 1) % self.own.count
        ones = experts.new_ones(experts.shape, dtype=torch.float32)
        return Routed(experts, ones, ones[..., :0], ones[..., :0])

    def _by_tokens(self, x: Tensor, routed: Routed, counted: Tensor | None) -> Tensor:
        flat, choices = x.flatten(0, 1), self.own.top_k
        experts = routed.experts.flatten()
        if routed.kept is not None:  # assignments without room sort last
            experts = torch.where(routed.kept.flatten(), experts, self.own.count)
        experts, order = experts.sort(stable=True)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
        every = torch.arange(self.own.count, device=experts.device)
        ends = torch.searchsorted(experts, every, right=True).int()
        rows: Tensor = _Spread.apply(flat, order, back, choices)
        if routed.kept is None:
            results = self.apply_each(rows, ends)
        else:
            sent = (experts < self.own.count)[:, None]
            results = self.apply_each(torch.where(sent, rows, 0), ends)
            results = torch.where(sent, results, 0)
        by_token = results.index_select(0, back).unflatten(0, (len(flat), choices))
        weights = routed.weights.flatten(0, 1)[..., None].to(results.dtype)
        return (by_token * weights).sum(1).view_as(x)

    def _by_experts(self, x: Tensor, routed: Routed, counted: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        wanted = routed.scores if counted is None else routed.scores * counted[..., None]
        take = min(length, max(1, length * self.own.top_k // self.own.count))
        best = wanted.transpose(1, 2).topk(take, -1)  # [batch, experts, take]
        rows = torch.arange(batch, device=x.device)[:, None, None] * length + best.indices
        tokens = rows.transpose(0, 1).flatten()
        weights = best.values.transpose(0, 1).flatten()[:, None] * self.own.scale
        each = torch.full((self.own.count,), batch * take, device=x.device)
        flat = x.flatten(0, 1)
        results = self.apply_each(flat.index_select(0, tokens), each.cumsum(0).int())
        out = torch.zeros(flat.shape, dtype=results.dtype, device=x.device)
        return out.index_add(0, tokens, results * weights.to(results.dtype)).view_as(x)

    def apply_each(self, rows: Tensor, ends: Tensor) -> Tensor:
        """Apply each expert to its rows. ``rows`` [n, hidden] are sorted by expert."""
        if self.exchange is None:
            return self._through(rows, ends, self.gate, self.up, self.down)
        up, down = self.exchange.local_experts(self.up), self.exchange.local_experts(self.down)
        gate = None if self.gate is None else self.exchange.local_experts(self.gate)
        apply = partial(self._through, gate=gate, up=up, down=down)
        return self.exchange.apply_remotely(rows, ends, apply)

    def _through(
        self, rows: Tensor, ends: Tensor, gate: Tensor | None, up: Tensor, down: Tensor
    ) -> Tensor:
        low = in_products(rows)
        rows = rows.to(low)
        between = grouped_linear(rows, up.to(low), ends)
        if gate is None:
            between = self.activation(between)
        else:
            between = self.activation(grouped_linear(rows, gate.to(low), ends)) * between
        return grouped_linear(between, down.to(low), ends)

    def notes(self, routed: Routed, counted: Tensor | None) -> Notes:
        """Return figures, summed over the tokens flagged in ``counted`` [batch, length] (None: all
        tokens).

        ``loads`` [experts]: the number of tokens assigned to each expert. ``balance``: the sum over
        batch rows of tokens x experts x sum(f_i P_i), where f_i is the share of assignments that go
        to expert i, and P_i is the expert's mean score (Fedus et al. 2022, equation 4). With even
        loads this is the number of tokens. ``device_balance``: the same for groups of experts.
        ``router_z``: the squared logarithm of the softmax normaliser. ``dropped``: the number of
        assignments to experts without room, divided by top_k."""
        experts, count = routed.experts, self.own.count
        if counted is None:
            counted = experts.new_ones(experts.shape[:2], dtype=torch.bool)
        squares = {"router_z": (routed.logits.logsumexp(-1).square() * counted).sum()}
        if self.own.routing == "expert_choice":  # loads are even
            return squares
        each = counted[..., None].expand_as(experts).flatten(1)
        loads = torch.zeros(len(experts), count, device=experts.device)
        loads = loads.scatter_add(1, experts.flatten(1), each.float())
        notes = {"loads": loads.sum(0)}
        if routed.kept is not None and self.own.capacity is not None:
            sent = each if routed.sent is None else each & routed.sent.flatten(1)
            notes["dropped"] = (sent & ~routed.kept.flatten(1)).float().sum() / self.own.top_k
        if self.router is None:
            return notes
        scores = routed.scores
        if self.own.scores == "sigmoid":
            scores = scores / scores.sum(-1, keepdim=True)
        tokens = counted.sum(1).clamp(min=1)
        shares = loads / (tokens[:, None] * self.own.top_k)
        totals, groups = (scores * counted[..., None]).sum(1), self.own.groups
        notes["balance"] = count * (totals * shares).sum()
        if groups > 1:
            by_group = [each.unflatten(-1, (groups, -1)).sum(-1) for each in (totals, shares)]
            notes["device_balance"] = groups * (by_group[0] * by_group[1]).sum()
        return notes | squares

    def rebalance(self, loads: Tensor) -> None:
        if self.router is not None:
            self.router.rebalance(loads)

    def divide_experts(self, mesh: DeviceMesh) -> set[nn.Parameter]:
        """Split the experts' matrices, on the meta device, among processes, and return them."""
        from torch.distributed.tensor import DTensor, Shard

        if self.own.count % mesh.size():
            raise UsageError(
                f"expert_parallel: {self.own.count} experts cannot be split among {mesh.size()}"
                " processes: start a number of processes that divides them"
            )
        self.exchange = Exchange(group=mesh.get_group())
        matrices = set()
        for name in ("gate", "up", "down"):
            if (whole := getattr(self, name)) is None:
                continue
            part = whole.detach().chunk(mesh.size())[0]
            split = DTensor.from_local(part, mesh, [Shard(0)], run_check=False)
            setattr(self, name, nn.Parameter(split))
            matrices.add(getattr(self, name))
        return matrices


def of_layer(config: ModelConfig, layer: int) -> nn.Module:
    own = config.feed_forward
    assert isinstance(own, settings.Experts)
    return Experts(config, layer) if own.at(layer) else FeedForward(config)


FEED_FORWARDS[settings.Experts] = of_layer
