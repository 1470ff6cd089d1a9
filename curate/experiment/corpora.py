"""The rows of an experiment: corpora, and variants, which are the first corpus with other settings.

All rows share one tokenizer by default. A row has another one if it has its own settings of
`tokenizer` or `shards.tokenizer`; rows with equal settings share a tokenizer. Every tokenizer is
trained on the union of all corpora, so that none is fitted to one corpus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from curate.formats.listing import find_files
from curate.formats.read_settings import ReadSettings
from curate.products.eval_texts import are_shards, name_of_path
from curate.products.pretraining import NAMES
from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.contracts import setting_names
from curate.steps.recipe import Change, Recipe, SettingNames, compose, load
from curate.steps.registry import step_class
from curate.steps.shipped import names as shipped_names
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import UsageError

PLACEBO = "placebo"
_NAME = re.compile(r"\w[\w.+-]*")
# Settings that the experiment decides, and the option to use instead.
DECIDED = {
    "pretrain": {
        "steps": "steps follow from --tokens, --flops, --documents, --epochs or --minutes",
        "seed": "give --seed, the first one, and --seeds",
        "eval": "give --on NAME=PATH",
        "eval_every": "give --points, the number of times that texts are scored",
        "stages": "an experiment has one stage; leave them out",
        "sources": "an experiment trains on its corpora; leave sources out",
    },
    "shards": {
        "shuffle": "the experiment shuffles documents, for the placebo in another order",
        "val_fraction": "give --on NAME=PATH",
        "val_by": "give --on NAME=PATH",
        "format": "an experiment needs llmcurate's own format; leave it out",
    },
}
SECTIONS = ("model", "pretrain", "shards", "tokenizer")  # of --set, that belong to no recipe
PRESET = ""  # the key of `--set model=VALUE`: a preset or the folder of a trained model
TEXTS = ("columns", "split", "config")  # settings of `read` that also apply to evaluation texts


@dataclass(frozen=True)
class Corpus:
    """A row of an experiment: a corpus, or a variant of the first corpus."""

    name: str
    inputs: tuple[str, ...]  # files, folders or runs with documents
    recipe: str | None = None  # a recipe to run over the inputs
    settings: tuple[str, ...] = ()  # of a variant, as SECTION.KEY=VALUE


def named_corpora(
    arguments: Sequence[str], inputs: Sequence[str], recipes: bool, variants: Sequence[str] = ()
) -> list[Corpus]:
    """Return the corpora and then the variants of an experiment. Corpora are given as PATH or
    NAME=PATH, or as recipes over the inputs. Variants of the first corpus are given as
    NAME:KEY=VALUE,... Raises UsageError for the first invalid argument."""
    corpora: list[Corpus] = []

    def add(corpus: Corpus, given: str) -> None:
        if corpus.name == PLACEBO:
            raise UsageError(f"{given}: the name {PLACEBO} is reserved; choose another name")
        if any(corpus.name == other.name for other in corpora):
            hint = f"write NAME={given.partition('=')[2] or given} for one of them"
            hint = "choose another name" if corpus.settings else hint
            raise UsageError(f"two corpora are called {corpus.name}: {hint}")
        corpora.append(corpus)

    for argument in arguments:
        name, equals, rest = argument.partition("=")
        if not equals or not _NAME.fullmatch(name) or Path(argument).exists():
            # Named after the path: no extensions, and only characters that suit a folder.
            name, rest = name_of_path(argument), argument
        if are_shards(rest):
            raise UsageError(f"{rest} holds token shards: give the documents")
        if not recipes and not Path(rest).exists() and rest in shipped_names():
            raise UsageError(f"{rest} is a recipe: add --recipes, and --input PATH for its input")
        add(Corpus(name, tuple(inputs), rest) if recipes else Corpus(name, (rest,)), argument)
    for given in variants:
        name, _, settings = given.partition(":")
        parts = tuple(filter(None, settings.split(",")))
        if not _NAME.fullmatch(name):
            raise UsageError(f"--variant {given}: write NAME:SECTION.KEY=VALUE")
        if wrong := [part for part in parts if "=" not in part]:
            raise UsageError(
                f"--variant {given}: {wrong[0]!r} is no KEY=VALUE; for a value with a comma write"
                f" --set '{name}.KEY=VALUE'"
            )
        add(replace(corpora[0], name=name, settings=parts), given)
    if len(corpora) < 2:
        raise UsageError("give at least two corpora, or a corpus and --variant NAME:KEY=VALUE")
    if recipes and not inputs:
        raise UsageError("--recipes needs documents to run over: give --input PATH")
    if not recipes and inputs:
        raise UsageError("--input gives the documents for recipes: add --recipes")
    return corpora


@dataclass(frozen=True)
class Sets:
    """The parsed settings of the option `--set`."""

    common: tuple[Change, ...]  # settings for all corpora
    own: Mapping[str, tuple[Change, ...]]  # settings by corpus
    recipes: Mapping[str, tuple[Change, ...]]  # settings for the steps of recipes, by corpus

    def of(self, section: str, corpus: str | None = None) -> tuple[Change, ...]:
        """Return the changes in a section: the common changes, then those of the corpus."""
        changes = (*self.common, *self.own.get(corpus or "", ()))
        return tuple(change for change in changes if change.section == section)

    def values(self, section: str, corpus: str | None = None) -> dict[str, Any]:
        return {change.key: change.value for change in self.of(section, corpus)}

    @property
    def read(self) -> ReadSettings:
        """The settings of section `read` for corpora without a recipe and evaluation texts."""
        return compose("read", [], self.of("read")).read


def read_sets(sets: Iterable[str], corpora: Sequence[Corpus]) -> Sets:
    """Parse the values of --set: SECTION.KEY for all corpora, CORPUS.SECTION.KEY for one corpus,
    STEP.KEY for recipes. Raises UsageError for any other setting."""
    common: list[Change] = []
    own: dict[str, list[Change]] = {corpus.name: [] for corpus in corpora}
    recipes: dict[str, list[Change]] = {corpus.name: [] for corpus in corpora}
    steps: dict[str, dict[str, SettingNames]] = {
        corpus.name: {"read": lambda: ReadSettings.model_fields}
        | {step.label: partial(setting_names, type(step)) for step in load(corpus.recipe).steps}
        for corpus in corpora
        if corpus.recipe is not None
    }
    known: dict[str, SettingNames] = {"read": lambda: ReadSettings.model_fields}
    known |= {s: partial(setting_names, step_class(s)) for s in SECTIONS[1:]} | NAMES
    for labels in steps.values():
        known = labels | known
    varied = [f"{corpus.name}.{setting}" for corpus in corpora for setting in corpus.settings]
    for change in map(Change.of, [*varied, *sets]):
        name, change = _owned(change, own, known)
        takers = [corpus for corpus, labels in steps.items() if change.section in labels]
        of_texts = change.section == "read" and change.key.partition(".")[0] in TEXTS
        common_to_all = change.section in SECTIONS or of_texts
        if name is None and not common_to_all and not takers:
            raise UsageError(
                f"{change.given}: {change.section} is no step of these recipes, nor one of"
                f" {', '.join(SECTIONS)}; for one corpus write CORPUS.SECTION.KEY with one of these"
            )
        if decided := DECIDED.get(change.section, {}).get(change.key):
            raise UsageError(f"{change.given}: {decided}")
        if name is not None:
            own[name].append(change)
            continue
        if common_to_all:
            common.append(change)
        for taker in takers:
            recipes[taker].append(change)
    return Sets(
        tuple(common),
        {name: tuple(changes) for name, changes in own.items()},
        {name: tuple(changes) for name, changes in recipes.items()},
    )


def _owned(
    change: Change, names: Iterable[str], known: Mapping[str, SettingNames]
) -> tuple[str | None, Change]:
    path = f"{change.section}.{change.key}"
    for name in sorted(names, key=len, reverse=True):  # a name may have dots
        section, _, key = path.removeprefix(f"{name}.").partition(".")
        ours = (section in SECTIONS and key) or change.section not in known
        if path.startswith(f"{name}.") and ours:
            inner = Change(section, key, change.value, change.given)
            if section == "model" and key == PRESET:
                return name, replace(inner, value=str(change.value))
            # If no section is named, skip the model's settings: `vocab` is the tokenizer's.
            sections = (section,) if section in SECTIONS else SECTIONS[1:]
            return name, inner.within({own: known[own] for own in sections})
    return None, change.within(known)


def check_inputs(corpora: Sequence[Corpus], sets: Sets) -> None:
    """Raise UsageError for a recipe that is not valid or an input that does not exist."""
    for corpus in corpora:
        read = sets.read
        if corpus.recipe is not None:
            read = load(corpus.recipe, sets.recipes[corpus.name]).read
        find_files(
            corpus.inputs,
            skip_unreadable=read.skip_unreadable or None,
            columns=read.named,
            choice=read.choice,
        )


def distinct(corpora: Sequence[Corpus]) -> list[Corpus]:
    """Return the corpora without those that have the same documents as an earlier corpus."""
    firsts: dict[tuple[str, ...], Corpus] = {}
    for corpus in corpora:
        firsts.setdefault(corpus.inputs, corpus)
    return list(firsts.values())


def run_recipes(corpora: Sequence[Corpus], sets: Sets, out: Path, options: Options) -> list[Corpus]:
    """Run the recipes into OUT/corpora/NAME and return the corpora with the documents made. Corpora
    with the same recipe share the folder of the first such corpus. Finished runs are reused."""
    ready = []
    folders: dict[str, Path] = {}
    for corpus in corpora:
        if corpus.recipe is not None:
            folder = folders.setdefault(corpus.recipe, out / "corpora" / corpus.name)
            recipe = load(corpus.recipe, sets.recipes[corpus.name])
            carry_out(recipe, list(corpus.inputs), folder, options)
            corpus = replace(corpus, inputs=(str(folder),))
        ready.append(corpus)
    return ready


ORDER, OTHER_ORDER = 0, 1  # seeds of the order of documents, of corpora and of the placebo

Choice = Path | Recipe  # the file of a tokenizer, or a recipe that trains one


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer of the experiment."""

    file: Path
    origin: str  # says in the report where the tokenizer comes from
    corpus: str | None = None  # the corpus with these settings; None: common settings

    def eval_folder(self, out: Path) -> Path:
        return _folder(out, "eval", self.corpus)


