"""The product `mix`: sources in stated proportions, shuffled, as a corpus.

A product and no step on documents: a step sees a partition and keeps or drops each document once,
where a mix repeats documents and orders all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from curate.mix.design import POLICIES, PRESETS, Request
from curate.mix.quality import Quality, buckets
from curate.mix.sources import Source, named
from curate.steps.contracts import Product, ProductContext, digest
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.errors import UsageError


class Mix(Product):
    """Mixes sources by weights and epochs, in an order drawn from a seed."""

    name: ClassVar[str] = "mix"
    makes: ClassVar[str] = "corpus"

    sources: dict[str, tuple[str, ...]] = Field(
        {},
        description=(
            "Inputs by the name of their source. Without any the corpus of the recipe is mixed."
        ),
    )
    weights: str | dict[str, float] = Field(
        "proportional",
        description=(
            "Weights of the sources: `proportional` to their sizes, `temperature` (size ** "
            "alpha; Xue et al. 2021), `unimax` (Chung et al. 2023), `llama1` (Touvron et "
            "al. 2023, table 1), or a number by name."
        ),
    )
    alpha: float = Field(
        0.3,
        ge=0,
        le=1,
        description=(
            "Exponent of the sizes for the weights `temperature`: 1 is proportional, 0 "
            "uniform (Xue et al. 2021)."
        ),
    )
    unit: Literal["tokens", "bytes", "documents"] = Field(
        "tokens", description="The unit of amounts, totals and shares."
    )
    tokenizer: str | None = Field(
        None,
        description=(
            "Path of the tokenizer.json, or of its folder, that counts tokens. Without a "
            "value a token is taken for 4 bytes."
        ),
    )
    shards: dict[str, str] = Field(
        {},
        description=(
            "Folders of token shards by the name of their source, which list the tokens of "
            "its documents; they must be of the same tokenizer."
        ),
    )
    total: int | None = Field(
        None,
        ge=1,
        description=(
            "Size of the mix in units. Without a value all documents of the sources are read once."
        ),
    )
    amounts: dict[str, int] = Field(
        {}, description="Amount of each source in units, by name, in place of weights."
    )
    epochs: dict[str, float] = Field(
        {}, description="Epochs of each source, by name, in place of weights."
    )
    floors: dict[str, float] = Field(
        {}, description="Least share of the mix of a source, by name, between 0 and 1."
    )
    caps: dict[str, float] = Field(
        {}, description="Largest share of the mix of a source, by name, between 0 and 1."
    )
    # Muennighoff et al. 2023: up to four epochs are worth nearly as much as new data.
    max_epochs: float = Field(
        4.0,
        gt=0,
        description=(
            "Largest number of epochs of any source; up to four are worth nearly as much as"
            " new data (Muennighoff et al. 2023)."
        ),
    )
    nearest: bool = Field(
        False,
        description=(
            "Take the nearest possible mix where the one asked for cannot be had, instead "
            "of an error."
        ),
    )
    by: str | None = Field(
        None,
        description=(
            "Column whose values are mixed, such as `lang`. Without a value sources are mixed."
        ),
    )
    quality: Quality | None = Field(
        None, description="Epochs by buckets of a score, within each source."
    )
    since: str | None = Field(
        None,
        description="First date of the documents in the mix (2024-01-31); older ones stay out.",
    )
    until: str | None = Field(
        None, description="Date from which on documents stay out of the mix (2024-01-31)."
    )
    undated: bool = Field(
        True,
        description=(
            "Whether documents without a date are in the mix where `since` or `until` is given."
        ),
    )
    overlap: Literal["exact", "minhash", "none"] = Field(
        "exact",
        description=(
            "How texts of the sources are compared for the report: by their hash, by "
            "MinHash, or not at all."
        ),
    )
    seed: int = Field(0, ge=0, lt=1 << 64, description="Seed of the order of the mix.")
    part_bytes: int = Field(
        64 << 20, ge=1 << 10, description="Bytes of text in each part of the mix, about."
    )

    _sources: list[Source] | None = PrivateAttr(default=None)

    @field_validator("sources", mode="before")
    @classmethod
    def _one_input(cls, value: Any) -> Any:
        """`{wiki: wiki/}` as `{wiki: [wiki/]}`."""
        if not isinstance(value, dict):
            return value
        return {k: (v,) if isinstance(v, str) else v for k, v in value.items()}

    @field_validator("total", mode="before")
    @classmethod
    def _amount(cls, value: Any) -> Any:
        return whole(value)

    @field_validator("amounts", mode="before")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        return {k: whole(v) for k, v in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _checked(self) -> Mix:
        from curate.mix.strata import moment

        if isinstance(self.weights, str) and self.weights not in (*POLICIES, *PRESETS):
            raise ValueError(
                f"weights {self.weights!r}: {', '.join((*POLICIES, *PRESETS))}, or name=weight,..."
            )
        numbers: dict[str, dict[str, Any]] = {"amounts": self.amounts, "epochs": self.epochs}
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
                    "amounts and epochs stand in place of weights, total, floors, caps"
                )
        if not math.isfinite(self.max_epochs):
            raise ValueError("max_epochs is a number")
        if self.tokenizer and self.unit != "tokens":
            raise ValueError(f"tokenizer: needs unit: tokens, not {self.unit}")
        if self.shards and not self.tokenizer:
            raise ValueError("shards: needs tokenizer, the one that made them")
        try:
            moment(self.since, "since"), moment(self.until, "until")
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def reads_corpus(self) -> bool:  # type: ignore[override]
        """Without sources, it mixes what the recipe reads or keeps."""
        return not self.sources

    def opened(self) -> list[Source]:
        """The sources, looked at once."""
        from curate.mix.sources import open_sources

        if self._sources is None:
            self._sources = open_sources(self.sources, self._read)
        return self._sources

    def identity(self) -> dict[str, Any]:
        identity = super().identity()
        # Where a source lies decides nothing; its name, and what is in it, does.
        if self.sources:
            sources = sorted([s.name, s.fingerprint] for s in self.opened())
            identity["settings"]["sources"] = sources
        if self.tokenizer:
            path = Path(self.tokenizer)
            identity["tokenizer"] = digest(
                "mix", str(path / "tokenizer.json" if path.is_dir() else path)
            )
            identity["settings"] |= {"tokenizer": None, "shards": {}}  # the content counts
        return identity

    def notes(self) -> list[str]:
        sources = self.opened() if self.sources else []
        return [notice for source in sources for notice in source.notices]

    def own_files(self) -> list[str]:
        return [path for source in self.opened() for path in source.files] if self.sources else []

    def request(self) -> Request:
        """The settings as `design` takes them."""
        return Request(
            weights=self.weights,
            alpha=self.alpha,
            total=self.total,
            amounts=self.amounts,
            epochs=self.epochs,
            floors=self.floors,
            caps=self.caps,
            max_epochs=self._most_epochs(),
            buckets=(*self.quality.epochs, self.quality.missing) if self.quality else None,
            curve=self._curve(),
        )

    def _most_epochs(self) -> float:
        """What a preset or a curve says itself is not refused."""
        if self.quality is None or not (self.quality.preset or self.quality.curve):
            return self.max_epochs
        return max(self.max_epochs, *self.quality.epochs)

    def _curve(self) -> Callable[[float], list[float]] | None:
        """Epochs of each bucket by the power of the curve."""
        quality = self.quality
        if quality is None or quality.curve is None:
            return None
        curve = quality.curve
        return lambda power: [*curve.epochs(power), quality.missing]

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.mix.make import make, prepare
        from curate.mix.sources import own_corpus
        from curate.mix.spill import Copy

        name = "mix" if context.beside else "corpus"
        for old in (context.out / "mix", context.out / "corpus"):
            remove(old, inside=context.out)
        scratch = context.out / ".scratch-mix"
        remove(scratch, inside=context.out)
        scratch.mkdir(parents=True)
        try:
            sources = self.opened() if self.sources else [own_corpus("corpus", context.corpus)]
            copy = Copy(scratch / "sources")
            prepared = prepare(self, sources, scratch, context.say, copy)
            return make(self, prepared, copy, context.out / name, context)
        finally:
            remove(scratch, inside=context.out)


def whole(value: Any) -> Any:
    """`1.4e12` of a command line or YAML as a whole number; other values as they are."""
    if isinstance(value, (str, float)):
        try:
            number = float(value)
        except ValueError:
            return value
        if number.is_integer():
            return int(value) if isinstance(value, str) and value.isdigit() else int(number)
    return value


PAIRS = ("amounts", "epochs", "floors", "caps")


def command_settings(options: dict[str, Any], inputs: list[str]) -> dict[str, Any]:
    """The settings of the step from the short forms of the command line.

    UsageError names what cannot be read.
    """
    settings = {**options, "sources": named(inputs)}
    if "=" in settings.get("weights", ""):
        settings["weights"] = pairs("weights", [settings["weights"]])
    for name in PAIRS:
        if name in settings:
            settings[name] = pairs(name, settings[name])
    if "shards" in settings:
        settings["shards"] = {n: p[0] for n, p in named(settings["shards"]).items()}
    if "quality" in settings:
        settings["quality"] = buckets(settings["quality"])
    return settings


def pairs(setting: str, texts: Iterable[str]) -> dict[str, float]:
    """`web=80,wiki=20` as numbers by name."""
    numbers: dict[str, float] = {}
    for part in (p for text in texts for p in text.split(",")):
        name, equals, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise UsageError(f"mix: {setting}: {part!r} is no NAME=NUMBER, as in web=80,wiki=20")
        if name in numbers:
            raise UsageError(f"mix: {setting}: {name!r} stands twice")
        numbers[name] = value
    return numbers
