"""The comparison of models: variants trained alike, their losses, and how far they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from curate.inspect.results import Findings
from curate.steps.recipe import Change
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
    "bits a byte",
    "tokens/s",
)


def variant_of(text: str) -> Variant:
    """From ``tiny``, ``NAME=PRESET,KEY=VALUE,...`` or the path of a YAML file, whose mapping has
    ``preset`` and settings as a recipe's ``model`` has, and the file's name. UsageError."""
    from llmcurate.base.settings import flat
    from train.evaluate.compare import Variant

    if text.endswith((".yaml", ".yml", ".json")):
        path = Path(text)
        try:
            value, _ = read_yaml(path.read_text(encoding="utf-8"), text)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{text}: cannot be read ({error})") from None
        if not isinstance(value, dict):
            raise UsageError(
                f"{text}: give a mapping of a model's settings, preset: tiny among them"
            )
        preset = str(value.pop("preset", "tiny"))
        return Variant(name=path.stem, model=preset, changes=flat(value))
    first, *others = text.split(",")
    name, equals, model = first.partition("=")
    changes = {}
    for other in others:
        key, given, value = other.partition("=")
        if not given or not key:
            raise UsageError(f"{text}: write KEY=VALUE behind the preset, not {other!r}")
        changes[key.removeprefix("model.")] = read_yaml(value, text, lines=False)[0]
    return Variant(name=name, model=model if equals else name, changes=changes)


def training_of(sets: Sequence[str], **settings: Any) -> tuple[TrainConfig, dict[str, Any]]:
    """These settings of training with those of ``--set``, and the model's among the latter.
    UsageError for others."""
    from curate.products.pretraining import NAMES
    from llmcurate.base.settings import from_dict, unflat
    from train.config import TrainConfig

    items = [Change.of(text).within(NAMES) for text in sets]
    settings |= {item.key: item.value for item in items if item.section != "model"}
    changes = {item.key: item.value for item in items if item.section == "model"}
    return from_dict(TrainConfig, unflat(settings), "pretrain"), changes


@contextmanager
def runs_progress(title: str, total: int, quiet: bool) -> Iterator[tuple[OnRun, OnProgress]]:
    """A bar over runs of training: what ``compare`` calls as a run begins, and on its way."""
    begun: list[str] = []
    with Progress(title, total, quiet) as progress:

        def on_run(name: str, seed: int) -> None:
            progress.update(len(begun), f"{name}, seed {seed}")
            begun.append(f"{name}, seed {seed}")

        def on_progress(line: dict[str, int]) -> None:
            at = f"{begun[-1]}, step {line['step']} of {line['steps']}"
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
    """Trains the variants into OUT. Raises LlmcurateError."""
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
    """figures: of `train.evaluate.compare`."""

    NAME = "comparison"
    TEMPLATE = "evaluate/models.html"
    SHOWN: ClassVar[dict[str, Any]] = {"head": HEAD}
    JSON = "figures"
    figures: Comparison

    def rows(self) -> list[list[str]]:
        """A row a variant."""
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
        """A sentence a variant: whether it differs from the first, beyond what seeds do."""
        first, *others = self.figures.variants
        lines = []
        for row in others:
            assert row.held_out_loss_difference is not None
            sign = row.held_out_loss_difference.sign
            if sign is None:
                verdict = "one seed says nothing of chance; train from more"
            elif not sign:
                verdict = f"no difference from {first.name} beyond that of seeds"
            else:
                verdict = f"{'better' if sign < 0 else 'worse'} than {first.name}"
            lines.append(f"{row.name}: {verdict}")
        return lines

    def text(self) -> str:
        seeds = counted(len(self.figures.seeds), "seed")
        about = f"from {seeds}; in brackets intervals of 95 %, by Student"
        return "\n".join([about, "", *table(HEAD, self.rows()), "", *self.verdicts()])
