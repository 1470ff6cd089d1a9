"""The plan of a run: the steps of a recipe, divided into stages.

A stage's key is a hash of its input and of its steps' settings and versions, so stages before a
changed step are reused. A new stage begins where decisions on the whole corpus (of a CorpusStep)
are applied, where the recipe says `cut`, and before the first step that needs final ids."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from curate.corpus import indexes, manifests
from curate.dedup.removal import DedupStep
from curate.engines.base import cpu_seconds
from curate.formats.inputs import InputPlan
from curate.formats.reading import plan_reading
from curate.run.ledger import RUN, Ledger, ledger_path
from curate.steps.contracts import CorpusStep, Product, Settings, Step, code_of, files_of
from curate.steps.recipe import Recipe, build, make_step
from llmcurate.base.disk.files import cache_folder, path_inside, text_digest
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import UsageError

ALLOW_PYTHON = "LLMCURATE_ALLOW_PYTHON"  # an environment variable
LAYOUT = 4  # increased when older stage files can no longer be read


def _hash(*parts: Any) -> str:
    return text_digest(json.dumps([LAYOUT, *parts]))[:16]


@dataclass
class MapStage:
    """A stage of a run. Its folder is named like `00-extract+c4-<hash>`."""

    index: int
    key: str
    apply: CorpusStep | None  # step whose decisions the stage applies first
    steps: list[Step]
    sketch: CorpusStep | None = None  # step that decides after the stage

    @property
    def folder_name(self) -> str:
        labels = [self.apply.label] if self.apply else []
        labels += [s.label for s in self.steps]
        title = "+".join(labels).replace("#", "_")[:60] or "read"
        return f"{self.index:02d}-{title}-{self.key}"

    @cached_property
    def sketch_key(self) -> str:
        """A hash that changes if the sketches (data on each document) may change; "" if the stage
        writes no sketches. It is computed once, because hashes of files are part of it."""
        return _hash(self.key, self.sketch.sketch_identity().values) if self.sketch else ""

    @cached_property
    def folder_key(self) -> str:
        return _hash(self.sketch_key, self.sketch.folder_identity().values) if self.sketch else ""

    @cached_property
    def decisions_key(self) -> str:
        return _hash(self.folder_key, self.sketch.identity().values) if self.sketch else ""

    @property
    def labels(self) -> list[str]:
        return ([self.apply.label] if self.apply else []) + [s.label for s in self.steps]

    @property
    def shown(self) -> str:
        return " to ".join(dict.fromkeys([*self.labels[:1], *self.labels[-1:]])) or "reading"


@dataclass
class ProductStage:
    """A product, with the index of each earlier product from which it is made."""

    index: int
    key: str
    product: Product
    inputs: dict[str, int] = field(default_factory=dict)  # kind -> index among product stages

    @property
    def folder_name(self) -> str:
        return f"{self.index:02d}-{self.product.label.replace('#', '_')}-{self.key}"


@dataclass(frozen=True)
class EarlierIds:
    """The ids of earlier runs, which no other document may get. `files` are parquet files with a
    column `id`, and `digest` is a hash of their content."""

    files: tuple[Path, ...]
    digest: str


@dataclass(frozen=True)
class EarlierDocuments:
    """The earlier documents that the setting `against` names, with which the dedup step `step`
    compares new documents. If their index does not exist yet, a run of the plan `plan` makes it."""

    step: DedupStep
    against: str
    plan: RunPlan
    index: indexes.Index


@dataclass
class RunPlan:
    """All that a run will do. If `earlier` is given, no document gets an id of an earlier run, and
    this run's ids are all written to the first stage's folder, for later runs."""

    recipe: Recipe
    inputs: InputPlan
    stages: list[MapStage]
    products: list[ProductStage]
    earlier: EarlierIds | None = None
    cpu: float = 0.0  # CPU seconds of planning
    against: list[EarlierDocuments] = field(default_factory=list)  # their indexes are made first

    @property
    def digest(self) -> str:
        """A hash that changes if any output may change."""
        keys = [s.key + s.decisions_key for s in self.stages] + [p.key for p in self.products]
        return _hash(self.inputs.fingerprint(), keys)

    def home(self, out: Path) -> Path:
        """Return the folder that holds the ledger (the list of finished work), stages and records.
        This is OUT, or a folder in OUT if the run makes only products and OUT has no ledger. Raises
        RunFailed if a link leads out of OUT."""
        documents = self.stages or any(p.product.makes == "corpus" for p in self.products)
        return out if documents or (out / Ledger.file).exists() else path_inside(out, RUN)

    @property
    def corpus_key(self) -> str:
        return self.stages[-1].key if self.stages else self.inputs.fingerprint()[:16]


def plan_run(
    recipe: Recipe,
    inputs: InputPlan,
    earlier: EarlierIds | None = None,
    on_paper: bool = False,
) -> RunPlan:
    """Divide the recipe into stages and return the plan. Raises UsageError if a step cannot work on
    this input. With `on_paper`, the plan is only for display: its stages have no keys (hashes that
    identify their results), and no models or other files are needed."""
    _check_extraction(recipe, inputs)
    if not on_paper:
        recipe = recipe.without_missing_files()
        lacking = []
        for step in recipe.steps:
            try:
                files_of(step)
            except UsageError as error:
                lacking.append(str(error))
        if lacking:
            raise UsageError("; ".join(lacking))
    against = [] if on_paper else list(_against(recipe))
    earlier_digest = [earlier.digest] if earlier and earlier.files else []
    # Files of text may not state their encoding. Their text then depends on the detector's version.
    detected = any(file.format in ("text", "csv") for file in inputs.files)
    detector = [version("chardetng_py")] if detected else []
    key = _hash(inputs.fingerprint(), recipe.read.identity(), *earlier_digest, *detector)
    stages: list[MapStage] = []
    current: list[Step] = []
    pending: CorpusStep | None = None

    def close(sketch: CorpusStep | None, last: bool = False) -> None:
        nonlocal key, current, pending
        if on_paper:
            key = ""
        else:
            before = pending.identity().values if pending else None
            written = [recipe.columns] if last and recipe.columns else []
            key = _hash(key, before, [s.identity().values for s in current], *written)
        stages.append(MapStage(len(stages), key, pending, current, sketch))
        current, pending = [], sketch

    for position, step in enumerate(recipe.steps):
        if isinstance(step, Product):
            break
        if position in recipe.cuts and (current or pending):
            close(None)
        if isinstance(step, CorpusStep):
            close(step)
        else:
            assert isinstance(step, Step)
            if step.by_id and not stages:
                close(None)
            current.append(step)
    if current or pending:
        close(None, last=True)
    product_stages = _product_stages(recipe, key, len(stages), on_paper)
    return RunPlan(recipe, inputs, stages, product_stages, earlier, against=against)


def _against(recipe: Recipe) -> Iterator[EarlierDocuments]:
    """Yield the earlier documents with which dedup steps compare, and set the path of their index
    in each dedup step. Earlier documents are read in full, with the settings of the input. If they
    are web pages, text is extracted as in the recipe."""
    whole: dict[str, Any] = dict.fromkeys(("limit", "share", "split", "config", "fetch"))
    read = recipe.read.model_copy(update=whole)
    for dedup in (step for step in recipe.steps if isinstance(step, DedupStep)):
        for name in dedup.against:
            if indexes.is_documents(name, dedup.name):
                inputs = plan_reading([indexes.named(name)[1]], read)
                steps: list[Settings] = [dedup.of_earlier()]
                if any(file.holds_pages for file in inputs.files):
                    extracts = [step for step in recipe.steps if step.name == "extract"]
                    steps = [*(extracts or [make_step("extract", {})]), *steps]
                plan = plan_run(build("against", steps, read=read), inputs)
                index = _index_of(plan, name)
                dedup.take_index(name, index)
                yield EarlierDocuments(dedup, name, plan, index)


def _index_of(plan: RunPlan, against: str) -> indexes.Index:
    name, path = indexes.named(against)
    name = name or Path(path).resolve().name.partition(".")[0]
    (stage,) = (stage for stage in plan.stages if stage.sketch is not None)
    key, step = stage.folder_key, stage.sketch
    assert step is not None
    made = indexes.Comparable(step.name, step.label, step.version, step.comparable())
    folder = cache_folder() / "against" / key / indexes.FOLDER / step.label
    return indexes.Index(name, folder, indexes.record_before(made, name, key))


def make_plan(recipe: Recipe, inputs: list[str], on_paper: bool = False) -> RunPlan:
    """Return the plan of a recipe over its inputs. With `on_paper`, the plan is only for
    display."""
    began = cpu_seconds()
    plan = _plan_inputs(recipe, inputs, on_paper)
    plan.cpu = cpu_seconds() - began
    return plan


def _plan_inputs(recipe: Recipe, inputs: list[str], on_paper: bool) -> RunPlan:
    names = inputs or list(recipe.input)
    if names and recipe.brings_corpus:
        raise UsageError(f"recipe {recipe.name} names its own sources: leave {names[0]} out")
    if not names and not recipe.reads_input:
        return plan_run(recipe, InputPlan((), ()))
    if not names:
        raise UsageError(f"recipe {recipe.name} has no input: name files or folders to read")
    if recipe.read.fetch is not None:
        from curate.formats.fetched import local_inputs

        names = local_inputs(names, recipe.read.fetch, True, False, recipe.read.choice)
    return plan_run(recipe, plan_reading(names, recipe.read), on_paper=on_paper)


def _product_stages(
    recipe: Recipe, corpus_key: str, start: int, on_paper: bool
) -> list[ProductStage]:
    products: list[ProductStage] = []
    positions: dict[str, int] = {}
    for product in recipe.products:
        needs = (*product.needs, "corpus") if product.reads_corpus else product.needs
        inputs = {kind: positions[kind] for kind in needs if kind in positions}
        parents = [products[i].key for i in inputs.values()]
        reads_result = product.reads_corpus and "corpus" not in inputs
        key = ""
        if not on_paper:
            key = _hash(corpus_key if reads_result else "", product.identity().values, parents)
        positions[product.makes] = len(products)
        products.append(ProductStage(start + len(products), key, product, inputs))
    return products


def _check_extraction(recipe: Recipe, inputs: InputPlan) -> None:
    names = [s.name for s in recipe.steps]
    if "extract" in names:
        for step in recipe.steps[names.index("extract") + 1 :]:
            if isinstance(step, Step) and step.before_extract:
                raise UsageError(f"step `{step.label}` reads web pages: put it before `extract`")
        return
    for file in inputs.files:
        if file.holds_pages:
            raise UsageError(
                f"input {file.path} holds web pages, not text: extract their text with `llmcurate"
                " extract`, or begin the recipe with the step `extract`"
            )


def stage_folder(out: Path, name: str) -> Path:
    """Return the folder of a stage. Raises RunFailed if a link leads out of OUT."""
    return path_inside(out, f"stages/{name}")


def sketch_kind(stage: MapStage) -> str:
    return f"sketch-{stage.sketch_key}" if stage.sketch else ""


def decisions_path(out: Path, stage: MapStage) -> Path:
    return stage_folder(out, stage.folder_name) / f"decisions-{stage.decisions_key}.parquet"


def committed_parts(out: Path) -> dict[str, set[int]]:
    """Return {key of a stage: numbers of its finished partitions}, and also {key of a product:
    empty set} for each finished product. Takes no lock."""
    path = ledger_path(out)
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
    """Return the plan as JSON values: stages, products, and how much of each is done."""
    committed = committed_parts(out)
    return {
        "recipe": plan.recipe.name,
        "out": str(out),
        "files": len(plan.inputs.files),
        "bytes": sum(f.size for f in plan.inputs.files),
        "partitions": len(plan.inputs.partitions),
        "limit": plan.recipe.read.limit,
        "share": plan.recipe.read.share,
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
    record = plan_record(plan, out)
    files, parts = counted(record["files"], "file"), counted(record["partitions"], "partition")
    size = format_bytes(record["bytes"])
    lines = [f"{plan.recipe.name} -> {out}"]
    share, limit = plan.recipe.read.share, plan.recipe.read.limit
    part = f", a share of {share:g}" if share is not None else ""
    part += f", the first {counted(limit, 'document')}" if limit is not None else ""
    if plan.inputs.files:
        lines.append(f"  input: {files}, {size}, {parts}{part}")
    for of, stage in zip(plan.stages, record["stages"], strict=True):
        done = stage["partitions_done"]
        state = "reused" if done == record["partitions"] > 0 else f"{done} of {parts} done"
        then = f", then resolve {stage['resolves']}" if stage["resolves"] else ""
        lines.append(f"  {of.shown}: {state}{then}")
    for made, product in zip(plan.products, record["products"], strict=True):
        state = "reused" if product["done"] else "to build"
        lines.append(f"  {made.product.label}: {state}")
    return "\n".join(lines)


def check_code(recipe: Recipe, allowed: bool) -> None:
    """Raise UsageError if the recipe runs Python code, which may do anything, unless allowed."""
    names = [code for step in recipe.steps if (code := code_of(step))]
    if names and not allowed and os.environ.get(ALLOW_PYTHON) != "1":
        raise UsageError(
            f"recipe {recipe.name} runs Python code, {', '.join(names)}: read it, then allow"
            f" it by --allow-python, allow_python=True in Python, or {ALLOW_PYTHON}=1"
        )


def check_out(plan: RunPlan, out: Path) -> None:
    """Raise UsageError if the run would overwrite its own input, or files that no run wrote."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    if not plan.stages:
        _check_mixed(plan, out)
        return
    _check_apart((file.path for file in plan.inputs.files), out)
    for folder in (out / name for name in manifests.FOLDERS):
        ours = (out / "ledger.db").exists() or manifests.names_in_manifest(folder) is not None
        if not ours and (taken := _occupied(folder)):
            raise UsageError(f"llmcurate did not write {taken}; name another folder as OUT")


def _occupied(folder: Path) -> Path | None:
    if folder.is_dir() and any(folder.iterdir()):
        return folder
    manifest = manifests.manifest_path(folder)
    return manifest if manifest.exists() else None


def _check_apart(paths: Iterable[str], out: Path) -> None:
    home = out.resolve()
    for path in paths:
        if "://" not in path and home in Path(path).resolve().parents:
            raise UsageError(f"input {path} lies in OUT {out}; name another folder as OUT")


def _check_mixed(plan: RunPlan, out: Path) -> None:
    makers = [p for p in plan.recipe.products if p.makes == "corpus"]
    for maker in makers:
        _check_apart(maker.own_files(), out)
    names = manifests.names_in_manifest(out / "corpus")
    if names is None and ledger_path(out).exists():  # killed before it wrote the manifest
        return
    if makers and makers[0].name not in (names or ()) and (taken := _occupied(out / "corpus")):
        raise UsageError(f"{taken} belongs to another corpus; name another folder as OUT")
