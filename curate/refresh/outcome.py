"""The options and the outcome of a refresh, for a line of mail, `--json` and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from curate.refresh.forgetting import Scrubbed
from llmcurate.base.disk.units import counted

MOST_NAMED = 10  # damaged inputs in a line


@dataclass
class How:
    """The options of a refresh. `changed` and `damaged` decide what is taken in."""

    workers: int = 0
    quiet: bool = False
    changed: str = "refuse"  # what happens to inputs that are others now: refuse, new, skip
    damaged: str = "leave"  # what happens to inputs whose end cannot be read: leave, take
    keep: int | None = None  # snapshots
    keep_days: float | None = None
    rebuild: bool = False
    abandon: bool = False
    products: bool = False  # those of the recipe, of the whole snapshot
    engine: str = "local"
    address: str | None = None  # of a Ray cluster; of this machine, for jobs of Slurm
    allow_python: bool = False  # whether functions in files that the recipe names may run
    slurm: tuple[str, ...] = ()  # options of sbatch
    now: datetime | None = None  # for the name; the clock's by default


@dataclass
class Refreshed:
    """What happened. kind: run, rebuild, forget, rollback, or nothing; totals: of the run, as in
    its run.json; corpus: documents and bytes of text in the snapshot."""

    home: Path
    kind: str = "nothing"
    name: str | None = None
    inputs: int = 0
    unchanged: int = 0
    totals: dict[str, Any] = field(default_factory=dict)
    corpus: dict[str, Any] = field(default_factory=dict)
    forgotten: int = 0
    superseded: int = 0
    removed_snapshots: list[str] = field(default_factory=list)
    snapshots: int = 0
    seconds: float = 0.0
    products: Path | None = None  # their folder, where they were asked for
    scrubbed: Scrubbed = field(default_factory=Scrubbed)  # what runs kept of forgotten documents
    built: bool = False  # whether a product was not there yet
    damaged: dict[str, str] = field(default_factory=dict)  # inputs that were left out, and why

    @property
    def new(self) -> bool:
        """Whether there is a new snapshot, or product."""
        return self.kind != "nothing" or self.built

    @property
    def damage(self) -> str:
        """A line on the inputs that were left out, empty without any."""
        named = [f"{path} ({what})" for path, what in self.damaged.items()]
        first = ", ".join(named[:MOST_NAMED])
        count = counted(len(named), "damaged input")
        return f"{count}, left out until whole: {first}" if named else ""

    def line(self) -> str:
        """One line for people."""
        return "; ".join(filter(None, (self._line(), self.damage)))

    def _line(self) -> str:
        where = self.name or "no snapshot yet"
        documents = counted(self.corpus.get("documents", 0), "document")
        if self.kind == "nothing":
            stays = f"{self.name} stays" if self.name else where
            stays += f"; products in {self.products}" if self.built else ""
            return f"{self.home}: nothing new among {counted(self.unchanged, 'input')}; {stays}"
        if self.kind == "rollback":
            return f"{self.home}: back to {where}, {documents}"
        older = counted(self.superseded, "older version")
        gone = f", {older} replaced" if self.superseded else ""
        gone += f", {self.forgotten:,} forgotten" if self.forgotten else ""
        if self.kind == "forget":
            forgotten = counted(self.forgotten, "document")
            return f"{where}: {forgotten} forgotten; corpus {documents}"
        t = self.totals
        why = f" ({t['nothing_kept']})" if t.get("nothing_kept") else ""
        return (
            f"{where}: {counted(self.inputs, 'new input')}, {counted(t['read'], 'document')} read,"
            f" {t['kept']:,} kept{why}{gone}; corpus {documents}; {self.seconds:.1f} s"
        )

    def json(self) -> dict[str, Any]:
        """For `--json`, hooks and logs."""
        return {
            "kind": self.kind,
            "snapshot": self.name,
            "inputs": self.inputs,
            "known_inputs": self.unchanged,
            "read": self.totals.get("read", 0),
            "kept": self.totals.get("kept", 0),
            "rejected": self.totals.get("rejected", 0),
            "corrupt": self.totals.get("corrupt", 0),
            "by_rule": self.totals.get("by_rule", {}),
            "nothing_kept": self.totals.get("nothing_kept"),
            "forgotten": self.forgotten,
            "superseded": self.superseded,
            "emptied": self.scrubbed.documents,
            "emptied_runs": self.scrubbed.runs,
            "unsearchable": list(self.scrubbed.indexes),
            "corpus_documents": self.corpus.get("documents", 0),
            "corpus_text_bytes": self.corpus.get("text_bytes", 0),
            "kept_ids": self.corpus.get("ids", ""),
            "snapshots": self.snapshots,
            "removed_snapshots": self.removed_snapshots,
            "seconds": round(self.seconds, 3),
            "home": str(self.home),
            "products": str(self.products) if self.products else None,
            "damaged": self.damaged,
        }
