"""The budget of runs: equal tokens, computation, documents or epochs, or a time limit.

With --minutes the presets of this project are timed for a few steps each, from the smallest on. The
largest preset is chosen for which 20 tokens per parameter (Hoffmann et al. 2022) fit into the time
of a run, or else the smallest. It reads as many tokens as fit, but at most four epochs of a corpus
(Muennighoff et al. 2023). A tenth of the time is used for a pilot: the first corpus is compared
with itself in another order. The pilot's speed decides the number of tokens, and its variance the
difference that the experiment could detect. The time to prepare corpora and texts is subtracted
from the limit, but never more than half of it. Scoring 50 excerpts of each text may take a fifth of
a run's time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from curate.experiment.corpora import PLACEBO
from curate.experiment.evaluation import DOCUMENTS, LEAST_EXCERPT
from curate.experiment.runs import (
    RunTask,
    Training,
    finished_record,
    make_runs,
    parallel_runs,
)
from curate.run.records import Options
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import Message
from llmcurate.base.terminal import say
from train.evaluate.scores import score_of

if TYPE_CHECKING:
    from curate.api.model_settings import Compare
    from train.config import TrainConfig
    from train.model.config import ModelConfig

M = TypeVar("M", bound=Message)
Detectable = Callable[[list[RunTask], int], float | None]  # (runs, seed) -> difference
CHOICES = "--tokens, --flops, --documents, --epochs and --minutes"
KINDS = ("tokens", "flops", "documents", "epochs", "minutes")
PER_PARAMETER = 20  # tokens; Hoffmann et al. 2022, table 3
MOST_EPOCHS = 4.0  # Muennighoff et al. 2023
PILOT = 0.1  # share of the time
SPARE = 0.85  # share of the time left for training; starting and ending runs takes the rest
TIMED_STEPS = 3
LEAST_STEPS = 10  # per run
SCORING = 0.2  # share of a run for scoring texts, during and after training
SCORED_FASTER = 2.0  # speed of scoring relative to training: no backward pass, overlapping windows
TOO_SLOW = 4.0  # a model is not timed if its tokens are estimated at this many times a run's


@dataclass(frozen=True)
class Size:
    documents: int
    tokens: int
    bytes: int


@dataclass(frozen=True)
class Budget:
    """The amount that is equal in all runs. `kind` is one of KINDS."""

    kind: str
    amount: float

    def tokens(self, size: Size, flops: float = 1.0) -> float:
        """Return the number of tokens that a run reads. `size` is the size of its corpus. `flops`,
        the floating-point operations per token, is used only for a budget of the kind `flops`."""
        if self.kind == "flops":
            return self.amount / flops
        if self.kind == "documents":  # at the corpus' mean length
            return self.amount * size.tokens / max(1, size.documents)
        return self.amount * size.tokens if self.kind == "epochs" else self.amount


def chosen_budget(chosen: Compare) -> Budget:
    """Return the budget given as options. Raises UsageError unless exactly one is given."""
    amounts = {kind: value for kind in KINDS if (value := getattr(chosen, kind)) is not None}
    if len(amounts) != 1:
        raise UsageError(f"give one of {CHOICES}")
    ((kind, amount),) = amounts.items()
    return Budget(kind, amount)


def size_of(shards: Path, training: Training) -> Size:
    """Return the size of token shards. Raises LlmcurateError if they are too small to train on."""
    from train.data.rows import split
    from train.data.shards import read_shards

    opened = read_shards(shards)
    settings = training.train
    documents, _ = split(
        opened,
        held_out=settings["held_out"],
        seed=settings.get("seed", 0),
        unique_tokens=settings.get("unique_tokens"),
    )
    assert opened.bytes is not None
    lengths = opened.length[documents]
    return Size(len(documents), int(lengths.sum()), int(opened.bytes[documents].sum()))


@dataclass(frozen=True)
class Pace(Message):
    """The training speed of a model on this machine."""

    model: str
    parameters: int
    tokens_per_second: float
    flops_per_second: float


@dataclass(frozen=True)
class Choice(Pace):
    """The chosen model."""

    timed: tuple[Pace, ...]  # all models that were timed
    eval_bytes: int  # bytes to score of each evaluation text


@dataclass(frozen=True)
class Pilot:
    """The cost and result of a pilot, the short runs before an experiment."""

    steps: int
    seconds: float
    tokens_per_second: float
    detectable: float | None  # the least difference to detect


@dataclass(frozen=True)
class Plan(Choice):
    """The plan for a time limit: the model, the `tokens` per run, and a short trial (`pilot`)."""

    minutes: float
    tokens: int
    tokens_per_parameter: float
    limited_by: str
    pilot: Pilot


@dataclass(frozen=True)
class Request:
    """An experiment with a time limit."""

    shards: dict[str, Path]
    sizes: dict[str, Size]  # by corpus, in the order of the command line
    out: Path
    chosen: Compare
    training: Training
    options: Options
    begun: float  # when the command began, by the monotonic clock

    @property
    def first(self) -> str:
        return next(iter(self.sizes))

    def rounds(self, rows: int) -> int:
        """Return the number of runs that each worker makes in succession, for a number of rows."""
        return -(-self.chosen.seeds * rows // parallel_runs(self.options, self.training))

    @property
    def passes(self) -> int:
        """Number of times that a run scores the texts, the last time after its training."""
        during = score_of(self.training.score).reads == "shards"
        return self.chosen.points + 1 if during else 1

    @property
    def most_tokens(self) -> float:
        """Most tokens that a run may read, whatever its speed."""
        return MOST_EPOCHS * min(size.tokens for size in self.sizes.values())

    def seconds(self) -> float:
        """Return the seconds that remain after the preparations, at least half of the limit."""
        whole = 60 * (self.chosen.minutes or 0)
        return max(whole / 2, whole - (time.monotonic() - self.begun))

    def cached(self, name: str, kind: type[M], make: Callable[[], M]) -> M:
        """Return the value that an equal request stored in OUT/pilot/NAME, or else store and return
        make(). A resumed command thus keeps values that depend on the machine's speed."""
        path = self.out / "pilot" / name
        training = self.training
        key = {
            "chosen": self.chosen.model_dump(mode="json"),
            "changes": training.changes,
            "settings": training.train,
            "texts": sorted(training.texts),
            "sizes": {corpus: asdict(size) for corpus, size in self.sizes.items()},
            "workers": self.options.workers,
        }
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["for"] == json.loads(json.dumps(key)):
                return kind.from_json(json.dumps(stored["is"]))
        except (OSError, ValueError, KeyError):
            pass
        value = make()
        write_text(path, json.dumps({"is": asdict(value), "for": key}, indent=1) + "\n")
        return value


