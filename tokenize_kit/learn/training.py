"""The training of tokenizers, each written with a card of how it was made."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash
from tokenizers import Tokenizer, normalizers

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from tokenize_kit.card import Card, Measured, Sample, code_span, measure
from tokenize_kit.formats.gguf import names_in, to_metadata
from tokenize_kit.formats.json_forms import form_from_json
from tokenize_kit.formats.tokenizer_json import (
    load_tokenizer,
    parts_of,
    write_transformers,
)
from tokenize_kit.judge.compare import HARD_TEXTS, round_trip_failures
from tokenize_kit.learn.bpe import Trained
from tokenize_kit.learn.cutting import normaliser
from tokenize_kit.learn.mixture import Mixture, MixtureRead, SampleDrawn
from tokenize_kit.learn.options import LEARNERS, TrainingOptions
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.segment import DictionaryCard, read_dictionary

if TYPE_CHECKING:
    import pyarrow as pa


def read_template(path: Path) -> str:
    """A chat template (Jinja) for tokenizer_config.json; raises LlmcurateError naming the file, and
    the line that does not parse."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _template_error(path, str(error.strerror)) from None
    except UnicodeDecodeError:
        raise _template_error(path, "not UTF-8 text") from None
    if not text.strip():
        raise _template_error(path, "it is empty")
    try:
        from jinja2 import Environment, TemplateSyntaxError, nodes
        from jinja2.ext import Extension
    except ModuleNotFoundError:
        raise _template_error(path, "checking it needs jinja2: pip install jinja2") from None

    class Generation(Extension):
        """transformers' block around what the assistant says."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = Environment(extensions=[Generation, "jinja2.ext.loopcontrols"])
    try:
        environment.parse(text)
    except TemplateSyntaxError as error:
        raise _template_error(path, f"line {error.lineno}: {error.message}") from None
    return text


def _template_error(path: Path, reason: str) -> LlmcurateError:
    return UsageError(f"chat template {path}: {reason}")


@dataclass(frozen=True, kw_only=True)
class TrainedCard(Card):
    """The card of a training. Unigram's cuts no text by a pattern of the options."""

    file: str
    algorithm: str
    model: str
    trainer: str
    vocab_asked: int
    vocab: int
    merges: int | None
    pattern: str | None = None
    pattern_source: str | None = None
    forbidden: list[str] | None = None
    newlines: str | None
    space_runs: int | None = None
    script_boundaries: bool | None = None
    regex: list[str] | None = None
    gguf_pattern: str | None
    min_frequency: int | None = None
    max_token_length: int | None
    byte_fallback: bool
    notes: list[str]
    dictionary: DictionaryCard | None
    characters: int | None = None
    character_coverage: float | None = None
    longest_word: int | None = None
    sample: SampleDrawn | None
    mixture: MixtureRead | None
    digits: str | None
    normalisation: str
    space_token: str | None
    lossless: bool
    special_tokens: dict[str, int]
    end_of_text: str
    reserved: int
    padding: int
    documents: int
    bytes: int
    texts_xxh3: str
    measured: Measured
    round_trip_checked: int
    settings: dict[str, Setting]
    chat_template_sha256: str | None
    gguf: dict[str, str]
    tokenizer_sha256: str
    warnings: list[str]

    @property
    def sentencepiece_model(self) -> bool:
        """Return whether a tokenizer.model lies beside the tokenizer.json."""
        return LEARNERS[self.model].has_model_file

    def origin(self) -> str:
        sentence = f"Trained by {self.trainer} on {counted(self.documents, 'document')}"
        return f"{sentence} ({self.bytes:,} bytes of text)."

    def round_trip(self) -> str:
        learner = LEARNERS[self.model]
        normalised = "" if self.normalisation == "none" else f" ({self.normalisation})"
        if not learner.exact:
            text = (
                f"Texts do not come back exactly: white space is left out, and {learner.unspelled}."
            )
            return f"{text} Before that it is normalised{normalised}." if normalised else text
        if self.lossless:
            return f"Every text comes back exactly: nothing is normalised, and {learner.unspelled}."
        changes = [f"it is normalised{normalised} before it is cut"] if normalised else []
        if self.space_token:
            changes.append(f"a {code_span(self.space_token)} in it comes back as a space")
        changed = ", and ".join(changes)
        return f"A text comes back changed in this alone: {changed}; {learner.unspelled}."


