"""How much of what was planted a pipeline's foundation found: C4's rules and exact dedup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The steps that the foundation has; a planted document expects one of them by these names.
STEPS = ("c4", "exact_text", "exact_url")


@dataclass(frozen=True)
class Row:
    """One kind of planted document and one expectation.

    For ``dropped:STEP``: `planted` documents should be dropped by STEP, `caught` of them were,
    recall is their quotient, and precision is the share of all documents dropped by STEP that
    were planted for it (a figure of the step, equal in all its rows). For equal texts a cluster of
    n should lose n - 1, whichever survives. For ``kept`` and ``survives_foundation``: `caught`
    were kept, recall is the share kept, and precision is not defined.
    """

    kind: str
    expected: str
    planted: int
    caught: int
    missed: int
    precision: float | None
    recall: float


def read_truth(path: Path) -> list[dict[str, Any]]:
    """The records of a ``truth.jsonl``."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def score(
    truth_path: Path, kept_ids: set[str], rejected: Mapping[str, tuple[str, str]]
) -> list[Row]:
    """Compare a run's decisions with the truth.

    Args:
        truth_path: ``truth.jsonl`` of `curate.demo.web.build_web`.
        kept_ids: ids of the documents that came out; angle brackets are ignored.
        rejected: (step, rule) of the others. Exact dedup is known by the words exact and text (or
            url) in the two, as in ``("dedup_exact", "same_text")``; C4 by the word c4 in either.

    Documents that the truth does not know (error pages, robots.txt) are ignored.
    """
    truth = read_truth(truth_path)
    known = {record["id"] for record in truth}
    kept = {_bare(i) for i in kept_ids} & known
    dropped_by = {_bare(i): _step(*reason) for i, reason in rejected.items() if _bare(i) in known}
    right = _rightly_dropped(truth, kept, dropped_by)
    precision = {step: _precision(step, right, dropped_by) for step in STEPS}

    rows = []
    for kind, expected in _groups(truth):
        group = [r for r in truth if r["kind"] == kind and expected in r["expect"]]
        step = expected.partition(":")[2]
        if step == "exact_text":
            planted = len(group)
            caught = len(right["exact_text"])
        elif step:
            planted = len(group)
            caught = sum(r["id"] in right[step] for r in group)
        else:
            planted = len(group)
            caught = _kept(group, kept, truth)
        rows.append(
            Row(
                kind,
                expected,
                planted,
                caught,
                planted - caught,
                precision.get(step),
                caught / planted,
            )
        )
    return rows


def _bare(record_id: str) -> str:
    return record_id.strip("<>")


def _step(step: str, rule: str) -> str:
    """The foundation's name of a step and rule; the step's own name if it is none of them."""
    words = re.split(r"[\W_]+", f"{step} {rule}")
    if step in STEPS:
        return step
    if "exact" in words:
        for key in ("text", "url"):
            if key in words:
                return f"exact_{key}"
    return "c4" if "c4" in words else step


def _groups(truth: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    pairs = {(r["kind"], e) for r in truth for e in r["expect"]}
    return sorted(pairs, key=lambda p: (p[0] != "clean", not p[1].startswith("dropped"), p))


def _equal_texts(truth: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Ids by cluster, of the clusters whose texts are equal."""
    clusters: dict[str, list[str]] = {}
    copied = {r["cluster"] for r in truth if r["kind"] == "exact_dup"}
    for record in truth:
        if record["cluster"] in copied:
            clusters.setdefault(record["cluster"], []).append(record["id"])
    return clusters


def _rightly_dropped(
    truth: Sequence[dict[str, Any]], kept: set[str], dropped_by: Mapping[str, str]
) -> dict[str, set[str]]:
    """By step, the ids that it was right to drop."""
    right: dict[str, set[str]] = {step: set() for step in STEPS}
    for record in truth:
        for step in ("c4", "exact_url"):
            wanted = f"dropped:{step}" in record["expect"]
            if wanted and dropped_by.get(record["id"]) == step:
                right[step].add(record["id"])
    for members in _equal_texts(truth).values():
        gone = sorted(i for i in members if dropped_by.get(i) == "exact_text")
        if not any(i in kept for i in members):
            gone = gone[1:]  # one too many: the cluster has no survivor
        right["exact_text"].update(gone[: len(members) - 1])
    return right


def _precision(
    step: str, right: Mapping[str, set[str]], dropped_by: Mapping[str, str]
) -> float | None:
    dropped = sum(name == step for name in dropped_by.values())
    return len(right[step]) / dropped if dropped else None


def _kept(group: Iterable[dict[str, Any]], kept: set[str], truth: Sequence[dict[str, Any]]) -> int:
    """How many were kept; an original counts as kept if an equal text was kept in its place."""
    clusters = _equal_texts(truth)
    count = 0
    for record in group:
        equals = clusters.get(record["cluster"] or "", [record["id"]])
        count += any(i in kept for i in equals)
    return count


def format_table(rows: Sequence[Row]) -> str:
    """The rows as plain text for a terminal."""
    head = ("kind", "expected", "planted", "caught", "missed", "precision", "recall")
    body = [
        (
            r.kind,
            r.expected,
            str(r.planted),
            str(r.caught),
            str(r.missed),
            "-" if r.precision is None else f"{r.precision:.3f}",
            f"{r.recall:.3f}",
        )
        for r in rows
    ]
    widths = [max(len(line[n]) for line in (head, *body)) for n in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n < 2 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *body)
    )
