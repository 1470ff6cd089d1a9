"""Products: built once from the corpus, their files put at OUT's root."""

from __future__ import annotations

import filecmp
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.direct_input import DirectInput
from curate.corpus.manifests import entries
from curate.engines.local import call_apart
from curate.run import made
from curate.run.intact import Intact, newest
from curate.run.ledger import Ledger, ledger_path
from curate.run.messages import Built, Published
from curate.run.plan import ProductStage, RunPlan, stage_folder
from curate.steps.contracts import Estimate, ProductContext
from curate.steps.failures import failing
from llmcurate.base.disk.files import part_files, temporary_name
from llmcurate.base.disk.publish import manifests
from llmcurate.base.disk.safe_paths import all_inside, inside, remove, remove_files
from llmcurate.base.disk.seals import seal, verify
from llmcurate.base.errors import UsageError
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal.progress import Progress, say

BATCH_ROWS = 500
COLUMNS = ["id", "source", "lang", "text"]


def corpus_batches(folder: Path, columns: list[str] | None = COLUMNS) -> Iterator[pa.RecordBatch]:
    """Columns (None: all) of the corpus in a folder. Damaged where a part is not what its manifest
    says; each is compared before it is read."""
    sealed = {name: [None, entry["sha256"]] for name, entry in entries(folder)}
    for path in part_files(folder):
        if path.name in sealed:
            verify([[str(path), sealed[path.name]]])
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)


def build_product(
    plan: RunPlan,
    stage: ProductStage,
    inputs: dict[str, ProductStage],
    folders: tuple[Path, Path],
    ledger: Ledger,
    intact: Intact,
) -> dict[str, Any]:
    """The product's record; builds it unless the ledger has it and its files are in place.

    folders: OUT, and the home of the run, which has the folder that the product is built in.
    """
    product, (out, home) = stage.product, folders
    quiet, workers = intact.options.quiet, intact.options.count()
    in_place = product.in_place
    folder = out if in_place else stage_folder(home, stage.folder_name)
    built = ledger.stage_result(stage.key, Built)
    current = ledger.stage_result(f"published:{product.makes}", Published)
    if built and _all_there(folder, built.record["files"], ledger):
        record, seals = built.record, built.seals
        if not intact.faults((folder / name, sealed) for name, sealed in seals.items()):
            is_current = current is not None and current.key == stage.key
            published = is_current and _all_there(out, record["files"], ledger)
            # Links to what was compared just now need no second look.
            copies = [n for n in seals if published and not (out / n).samefile(folder / n)]
            if published and not intact.faults((out / n, seals[n]) for n in copies):
                return record
            if not in_place:
                made.record(plan, stage, ledger)
                _publish(stage, folder, out, ledger)
                return record
        else:  # a builder may go on from what it finds
            remove(folder, inside=home)
    for before in inputs.values():
        source = stage_folder(home, before.folder_name)
        if (other := ledger.stage_result(before.key, Built)) is not None:
            verify([str(source / n), s] for n, s in other.seals.items())
    folder.mkdir(parents=True, exist_ok=True)
    corpus, direct = out / "corpus", None
    if "corpus" in inputs:  # a product made another corpus of what was there
        maker = stage_folder(home, inputs["corpus"].folder_name)
        corpus = next(p for p in (maker / "mix", maker / "corpus") if p.is_dir())
    elif product.reads_corpus and not plan.stages:
        direct = DirectInput(plan.inputs, plan.recipe.read)
    say(f"{product.label}: building", quiet)
    steps = int(getattr(product, "steps", 0))
    began = time.perf_counter()
    made.make_room(plan, stage, out, ledger)
    made.record(plan, stage, ledger)
    if in_place:
        # From here on what stands there is this product's, unfinished.
        ledger.commit_stage(f"published:{product.makes}", Published(stage.key, []))
    ids: list[Any] = []  # of the first and the last document of the batch that the product reads

    def corpus_of(columns: list[str] | None = COLUMNS) -> Iterator[pa.RecordBatch]:
        batches = direct.batches(columns) if direct else corpus_batches(corpus, columns)
        for batch in batches:
            named = batch.num_rows and "id" in batch.schema.names
            ids[:] = [batch["id"][0], batch["id"][batch.num_rows - 1]] if named else []
            yield batch
        ids.clear()

    def place() -> str:
        return "a document from {} to {}".format(*map(plain, ids)) if ids else ""

    with (
        Progress(product.label, steps, quiet or not steps) as progress,
        failing(product.label, place),
    ):
        context = ProductContext(
            out=folder,
            corpus=corpus_of,
            call_apart=call_apart,
            inputs={k: stage_folder(home, s.folder_name) for k, s in inputs.items()},
            workers=workers,
            beside=bool(plan.stages),
            run=out if plan.stages else _run_of(plan) if direct else None,
            say=lambda line: say(f"{product.label}: {line}", quiet),
            progress=lambda event: progress.update(
                event.get("step", 0), _figures(event), event.get("seconds_left")
            ),
        )
        result = product.build(context)
    if direct:
        direct.write_corrupt(folder / "corrupt.jsonl")
        result["input"] = direct.tally
        if direct.too_long:
            result["warnings"] = [*result.get("warnings", []), direct.too_long]
    for warning in result.get("warnings", []):
        say(f"{product.label}: {warning}", quiet)
    files = _files(out, (*made.IN_PLACE, made.TOKENIZER)) if in_place else _files(folder)
    record = {
        "label": product.label,
        "makes": product.makes,
        "seconds": round(time.perf_counter() - began, 3),
        "files": files,
        **result,
    }
    # Training keeps its own account of checkpoints, and goes on changing what stands there.
    sealed = {} if in_place else {name: seal(folder / name) for name in files}
    at = newest(folder / name for name in sealed)
    ledger.commit_stage(stage.key, Built(record, sealed, at))
    if in_place:
        ledger.commit_stage(f"published:{product.makes}", Published(stage.key, files))
    else:
        _publish(stage, folder, out, ledger)
    return record


