"""The corpora of an experiment: what they are called, the recipes that make them, the tokenizer of
all, and their token shards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.api.outcome import carry_out
from curate.errors import UsageError
from curate.products.eval_texts import are_shards
from curate.run.outcome import Options
from curate.steps.recipe import Change, compose, load
from curate.steps.shipped import names as shipped_names

PLACEBO = "placebo"
ORDER, OTHER_ORDER = 0, 1  # seeds of the order of documents in shards; the second is the placebo's
_NAME = re.compile(r"\w[\w.+-]*")
# Settings of `pretrain` that an experiment decides, and by what.
DECIDED = {
    "steps": "steps follow from --tokens, --documents, --epochs or --minutes",
    "seed": "give --seed, the first one, and --seeds",
    "eval": "give --eval NAME=PATH",
    "eval_every": "give --points, how often texts are scored",
    "stages": "an experiment has one stage; leave them out",
    "sources": "an experiment trains on its corpora; leave sources out",
}
TRAINING = ("model", "pretrain", "tokenizer")  # sections of --set that are of no recipe


@dataclass(frozen=True)
class Corpus:
    """inputs: files, folders or runs that hold its documents; recipe: that made them of these."""

    name: str
    inputs: tuple[str, ...]
    recipe: str | None = None

    def at(self, folder: Path) -> Corpus:
        """The corpus as a run of its recipe leaves it in the folder."""
        return Corpus(self.name, (str(folder),), self.recipe)


def named_corpora(arguments: Sequence[str], inputs: Sequence[str], recipes: bool) -> list[Corpus]:
    """The corpora that arguments name, as PATH or NAME=PATH, or as recipes over the inputs.
    UsageError names the first that cannot be."""
    corpora: list[Corpus] = []
    for argument in arguments:
        name, equals, rest = argument.partition("=")
        if not equals or not _NAME.fullmatch(name) or Path(argument).exists():
            name, rest = _name_of(argument), argument
        if name == PLACEBO:
            raise UsageError(f"{argument}: {PLACEBO} names the runs that every experiment has")
        if any(name == corpus.name for corpus in corpora):
            raise UsageError(f"two corpora are called {name}: write NAME={rest} for one of them")
        if not recipes and are_shards(rest):
            raise UsageError(f"{rest} holds token shards: give the documents they were made of")
        if not recipes and not Path(rest).exists() and rest in shipped_names():
            raise UsageError(f"{rest} is a recipe: add --recipes, and --input for what it reads")
        corpora.append(
            Corpus(name, tuple(inputs), rest) if recipes else Corpus(name, (rest,), None)
        )
    if len(corpora) < 2:
        raise UsageError("an experiment compares two corpora or more: give the others too")
    if recipes and not inputs:
        raise UsageError("--recipes needs the documents that they run over: give --input PATH")
    if not recipes and inputs:
        raise UsageError("--input is what recipes run over: add --recipes")
    return corpora


def _name_of(argument: str) -> str:
    """A corpus' name by its path: without endings, in characters that a folder may have."""
    stem = Path(argument.rstrip("/")).name
    stem = stem if Path(argument).is_dir() else stem.partition(".")[0]
    return re.sub(r"[^\w.+-]+", "-", stem).strip("-.+") or "corpus"


def shares_of_sets(
    sets: Iterable[str], corpora: Sequence[Corpus]
) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[Change, ...]]]:
    """({section: settings} of training, changes of each corpus' recipe by its name). UsageError for
    a setting that is of neither."""
    training: dict[str, dict[str, Any]] = {section: {} for section in TRAINING}
    changes: dict[str, list[Change]] = {corpus.name: [] for corpus in corpora}
    steps = {
        corpus.name: {step.label for step in load(corpus.recipe).steps} | {"read"}
        for corpus in corpora
        if corpus.recipe is not None
    }
    for change in map(Change.of, sets):
        if change.section in TRAINING:
            if change.section == "pretrain" and change.key in DECIDED:
                raise UsageError(f"{change.given}: {DECIDED[change.key]}")
            training[change.section][change.key] = change.value
            continue
        takers = [name for name, labels in steps.items() if change.section in labels]
        if not takers:
            raise UsageError(
                f"{change.given}: no step of a recipe here, nor {', '.join(TRAINING[:-1])} or"
                f" {TRAINING[-1]}"
            )
        for name in takers:
            changes[name].append(change)
    return training, {name: tuple(some) for name, some in changes.items()}


def run_recipes(
    corpora: Sequence[Corpus],
    changes: dict[str, tuple[Change, ...]],
    out: Path,
    options: Options,
) -> list[Corpus]:
    """The corpora as their recipes make them, in OUT/corpora/NAME; others as they are. What is done
    is not done again."""
    ready = []
    for corpus in corpora:
        if corpus.recipe is not None:
            folder = out / "corpora" / corpus.name
            recipe = load(corpus.recipe, changes[corpus.name])
            carry_out(recipe, list(corpus.inputs), folder, options)
            corpus = corpus.at(folder)
        ready.append(corpus)
    return ready


@dataclass(frozen=True)
class Tokenizer:
    """origin: the sentence that says where it is from."""

    file: Path
    origin: str


def tokenizer_for(
    corpora: Sequence[Corpus],
    named: Path | None,
    out: Path,
    settings: dict[str, Any],
    options: Options,
) -> Tokenizer:
    """One for all: the one that is given, or one trained on all documents of all corpora."""
    if named is not None:
        file = named / "tokenizer.json" if named.is_dir() else named
        if not file.is_file() or file.suffix != ".json":
            raise UsageError(f"--tokenizer {named}: no tokenizer.json, nor a folder that holds one")
        return Tokenizer(file, "as given")
    folder = out / "tokenizer"
    inputs = [path for corpus in corpora for path in corpus.inputs]
    recipe = compose("tokenizer", [("tokenizer", settings)])
    carry_out(recipe, inputs, folder, options)
    names = ", ".join(corpus.name for corpus in corpora)
    return Tokenizer(folder / "tokenizer.json", f"trained on the union of {names}")


def encode(
    corpora: Sequence[Corpus], tokenizer: Path, out: Path, options: Options
) -> dict[str, Path]:
    """Folders of token shards by name: of each corpus, and of the first one's documents in another
    order as the placebo."""
    orders = [(corpus.name, corpus, ORDER) for corpus in corpora]
    orders.append((PLACEBO, corpora[0], OTHER_ORDER))
    folders = {}
    for name, corpus, order in orders:
        folders[name] = out / "shards" / name
        settings = {"tokenizer": str(tokenizer), "shuffle": order}
        carry_out(
            compose("shards", [("shards", settings)]), list(corpus.inputs), folders[name], options
        )
    return folders