def choose_model(request: Request) -> Choice:
    choice = request.cached("model.json", Choice, lambda: _choice(request))
    say(
        f"{choice.model}: {choice.parameters:,} parameters,"
        f" {choice.tokens_per_second:,.0f} tokens/s here; {choice.eval_bytes:,} bytes of each"
        " evaluation text",
        request.options.quiet,
    )
    return choice


def _choice(request: Request) -> Choice:
    seconds = request.seconds() * (1 - PILOT) * SPARE / request.rounds(len(request.shards))
    shards = request.shards[request.first]
    best, timed = largest_model(shards, request.chosen, request.training, seconds * (1 - SCORING))
    size, texts = request.sizes[request.first], max(1, len(request.training.texts))
    tokens = seconds * SCORING / request.passes * best.tokens_per_second * SCORED_FASTER
    most = int(tokens * size.bytes / max(1, size.tokens) / texts)
    least = DOCUMENTS * LEAST_EXCERPT
    size_of_texts = min(request.chosen.eval_bytes, max(least, most))
    return Choice(**vars(best), timed=tuple(timed), eval_bytes=size_of_texts)


def run_pilot(request: Request, choice: Choice, detectable_by: Detectable) -> Plan:
    """Run the pilot and return the plan, with the tokens per run and the detectable difference."""
    plan = request.cached("plan.json", Plan, lambda: _pilot(request, choice, detectable_by))
    detectable = plan.pilot.detectable
    unit = score_of(request.training.score).unit
    limit = "" if detectable is None else f"{detectable:.4f} {unit} (80 % power, 5 % level)"
    shown = f"; smallest detectable difference: {limit}" if limit else ""
    say(
        f"each run reads {counted(plan.tokens, 'token')},"
        f" {plan.tokens_per_parameter:.2g} per parameter{shown}",
        request.options.quiet,
    )
    return plan