def _folder(out: Path, kind: str, corpus: str | None) -> Path:
    return out / kind if corpus is None else out / f"{kind}s" / corpus


def choose_tokenizers(
    corpora: Sequence[Corpus], named: Path | None, vocab: int, sets: Sets
) -> dict[str | None, Choice]:
    """Choose the tokenizer of each corpus: a file, or a recipe that trains one. Returns the choices
    by name of the corpus; the key None has the tokenizer that the settings for all corpora give.
    `named` is a file for all corpora. `vocab` is the vocabulary size of trained tokenizers. Raises
    UsageError for contradictory settings."""
    choices: dict[str | None, Choice] = {None: _choice(None, named, vocab, sets)}
    for corpus in corpora:
        own = sets.own.get(corpus.name, ())
        trained = [change for change in own if change.section == "tokenizer"]
        named_files = [c for c in own if (c.section, c.key) == ("shards", "tokenizer")]
        if trained and named_files:
            raise UsageError(
                f"{named_files[0].given} names a finished tokenizer: leave out {trained[0].given}"
            )
        choices[corpus.name] = _choice(corpus.name, None if trained else named, vocab, sets)
    return choices


def _choice(corpus: str | None, named: Path | None, vocab: int, sets: Sets) -> Choice:
    own = sets.own.get(corpus or "", ())
    file_name = sets.values("shards", corpus).get("tokenizer", named)
    if file_name is None or any(change.section == "tokenizer" for change in own):
        changes = (*sets.of("tokenizer", corpus), *sets.of("read"))
        return compose("tokenizer", [("tokenizer", {"vocab": vocab})], changes)
    path = Path(str(file_name))
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file() or file.suffix != ".json":
        raise UsageError(f"--tokenizer {path}: give a tokenizer.json or its folder")
    return file


