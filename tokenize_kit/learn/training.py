"""The training of tokenizers, each written with a card of how it was made."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import xxhash
from tokenizers import Tokenizer, normalizers
from tokenizers.normalizers import Normalizer

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import encode_json
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from tokenize_kit.card.figures import Sample, measure
from tokenize_kit.card.page import write_card
from tokenize_kit.formats.gguf import names_in, to_metadata
from tokenize_kit.formats.json_forms import form_from_json
from tokenize_kit.formats.tokenizer_json import (
    load_tokenizer,
    parts_of,
    special_tokens_map,
    tokenizer_config,
)
from tokenize_kit.judge.compare import HARD_TEXTS, round_trip_failures
from tokenize_kit.learn.bpe import train_char_bpe, train_sizes
from tokenize_kit.learn.cutting import normaliser
from tokenize_kit.learn.options import UNKNOWN, TrainingOptions
from tokenize_kit.learn.wordpiece import train_wordpiece
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.segment.dictionary import Dictionary, read_dictionary

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenize_kit.learn.mixture import Mixture


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


_ALGORITHMS = {
    "bpe": "byte-level BPE",
    "char-bpe": "character BPE with byte fallback",
    "wordpiece": "WordPiece",
    "unigram": "Unigram",
}


def _algorithm(options: TrainingOptions) -> str:
    if options.superwords is not None:
        return f"SuperBPE: byte-level BPE whose tokens span words from {options.superwords} on"
    return _ALGORITHMS[options.model]


# Of the options, what the card has elsewhere, with the content of the files that they name.
_NOT_SETTINGS = ("sizes", "dictionary", "chat_template")


class Reading(Protocol):
    """The texts of a training: documents, bytes, a hash of all of them, and a sample to measure
    on."""

    documents: int
    bytes: int
    digest: int
    sample: Sample


@dataclass
class Trained:
    """A tokenizer, what its card says of how it was made, SentencePiece's form if it has one."""

    tokenizer: Tokenizer
    details: dict[str, Any]
    spm: bytes | None = None


def describe_cutting(options: TrainingOptions) -> dict[str, Any]:
    """The entries of the card about the cutting of text."""
    pattern, name = options.cutting, options.pattern_name
    kept = options.model == "bpe" and options.lossless  # it has no place for normal forms
    gguf = pattern.gguf if kept else None
    return {
        "pattern": name,
        "pattern_source": pattern.source,
        "forbidden": list(options.forbid),
        "newlines": options.newlines,
        "space_runs": options.space_runs,
        "script_boundaries": options.script_boundaries,
        "regex": list(pattern.parts),
        "gguf_pattern": gguf,
        "min_frequency": options.min_frequency if options.learner != "sentencepiece" else None,
        "max_token_length": options.max_token_length,
        "byte_fallback": False,
        "notes": [] if gguf else [_gguf_note(options)],
    }


def _gguf_note(options: TrainingOptions) -> str:
    """Why llama.cpp could not run a model with this tokenizer, and what to train instead."""
    begin = "llama.cpp (files *.gguf) cannot use this tokenizer: it knows "
    if options.model != "bpe":
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


def describe_gguf(folder: Path, details: dict[str, Any]) -> dict[str, str]:
    """The names under which llama.cpp knows the model and its pattern, as `convert` writes them, or
    `refused`: why it cannot hold this tokenizer."""
    if details["notes"]:
        return {"refused": details["notes"][0]}
    try:
        parts = parts_of(load_tokenizer(folder / "tokenizer.json"))
        return names_in(to_metadata(form_from_json(parts)))
    except LlmcurateError as error:
        return {"refused": str(error)}


