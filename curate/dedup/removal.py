"""The base classes of all deduplication steps: settings, removal limit and earlier corpora."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal
from unicodedata import unidata_version

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, model_validator

from curate.corpus import indexes
from curate.dedup import survivors
from curate.documents.documents import NUMBER, Documents
from curate.steps.contracts import CorpusStep, Identity
from llmcurate.base.errors import UsageError


class Removal(CorpusStep):
    """A step that removes documents or passages because of other documents."""

    decide_nothing: ClassVar[frozenset[str]] = frozenset({"max_removal"})  # a limit only

    max_removal: float = Field(0.9, gt=0.0, le=1.0)
    """The largest share that the step may remove: of the documents, or of the bytes if it cuts
    passages. A run that would remove more stops before it removes anything."""
    compare: Literal["raw", "nfc", "nfkc_cf"] = "raw"
    """The form in which texts are compared: `raw`, unchanged, as in the papers; `nfc`, composed
    (UAX #15); or `nfkc_cf` (NFKC_Casefold, UAX #31), without case, width, soft hyphens and
    zero-width spaces. The kept texts do not change."""

    @model_validator(mode="after")
    def _can_compare(self) -> Removal:
        for name, value in (("key", "url"), ("action", "cut")):
            if self.compare != "raw" and getattr(self, name, None) == value:
                raise ValueError(f"compare: {self.compare} cannot be combined with {name}: {value}")
        return self

    @property
    def comparison(self) -> dict[str, str]:
        """The settings of a comparison, by name: the form of texts and the version of Unicode.
        Empty if the form is `raw`."""
        if self.compare == "raw":
            return {}
        return {"compare": self.compare, "unicode": unidata_version}

    def compared(self, docs: Documents) -> Documents:
        """Return the documents with their texts in the form in which they are compared."""
        if self.compare == "raw":
            return docs
        from curate.text.compared import texts_in_form

        return docs.replace(texts_in_form(docs.text, self.compare))

    def identity(self) -> Identity:
        identity = super().identity()
        if self.compare == "raw":
            return identity.without({"compare"})
        identity.contents["unicode"] = unidata_version
        return identity

    @property
    def method(self) -> str:
        """The name of this step in decisions, such as `exact:text`."""
        raise NotImplementedError

    @property
    def most_removed(self) -> float:
        """The largest share of the documents that the step may remove."""
        return self.max_removal

    def arriving(self, earlier: Sequence[str], **values: Any) -> Removal:
        """Return a copy of this step for a refresh (an addition of new documents to earlier runs).
        `values` are the settings to change. A refresh may drop nine in ten of a day's pages, so
        `max_removal` is 1 unless the user set it."""
        guard = {"max_removal": 1.0} if earlier else {}
        given = self.model_dump(exclude_unset=True)
        return type(self)(**{**guard, **given, **values}).named(self.label)  # type: ignore[no-any-return]


class DedupStep(Removal):
    """A step that removes duplicates."""

    of_texts: ClassVar[bool] = False  # True if duplicates are whole texts
    # Settings that may differ between a run and the index with which it is compared. Sketches do
    # not depend on these settings, but a survivor policy may add its own column.
    free: ClassVar[frozenset[str]] = frozenset({"survivor", "against", "max_removal"})

    _earlier: list[indexes.Index] | None = PrivateAttr(default=None)
    _given: dict[str, indexes.Index] = PrivateAttr(default_factory=dict)  # by entry of `against`

    survivor: survivors.Survivor = "longest"
    """The duplicate to keep: `longest`, `newest`, `c4` (the least md5 of the URL), `first` (the
    order of the inputs), `best:COLUMN` (the highest number in a column) or `prefer-source:A,B` (the
    first source in the list)."""
    against: tuple[str, ...] = ()
    """Earlier documents (files, folders, URLs) or finished runs (OUT), also as NAME=PATH. A
    document that matches any of them is dropped, even if that run did not keep the match. The
    survivor policy is then `first`."""

    @model_validator(mode="before")
    @classmethod
    def _earlier_come_first(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("against"):
            values = {"survivor": "first", **values}
            if isinstance(values["against"], str):
                values["against"] = (values["against"],)
        return values

    @model_validator(mode="after")
    def _earlier_documents_stay(self) -> DedupStep:
        if self.against and self.survivor != "first" and not self.replaces:
            raise ValueError("against: earlier documents are kept, so survivor must be `first`")
        return self

    @property
    def keeps_newest(self) -> bool:
        """True if the survivor policy is `newest`, which needs the dates of documents."""
        return self.survivor == "newest"

    @property
    def of_arrival(self) -> dict[str, str]:
        """Settings to change so that this step keeps the document that arrived first."""
        return {} if self.replaces else {"survivor": "first"}

    def arriving(self, earlier: Sequence[str], **values: Any) -> Removal:
        """Return a copy of this step for a refresh (an addition of new documents to earlier runs).
        The copy compares the new documents with all earlier runs. If each index includes the runs
        before it (`cumulative`), the copy compares them with the last run only."""
        compared = earlier[-1:] if self.cumulative else earlier
        if against := (*self.against, *compared):
            values["against"] = against
        return super().arriving(earlier, **self.of_arrival, **values)

    def comparable(self) -> dict[str, Any]:
        """Return the settings that must be equal in a run whose stored sketches this step uses."""
        settings = self.model_dump(mode="json", exclude={*self.free, "compare"})
        return settings | self.comparison

    def earlier(self) -> list[indexes.Index]:
        """Return the indexes that the setting `against` names, in order. Raises UsageError if one
        cannot be used. The result is cached, because a refresh may have an index per day, and
        planning reads this often."""
        if self._earlier is None:
            own = indexes.Comparable(self.name, self.label, self.version, self.comparable())
            found = [self._given.get(name) or indexes.find(name, own) for name in self.against]
            names = [index.name for index in found]
            if repeated := [name for name in names if names.count(name) > 1]:
                raise UsageError(
                    f"{self.label}: against has two corpora named {repeated[0]!r}; rename one by"
                    " NAME=FOLDER"
                )
            self._earlier = found
        return self._earlier

    def take_index(self, against: str, index: indexes.Index) -> None:
        """Use `index` for `against`, the name of an index of earlier documents in this step's
        settings."""
        self._given[against], self._earlier = index, None

    def of_earlier(self) -> DedupStep:
        """Return a copy of this step that makes an index of earlier documents."""
        given = self.model_dump(exclude_unset=True) | self.of_arrival
        return type(self)(**given | {"against": (), "max_removal": 1.0})

    def identity(self) -> Identity:
        """Return the settings and contents that determine the output. Earlier corpora (the setting
        `against`) are identified by name and content, not by path."""
        identity = super().identity()
        del identity.settings["against"]
        if self.against:
            identity.settings["survivor"] = self.survivor
            identity.contents["against"] = [[index.name, index.digest] for index in self.earlier()]
        return identity

    def sketch_identity(self) -> Identity:
        identity = self.identity().without(self.free | self.after_sketches)
        identity.settings["survivor"] = survivors.sketched(self.survivor)
        identity.contents.pop("against", None)
        return identity


class DocumentDedup(DedupStep):
    """A dedup step that decides on whole documents, in clusters of duplicates."""

    free: ClassVar[frozenset[str]] = DedupStep.free | {"keep"}

    keep: Literal["one", "none"] = "one"
    """`one` keeps one document per cluster, `none` drops all that have a duplicate."""

    @property
    def obstacle(self) -> str | None:
        if self.keep == "none":
            return "with keep: none a new duplicate would drop documents that were kept before"
        return None

    def identity(self) -> Identity:
        identity = super().identity()
        return identity if self.keep == "none" else identity.without({"keep"})


def dropped(
    docs: Documents, decisions: pa.Table
) -> tuple[np.ndarray, np.ndarray, list[str | None]]:
    """Return (mask, similarity, partner), with one entry per document. `mask` (bool) is True for
    documents that the decisions drop. Such a document has a similarity (float64) and the id of a
    partner, which it duplicates; others have 0 and None. The id of a partner in an earlier corpus
    reads `ID in CORPUS`."""
    mask = np.zeros(len(docs), np.bool_)
    similarity = np.zeros(len(docs))
    partner: list[str | None] = [None] * len(docs)
    decided = decisions.filter(decisions["drop"])
    at = np.searchsorted(docs.table[NUMBER].to_numpy(), decided["n"].to_numpy())
    mask[at] = True
    similarity[at] = decided["similarity"].to_numpy()
    partner_ids = decided["partner_id"].to_pylist()
    # Only decisions against earlier corpora have this column.
    with_corpora = "partner_corpus" in decided.column_names
    corpora = decided["partner_corpus"].to_pylist() if with_corpora else [None] * len(partner_ids)
    for row, partner_id, corpus in zip(at.tolist(), partner_ids, corpora, strict=True):
        partner[row] = f"{partner_id} in {corpus}" if corpus else partner_id
    return mask, similarity, partner