def estimates(plan: RunPlan, out: Path, restart: bool = False) -> dict[str, Estimate]:
    """What building the products would take, by the names of their folders, for those that can say
    it now. Writes nothing. restart: whether OUT is set aside first."""
    path = ledger_path(out)
    ledger = Ledger.to_read(path) if path.exists() and not restart else None
    if ledger is not None:
        made.check_made(plan, out, ledger, offered=True)
    by_folder = {}
    for stage in plan.products:
        product = stage.product
        inputs = {kind: plan.products[index] for kind, index in stage.inputs.items()}
        folders = {k: stage_folder(path.parent, s.folder_name) for k, s in inputs.items()}
        if not all(folder.exists() for folder in folders.values()):
            continue
        fresh = restart
        if ledger is not None and product.in_place:
            fresh = made.made_otherwise(plan, stage, out, ledger)[0] is not None
        if (estimate := product.estimate(out, folders, fresh)) is not None:
            by_folder[stage.folder_name] = estimate
    return by_folder


def _run_of(plan: RunPlan) -> Path | None:
    """The OUT of an earlier run, where all of the input is its corpus."""
    folders = {Path(file.path).parent for file in plan.inputs.files if "://" not in file.path}
    only = folders.pop() if len(folders) == 1 else None
    return only.parent if only is not None and only.name == "corpus" else None


def _figures(event: dict[str, Any]) -> str:
    """A training step, for a progress line."""
    loss, timing = event.get("loss"), event.get("timing", {})
    parts = [f"loss {loss:.3f}" if loss is not None else "loss: none"]
    if "tokens_per_second" in timing:
        parts.append(f"{timing['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in timing:
        parts.append(f"MFU {timing['mfu']:.1%}")
    elif "flops_per_second" in timing:
        parts.append(f"{timing['flops_per_second'] / 1e12:.3g} TFLOP/s")
    return ", ".join(parts)


def _all_there(out: Path, files: list[str], ledger: Ledger) -> bool:
    return all(path.exists() for path in all_inside(out, files, ledger.path))


def _files(root: Path, names: tuple[str, ...] | None = None) -> list[str]:
    """Relative paths of all files below root (below the given entries of it)."""
    tops = [root / n for n in names] if names else [root]
    files: list[str] = []
    for top in tops:
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        files += [p.relative_to(root).as_posix() for p in paths if p.is_file()]
    return [f for f in files if not Path(f).name.startswith(".")]


def _publish(stage: ProductStage, folder: Path, out: Path, ledger: Ledger) -> None:
    """Links (or copies) the product's files to OUT's root; those of its kind there go. folder:
    where it was built."""
    key = f"published:{stage.product.makes}"
    files = _files(folder)
    published = ledger.stage_result(key, Published)
    before = published.files if published else []
    all_inside(out, before, ledger.path)
    for name in files:
        target = inside(out, name, follow=False)
        others = name not in before and target.exists()
        if others and not filecmp.cmp(folder / name, target, shallow=False):
            raise UsageError(
                f"{target} is there already, and not of this {stage.product.makes}: move it away"
                " and give the command again, which computes nothing anew"
            )
    # Until all files stand there, what stands there is of no product.
    ledger.commit_stage(key, Published(None, sorted({*before, *files})))
    heads_before, heads = manifests(before), manifests(files)
    gone = (n for n in before if n not in files or n in heads_before)
    remove_files((out / name for name in gone), inside=out)
    # Manifests come last, that of the root after those of its folders.
    for name in (*(f for f in files if f not in heads), *heads):
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(temporary_name(target.name))
        aside.unlink(missing_ok=True)
        try:
            os.link(folder / name, aside)
        except OSError:
            shutil.copyfile(folder / name, aside)
        aside.replace(target)
    ledger.commit_stage(key, Published(stage.key, files))
