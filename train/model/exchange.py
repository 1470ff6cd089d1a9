"""Expert parallel: each process holds some of the experts whole, and tokens are sent to them and
back (GShard, Lepikhin et al. 2021, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The processes of a ``group``, of which each has as many experts, in turn."""

    group: Any

    def there(
        self, rows: Tensor, ends: Tensor, apply: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Rows [n, hidden] sorted by expert, of all experts, where each one's end at ``ends``:
        what ``apply``, which takes such rows of this process's experts, makes of them where their
        expert is. Rows behind the last end become zeros.
        """
        size = dist.get_world_size(self.group)
        counts = ends.long().diff(prepend=ends.new_zeros(1, dtype=torch.long))
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.group)
        theirs = theirs.view(size, -1)  # [process, expert of this one]
        away, here = torch.stack((counts.view(size, -1).sum(1), theirs.sum(1))).tolist()
        came = _Send.apply(rows[: sum(away)], away, here, self.group)
        experts = torch.arange(theirs.shape[1], device=rows.device).repeat(size)
        order = experts.repeat_interleave(theirs.flatten()).argsort(stable=True)
        results = apply(came.index_select(0, order), theirs.sum(0).cumsum(0).int())
        out = _Send.apply(results.index_select(0, order.argsort()), here, away, self.group)
        return F.pad(out, (0, 0, 0, len(rows) - len(out)))

    def held(self, weight: Any) -> Tensor:
        """This process's experts of a split matrix. Their gradient is of the tokens of all
        processes, and divided by their number as those are that processes average.
        """
        out: Tensor = _Averaged.apply(weight.to_local(), dist.get_world_size(self.group))
        return out


class _Send(torch.autograd.Function):
    """Rows [n, hidden]: ``away`` of them to each process, ``here`` from each; gradients go back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, away: list[int], here: list[int], group: Any) -> Tensor:
        ctx.way = here, away, group
        out = rows.new_empty(sum(here), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), here, away, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        return _Send.apply(grad, *ctx.way), None, None, None


class _Averaged(torch.autograd.Function):
    """As it is; the gradient over ``count``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> Tensor:
        ctx.count = count
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad / ctx.count, None
