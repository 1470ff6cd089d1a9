"""Train a tokenizer and write it with a card that says how it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokenize_kit.bpe import train_sizes
from tokenize_kit.char_bpe import train_char_bpe
from tokenize_kit.errors import TokenizerError
from tokenize_kit.files import to_json, write_atomic
from tokenize_kit.options import UNKNOWN, TrainingOptions
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.transformers_files import special_tokens_map, tokenizer_config
from tokenize_kit.wordpiece import train_wordpiece

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenize_kit.mixture import Mixture

_ALGORITHMS = {
    "bpe": "byte-level BPE",
    "char-bpe": "character BPE with byte fallback",
    "wordpiece": "WordPiece",
    "unigram": "Unigram",
}
_PROBE_BYTES = 1 << 20
# Characters at once where digits are grouped from the right: there the library's time grows with
# the square of a number's length, and a document may be one number.
_PROBE_DIGITS = 10_000

# What tokenizers get wrong: control characters, both line ends, runs of spaces, marks without a
# base, joined emoji, the space symbol of SentencePiece, spellings of byte and control tokens.
HARD_TEXTS = (
    "a\x00b\x1f\x7f",
    "one\ntwo\r\nthree\rfour\n\n\n",
    " lead  and   trail    ",
    "\t\tif x:\n\t\t\treturn",
    " " * 5000 + "x",
    "\u0e48\u0301\u093f",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\u2581a\u2581\u2581 \u2581",
    "<0x41><0x0A><unk><|endoftext|>",
    "\ufeff\ufffd\U0010fffd",
)


@dataclass
class _Counted:
    """Passes texts and their weights through and counts them; keeps the first of them to check the
    round trip."""

    texts: Iterable[tuple[str, int]]
    documents: int = 0
    bytes: int = 0
    probe: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for text, weight in self.texts:
            self.documents += 1
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError as error:
                raise TokenizerError(
                    f"document {self.documents}: not Unicode text ({error.reason}); repair it first"
                ) from error
            if self.bytes + size <= _PROBE_BYTES:
                self.probe.append(text)
            self.bytes += size
            yield text, weight


def round_trip_failures(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The texts that do not come back exactly from encode and decode."""
    before = tokenizer.encode_special_tokens
    tokenizer.encode_special_tokens = True
    try:
        return [
            text
            for text in texts
            if tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) != text
        ]
    finally:
        tokenizer.encode_special_tokens = before


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
    ``tokenizer.model``, and ``tokenizer_card.json``, each whole or not at all, the card last.
    Nothing is normalised. The same texts give the same bytes, on any number of threads.

    Returns the cards. Raises ``TokenizerError`` for an empty corpus; fewer tokens than asked is a
    warning in the card.
    """
    if options.sample_bytes is not None or options.column is not None:
        raise ValueError("texts alone are not sampled or weighed: use train_on_corpus")
    return _train(_Counted((text, 1) for text in texts), out, options)


def train_on_corpus(
    batches: Callable[[], Iterator[pa.RecordBatch]], out: Path, options: TrainingOptions
) -> list[dict[str, Any]]:
    """As `train_tokenizers`, on documents: ``batches()`` reads all of them, in any order.

    Columns: text, and the one that the options' weights go by. For BPE the same documents in any
    order give the same tokens.
    """
    from tokenize_kit.mixture import Mixture

    mixture = Mixture(batches, options)
    return _train(_Counted(mixture.documents()), out, options, mixture)


def _train(
    counted: _Counted, out: Path, options: TrainingOptions, mixture: Mixture | None = None
) -> list[dict[str, Any]]:
    out.mkdir(parents=True, exist_ok=True)
    trained = _learned(counted, out, options, mixture.scale if mixture else 1)
    if not counted.bytes:
        raise TokenizerError("the corpus is empty: give at least one document with text")
    several = len(options.sizes) > 1
    cards = []
    for size, one in zip(options.sizes, trained, strict=True):
        folder = out / str(size) if several else out
        folder.mkdir(exist_ok=True)
        if mixture:
            one.details.update(mixture.card())
        more = mixture.warnings() if mixture else []
        cards.append(_write(one, folder, size, options, counted, more))
    return cards


@dataclass
class _Trained:
    """A tokenizer, what its card says of how it was made, SentencePiece's form if it has one."""

    tokenizer: Tokenizer
    details: dict[str, Any]
    spm: bytes | None = None


def _learned(counted: _Counted, out: Path, options: TrainingOptions, scale: int) -> list[_Trained]:
    """A tokenizer of every size, by the model that the options name."""
    if options.model == "unigram":
        return [_unigram(counted, out, options)]
    found: list[tuple[Tokenizer, dict[str, Any]]]
    if options.model == "bpe":
        found = [(tokenizer, {}) for tokenizer in train_sizes(counted, options, scale)]
    elif options.model == "char-bpe":
        found = train_char_bpe(counted, options, scale)
    else:
        found = train_wordpiece(counted, options, scale)
    return [_Trained(tokenizer, _cutting(options) | more) for tokenizer, more in found]


def _cutting(options: TrainingOptions) -> dict[str, Any]:
    """How the text was cut, for the card."""
    pattern, name = options.cutting, options.pattern_name
    gguf = pattern.gguf if options.model == "bpe" else None
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
        "notes": [] if gguf else [_without_gguf(options)],
    }


