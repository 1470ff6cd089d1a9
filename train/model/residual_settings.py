"""The settings of residual connections: how the parts of a block join the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from llmcurate.base.settings import Setting, check, kind_of
from train.model.plugin_settings import OwnResidual

# Attention, with cross-attention where there is some, and the feed-forward.
ATTENDS, FEEDS = ("attention", "cross"), ("feed_forward",)
Parts = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Serial:
    """Attention, then the feed-forward, each added to the stream."""

    kind: Annotated[str, kind_of("serial", "One part after the other.")] = "serial"
    sandwich: Annotated[
        int,
        Setting(
            "Sandwich coefficient: attention of so many layers comes first, before any "
            "feed-forward, and as many feed-forwards come last (Press et al. 2020).",
            ge=0,
        ),
    ] = 0

    def __post_init__(self) -> None:
        check(self, "residual.")

    def steps(self, layers: int) -> list[tuple[int, Parts]]:
        """The order in which parts run: a layer, and which of its parts."""
        if not self.sandwich:
            return [(layer, ATTENDS + FEEDS) for layer in range(layers)]
        steps: list[tuple[int, Parts]] = [(layer, ATTENDS) for layer in range(self.sandwich)]
        for layer in range(self.sandwich, layers):
            steps += [(layer, ATTENDS), (layer - self.sandwich, FEEDS)]
        return steps + [(layer, FEEDS) for layer in range(layers - self.sandwich, layers)]


@dataclass(frozen=True, kw_only=True)
class ReZero(Serial):
    """What parts add is multiplied by a learned number, which begins at 0; a layer has one."""

    kind: Annotated[
        str, kind_of("rezero", "x + a * part(x), a from 0 on (Bachlechner et al. 2020).")
    ] = "rezero"


@dataclass(frozen=True, kw_only=True)
class DeepNorm(Serial):
    """The stream is multiplied by ``alpha`` before what a part adds; first values by ``beta``."""

    kind: Annotated[
        str, kind_of("deepnorm", "norm(alpha * x + part(x)) (Wang et al. 2022, arXiv 2203.00555).")
    ] = "deepnorm"
    alpha: Annotated[
        float | None,
        Setting("Weight of the stream. Without a value that of the paper.", gt=0),
    ] = None
    beta: Annotated[
        float | None,
        Setting(
            "What first values of values, of attention's output and of feed-forwards are "
            "multiplied by. Without a value that of the paper.",
            gt=0,
        ),
    ] = None

    def scales(self, layers: int, *, read: bool = False) -> tuple[float, float]:
        """alpha and beta of a stack; ``read``: of a decoder that sees an encoder (figure 2 of the
        paper).
        """
        n, most = (2, 8) if not read else (3, 12)
        alpha, beta = (n * layers) ** 0.25, (most * layers) ** -0.25
        return self.alpha or alpha, self.beta or beta

    def of_encoder(self, layers: int, decoder: int) -> DeepNorm:
        """That of an encoder of ``layers``, beside a decoder of so many (figure 2)."""
        ratio = (layers**4 * decoder) ** (1 / 16)
        alpha, beta = 0.81 * ratio, 0.87 / ratio
        return DeepNorm(sandwich=self.sandwich, alpha=self.alpha or alpha, beta=self.beta or beta)


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Attention and feed-forward read the same stream, and their sum is added to it."""

    kind: Annotated[str, kind_of("parallel", "Both parts at once (GPT-J, PaLM).")] = "parallel"
    norms: Annotated[int, Setting("Norms of a block: 1 (GPT-J), or 2 (GPT-NeoX).", ge=1, le=2)] = 1

    def __post_init__(self) -> None:
        check(self, "residual.")


Residual = Serial | ReZero | DeepNorm | Parallel | OwnResidual
