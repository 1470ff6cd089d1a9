"""The sources of a mixture that is searched, as token shards of one tokenizer, and the evaluation
texts, encoded by it too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.experiment.corpora import Corpus, Sets, read_sets
from curate.experiment.encoding import ORDER, choose_tokenizers, encode_corpus, make_tokenizers
from curate.experiment.evaluation import EvalText, draw_text, encode_apart, find_overlap
from curate.experiment.runs import Place
from curate.formats.read_settings import ReadSettings
from curate.products.eval_texts import are_shards, check_names
from curate.run.outcome import Options
from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.progress import say

if TYPE_CHECKING:
    from curate.cli.model_settings import MixSearch


@dataclass(frozen=True)
class Source:
    """tokens: that there are to train on; fingerprint: of the shards' content; input: the documents
    that they were made of, or the shards."""

    name: str
    input: str
    shards: Path
    tokens: int
    documents: int
    fingerprint: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shards": str(self.shards)}


@dataclass(frozen=True)
class Prepared:
    """sets: of --set; tokenizer: what is said of it; facts: of evaluation texts."""

    sources: list[Source]
    sets: Sets
    tokenizer: dict[str, Any]
    facts: dict[str, dict[str, Any]]
    encoded: bool  # from documents, here


def prepare(
    inputs: Mapping[str, str],
    texts: Mapping[str, str],
    out: Path,
    chosen: MixSearch,
    sets: Sequence[str],
    place: Place,
) -> Prepared:
    """Sources in the order of their names. Raises UsageError for what cannot be mixed."""
    check_names(inputs)
    changes = read_sets(sets, [])
    drawn = [
        draw_text(*text, chosen.eval_bytes, chosen.eval_excerpt, changes.read)
        for text in texts.items()
    ]
    ready = [name for name, path in inputs.items() if are_shards(path)]
    if ready and len(ready) < len(inputs):
        other = next(name for name in inputs if name not in ready)
        raise UsageError(
            f"mix search: {ready[0]} is token shards, {other} is not: give shards of one tokenizer,"
            " or documents, for all"
        )
    local = Options(place.workers, place.quiet)
    if ready:
        folders = {name: Path(path) for name, path in inputs.items()}
        tokenizer, origin = _tokenizer_of(folders), "of the shards"
        corpora: list[Corpus] = []
    else:
        corpora = [Corpus(name, (path,)) for name, path in inputs.items()]
        kept = out / "tokenizer" / "tokenizer.json"
        if chosen.tokenizer is None and kept.is_file():
            # Another one would make every run that is there worthless when a source is added.
            _check_vocab(out, int(changes.values("tokenizer").get("vocab", chosen.vocab)))
            tokenizer, origin = kept, "the one in OUT, trained when the search began"
        else:
            choices = choose_tokenizers(corpora, chosen.tokenizer, chosen.vocab, changes)
            new_tokenizer = make_tokenizers(choices, corpora, out, local)[corpora[0].name]
            tokenizer, origin = new_tokenizer.file, new_tokenizer.origin
        folders = {
            corpus.name: encode_corpus(
                corpus, tokenizer, changes, out / "shards" / corpus.name, ORDER, local
            )
            for corpus in corpora
        }
    sources = [_source(name, inputs[name], folders[name]) for name in sorted(inputs)]
    facts = _encode_texts(
        drawn, corpora, folders, tokenizer, out, chosen, place.quiet, changes.read
    )
    described = {"origin": origin, "file": str(tokenizer), "sha256": file_digest(tokenizer)}
    return Prepared(sources, changes, described, facts, not ready)


def _check_vocab(out: Path, vocab: int) -> None:
    """UsageError where the search in OUT began with another size of the vocabulary."""
    card = json.loads((out / "tokenizer" / "tokenizer_card.json").read_text(encoding="utf-8"))
    if (asked := card["vocab_asked"]) != vocab:
        raise UsageError(
            f"the runs in {out} have a tokenizer of {counted(asked, 'token')}: give --vocab"
            f" {asked}, or another folder"
        )


def _source(name: str, path: str, folder: Path) -> Source:
    from train.data.shards import read_shards

    shards = read_shards(folder)
    tokens = int(shards.length.sum())
    if not tokens:
        raise UsageError(f"mix search: {name}: {folder} holds no tokens")
    return Source(name, path, folder, tokens, shards.documents, shards.fingerprint)


def _tokenizer_of(folders: Mapping[str, Path]) -> Path:
    """The tokenizer.json of shards that were encoded by one."""
    from train.data.shards import read_shards

    opened = {name: read_shards(folder) for name, folder in folders.items()}
    first, *others = opened
    for name in others:
        if opened[name].tokenizer_sha256 != opened[first].tokenizer_sha256:
            raise UsageError(
                f"mix search: {name} and {first} were encoded by different tokenizers: encode them"
                " with one"
            )
    file = opened[first].tokenizer
    if file is None:
        raise UsageError(
            f"mix search: {folders[first]} has no tokenizer.json, which evaluation texts need"
        )
    return file


def _encode_texts(
    drawn: Sequence[EvalText],
    corpora: Sequence[Corpus],
    folders: Mapping[str, Path],
    tokenizer: Path,
    out: Path,
    chosen: MixSearch,
    quiet: bool,
    read: ReadSettings,
) -> dict[str, dict[str, Any]]:
    """Encodes the documents that no source holds. Shards have no words to compare."""
    if corpora:
        say("comparing evaluation texts with the sources by 13-grams", quiet)
        digests = {name: file_digest(path / "manifest.json") for name, path in folders.items()}
        shares = find_overlap(drawn, corpora, digests, out, read)
    else:
        say("evaluation texts are not compared with sources, which are token shards", quiet)
        shares = {"": {text.name: [0.0] * len(text.documents) for text in drawn}}
    facts = {
        text.name: encode_apart(
            text, shares, chosen.max_overlap, {out / "eval" / text.name: tokenizer}
        )
        for text in drawn
    }
    if not corpora:
        for fact in facts.values():
            fact["overlap"] = None
    return facts
