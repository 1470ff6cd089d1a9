"""The training of tokenizers, each written with a card of how it was made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash
from tokenizers import Tokenizer, normalizers
from tokenizers.normalizers import Normalizer

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed
from tokenize_kit.card.figures import Sample
from tokenize_kit.learn.bpe import train_char_bpe, train_sizes
from tokenize_kit.learn.card import Trained, describe_cutting, read_template, write_tokenizer
from tokenize_kit.learn.cutting import normaliser
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.wordpiece import train_wordpiece
from tokenize_kit.segment.dictionary import Dictionary, read_dictionary

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenize_kit.learn.mixture import Mixture

# Called with (the stage that ended, its seconds) or (the progress so far, None).
Report = Callable[[str, float | None], None]
_EVERY = 10.0  # seconds between two lines on how far it is


class Stages:
    """Reports the stages of training and their seconds; no file depends on them."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._began = self._said = time.monotonic()

    def progress(self, documents: int, size: int) -> None:
        """So much has been read so far."""
        if self._report and (now := time.monotonic()) - self._said >= _EVERY:
            self._said = now
            self._report(
                f"read {size / 1e6:,.1f} MB in {counted(documents, 'document')} so far", None
            )

    def done(self, task: str) -> None:
        now = time.monotonic()
        if self._report:
            self._report(task, now - self._began)
        self._began = self._said = now


_EMPTY = "the corpus is empty: give at least one document with text"


@dataclass
class Counted:
    """Passes texts and their weights through and counts them; keeps a sample of them to measure on;
    says now and then how far it is, and at the end how long it took.

    digest: the sum of the texts' xxh3-128, modulo 2^128, which no order of them changes.
    """

    texts: Iterable[tuple[str, int]]
    stages: Stages = field(default_factory=Stages)
    sample: Sample = field(default_factory=Sample)
    documents: int = 0
    bytes: int = 0
    digest: int = 0

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for text, weight in self.texts:
            self.documents += 1
            try:
                raw = text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise RunFailed(
                    f"document {self.documents}: not Unicode text ({error.reason}); repair it first"
                ) from error
            self.sample.add(raw)
            self.digest = (self.digest + xxhash.xxh3_128_intdigest(raw)) % (1 << 128)
            self.bytes += len(raw)
            self.stages.progress(self.documents, self.bytes)
            yield text, weight
        self.stages.done(
            f"read {self.bytes / 1e6:,.1f} MB in {counted(self.documents, 'document')}"
        )


def train_tokenizer(
    texts: Iterable[str], out: Path, *, vocab: int = 32_000, **settings: Any
) -> dict[str, Any]:
    """Train on ``texts`` (one string a document) and write one tokenizer into the folder ``out``.

    settings: of TrainingOptions. Returns the card; see `train_tokenizers`.
    """
    return train_tokenizers(texts, out, TrainingOptions(sizes=(vocab,), **settings))[0]


def train_tokenizers(
    texts: Iterable[str], out: Path, options: TrainingOptions
) -> list[dict[str, Any]]:
    """Train on ``texts`` (one string a document) and write a tokenizer of every size.

    The options of sampling and weights need documents: see `train_on_corpus`.

    One size goes into the folder ``out``, several into ``out/SIZE``: ``tokenizer.json``,
    ``tokenizer_config.json`` and ``special_tokens_map.json`` (for transformers), for unigram also
    ``tokenizer.model``, and ``tokenizer_card.md`` and ``.json``, each whole or not at all, the card
    last.
    The same texts give the same bytes, on any number of threads.

    Returns the cards. Raises ``LlmcurateError`` for an empty corpus; fewer tokens than asked is a
    warning in the card.
    """
    if options.sample_bytes is not None or options.column is not None:
        raise ValueError("texts alone are not sampled or weighed: use train_on_corpus")
    reading = Counted(((text, 1) for text in texts), sample=Sample(options.seed))
    return _train(reading, out, options)


def train_on_corpus(
    batches: Callable[[], Iterator[pa.RecordBatch]],
    out: Path,
    options: TrainingOptions,
    report: Report | None = None,
) -> list[dict[str, Any]]:
    """As `train_tokenizers`, on documents: ``batches()`` reads all of them, in any order.

    Columns: text, and the one that the options' weights go by. For BPE the same documents in any
    order give the same tokens. report: called with each stage and its seconds.
    """
    from tokenize_kit.learn.mixture import Mixture

    stages = Stages(report)
    mixture = Mixture(batches, options)
    if options.sample_bytes is not None or options.temperature is not None:
        stages.done("looked at the corpus for the sample or the mixture")
    reading = Counted(mixture.documents(), stages, Sample(options.seed))
    return _train(reading, out, options, mixture)


def _train(
    reading: Counted, out: Path, options: TrainingOptions, mixture: Mixture | None = None
) -> list[dict[str, Any]]:
    out.mkdir(parents=True, exist_ok=True)
    dictionary = read_dictionary(Path(options.dictionary)) if options.dictionary else None
    normal = normaliser(options.normalise, options.model == "unigram")
    template = read_template(Path(options.chat_template)) if options.chat_template else None
    stages = reading.stages
    scale = mixture.scale if mixture else 1
    trained = _learned(reading, options, scale, dictionary, normal)
    if not reading.bytes:
        raise RunFailed(_EMPTY)
    stages.done(f"learned {counted(max(t.tokenizer.get_vocab_size() for t in trained), 'token')}")
    several = len(options.sizes) > 1
    cards = []
    for size, model in zip(options.sizes, trained, strict=True):
        if normal:
            spaces = model.tokenizer.normalizer
            both = [normal, spaces] if spaces else [normal]
            model.tokenizer.normalizer = normalizers.Sequence(both)
        folder = out / str(size) if several else out
        folder.mkdir(exist_ok=True)
        if mixture:
            model.details.update(mixture.card())
        more = mixture.warnings() if mixture else []
        card = write_tokenizer(
            model, folder, size, options, reading, more, normal, template, dictionary
        )
        cards.append(card)
    stages.done(f"checked {counted(cards[0]['round_trip_checked'], 'text')} and wrote the files")
    return cards


def _learned(
    reading: Counted,
    options: TrainingOptions,
    scale: int,
    dictionary: Dictionary | None,
    normal: Normalizer | None,
) -> list[Trained]:
    """A tokenizer of every size, by the model that the options name."""
    documents: Iterable[tuple[str, int]] = reading
    if normal:
        documents = ((normal.normalize_str(text), weight) for text, weight in reading)
    if options.model == "unigram":
        from tokenize_kit.learn.unigram import train_unigram

        named: dict[str, Any] = {
            "notes": [],
            "dictionary": dictionary.card() if dictionary else None,
        }
        return [
            Trained(tokenizer, named | more, spm)
            for spm, tokenizer, more in train_unigram(documents, options, dictionary, scale)
        ]
    tokenizers: list[tuple[Tokenizer, dict[str, Any]]]
    if options.model == "bpe":
        learned = train_sizes(documents, options, scale, dictionary)
        tokenizers = [(tokenizer, {}) for tokenizer in learned]
    elif options.model == "char-bpe":
        tokenizers = train_char_bpe(documents, options, scale, dictionary)
    else:
        tokenizers = train_wordpiece(documents, options, scale, dictionary)
    cut = describe_cutting(options) | {"dictionary": dictionary.card() if dictionary else None}
    return [Trained(tokenizer, cut | more) for tokenizer, more in tokenizers]
