"""The tokenizers of an experiment, and the token shards of its corpora.

One tokenizer is for all, unless settings of `tokenizer` or `shards.tokenizer` are those of a corpus
alone: then corpora whose settings are equal share one. Each is trained on the union of all corpora,
so that none of them has a tokenizer of its own text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from curate.experiment.corpora import Corpus, Sets, distinct
from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.recipe import Recipe, compose
from llmcurate.base.errors import UsageError

ORDER, OTHER_ORDER = 0, 1  # seeds of the order of documents in shards; the second is the placebo's

Choice = Path | Recipe  # a tokenizer's file, or what trains one


@dataclass(frozen=True)
class Tokenizer:
    """origin: the sentence that says where it is from; corpus: whose settings it has; None: those
    of all."""

    file: Path
    origin: str
    corpus: str | None = None

    def eval_folder(self, out: Path) -> Path:
        """Of the evaluation texts that it encoded."""
        return _folder(out, "eval", self.corpus)


def _folder(out: Path, kind: str, corpus: str | None) -> Path:
    return out / kind if corpus is None else out / f"{kind}s" / corpus


def choose_tokenizers(
    corpora: Sequence[Corpus], named: Path | None, vocab: int, sets: Sets
) -> dict[str | None, Choice]:
    """By the names of corpora, and of None with the settings of all: the file that is given (named:
    for all), or the recipe that trains one of `vocab` tokens. UsageError for settings that cannot
    be."""
    choices: dict[str | None, Choice] = {None: _choice(None, named, vocab, sets)}
    for corpus in corpora:
        own = sets.own.get(corpus.name, ())
        trained = [change for change in own if change.section == "tokenizer"]
        named_files = [c for c in own if (c.section, c.key) == ("shards", "tokenizer")]
        if trained and named_files:
            raise UsageError(
                f"{named_files[0].given}: is trained already; leave out {trained[0].given}"
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
        raise UsageError(f"--tokenizer {path}: no tokenizer.json, nor a folder that holds one")
    return file


def _key(choice: Choice) -> str:
    return choice.digest() if isinstance(choice, Recipe) else str(choice)


def are_equal(choices: Mapping[str | None, Choice], corpora: Sequence[Corpus]) -> bool:
    """Return whether one tokenizer is for all corpora."""
    return len({_key(choices[corpus.name]) for corpus in corpora}) == 1


def make_tokenizers(
    choices: Mapping[str | None, Choice], corpora: Sequence[Corpus], out: Path, options: Options
) -> dict[str, Tokenizer]:
    """By the names of corpora. Those that are trained lie in OUT/tokenizer, or in
    OUT/tokenizers/NAME of the first corpus that has the settings."""
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
            tokenizers[key] = Tokenizer(Path(key), "as given", name)
    return {corpus.name: tokenizers[_key(choices[corpus.name])] for corpus in corpora}


def train_on_union(
    recipe: Recipe, corpora: Sequence[Corpus], folder: Path, options: Options
) -> str:
    """Trains a tokenizer on all documents of all corpora, those that two of them share twice; the
    sentence that says so."""
    read = distinct(corpora)
    inputs = list(dict.fromkeys(path for corpus in read for path in corpus.inputs))
    carry_out(recipe, inputs, folder, options)
    if not (folder / "tokenizer.json").is_file():
        raise UsageError("tokenizer.vocab: give one size; of several, each to a corpus by its name")
    names = ", ".join(corpus.name for corpus in read)
    return f"trained on {'the union of ' if len(read) > 1 else ''}{names}"


def check_shards(corpora: Sequence[Corpus], sets: Sets) -> None:
    """UsageError for settings that cannot be, or a first corpus that has no other order for the
    placebo."""
    first, *_ = [_recipe(corpus, sets, {}) for corpus in corpora]
    (shards,) = first.products
    if (packing := shards.model_dump()["packing"]) != "input":
        raise UsageError(
            f"shards.packing {packing} is one order alone, and the placebo is the first corpus in"
            " another: put a corpus without it first"
        )


def encode_corpus(
    corpus: Corpus, tokenizer: Path, sets: Sets, folder: Path, order: int, options: Options
) -> Path:
    """The folder of a corpus' token shards. order: the seed of its documents' order."""
    values: dict[str, str | int] = {"tokenizer": str(tokenizer)}
    if sets.values("shards", corpus.name).get("packing", "input") == "input":
        values["shuffle"] = order
    carry_out(_recipe(corpus, sets, values), list(corpus.inputs), folder, options)
    return folder


def _recipe(corpus: Corpus, sets: Sets, values: dict[str, str | int]) -> Recipe:
    changes = (change for change in sets.of("shards", corpus.name) if change.key != "tokenizer")
    return compose("shards", [("shards", values)], (*changes, *sets.of("read")))
