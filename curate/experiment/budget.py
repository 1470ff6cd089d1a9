"""What every run of an experiment may read: equal tokens, documents or epochs, or what fits into so
many minutes.

With minutes a model and its tokens are chosen by this rule. The presets of this project are timed
from the smallest on, for a few steps each. The largest is taken whose 20 tokens a parameter
(Hoffmann et al. 2022) fit into the time of a run; where not even the smallest has so much, it is
the smallest. It then reads as many tokens as fit, but no corpus more than four times (Muennighoff
et al. 2023: up to four epochs are nearly as good as new text). A tenth of the time goes into a
pilot: the first corpus against itself in another order, all seeds, side by side as all runs will
be. Its pace sets the tokens, its variance says what the experiment could detect.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.disk.files import write_text
from curate.disk.units import format_duration, format_scaled
from curate.errors import UsageError
from curate.experiment.corpora import PLACEBO
from curate.experiment.runs import Place, Training, folder_of, make_runs
from curate.terminal.progress import say

if TYPE_CHECKING:
    from curate.cli.model_settings import Ablate

KINDS = ("tokens", "documents", "epochs", "minutes")
PER_PARAMETER = 20  # tokens; Hoffmann et al. 2022, table 3
MOST_EPOCHS = 4.0  # Muennighoff et al. 2023
PILOT = 0.1  # of the time
SPARE = 0.9  # of the rest, for what begins and ends runs
TIMED_STEPS = 3
TOO_SLOW = 4.0  # times the tokens of a run that a larger model would need; it is not timed


@dataclass(frozen=True)
class Size:
    """Of a corpus as it is trained on; tokens: of the documents that are not held out."""

    documents: int
    tokens: int
    bytes: int


@dataclass(frozen=True)
class Budget:
    """kind: what is equal in all runs."""

    kind: str
    amount: float

    def tokens(self, size: Size) -> float:
        """That a corpus of this size is read to."""
        if self.kind == "documents":  # of the corpus' mean length
            return self.amount * size.tokens / max(1, size.documents)
        return self.amount * size.tokens if self.kind == "epochs" else self.amount


def chosen_budget(chosen: Ablate) -> Budget:
    """The one that was asked for; UsageError where it is none or several."""
    given = {kind: value for kind in KINDS if (value := getattr(chosen, kind)) is not None}
    if len(given) != 1:
        raise UsageError("give --tokens, --documents, --epochs or --minutes, one of them")
    ((kind, amount),) = given.items()
    return Budget(kind, amount)


def size_of(shards: Path, training: Training) -> Size:
    """Of a corpus' shards; raises TrainError where it cannot be trained on."""
    from train.data.rows import split
    from train.data.shards import read_shards

    opened = read_shards(shards)
    seed = training.settings.get("seed", 0)
    documents, _ = split(opened, held_out=training.settings["held_out"], seed=seed)
    assert opened.bytes is not None
    lengths = opened.length[documents]
    return Size(len(documents), int(lengths.sum()), int(opened.bytes[documents].sum()))


def planned(
    shards: dict[str, Path],
    sizes: dict[str, Size],
    out: Path,
    chosen: Ablate,
    training: Training,
    place: Place,
) -> dict[str, Any]:
    """{minutes, model, tokens, ...}: the choice for this machine, as OUT/pilot/plan.json has it
    where it was made before with the same settings."""
    path = out / "pilot" / "plan.json"
    key = {
        "minutes": chosen.minutes,
        "model": chosen.model,
        "changes": training.changes,
        "settings": training.settings,
        "seeds": [chosen.seed, chosen.seeds],
        "corpora": {name: size.__dict__ for name, size in sizes.items()},
        "workers": place.workers,
        "threads": training.threads,
    }
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["for"] == json.loads(json.dumps(key)):
            return {name: value for name, value in stored.items() if name != "for"}
    except (OSError, ValueError, KeyError):
        pass
    plan = _plan(shards, sizes, out, chosen, training, place)
    write_text(path, json.dumps({**plan, "for": key}, indent=1) + "\n")
    return plan


