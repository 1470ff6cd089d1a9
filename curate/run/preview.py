"""The plan of a run, before it is run: stages, partitions, and what of them is there already."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from curate.disk.units import format_bytes
from curate.run.plan import RunPlan, stage_folder


def committed_parts(out: Path) -> dict[str, set[int]]:
    """Committed partitions by stage key, and finished products, without taking the lock."""
    path = out / "ledger.db"
    if not path.exists():
        return {}
    parts: dict[str, set[int]] = {}
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for stage, part in db.execute("SELECT stage, part FROM parts"):
            parts.setdefault(stage, set()).add(part)
        for (stage,) in db.execute("SELECT stage FROM stages"):
            parts.setdefault(stage, set())
    finally:
        db.close()
    return parts


def plan_record(plan: RunPlan, out: Path) -> dict[str, Any]:
    """The plan as JSON values: stages and products, and what of them is there already."""
    committed = committed_parts(out)
    return {
        "recipe": plan.recipe.name,
        "out": str(out),
        "files": len(plan.inputs.files),
        "bytes": sum(f.size for f in plan.inputs.files),
        "partitions": len(plan.inputs.partitions),
        "stages": [
            {
                "folder": stage_folder(out, stage.folder_name).name,
                "steps": stage.labels,
                "partitions_done": len(committed.get(stage.key, ())),
                "resolves": stage.sketch.label if stage.sketch else None,
            }
            for stage in plan.stages
        ],
        "products": [{"folder": p.folder_name, "done": p.key in committed} for p in plan.products],
    }


def describe(plan: RunPlan, out: Path) -> str:
    """The plan for people: stages, partitions, what is reused."""
    record = plan_record(plan, out)
    files, parts, size = record["files"], record["partitions"], format_bytes(record["bytes"])
    lines = [f"{plan.recipe.name} -> {out}", f"  input: {files} files, {size}, {parts} partitions"]
    for stage in record["stages"]:
        done = stage["partitions_done"]
        state = "reused" if done == parts > 0 else f"{done} of {parts} partitions are there"
        then = f", then resolve {stage['resolves']}" if stage["resolves"] else ""
        lines.append(f"  stage {stage['folder']}: {state}{then}")
    for product in record["products"]:
        state = "reused" if product["done"] else "to build"
        lines.append(f"  product {product['folder']}: {state}")
    return "\n".join(lines)