def _gguf_note(options: TrainingOptions) -> str:
    """Why llama.cpp could not run a model with this tokenizer, and what to train instead."""
    begin = "llama.cpp (files *.gguf) cannot use this tokenizer: it knows "
    if not options.learner.bytes_only:
        return f"{begin}the model bpe, cut by one of its own patterns; any other program can use it"
    if not options.lossless:
        return f"{begin}no text that is changed before it is cut; any other program can use it"
    if options.superwords is not None:
        return f"{begin}no pattern that leaves lines whole; any other program can use it"
    names = " or ".join(n for n, p in PATTERNS.items() if p.gguf)
    named_pattern = PATTERNS.get(options.pattern_name)
    around = options.forbid or options.newlines or options.space_runs or options.script_boundaries
    if named_pattern is None or not named_pattern.gguf or around:
        hint = f"--pattern {names} alone"
    else:
        hint = f"--digits {named_pattern.digits}"
    return (
        f"{begin}no pattern {options.pattern_name} with these rules; if you"
        f" want to run a model there, train with {hint}; any other program can use it"
    )


def _describe_gguf(folder: Path, notes: list[str]) -> dict[str, str]:
    """The names under which llama.cpp knows the model and its pattern, as `convert` writes them, or
    `refused`: why it cannot hold this tokenizer."""
    if notes:
        return {"refused": notes[0]}
    try:
        parts = parts_of(load_tokenizer(folder / "tokenizer.json"))
        return names_in(to_metadata(form_from_json(parts)))
    except LlmcurateError as error:
        return {"refused": str(error)}


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
) -> TrainedCard:
    """Train on ``texts`` (one string a document) and write one tokenizer into the folder ``out``.

    settings: of TrainingOptions. Returns the card; see `train_tokenizers`.
    """
    return train_tokenizers(texts, out, TrainingOptions(sizes=(vocab,), **settings))[0]


def train_tokenizers(
    texts: Iterable[str], out: Path, options: TrainingOptions
) -> list[TrainedCard]:
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
    return _Training(reading, options).run(out)


def train_on_corpus(
    batches: Callable[[], Iterator[pa.RecordBatch]],
    out: Path,
    options: TrainingOptions,
    report: Report | None = None,
) -> list[TrainedCard]:
    """As `train_tokenizers`, on documents: ``batches()`` reads all of them, in any order.

    Columns: text, and the one that the options' weights go by. For BPE the same documents in any
    order give the same tokens. report: called with each stage and its seconds.
    """
    stages = Stages(report)
    mixture = Mixture(batches, options)
    if options.sample_bytes is not None or options.temperature is not None:
        stages.done("looked at the corpus for the sample or the mixture")
    reading = Counted(mixture.documents(), stages, Sample(options.seed))
    return _Training(reading, options, mixture).run(out)


