"""Train tokenizers and write each with a card."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash
from tokenizers import Tokenizer, normalizers

from llmcurate.base.disk.files import read_text, write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.roles import Roles, spelled_roles
from llmcurate.base.tokenizer_file import load_tokenizer, special_ids
from tokenize_kit.card import Card, Measured, Sample, code_span, measure
from tokenize_kit.formats.forms import CannotHold
from tokenize_kit.formats.gguf import names_in, to_metadata
from tokenize_kit.formats.json_forms import form_from_json
from tokenize_kit.formats.tokenizer_json import parts_of, write_transformers
from tokenize_kit.judge.compare import HARD_TEXTS, round_trip_failures
from tokenize_kit.learn.bpe import Trained
from tokenize_kit.learn.cutting import normaliser
from tokenize_kit.learn.mixture import Mixture, MixtureRead, SampleDrawn
from tokenize_kit.learn.options import LEARNERS, TrainingOptions
from tokenize_kit.learn.programs import refusals, way_to_llama_cpp
from tokenize_kit.segment import DictionaryCard, read_dictionary

if TYPE_CHECKING:
    import pyarrow as pa


def read_template(path: Path) -> str:
    """Read a chat template (Jinja) for tokenizer_config.json. Raises LlmcurateError naming the file
    and, if the Jinja is invalid, the line."""
    text = read_text(path, "chat template ")
    if not text.strip():
        raise _template_error(path, "it is empty")
    from jinja2 import TemplateSyntaxError

    from llmcurate.base.chat_template import Sandbox

    try:
        Sandbox().template(text)
    except TemplateSyntaxError as error:
        raise _template_error(path, f"line {error.lineno}: {error.message}") from None
    return text


def _template_error(path: Path, reason: str) -> LlmcurateError:
    return UsageError(f"chat template {path}: {reason}")


@dataclass(frozen=True, kw_only=True)
class TrainedCard(Card):
    """The card of a trained tokenizer. For Unigram, fields on patterns to split text are None."""

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
        return LEARNERS[self.model].has_model_file

    def origin(self) -> str:
        sentence = f"Trained by {self.trainer} on {counted(self.documents, 'document')}"
        return f"{sentence} ({self.bytes:,} bytes of text)."

    def round_trip(self) -> str:
        learner = LEARNERS[self.model]
        normalised = "" if self.normalisation == "none" else f" ({self.normalisation})"
        if not learner.exact:
            text = f"Decoding changes the text: white space is dropped, and {learner.unspelled}."
            return f"{text} The text is normalized{normalised} first." if normalised else text
        if self.lossless:
            return (
                f"Decoding returns the exact text: nothing is normalized, and {learner.unspelled}."
            )
        changes = [f"it is normalized{normalised} first"] if normalised else []
        if self.space_token:
            changes.append(f"{code_span(self.space_token)} becomes a space")
        changed = ", and ".join(changes)
        return (
            f"Decoding returns the text with these changes: {changed}. Also, {learner.unspelled}."
        )


def _describe_gguf(folder: Path, options: TrainingOptions, roles: Roles) -> dict[str, str]:
    try:
        if reason := refusals(options)["llama.cpp"]:
            raise CannotHold(f"{reason}; {way_to_llama_cpp(options)}")
        parts = parts_of(load_tokenizer(folder / "tokenizer.json"))
        return names_in(to_metadata(replace(form_from_json(parts), roles=roles)))
    except CannotHold as error:
        return {"refused": f"llama.cpp (GGUF) cannot use this tokenizer: {error}"}


# Called with (finished stage, its seconds) or (progress so far, None).
Report = Callable[[str, float | None], None]
_REPORT_SECONDS = 10.0  # between two progress lines


class Stages:
    """Reports the stages of training and the seconds of each. The written files do not depend on
    these reports."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._stage_start = self._last_report = time.monotonic()

    def progress(self, documents: int, size: int) -> None:
        if self._report and (now := time.monotonic()) - self._last_report >= _REPORT_SECONDS:
            self._last_report = now
            self._report(
                f"read {size / 1e6:,.1f} MB in {counted(documents, 'document')} so far", None
            )

    def done(self, task: str) -> None:
        now = time.monotonic()
        if self._report:
            self._report(task, now - self._stage_start)
        self._stage_start = self._last_report = now


_EMPTY = "the corpus is empty: give at least one document with text"


