"""The settings of feed-forwards: a dense one that every token uses, or experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from llmcurate.base.settings import dataclass, refuse_any

# name: (activation, gated). Narang et al. 2021 compare them, except relu2.
ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_tanh": ("gelu_tanh", False),
    "swish": ("silu", False),
    "relu2": ("relu2", False),
    "elu": ("elu", False),
    "selu": ("selu", False),
    "sigmoid": ("sigmoid", False),
    "softplus": ("softplus", False),
    "glu": ("sigmoid", True),
    "geglu": ("gelu", True),
    "geglu_tanh": ("gelu_tanh", True),
    "reglu": ("relu", True),
    "swiglu": ("silu", True),
}
if TYPE_CHECKING:
    Activation = str
else:
    Activation = Literal[tuple(ACTIVATIONS)]


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A feed-forward that every token uses."""

    kind: Literal["dense"] = "dense"
    width: int = Field(ge=1)
    """Dimensions between its layers."""
    activation: Activation = "swiglu"
    """Activation. Plain: relu, gelu, gelu_tanh, swish, relu2 (So et al. 2021), elu, selu, sigmoid,
    softplus. Gated (Shazeer 2020): glu, geglu, geglu_tanh, reglu, swiglu."""
    bias: bool = False
    """Give its linear layers a bias."""

    @property
    def gated(self) -> bool:
        return ACTIVATIONS[self.activation][1]


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Several feed-forwards; each token uses only a few of them. The defaults are Mixtral's (Jiang
    et al. 2024). The linear layers have no biases.
    """

    bias: ClassVar[bool] = False
    kind: Literal["experts"] = "experts"
    count: int = Field(8, ge=1)
    """Number of experts."""
    top_k: int = Field(2, ge=1)
    """Number of experts that a token uses."""
    width: int = Field(ge=1)
    """Dimensions between the layers of one expert."""
    activation: Activation = "swiglu"
    """Activation of an expert, as for dense."""
    routing: Literal["top_k", "expert_choice", "hash"] = "top_k"
    """Way to assign tokens. top_k: each token chooses its best experts. expert_choice: each expert
    chooses its best tokens of a row, as many as the mean (Zhou et al. 2022). hash: each token of
    the vocabulary has a fixed expert (Roller et al. 2021)."""
    scores: Literal["softmax", "sigmoid"] = "softmax"
    """Function of the router's outputs: softmax over the experts, or a sigmoid of each output
    (DeepSeek-V3)."""
    normalise: bool = True
    """Divide the scores of a token's experts by their sum, which for softmax is a softmax over the
    chosen experts (Mixtral). False keeps the scores (Switch, Qwen2-MoE)."""
    scale: float = Field(1.0, gt=0)
    """Factor on the chosen experts' scores (DeepSeek-V3: 2.5)."""
    groups: int = Field(1, ge=1)
    """Number of groups of equal size, such as the experts on one device."""
    top_groups: int = Field(1, ge=1)
    """Number of groups with the best scores that a token's experts are chosen from (DeepSeek-V2: 3
    of 8, DeepSeek-V3: 4 of 8)."""
    group_best: int = Field(2, ge=1)
    """Number of a group's best scores whose sum ranks it (DeepSeek-V3: 2; DeepSeek-V2: 1)."""
    shared_width: int = Field(0, ge=0)
    """Width of a feed-forward that every token uses in addition; for several shared experts give
    the sum of their widths (DeepSeekMoE, Dai et al. 2024). 0: none."""
    shared_gate: bool = False
    """Weight the shared feed-forward by a sigmoid of the token (Qwen2-MoE)."""
    first_dense: int = Field(0, ge=0)
    """Number of first layers with a dense feed-forward (DeepSeekMoE)."""
    every: int = Field(1, ge=1)
    """Distance between layers with experts; the layers between have a dense feed-forward (GShard
    and Switch: 2)."""
    dense_width: int | None = Field(None, ge=1)
    """Width of the dense feed-forwards. Without a value an expert's width."""
    balance: float = Field(0.01, ge=0)
    """Weight of the balance loss of each layer (Fedus et al. 2022, equation 4), computed for each
    row (as in DeepSeek-V3), so that micro-batches and processes do not change it."""
    device_balance: float = Field(0.0, ge=0)
    """Weight of the same loss over groups instead of experts; a group stands for a device
    (DeepSeek-V2, arXiv 2405.04434, equations 26 to 28: 0.05)."""
    router_z: float = Field(0.0, ge=0)
    """Weight of the mean squared log normaliser of each layer's router (Zoph et al. 2022:
    0.001)."""
    bias_rate: float = Field(0.0, ge=0)
    """Step by which the bias of an expert's score, used only to choose, rises after an update below
    the mean load and falls above it (Wang et al. 2024: 0.001). 0: no bias."""
    jitter: float = Field(0.0, ge=0, lt=1)
    """In training, multiply a router's inputs by random numbers from 1 - jitter to 1 + jitter
    (Fedus et al. 2022: 0.01)."""
    noisy: bool = False
    """In training, add normal noise with a learned deviation to a router's outputs (Shazeer et al.
    2017)."""
    random_second: bool = False
    """In training, send a token to the second of its two experts only with a probability of twice
    that expert's weight (GShard, Lepikhin et al. 2021, algorithm 1)."""
    capacity: float | None = Field(None, gt=0)
    """Most tokens of a row per expert, as a multiple of the mean. Later tokens of the row are
    dropped; second choices come after all first choices (Lepikhin et al. 2021). Without a value no
    token is dropped."""

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.top_k > self.count:
            yield f"feed_forward.top_k is {self.top_k}: there are {self.count} experts"
        if self.count % self.groups != 0:
            yield f"feed_forward.groups is {self.groups}: it must divide count ({self.count})"
        if (
            self.top_groups > self.groups
            or self.top_groups * self.count // self.groups < self.top_k
        ):
            yield (
                f"feed_forward.top_groups is {self.top_groups} of {self.groups} groups: give at"
                f" most {self.groups}, with top_k experts or more"
            )
        if self.top_k == 1 and self.normalise and self.routing == "top_k":
            yield (
                "feed_forward.top_k 1 with normalise: each weight would be 1 and the router would "
                "learn nothing; set normalise=false"
            )
        if self.random_second and self.top_k != 2:
            yield f"feed_forward.random_second with top_k {self.top_k}: set top_k=2"
        if self.device_balance > 0 and self.groups == 1:
            yield (
                "feed_forward.device_balance without groups: set groups to the number of devices,"
                " and top_groups to the same if a token may go to all"
            )
        if self.shared_gate and not self.shared_width:
            yield "feed_forward.shared_gate without shared_width: set shared_width too"
        if self.routing != "top_k":
            of_top_k = {"bias_rate": 0.0, "capacity": None, "noisy": False, "groups": 1}
            of_top_k["random_second"] = False
            for name, usual in of_top_k.items():
                if getattr(self, name) != usual:
                    own = f"feed_forward.{name} with routing {self.routing}"
                    yield f"{own}: only routing top_k has it"
        if self.routing == "hash" and (self.top_k > 1 or self.jitter > 0 or self.router_z > 0):
            settings = "jitter=0, router_z=0 and top_k=1"
            yield f"feed_forward.routing hash: it has no router; set {settings}"

    @property
    def gated(self) -> bool:
        return ACTIVATIONS[self.activation][1]

    @property
    def random(self) -> bool:
        """True if training draws random numbers."""
        return self.jitter > 0 or self.noisy or self.random_second

    def at(self, layer: int) -> bool:
        """Return True if layer ``layer`` has experts."""
        return layer >= self.first_dense and (layer + 1) % self.every == 0