def _plan(
    shards: dict[str, Path],
    sizes: dict[str, Size],
    out: Path,
    chosen: Ablate,
    training: Training,
    place: Place,
) -> dict[str, Any]:
    from train.judge.paired import paired_difference

    assert chosen.minutes is not None
    first = next(iter(sizes))
    count = place.count(training.settings["device"], training.threads)
    runs = chosen.seeds * (len(sizes) + 1)
    seconds = 60 * chosen.minutes * (1 - PILOT) * SPARE / -(-runs // count)
    epochs = MOST_EPOCHS * min(size.tokens for size in sizes.values())
    timed = _choose(shards[first], chosen, training, seconds)
    model, per_second, parameters = timed["model"], timed["tokens_per_second"], timed["parameters"]
    say(
        f"{model}: {parameters:,} parameters, {per_second:,.0f} tokens/s here;"
        f" {format_duration(seconds)} a run",
        place.quiet,
    )
    pilot = replace(training, model=model)
    step = training.settings["rows"] * training.settings["context"]
    rounds = -(-2 * chosen.seeds // count)
    steps = max(10, int(60 * chosen.minutes * PILOT * SPARE / rounds * per_second / step))
    steps = min(steps, max(10, int(epochs / step)))
    tasks = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for name in (first, PLACEBO):
            task = pilot.task(name, shards[name], seed, steps, out / "pilot", len(tasks))
            task["train"]["eval_every"] = steps
            tasks.append(task)
    begun = time.monotonic()
    make_runs(tasks, place, "pilot")
    spent = time.monotonic() - begun
    paces = [_pace(folder_of(task)) for task in tasks]
    pace = sum(paces) / len(paces)
    tokens = int(min(epochs, seconds * pace))
    from curate.experiment.figures import Rows

    rows = Rows(tasks, dict(training.texts), chosen.seed)
    difference = paired_difference(
        rows.nats[first],
        rows.nats[PLACEBO],
        rows.scored.sizes,
        rows.scored.strata,
        seed=chosen.seed,
    )
    detectable = difference.detectable()
    shown = "" if detectable is None else f"; it could detect {detectable:.4f} bits a byte"
    say(
        f"{format_scaled(tokens).strip()} tokens a run, {tokens / parameters:.1f} a parameter"
        f"{shown} (80 % power at 5 %)",
        place.quiet,
    )
    return {
        "minutes": chosen.minutes,
        "model": model,
        "parameters": parameters,
        "tokens": tokens,
        "tokens_per_parameter": tokens / parameters,
        "limited_by": "four epochs" if epochs <= seconds * pace else "time",
        "timed": timed["timed"],
        "pilot": {
            "steps": steps,
            "seconds": spent,
            "tokens_per_second": pace,
            "detectable": detectable,
        },
    }


def _pace(folder: Path) -> float:
    """Tokens a second of a run, from its second half: the first steps wait for what is done once."""
    from train.runs.metrics import read_lines

    lines = [line["timing"] for line in read_lines(folder / "metrics.jsonl")]
    lines = lines[len(lines) // 2 :]
    seconds = sum(line["seconds"] for line in lines)
    read = sum(line["seconds"] * line["tokens_per_second"] for line in lines)
    return float(read / max(seconds, 1e-9))


def _choose(shards: Path, chosen: Ablate, training: Training, seconds: float) -> dict[str, Any]:
    """The largest preset of this project whose 20 tokens a parameter fit into these seconds, or the
    smallest one; of a model that is given, its pace."""
    from train.model.presets import OWN

    names = [chosen.model] if chosen.model else list(OWN)
    timed: list[dict[str, Any]] = []
    for name in names:
        if timed:
            # A larger model takes more operations a token, and more tokens.
            last = timed[-1]
            parameters, flops = _cost(shards, name, training)
            pace = last["flops_per_second"] / flops
            if PER_PARAMETER * parameters > TOO_SLOW * seconds * pace:
                break
        timed.append(_timed(shards, name, training))
    fitting = [
        row
        for row in timed
        if PER_PARAMETER * row["parameters"] <= seconds * row["tokens_per_second"]
    ]
    best = (fitting or timed[:1])[-1]
    return {**best, "timed": timed}


def _cost(shards: Path, name: str, training: Training) -> tuple[int, float]:
    """(parameters, operations a token) of a preset with the shards' vocabulary."""
    from train.loop.start import make_plan
    from train.measure.accounting import flops_per_token, parameters

    plan, _ = make_plan(shards, name, _settings(training, 1), training.changes)
    return parameters(plan.model), flops_per_token(plan.model, plan.train.context)


def _settings(training: Training, steps: int) -> Any:
    from curate.experiment.runs import unflat_but_texts
    from train.config import TrainConfig
    from train.settings import from_dict, unflat

    settings = {**training.settings, "steps": steps, "eval_every": steps}
    return from_dict(TrainConfig, unflat_but_texts(settings, unflat), "pretrain")


def _timed(shards: Path, name: str, training: Training) -> dict[str, Any]:
    """The pace of a few steps, after the first."""
    import tempfile

    import torch

    from train.loop.pretrain import pretrain

    torch.set_num_threads(training.threads)
    parameters, flops = _cost(shards, name, training)
    settings = _settings(training, TIMED_STEPS + 1)
    with tempfile.TemporaryDirectory(prefix="llmcurate-ablate-") as folder:
        lines: list[dict[str, Any]] = []
        pretrain(
            shards,
            Path(folder),
            model=name,
            changes=training.changes,
            train=settings,
            on_progress=lines.append,
        )
    later = [line["timing"] for line in lines[1:]]
    seconds = sum(line["seconds"] for line in later)
    read = sum(line["seconds"] * line["tokens_per_second"] for line in later)
    pace = read / max(seconds, 1e-9)
    return {
        "model": name,
        "parameters": parameters,
        "tokens_per_second": pace,
        "flops_per_second": pace * flops,
    }