def _without_gguf(options: TrainingOptions) -> str:
    """Why llama.cpp could not run a model with this tokenizer, and what to train instead."""
    begin = "llama.cpp (files *.gguf) cannot use this tokenizer: it knows "
    if options.model != "bpe":
        return f"{begin}the model bpe, cut by one of its own patterns; any other program can use it"
    known = " or ".join(n for n, p in PATTERNS.items() if p.gguf)
    own = PATTERNS.get(options.pattern_name)
    around = options.forbid or options.newlines or options.space_runs or options.script_boundaries
    if own is None or not own.gguf or around:
        hint = f"--pattern {known} alone"
    else:
        hint = f"--digits {own.digits}"
    return (
        f"{begin}no pattern {options.pattern_name} with these rules; if you"
        f" want to run a model there, train with {hint}; any other program can use it"
    )


def _write(
    trained: _Trained,
    folder: Path,
    size: int,
    options: TrainingOptions,
    counted: _Counted,
    more_warnings: list[str],
) -> dict[str, Any]:
    """Writes the files of one size; its card."""
    tokenizer, details = trained.tokenizer, trained.details
    decoder = tokenizer.get_added_tokens_decoder()
    special = {token.content: n for n, token in sorted(decoder.items()) if token.special}
    actual = tokenizer.get_vocab_size(with_added_tokens=True)
    padding = len(special) - len(options.first_tokens)
    warnings = [*_coverage_warnings(size, options, details), *more_warnings]
    if actual - padding < size:
        warnings.append(f"{actual} tokens instead of {size}: the corpus is too small for more")
    probe = [*HARD_TEXTS, *counted.probe] if options.lossless else []
    if options.model != "unigram" and options.cutting.digits == "triples-right":
        starts = [(text, k) for text in probe for k in range(0, len(text), _PROBE_DIGITS)]
        probe = [text[k : k + _PROBE_DIGITS] for text, k in starts]
    for text in round_trip_failures(tokenizer, probe):
        warnings.append(f"does not round-trip: {text[:40]!r}")
    if not options.lossless:
        warnings += _unknown_warnings(tokenizer, counted.probe)
    data = tokenizer.to_str(pretty=True).encode("utf-8")
    merges = json.loads(data)["model"].get("merges")
    end_of_text = options.special_tokens[0]
    card: dict[str, Any] = {
        "algorithm": _ALGORITHMS[options.model],
        "model": options.model,
        "trainer": _trainer(options.learner),
        "vocab_asked": size,
        "vocab": actual,
        "merges": None if merges is None else len(merges),
        **details,
        "digits": _digits(options),
        "normalisation": "none",
        "lossless": options.lossless,
        "special_tokens": special,
        "end_of_text": end_of_text,
        "reserved": options.reserved,
        "padding": padding,
        "documents": counted.documents,
        "bytes": counted.bytes,
        "round_trip_checked": len(probe),
        "tokenizer_sha256": hashlib.sha256(data).hexdigest(),
        "warnings": warnings,
    }
    if trained.spm is not None:
        write_atomic(folder / "tokenizer.model", trained.spm)
    roles = special_tokens_map(list(special), end_of_text)
    write_atomic(folder / "special_tokens_map.json", to_json(roles))
    config = tokenizer_config(tokenizer, end_of_text)
    write_atomic(folder / "tokenizer_config.json", to_json(config))
    write_atomic(folder / "tokenizer.json", data)
    write_atomic(folder / "tokenizer_card.json", to_json(card))
    return card


def _digits(options: TrainingOptions) -> str | None:
    if options.regex:
        return None
    return "single" if options.model == "unigram" else options.cutting.digits


def _trainer(learner: str) -> str:
    return "llmcurate" if learner == "own" else f"{learner} {version(learner)}"


def _coverage_warnings(size: int, options: TrainingOptions, details: dict[str, Any]) -> list[str]:
    """Where so small a vocabulary holds fewer characters than were asked for."""
    coverage = details.get("character_coverage")
    if coverage is None or coverage >= options.coverage:
        return []
    fate = "unknown" if options.model == "wordpiece" else "spelled in bytes"
    return [
        f"vocab {size} is small for this corpus: characters beyond the commonest "
        f"{coverage:.4%} of the text are {fate}"
    ]


def _unknown_warnings(tokenizer: Tokenizer, probe: list[str]) -> list[str]:
    """The share of tokens that stand for words the vocabulary cannot spell."""
    unknown = tokenizer.token_to_id(UNKNOWN)
    tokens = lost = 0
    for text in probe:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokens, lost = tokens + len(ids), lost + sum(number == unknown for number in ids)
    return [f"{lost / tokens:.2%} of the tokens of its own corpus are {UNKNOWN}"] if lost else []


def _unigram(counted: _Counted, out: Path, options: TrainingOptions) -> _Trained:
    from tokenize_kit.unigram import spill, train_unigram  # needs sentencepiece

    spilled = out / ".tokenizer-corpus.partial"
    try:
        corpus = spill((text for text, _ in counted), spilled)
        if not counted.bytes:
            raise TokenizerError("the corpus is empty: give at least one document with text")
        spm, tokenizer, coverage = train_unigram(
            corpus,
            vocab=options.sizes[0],
            special_tokens=options.first_tokens,
            coverage=options.coverage,
        )
    finally:
        spilled.unlink(missing_ok=True)
        spilled.with_name(spilled.name + ".cut").unlink(missing_ok=True)
    details = {
        "notes": [],
        "byte_fallback": True,
        "character_coverage": coverage,
        "sentences": corpus.lines,
    }
    return _Trained(tokenizer, details, spm)
