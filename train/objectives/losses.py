"""Cross-entropy in float32 and its gradient, in chunks of tokens, so that logits are never stored
whole.

With a vocabulary of 50,000, the logits of 16,000 tokens and their gradient take 6 GB. Here the
forward pass computes the logits of a chunk, turns them into their gradient, multiplies it by the
head and drops it. Products with the head are computed only once, and softmax reads from the
processor's cache. Liger kernels (Hsu et al. 2024) call this fused linear cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.attention import ContextParallel
from train.config import TrainConfig
from train.device import in_products
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Experts
from train.model.heads import HeadWeights
from train.objectives.example import IGNORED, OBJECTIVES, Example, Objective

LOGITS = 1 << 26  # most logits of a chunk on a CPU
GPU_LOGITS = 1 << 28  # on a GPU; 512 MiB in bfloat16, and as much again for their gradient
TOKENS = 256  # of a chunk on a CPU: more overflow its cache, fewer slow matrix products down


def chunk_of(vocab: int, asked: int = 0, device: str = "cpu") -> int:
    """Return the number of tokens of a chunk: ``asked``, or if 0, one that suits the device."""
    most = max(1, (LOGITS if device == "cpu" else GPU_LOGITS) // vocab)
    return asked or (min(TOKENS, most) if device == "cpu" else most)


def loss_sums(
    features: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    softcap: float | None = None,
    *,
    chunk: int,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return three sums over the scored targets: loss, nats, and squared log normalisers.

    loss = nats + z_loss * squares. Only the loss has a gradient, and no second derivative.
    ``features``: [tokens, hidden]. ``targets``: [tokens]. ``weight``, ``bias``: the head's, [vocab,
    hidden] and [vocab]. ``softcap``: the head's cap on logits. The mean of the squares is the
    z-loss (Chowdhery et al. 2022, section 5), which keeps the log normaliser near 0.
    Under autocast, matrix products have autocast's dtype.
    """
    low = in_products(features)
    needed = [tensor is not None and tensor.requires_grad for tensor in (features, weight, bias)]
    if not torch.is_grad_enabled():
        needed = [False] * 3
    with torch.autocast(features.device.type, enabled=False):
        sums: tuple[Tensor, Tensor, Tensor] = _Sums.apply(
            features, weight, bias, targets, softcap, chunk, z_loss, low, tuple(needed)
        )
    return sums


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        softcap: float | None,
        chunk: int,
        z_loss: float,
        low: torch.dtype,
        needed: tuple[bool, bool, bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, matrix = features.to(low), weight.to(low)
        addend = None if bias is None else bias.to(low)
        counts = targets != IGNORED
        of_x = torch.empty_like(x) if needed[0] else None
        of_weight = torch.zeros_like(weight) if needed[1] else None
        of_bias = torch.zeros_like(bias) if needed[2] and bias is not None else None
        exact = torch.promote_types(low, torch.float32)
        shares_of = _shares(min(chunk, len(x)), matrix, exact, softcap)
        nats, squares = x.new_zeros((), dtype=exact), x.new_zeros((), dtype=exact)
        for first in range(0, len(x), chunk):
            part = slice(first, first + chunk)
            counted = counts[part]
            wanted_ids = torch.where(counted, targets[part], 0)[:, None]
            target_logits, log_sum, shares, slopes = shares_of(x[part], matrix, addend, wanted_ids)
            nats = nats + torch.where(counted, log_sum - target_logits, 0).sum()
            squared = torch.where(counted, log_sum.square(), 0)
            squares = squares + squared.sum()
            if not any(needed):
                continue
            weight_of_row = counted.to(exact)[:, None]
            factors = 1 + 2 * z_loss * log_sum[:, None] if z_loss else None
            gradient = _less_targets(shares, wanted_ids, factors)
            gradient = (gradient if slopes is None else gradient * slopes).to(low)
            # Unscored targets are removed from the small factors, not from the large gradient.
            if of_x is not None:
                of_x[part] = (gradient @ matrix) * weight_of_row.to(low)
            if of_weight is not None:
                _add_product(of_weight, gradient, x[part] * weight_of_row.to(low))
            if of_bias is not None:
                of_bias += (gradient.to(exact) * weight_of_row).sum(0)
        ctx.save_for_backward(of_x, of_weight, of_bias)
        ctx.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        loss = nats + z_loss * squares if z_loss else nats.clone()
        ctx.mark_non_differentiable(nats, squares)
        return loss, nats, squares

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _nats: Tensor, _squares: Tensor) -> tuple[Any, ...]:
        # Scaled in place, because autograd refuses a second backward pass.
        gradients = [
            None if tensor is None else tensor.mul_(grad.to(tensor.dtype))
            for tensor in ctx.saved_tensors
        ]
        of_x, of_weight, of_bias = gradients
        if of_x is not None:
            of_x = of_x.to(ctx.dtypes[0])
        return of_x, of_weight, of_bias, None, None, None, None, None, None


