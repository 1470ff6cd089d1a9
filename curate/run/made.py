"""The settings that made OUT: others are refused by name or set its work aside, and delete none."""

from __future__ import annotations

import json
import re
import shutil
from itertools import count
from pathlib import Path
from typing import Any

from curate.run.ledger import Ledger, ledger_path
from curate.run.messages import Made
from curate.run.outcome import Options
from curate.run.plan import ProductStage, RunPlan, stage_folder
from llmcurate.base.disk.files import next_aside, set_aside, text_digest, write_text
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.progress import say

SHOWN = 3  # settings in a message
SHOWN_CHARS = 30  # of either end of a value in a message
_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{8,}\b")
# Names that training writes in OUT. A move takes the checkpoints last.
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer.json"
IN_PLACE = (
    *("metrics.jsonl", "spikes.json", "tensorboard", "metrics.csv", "wandb", "profile"),
    *("sample.txt", "train.json", "shards.json", "compared.jsonl", CHECKPOINTS),
)


def record(plan: RunPlan, stage: ProductStage, ledger: Ledger) -> None:
    """Notes with which settings the product in OUT is made."""
    lineage, settings = _lineage(plan, stage), _settings(plan, stage)
    made = Made(stage.key, lineage, stage.folder_name, settings)
    ledger.commit_stage(f"made:{stage.product.makes}", made)


def _lineage(plan: RunPlan, stage: ProductStage) -> str | None:
    """A hash of the settings that a product shares with the one in OUT if it may go on from it."""
    shared = stage.product.lineage()
    if shared is None:
        return None
    whole = [shared, {kind: plan.products[i].key for kind, i in stage.inputs.items()}]
    return text_digest(json.dumps(whole, sort_keys=True, default=str))


def _settings(plan: RunPlan, stage: ProductStage) -> dict[str, Any]:
    """All that decides a product, by dotted names."""
    identity = stage.product.identity()
    settings = _flat(identity.pop("settings"))
    for name, value in identity.items():
        settings |= _flat(value, f"content of {name}" if name in settings else name)
    settings |= {kind: plan.products[number].key for kind, number in stage.inputs.items()}
    if stage.product.reads_corpus and "corpus" not in stage.inputs:
        settings |= _flat(plan.recipe.read.identity(), "read")
        paths = ", ".join(file.path for file in plan.inputs.files[:2])
        settings["input"] = f"{paths} ({plan.inputs.fingerprint()[:8]})"
    return dict(json.loads(json.dumps(settings, default=str)))


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested settings by dotted names; a preset or a kind stands for the mapping that names it."""
    if not isinstance(value, dict) or not value:
        return {name: value}
    flat: dict[str, Any] = {}
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


def _differences(made: dict[str, Any], asked: dict[str, Any]) -> str:
    """The first settings that differ, with both values; empty where a path alone does."""
    names = [name for name in asked | made if made.get(name) != asked.get(name)]
    contents = {name: f"content of {name}" for name in names if f"content of {name}" in made}
    names = [n for n in names if n not in contents or contents[n] in names]
    shown = [f"{n} {_shown(made.get(n))}, not {_shown(asked.get(n))}" for n in names[:SHOWN]]
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "; ".join([*shown, *more])


def _shown(value: Any) -> str:
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
        if differing := _differences(json.loads(note.read_text("utf-8")), settings):
            raise _refusal(out, f"was made with {differing}", asked)
    write_text(note, json.dumps(settings, indent=1) + "\n")


def _stamped(value: Any) -> str:
    """A value as text; a path with a digest of its size and time of change."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_stamped, value))
    try:
        facts = Path(value).stat()
    except (OSError, TypeError, ValueError):
        return str(value)
    return f"{value} ({text_digest(f'{facts.st_size} {facts.st_mtime_ns}')[:8]})"
