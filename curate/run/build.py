"""Build products, such as token shards or a model, once from the corpus, and move their files to
OUT.

The settings of each product in OUT are recorded. A command with other settings either raises an
error that names the settings, or moves the old files to another folder. Finished work is never
removed."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.direct_input import DirectInput
from curate.corpus.manifests import entries
from curate.documents.attributes import DocumentsFile, pack
from curate.engines.local import call_apart
from curate.run.intact import Intact, newest
from curate.run.ledger import Ledger, ledger_path
from curate.run.messages import Built, Made, Published
from curate.run.plan import ProductStage, RunPlan, stage_folder
from curate.run.records import Options
from curate.steps.contracts import Estimate, ProductContext
from curate.steps.failures import failing
from llmcurate.base.disk.files import (
    next_aside,
    part_files,
    path_inside,
    paths_inside,
    remove,
    remove_files,
    rename_aside,
    temporary_name,
    text_digest,
    write_text,
)
from llmcurate.base.disk.seals import seal
from llmcurate.base.disk.store import manifests, verify
from llmcurate.base.errors import UsageError
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import Progress, say

BATCH_ROWS = 500
COLUMNS = ["id", "source", "lang", "text"]


def corpus_batches(folder: Path, columns: list[str] | None = COLUMNS) -> Iterator[pa.RecordBatch]:
    """Yield the documents of the corpus in a folder, with these columns (None: all). Before a file
    is read, its sha256 is compared with the manifest's. Raises Damaged if they differ."""
    sealed = {name: [None, entry["sha256"]] for name, entry in entries(folder)}
    for path in part_files(folder):
        if path.name in sealed:
            verify([[str(path), sealed[path.name]]])
        with (pq.ParquetFile if columns is None else DocumentsFile)(path) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)


def build_product(
    plan: RunPlan,
    stage: ProductStage,
    inputs: dict[str, ProductStage],
    folders: tuple[Path, Path],
    ledger: Ledger,
    intact: Intact,
) -> dict[str, Any]:
    """Build a product unless it is recorded as finished and its files are unchanged. Return its
    record for run.json. `folders` are OUT and the folder of the run, in which the product is
    built."""
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
            # Links to files that were just compared are not compared again.
            copied_files = [n for n in seals if published and not (out / n).samefile(folder / n)]
            if published and not intact.faults((out / n, seals[n]) for n in copied_files):
                return record
            if not in_place:
                _note_made(plan, stage, ledger)
                _publish(stage, folder, out, ledger)
                return record
        else:  # a builder might continue from the files
            remove(folder, inside=home)
    for before in inputs.values():
        source = stage_folder(home, before.folder_name)
        if (other := ledger.stage_result(before.key, Built)) is not None:
            verify([str(source / n), s] for n, s in other.seals.items())
    folder.mkdir(parents=True, exist_ok=True)
    corpus, direct = out / "corpus", None
    if "corpus" in inputs:  # read the corpus that an earlier product made
        maker = stage_folder(home, inputs["corpus"].folder_name)
        corpus = next(p for p in (maker / "mix", maker / "corpus") if p.is_dir())
    elif product.reads_corpus and not plan.stages:
        direct = DirectInput(plan.inputs, plan.recipe.read)
    say(f"{product.label}: building", quiet)
    steps = int(getattr(product, "steps", 0))
    began = time.perf_counter()
    make_room(plan, stage, out, ledger)
    _note_made(plan, stage, ledger)
    if in_place:
        # From here on, the files in OUT belong to this unfinished product.
        ledger.commit_stage(f"published:{product.makes}", Published(stage.key, []))
    ids: list[Any] = []  # first and last id of the batch that the product is reading

    def corpus_of(columns: list[str] | None = COLUMNS) -> Iterator[pa.RecordBatch]:
        batches = direct.batches(columns) if direct else corpus_batches(corpus, columns)
        for batch in batches:
            if direct and columns is None:
                batch = pack(batch, plan.inputs.own)
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
            progress=progress.update,
        )
        result = product.build(context)
    if direct:
        direct.write_corrupt(folder / "corrupt.jsonl")
        result["input"] = direct.tally
        if direct.too_long:
            result["warnings"] = [*result.get("warnings", []), direct.too_long]
    for warning in result.get("warnings", []):
        say(f"{product.label}: {warning}", quiet)
    files = _files(out, (*IN_PLACE, TOKENIZER)) if in_place else _files(folder)
    record = {
        "label": product.label,
        "makes": product.makes,
        "seconds": round(time.perf_counter() - began, 3),
        "files": files,
        **result,
    }
    # Training records its checkpoints itself, and continues to change these files.
    sealed = {} if in_place else {name: seal(folder / name) for name in files}
    at = newest(folder / name for name in sealed)
    ledger.commit_stage(stage.key, Built(record, sealed, at))
    if in_place:
        ledger.commit_stage(f"published:{product.makes}", Published(stage.key, files))
    else:
        _publish(stage, folder, out, ledger)
    return record