Found = tuple[Tensor, Tensor, Tensor, Tensor | None]
Shares = Callable[[Tensor, Tensor, Tensor | None, Tensor], Found]


def _shares(rows: int, matrix: Tensor, exact: torch.dtype, softcap: float | None) -> Shares:
    """Return a function that takes at most ``rows`` tokens and returns (their targets' logits, log
    normalisers, softmax, derivatives of the soft cap or None) in dtype ``exact``. ``matrix``: the
    head's weight. On a CPU all calls reuse one piece of memory, because the C library would request
    new memory from the system page by page. On other devices the function is meant for a compiler,
    which fuses its operations so that the logits are read once."""
    if matrix.device.type != "cpu" or torch.compiler.is_compiling():

        def fused(x: Tensor, w: Tensor, b: Tensor | None, ids: Tensor) -> Found:
            logits, slopes = F.linear(x, w, b).to(exact), None
            if softcap is not None:
                share = (logits / softcap).tanh()
                logits, slopes = softcap * share, 1 - share.square()
            top = logits.amax(-1, keepdim=True)
            powers = (logits - top).exp()
            total = powers.sum(-1, keepdim=True)
            return logits.gather(-1, ids)[:, 0], (top + total.log())[:, 0], powers / total, slopes

        return fused
    first, second = matrix.new_empty(2, rows, len(matrix), dtype=exact).unbind()

    def reused(x: Tensor, w: Tensor, b: Tensor | None, ids: Tensor) -> Found:
        logits, shares = first[: len(x)], second[: len(x)]
        if w.dtype != exact:
            logits.copy_(F.linear(x, w, b))
        else:
            torch.mm(x, w.t(), out=logits)
            logits = logits if b is None else logits.add_(b)
        if softcap is not None:
            logits.div_(softcap).tanh_().mul_(softcap)
        torch.softmax(logits, -1, out=shares)
        # The largest softmax value is 1 / sum(exp(logits - largest logit)).
        log_sum = logits.amax(-1) - shares.amax(-1).log()
        found = logits.gather(-1, ids)[:, 0]
        slopes = None if softcap is None else logits.div_(softcap).square_().neg_().add_(1)
        return found, log_sum, shares, slopes

    return reused


def _less_targets(shares: Tensor, ids: Tensor, factors: Tensor | None) -> Tensor:
    if shares.device.type == "cpu" and not torch.compiler.is_compiling():
        shares = shares if factors is None else shares.mul_(factors)
        return shares.scatter_add_(-1, ids, -torch.ones_like(ids, dtype=shares.dtype))
    targets = torch.arange(shares.shape[-1], device=shares.device) == ids
    shares = shares if factors is None else shares * factors
    return torch.where(targets, shares - 1, shares)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if a.dtype == total.dtype:
        total.addmm_(a.t(), b)
    else:
        total += a.t() @ b


