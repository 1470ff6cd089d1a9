"""What a run would do, before it does it: the plan, what of it is there, and a forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.disk.units import format_bytes
from curate.run.driver import done_before
from curate.run.outcome import Options
from curate.run.plan import RunPlan, stage_folder

if TYPE_CHECKING:
    from curate.api import How
    from curate.run.workspace import Workspace


def show(plan: RunPlan, out: Path, how: How, space: Workspace | None) -> None:
    """Prints the plan, and a forecast where documents go through stages."""
    if not plan.stages:
        print(describe(plan, out))
        if how.as_json and all(p.makes != "corpus" for p in plan.recipe.products):
            print(json.dumps(plan_record(plan, out), ensure_ascii=False))  # a mix says more
        return
    from curate.inspect.forecast.forecast import forecast, kinds_of
    from curate.inspect.forecast.prices import parse_prices
    from curate.inspect.forecast.sources import groups
    from curate.inspect.forecast.terminal import text

    prices = parse_prices(how.scale.prices)
    where = groups(plan.recipe, how.scale.sample, out, space, kinds_of(plan))
    workers = Options(how.workers or (space.workers if space else 0)).count()
    found = forecast(plan, where, workers, prices, how.scale.as_if)
    if not (how.as_json and how.quiet):
        if plan.inputs.files:
            print(describe(plan, out))
        print(text(found))
    if how.as_json:
        print(json.dumps({**plan_record(plan, out), "forecast": found.dump()}, ensure_ascii=False))


def plan_record(plan: RunPlan, out: Path) -> dict[str, Any]:
    """The plan as JSON values: stages and products, and what of them is there already."""
    have = done_before(out)
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
                "partitions_done": len(have.get(stage.key, ())),
                "resolves": stage.sketch.label if stage.sketch else None,
            }
            for stage in plan.stages
        ],
        "products": [{"folder": p.folder_name, "done": p.key in have} for p in plan.products],
    }


def describe(plan: RunPlan, out: Path) -> str:
    """The plan for people: stages, partitions, what is reused."""
    found = plan_record(plan, out)
    files, parts, size = found["files"], found["partitions"], format_bytes(found["bytes"])
    lines = [f"{plan.recipe.name} -> {out}", f"  input: {files} files, {size}, {parts} partitions"]
    for stage in found["stages"]:
        done = stage["partitions_done"]
        state = "reused" if done == parts > 0 else f"{done} of {parts} partitions are there"
        then = f", then resolve {stage['resolves']}" if stage["resolves"] else ""
        lines.append(f"  stage {stage['folder']}: {state}{then}")
    for product in found["products"]:
        state = "reused" if product["done"] else "to build"
        lines.append(f"  product {product['folder']}: {state}")
    return "\n".join(lines)