def _key(choice: Choice) -> str:
    return choice.digest() if isinstance(choice, Recipe) else file_digest(choice)


def are_equal(choices: Mapping[str | None, Choice], corpora: Sequence[Corpus]) -> bool:
    """Return True if all corpora share one tokenizer."""
    return len({_key(choices[corpus.name]) for corpus in corpora}) == 1


def make_tokenizers(
    choices: Mapping[str | None, Choice], corpora: Sequence[Corpus], out: Path, options: Options
) -> dict[str, Tokenizer]:
    """Train the tokenizers that do not exist yet and return {corpus: tokenizer}. They are written
    to OUT/tokenizer, or to OUT/tokenizers/NAME for a corpus with its own tokenizer settings."""
    tokenizers: dict[str, Tokenizer] = {}
    for corpus in corpora:
        choice = choices[corpus.name]
        key = _key(choice)
        name = None if key == _key(choices[None]) else corpus.name
        if key not in tokenizers and isinstance(choice, Recipe):
            folder = _folder(out, "tokenizer", name)
            tokenizers[key] = Tokenizer(
                folder / "tokenizer.json", train_on_union(choice, corpora, folder, options), name
            )
        elif key not in tokenizers:
            tokenizers[key] = Tokenizer(Path(str(choice)), "as given", name)
    return {corpus.name: tokenizers[_key(choices[corpus.name])] for corpus in corpora}


