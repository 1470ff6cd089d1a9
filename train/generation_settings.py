"""The settings of generation: how tokens are sampled, and how masks are filled."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llmcurate.base.settings import dataclass


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The settings of sampling; the repetition penalty is applied first, the others in order."""

    temperature: float = Field(0.8, ge=0)
    """Sampling temperature; 0 always takes the most likely token."""
    top_k: int = Field(50, ge=0)
    """Sample from this many most likely tokens; 0: all (Fan et al. 2018)."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the most likely tokens that together have this probability (Holtzman et al.
    2020)."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Never sample a token with less than this share of the most likely token's probability (Nguyen
    et al. 2024)."""
    repetition_penalty: float = Field(1.0, gt=0)
    """Penalty on tokens that already occur in the text; above 1 they become less likely (Keskar et
    al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class Filling:
    """The settings of filling masks with an encoder."""

    method: Literal["mask-predict", "gibbs"] = "mask-predict"
    """How an encoder fills masks: all at once, then the least certain again (Ghazvininejad et al.
    2019), or sampled one by one (Wang and Cho 2019)."""
    rounds: int = Field(10, ge=1)
    """Rounds of filling masks with an encoder."""
