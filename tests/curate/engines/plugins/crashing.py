"""A plug-in whose steps crash or block their worker on certain texts."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from curate.dedup.exact import DedupExact
from curate.documents.documents import Documents
from curate.steps.contracts import Step


def harm(text: str) -> None:
    """KILL-WITH:11 sends that signal, ONCE:9:path only the first time, MEMORY and ERROR raise, SPIN
    is at work for ever in C and lets no thread of Python run. Unless the environment says CALM,
    STOP waits for ever and SLEEP:0.1 for so many seconds."""
    if match := re.search(r"KILL-WITH:(\d+)", text):
        os.kill(os.getpid(), int(match.group(1)))
    if match := re.search(r"ONCE:(\d+):(\S+)", text):
        mark = Path(match.group(2))
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), int(match.group(1)))
    if "EXIT" in text:
        os._exit(7)
    if "MEMORY" in text:
        raise MemoryError
    if "ERROR" in text:
        raise ValueError("a defect\nof two lines")
    if "STOP" in text and "CALM" not in os.environ:
        signal.pause()
    if "CALM" not in os.environ and (match := re.search(r"SLEEP:([\d.]+)", text)):
        time.sleep(float(match.group(1)))
    if "SPIN" in text:
        re.match(r"(a+)+$", "a" * 99 + "b")


class Crash(Step):
    """Harms its worker."""

    name: ClassVar[str] = "crash"

    def apply(self, docs: Documents) -> Documents:
        for text in docs.text.to_pylist():
            harm(text or "")
        return docs


class CrashSketch(DedupExact):
    """Harms its worker while it sketches; decides nothing else than its parent."""

    name: ClassVar[str] = "crash_sketch"

    def sketch(self, docs: Documents) -> pa.Table:
        for text in docs.text.to_pylist():
            harm(text or "")
        return super().sketch(docs)

    def resolve(self, sketches: Any) -> dict[str, Any]:
        return super().resolve(sketches)