def distance(
    features: Tensor,
    head: HeadWeights,
    taught: Tensor,
    teacher: HeadWeights,
    targets: Tensor,
    *,
    chunk: int,
    temperature: float,
) -> Tensor:
    """Return the distillation loss, a sum over the scored targets (Hinton et al. 2015, section 2):
    the Kullback-Leibler divergence of the model's predictions from the teacher's, both softened by
    the temperature, times the temperature squared. ``features`` [tokens, hidden] and ``head``
    belong to the model, ``taught`` (also features) and ``teacher`` (a head) to the teacher."""

    def part(x: Tensor, y: Tensor, counted: Tensor) -> Tensor:
        ours = (head.logits(x) / temperature).log_softmax(-1)
        with torch.no_grad():
            theirs = (teacher.logits(y) / temperature).log_softmax(-1)
        each = F.kl_div(ours, theirs, reduction="none", log_target=True).sum(-1)
        return torch.where(counted, each, 0).sum() * temperature**2

    counts = targets != IGNORED
    pieces = zip(features.split(chunk), taught.split(chunk), counts.split(chunk), strict=True)
    again = features.requires_grad and torch.is_grad_enabled()
    sums = [checkpoint(part, *p, use_reentrant=False) if again else part(*p) for p in pieces]
    total: Tensor = torch.stack(sums).sum()
    return total


class Term(NamedTuple):
    """A part of the loss, or a figure that is only reported. ``sum``: its sum over a micro-batch.
    The sum over all micro-batches and processes is divided by the count that ``per`` names (see
    ``Example.counts``). ``weight``: its factor in the loss, 0 if it is only reported.
    """

    sum: Tensor
    per: str
    weight: float


class Pass(NamedTuple):
    """A micro-batch, ``example``, and what its forward pass gives. ``features`` [rows, context,
    hidden]: the model's output before the head. ``read`` [targets, hidden]: the head's input for
    scored tokens. ``draws``: seeds of dropout. ``chunk``: how many tokens' logits are in memory at
    once. ``notes``: figures by name, such as the balance of experts, one value per layer."""

    features: Tensor
    read: Tensor
    example: Example
    draws: Tensor | None
    chunk: int
    notes: dict[str, list[Tensor]]


# Functions that compute the terms of additional heads, named as in ``model.heads.HEADS``.
TERMS: dict[str, Callable[[Losses, Pass], dict[str, Term]]] = {}


