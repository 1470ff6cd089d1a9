"""Count the tokens of documents by a tokenizer file, as DataTrove's TokensCounter does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.steps.contracts import FromFiles, Step, step

if TYPE_CHECKING:
    from tokenize_kit.encode.parts import Encode


@step("token_count")
class TokenCount(Step, FromFiles):
    """Counts the tokens of every document in the column `token_count`, and drops no documents.

    Tokens that begin or end documents in token shards are not counted. If the input has a column
    `token_count`, the new one is `token_count.token_count`."""

    only_measures: ClassVar[bool] = True

    tokenizer: str = Field(
        min_length=1, description="Path of the tokenizer, a file or its folder, such as OUT."
    )
    _encode: Encode | None = PrivateAttr(default=None)

    def resources(self) -> list[str]:
        from tokenize_kit.formats.forms import file_of

        return [str(file_of(Path(self.tokenizer)))]

    def open(self) -> None:
        from tokenize_kit.encode.vocabulary import open_vocabulary

        self._encode = open_vocabulary(Path(self.resources()[0])).encode

    def apply(self, docs: Documents) -> Documents:
        assert self._encode is not None, "open() loads the tokenizer"
        data, offsets = docs.buffers()
        _, counts = self._encode(data, offsets.copy())
        return docs.state("token_count", pa.array(counts, pa.int64()))
