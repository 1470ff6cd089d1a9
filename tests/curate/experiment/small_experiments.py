"""Small corpora, an engine in this process, and a model that trains in a second."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from curate.api.model_settings import Compare
from curate.experiment import runs
from curate.experiment.compare import run_experiment
from curate.experiment.corpora import named_corpora
from curate.experiment.figures import Experiment
from curate.run.records import Options
from llmcurate.base.messages import json_values

WORDS = "a the cat dog bird sat ran flew on over under mat tree house then it was red".split()
SETS = [
    *("model.layers=1", "model.hidden=32", "model.attention.heads=2"),
    *("model.attention.kv_heads=1", "model.feed_forward.width=32", "pretrain.warmup=2"),
]
CHOSEN = {"tokens": 2000, "vocab": 280, "rows": 2, "context": 32, "seeds": 3, "points": 2}


def sentences(seed: int, count: int = 8) -> str:
    """English words, articles before nouns."""
    draw = random.Random(seed)
    words = (f"{draw.choice(('a', 'the'))} {draw.choice(WORDS)}" for _ in range(6 * count))
    return " ".join(f"{pair}." if nth % 6 == 5 else pair for nth, pair in enumerate(words))


def letters(seed: int) -> str:
    """Letters and spaces at random."""
    draw = random.Random(seed)
    return "".join(draw.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(400))


def write(path: Path, texts: list[str], sources: str = "a") -> str:
    """Documents as JSON lines; the path."""
    rows = [
        {"id": f"{path.stem}{n}", "source": sources[n % len(sources)], "text": text}
        for n, text in enumerate(texts)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


class Here:
    """An engine that maps tasks in this process; `stop` ends it behind so many."""

    def __init__(self, stop: int | None = None) -> None:
        self.cpu, self.stop, self.made = 0.0, stop, 0

    def __call__(self, *arguments: Any, **named: Any) -> Here:
        return self

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: object) -> None: ...

    def map(
        self, function: str, tasks: Any, result: type, on_death: Callable[..., Any] | None = None
    ) -> Iterator[tuple[runs.RunTask, runs.Done]]:
        for task in tasks:
            if self.stop is not None and self.made >= self.stop:
                raise KeyboardInterrupt
            self.made += 1
            yield task, runs.train_run(task)


def experiment(
    corpora: list[str],
    texts: dict[str, str],
    out: Path,
    sets: Sequence[str] = (),
    variants: Sequence[str] = (),
    **changes: Any,
) -> Experiment:
    """The figures of an experiment with the small model. sets: behind those of the model."""
    chosen = Compare.of(**{**CHOSEN, **changes})
    named, place = named_corpora(corpora, [], False, variants), Options(quiet=True, workers=1)
    return run_experiment(named, texts, out, chosen, [*SETS, *sets], place)


def without_cost(figures: Experiment) -> dict[str, Any]:
    """The figures without what the clock and the machine decide."""
    copy = json_values(figures)
    for name in ("cost", "machines"):
        del copy[name]
    for row in (*copy["corpora"], copy["placebo"]):
        del row["tokens_per_second"]
        for run in row["runs"]:
            del run["seconds"], run["tokens_per_second"]
    return copy
