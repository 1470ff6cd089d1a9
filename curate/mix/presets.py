"""Published mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Row:
    """One source of a published table. percent: of the tokens that were sampled; epochs: how often
    the source was read; disk_gb: its size in the paper."""

    percent: str
    epochs: str
    disk_gb: int

    def unique(self, total: int) -> Fraction:
        """Its tokens, as share and epochs imply them: the paper does not print them."""
        return Fraction(self.percent) / 100 * total / Fraction(self.epochs)


# Touvron et al. 2023 (LLaMA), table 1; the epochs are of a run of 1.4 T tokens.
LLAMA1_TOKENS = 1_400_000_000_000
LLAMA1 = {
    "commoncrawl": Row("67.0", "1.10", 3300),
    "c4": Row("15.0", "1.06", 783),
    "github": Row("4.5", "0.64", 328),
    "wikipedia": Row("4.5", "2.45", 83),
    "books": Row("4.5", "2.23", 85),
    "arxiv": Row("2.5", "1.06", 92),
    "stackexchange": Row("2.0", "1.03", 78),
}
PRESETS = {"llama1": LLAMA1}


def weights(preset: str) -> dict[str, Fraction]:
    """The shares of a preset by source."""
    return {name: Fraction(row.percent) for name, row in PRESETS[preset].items()}
