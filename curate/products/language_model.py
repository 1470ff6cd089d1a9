"""The product `language_model`: a fastText classifier trained on the corpus's own labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from curate.scoring.fasttext.supervised import Training
from curate.steps.contracts import Identity, Product, ProductContext, step, with_settings
from llmcurate.base.disk.units import counted


class _Labelled(Product):
    column: str = Field("lang", min_length=1)
    """The column that holds the labels."""


if not TYPE_CHECKING:
    _Labelled = with_settings(_Labelled, Training)


@step("language_model")
class LanguageModel(_Labelled):
    """Trains a fastText model on documents and a column of labels.

    Writes language.bin (or .ftz) and card.json.
    """

    paper: ClassVar[str] = "Joulin et al. 2017 (fastText)"
    makes: ClassVar[str] = "language_model"

    def identity(self) -> Identity:
        from curate.scoring.language.model import need_library

        need_library()  # before anything is read
        return super().identity()

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.documents.attributes import unpack
        from curate.scoring.language.train import labelled, train

        skipped = 0

        def examples() -> Iterator[tuple[str, str]]:
            nonlocal skipped
            for batch in context.corpus(None):
                texts, labels = labelled(unpack(batch), self.column)
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