def estimates(plan: RunPlan, out: Path, restart: bool = False) -> dict[str, Estimate]:
    """Estimate the cost of the plan's products, without writing anything. Return {product's folder
    name: estimate}, without products whose cost is unknown. `restart` is True if OUT will be
    renamed before the run."""
    path = ledger_path(out)
    ledger = Ledger.to_read(path) if path.exists() and not restart else None
    if ledger is not None:
        check_made(plan, out, ledger, offered=True)
    by_folder = {}
    for stage in plan.products:
        product = stage.product
        inputs = {kind: plan.products[index] for kind, index in stage.inputs.items()}
        folders = {k: stage_folder(path.parent, s.folder_name) for k, s in inputs.items()}
        if not all(folder.exists() for folder in folders.values()):
            continue
        fresh = restart
        if ledger is not None and product.in_place:
            fresh = made_otherwise(plan, stage, out, ledger)[0] is not None
        if (estimate := product.estimate(out, folders, fresh)) is not None:
            by_folder[stage.folder_name] = estimate
    return by_folder


def _run_of(plan: RunPlan) -> Path | None:
    folders = {Path(file.path).parent for file in plan.inputs.files if "://" not in file.path}
    only = folders.pop() if len(folders) == 1 else None
    return only.parent if only is not None and only.name == "corpus" else None


def _all_there(out: Path, files: list[str], ledger: Ledger) -> bool:
    return all(path.exists() for path in paths_inside(out, files, ledger.path))


def _files(root: Path, names: tuple[str, ...] | None = None) -> list[str]:
    tops = [root / n for n in names] if names else [root]
    files: list[str] = []
    for top in tops:
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        files += [p.relative_to(root).as_posix() for p in paths if p.is_file()]
    return [f for f in files if not Path(f).name.startswith(".")]


def _publish(stage: ProductStage, folder: Path, out: Path, ledger: Ledger) -> None:
    key = f"published:{stage.product.makes}"
    files = _files(folder)
    published = ledger.stage_result(key, Published)
    before = published.files if published else []
    paths_inside(out, before, ledger.path)
    for name in files:
        target = path_inside(out, name, follow=False)
        conflicts = name not in before and target.exists()
        if conflicts and not filecmp.cmp(folder / name, target, shallow=False):
            raise UsageError(
                f"{target} exists and is not part of this {stage.product.makes}: move it away and"
                " run again, which recomputes nothing"
            )
    # Until all files are in place, they belong to no product.
    ledger.commit_stage(key, Published(None, sorted({*before, *files})))
    heads_before, heads = manifests(before), manifests(files)
    gone = (n for n in before if n not in files or n in heads_before)
    remove_files((out / name for name in gone), inside=out)
    # Manifests are published last, the root's after those of its folders.
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
        aside.unlink(missing_ok=True)  # a rename does nothing if both names link to the same file
    ledger.commit_stage(key, Published(stage.key, files))


SHOWN = 3  # settings in a message
SHOWN_CHARS = 30  # of each end of a long value in a message
_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{8,}\b")
# Names that training writes in OUT. The checkpoints are moved last.
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer.json"
IN_PLACE = (
    *("metrics.jsonl", "spikes.json", "tensorboard", "metrics.csv", "wandb", "profile"),
    *("sample.txt", "train.json", "shards.json", "compared.jsonl", "plan.json", CHECKPOINTS),
)


