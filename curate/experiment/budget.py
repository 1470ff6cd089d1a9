"""What every run of an experiment may read: equal tokens, documents or epochs, or what fits into so
many minutes.

With minutes a model and its tokens are chosen by this rule. The presets of this project are timed
from the smallest on, for a few steps each. The largest is taken whose 20 tokens a parameter
(Hoffmann et al. 2022) fit into the time of a run; where not even the smallest has so much, it is
the smallest. It then reads as many tokens as fit, but no corpus more than four times (Muennighoff
et al. 2023: up to four epochs are nearly as good as new text). A tenth of the time goes into a
pilot: the first corpus against itself in another order, all seeds, side by side as all runs will
be. Its pace sets the tokens, its variance says what the experiment could detect. What prepares
corpora and texts counts into the time, up to half of it. Of the evaluation texts so much is scored
as a fifth of a run allows, in excerpts so short that there are 50 of each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from curate.experiment.corpora import PLACEBO
from curate.experiment.evaluation import DOCUMENTS, LEAST_EXCERPT
from curate.experiment.runs import Place, RunTask, Training, done_of, make_runs
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import Message
from llmcurate.base.terminal import say

if TYPE_CHECKING:
    from curate.api.model_settings import Ablate

M = TypeVar("M", bound=Message)
Detectable = Callable[[list[RunTask], int], float | None]  # of runs, with a seed of draws
KINDS = ("tokens", "documents", "epochs", "minutes")
PER_PARAMETER = 20  # tokens; Hoffmann et al. 2022, table 3
MOST_EPOCHS = 4.0  # Muennighoff et al. 2023
PILOT = 0.1  # of the time
SPARE = 0.85  # of the rest: what begins and ends runs takes some of it
TIMED_STEPS = 3
LEAST_STEPS = 10  # of a run
SCORING = 0.2  # of a run, for scoring texts on its way and at its end
SCORED_FASTER = 2.0  # than trained: no backward pass, but windows overlap
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
    amounts = {kind: value for kind in KINDS if (value := getattr(chosen, kind)) is not None}
    if len(amounts) != 1:
        raise UsageError("give --tokens, --documents, --epochs or --minutes, one of them")
    ((kind, amount),) = amounts.items()
    return Budget(kind, amount)


def size_of(shards: Path, training: Training) -> Size:
    """Of a corpus' shards; raises LlmcurateError where it cannot be trained on."""
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
    """A model as it is trained here."""

    model: str
    parameters: int
    tokens_per_second: float
    flops_per_second: float


@dataclass(frozen=True)
class Choice(Pace):
    """The model that is chosen. timed: all that were; eval_bytes: of each evaluation text as many
    as can be scored in a fifth of a run."""

    timed: tuple[Pace, ...]
    eval_bytes: int


@dataclass(frozen=True)
class Pilot:
    """What a pilot took, and the difference that its experiment could detect."""

    steps: int
    seconds: float
    tokens_per_second: float
    detectable: float | None


@dataclass(frozen=True)
class Plan(Message):
    """What minutes are used for: a choice, the `tokens` of a run, and the pilot that they are
    from."""

    minutes: float
    model: str
    parameters: int
    tokens_per_second: float
    flops_per_second: float
    timed: tuple[Pace, ...]
    eval_bytes: int
    tokens: int
    tokens_per_parameter: float
    limited_by: str
    pilot: Pilot


