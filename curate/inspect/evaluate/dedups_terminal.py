"""An evaluation for a terminal: kinds of plants down, methods across."""

from __future__ import annotations

from curate.inspect.evaluate.dedups import Evaluation
from curate.inspect.evaluate.dedups_scoring import FOUND, KindScore
from curate.run.funnel import amount
from curate.terminal.tables import aligned, percent


def text(found: Evaluation) -> str:
    """The table and what its words mean."""
    head = ["planted", "n"]
    for score in found.scores:
        head += [score.method, *(["theory"] if score.method in found.curves else [])]
    rows = [head]
    for nth, kind in enumerate(found.scores[0].kinds):
        row = [title(kind), str(kind.planted + kind.already)]
        for score in found.scores:
            mine = score.kinds[nth]
            row.append(percent(mine.recall) + ("*" if mine.already else ""))
            if score.method in found.curves:
                row.append("" if mine.expected is None else percent(mine.expected))
        rows.append(row)
    for name, values in (
        ("precision, documents", [percent(s.precision) for s in found.scores]),
        ("precision, bytes", [percent(s.byte_precision) for s in found.scores]),
        ("falsely removed documents", [f"{s.false_documents:,}" for s in found.scores]),
        ("falsely removed text", [amount(s.false_bytes) for s in found.scores]),
    ):
        row = [name, ""]
        for score, value in zip(found.scores, values, strict=True):
            row += [value, *([""] if score.method in found.curves else [])]
        rows.append(row)
    lines = [about(found), aligned(rows)]
    lines.append(
        f"found: at least {FOUND:.0%} of one of the two copies is gone. theory: the S-curve of"
        " MinHash"
    )
    lines.append("at the measured similarities. Copies that were there before do not count.")
    if any(k.already for s in found.scores for k in s.kinds):
        lines.append("*: without plants of which the method removes the original anyway")
    return "\n".join(lines)


def about(found: Evaluation) -> str:
    """What was evaluated, in a sentence."""
    of = f" of {found.documents:,}" if found.documents > found.sampled else ""
    plants = len(found.planted.plants)
    return f"{found.sampled:,}{of} documents with {plants:,} plants, seed {found.seed}"


def title(kind: KindScore) -> str:
    """The kind, with the similarity that was reached."""
    if not kind.kind.startswith("near") or kind.similarity is None:
        return kind.kind
    return f"{kind.kind} ({kind.similarity:.3f})"
