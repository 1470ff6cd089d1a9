"""The base of all dedup steps: settings, guard, earlier corpora and the way of dropping."""

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


class Removal(CorpusStep):
    """A step that removes documents or passages because of others, under a guard."""

    decide_nothing: ClassVar[frozenset[str]] = frozenset({"max_removal"})  # the guard

    max_removal: float = Field(
        0.9,
        gt=0.0,
        le=1.0,
        description=(
            "The largest share of the documents that the step may drop (of the bytes, where"
            " it cuts passages); a run that would remove more stops before anything is "
            "removed."
        ),
    )
    compare: Literal["raw", "nfc", "nfkc_cf"] = Field(
        "raw",
        description=(
            "The form in which texts are compared: `raw`, as they are, which is what the papers do;"
            " `nfc`, composed (UAX #15); or `nfkc_cf` (NFKC_Casefold, UAX #31), without case,"
            " width, soft hyphens and zero-width spaces. The texts that are kept do not change."
        ),
    )

    @model_validator(mode="after")
    def _can_compare(self) -> Removal:
        for name, value in (("key", "url"), ("action", "cut")):
            if self.compare != "raw" and getattr(self, name, None) == value:
                raise ValueError(f"compare: {self.compare} is not possible with {name}: {value}")
        return self

    @property
    def comparison(self) -> dict[str, str]:
        """The form of comparison, and the version of the data behind it; empty for `raw`."""
        if self.compare == "raw":
            return {}
        return {"compare": self.compare, "unicode": unidata_version}

    def compared(self, docs: Documents) -> Documents:
        """The documents with their texts in the form of comparison."""
        if self.compare == "raw":
            return docs
        from curate.text.compared import compared_texts

        return docs.replace(compared_texts(docs.text, self.compare))

    def identity(self) -> Identity:
        """With the form of comparison, and the version of its data, where it is not `raw`."""
        identity = super().identity()
        if self.compare == "raw":
            return identity.without({"compare"})
        identity.contents["unicode"] = unidata_version
        return identity

    @property
    def method(self) -> str:
        """The name of this step in decisions."""
        raise NotImplementedError

    @property
    def most_removed(self) -> float:
        """The guard."""
        return self.max_removal

    def arriving(self, earlier: Sequence[str], **values: Any) -> Removal:
        """Nine in ten of a day's pages may well be old ones: the guard is for what is set by
        hand. values: other settings that it gets."""
        guard = {"max_removal": 1.0} if earlier else {}
        given = self.model_dump(exclude_unset=True)
        return type(self)(**{**guard, **given, **values}).named(self.label)  # type: ignore[no-any-return]