class _Training:
    def __init__(
        self, reading: Counted, options: TrainingOptions, mixture: Mixture | None = None
    ) -> None:
        self.reading, self.options, self.mixture = reading, options, mixture
        self.dictionary = read_dictionary(Path(options.dictionary)) if options.dictionary else None
        self.normal = normaliser(options.normalize, options.learner.library_normal_forms)
        path = options.chat_template
        self.template = read_template(Path(path)) if path else None

    def run(self, out: Path) -> list[TrainedCard]:
        out.mkdir(parents=True, exist_ok=True)
        options, stages = self.options, self.reading.stages
        documents: Iterable[tuple[str, int]] = self.reading
        if normal := self.normal:
            documents = ((normal.normalize_str(text), weight) for text, weight in self.reading)
        module, _, function = options.learner.trains.partition(":")
        train = getattr(import_module(module), function)
        scale = self.mixture.scale if self.mixture else 1
        trained: list[Trained] = train(documents, options, scale, self.dictionary)
        if not self.reading.bytes:
            raise RunFailed(_EMPTY)
        most = max(t.tokenizer.get_vocab_size() for t in trained)
        stages.done(f"learned {counted(most, 'token')}")
        cards = []
        for size, model in zip(options.sizes, trained, strict=True):
            folder = out / str(size) if len(options.sizes) > 1 else out
            folder.mkdir(exist_ok=True)
            cards.append(self._write(model, folder, size))
        stages.done(f"checked {counted(cards[0].round_trip_checked, 'text')} and wrote the files")
        return cards

    def _write(self, trained: Trained, folder: Path, size: int) -> TrainedCard:
        tokenizer, options, reading = trained.tokenizer, self.options, self.reading
        if self.normal:
            spaces = tokenizer.normalizer
            both = [self.normal, spaces] if spaces else [self.normal]
            tokenizer.normalizer = normalizers.Sequence(both)
        decoder = tokenizer.get_added_tokens_decoder()
        special = {token.content: n for n, token in sorted(decoder.items()) if token.special}
        actual = tokenizer.get_vocab_size(with_added_tokens=True)
        padding = len(special) - len(options.first_tokens) + (options.space_token is not None)
        data = tokenizer.to_str(pretty=True).encode("utf-8")
        file, end_of_text = folder / "tokenizer.json", options.special_tokens[0]
        write_atomic(file, data)
        figures, shown = measure(
            file, reading.sample, "a sample of the training text", self.dictionary
        )
        checked, failures = self._round_trip(tokenizer, figures)
        merges = json.loads(data)["model"].get("merges")
        algorithm = options.learner.title
        if (begin := options.superwords) is not None:
            algorithm = f"SuperBPE: byte-level BPE whose tokens span words from {begin} on"
        pattern, single = options.cutting, options.learner.splits_digits
        by_pattern = not single
        kept = options.learner.bytes_only and options.lossless  # it has no place for normal forms
        gguf_pattern = pattern.gguf if kept and by_pattern else None
        notes = [_gguf_note(options)] if by_pattern and not gguf_pattern else []
        card = TrainedCard(
            file=file.name,
            algorithm=algorithm,
            model=options.model,
            trainer="llmcurate",
            vocab_asked=size,
            vocab=actual,
            merges=trained.merges if merges is None else len(merges),
            newlines=options.newlines,
            gguf_pattern=gguf_pattern,
            max_token_length=options.max_token_length,
            byte_fallback=trained.byte_fallback,
            notes=notes,
            dictionary=self.dictionary.card() if self.dictionary else None,
            characters=trained.characters,
            character_coverage=trained.character_coverage,
            longest_word=trained.longest_word,
            sample=self.mixture.sample() if self.mixture else None,
            mixture=self.mixture.mixture() if self.mixture else None,
            digits=None if options.regex else "single" if single else options.cutting.digits,
            normalisation=options.normalize,
            space_token=options.space_token,
            lossless=options.lossless,
            special_tokens=special,
            end_of_text=end_of_text,
            reserved=options.reserved,
            padding=padding,
            documents=reading.documents,
            bytes=reading.bytes,
            texts_xxh3=f"{reading.digest:032x}",
            measured=figures,
            round_trip_checked=checked,
            settings=_settings(options),
            chat_template_sha256=_sha256(self.template.encode()) if self.template else None,
            gguf=_describe_gguf(folder, notes),
            tokenizer_sha256=_sha256(data),
            warnings=[*self._warnings(trained, size, actual - padding, figures), *failures],
            pattern=options.pattern_name if by_pattern else None,
            pattern_source=pattern.source if by_pattern else None,
            forbidden=list(options.forbid) if by_pattern else None,
            space_runs=options.space_runs if by_pattern else None,
            script_boundaries=options.script_boundaries if by_pattern else None,
            regex=list(pattern.parts) if by_pattern else None,
            min_frequency=options.min_frequency if by_pattern else None,
        )
        if trained.spm is not None:
            write_atomic(folder / "tokenizer.model", trained.spm)
        write_transformers(folder, tokenizer, end_of_text, self.template)
        card.write(folder / "tokenizer_card.json", shown)
        return card

    def _warnings(
        self, trained: Trained, size: int, tokens: int, figures: Measured
    ) -> Iterator[str]:
        """Warnings of what the corpus, or the vocabulary, is too small for."""
        options, coverage = self.options, trained.character_coverage
        if coverage is not None and coverage < options.coverage:
            fate = "unknown" if options.learner.unknown else "spelled in bytes"
            yield (
                f"vocab {size} is small for this corpus: characters beyond the commonest "
                f"{coverage:.4%} of the text are {fate}"
            )
        yield from self.mixture.warnings() if self.mixture else []
        if options.space_runs and not any(b"  " in p for p in self.reading.sample.pieces()):
            yield "space-runs: the corpus has no two spaces in a row, its tokens cost rows"
        if tokens < size:
            found = counted(trained.tokenizer.get_vocab_size(with_added_tokens=True), "token")
            yield f"{found} instead of {size}: the corpus is too small for more"

    def _round_trip(self, tokenizer: Tokenizer, figures: Measured) -> tuple[int, list[str]]:
        """(texts tried, a warning for what does not come back though it should). Where all of a
        text should, the sample's texts were tried when it was measured."""
        options, unknown = self.options, figures.unknown_share
        if not options.learner.exact:
            lost = f"{unknown:.2%} of the tokens of its own corpus are {options.learner.unknown}"
            return 0, [lost] if unknown else []
        texts, space = list(HARD_TEXTS), options.space_token
        if not options.lossless:
            texts += self.reading.sample.texts()
        if space:
            texts = [text for text in texts if space not in text]
        if self.normal:  # and no further
            texts = [self.normal.normalize_str(text) for text in texts]
        failures = round_trip_failures(tokenizer, texts)
        if options.lossless and figures.first_lost is not None:
            failures.append(figures.first_lost)
        checked = len(texts) + (figures.texts if options.lossless else 0)
        return checked, [f"does not round-trip: {text[:40]!r}" for text in failures]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Setting = str | int | float | list[str] | list[int] | None
# Of the options, what the card has elsewhere, with the content of the files that they name.
_NOT_SETTINGS = ("sizes", "dictionary", "chat_template")


def _settings(options: TrainingOptions) -> dict[str, Setting]:
    """Every option as it was given, as JSON values; null: the default of the model or pattern."""
    settings = {name: v for name, v in asdict(options).items() if name not in _NOT_SETTINGS}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}
