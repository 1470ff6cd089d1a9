"""Reading one file as a run does: recognise it by name or content, cut it, and read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from curate.formats.events import Corrupt, Row, Skipped
from curate.formats.inputs import plan_inputs
from curate.formats.reading import FORMATS, Portion

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
REAL = SHARED / "corpora" / "real_warc"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="shared/corpora/real_warc is absent")


def events(path: Path, partition_bytes: int = 16 << 20, **limits: Any) -> list[Any]:
    plan = plan_inputs([str(path)], partition_bytes)
    found: list[Any] = []
    for slices in plan.partitions:
        for part in slices:
            file = plan.files[part.file]
            portion = Portion(
                file.path, file.rel, file.format, file.codec, part.start, part.end, plan.columns,
                **limits,
            )  # fmt: skip
            found += FORMATS[file.format].reader.read(portion)
    return found


def rows(found: list[Any]) -> list[Row]:
    return [event for event in found if isinstance(event, Row)]


def skipped(found: list[Any]) -> list[str]:
    return sorted(event.kind for event in found if isinstance(event, Skipped))


def corrupt(found: list[Any]) -> list[str]:
    return [event.what for event in found if isinstance(event, Corrupt)]
