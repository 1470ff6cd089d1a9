"""Position encodings: modules that act on embeddings, on queries and keys, or on scores. To add
one, write a file in encodings/ that has the name of its kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from train.attention import Bias, Mask, Relation, SharedMask
from train.model import roles
from train.model.config import ModelConfig
from train.model.plugins import chosen
from train.model.position_settings import Learned, NoPositions, Rope, RopeScaling
from train.model.roles import Role

E = TypeVar("E", bound="Positions")


def rotations(frequencies: Tensor, factor: float, positions: Tensor) -> Tensor:
    """Return the cosines and sines for ``rotate``: float32 [2, batch or 1, 1, length, r], for r
    rotated dimensions. The sines of the first r / 2 dimensions are negative, because ``rotate``
    adds where the formula x1 cos - x2 sin subtracts. ``positions``: [batch or 1, length]."""
    angle = positions[:, None, :, None].float() * frequencies
    cos, sin = angle.cos() * factor, angle.sin() * factor
    return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)))


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Return ``x`` with pairs of dimensions rotated: i with i + r / 2, as in Hugging Face's LLaMA
    weights, where r is the last size of ``rotation``. Dimensions from r on stay as they are. ``x``:
    [batch, heads, length, head_dim]."""
    cos, sin = rotation.to(x.dtype)
    size = cos.shape[-1]
    turned = x if size == x.shape[-1] else x[..., :size]
    first, second = turned.chunk(2, dim=-1)
    turned = torch.addcmul(turned * cos, torch.cat((second, first), dim=-1), sin)
    return turned if size == x.shape[-1] else torch.cat((turned, x[..., size:]), dim=-1)


def rope_frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """Return (angles, factor): the angle by which each pair of dimensions is rotated per position,
    float32 [rotated / 2], and the factor on cos and sin (Su et al. 2021), with scaling applied.
    """
    assert isinstance(config.position, Rope)
    size, theta, scaling = config.rotated, config.position.theta, config.position.scaling
    if scaling is not None and scaling.kind == "ntk":
        theta *= scaling.factor ** (size / (size - 2))
    frequencies = _plain(size, theta)
    if scaling is None or scaling.kind == "ntk":
        return frequencies, 1.0
    if scaling.kind == "linear":
        return frequencies / scaling.factor, 1.0
    if scaling.kind == "llama3":
        return _llama3(frequencies, scaling), 1.0
    given = scaling.attention_factor
    if scaling.kind == "yarn":
        usual = 1.0 if scaling.all_dims else temperature(scaling.factor)
        return _yarn(frequencies, scaling, size, theta), given or usual
    if config.context <= scaling.original_context:
        return frequencies / torch.tensor(scaling.short), 1.0
    stretch = config.context / scaling.original_context
    usual = math.sqrt(1 + math.log(stretch) / math.log(scaling.original_context))
    return frequencies / torch.tensor(scaling.long), given or usual


def temperature(factor: float, share: float = 1.0) -> float:
    """Return YaRN's factor (Peng et al. 2023, eq. 22), 1 + 0.1 x share x ln(factor), at least 1."""
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0


def scores_factor(config: ModelConfig) -> float:
    """Return the factor on attention scores: (0.1 x ``all_dims`` x ln(factor) + 1)^2, the square of
    YaRN's factor on queries and keys. ``factor`` and ``all_dims`` are the settings of the position
    scaling. The result is 1 if there is no scaling or ``all_dims`` is 0."""
    scaling = config.position.scaling if isinstance(config.position, Rope) else None
    return 1.0 if scaling is None else temperature(scaling.factor, scaling.all_dims) ** 2


def _plain(size: int, theta: float) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.int64).float() / size)


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    # Long waves are slowed down by the factor, short ones kept, those between interpolated.
    wave = 2 * math.pi / frequencies
    turns = scaling.original_context / wave
    share = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies


