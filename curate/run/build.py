"""Products: built once from the corpus, their files put at OUT's root.

The settings that made OUT are noted: others are refused by name or set its work aside, and delete
none."""

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
    all_inside,
    inside,
    next_aside,
    part_files,
    remove,
    remove_files,
    set_aside,
    temporary_name,
    text_digest,
    write_text,
)
from llmcurate.base.disk.publish import manifests
from llmcurate.base.disk.seals import seal, verify
from llmcurate.base.errors import UsageError
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import Progress, say

BATCH_ROWS = 500
COLUMNS = ["id", "source", "lang", "text"]


def corpus_batches(folder: Path, columns: list[str] | None = COLUMNS) -> Iterator[pa.RecordBatch]:
    """Columns of the corpus in a folder (None: all, as files have them). Damaged where a part is
    not what its manifest says; each is compared before it is read."""
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
                _note_made(plan, stage, ledger)
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
    make_room(plan, stage, out, ledger)
    _note_made(plan, stage, ledger)
    if in_place:
        # From here on what stands there is this product's, unfinished.
        ledger.commit_stage(f"published:{product.makes}", Published(stage.key, []))
    ids: list[Any] = []  # of the first and the last document of the batch that the product reads

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
    """The OUT of an earlier run, where all of the input is its corpus."""
    folders = {Path(file.path).parent for file in plan.inputs.files if "://" not in file.path}
    only = folders.pop() if len(folders) == 1 else None
    return only.parent if only is not None and only.name == "corpus" else None


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
        aside.unlink(missing_ok=True)  # rename leaves it where both are links to one file
    ledger.commit_stage(key, Published(stage.key, files))


SHOWN = 3  # settings in a message
SHOWN_CHARS = 30  # of either end of a value in a message
_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{8,}\b")
# Names that training writes in OUT. A move takes the checkpoints last.
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer.json"
IN_PLACE = (
    *("metrics.jsonl", "spikes.json", "tensorboard", "metrics.csv", "wandb", "profile"),
    *("sample.txt", "train.json", "shards.json", "compared.jsonl", CHECKPOINTS),
)


def _note_made(plan: RunPlan, stage: ProductStage, ledger: Ledger) -> None:
    """Notes with which settings the product in OUT is made."""
    lineage, settings = _lineage(plan, stage), _settings(plan, stage)
    made = Made(stage.key, lineage, stage.folder_name, settings)
    ledger.commit_stage(f"made:{stage.product.makes}", made)


def _lineage(plan: RunPlan, stage: ProductStage) -> str | None:
    """A hash of the settings that a product shares with the one in OUT if it may go on from it."""
    shared = stage.product.lineage()
    if shared is None:
        return None
    whole = [shared.values, {kind: plan.products[i].key for kind, i in stage.inputs.items()}]
    return text_digest(json.dumps(whole, sort_keys=True, default=str))


def _settings(plan: RunPlan, stage: ProductStage) -> dict[str, str]:
    """All that decides a product, by dotted names, as JSON."""
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
    """The JSON of nested settings by dotted names; a preset or a kind stands for its mapping."""
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
    """The differences to the settings that made the product in OUT, None where a build with these
    may continue it; and if it is finished, or a stopped build could continue."""
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
    """UsageError where a command of one product would replace what other settings made in OUT.
    offered: whether --restart may be advised. Other runs keep it (`make_room`, stages/)."""
    if plan.stages or len(plan.products) != 1 or not plan.products[0].key:
        return
    differing, holds_work = made_otherwise(plan, plan.products[0], out, ledger)
    if differing and holds_work:
        raise _refusal(out, f"was made with {differing}", _read_by(plan), offered)


def make_room(plan: RunPlan, stage: ProductStage, out: Path, ledger: Ledger) -> None:
    """Moves a model that other settings made in OUT to OUT/model.1, so that nothing goes on from
    it. If the move is killed, the next run finishes it."""
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
    if (out / TOKENIZER).exists():  # perhaps of another product, too
        shutil.copyfile(out / TOKENIZER, aside / TOKENIZER)
    for name in names:
        (out / name).rename(aside / name)
    say(f"{out}: the {stage.product.makes} made with {differing} is now in {aside}")


def begin_anew(plan: RunPlan, out: Path, options: Options) -> None:
    """Renames an OUT that holds work to OUT.1. LockHeld where another process works there."""
    if options.published:
        raise UsageError("--restart renames a folder, and OUT is a URL: give another URL")
    models = [p.resumes for p in plan.recipe.products if p.in_place and p.resumes]
    ours = _note(out).exists() or ledger_path(out).exists()
    if not out.exists() or not (ours or any(any(out.glob(name)) for name in models)):
        return
    Ledger(plan.home(out)).close()
    _set_aside(out, _read_by(plan))


def _set_aside(out: Path, named: Any) -> None:
    if inner := _inside(out, named):
        raise UsageError(f"--restart would rename {out}, where {inner} is read: give another -o")
    say(f"{out} is now {set_aside(out)}")


def _note(out: Path) -> Path:
    """The file beside OUT with the settings of a command that is no recipe."""
    return out.absolute().with_name(f".{out.absolute().name}.made.json")


def _read_by(plan: RunPlan) -> list[Any]:
    """The inputs and settings of a run, for `_inside`."""
    steps = [step.model_dump(mode="json", exclude_defaults=True) for step in plan.recipe.steps]
    return [[file.path for file in plan.inputs.files], steps]


def _inside(out: Path, named: Any) -> str | None:
    """The first file or folder among values that is OUT, or lies in it."""
    texts = re.findall(r'"((?:[^"\\]|\\.)*)"(:?)', json.dumps(named, default=str))
    for text in (json.loads(f'"{text}"') for text, of_key in texts if not of_key):
        path = Path(text.replace("\0", "")).resolve()
        if out.resolve() in (path, *path.parents) and path.exists():
            return str(text)
    return None


def _differences(made: dict[str, str], asked: dict[str, str]) -> str:
    """The first settings that differ, with both values; empty where a path alone does."""
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
    advice = restart if offered and not _inside(out, named) else ""
    return UsageError(f"{out} {what}: give another -o{advice}")


def claim(out: Path, files: list[Path], asked: dict[str, Any], restart: bool) -> None:
    """Takes OUT, a folder or a file, for a command that is no recipe. UsageError where one of these
    files is there and the same command did not make it. asked: its settings, by name."""
    note, settings = _note(out), {n: _stamped(v) for n, v in asked.items() if v is not None}
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


def _texts(settings: dict[str, str]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in settings.items()}


def _stamped(value: Any) -> str:
    """A value as text; a path with a digest of its size and time of change."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_stamped, value))
    try:
        facts = Path(value).stat()
    except (OSError, TypeError, ValueError):
        return str(value)
    return f"{value} ({text_digest(f'{facts.st_size} {facts.st_mtime_ns}')[:8]})"
