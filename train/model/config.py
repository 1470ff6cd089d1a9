"""The shape of a decoder: every choice of the transformer family on one page.

What combines is allowed; what does not is refused in one line that names both choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from train.errors import TrainError
from train.settings import Setting, check

NORMS = ("rms", "layer", "layer_no_bias", "layer_plain")
PLACES = ("pre", "post", "sandwich")
BIASES = ("none", "all", "qkv", "mlp")
POSITIONS = ("rope", "learned", "sinusoidal", "alibi", "t5", "none")
SCALINGS = ("linear", "ntk", "yarn", "llama3", "longrope")
# name: (activation, gated)
MLPS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_tanh": ("gelu_tanh", False),
    "swish": ("silu", False),
    "relu2": ("relu2", False),
    "glu": ("sigmoid", True),
    "geglu": ("gelu", True),
    "geglu_tanh": ("gelu_tanh", True),
    "reglu": ("relu", True),
    "swiglu": ("silu", True),
}


def _refuse(condition: bool, message: str) -> None:
    if condition:
        raise TrainError(message, exit_code=2)


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched to a context longer than ``original_context``.

    ``linear``: positions over ``factor`` (Chen et al. 2023). ``ntk``: theta times
    factor ** (d / (d - 2)) (bloc97 2023). ``yarn`` (Peng et al. 2023) and ``llama3`` (Llama 3.1):
    by wavelength. ``longrope``: a divisor for each frequency (Ding et al. 2024).
    """

    kind: Annotated[str, Setting("The kind of scaling.", choices=SCALINGS)]
    factor: Annotated[float, Setting("How many times longer the context becomes.", ge=1)] = 1.0
    original_context: Annotated[
        int, Setting("Tokens of the context before scaling; of linear and ntk not needed.", ge=0)
    ] = 0
    beta_fast: Annotated[
        float,
        Setting(
            "Turns in the original context from which on yarn leaves a frequency as it is.", gt=0
        ),
    ] = 32.0
    beta_slow: Annotated[
        float,
        Setting("Turns in the original context up to which yarn scales a frequency fully.", gt=0),
    ] = 1.0
    low: Annotated[
        float, Setting("Turns in the original context up to which llama3 scales fully.", ge=0)
    ] = 1.0
    high: Annotated[
        float, Setting("Turns in the original context from which on llama3 scales nothing.", ge=0)
    ] = 4.0
    short: Annotated[
        tuple[float, ...],
        Setting("Divisors of longrope while the context is at most the original one."),
    ] = ()
    long: Annotated[tuple[float, ...], Setting("Divisors of longrope in longer contexts.")] = ()

    def __post_init__(self) -> None:
        check(self, "rope_scaling.")
        if self.kind not in ("linear", "ntk"):
            _refuse(
                self.original_context < 1,
                f"rope_scaling {self.kind}: give original_context, the context before scaling",
            )
        _refuse(self.low >= self.high, "rope_scaling: low must be less than high")
        _refuse(
            self.beta_slow >= self.beta_fast,
            "rope_scaling: beta_slow must be less than beta_fast",
        )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer. The defaults are LLaMA's choices (Touvron et al. 2023)."""

    vocab: Annotated[int, Setting("Tokens of the vocabulary.", ge=1)]
    layers: Annotated[int, Setting("Number of blocks.", ge=1)]
    hidden: Annotated[int, Setting("Dimensions of the residual stream.", ge=1)]
    heads: Annotated[int, Setting("Number of query heads.", ge=1)]
    kv_heads: Annotated[
        int,
        Setting(
            "Number of key and value heads, each shared by heads / kv_heads query heads "
            "(MQA: Shazeer 2019; GQA: Ainslie et al. 2023).",
            ge=1,
        ),
    ]
    head_dim: Annotated[int, Setting("Dimensions of a head.", ge=1)]
    mlp_hidden: Annotated[
        int, Setting("Dimensions between the layers of the feed-forward; see gated_width.", ge=1)
    ]
    context: Annotated[
        int, Setting("Tokens of the longest row, in training and in generation.", ge=1)
    ] = 256
    tied_embeddings: Annotated[
        bool, Setting("Whether the output head is the embedding, transposed.")
    ] = True

    norm: Annotated[
        str,
        Setting(
            "The norm: rms (Zhang and Sennrich 2019), layer (Ba et al. 2016), layer_no_bias (PaLM) "
            "or layer_plain, without weights (OLMo).",
            choices=NORMS,
        ),
    ] = "rms"
    norm_place: Annotated[
        str,
        Setting(
            "Where norms stand: pre; post, the original LN(x + f(x)) without a norm at the end; "
            "sandwich, before and after each part (Ding et al. 2021).",
            choices=PLACES,
        ),
    ] = "pre"
    norm_eps: Annotated[
        float, Setting("Number added to the variance, so that it is never 0.", gt=0)
    ] = 1e-5
    embedding_norm: Annotated[bool, Setting("A norm after the embedding (BLOOM).")] = False
    qk_norm: Annotated[
        bool,
        Setting(
            "RMSNorm over head_dim of queries and keys before the rotation (Henry et al. 2020, as "
            "in Qwen3)."
        ),
    ] = False
    bias: Annotated[
        str,
        Setting(
            "Which linear layers have a bias: none, all, qkv alone (Qwen2.5), mlp alone (GPT-J).",
            choices=BIASES,
        ),
    ] = "none"
    head_bias: Annotated[bool, Setting("Whether the output head has a bias.")] = False

    mlp: Annotated[
        str,
        Setting(
            "The feed-forward: plain relu, gelu, gelu_tanh, swish, relu2 (So et al. 2021), gated "
            "(Shazeer 2020) glu, geglu, geglu_tanh, reglu, swiglu.",
            choices=tuple(MLPS),
        ),
    ] = "swiglu"
    parallel: Annotated[
        bool, Setting("Whether attention and feed-forward read the same x (GPT-J, PaLM).")
    ] = False
    parallel_norms: Annotated[
        int, Setting("Norms of a parallel block: 1 (GPT-J) or 2 (GPT-NeoX).", ge=1, le=2)
    ] = 1

    window: Annotated[
        int | None,
        Setting(
            "Keys that a query sees at most, itself counted, in tokens (Beltagy et al. 2020). "
            "Without a value it sees all.",
            ge=1,
        ),
    ] = None
    window_pattern: Annotated[
        str,
        Setting("A letter a layer, repeated: W where the window holds, F for full attention."),
    ] = "W"
    sinks: Annotated[
        int,
        Setting(
            "First tokens of a document that stay visible past the window (Xiao et al. 2023).",
            ge=0,
        ),
    ] = 0

    position: Annotated[
        str,
        Setting(
            "Positions: rope (Su et al. 2021); learned; sinusoidal (Vaswani et al. 2017, with the "
            "embedding times sqrt(hidden)); alibi (Press et al. 2022); t5, a learned bias for each "
            "bucket of distances and head, shared by the layers (Raffel et al. 2020); none.",
            choices=POSITIONS,
        ),
    ] = "rope"
    rope_theta: Annotated[float, Setting("Base of the rotary frequencies.", gt=0)] = 10_000.0
    rope_dim: Annotated[
        int | None,
        Setting("Dimensions of a head that rope turns, an even number. Without a value all.", ge=2),
    ] = None
    rope_scaling: Annotated[
        RopeScaling | None, Setting("How rope is stretched to a longer context.")
    ] = None
    learned_offset: Annotated[
        int, Setting("Rows of learned positions that come before position 0 (OPT).", ge=0)
    ] = 0
    t5_buckets: Annotated[int, Setting("Buckets of distances of t5.", ge=1)] = 32
    t5_distance: Annotated[
        int, Setting("Distance in tokens from which on all share t5's last bucket.", ge=1)
    ] = 128

    dropout: Annotated[
        float,
        Setting(
            "Share of the embeddings, and of what each part adds to the residual stream, that is "
            "dropped in training.",
            ge=0,
            lt=1,
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        check(self)
        _refuse(
            self.heads % self.kv_heads != 0,
            f"kv_heads is {self.kv_heads}: it must divide heads ({self.heads})",
        )
        _refuse(
            self.parallel and self.norm_place != "pre",
            f"parallel with norm_place {self.norm_place}: a parallel block has its norms before",
        )
        self._check_window()
        self._check_positions()

    def _check_window(self) -> None:
        _refuse(
            not self.window_pattern or bool(set(self.window_pattern) - set("WF")),
            f"window_pattern is {self.window_pattern!r}: a letter a layer, W (window) or F (full)",
        )
        _refuse(
            self.window is None and self.sinks > 0,
            "sinks without a window do nothing: give window too",
        )

    def _check_positions(self) -> None:
        if self.position == "rope":
            _refuse(
                self.rope_dim is None and self.head_dim % 2 != 0,
                f"head_dim is {self.head_dim}: RoPE needs it even",
            )
            _refuse(
                not 2 <= self.rotated <= self.head_dim or self.rotated % 2 != 0,
                f"rope_dim is {self.rope_dim}: an even number up to head_dim ({self.head_dim})",
            )
        else:
            _refuse(
                self.rope_scaling is not None or self.rope_dim is not None,
                f"rope_scaling and rope_dim need position rope, not {self.position}",
            )
        scaling = self.rope_scaling
        if scaling is not None and scaling.kind == "longrope":
            for name in ("short", "long"):
                _refuse(
                    len(getattr(scaling, name)) != self.rotated // 2,
                    f"rope_scaling longrope: {name} needs {self.rotated // 2} numbers, one for "
                    "each rotated pair",
                )
        _refuse(
            scaling is not None and scaling.kind == "ntk" and self.rotated < 4,
            "rope_scaling ntk needs rope_dim over 2",
        )
        if self.position == "t5":
            _refuse(
                self.t5_buckets < 2 or self.t5_distance <= self.t5_buckets // 2,
                "t5_buckets: give 2 or more, and t5_distance over half of them",
            )

    @property
    def rotated(self) -> int:
        """Dimensions of a head that RoPE turns."""
        return self.head_dim if self.rope_dim is None else self.rope_dim

    def window_of(self, layer: int) -> int | None:
        """The window of a layer, or None where it sees everything."""
        marked = self.window_pattern[layer % len(self.window_pattern)] == "W"
        return self.window if marked else None


def gated_width(hidden: int, multiple: int = 256, ratio: float = 4.0) -> int:
    """The width of a gated MLP that costs what a plain one of ``ratio * hidden`` does: 2/3 of it
    (Shazeer 2020), rounded up to a multiple as LLaMA does.
    """
    width = int(2 * ratio * hidden / 3)
    return -(-width // multiple) * multiple