@dataclass
class Counted:
    """Yields texts with their weights, counts them, samples them for measuring, and reports
    progress. digest: the sum of the texts' xxh3-128 hashes modulo 2^128, which ignores their order.
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
    """Train a tokenizer on `texts` (one string per document), write it into the folder `out` and
    return its card. settings: other fields of TrainingOptions. See `train_tokenizers`."""
    return train_tokenizers(texts, out, TrainingOptions(sizes=(vocab,), **settings))[0]


def train_tokenizers(
    texts: Iterable[str], out: Path, options: TrainingOptions
) -> list[TrainedCard]:
    """Train tokenizers on `texts` (one string per document) and write one of every size in options.

    Options for sampling and weights are refused: use `train_on_corpus` for these.

    One size is written into the folder `out`, several sizes into `out/SIZE`. The files are
    `tokenizer.json`; `tokenizer_config.json` and `special_tokens_map.json` (for transformers);
    `tokenizer.model` (unigram only); `tokenizer_card.md` and `tokenizer_card.json`. Each file is
    written atomically, the card last. The same texts give the same bytes on any number of threads.

    Return the cards. Raises `LlmcurateError` for an empty corpus. If a tokenizer has fewer tokens
    than asked for, its card has a warning."""
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
    """Train on documents as `train_tokenizers` does. `batches()` yields all documents, in any
    order. They have the column `text` and, if the options have weights or a temperature, the column
    to which these apply. For BPE, the order of documents does not change the tokens. report: a
    function that is called with the name of each stage and the seconds it took."""
    stages = Stages(report)
    mixture = Mixture(batches, options)
    if options.sample_bytes is not None or options.temperature is not None:
        stages.done("read the corpus for the sample or the weights")
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
            steps = [self.normal, spaces] if spaces else [self.normal]
            tokenizer.normalizer = normalizers.Sequence(steps)
        special = special_ids(tokenizer)
        actual = tokenizer.get_vocab_size(with_added_tokens=True)
        padding = sum(token in special for token in options.padding)
        data = tokenizer.to_str(pretty=True).encode("utf-8")
        file = folder / "tokenizer.json"
        roles = spelled_roles(special)
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
        gguf = _describe_gguf(folder, options, roles)
        card = TrainedCard(
            file=file.name,
            algorithm=algorithm,
            model=options.model,
            trainer="llmcurate",
            vocab_asked=size,
            vocab=actual,
            merges=trained.merges if merges is None else len(merges),
            newlines=options.newlines,
            gguf_pattern=gguf.get("tokenizer.ggml.pre"),
            max_token_length=options.max_token_length,
            byte_fallback=trained.byte_fallback,
            notes=[gguf["refused"]] if "refused" in gguf else [],
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
            end_of_text=next(name for name, n in special.items() if n == roles.end),
            reserved=options.reserved,
            padding=padding,
            documents=reading.documents,
            bytes=reading.bytes,
            texts_xxh3=f"{reading.digest:032x}",
            measured=figures,
            round_trip_checked=checked,
            settings=_settings(options),
            chat_template_sha256=_sha256(self.template.encode()) if self.template else None,
            gguf=gguf,
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
        write_transformers(folder, tokenizer, roles, self.template)
        card.write(folder / "tokenizer_card.json", shown)
        return card

    def _warnings(
        self, trained: Trained, size: int, tokens: int, figures: Measured
    ) -> Iterator[str]:
        options, coverage = self.options, trained.character_coverage
        if coverage is not None and coverage < options.coverage:
            fate = "unknown" if options.learner.unknown else "spelled in bytes"
            yield (
                f"vocab {size} is small for this corpus: characters beyond the commonest "
                f"{coverage:.4%} of the text are {fate}"
            )
        yield from self.mixture.warnings() if self.mixture else []
        if options.space_runs and not any(b"  " in p for p in self.reading.sample.pieces()):
            yield "space-runs: the corpus has no two spaces in a row; leave space-runs out"
        if tokens < size:
            found = counted(trained.tokenizer.get_vocab_size(with_added_tokens=True), "token")
            why = f"no other two tokens stand side by side {options.min_frequency} times in a word"
            if options.model == "unigram":
                why = "the corpus has too few different words for more"
            yield f"{found} instead of {size}: {why}"

    def _round_trip(self, tokenizer: Tokenizer, figures: Measured) -> tuple[int, list[str]]:
        """Return the number of texts tried, and a warning for each that is not decoded exactly. For
        a lossless tokenizer, `figures` already holds this result, so texts are not tried again."""
        options, unknown = self.options, figures.unknown_share
        if not options.learner.exact:
            lost = f"{unknown:.2%} of the tokens of its own corpus are {options.learner.unknown}"
            return 0, [lost] if unknown else []
        texts, space = list(HARD_TEXTS), options.space_token
        if not options.lossless:
            texts += self.reading.sample.texts()
        if space:
            texts = [text for text in texts if space not in text]
        if self.normal:  # decoding must return the normalized text
            texts = [self.normal.normalize_str(text) for text in texts]
        failures = round_trip_failures(tokenizer, texts)
        if options.lossless and figures.first_lost is not None:
            failures.append(figures.first_lost)
        checked = len(texts) + (figures.texts if options.lossless else 0)
        return checked, [f"does not round-trip: {text[:40]!r}" for text in failures]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Setting = str | int | float | list[str] | list[int] | None
# Options that the card records elsewhere, with the content of the files they name.
_NOT_SETTINGS = ("sizes", "dictionary", "chat_template")


def _settings(options: TrainingOptions) -> dict[str, Setting]:
    settings = {name: v for name, v in asdict(options).items() if name not in _NOT_SETTINGS}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}