@dataclass(frozen=True)
class Request:
    """What minutes are for. sizes: of the corpora, the first one first; begun: when the command
    did, by the monotonic clock."""

    shards: dict[str, Path]
    sizes: dict[str, Size]
    out: Path
    chosen: Ablate
    training: Training
    place: Place
    begun: float

    @property
    def minutes(self) -> float:
        """That were asked for."""
        assert self.chosen.minutes is not None
        return self.chosen.minutes

    @property
    def first(self) -> str:
        """The name of the first corpus."""
        return next(iter(self.sizes))

    @property
    def rounds(self) -> int:
        """Runs that a worker makes one after the other."""
        return -(-self.chosen.seeds * (len(self.sizes) + 1) // self._workers)

    @property
    def pilot_rounds(self) -> int:
        """The same of the pilot."""
        return -(-2 * self.chosen.seeds // self._workers)

    @property
    def _workers(self) -> int:
        return self.place.count(self.training.train["device"], self.training.threads)

    @property
    def most_tokens(self) -> float:
        """That a run may read, however fast it is."""
        return MOST_EPOCHS * min(size.tokens for size in self.sizes.values())

    def seconds(self) -> float:
        """What is there for all: without what prepared corpora and texts, half of it at least."""
        whole = 60 * self.minutes
        return max(whole / 2, whole - (time.monotonic() - self.begun))

    def kept(self, name: str, kind: type[M], make: Callable[[], M]) -> M:
        """What OUT/pilot/NAME has from before of the same request, or what `make` gives: the same
        command goes on with the same choice, whatever the machine does meanwhile."""
        path = self.out / "pilot" / name
        training = self.training
        key = {
            "chosen": self.chosen.model_dump(mode="json"),
            "changes": training.changes,
            "settings": training.train,
            "texts": sorted(training.texts),
            "sizes": {corpus: asdict(size) for corpus, size in self.sizes.items()},
            "workers": self.place.workers,
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
    """The model whose runs fit into the minutes."""
    choice = request.kept("model.json", Choice, lambda: _choice(request))
    say(
        f"{choice.model}: {choice.parameters:,} parameters,"
        f" {choice.tokens_per_second:,.0f} tokens/s here; {choice.eval_bytes:,} bytes of each"
        " evaluation text",
        request.place.quiet,
    )
    return choice


def _choice(request: Request) -> Choice:
    seconds = request.seconds() * (1 - PILOT) * SPARE / request.rounds
    shards = request.shards[request.first]
    best, timed = _choose(shards, request.chosen, request.training, seconds * (1 - SCORING))
    size, texts = request.sizes[request.first], max(1, len(request.training.texts))
    passes = request.chosen.points + 1
    tokens = seconds * SCORING / passes * best.tokens_per_second * SCORED_FASTER
    most = int(tokens * size.bytes / max(1, size.tokens) / texts)
    least = DOCUMENTS * LEAST_EXCERPT
    size_of_texts = min(request.chosen.eval_bytes, max(least, most))
    return Choice(**vars(best), timed=tuple(timed), eval_bytes=size_of_texts)


def run_pilot(request: Request, choice: Choice, detectable_by: Detectable) -> Plan:
    """The choice with the `tokens` of a run, and the difference that could be detected."""
    plan = request.kept("plan.json", Plan, lambda: _pilot(request, choice, detectable_by))
    detectable = plan.pilot.detectable
    shown = "" if detectable is None else f"; it could detect {detectable:.4f} bits a byte"
    say(
        f"a run reads {counted(plan.tokens, 'token')},"
        f" {plan.tokens_per_parameter:.2g} a parameter{shown} (80 % power at 5 %)",
        request.place.quiet,
    )
    return plan


def _pilot(request: Request, choice: Choice, detectable_by: Detectable) -> Plan:
    chosen, first, step = request.chosen, request.first, request.training.step
    training = replace(request.training, model=choice.model)
    of_run = request.seconds() * PILOT * SPARE / request.pilot_rounds
    steps = int(of_run * choice.tokens_per_second / step)
    steps = max(LEAST_STEPS, min(steps, int(request.most_tokens / step)))
    tasks: list[RunTask] = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for name in (first, PLACEBO):
            folder, part = request.out / "pilot", len(tasks)
            shards = request.shards[name]
            tasks.append(training.task(name, shards, seed, steps, folder, part, eval_every=steps))
    make_runs(tasks, request.place, "pilot")
    # A run's time is that of its steps, and of scoring the texts some times more than the pilot's.
    figures = [done.seconds for task in tasks if (done := done_of(task)) is not None]
    scoring = median(figure["scoring"] for figure in figures)
    stepping = max(median(figure["training"] for figure in figures) - scoring, 1e-9)
    pace = steps * step / stepping
    seconds = request.seconds() * SPARE / request.rounds - (chosen.points + 1) * scoring
    tokens = int(max(LEAST_STEPS * step, min(request.most_tokens, seconds * pace)))
    return Plan(
        request.minutes,
        **vars(choice),
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


def _choose(
    shards: Path, chosen: Ablate, training: Training, seconds: float
) -> tuple[Pace, list[Pace]]:
    """(the largest preset of this project whose 20 tokens a parameter fit into these seconds, or
    the smallest one; all that were timed); of a model that is given, its pace."""
    from train.model.presets import OWN

    names = [chosen.model] if chosen.model else list(OWN)
    timed: list[Pace] = []
    for name in names:
        if timed:
            # A larger model takes more operations a token, and more tokens.
            parameters, flops = cost(shards, name, training)
            pace = timed[-1].flops_per_second / flops
            if PER_PARAMETER * parameters > TOO_SLOW * seconds * pace:
                break
        timed.append(_timed(shards, name, training))
    fitting = [
        row for row in timed if PER_PARAMETER * row.parameters <= seconds * row.tokens_per_second
    ]
    return (fitting or timed[:1])[-1], timed


def cost(shards: Path, name: str, training: Training) -> tuple[int, float]:
    """(parameters, operations a token) of a preset with the shards' vocabulary; raises
    LlmcurateError where it cannot be trained so."""
    from train.loop.start import make_plan
    from train.measure.accounting import flops_per_token, parameters

    plan, _ = make_plan(shards, name, _settings(training, 1), training.changes)
    return parameters(plan.model), flops_per_token(plan.model, plan.train.context)


def _settings(training: Training, steps: int) -> Any:
    from llmcurate.base.settings import from_dict, unflat
    from train.config import TrainConfig

    settings = {**training.train, "steps": steps, "eval_every": steps}
    return from_dict(TrainConfig, unflat(settings), "pretrain")


def _timed(shards: Path, name: str, training: Training) -> Pace:
    import tempfile

    import torch

    from train.loop.pretrain import pretrain

    torch.set_num_threads(training.threads)
    parameters, flops = cost(shards, name, training)
    settings = _settings(training, TIMED_STEPS + 1)
    with tempfile.TemporaryDirectory(prefix="llmcurate-ablate-") as folder:
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
