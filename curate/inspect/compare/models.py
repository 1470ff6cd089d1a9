"""The comparison of models: variants trained alike, their losses, and how far they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.inspect import results
from curate.steps.recipe import Change
from llmcurate.base.disk.units import counted, format_scaled
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError
from llmcurate.base.pages import templates
from llmcurate.base.terminal.progress import Progress
from llmcurate.base.terminal.tables import table

if TYPE_CHECKING:
    from curate.cli.model_settings import ModelCompare
    from train.evaluate.compare import Variant

OnRun = Callable[[str, int], None]
OnProgress = Callable[[dict[str, Any]], None]

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


def model_changes(sets: Sequence[str], settings: dict[str, Any]) -> dict[str, Any]:
    """The model's settings among those of ``--set``; those of pretrain go into ``settings``.
    UsageError for others."""
    from curate.products.pretraining import NAMES

    changes: dict[str, Any] = {}
    for item in (Change.of(text).within(NAMES) for text in sets):
        (changes if item.section == "model" else settings)[item.key] = item.value
    return changes


@contextmanager
def runs_progress(title: str, total: int, quiet: bool) -> Iterator[tuple[OnRun, OnProgress]]:
    """A bar over runs of training: what ``compare`` calls as a run begins, and on its way."""
    begun: list[str] = []
    with Progress(title, total, quiet) as progress:

        def on_run(name: str, seed: int) -> None:
            progress.update(len(begun), f"{name}, seed {seed}")
            begun.append(f"{name}, seed {seed}")

        def on_progress(line: dict[str, Any]) -> None:
            at = f"{begun[-1]}, step {line['step']} of {line['steps']}"
            progress.update(progress.done, at)

        yield on_run, on_progress


def compare_models(
    texts: list[str],
    shards: Path,
    out: Path,
    chosen: ModelCompare,
    sets: list[str],
    as_json: bool,
    quiet: bool,
) -> None:
    """Trains the variants into OUT, prints the table, and writes comparison.json and .html. Raises
    LlmcurateError."""
    results.check_folder(out)
    from llmcurate.base.settings import from_dict, unflat
    from train.config import TrainConfig
    from train.evaluate.compare import Budget, Variant, compare

    settings: dict[str, Any] = chosen.model_dump(
        include={"seed", "rows", "context", "lr", "device"}
    )
    settings |= {"log_every": 1, "keep_checkpoints": 1, "keep_best": False}
    common = model_changes(sets, settings)
    variants = [variant_of(text) for text in texts]
    variants = [Variant(name=v.name, model=v.model, changes=common | v.changes) for v in variants]
    total = chosen.seeds * len(variants)
    with runs_progress("training variants", total, quiet) as hooks:
        figures = compare(
            shards,
            out,
            variants,
            train=from_dict(TrainConfig, unflat(settings), "pretrain"),
            budget=Budget(tokens=chosen.tokens, flops=chosen.flops),
            seeds=chosen.seeds,
            on_run=hooks[0],
            on_progress=hooks[1],
        )
    results.show(
        figures, lambda: text(figures), lambda: render(figures), out, as_json, name="comparison"
    )


def _with_interval(figure: dict[str, Any] | None, sign: str = "") -> str:
    """`3.412 (3.398 to 3.426)`."""
    if figure is None:
        return ""
    shown = f"{figure['mean']:{sign}.4f}"
    limits = figure["interval"]
    return shown if limits is None else f"{shown} ({limits[0]:{sign}.4f} to {limits[1]:{sign}.4f})"


def cells(row: dict[str, Any]) -> list[str]:
    """A variant's row of the table."""
    bits = row["bits_per_byte"]
    return [
        row["name"],
        format_scaled(row["parameters"]).replace("G", "B"),
        format_scaled(row["tokens"]),
        format_scaled(row["flops"]),
        _with_interval(row["held_out_loss"]),
        _with_interval(row.get("held_out_loss_difference"), "+"),
        "" if bits is None else f"{bits['mean']:.4f}",
        f"{row['tokens_per_second']:,.0f}",
    ]


def verdicts(figures: dict[str, Any]) -> list[str]:
    """A sentence a variant: whether it differs from the first, beyond what seeds do."""
    first, *others = figures["variants"]
    lines = []
    for row in others:
        difference = row["held_out_loss_difference"]
        limits = difference["interval"]
        if limits is None:
            lines.append(f"{row['name']}: one seed says nothing of chance; train from more")
        elif limits[0] <= 0 <= limits[1]:
            lines.append(f"{row['name']}: no difference from {first['name']} beyond that of seeds")
        else:
            word = "better" if limits[1] < 0 else "worse"
            lines.append(f"{row['name']}: {word} than {first['name']}")
    return lines


def text(figures: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    seeds = figures["seeds"]
    about = f"from {counted(len(seeds), 'seed')}; in brackets intervals of 95 %, by Student"
    lines = table(HEAD, [cells(row) for row in figures["variants"]])
    return "\n".join([about, "", *lines, "", *verdicts(figures)])


def render(figures: dict[str, Any]) -> str:
    """comparison.html."""
    return templates.render(
        "evaluate/models.html",
        figures=figures,
        head=HEAD,
        rows=[cells(row) for row in figures["variants"]],
        verdicts=verdicts(figures),
        curves=[(row["name"], row["curve"]) for row in figures["variants"]],
    )