class DedupStep(Removal):
    """The settings and the way of dropping that all dedups share."""

    of_texts: ClassVar[bool] = False  # copies are whole texts (`overlooked`)
    # Settings that may differ between a run and the index it is compared with. Sketches do not
    # depend on them, except that the survivor may be chosen by a column of its own.
    free: ClassVar[frozenset[str]] = frozenset({"survivor", "against", "max_removal"})

    _earlier: list[indexes.Index] | None = PrivateAttr(default=None)
    _given: dict[str, indexes.Index] = PrivateAttr(default_factory=dict)  # by entry of `against`

    survivor: survivors.Survivor = Field(
        "longest",
        description=(
            "Which copy stays: `longest`, `newest`, `c4` (the least md5 of the URL), "
            "`first` (the order of the inputs), `best:COLUMN` (the highest number in a "
            "column) or `prefer-source:A,B` (the first source in the list)."
        ),
    )
    against: tuple[str, ...] = Field(
        (),
        description=(
            "Documents (files, folders, URLs) or finished runs (OUT), also as NAME=PATH, that "
            "count as earlier ones: a document that matches any of them is dropped, whether a "
            "run kept its copy or not. The survivor policy is then `first`."
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _earlier_come_first(cls, values: Any) -> Any:
        """`against` knows one policy: what came first stays."""
        if isinstance(values, dict) and values.get("against"):
            values = {"survivor": "first", **values}
            if isinstance(values["against"], str):
                values["against"] = (values["against"],)
        return values

    @model_validator(mode="after")
    def _earlier_documents_stay(self) -> DedupStep:
        if self.against and self.survivor != "first" and not self.replaces:
            raise ValueError("against: earlier documents stay, so survivor must be `first`")
        return self

    @property
    def dated(self) -> bool:
        """By the survivor policy."""
        return self.survivor == "newest"

    @property
    def of_arrival(self) -> dict[str, str]:
        """The settings under which what came first stays."""
        return {} if self.replaces else {"survivor": "first"}

    def arriving(self, earlier: Sequence[str], **values: Any) -> Removal:
        """Against the runs before, or the last one where its index holds what the others do."""
        compared = earlier[-1:] if self.cumulative else earlier
        if against := (*self.against, *compared):
            values["against"] = against
        return super().arriving(earlier, **self.of_arrival, **values)

    def comparable(self) -> dict[str, Any]:
        """The settings that this step and an index must share."""
        settings = self.model_dump(mode="json", exclude={*self.free, "compare"})
        return settings | self.comparison

    def earlier(self) -> list[indexes.Index]:
        """The indexes of `against`, in order; UsageError where one cannot be used. Read once: a
        refresh may have one for every day, and a plan asks for them again and again."""
        if self._earlier is None:
            self._earlier = self._open_indexes()
        return self._earlier

    def _open_indexes(self) -> list[indexes.Index]:
        own = indexes.Comparable(self.name, self.label, self.version, self.comparable())
        found_indexes = [self._given.get(name) or indexes.find(name, own) for name in self.against]
        names = [index.name for index in found_indexes]
        if len(set(names)) < len(names):
            raise indexes.duplicate_name(self.label, next(n for n in names if names.count(n) > 1))
        return found_indexes

    def take_index(self, against: str, index: indexes.Index) -> None:
        """Takes the index of an entry of `against` that names documents."""
        self._given[against], self._earlier = index, None

    def of_earlier(self) -> DedupStep:
        """The step that makes an index of earlier documents, with none before them."""
        given = self.model_dump(exclude_unset=True) | self.of_arrival
        return type(self)(**given | {"against": (), "max_removal": 1.0})

    def identity(self) -> Identity:
        """Of `against`, names and contents instead of paths."""
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
    """A dedup that decides on whole documents, in clusters of copies."""

    free: ClassVar[frozenset[str]] = DedupStep.free | {"keep"}

    keep: Literal["one", "none"] = Field(
        "one",
        description=(
            "How many documents of a cluster of copies stay: `one`, the survivor, or `none`, "
            "which drops all that have a copy."
        ),
    )

    @property
    def obstacle(self) -> str | None:
        """None where what came first stays, or the newest version of a page."""
        if self.keep == "none":
            return "with keep: none a new copy drops documents that were kept before"
        return None

    def identity(self) -> Identity:
        identity = super().identity()
        return identity if self.keep == "none" else identity.without({"keep"})


def dropped(
    docs: Documents, decisions: pa.Table
) -> tuple[np.ndarray, np.ndarray, list[str | None]]:
    """(mask: bool[rows], similarity: float64[rows], partner: text[rows]) of whole documents that
    the decisions drop; a partner in an earlier corpus reads `ID in CORPUS`."""
    mask = np.zeros(len(docs), np.bool_)
    similarity = np.zeros(len(docs))
    partner: list[str | None] = [None] * len(docs)
    decided = decisions.filter(decisions["drop"])
    at = np.searchsorted(docs.table[NUMBER].to_numpy(), decided["n"].to_numpy())
    mask[at] = True
    similarity[at] = decided["similarity"].to_numpy()
    partner_ids = decided["partner_id"].to_pylist()
    # Only decisions against earlier corpora have it.
    with_corpora = "partner_corpus" in decided.column_names
    corpora = decided["partner_corpus"].to_pylist() if with_corpora else [None] * len(partner_ids)
    for row, partner_id, corpus in zip(at.tolist(), partner_ids, corpora, strict=True):
        partner[row] = f"{partner_id} in {corpus}" if corpus else partner_id
    return mask, similarity, partner
