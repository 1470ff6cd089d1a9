"""A plug-in whose steps compile for a thousand CPU seconds wherever a process is first at work with
them, by a clock that says so."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pyarrow as pa
from numba.core.event import trigger_event

import llmcurate.base.kernels.cache  # noqa: F401 (counts compilations)
from curate.dedup.exact import DedupExact
from curate.documents.documents import Documents
from curate.steps.contracts import Step

SECONDS = 1000.0

places: set[str] = set()
_added = 0.0
_clock = time.process_time
time.process_time = lambda: _clock() + _added


def compile_at(place: str) -> None:
    """As numba compiles a kernel there, the first time."""
    global _added
    if place not in places:
        places.add(place)
        with trigger_event("numba:compile"):
            _added += SECONDS


def work(task: dict[str, Any]) -> dict[str, Any]:
    """A task that compiles."""
    compile_at("a task")
    return {}


class Compiling(Step):
    """Compiles at the first document."""

    name: ClassVar[str] = "compiling"

    def apply(self, docs: Documents) -> Documents:
        if len(docs):
            compile_at("a step")
        return docs


class CompilingDedup(DedupExact):
    """Compiles in each of its phases."""

    name: ClassVar[str] = "compiling_dedup"

    def open(self) -> None:
        compile_at("the start")
        super().open()

    def sketch(self, docs: Documents) -> pa.Table:
        if len(docs):
            compile_at("the sketch")
        return super().sketch(docs)

    def resolve(self, sketches: Any) -> dict[str, Any]:
        compile_at("the decisions")
        return super().resolve(sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        if len(docs):
            compile_at("the dedup")
        return super().apply(docs, decisions)