def train_on_union(
    recipe: Recipe, corpora: Sequence[Corpus], folder: Path, options: Options
) -> str:
    """Train a tokenizer on the documents of all corpora, and return a phrase with the names of the
    corpora. A document in two corpora is read twice."""
    read = distinct(corpora)
    inputs = list(dict.fromkeys(path for corpus in read for path in corpus.inputs))
    carry_out(recipe, inputs, folder, options)
    if not (folder / "tokenizer.json").is_file():
        raise UsageError(
            "tokenizer.vocab: give one size, or one per corpus: CORPUS.tokenizer.vocab"
        )
    names = ", ".join(corpus.name for corpus in read)
    return f"trained on {'the union of ' if len(read) > 1 else ''}{names}"


def check_shards(corpora: Sequence[Corpus], sets: Sets) -> None:
    """Raise UsageError for invalid settings of shards. `packing` must not decide the order of
    documents in the first corpus, because models are also trained on it in another order."""
    first, *_ = [_recipe(corpus, sets, {}) for corpus in corpora]
    (shards,) = first.products
    if (packing := shards.model_dump()["packing"]) != "input":
        raise UsageError(
            f"shards.packing {packing} fixes the order of documents, but the placebo is the first"
            " corpus in another order: put a corpus without it first"
        )


def encode_corpus(
    corpus: Corpus, tokenizer: Path, sets: Sets, folder: Path, order: int, options: Options
) -> Path:
    """Encode a corpus into token shards and return their folder. `order` is the seed of the
    shuffle."""
    values: dict[str, str | int] = {"tokenizer": str(tokenizer)}
    if sets.values("shards", corpus.name).get("packing", "input") == "input":
        values["shuffle"] = order
    carry_out(_recipe(corpus, sets, values), list(corpus.inputs), folder, options)
    return folder


def _recipe(corpus: Corpus, sets: Sets, values: dict[str, str | int]) -> Recipe:
    changes = (change for change in sets.of("shards", corpus.name) if change.key != "tokenizer")
    return compose("shards", [("shards", values)], (*changes, *sets.of("read")))
