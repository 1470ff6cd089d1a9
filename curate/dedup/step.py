"""What every dedup is: a CorpusStep that keeps one of each set of copies and says which."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from curate.dedup import survivors
from curate.documents import NUMBER, Documents
from curate.steps import CorpusStep


class DedupStep(CorpusStep):
    """The settings and the way of dropping that all dedups share."""

    # Settings that documents may be compared across: everything else must be the same in an index.
    free: ClassVar[frozenset[str]] = frozenset({"survivor", "against", "max_removal"})

    survivor: survivors.Survivor = "longest"
    against: tuple[str, ...] = ()
    """Finished runs, or their indexes, whose documents count as earlier: with policy `first`, a
    document that matches any of them goes, whether it was kept then or not."""
    max_removal: float = Field(0.9, gt=0.0, le=1.0)
    """The largest share of documents (of bytes, where passages are cut) that may go."""

    @model_validator(mode="before")
    @classmethod
    def _earlier_come_first(cls, values: Any) -> Any:
        """`against` knows one policy: what came first stays."""
        if isinstance(values, dict) and values.get("against"):
            values = {"survivor": "first", **values}
            if isinstance(values["against"], str):
                values["against"] = (values["against"],)
            if values["survivor"] != "first":
                raise ValueError("against: earlier documents stay, so the policy must be `first`")
        return values

    @property
    def method(self) -> str:
        """How decisions name this step."""
        raise NotImplementedError

    def comparable(self) -> dict[str, Any]:
        """The settings that this step and an index must share."""
        return {k: v for k, v in self.model_dump(mode="json").items() if k not in self.free}


def dropped(
    docs: Documents, decisions: pa.Table
) -> tuple[np.ndarray, np.ndarray, list[str | None]]:
    """(mask: bool[rows], similarity: float64[rows], partner: text[rows]) of whole documents that
    the decisions drop; a partner in an earlier corpus reads `ID in CORPUS`."""
    mask = np.zeros(len(docs), np.bool_)
    similarity = np.zeros(len(docs))
    partner: list[str | None] = [None] * len(docs)
    gone = decisions.filter(decisions["drop"])
    at = np.searchsorted(docs.table[NUMBER].to_numpy(), gone["n"].to_numpy())
    mask[at] = True
    similarity[at] = gone["similarity"].to_numpy()
    others = gone["partner_id"].to_pylist()
    corpora = gone["partner_corpus"].to_pylist()
    for row, other, corpus in zip(at.tolist(), others, corpora, strict=True):
        partner[row] = f"{other} in {corpus}" if corpus else other
    return mask, similarity, partner
