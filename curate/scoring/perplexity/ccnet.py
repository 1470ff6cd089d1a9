"""CCNet's own models and the cut-offs published for them (Wenzek et al. 2020).

A perplexity means something only beside others of the same model, so the cut-offs are for CCNet's
models alone: KenLM binaries `{lang}.arpa.bin` with `{lang}.sp.model` beside them, known by sha256.
KenLM reads them: pip install kenlm.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.scoring.perplexity.model_file import is_kenlm
from curate.scoring.perplexity.sentences import ccnet_text, load_pieces
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import RunFailed, UsageError

# Percentiles 30 and 60 over CCNet's sample of Common Crawl: cc_net/data/cutoff.csv.
CUTOFFS: dict[str, tuple[float, float]] = {
    "en": (340.0, 520.0),
    "de": (370.0, 590.0),
    "fr": (180.0, 330.0),
    "ru": (210.0, 310.0),
    "zh": (1460.0, 1950.0),
}
_SUFFIX = ".arpa.bin"


class KenlmModel:
    """A model that the library kenlm reads, with its SentencePiece model; scores as CCNet does."""

    def __init__(self, path: Path, pieces: Path) -> None:
        self.path, self.pieces = path, pieces

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        try:
            import kenlm
        except ModuleNotFoundError:
            raise UsageError(f"{self.path} is KenLM's: pip install kenlm") from None
        try:
            data = self.pieces.read_bytes()
        except OSError as error:
            raise UsageError(
                f"{self.path} needs {self.pieces} beside it: {error.strerror}"
            ) from None
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            return kenlm.Model(str(self.path), config), load_pieces(data, str(self.pieces))
        except OSError as error:
            raise UsageError(f"{self.path}: {str(error).splitlines()[0]}") from None

    def perplexity(self, texts: pa.LargeStringArray) -> np.ndarray:
        """float64[rows], rounded to one decimal; NaN where a text has no piece."""
        model, processor = self._loaded
        values = np.full(len(texts), np.nan)
        for i, text in enumerate(texts.to_pylist()):
            pieces = processor.encode(ccnet_text(text or ""), out_type=str)
            if pieces:
                log10 = model.score(" ".join(pieces))
                values[i] = round(10.0 ** (-log10 / (len(pieces) + 1)), 1)
        return values


def kenlm_beside(path: Path) -> KenlmModel:
    """CCNet's model at a path `{lang}.arpa.bin`."""
    return KenlmModel(path, path.with_name(path.name.removesuffix(_SUFFIX) + ".sp.model"))


def check_own(label: str, models: dict[str, Path], sha256: dict[str, str]) -> None:
    """UsageError where the published cut-offs would be put to models that are not CCNet's own."""
    for lang, path in models.items():
        if lang not in CUTOFFS:
            continue
        meant = f"{label}: the published cut-offs hold for CCNet's own models alone"
        if path.name != lang + _SUFFIX or not is_kenlm(path):
            raise UsageError(
                f"{meant} ({{lang}}.arpa.bin, KenLM's binary), and {path} is another;"
                " use cutoffs: own"
            )
        if lang not in sha256:
            raise UsageError(f"{meant}: give its sha256, ccnet_sha256: {{{lang}: ...}}")
        try:
            digest = file_digest(path)
        except OSError as error:
            raise RunFailed(f"cannot read {path}: {error.strerror}") from None
        if digest != sha256[lang].lower():
            raise UsageError(f"{label}: {path} has another sha256 than ccnet_sha256 says")