def _note_made(plan: RunPlan, stage: ProductStage, ledger: Ledger) -> None:
    lineage, settings = _lineage(plan, stage), _settings(plan, stage)
    made = Made(stage.key, lineage, stage.folder_name, settings)
    ledger.commit_stage(f"made:{stage.product.makes}", made)


def _lineage(plan: RunPlan, stage: ProductStage) -> str | None:
    shared = stage.product.lineage()
    if shared is None:
        return None
    whole = [shared.values, {kind: plan.products[i].key for kind, i in stage.inputs.items()}]
    return text_digest(json.dumps(whole, sort_keys=True, default=str))


def _settings(plan: RunPlan, stage: ProductStage) -> dict[str, str]:
    identity = stage.product.identity().values
    settings = _flat(identity.pop("settings"))
    for name, value in identity.items():
        settings |= _flat(value, f"content of {name}" if name in settings else name)
    for kind, number in stage.inputs.items():
        settings |= _flat(plan.products[number].key, kind)
    if stage.product.reads_corpus and "corpus" not in stage.inputs:
        settings |= _flat(plan.recipe.read.identity(), "read")
        paths = ", ".join(file.path for file in plan.inputs.files[:2])
        settings |= _flat(f"{paths} ({plan.inputs.fingerprint()[:8]})", "input")
    return settings


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        return {name: json.dumps(value, sort_keys=True, default=str)}
    flat: dict[str, str] = {}
    for key, inner in value.items():
        named = name and key in ("preset", "kind")
        flat |= _flat(inner, name if named else f"{name}.{key}".lstrip("."))
    return flat


def made_otherwise(
    plan: RunPlan, stage: ProductStage, out: Path, ledger: Ledger
) -> tuple[str | None, bool]:
    """Compare a planned product with the product of the same kind in OUT (the output folder).
    Return (difference, has_work): a text on the settings that differ, or None if a build may
    continue the product in OUT; and True if a different product in OUT is finished or begun."""
    product = stage.product
    made = ledger.stage_result(f"made:{product.makes}", Made)
    related = made and made.lineage and made.lineage == _lineage(plan, stage)
    if made is None or related or made.key == stage.key:
        return None, False
    folder = out if product.in_place else stage_folder(plan.home(out), made.stage)
    finished = not product.in_place and ledger.has(made.key)
    begun = product.resumes is not None and any(folder.glob(product.resumes))
    return _differences(made.settings, _settings(plan, stage)) or None, finished or begun


def check_made(plan: RunPlan, out: Path, ledger: Ledger, offered: bool) -> None:
    """Raise UsageError if a command that builds a single product would replace a product in OUT
    that was made with other settings. If `offered`, the error also suggests --restart."""
    if plan.stages or len(plan.products) != 1 or not plan.products[0].key:
        return
    differing, holds_work = made_otherwise(plan, plan.products[0], out, ledger)
    if differing and holds_work:
        raise _refusal(out, f"was made with {differing}", _values_read(plan), offered)


def make_room(plan: RunPlan, stage: ProductStage, out: Path, ledger: Ledger) -> None:
    """Clear OUT of a model that was made with other settings, so that no build continues from it. A
    model with saved training progress is moved to OUT/model.1, .2 and so on; without progress, its
    files are deleted. If the move is killed, the next run finishes it."""
    differing, holds_work = made_otherwise(plan, stage, out, ledger)
    if differing is None or not stage.product.in_place:
        return
    names = [name for name in IN_PLACE if (out / name).exists()]
    if not holds_work:
        for name in names:
            remove(out / name, inside=out, must=True)
        return
    numbered = (out / f"{stage.product.makes}.{number}" for number in count(1))
    aside = next(folder for folder in numbered if not (folder / CHECKPOINTS).exists())
    aside.mkdir(exist_ok=True)
    if (out / TOKENIZER).exists():  # may also belong to another product
        shutil.copyfile(out / TOKENIZER, aside / TOKENIZER)
    for name in names:
        (out / name).rename(aside / name)
    say(f"{out}: the {stage.product.makes} made with {differing} is now in {aside}")


