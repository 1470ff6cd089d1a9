"""The product `perplexity_model`: an n-gram model trained on the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from curate.scoring.perplexity.sentences import Unit, Variant
from curate.steps.contracts import FromFiles, Identity, Product, ProductContext, step
from curate.text.buffers import as_large_string
from llmcurate.base.disk.files import write_text
from llmcurate.base.errors import UsageError

FILE = "perplexity.bin"


@step("perplexity_model")
class PerplexityModel(Product, FromFiles):
    """Trains an n-gram model on the corpus.

    Writes perplexity.bin and card.json.
    """

    paper: ClassVar[str] = "Chen and Goodman 1998 (modified Kneser-Ney)"
    makes: ClassVar[str] = "perplexity_model"
    decide_nothing: ClassVar[frozenset[str]] = frozenset({"memory_mib"})

    order: int = Field(5, ge=2, le=6)
    """Words of the longest n-grams."""
    variant: Variant = "plain"
    """The form of the lines: `plain` leaves them unchanged, `ccnet` normalises them as CCNet does
    (Wenzek et al. 2020)."""
    unit: Unit = "whitespace"
    """The unit of the model: `whitespace` for runs between white space, `words` for UAX #29 words,
    `pieces` for the pieces of a SentencePiece model."""
    pieces: str | None = None
    """Path of a SentencePiece model that cuts texts into pieces."""
    vocab: int | None = Field(None, ge=8)
    """Number of pieces of a SentencePiece model that is trained first. Without a value no
    SentencePiece model is trained."""
    prune: tuple[int, ...] = (0,)
    """Largest counts of n-grams to leave out, one number per order from 1 on; the last number
    applies to all higher orders."""
    min_count: int = Field(1, ge=1)
    """Least number of occurrences of a word in the vocabulary; rarer words are <unk>. Pieces are
    all kept."""
    discount_fallback: bool = False
    """Use the discounts 0.5, 1 and 1.5 if none can be computed from the counts, as KenLM's
    --discount_fallback does."""
    memory_mib: int = Field(1024, ge=1)
    """Memory in MiB for sorting n-grams."""

    @field_validator("prune", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(int(v) for v in value.split(","))
        return (value,) if isinstance(value, int) else value

    @model_validator(mode="before")
    @classmethod
    def _check_pieces(cls, values: Any) -> Any:
        if isinstance(values, dict) and (values.get("pieces") or values.get("vocab")):
            if values.get("pieces") and values.get("vocab"):
                raise ValueError("give either pieces (a model) or vocab (to train one), not both")
            values = {"unit": "pieces", **values}
            if values["unit"] != "pieces":
                raise ValueError(f"unit {values['unit']} takes neither pieces nor vocab")
        elif isinstance(values, dict) and values.get("unit") == "pieces":
            raise ValueError("unit pieces: give a SentencePiece model (pieces), or vocab")
        return values

    def resources(self) -> list[str]:
        return [self.pieces] if self.pieces else []

    def identity(self) -> Identity:
        self._smoothing().pruned()  # check the setting before anything is read
        return super().identity()

    def _smoothing(self) -> Any:
        from curate.lab.perplexity.train import Smoothing

        return Smoothing(
            self.order, self.prune, self.min_count, self.discount_fallback, self.memory_mib
        )

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.lab.perplexity.train import train

        def texts() -> Iterator[pa.LargeStringArray]:
            for batch in context.corpus():
                yield as_large_string(batch.column("text"))

        pieces = b""
        if self.pieces:
            try:
                pieces = Path(self.pieces).read_bytes()
            except OSError as error:
                raise UsageError(f"cannot read {self.pieces}: {error.strerror}") from None
        elif self.vocab:
            from curate.scoring.perplexity.sentences import train_pieces

            pieces = train_pieces(texts, self.variant, self.vocab)
            (context.out / "pieces.model").write_bytes(pieces)
        facts = train(texts, context.out, FILE, self._smoothing(), self.variant, self.unit, pieces)
        card = asdict(facts)
        write_text(context.out / "card.json", json.dumps(card, indent=1) + "\n")
        return {"card": card}
