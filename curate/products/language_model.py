"""The product `language_model`: a fastText classifier trained on the corpus's own labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from curate.steps.contracts import Product, ProductContext
from llmcurate.base.disk.units import counted


class LanguageModel(Product):
    """Trains a fastText model on documents and a column of labels.

    Writes language.bin (or .ftz) and card.json."""

    name: ClassVar[str] = "language_model"
    paper: ClassVar[str] = "Joulin et al. 2017 (fastText)"
    makes: ClassVar[str] = "language_model"

    column: str = Field("lang", min_length=1, description="The column that holds the labels.")
    dim: int = Field(16, ge=1, description="Dimensions of the vectors.")
    minn: int = Field(
        2,
        ge=0,
        description=(
            "Characters of the shortest character n-gram; 0 together with maxn 0 means none."
        ),
    )
    maxn: int = Field(4, ge=0, description="Characters of the longest character n-gram.")
    word_ngrams: int = Field(1, ge=1, description="Words of the longest word n-gram.")
    loss: Literal["hs", "softmax", "ova"] = Field(
        "hs",
        description="The loss: hierarchical softmax (`hs`), `softmax`, or one against all (`ova`).",
    )
    bucket: int = Field(
        2_000_000, ge=1, description="Rows of the matrix that n-grams share by hash."
    )
    epochs: int = Field(10, ge=1, description="Passes over the training texts.")
    lr: float = Field(0.5, gt=0, description="Learning rate at the start; it falls to 0 linearly.")
    min_count: int = Field(
        1, ge=1, description="Least number of occurrences of a word in the vocabulary."
    )
    held_out: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share of the texts, by hash, that the model is tested on and not trained on.",
    )
    piece_chars: int = Field(
        0,
        ge=0,
        description="Characters of the pieces that documents are cut into; 0 leaves them whole.",
    )
    quantize: bool = Field(
        False, description="Write the compressed form, language.ftz, instead of language.bin."
    )
    cutoff: int = Field(
        0,
        ge=0,
        description="Number of n-grams and words that a compressed model keeps; 0 keeps all.",
    )
    seed: int = Field(0, ge=0, description="Seed of the training.")

    def identity(self) -> dict[str, Any]:
        from curate.scoring.language.model import need_library

        need_library()  # before anything is read
        return super().identity()

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.scoring.language.examples import Training, labelled
        from curate.scoring.language.train import train

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
        none = f"{counted(skipped, 'document')} without label or text"
        warnings = [none] if skipped else []
        return {"card": card, "warnings": warnings}
