"""Survivor policies. A policy is an order, written in SQL, for the documents of a set of
duplicates; the first document in this order is kept.

`longest`, `newest`, `c4`, `best:<column>` and `prefer-source:<list>` do not depend on input order
(equal documents are ordered by id); `first` follows the order of the inputs as given. `c4` prefers
the least md5 of the URL, as C4's code does for lines ("hash before comparison to avoid biasing by
domain"). For a document without a URL, its id is hashed."""

from __future__ import annotations

import hashlib
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator

from curate.documents.documents import Documents
from llmcurate.base.disk.parquet_writer import one_array
from llmcurate.base.errors import UsageError

POLICIES = ("longest", "newest", "c4", "first", "best:<column>", "prefer-source:<a,b>")
# An order in SQL, and the sketch columns that it uses in addition to id, part and n.
_PLAIN = {
    "longest": ("size DESC, id", ["size"]),
    "newest": ("date DESC NULLS LAST, id", ["date"]),
    "c4": ("coalesce(url_md5, md5(id)), id", ["url_md5"]),
    "first": ("part, n", []),
}
_BEST = "(CASE WHEN isnan(score) THEN NULL ELSE score END) DESC NULLS LAST, id"


def column_of(policy: str) -> str | None:
    """Return COLUMN if the policy is `best:COLUMN`, or None for another policy."""
    return policy.partition(":")[2] if policy.startswith("best:") else None


def checked(policy: str) -> str:
    """Return the policy unchanged. Raises ValueError with the known policies if it is unknown."""
    kind, colon, rest = policy.partition(":")
    if policy in _PLAIN or (kind in ("best", "prefer-source") and colon and rest):
        return policy
    raise ValueError(f"unknown survivor policy {policy!r}; known: {', '.join(POLICIES)}")


# The field `survivor` of a step.
Survivor = Annotated[str, AfterValidator(checked)]


def _order(policy: str) -> tuple[str, list[str]]:
    if policy in _PLAIN:
        return _PLAIN[policy]
    if column_of(policy):
        return _BEST, ["score"]
    sources = policy.partition(":")[2].split(",")
    quoted = ["'" + s.strip().replace("'", "''") + "'" for s in sources]
    ranks = " ".join(f"WHEN {s} THEN {i}" for i, s in enumerate(quoted))
    return f"(CASE source {ranks} ELSE {len(quoted)} END), size DESC, id", ["source", "size"]


def preference(policy: str) -> str:
    """Return the policy's order in SQL (terms of ORDER BY): the document to keep comes first."""
    return _order(policy)[0]


def preferred_by(policy: str) -> list[str]:
    """Return the sketch columns that `preference` uses in addition to id, part and n."""
    return _order(policy)[1]


def sketched(policy: str) -> str:
    """Return the policy (which duplicate to keep) if it is `c4` or `best:COLUMN`; sketches of
    documents hold a value only for these. Return "" for any other policy."""
    return policy if policy == "c4" or column_of(policy) else ""


def columns(docs: Documents, policy: str, label: str) -> dict[str, pa.Array]:
    """Return the columns by which `preference` may rank duplicates: size, date, source, score and
    url_md5. A score or md5 that the policy does not use is null."""
    column = column_of(policy)
    score = pa.nulls(len(docs), pa.float64())
    if column is not None:
        if column not in docs.table.column_names:
            have = ", ".join(n for n in docs.table.column_names if not n.startswith("_"))
            raise UsageError(f"{label}: survivor column {column!r} not found; columns: {have}")
        try:
            score = one_array(docs.table[column]).cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(
                f"{label}: survivor column {column!r} does not hold numbers ({error})"
            ) from None
    return {
        "url_md5": _url_md5(docs) if policy == "c4" else pa.nulls(len(docs), pa.string()),
        "size": pc.binary_length(docs.text).cast(pa.int64()),
        "date": one_array(docs.table["date"]),
        "source": one_array(docs.table["source"]),
        "score": score,
    }


def _url_md5(docs: Documents) -> pa.Array:
    urls = docs.table["url"].to_pylist()
    digests = [
        hashlib.md5(u.encode(), usedforsecurity=False).hexdigest() if u else None for u in urls
    ]
    return pa.array(digests, pa.string())
