"""The settings of a mix, and their short forms on the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from curate.mix.design import POLICIES, Request
from curate.mix.published import PRESETS
from curate.mix.sources import Source, named
from curate.steps.contracts import Identity, Product, digest
from llmcurate.base.disk.units import as_whole, parse_count
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import Described

# Epochs by the size of a document's duplicate cluster: FineWeb2's README (Penedo et al. 2025).
# The largest clusters are treated as boilerplate.
PRESETS_OF_QUALITY: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "fineweb2": ((2.0, 3.0, 5.0, 100.0, 1000.0), (1.0, 2.0, 3.0, 5.0, 8.0, 1.0))
}


class Quality(Described, BaseModel):
    """Epochs by score bucket: epochs[i] applies where edges[i - 1] <= score < edges[i]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str = Field(min_length=1)
    """The column that holds the score of a document."""
    preset: Literal["fineweb2"] | None = None
    """Published edges and epochs: `fineweb2` is for a column with the sizes of clusters of
    near-duplicates (Penedo et al. 2025)."""
    edges: tuple[float, ...] = ()
    """Scores that separate the buckets, ascending: bucket i holds scores from edge i - 1 up to, but
    not including, edge i."""
    epochs: tuple[float, ...] = ()
    """Epochs of each bucket, one value more than edges. All are scaled together to reach the amount
    of their group."""
    missing: float = Field(1.0, ge=0)
    """Epochs of documents without a score."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        preset = PRESETS_OF_QUALITY.get(str(values.get("preset")))
        if preset is None:
            return values  # the field's own check reports an unknown name
        derived = dict(zip(("edges", "epochs"), preset, strict=True))
        # OUT/recipe.yaml holds the derived edges and epochs together with the preset.
        stated = {name: values[name] for name in derived if values.get(name)}
        if any(
            not isinstance(value, (list, tuple)) or tuple(value) != derived[name]
            for name, value in stated.items()
        ):
            raise ValueError("give only one of: preset, edges with epochs")
        return {**values, **derived}

    @model_validator(mode="after")
    def _fitting(self) -> Quality:
        if not self.edges:
            raise ValueError("give edges with epochs, or a preset")
        if list(self.edges) != sorted(set(self.edges)) or not all(map(math.isfinite, self.edges)):
            raise ValueError("edges must ascend")
        if len(self.epochs) != len(self.edges) + 1:
            raise ValueError(
                f"{len(self.edges)} edges need {len(self.edges) + 1} epochs, one per bucket"
            )
        if not all(0 <= e < math.inf for e in self.epochs) or not any(self.epochs):
            raise ValueError("epochs must be 0 or more, and not all 0")
        return self

    @property
    def labels(self) -> list[str]:
        """The names of the buckets. The last bucket is that of documents without a score."""
        edges = [f"{e:g}" for e in self.edges]
        inner = [f"{a} to {b}" for a, b in pairwise(edges)]
        return [f"below {edges[0]}", *inner, f"from {edges[-1]}", "no score"]


def buckets(text: str) -> dict[str, str | list[float]]:
    """Return the setting `quality` for its short form on the command line. `COLUMN:EDGES:EPOCHS`,
    as in `score:0.2,0.8:0,1,3`, gives edges and epochs, `COLUMN:fineweb2` a preset."""
    prefix, _, epochs = text.rpartition(":")
    if prefix and epochs in PRESETS_OF_QUALITY:
        return {"column": prefix, "preset": epochs}
    column, _, edges = prefix.rpartition(":")
    try:
        return {
            "column": column,
            "edges": [float(e) for e in edges.split(",")],
            "epochs": [float(e) for e in epochs.split(",")],
        }
    except ValueError:
        raise UsageError(
            f"mix: quality is {text!r}; write COLUMN:EDGES:EPOCHS, as in score:0.2,0.8:0,1,3,"
            f" or COLUMN:{' or COLUMN:'.join(PRESETS_OF_QUALITY)}"
        ) from None


class MixSettings(Product):
    """The settings of a mix."""

    sources: dict[str, tuple[str, ...]] = {}
    """Inputs by the name of their source. Default: the recipe's corpus."""
    weights: str | dict[str, float] = "proportional"
    """Weights of the sources: `proportional` to their sizes, `temperature` (size ** alpha; Xue et
    al. 2021), `unimax` (Chung et al. 2023), those of a published mixture (`llama1`, `pile`, `gpt3`,
    `massivetext`, `dolma`, `roots`), or one number per name."""
    alpha: float = Field(0.3, ge=0, le=1)
    """Exponent of the sizes if weights is `temperature`: 1 is proportional, 0 is uniform (Xue et
    al. 2021)."""
    unit: Literal["tokens", "bytes", "documents"] = "tokens"
    """The unit of amounts, totals and shares."""
    tokenizer: str | None = None
    """Path of the tokenizer.json that counts tokens, or of its folder. Without it, tokens are
    estimated as bytes / 4."""
    total: int | None = Field(None, ge=1)
    """Size of the mix in `unit`. Default: the size of all sources with a weight."""
    amounts: dict[str, int] = {}
    """Amount of each source in `unit`, by name, instead of weights."""
    epochs: dict[str, float] = {}
    """Epochs of each source, by name, instead of weights."""
    floors: dict[str, float] = {}
    """Smallest share of a source in the mix, by name, between 0 and 1."""
    caps: dict[str, float] = {}
    """Largest share of a source in the mix, by name, between 0 and 1."""
    # Muennighoff et al. 2023: up to four epochs are worth nearly as much as new data.
    max_epochs: float = Field(4.0, gt=0)
    """Largest number of epochs of any source; up to four are worth nearly as much as new data
    (Muennighoff et al. 2023)."""
    nearest: bool = False
    """If the requested mix is impossible, write the nearest possible mix instead of stopping with
    an error."""
    by: str | None = None
    """Column whose values are mixed, such as `lang`. Without it, sources are mixed."""
    quality: Quality | None = None
    """Epochs by score bucket, within each source."""
    since: str | None = None
    """Earliest date of documents in the mix (2024-01-31); older ones are left out."""
    until: str | None = None
    """Documents of this date or later are left out (2024-01-31)."""
    undated: bool = True
    """Keep documents without a date in the mix if `since` or `until` is given."""
    overlap: Literal["exact", "none"] = "exact"
    """Comparison of the sources' texts for the report: `exact` by their hash, or `none`."""
    seed: int = Field(0, ge=0, lt=1 << 64)
    """Seed of the order of the mix."""
    part_bytes: int = Field(64 << 20, ge=1 << 10)
    """Approximate bytes of text per output file of the mix."""

    _sources: list[Source] | None = PrivateAttr(default=None)

    @field_validator("sources", mode="before")
    @classmethod
    def _one_input(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: (v,) if isinstance(v, str) else v for k, v in value.items()}

    @field_validator("amounts", mode="before")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        return {k: as_whole(v) for k, v in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _checked(self) -> MixSettings:
        from curate.mix.design import moment

        if isinstance(self.weights, str) and self.weights not in (*POLICIES, *PRESETS):
            raise ValueError(
                f"weights is {self.weights!r}; use {', '.join((*POLICIES, *PRESETS))}, or"
                " name=weight,..."
            )
        numbers: dict[str, dict[str, float]] = {"amounts": {**self.amounts}, "epochs": self.epochs}
        if isinstance(self.weights, dict):
            numbers["weights"] = self.weights
        for setting, values in numbers.items():
            for name, value in values.items():
                if not 0 <= value < math.inf:
                    raise ValueError(f"{setting}: {name} is {value:g}; give 0 or more")
        for setting, values in {"floors": self.floors, "caps": self.caps}.items():
            for name, value in values.items():
                if not 0 <= value <= 1:
                    raise ValueError(f"{setting}: {name} is {value:g}; a share is between 0 and 1")
        if self.amounts or self.epochs:
            shared = (self.total, self.floors or None, self.caps or None)
            if any(v is not None for v in shared) or self.weights != "proportional":
                raise ValueError(
                    "amounts and epochs cannot be combined with weights, total, floors or caps"
                )
        if not math.isfinite(self.max_epochs):
            raise ValueError("max_epochs must be a finite number")
        if self.tokenizer and self.unit != "tokens":
            raise ValueError(f"tokenizer needs unit: tokens, not {self.unit}")
        try:
            moment(self.since, "since"), moment(self.until, "until")
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def reads_corpus(self) -> bool:  # type: ignore[override]
        return not self.sources

    def opened(self) -> list[Source]:
        from curate.mix.sources import open_sources

        if self._sources is None:
            self._sources = open_sources(self.sources, self._read)
        return self._sources

    def identity(self) -> Identity:
        identity = super().identity()
        # The name and content of a source are part of the identity; its path is not.
        if self.sources:
            sources = sorted([s.name, s.fingerprint] for s in self.opened())
            identity.settings["sources"] = sources
        if self.tokenizer:
            path = Path(self.tokenizer)
            identity.contents["tokenizer"] = digest(
                "mix", str(path / "tokenizer.json" if path.is_dir() else path)
            )
            identity.settings["tokenizer"] = None  # the tokenizer's content counts
        return identity

    def notes(self) -> list[str]:
        sources = self.opened() if self.sources else []
        return [notice for source in sources for notice in source.notices]

    def own_files(self) -> list[str]:
        return [path for source in self.opened() for path in source.files] if self.sources else []

    def request(self) -> Request:
        quality = self.quality
        published = quality.epochs if quality and quality.preset else ()
        return Request(
            weights=self.weights,
            alpha=self.alpha,
            total=self.total,
            amounts=self.amounts,
            epochs=self.epochs,
            floors=self.floors,
            caps=self.caps,
            max_epochs=max([self.max_epochs, *published]),
            buckets=(*quality.epochs, quality.missing) if quality else None,
        )


PAIRS = ("amounts", "epochs", "floors", "caps")


def command_settings(inputs: list[str], **options: Any) -> dict[str, Any]:
    """Return the settings of a mix from arguments in the short forms of the command line."""
    settings = {**options, "sources": named(inputs)}
    if "=" in settings.get("weights", ""):
        settings["weights"] = pairs("weights", [settings["weights"]])
    for name in PAIRS:
        if name in settings:
            settings[name] = pairs(name, settings[name])
    if "quality" in settings:
        settings["quality"] = buckets(settings["quality"])
    return settings


def pairs(setting: str, texts: Iterable[str]) -> dict[str, float]:
    """Return {name: number} for texts such as `web=80,wiki=20`."""
    numbers: dict[str, float] = {}
    for part in (p for text in texts for p in text.split(",")):
        name, equals, number = part.rpartition("=")
        try:
            value = parse_count(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise UsageError(f"mix: {setting}: write {part!r} as NAME=NUMBER, like web=80,wiki=20")
        if name in numbers:
            raise UsageError(f"mix: {setting}: {name!r} appears twice")
        numbers[name] = value
    return numbers
