"""An earlier run as figures: CPU seconds a byte, what share goes on, bytes written a document.

All of it is read from run.json. Seconds are CPU seconds of the worker; runs of versions before they
were counted have seconds of the wall, start of the worker included, and say so (`by_wall`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from curate.errors import UsageError
from curate.formats.inputs import PACKING
from curate.run.funnel import rows

INNER = ("read", "write", "start")  # labels of seconds that no step has


@dataclass(frozen=True)
class StepFigures:
    """A step of an earlier run. None: that run says nothing of it.

    cpu: seconds a byte of all that lay before it, marked documents included (`worked`); onward:
    that volume after it, a byte; kept: share of documents that went on; text: their bytes, a byte.
    """

    label: str
    name: str
    settings: dict[str, Any]
    cpu: float | None = None
    onward: float | None = None
    kept: float | None = None
    text: float | None = None


@dataclass(frozen=True)
class SketchFigures:
    """What a step that looks at the whole corpus took: cpu: of sketching, seconds a byte kept;
    stored: bytes of sketches a document; decided: one process's seconds for `documents`, tasks:
    those of workers; decisions: bytes of decisions a document."""

    cpu: float | None
    stored: float | None
    decided: float | None
    tasks: float | None
    decisions: float | None
    documents: int


@dataclass(frozen=True)
class StageFigures:
    """A stage. read: seconds a byte that enters it; write: a byte of all documents at its end;
    start: (least, most) seconds of a partition before its first document: the most is that of a
    worker's first one; kept, keys, rejected, ids: bytes written a byte or a document."""

    steps: tuple[str, ...]
    first: bool
    read: float | None
    write: float | None
    start: tuple[float, float] | None
    peak_bytes: int
    kept: float | None = None
    keys: float | None = None
    rejected: float | None = None
    ids: float | None = None


@dataclass(frozen=True)
class Measured:
    """One run. said: how messages name it; kinds: formats of its input; stored: their bytes;
    entering: bytes of text and pages at the first step; once: seconds of one process by work, for
    `documents` in the input."""

    said: str
    recipe: str
    kinds: frozenset[str]
    files: int
    stored: int
    partitions: int
    documents: int
    entering: int
    by_wall: bool
    steps: dict[str, StepFigures] = field(default_factory=dict)
    sketches: dict[str, SketchFigures] = field(default_factory=dict)
    stages: tuple[StageFigures, ...] = ()
    once: dict[str, float] = field(default_factory=dict)


def kind_of(format: str, path: str) -> str:
    """`archive.gz`, `jsonl`: what bytes of an input are worth depends on it."""
    ending = PurePosixPath(path).suffix.lower()
    return f"{format}{ending if ending in PACKING else ''}"


def read(out: Path) -> Measured:
    """The figures of the run in OUT. UsageError where there is none, or it read nothing."""
    path = out / "run.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{out} holds no finished run (no run.json)") from None
    except (OSError, ValueError):
        raise UsageError(f"{path} cannot be read as a run's record") from None
    found = of_record(record, str(out))
    if found is None:
        raise UsageError(f"{path}: that run read no documents, so it gives no figures")
    return found


def of_record(record: Any, said: str) -> Measured | None:
    """The figures in a run's record; None where it is no such record or has none."""
    try:
        return _measured(record, said)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        return None


