"""The shape of a model: every choice on one page."""

from __future__ import annotations

from dataclasses import dataclass

from train.errors import TrainError
from train.settings import positive


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder in the LLaMA family (Touvron et al. 2023): RMSNorm, RoPE, SwiGLU, grouped queries.

    ``kv_heads`` below ``heads`` shares each key and value head among ``heads / kv_heads`` query
    heads (Ainslie et al. 2023). ``context`` is the longest row in tokens, in training and in
    generation. With ``tied_embeddings`` the output head is the embedding, transposed.
    """

    vocab: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_hidden: int
    context: int = 256
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied_embeddings: bool = True

    def __post_init__(self) -> None:
        positive(self, "vocab", "layers", "hidden", "heads", "kv_heads", "head_dim")
        positive(self, "mlp_hidden", "context", "rope_theta", "norm_eps")
        if self.heads % self.kv_heads:
            raise TrainError(
                f"kv_heads is {self.kv_heads}: it must divide heads ({self.heads})", exit_code=2
            )
        if self.head_dim % 2:
            raise TrainError(f"head_dim is {self.head_dim}: RoPE needs it even", exit_code=2)