def restart_out(plan: RunPlan, out: Path, options: Options) -> None:
    """Rename OUT to OUT.1 if it holds work. Raises LockHeld if another process works in OUT."""
    if options.published:
        raise UsageError("--restart renames a folder, and OUT is a URL: give another URL")
    models = [p.resumes for p in plan.recipe.products if p.in_place and p.resumes]
    ours = _note_path(out).exists() or ledger_path(out).exists()
    if not out.exists() or not (ours or any(any(out.glob(name)) for name in models)):
        return
    Ledger(plan.home(out)).close()
    _set_aside(out, _values_read(plan))


def _set_aside(out: Path, named: Any) -> None:
    if inner := _first_inside(out, named):
        raise UsageError(f"--restart would rename {out}, where {inner} is read: give another -o")
    say(f"{out} is now {rename_aside(out)}")


def _note_path(out: Path) -> Path:
    return out.absolute().with_name(f".{out.absolute().name}.made.json")


def _values_read(plan: RunPlan) -> list[Any]:
    steps = [step.model_dump(mode="json", exclude_defaults=True) for step in plan.recipe.steps]
    return [[file.path for file in plan.inputs.files], steps]


def _first_inside(out: Path, named: Any) -> str | None:
    texts = re.findall(r'"((?:[^"\\]|\\.)*)"(:?)', json.dumps(named, default=str))
    for text in (json.loads(f'"{text}"') for text, of_key in texts if not of_key):
        path = Path(text.replace("\0", "")).resolve()
        if out.resolve() in (path, *path.parents) and path.exists():
            return str(text)
    return None


def _differences(made: dict[str, str], asked: dict[str, str]) -> str:
    pairs = {n: (made.get(n, "null"), asked.get(n, "null")) for n in asked | made}
    names = [name for name, (was, now) in pairs.items() if was != now]
    contents = {name: f"content of {name}" for name in names if f"content of {name}" in made}
    names = [n for n in names if n not in contents or contents[n] in names]
    shown = ["{} {}, not {}".format(n, *map(_shown, pairs[n])) for n in names[:SHOWN]]
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "; ".join([*shown, *more])


def _shown(setting: str) -> str:
    value = json.loads(setting)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "none" if value in (None, "", []) else _DIGEST.sub(r"\1", text)
    long = len(text) > 2 * SHOWN_CHARS
    return f"{text[:SHOWN_CHARS]}...{text[-SHOWN_CHARS:]}" if long else text


def _refusal(out: Path, what: str, named: Any, offered: bool = True) -> UsageError:
    restart = f", or --restart, which sets the old one aside as {next_aside(out).name}"
    advice = restart if offered and not _first_inside(out, named) else ""
    return UsageError(f"{out} {what}: give another -o{advice}")


def claim(out: Path, files: list[Path], asked: dict[str, Any], restart: bool) -> None:
    """Check that a command without a recipe may write to the folder or file `out`, and record its
    settings `asked`. If one of `files` exists: with `restart`, rename `out`; otherwise raise
    UsageError unless a command with the same settings made `out`."""
    note, settings = _note_path(out), {n: _stamped(v) for n, v in asked.items() if v is not None}
    there = next((path for path in files if path.exists()), None)
    if there and restart:
        _set_aside(out, asked)
    elif there:
        if not note.exists() or ledger_path(out).exists():
            raise _refusal(out, f"holds {there.name}, which another command made", asked)
        noted = json.loads(note.read_text("utf-8"))
        if differing := _differences(_texts(noted), _texts(settings)):
            raise _refusal(out, f"was made with {differing}", asked)
    write_text(note, json.dumps(settings, indent=1) + "\n")


def disclaim(out: Path, files: list[Path]) -> None:
    """Remove the settings that `claim` recorded for a command, if none of `files` was made."""
    if not any(path.exists() for path in files):
        _note_path(out).unlink(missing_ok=True)


def _texts(settings: dict[str, str]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in settings.items()}


def _stamped(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_stamped, value))
    try:
        facts = Path(value).stat()
    except (OSError, TypeError, ValueError):
        return str(value)
    return f"{value} ({text_digest(f'{facts.st_size} {facts.st_mtime_ns}')[:8]})"
