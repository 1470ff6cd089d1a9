"""The settings of feed-forwards: one that every token goes through, or experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from llmcurate.base.settings import dataclass, refuse

# name: (activation, gated). Narang et al. 2021 compare them but for relu2.
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
    """A feed-forward that every token goes through."""

    kind: Literal["dense"] = "dense"
    width: int = Field(
        ge=1,
        description="Dimensions between its layers.",
    )
    activation: Activation = Field(
        "swiglu",
        description="Plain relu, gelu, gelu_tanh, swish, relu2 (So et al. 2021), elu, selu, "
        "sigmoid, softplus, gated (Shazeer 2020) glu, geglu, geglu_tanh, reglu, swiglu.",
    )
    bias: bool = Field(False, description="Whether its linear layers have a bias.")

    @property
    def gated(self) -> bool:
        return ACTIVATIONS[self.activation][1]


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Feed-forwards of which each token goes through a few. The defaults are Mixtral's choices
    (Jiang et al. 2024). Their linear layers have no biases.
    """

    bias: ClassVar[bool] = False
    kind: Literal["experts"] = "experts"
    count: int = Field(8, ge=1, description="Number of experts.")
    top_k: int = Field(2, ge=1, description="Experts that a token goes through.")
    width: int = Field(ge=1, description="Dimensions between the layers of one expert.")
    activation: Activation = Field(
        "swiglu", description="Its activation, plain or gated, as of a dense one."
    )
    routing: Literal["top_k", "expert_choice", "hash"] = Field(
        "top_k",
        description="What chooses: top_k, each token its best experts; expert_choice, each expert "
        "its best tokens of a row, as many as on average (Zhou et al. 2022); hash, a fixed expert "
        "for each token of the vocabulary (Roller et al. 2021).",
    )
    scores: Literal["softmax", "sigmoid"] = Field(
        "softmax",
        description="What a router's outputs become: softmax over the experts, or sigmoid of each "
        "(DeepSeek-V3).",
    )
    normalise: bool = Field(
        True,
        description="Whether the scores of a token's experts are divided by their sum, which for "
        "softmax is one over the chosen alone (Mixtral); without it they stay (Switch, Qwen2-MoE).",
    )
    scale: float = Field(
        1.0,
        gt=0,
        description="What the chosen experts' scores are multiplied by (DeepSeek-V3: 2.5).",
    )
    groups: int = Field(
        1, ge=1, description="Groups of equal size that the experts form, as those of a device do."
    )
    top_groups: int = Field(
        1,
        ge=1,
        description="Groups that a token's experts are chosen from, those of the best scores "
        "(DeepSeek-V2: 3 of 8, DeepSeek-V3: 4 of 8).",
    )
    group_best: int = Field(
        2,
        ge=1,
        description="Best scores of a group whose sum ranks it (DeepSeek-V3: 2; DeepSeek-V2: 1).",
    )
    shared_width: int = Field(
        0,
        ge=0,
        description="Width of a feed-forward that every token goes through besides; several "
        "shared experts are one as wide as all (DeepSeekMoE, Dai et al. 2024). 0 is none.",
    )
    shared_gate: bool = Field(
        False, description="Whether what it adds is weighed by a sigmoid of the token (Qwen2-MoE)."
    )
    first_dense: int = Field(
        0, ge=0, description="First layers that keep a dense feed-forward (DeepSeekMoE)."
    )
    every: int = Field(
        1,
        ge=1,
        description="Every how manieth layer has experts, the others a dense feed-forward (GShard "
        "and Switch: 2).",
    )
    dense_width: int | None = Field(
        None,
        ge=1,
        description="Width of the dense feed-forwards. Without a value it is that of an expert.",
    )
    balance: float = Field(
        0.01,
        ge=0,
        description="Weight of the balance loss of each layer (Fedus et al. 2022, equation 4), "
        "taken over a row at a time (as in DeepSeek-V3), so that micro-batches and processes "
        "change nothing.",
    )
    device_balance: float = Field(
        0.0,
        ge=0,
        description="Weight of the same loss of groups, which stand for devices (DeepSeek-V2, "
        "arXiv 2405.04434, equations 26 to 28: 0.05).",
    )
    router_z: float = Field(
        0.0,
        ge=0,
        description="Weight of the mean squared log normaliser of each layer's router (Zoph et "
        "al. 2022: 0.001).",
    )
    bias_rate: float = Field(
        0.0,
        ge=0,
        description="Step by which, after each update, a bias for choosing rises for experts "
        "below the mean load and falls for those above (Wang et al. 2024: 0.001). 0: no bias.",
    )
    jitter: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="In training a router's inputs are multiplied by numbers drawn from 1 - "
        "jitter to 1 + jitter (Fedus et al. 2022: 0.01).",
    )
    noisy: bool = Field(
        False,
        description="Whether in training normal noise of a learned deviation is added to a "
        "router's outputs (Shazeer et al. 2017).",
    )
    random_second: bool = Field(
        False,
        description="Whether in training a token goes to the second of its two experts by chance, "
        "with a probability of twice its weight (GShard, Lepikhin et al. 2021, algorithm 1).",
    )
    capacity: float | None = Field(
        None,
        gt=0,
        description="Tokens of a row that an expert takes at most, over the mean; what comes "
        "later in the row is not sent there, second choices after all first ones (Lepikhin et al. "
        "2021). Without a value nothing is dropped.",
    )

    def __post_init__(self) -> None:
        refuse(
            self.top_k > self.count,
            f"feed_forward.top_k is {self.top_k}: there are {self.count} experts",
        )
        refuse(
            self.count % self.groups != 0,
            f"feed_forward.groups is {self.groups}: it must divide count ({self.count})",
        )
        refuse(
            self.top_groups > self.groups
            or self.top_groups * self.count // self.groups < self.top_k,
            f"feed_forward.top_groups is {self.top_groups}: of {self.groups} groups, they hold too "
            "few experts",
        )
        refuse(
            self.top_k == 1 and self.normalise and self.routing == "top_k",
            "feed_forward.top_k 1 with normalise: each weight would be 1 and the router learn "
            "nothing; set normalise=false",
        )
        refuse(
            self.random_second and self.top_k != 2,
            f"feed_forward.random_second with top_k {self.top_k}: it is of two experts",
        )
        refuse(
            self.device_balance > 0 and self.groups == 1,
            "feed_forward.device_balance without groups: set groups to the number of devices, and "
            "top_groups to the same where a token may go to all",
        )
        refuse(
            self.shared_gate and not self.shared_width,
            "feed_forward.shared_gate without shared_width: there is nothing to weigh",
        )
        if self.routing != "top_k":
            other = {"bias_rate": 0.0, "capacity": None, "noisy": False, "groups": 1}
            other["random_second"] = False
            for name, usual in other.items():
                refuse(
                    getattr(self, name) != usual,
                    f"feed_forward.{name} with routing {self.routing}: it is of top_k alone",
                )
        refuse(
            self.routing == "hash" and (self.top_k > 1 or self.jitter > 0 or self.router_z > 0),
            "feed_forward.routing hash: it has no router; leave jitter and router_z at 0 and set "
            "top_k=1",
        )

    @property
    def gated(self) -> bool:
        return ACTIVATIONS[self.activation][1]

    @property
    def random(self) -> bool:
        """Whether training draws numbers."""
        return self.jitter > 0 or self.noisy or self.random_second

    def at(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return layer >= self.first_dense and (layer + 1) % self.every == 0
