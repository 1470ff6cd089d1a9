"""The evaluation of tokenizers on the documents of some inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from curate.corpus.direct_input import DirectInput
from curate.formats.read_settings import ReadSettings
from curate.formats.subset import plan_reading
from curate.run.records import read_record
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.progress import say

if TYPE_CHECKING:
    from tokenize_kit.judge.words import Segmentation

GROUPS = ("lang", "source")
ROWS = 500  # texts at a time: their tokens and positions are in memory
WORD_END = "\ufdd0"  # a noncharacter, which Unicode keeps for what never leaves a program
Buffers = tuple[Any, Any, dict[str, list[str | None]]]


class Documents:
    """The documents with text of some inputs, read as often as `batches` is called. words: the
    column of their words, behind each of which WORD_END is put into the text."""

    def __init__(
        self,
        inputs: list[str],
        quiet: bool = False,
        read: ReadSettings | None = None,
        words: str | None = None,
    ) -> None:
        read = read or ReadSettings()
        plan = plan_reading(inputs, read)
        web = [f for f in plan.files if f.holds_pages]
        if web:
            raise UsageError(
                f"input {web[0].path} holds web pages, not text: run `llmcurate extract` first"
            )
        for notice in plan.notices:
            say(notice, quiet)
        self.files = [Path(f.path).resolve() for f in plan.files if "://" not in f.path]
        self._direct = DirectInput(plan, read)
        self._words = words

    def batches(self) -> Iterator[Buffers]:
        """(data: uint8[], offsets: int64[rows + 1], labels by group), in input order."""
        for batch in self._direct.batches(None):
            for first in range(0, batch.num_rows, ROWS):
                part = batch.slice(first, ROWS)
                labels = {
                    name: part.column(name).cast(pa.string()).to_pylist()
                    for name in GROUPS
                    if name in part.schema.names
                }
                texts = part.column("text")
                if self._words is not None:
                    texts = pa.array(marked(part, self._words), pa.large_string())
                yield *text_buffers(as_large_string(texts)), labels

    @property
    def tally(self) -> dict[str, Any]:
        """Counts of the last reading: documents, and records that could not be read."""
        tally = self._direct.tally
        return {name: tally[name] for name in ("read", "kept", "rejected", "corrupt")}


def marked(batch: pa.RecordBatch, column: str) -> list[str]:
    """The texts with WORD_END behind each of the words that the column has for them. UsageError
    naming a document whose words are not its text but for white space."""
    if column not in batch.schema.names:
        raise UsageError(f"--words {column}: the texts have no column of that name")
    texts = []
    for row in batch.select(["id", "text", column]).to_pylist():
        end, parts, text = 0, [], row["text"]
        for word in _words(row[column]):
            start = text.find(word, end)
            parts += [text[end:start], word, WORD_END]
            end = start + len(word)
        parts.append(text[end:])
        between = "".join(parts[::3])
        if between.strip() or "".join(parts).replace(WORD_END, "") != text:
            raise UsageError(
                f"--words {column}: the words of {row['id']} are not those of its text"
            )
        texts.append("".join(parts))
    return texts


def _words(value: Any) -> list[str]:
    """A list, which may be written as JSON, or words with white space between."""
    if isinstance(value, str):
        try:
            words = json.loads(value)
        except ValueError:
            words = None
        value = words if isinstance(words, list) else value.split()
    return [str(word) for word in value or ()]


def evaluate(
    tokenizers: list[Path],
    inputs: list[str],
    *,
    show: int = 0,
    quiet: bool = False,
    pattern: str | None = None,
    baseline: Path | None = None,
    dictionary: Path | None = None,
    separator: str | None = None,
    words: str | None = None,
    pivot: str | None = None,
    price: float | None = None,
    context: int | None = None,
    morphemes: Path | None = None,
    read: ReadSettings | None = None,
) -> dict[str, Any]:
    """The figures of `tokenize_kit.judge.compare`, with the inputs and the counts of reading.

    baseline: one of the tokenizers, or one more, which then comes last. dictionary, separator,
    words: as of `segmentation`. morphemes: a lexicon. UsageError where a tokenizer cannot be read,
    no document has text, or none is of the pivot.
    """
    from tokenize_kit.judge.compare import compare, read_lexicon

    documents = Documents(inputs, quiet, read, words)
    if pattern is not None and not any(
        _is_ranks(p) for p in [*tokenizers, *filter(None, [baseline])]
    ):
        raise UsageError("--pattern is for .tiktoken files, and none is given; leave it out")
    if baseline is not None and baseline not in tokenizers:
        tokenizers = [*tokenizers, baseline]
    against = None if baseline is None else tokenizers.index(baseline)
    figures = compare(
        tokenizers,
        documents.batches(),
        GROUPS,
        show,
        pattern,
        against,
        segmentation=segmentation(dictionary, separator, words),
        pivot=pivot,
        price=price,
        context=context,
        lexicon=None if morphemes is None else read_lexicon(morphemes),
    )
    first = figures["tokenizers"][0]
    if not first["bytes"]:
        refused = documents.tally["rejected"] + documents.tally["corrupt"]
        reason = f": {counted(refused, 'record')} could not be taken" if refused else ""
        raise UsageError(f"no document with text in the input{reason}")
    languages = [row["label"] for row in first["lang"]]
    if pivot is not None and pivot not in languages:
        listed = ", ".join(languages[:10]) or "none: no document has `lang`"
        raise UsageError(f"--pivot {pivot}: no text is of that language; they are {listed}")
    for row, name, path in zip(figures["tokenizers"], names(tokenizers), tokenizers, strict=True):
        row["name"] = name
        row["trained_on"] = trained_on(path, documents.files)
    if against is not None:
        figures["baseline"] = figures["tokenizers"][against]["name"]
    settings = {
        "dictionary": dictionary and str(dictionary),
        "separator": separator,
        "words": words,
        "pivot": pivot,
        "price": price,
        "context": context,
        "morphemes": morphemes and str(morphemes),
    }
    return {"inputs": inputs, **documents.tally, **settings, **figures}


def segmentation(
    dictionary: Path | None, separator: str | None = None, words: str | None = None
) -> Segmentation:
    """How words of scripts without spaces are known; UsageError for several ways at once, and
    LlmcurateError naming a dictionary that cannot be read."""
    from tokenize_kit.judge.words import Segmentation
    from tokenize_kit.segment.dictionary import read_dictionary

    if sum(map(bool, (dictionary, separator, words))) > 1:
        raise UsageError(
            "--dictionary, --separator and --words all say where words end; give one of them"
        )
    known = None if dictionary is None else read_dictionary(dictionary, None)
    return Segmentation(known, (WORD_END if words else separator or "").encode())


def trained_on(tokenizer: Path, files: list[Path]) -> bool:
    """Whether one of these files was read to train the tokenizer, as far as that is known: from the
    run.json of the run that made it, which stands beside it, there in .run/ or, of several sizes,
    above it."""
    beside = tokenizer.resolve() if tokenizer.is_dir() else tokenizer.resolve().parent
    for folder, home in product((beside, beside.parent), (".run", "")):
        try:
            record = read_record(folder / home)
            is_maker = any(p["makes"] == "tokenizer" for p in record["products"])
            read = {Path(file["path"]).resolve() for file in record["inputs"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_maker and any(file in read or folder / "corpus" in file.parents for file in files):
            return True
    return False


def _is_ranks(path: Path) -> bool:
    return path.suffix == ".tiktoken"


def names(paths: list[Path]) -> list[str]:
    """Short names that differ: the folder of a tokenizer.json, the stem of another file, else the
    paths as they were given."""
    short = []
    for path in paths:
        folder = path.name in ("tokenizer.json", "tokenizer.model")
        name = path.resolve().parent.name if folder else path.resolve().name
        short.append(
            name.removesuffix(".json").removesuffix(".model").removesuffix(".tiktoken") or str(path)
        )
    return short if len(set(short)) == len(short) else [str(p) for p in paths]
