"""How to run, and what a run did: the counts for run.json, `--json` and the terminal."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.plan import RunPlan


@dataclass
class Options:
    """How to run; nothing here changes a byte of the output."""

    workers: int = 0  # 0: as many as there are cores
    quiet: bool = False
    engine: str = "local"  # where the partitions are worked on: local, ray
    address: str | None = None  # of a Ray cluster

    def count(self) -> int:
        """Worker processes on this machine."""
        if self.workers:
            return self.workers
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


@dataclass
class Outcome:
    """What a run did, for `run.json`, `--json` and the terminal."""

    out: Path
    plan: RunPlan
    nothing_new: bool = False
    stages: list[dict[str, Any]] = field(default_factory=list)
    products: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    published: dict[str, Any] | None = None  # of an OUT that is a URL: it, and what was put there
    kept_ids: str = ""  # a hash of the set of ids in corpus/; empty where no stage wrote one

    def totals(self) -> dict[str, Any]:
        """The counts of the whole run; by_rule counts documents by the rule that dropped them."""
        # Without a step on documents, a product read the input itself and kept count.
        direct = [p["input"] for p in self.products if p.get("input")][:1]
        stages = self.stages or direct
        first = stages[0] if stages else {}
        last = stages[-1] if stages else {}
        by_rule: Counter[str] = Counter()
        for stage in stages:
            by_rule.update(stage["primary"])
        return {
            "read": first.get("read", 0),
            "kept": last.get("kept", 0),
            "rejected": sum(s["rejected"] for s in stages),
            "skipped": sum(first.get("skipped", {}).values()),
            "skipped_by_type": first.get("skipped", {}),
            "corrupt": first.get("corrupt", 0),
            "bytes_in": first.get("bytes_in", 0),
            "bytes_out": last.get("bytes_out", 0),
            "seconds": round(self.seconds, 3),
            "kept_ids": self.kept_ids,
            "by_rule": dict(sorted(by_rule.items(), key=lambda item: (-item[1], item[0]))),
        }

    def paths(self) -> dict[str, str]:
        """What the run left and where."""
        at = self.published["url"] if self.published else str(self.out)
        names = ("run.json", "report.html", "corpus", "rejected", "decisions.parquet")
        paths = {n.split(".")[0]: f"{at}/{n}" for n in names if (self.out / n).exists()}
        for stage in self.plan.stages:
            for name in stage.sketch.leaves() if stage.sketch else ():
                paths[name.split(".")[0]] = f"{at}/{name}"
        for product in self.products:
            if product["makes"] == "corpus":
                paths[product["folder"]] = f"{at}/{product['folder']}"
            else:
                paths[product["makes"]] = at
        return paths
