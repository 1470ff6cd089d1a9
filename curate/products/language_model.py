"""The product `language_model`: a fastText classifier trained on the corpus's own labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from curate.steps.contracts import Product, ProductContext


class LanguageModel(Product):
    """language.bin (or .ftz) and card.json, from documents and a column of labels."""

    name: ClassVar[str] = "language_model"
    makes: ClassVar[str] = "language_model"

    column: str = Field("lang", min_length=1, description="column that holds the labels")
    dim: int = Field(16, ge=1)
    minn: int = Field(2, ge=0, description="shortest character n-gram; 0 with maxn 0: none")
    maxn: int = Field(4, ge=0, description="longest")
    word_ngrams: int = Field(1, ge=1)
    loss: Literal["hs", "softmax", "ova"] = "hs"
    bucket: int = Field(2_000_000, ge=1, description="rows that n-grams share by hash")
    epochs: int = Field(10, ge=1)
    lr: float = Field(0.5, gt=0)
    min_count: int = Field(1, ge=1, description="times that a word must occur")
    held_out: float = Field(0.05, ge=0, lt=1, description="share of texts, by hash")
    piece_chars: int = Field(0, ge=0, description="documents are cut into such pieces; 0: whole")
    quantize: bool = Field(False, description="write the compressed form, language.ftz")
    cutoff: int = Field(0, ge=0, description="n-grams and words kept when quantized; 0: all")
    seed: int = Field(0, ge=0)

    def identity(self) -> dict[str, Any]:
        from curate.scoring.language.native import need_library

        need_library()  # before anything is read
        return super().identity()

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.scoring.language.examples import labelled
        from curate.scoring.language.train import train
        from curate.scoring.language.training import Training

        skipped = 0

        def examples() -> Iterator[tuple[str, str]]:
            nonlocal skipped
            for batch in context.corpus(None):
                texts, labels = labelled(batch, self.column)
                for text, label in zip(texts.to_pylist(), labels, strict=True):
                    if text and label:
                        yield text, label
                    else:
                        skipped += 1

        training = Training(**self.model_dump(exclude={"column"}))
        card = train(examples(), context.out, training, context.call_apart)
        warnings = [f"{skipped} documents have no label or no text"] if skipped else []
        return {"card": card, "warnings": warnings}
