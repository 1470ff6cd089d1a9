"""The step `language`: identify the language of each document with a fastText model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, field_validator

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide, langs_of
from curate.fetch.published import Published
from curate.scoring.fasttext.model_file import read_header
from curate.steps.contracts import Identity, Step, step
from curate.steps.profiled import Profiled
from curate.text import languages
from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.scoring.language.model import Model

VARIABLE = "LLMCURATE_LID_MODEL"
OPTION = "--set language.model=PATH"  # works in every command with this step

_HOME = "https://dl.fbaipublicfiles.com/fasttext/supervised-models"
# fastText publishes no checksums. The .ftz checksum was computed from the file; those of the .bin
# are used by another project (telekom/mltb2, mltb2/fasttext.py).
PUBLISHED = {
    "lid.176.ftz": Published(
        f"{_HOME}/lid.176.ftz",
        938_013,
        "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83",
        "models/lid.176.ftz",
    ),
    "lid.176.bin": Published(
        f"{_HOME}/lid.176.bin",
        131_266_198,
        "7e69ec5451bc261cc7844e49e4792a85d7f09c06789ec800fc4a44aec362764e",
        "models/lid.176.bin",
    ),
}
DEFAULT = "lid.176.ftz"


def effective(model: str | None) -> str:
    """Return the model to use: the setting, else LLMCURATE_LID_MODEL, else `lid.176.ftz`."""
    return model or os.environ.get(VARIABLE) or DEFAULT


def model_path(model: str) -> Path:
    """Return the path of the model file. A published model that is not in the cache is downloaded.
    Raises UsageError if there is no such file or model."""
    path = Path(model).expanduser()
    if path.is_file():
        return path
    published = PUBLISHED.get(model)
    if published is None:
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(
            f"language model {path} {problem}: give {OPTION}, set {VARIABLE}, or omit both to use"
            f" {DEFAULT}"
        )
    return published.fetched(f"no language model: give {OPTION}, set {VARIABLE}")


# The lowest score kept by RefinedWeb and FineWeb (Penedo et al. 2023, 2024).
THRESHOLD = 0.65


@step("language")
class Language(Profiled, Step):
    """Labels every document with its language, and drops other languages and unclear documents.

    Columns: the core column `lang` (its previous value moves to `declared`), `score` (0 to 1),
    `iso639_3` and `script` (null if the label has none). A document without words has a null label
    and score 0. The setting `lines` adds `line_score` (mean score of the lines in the document's
    language), `switched` (share of bytes in lines of other languages) and `shares` (the languages
    with the most bytes, with their shares). `line_score` and `switched` are null if no line has a
    word and at least `line_chars` characters."""

    paper: ClassVar[str] = "Joulin et al. 2017 (fastText)"
    only_measures: ClassVar[bool] = True
    version: ClassVar[int] = 2  # 2: scores of another engine, which differ in the last digits

    model: str | None = None
    """The fastText model: a path, or lid.176.ftz or lid.176.bin, which are downloaded. Default: the
    path in LLMCURATE_LID_MODEL, else lid.176.ftz."""
    model_sha256: str | None = None
    """The expected sha256 of the model file. Default: any."""
    keep: tuple[str, ...] = ()
    """Languages to keep, by ISO 639 code or label in any form (th, tha, tha_Thai); documents in
    other languages are dropped. Default: all languages."""
    threshold: float | None = Field(None, ge=0, le=1)
    """Documents with a lower score are dropped. Default: 0.65 if keep is given (Penedo et al. 2023
    and 2024), else no limit."""
    max_chars: int = Field(0, ge=0)
    """Number of characters that the model reads per document; 0: all."""
    profile: str = "none"
    """Source of the threshold if threshold is not set: auto uses the label's profile, for labels
    that have one. Other values are those of gopher_quality."""
    min_chars: int = Field(0, ge=0)
    """Documents with fewer characters are labelled but never dropped."""
    lines: bool = False
    """Label each line too: adds the columns line_score, switched and shares (Abadji et al. 2022,
    section 3.2) and drops nothing."""
    line_chars: int = Field(20, ge=0)
    """Shorter lines (in characters) do not count in these columns."""
    _model: Model | None = PrivateAttr(default=None)

    @field_validator("keep", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Split `en,de` into a list. YAML reads `no` (Norwegian) as false; restore `no`."""
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",") if name.strip()]
        if value is False:
            value = ["no"]
        if isinstance(value, Sequence):
            return tuple("no" if name is False else name for name in value)
        return value

    @property
    def least(self) -> float | None:
        """The score below which documents are dropped, or None if there is no limit."""
        return THRESHOLD if self.threshold is None and self.keep else self.threshold

    def identity(self) -> Identity:
        """Return all that decides the output. Its `model` is the model in use (from the setting, an
        environment variable or the default), so workers with another environment use it too."""
        facts = super().identity()
        facts.settings |= {"model": effective(self.model), "model_sha256": None}
        self._check()
        return facts

    def as_found(self) -> dict[str, str]:
        return {"model_sha256": file_digest(self._path())}

    def resources(self) -> list[str]:
        return [*super().resources(), self._path()]

    def to_fetch(self) -> list[str]:
        model = effective(self.model)
        at_hand = Path(model).expanduser().is_file() or model not in PUBLISHED
        return [] if at_hand else PUBLISHED[model].to_fetch()

    def notes(self) -> list[str]:
        by = "" if self.model else f" (by {VARIABLE})" if os.environ.get(VARIABLE) else ""
        labels = len(read_header(self._path()).labels)
        return [f"{self.label}: model {effective(self.model)}{by}, {counted(labels, 'label')}"]

    def _path(self) -> str:
        return str(model_path(effective(self.model)))

    def _check(self) -> None:
        path = self._path()
        if self.model_sha256 and file_digest(path) != self.model_sha256.lower():
            raise UsageError(f"{self.label}: the sha256 of {path} differs from model_sha256")
        try:
            languages.labels_named(self.keep, read_header(path).labels)
        except ValueError as error:
            raise UsageError(f"{self.label}.keep: {error}") from None

    def open(self) -> None:
        from curate.scoring.language.model import Model

        self._model = Model(self._path())

    def apply(self, docs: Documents) -> Documents:
        from curate.scoring.language.model import by_line, fasttext_lines
        from curate.text.unicode import row_chars

        if self._model is None:
            self.open()
        assert self._model is not None
        labels = self._model.labels
        data, offsets = docs.buffers()
        label_codes, rounded = self._model.best(*fasttext_lines(data, offsets, self.max_chars))
        score = rounded.astype(np.float64)  # the limit is compared with the stored value
        at = pa.array(label_codes, mask=label_codes < 0)
        docs = docs.identify(pa.array(labels, pa.string()).take(at))
        docs = docs.annotate("score", score)
        for name, of in (("iso639_3", languages.iso639_3), ("script", languages.script_of)):
            docs = docs.annotate(name, pa.array([of(x) for x in labels], pa.string()).take(at))
        if self.lines:
            lines = by_line(docs, self._model, label_codes, self.line_chars)
            for name, values in (("line_score", lines.score), ("switched", lines.switched)):
                docs = docs.annotate(name, pa.array(values, from_pandas=True))  # NaN is null
            docs = docs.annotate("shares", lines.listed(labels))
        judged = row_chars(data, offsets) >= self.min_chars
        if self.keep:
            kept = languages.labels_named(self.keep, labels)
            is_kept = np.array([*(label in kept for label in labels), False])
            names = [*labels, "no word"]
            detail = [names[code] for code in label_codes]
            docs = docs.drop(judged & ~is_kept[label_codes], "language", score, detail=detail)
        if not self.min_chars:
            return decide(docs, self.limits())
        (limit,) = super().limits()
        least = limit.thresholds(langs_of(docs))
        return docs.drop(judged & limit.over(score, least), "language_score", score, least)

    def limits(self) -> list[Limit]:
        """Return the rules that decide by a stored score alone. With `min_chars`, return no rules:
        shorter documents are kept whatever their score, and lengths are not stored."""
        return [] if self.min_chars else super().limits()

    def own_limits(self) -> list[Limit]:
        return [Limit("language_score", "score", "threshold", self.least, above=False)]