def _pilot(request: Request, choice: Choice, detectable_by: Detectable) -> Plan:
    chosen, first, step = request.chosen, request.first, request.training.step
    training = replace(request.training, model=choice.model)
    of_run = request.seconds() * PILOT * SPARE / request.rounds(2)
    steps = int(of_run * choice.tokens_per_second / step)
    steps = max(LEAST_STEPS, min(steps, int(request.most_tokens / step)))
    tasks: list[RunTask] = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for name in (first, PLACEBO):
            folder, part = request.out / "pilot", len(tasks)
            shards = request.shards[name]
            tasks.append(training.task(name, shards, seed, steps, folder, part, eval_every=steps))
    make_runs(tasks, request.options, "pilot")
    # Runs may score the texts more often than the pilot does.
    figures = [done.seconds for task in tasks if (done := finished_record(task)) is not None]
    scoring = median(figure["scoring"] for figure in figures)
    stepping = median(figure["training"] for figure in figures)
    stepping = max(stepping - scoring * (request.passes > 1), 1e-9)
    pace = steps * step / stepping
    seconds = (
        request.seconds() * SPARE / request.rounds(len(request.shards)) - request.passes * scoring
    )
    tokens = int(max(LEAST_STEPS * step, min(request.most_tokens, seconds * pace)))
    return Plan(
        **vars(choice),
        minutes=chosen.minutes or 0,
        tokens=tokens,
        tokens_per_parameter=tokens / choice.parameters,
        limited_by="four epochs" if request.most_tokens <= seconds * pace else "time",
        pilot=Pilot(
            steps,
            sum(sum(figure.values()) for figure in figures),
            pace,
            detectable_by(tasks, chosen.seed),
        ),
    )


def largest_model(
    shards: Path, chosen: Compare, training: Training, seconds: float
) -> tuple[Pace, list[Pace]]:
    """Return (chosen model, all timed models). The user's model is chosen if given, else the
    largest preset for which 20 tokens per parameter fit into `seconds`, else the smallest
    preset."""
    from train.model.presets import OWN

    names = [chosen.model] if chosen.model else list(OWN)
    timed: list[Pace] = []
    for name in names:
        if timed:
            # A larger model needs more operations per token, and more tokens.
            parameters, flops = cost(shards, name, training)
            pace = timed[-1].flops_per_second / flops
            if PER_PARAMETER * parameters > TOO_SLOW * seconds * pace:
                break
        timed.append(time_model(shards, name, training))
    fitting = [
        row for row in timed if PER_PARAMETER * row.parameters <= seconds * row.tokens_per_second
    ]
    return (fitting or timed[:1])[-1], timed


def cost(shards: Path, name: str, training: Training) -> tuple[int, float]:
    """Return (parameters, FLOPs per token) of a preset with the vocabulary of the shards. Raises
    LlmcurateError if the preset cannot be trained with these settings."""
    from train.loop.start import make_plan
    from train.measure.accounting import flops_per_token, parameters

    plan, _ = make_plan(shards, name, _settings(training, 1), training.changes)
    return parameters(plan.model), flops_per_token(plan.model, plan.train.context)


def settings_of(training: Training) -> tuple[ModelConfig, TrainConfig]:
    """Return the settings of a run's model, before its vocabulary is known, and of its training.
    Raises LlmcurateError if they do not fit each other."""
    from train.loop.start import model_for

    return model_for(training.model, _settings(training, 1), training.changes)[:2]


def _settings(training: Training, steps: int) -> TrainConfig:
    from llmcurate.base.settings import from_dict, unflatten
    from train.config import TrainConfig

    settings = {**training.train, "steps": steps, "eval_every": steps}
    return from_dict(TrainConfig, unflatten(settings), "pretrain")


def time_model(shards: Path, name: str, training: Training) -> Pace:
    """Train a preset for a few steps, and return its pace in tokens and FLOPs per second."""
    import tempfile

    import torch

    from train.loop.pretrain import pretrain

    torch.set_num_threads(training.threads)
    parameters, flops = cost(shards, name, training)
    settings = _settings(training, TIMED_STEPS + 1)
    with tempfile.TemporaryDirectory(prefix="llmcurate-compare-") as folder:
        timings: list[dict[str, float]] = []
        pretrain(
            shards,
            Path(folder),
            model=name,
            changes=training.changes,
            train=settings,
            on_progress=lambda line: timings.append(line["timing"]),
        )
    seconds = sum(timing["seconds"] for timing in timings[1:])
    read = sum(timing["seconds"] * timing["tokens_per_second"] for timing in timings[1:])
    pace = read / max(seconds, 1e-9)
    return Pace(name, parameters, pace, pace * flops)
