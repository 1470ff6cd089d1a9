"""The shape of a decoder: every choice of the transformer family on one page.

What combines is allowed; what does not is refused in one line that names both choices.
"""

from __future__ import annotations

from dataclasses import dataclass

from train.errors import TrainError
from train.settings import positive

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


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise TrainError(f"{name} is {value!r}: choose one of {', '.join(choices)}", exit_code=2)


def _refuse(condition: bool, message: str) -> None:
    if condition:
        raise TrainError(message, exit_code=2)


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched to a context longer than ``original_context``.

    ``linear``: positions over ``factor`` (Chen et al. 2023). ``ntk``: theta times
    factor ** (d / (d - 2)) (bloc97 2023). ``yarn``: by wavelength, between ``beta_fast`` and
    ``beta_slow`` turns in the original context (Peng et al. 2023). ``llama3``: by wavelength,
    between ``low`` and ``high`` (Llama 3.1). ``longrope``: a divisor for each frequency, ``short``
    while the model's context is at most the original one and ``long`` beyond (Ding et al. 2024).
    """

    kind: str
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    low: float = 1.0
    high: float = 4.0
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _one_of("rope_scaling.kind", self.kind, SCALINGS)
        positive(self, "factor")
        if self.kind not in ("linear", "ntk"):
            _refuse(
                self.original_context < 1,
                f"rope_scaling {self.kind}: give original_context, the context before scaling",
            )
        _refuse(self.factor < 1, f"rope_scaling.factor is {self.factor}: give 1 or more")
        _refuse(self.low >= self.high, "rope_scaling: low must be less than high")
        _refuse(
            not 0 < self.beta_slow < self.beta_fast,
            "rope_scaling: beta_slow must be over 0 and less than beta_fast",
        )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer. The defaults are LLaMA's choices (Touvron et al. 2023).

    Sizes: ``kv_heads`` below ``heads`` shares each key and value head among ``heads / kv_heads``
    query heads (MQA: Shazeer 2019; GQA: Ainslie et al. 2023). ``context`` is the longest row in
    tokens, in training and in generation. ``tied_embeddings``: the output head is the embedding,
    transposed.

    ``norm``: rms (Zhang and Sennrich 2019); layer (Ba et al. 2016); layer_no_bias (PaLM);
    layer_plain, without weights (OLMo). ``norm_place``: pre; post, the original LN(x + f(x))
    without a norm at the end; sandwich, before and after each part (Ding et al. 2021).
    ``embedding_norm``: a norm after the embedding (BLOOM). ``qk_norm``: RMSNorm over head_dim of
    queries and keys before the rotation (Henry et al. 2020, as in Qwen3).

    ``bias``: none; all linear layers; qkv alone (Qwen2.5); mlp alone (GPT-J). The output head has
    one with ``head_bias``.

    ``mlp``: relu, gelu, gelu_tanh, swish, relu2 (So et al. 2021), and gated (Shazeer 2020) glu,
    geglu, geglu_tanh, reglu, swiglu. ``mlp_hidden`` is the width between; see ``gated_width``.
    ``parallel``: attention and feed-forward read the same x (GPT-J, PaLM), through one norm or
    ``parallel_norms`` 2 (GPT-NeoX).

    ``window``: a query sees that many keys at most, itself counted (Beltagy et al. 2020), in the
    layers that ``window_pattern`` marks W, a letter a layer, repeated; F is full attention.
    ``sinks``: the first tokens of a document stay visible past the window (Xiao et al. 2023).

    ``position``: rope (Su et al. 2021) over the first ``rope_dim`` dimensions of a head; learned
    (``learned_offset`` rows come before position 0, OPT); sinusoidal (Vaswani et al. 2017, with
    the embedding times sqrt(hidden)); alibi (Press et al. 2022); t5, a learned bias for each
    bucket of distances and head, shared by the layers (Raffel et al. 2020); none.

    ``dropout``: of the embeddings and of what each part adds to the residual stream.
    """

    vocab: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_hidden: int
    context: int = 256
    tied_embeddings: bool = True

    norm: str = "rms"
    norm_place: str = "pre"
    norm_eps: float = 1e-5
    embedding_norm: bool = False
    qk_norm: bool = False
    bias: str = "none"
    head_bias: bool = False

    mlp: str = "swiglu"
    parallel: bool = False
    parallel_norms: int = 1

    window: int | None = None
    window_pattern: str = "W"
    sinks: int = 0

    position: str = "rope"
    rope_theta: float = 10_000.0
    rope_dim: int | None = None
    rope_scaling: RopeScaling | None = None
    learned_offset: int = 0
    t5_buckets: int = 32
    t5_distance: int = 128

    dropout: float = 0.0

    def __post_init__(self) -> None:
        positive(self, "vocab", "layers", "hidden", "heads", "kv_heads", "head_dim")
        positive(self, "mlp_hidden", "context", "rope_theta", "norm_eps")
        _one_of("norm", self.norm, NORMS)
        _one_of("norm_place", self.norm_place, PLACES)
        _one_of("bias", self.bias, BIASES)
        _one_of("mlp", self.mlp, tuple(MLPS))
        _one_of("position", self.position, POSITIONS)
        _refuse(
            self.heads % self.kv_heads != 0,
            f"kv_heads is {self.kv_heads}: it must divide heads ({self.heads})",
        )
        _refuse(
            self.parallel and self.norm_place != "pre",
            f"parallel with norm_place {self.norm_place}: a parallel block has its norms before",
        )
        _refuse(
            self.parallel_norms not in (1, 2),
            f"parallel_norms is {self.parallel_norms}: give 1 (GPT-J) or 2 (GPT-NeoX)",
        )
        _refuse(not 0 <= self.dropout < 1, f"dropout is {self.dropout}: give 0 or more, below 1")
        _refuse(self.learned_offset < 0, "learned_offset: give 0 or more")
        self._check_window()
        self._check_positions()

    def _check_window(self) -> None:
        _refuse(
            not self.window_pattern or bool(set(self.window_pattern) - set("WF")),
            f"window_pattern is {self.window_pattern!r}: a letter a layer, W (window) or F (full)",
        )
        _refuse(self.window is not None and self.window < 1, "window: give 1 token or more")
        _refuse(self.sinks < 0, "sinks: give 0 or more")
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