def write_tokenizer(
    trained: Trained,
    folder: Path,
    size: int,
    options: TrainingOptions,
    reading: Reading,
    more_warnings: list[str],
    normal: Normalizer | None,
    template: str | None,
    dictionary: Dictionary | None,
) -> dict[str, Any]:
    """Writes the files of one size; its card."""
    tokenizer, details = trained.tokenizer, trained.details
    decoder = tokenizer.get_added_tokens_decoder()
    special = {token.content: n for n, token in sorted(decoder.items()) if token.special}
    actual = tokenizer.get_vocab_size(with_added_tokens=True)
    padding = len(special) - len(options.first_tokens) + (options.space_token is not None)
    warnings = [*_coverage_warnings(size, options, details), *more_warnings]
    if options.space_runs and not any(b"  " in piece for piece in reading.sample.pieces()):
        warnings.append("space-runs: the corpus has no two spaces in a row, its tokens cost rows")
    if actual - padding < size:
        warnings.append(
            f"{counted(actual, 'token')} instead of {size}: the corpus is too small for more"
        )
    data = tokenizer.to_str(pretty=True).encode("utf-8")
    write_atomic(folder / "tokenizer.json", data)
    file = folder / "tokenizer.json"
    figures = measure(file, reading.sample, "a sample of the training text", dictionary)
    checked, failures = _round_trip(tokenizer, options, reading.sample, figures, normal)
    warnings += failures
    if options.model == "wordpiece" and figures["unknown_share"]:
        share = figures["unknown_share"]
        warnings.append(f"{share:.2%} of the tokens of its own corpus are {UNKNOWN}")
    merges = json.loads(data)["model"].get("merges")
    end_of_text = options.special_tokens[0]
    card: dict[str, Any] = {
        "file": "tokenizer.json",
        "algorithm": _algorithm(options),
        "model": options.model,
        "trainer": _trainer(options.learner),
        "vocab_asked": size,
        "vocab": actual,
        "merges": None if merges is None else len(merges),
        **details,
        "digits": _digits(options),
        "normalisation": options.normalise,
        "space_token": options.space_token,
        "lossless": options.lossless,
        "special_tokens": special,
        "end_of_text": end_of_text,
        "reserved": options.reserved,
        "padding": padding,
        "documents": reading.documents,
        "bytes": reading.bytes,
        "texts_xxh3": f"{reading.digest:032x}",
        "measured": figures,
        "round_trip_checked": checked,
        "settings": _settings(options),
        "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest() if template else None,
        "gguf": describe_gguf(folder, details),
        "tokenizer_sha256": hashlib.sha256(data).hexdigest(),
        "warnings": warnings,
    }
    if trained.spm is not None:
        write_atomic(folder / "tokenizer.model", trained.spm)
    roles = special_tokens_map(list(special), end_of_text)
    write_atomic(folder / "special_tokens_map.json", encode_json(roles))
    config = tokenizer_config(tokenizer, end_of_text)
    if template is not None:
        config["chat_template"] = template
    write_atomic(folder / "tokenizer_config.json", encode_json(config))
    write_card(folder / "tokenizer_card.json", card)
    return card


def _round_trip(
    tokenizer: Tokenizer,
    options: TrainingOptions,
    sample: Sample,
    figures: dict[str, Any],
    normal: Normalizer | None,
) -> tuple[int, list[str]]:
    """(texts tried, a warning for what does not come back though it should). Where all of a text
    should, the sample's texts were tried when it was measured."""
    if options.model == "wordpiece":
        return 0, []
    texts, space = list(HARD_TEXTS), options.space_token
    if not options.lossless:
        texts += sample.texts()
    if space:
        texts = [text for text in texts if space not in text]
    if normal:  # and no further
        texts = [normal.normalize_str(text) for text in texts]
    failures = round_trip_failures(tokenizer, texts)
    if options.lossless and figures["lost"]:
        failures.append(figures["first_lost"])
    checked = len(texts) + (figures["texts"] if options.lossless else 0)
    return checked, [f"does not round-trip: {text[:40]!r}" for text in failures]


def _settings(options: TrainingOptions) -> dict[str, Any]:
    """Every option as it was given, as JSON values; null: the default of the model or pattern."""
    settings = {name: v for name, v in asdict(options).items() if name not in _NOT_SETTINGS}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}


def _digits(options: TrainingOptions) -> str | None:
    if options.regex:
        return None
    return "single" if options.model == "unigram" else options.cutting.digits


def _trainer(learner: str) -> str:
    return "llmcurate" if learner == "own" else f"{learner} {version(learner)}"


def _coverage_warnings(size: int, options: TrainingOptions, details: dict[str, Any]) -> list[str]:
    """A warning where the vocabulary holds fewer characters than were asked for."""
    coverage = details.get("character_coverage")
    if coverage is None or coverage >= options.coverage:
        return []
    fate = "unknown" if options.model == "wordpiece" else "spelled in bytes"
    return [
        f"vocab {size} is small for this corpus: characters beyond the commonest "
        f"{coverage:.4%} of the text are {fate}"
    ]


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