def _yarn(frequencies: Tensor, scaling: RopeScaling, size: int, theta: float) -> Tensor:
    # As llama3, but the ramp is over the index of the pair, not over its turns.
    def pair(turns: float) -> float:
        wave = scaling.original_context / (turns * 2 * math.pi)
        return size * math.log(wave) / (2 * math.log(theta))

    first = max(math.floor(pair(scaling.beta_fast)), 0)
    last = min(math.ceil(pair(scaling.beta_slow)), size - 1)
    index = torch.arange(size // 2, dtype=torch.float32)
    slowed = ((index - first) / max(last - first, 0.001)).clamp(0, 1)
    return slowed * frequencies / scaling.factor + (1 - slowed) * frequencies


def sinusoids(length: int, hidden: int) -> Tensor:
    """Return [length, hidden]: sines in even dimensions, cosines in odd (Vaswani et al. 2017)."""
    even = torch.arange(0, hidden, 2, dtype=torch.float32)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * 10_000 ** (-even / hidden)
    table = torch.zeros(length, hidden)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : hidden // 2]
    return table


# Deviation of initial embeddings, times sqrt(size). So small that the first loss is ln(vocab)
# within a few hundredths, for a tied head too.
EMBEDDING = 0.4


ENCODINGS: dict[type, type[Positions]] = {}


def encodes(settings: type) -> Callable[[type[E]], type[E]]:
    """Return a decorator that registers a module as the encoding for ``settings``."""

    def register(module: type[E]) -> type[E]:
        ENCODINGS[settings] = module
        return module

    return register


def positions(config: ModelConfig) -> Positions:
    encoding: Positions = chosen(config.position, ENCODINGS)(config)
    return encoding


@encodes(NoPositions)
class Positions(nn.Module):
    """The base class of position encodings, which by itself encodes nothing. ``heads``: the heads
    that this process computes. ``attention``: the encoding's own attention class, or None."""

    attention: ClassVar[type[nn.Module] | None] = None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = slice(None)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return embeddings x [batch, length, hidden] with vectors for ``positions`` added."""
        return x

    def rotation(self, positions: Tensor, windowed: bool = False) -> Tensor | None:
        """Return the factors for ``rotate``; None if the encoding does not rotate. ``windowed``:
        True for the factors of layers with a window."""
        return None

    def bias(self) -> Bias | None:
        return None

    content = False  # True if each layer adds scores computed from ``relation`` and its tokens

    def relation(self, mask: Mask | SharedMask) -> Relation | None:
        """Return the vectors for distances between queries and keys; None if the encoding has
        none."""
        return None


@encodes(Rope)
class Rotary(Positions):
    """Rotary positions: an angle for each pair of dimensions of a head (Su et al. 2021)."""

    frequencies: Tensor
    of_windows: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        device = torch.empty(0).device
        # On the meta device, arithmetic would load torch's compiler, which takes seconds.
        with torch.device("cpu"):
            frequencies, self.factor = rope_frequencies(config)
            assert isinstance(config.position, Rope)
            theta = config.position.window_theta  # not scaled to longer contexts
            of_windows = None if theta is None else _plain(config.rotated, theta)
        self.register_buffer("frequencies", frequencies.to(device), persistent=False)
        others = None if of_windows is None else of_windows.to(device)
        self.register_buffer("of_windows", others, persistent=False)

    def tune(self, config: ModelConfig) -> None:
        """Use the frequencies of ``config`` from now on."""
        frequencies, self.factor = rope_frequencies(config)
        self.frequencies.copy_(frequencies)

    def rotation(self, positions: Tensor, windowed: bool = False) -> Tensor:
        if windowed and self.of_windows is not None:
            return rotations(self.of_windows, 1.0, positions)
        return rotations(self.frequencies, self.factor, positions)


@encodes(Learned)
class LearnedTable(Positions):
    """A learned vector for each position, added to the embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.position, Learned)
        self.offset = config.position.offset
        self.weight = nn.Parameter(torch.zeros(config.context + self.offset, config.position_dim))
        std = EMBEDDING * (config.mup_base or config.position_dim) ** -0.5
        roles.set_roles(self, weight=Role(part="positions", use="lookup", std=std))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + nn.functional.embedding(positions + self.offset, self.weight)