def _measured(record: dict[str, Any], said: str) -> Measured | None:
    stages = record["stages"]
    documents = int(record["totals"]["read"])
    stored = sum(int(f["bytes"]) for f in record["inputs"])
    if not stages or documents <= 0 or stored <= 0:
        return None
    by_wall = any("cpu" not in stage for stage in stages)
    first = stages[0]
    labels = first["steps"]
    entering = first.get("worked", {}).get(labels[0], 0) if labels else 0
    driver = record.get("driver", {})
    once = {name: float(s) for name, s in driver.get("cpu", {}).items()}
    if "settle_cpu" in first:
        once["settling ids"] = float(first["settle_cpu"])
    return Measured(
        said=said,
        recipe=str(record["recipe"]),
        kinds=frozenset(kind_of(f["format"], f["path"]) for f in record["inputs"]),
        files=len(record["inputs"]),
        stored=stored,
        partitions=int(record["partitions"]),
        documents=documents,
        entering=int(entering or first["bytes_in"] or first["bytes_out"]),
        by_wall=by_wall,
        steps=_steps(record, by_wall),
        sketches={s["decides"]: _sketch(s, by_wall) for s in stages if s.get("decides")},
        stages=tuple(_stage(s, i, stages, by_wall) for i, s in enumerate(stages)),
        once=once,
    )


def _over(amount: float | None, whole: float) -> float | None:
    return None if amount is None or whole <= 0 else amount / whole


def _seconds(stage: dict[str, Any], by_wall: bool) -> dict[str, float]:
    found: dict[str, float] = stage["seconds"] if by_wall else stage["cpu"]
    return found


def _steps(record: dict[str, Any], by_wall: bool) -> dict[str, StepFigures]:
    known = {s["label"]: s for s in record["steps"]}
    going = {row.step: row for row in rows(record)}
    found = {}
    for stage in record["stages"]:
        seconds = _seconds(stage, by_wall)
        labels = stage["steps"]
        for place, label in enumerate(labels):
            following = labels[place + 1] if place + 1 < len(labels) else None
            row = going[label]
            worked = stage["worked"].get(label, 0)
            next_ = stage["worked"].get(following) if following else None
            before = (row.text_in or 0) + row.payload_in
            found[label] = StepFigures(
                label,
                known[label]["name"],
                known[label]["settings"],
                _over(seconds.get(label), worked),
                _over(next_, worked),
                _over(row.after, row.before),
                _after(row.text_out, row.payload_in, row.text_in, before),
            )
    return found


def _after(text_out: int | None, payload: int, text: int | None, before: int) -> float | None:
    """Bytes that go on a byte. A step on pages leaves them pages, so no text means no change."""
    if text_out == 0 and payload and not text:
        return None
    return _over(text_out, before)


def _sketch(stage: dict[str, Any], by_wall: bool) -> SketchFigures:
    label, kept = stage["decides"], stage["kept"]
    decided = stage["decided"].get("seconds") if by_wall else stage.get("decided_cpu")
    written = stage.get("written", {})
    return SketchFigures(
        _over(_seconds(stage, by_wall).get(label), stage["worked"].get(label, 0)),
        _over(written.get("sketch"), kept),
        decided,
        stage["decided"].get("tasks_cpu", 0.0),  # absent where one process did it all
        _over(written.get("decisions"), kept),
        kept,
    )


def _stage(
    stage: dict[str, Any], index: int, stages: list[dict[str, Any]], by_wall: bool
) -> StageFigures:
    seconds, worked, labels = _seconds(stage, by_wall), stage["worked"], stage["steps"]
    before = stages[index - 1]["bytes_out"] if index else stage["bytes_in"]
    entering = worked.get(labels[0], 0) if labels else before
    ending = worked.get(labels[-1], 0) if labels else stage["bytes_out"]
    written, start = stage.get("written", {}), stage.get("start")
    return StageFigures(
        steps=tuple(labels),
        first=index == 0,
        read=_over(seconds.get("read"), entering),
        write=_over(seconds.get("write"), ending),
        start=(float(start[0]), float(start[1])) if start else None,
        peak_bytes=int(stage["peak_bytes"]),
        kept=_over(written.get("kept"), stage["bytes_out"]),
        keys=_over(written.get("keys"), stage["kept"]),
        rejected=_over(written.get("rejected"), max(0, ending - stage["bytes_out"])),
        ids=_over(written.get("ids"), stage["read"]),
    )