class Losses(nn.Module):
    """The module that computes the terms of a micro-batch, by name.

    ``objective``: the loss of the objective's targets, the sum of ``loss`` (nats) and ``z_loss``
        (squared log normalisers).
    ``pairs``: the nats of predictions for pairs of segments.
    ``boundary``: the nats of predictions for hidden spans.
    ``replaced``: the discriminator's nats per token; ``replaced_accuracy``: the share of tokens
        that it judges correctly; ``replaced_share``: the share that differs from the original.
    ``mtp``: the nats of modules that predict later tokens, as a mean over the modules and over all
        targets of the rows (DeepSeek-V3, equation 24).
    ``distillation``: the ``distance`` from a ``teacher``, which is not trained.

    Models with experts also have the losses and figures of the experts (see ``of_experts``). With
    ``parallel``, several processes divide each row, and sums are over this process's tokens.
    """

    def __init__(
        self,
        model: Decoder,
        config: TrainConfig,
        teacher: Decoder | None = None,
        parallel: ContextParallel | None = None,
    ) -> None:
        super().__init__()
        self.parallel = parallel
        self.model, self.z_loss, self.chunk = model, config.z_loss, config.loss_chunk
        self.config, own = config, config.objective
        self.of_texts = OBJECTIVES.get(type(own), Objective).losses(own)
        head = model.head
        parts = {"pair": head.pair, "boundary": head.boundary, "generator": model.generator}
        self.other_terms = [TERMS[name] for name, part in parts.items() if part is not None]
        if model.mtp:
            self.other_terms.append(TERMS["mtp"])
        self.share = config.teacher_weight if teacher is not None else 0.0
        self.temperature = config.temperature
        self.teacher = (teacher,)  # a tuple, so that it is not registered as a submodule

    def forward(self, example: Example, draws: Tensor | None = None) -> dict[str, Term]:
        """Return the terms of ``example``, by name. ``draws``: int64 [rows], seeds of dropout."""
        notes: dict[str, list[Tensor]] = {}
        features = example.read_by(self.model, draws, self.parallel, notes)
        if self.of_texts is not None:
            nats = self.of_texts(self.model.logits(features), example).sum()
            spans = {"objective": Term(nats, "targets", 1.0), "loss": Term(nats, "targets", 0.0)}
            spans["z_loss"] = Term(0.0 * nats, "targets", 0.0)
            return spans | of_experts(self.model.config, notes)
        read, targets = self._scored(self.model, features, example)
        device = features.device.type
        chunk = chunk_of(self.model.config.vocab, self.chunk, device)
        loss, nats, squares = loss_sums(
            read, targets, *self.model.head_weights(), chunk=chunk, z_loss=self.z_loss
        )
        terms = {
            "objective": Term(loss, "targets", 1.0 - self.share),
            "loss": Term(nats, "targets", 0.0),
            "z_loss": Term(self.z_loss * squares, "targets", 0.0),
        }
        batch = Pass(features, read, example, draws, chunk, notes)
        for term in self.other_terms:
            terms |= term(self, batch)
        (teacher,) = self.teacher
        if teacher is not None:
            with torch.no_grad():
                features = example.read_by(teacher, parallel=self.parallel)
                taught, _ = self._scored(teacher, features, example)
            apart = distance(
                read,
                self.model.head_weights(),
                taught,
                teacher.head_weights(),
                targets,
                chunk=chunk,
                temperature=self.temperature,
            )
            terms["distillation"] = Term(apart, "targets", self.share)
        return terms | of_experts(self.model.config, notes)

    def own(self, tensor: Tensor) -> Tensor:
        """Return this process's tokens of ``tensor`` [rows, context], flattened."""
        return (tensor if self.parallel is None else self.parallel.own(tensor)).flatten()

    def _scored(self, model: Decoder, features: Tensor, example: Example) -> tuple[Tensor, Tensor]:
        x, targets = features.flatten(0, 1), self.own(example.targets)
        places = example.scored
        if places is not None:
            if self.parallel is not None:
                places = (targets != IGNORED).nonzero().flatten()
            x, targets = x.index_select(0, places), targets.index_select(0, places)
        return model.head_input(x), targets


def of_experts(config: ModelConfig, notes: dict[str, list[Tensor]]) -> dict[str, Term]:
    """Return the losses and figures of layers with experts, from their ``notes``, as means over
    these layers. Only ``loads`` is not a mean: [layers, experts], the number of tokens assigned to
    each expert. Modules for multi-token prediction count as layers."""
    own = config.feed_forward
    if not isinstance(own, Experts):
        return {}
    weights = {name: getattr(own, name) for name in ("balance", "device_balance", "router_z")}
    return {
        name: Term(torch.stack(values), "tokens", 0.0)
        if name == "loads"
        else Term(torch.stack(values).mean(), "tokens", len(values) * weights.get(name, 0.0))
        for name, values in notes.items()
    }


@torch.no_grad()
def token_losses(model: Decoder, example: Example, chunk: int = 0) -> Tensor:
    """Return the nats of each target, [rows * context], 0 for ignored ones. ``chunk``: the number
    of tokens whose logits are in memory at once; 0 chooses a number for the device.
    """
    return torch.cat([_nats(*part) for part in _logits(model, example, chunk)])


@torch.no_grad()
def token_losses_and_hits(model: Decoder, example: Example, chunk: int = 0) -> Tensor:
    """Return [rows * context, 2]: a target's nats, and 1 if it is the likeliest token, else 0."""
    return torch.cat(
        [
            torch.stack([_nats(logits, target), (logits.argmax(-1) == target).float()], -1)
            for logits, target in _logits(model, example, chunk)
        ]
    )


def _logits(model: Decoder, example: Example, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
    features = example.read_by(model).flatten(0, 1)
    targets = example.targets.flatten()
    size = chunk_of(model.config.vocab, chunk, features.device.type)
    for x, target in zip(features.split(size), targets.split(size), strict=True):
        yield model.logits(x), target


def _nats(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
