"""Comparison of model variants that are trained alike: their losses and differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from curate.inspect.results import Findings
from curate.steps.recipe import Change
from llmcurate.base.disk.files import read_text
from llmcurate.base.disk.units import counted, format_scaled
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import Progress, table

if TYPE_CHECKING:
    from curate.api.model_settings import ModelCompare
    from train.config import TrainConfig
    from train.evaluate.compare import Comparison, Variant

OnRun = Callable[[str, int], None]
OnProgress = Callable[[dict[str, int]], None]

HEAD = (
    "",
    "parameters",
    "tokens",
    "FLOPs",
    "held-out loss",
    "difference",
    "bits per byte",
    "tokens/s",
)


def variant_of(text: str) -> Variant:
    """Return the variant that a text describes: ``tiny``, ``NAME=PRESET,KEY=VALUE,...`` or the path
    of a YAML file with ``preset`` and the settings of a recipe's ``model``. Raises UsageError for
    an unreadable file or a wrong setting."""
    from llmcurate.base.settings import flatten
    from train.evaluate.compare import Variant

    if text.endswith((".yaml", ".yml", ".json")):
        path = Path(text)
        value, _ = read_yaml(read_text(path), text)
        if not isinstance(value, dict):
            raise UsageError(f"{text}: give a mapping of model settings, with preset: tiny")
        preset = str(value.pop("preset", "tiny"))
        return Variant(name=path.stem, model=preset, changes=flatten(value))
    first, *others = text.split(",")
    name, equals, model = first.partition("=")
    changes = {}
    for other in others:
        key, equals_sign, value = other.partition("=")
        if not equals_sign or not key:
            raise UsageError(f"{text}: write KEY=VALUE after the preset, not {other!r}")
        changes[key.removeprefix("model.")] = read_yaml(value, text, lines=False)[0]
    return Variant(name=name, model=model if equals else name, changes=changes)


def training_of(sets: Sequence[str], **settings: Any) -> tuple[TrainConfig, dict[str, Any]]:
    """Return (training settings, model settings) for a command. sets: KEY=VALUE texts of ``--set``,
    which replace ``settings`` of the command. Raises UsageError for unknown settings."""
    from curate.products.pretraining import NAMES
    from llmcurate.base.settings import from_dict, unflatten
    from train.config import TrainConfig

    items = [Change.of(text).within(NAMES) for text in sets]
    settings |= {item.key: item.value for item in items if item.section != "model"}
    changes = {item.key: item.value for item in items if item.section == "model"}
    return from_dict(TrainConfig, unflatten(settings), "pretrain"), changes


@contextmanager
def runs_progress(title: str, total: int, quiet: bool) -> Iterator[tuple[OnRun, OnProgress]]:
    """Show a progress bar over training runs; yield the two callbacks that ``compare`` takes."""
    started: list[str] = []
    with Progress(title, total, quiet) as progress:

        def on_run(name: str, seed: int) -> None:
            progress.update(len(started), f"{name}, seed {seed}")
            started.append(f"{name}, seed {seed}")

        def on_progress(line: dict[str, int]) -> None:
            at = f"{started[-1]}, step {line['step']} of {line['steps']}"
            progress.update(progress.done, at)

        yield on_run, on_progress


def compare_models(
    texts: list[str],
    shards: Path,
    out: Path,
    chosen: ModelCompare,
    sets: list[str],
    quiet: bool,
) -> ModelComparison:
    """Train the variants into OUT and return their comparison. Raises LlmcurateError."""
    from train.evaluate.compare import Budget, Variant, compare

    settings = chosen.model_dump(include={"seed", "rows", "context", "lr", "device"})
    train, common = training_of(sets, **settings, log_every=1, keep_checkpoints=1, keep_best=False)
    variants = [variant_of(text) for text in texts]
    variants = [Variant(name=v.name, model=v.model, changes=common | v.changes) for v in variants]
    total = chosen.seeds * len(variants)
    with runs_progress("training variants", total, quiet) as hooks:
        figures = compare(
            shards,
            out,
            variants,
            train=train,
            budget=Budget(tokens=chosen.tokens, flops=chosen.flops),
            seeds=chosen.seeds,
            on_run=hooks[0],
            on_progress=hooks[1],
        )
    return ModelComparison(figures)


@dataclass(frozen=True)
class ModelComparison(Findings):
    """The report of a comparison. figures: the result of `train.evaluate.compare`."""

    NAME = "comparison"
    TEMPLATE = "evaluate/models.html"
    SHOWN: ClassVar[dict[str, Any]] = {"head": HEAD}
    JSON = "figures"
    figures: Comparison

    def rows(self) -> list[list[str]]:
        return [
            [
                row.name,
                format_scaled(row.parameters).replace("G", "B"),
                format_scaled(row.tokens),
                format_scaled(row.flops),
                row.held_out_loss.text(""),
                difference.text() if (difference := row.held_out_loss_difference) else "",
                "" if row.bits_per_byte is None else f"{row.bits_per_byte.mean:.4f}",
                f"{row.tokens_per_second:,.0f}",
            ]
            for row in self.figures.variants
        ]

    def verdicts(self) -> list[str]:
        """Return a sentence per variant: is its difference from the first one beyond chance?"""
        first, *others = self.figures.variants
        lines = []
        for row in others:
            assert row.held_out_loss_difference is not None
            sign = row.held_out_loss_difference.sign
            if sign is None:
                verdict = "one seed cannot show if this is chance; use more seeds"
            elif not sign:
                verdict = f"no difference from {first.name} beyond that between seeds"
            else:
                verdict = f"{'better' if sign < 0 else 'worse'} than {first.name}"
            lines.append(f"{row.name}: {verdict}")
        return lines

    def text(self) -> str:
        seeds = counted(len(self.figures.seeds), "seed")
        about = f"from {seeds}; in brackets 95 % intervals (Student's t)"
        return "\n".join([about, "", *table(HEAD, self.rows()), "", *self.verdicts()])
