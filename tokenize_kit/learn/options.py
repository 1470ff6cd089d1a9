"""Options for training a tokenizer, checked before any text is read."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import SPELLINGS
from llmcurate.base.settings import dataclass
from tokenize_kit.formats.tokenizer_json import LETTERS
from tokenize_kit.learn.cutting import (
    MOST_SPACES,
    Newlines,
    Normal,
    compose,
    own_pattern,
)
from tokenize_kit.pattern.named import PATTERNS, Digits, Pattern, pattern_with, superwords

GRAIN, MOST = 1000, 1000  # weights are whole thousandths, at most 1000
OTHERS = "*"


@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights of documents by their value in a column. others: the weight for other values."""

    column: str
    by_value: dict[str, Fraction]
    others: Fraction = Fraction(1)

    @property
    def scale(self) -> int:
        return math.lcm(*(w.denominator for w in (*self.by_value.values(), self.others)))

    def times(self, value: str) -> int:
        return int(self.by_value.get(value, self.others) * self.scale)


def parse_weights(text: str) -> Weights:
    """Parse weights such as `lang=th:3,en:0.5,*:1`. Raises LlmcurateError (exit code 2) if they are
    invalid."""
    column, equals, pairs = text.partition("=")
    if not column or not equals:
        raise UsageError(
            f"weights {text!r}: write column=value:weight,..., for example lang=th:3,en:0.5"
        )
    weights: dict[str, Fraction] = {}
    for part in pairs.split(","):
        value, colon, number = part.rpartition(":")
        try:
            weight = Fraction(number)
        except (ValueError, ZeroDivisionError):
            colon = ""
        if not colon or not value or "/" in number:
            raise UsageError(f"weights: {part!r} is not value:weight, as in lang=th:3")
        if not 0 <= weight <= MOST or GRAIN % weight.denominator:
            raise UsageError(f"weights: {part!r}: give 0 to {MOST} with three decimals at most")
        if value in weights:
            raise UsageError(f"weights: {value!r} is given twice")
        weights[value] = weight
    others = weights.pop(OTHERS, Fraction(1))
    if not any((*weights.values(), others)):
        raise UsageError("weights: not all of them can be 0")
    return Weights(column, weights, others)


def tempered(column: str, sizes: dict[str, int], temperature: float) -> Weights:
    """Return weights by which each value of a column gets a share of the text in proportion to (its
    bytes) ** (1 / temperature) (Arivazhagan et al. 2019). The value with the most bytes has weight
    1; weights are whole thousandths from 0.001 to 1000. sizes: {value: bytes of its documents}."""
    largest = max(sizes.values(), default=0)
    weights = {}
    for value, size in sorted(sizes.items()):
        if size:
            # In logarithms, because a ratio to a high power overflows a float.
            power = (1 - 1 / temperature) * math.log(largest / size)
            weight = math.exp(min(power, math.log(MOST)))
            weights[value] = max(Fraction(round(weight * GRAIN), GRAIN), Fraction(1, GRAIN))
    return Weights(column, weights)


if TYPE_CHECKING:
    PatternName = str
else:
    PatternName = Literal[tuple(PATTERNS)]
COVERAGE = 0.9995  # SentencePiece's default: rarer characters are spelled in bytes
DEFAULT_PATTERN = "o200k"
UNKNOWN = "[UNK]"
MOST_PADDING, MOST_RESERVED = 4096, 1 << 20
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_RESERVED = re.compile(r"<\|reserved_\d+\|>")


class Learner:
    """An algorithm that learns a vocabulary, with its limits and defaults. The decorator `@learner`
    registers a subclass."""

    name: ClassVar[str]
    title: ClassVar[str]  # on cards
    trains: ClassVar[str]  # MODULE:FUNCTION
    pattern: ClassVar[str] = DEFAULT_PATTERN
    own_digits: ClassVar[bool] = False  # use the default pattern's rule for digits
    symbols: ClassVar[int] = 256  # tokens that learning starts with
    special_tokens: ClassVar[tuple[str, ...]] = SPELLINGS["ends"][:1]
    coverage: ClassVar[float] = COVERAGE
    bytes_only: ClassVar[bool] = False  # symbols are bytes, not characters
    exact: ClassVar[bool] = True  # decoding returns the (normalized) text exactly
    unknown: ClassVar[str] = ""  # the token for words that cannot be spelled
    unspelled: ClassVar[str] = "a character without a token is spelled in bytes"
    splits_digits: ClassVar[bool] = False
    superwords: ClassVar[bool] = False
    character_seeds: ClassVar[bool] = False
    library_normal_forms: ClassVar[bool] = False  # False: all are SentencePiece's
    has_model_file: ClassVar[bool] = False  # a tokenizer.model is written too

    @classmethod
    def check(cls, options: TrainingOptions) -> None:
        """Raise LlmcurateError (exit code 2) for the first option that is not supported."""
        cls.check_own(options)
        if options.superwords is not None:
            _check_superwords(options, options.superwords)
        if options.character_seeds and not cls.character_seeds:
            raise UsageError("character-seeds: only for the model unigram")

    @classmethod
    def check_own(cls, options: TrainingOptions) -> None:
        """Raise LlmcurateError for options that this learner refuses and other learners accept."""
        if options.pattern == "bert":
            raise UsageError("pattern bert: only for wordpiece, which drops white space")


LEARNERS: dict[str, type[Learner]] = {}


def learner(name: str) -> Callable[[type[Learner]], type[Learner]]:
    """Register a class of learners under the name by which the option `model` selects it."""

    def register(cls: type[Learner]) -> type[Learner]:
        cls.name, LEARNERS[name] = name, cls
        return cls

    return register


@learner("bpe")
class ByteBpeLearner(Learner):
    """BPE over bytes. With `superwords`, tokens may span words."""

    title = "byte-level BPE"
    trains = "tokenize_kit.learn.bpe:train_byte_bpe"
    bytes_only = True
    unspelled = "characters without a token are stored as bytes"
    superwords = True

    @classmethod
    def check_own(cls, options: TrainingOptions) -> None:
        super().check_own(options)
        if options.character_coverage is not None:
            raise UsageError("character-coverage: bpe merges bytes; leave it out, or use char-bpe")


@learner("char-bpe")
class CharBpeLearner(Learner):
    """BPE over characters; rare characters are spelled in bytes."""

    title = "character BPE with byte fallback"
    trains = "tokenize_kit.learn.bpe:train_char_bpe"
    pattern = "metaspace"


@learner("wordpiece")
class WordPieceLearner(Learner):
    """BERT's WordPiece, learned as BPE over characters. Encoding takes the longest token first."""

    title = "WordPiece"
    trains = "tokenize_kit.learn.wordpiece:train_wordpiece"
    pattern = "bert"
    own_digits = True
    symbols = 0
    special_tokens = ("[SEP]", UNKNOWN, "[CLS]", "[PAD]", "[MASK]")  # end of text first
    coverage = 1.0
    exact = False
    unknown = UNKNOWN
    unspelled = "a word that the vocabulary cannot spell is an unknown token"

    @classmethod
    def check_own(cls, options: TrainingOptions) -> None:
        excluded = {
            "pattern": options.pattern not in (None, cls.pattern),
            "graphemes": options.graphemes,
            "regex": bool(options.regex),
            "newlines": options.newlines is not None,
            "space-runs": bool(options.space_runs),
            "space-token": options.space_token is not None,
        }
        _refuse(excluded, "wordpiece is cut by BERT's pattern; leave it out")


@learner("unigram")
class UnigramLearner(Learner):
    """SentencePiece's Unigram: pieces with probabilities; rare characters are spelled in bytes."""

    title = "Unigram"
    trains = "tokenize_kit.learn.unigram:train_unigram"
    splits_digits = True
    character_seeds = True
    library_normal_forms = True
    has_model_file = True

    @classmethod
    def check_own(cls, options: TrainingOptions) -> None:
        if options.character_seeds:
            given = {"dictionary": options.dictionary is not None}
            _refuse(given, "not with character-seeds; leave one of them out")
        if options.normalize in ("nfc", "bert"):
            raise UsageError(
                f"normalize {options.normalize}: SentencePiece has no such rule; use nmt_nfkc"
            )
        if options.digits not in (None, "single"):
            raise UsageError("unigram splits digits one by one: use digits single")
        excluded = {
            "pattern": options.pattern not in (None, "metaspace"),  # SentencePiece has only this
            "regex": bool(options.regex),
            "graphemes": options.graphemes,
            "forbid": bool(options.forbid),
            "newlines": options.newlines is not None,
            "space-runs": bool(options.space_runs),
            "script-boundaries": options.script_boundaries,  # SentencePiece always has them
            "min-frequency": options.min_frequency != 2,
            "max-token-length": options.max_token_length is not None,
        }
        _refuse(excluded, "not for unigram; use bpe or char-bpe")


def _refuse(given: dict[str, bool], reason: str) -> None:
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name}: {reason}")


def _check_superwords(options: TrainingOptions, superwords: int) -> None:
    if not options.learner.superwords:
        raise UsageError("superwords: only for the model bpe")
    excluded = {
        "regex": bool(options.regex),
        "graphemes": options.pattern_name == "graphemes",
        "dictionary": options.dictionary is not None,
        "space-token": options.space_token is not None,
    }
    _refuse(excluded, "not with superwords; leave one of them out")
    least, size = options.least_size, min(options.sizes, default=0)
    if not least <= superwords < size:
        raise UsageError(f"superwords {superwords}: give {least} to {size - 1}")


if TYPE_CHECKING:
    Model = str
else:
    Model = Literal[tuple(LEARNERS)]


def reserved(number: int) -> str:
    return f"<|reserved_{number}|>"


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training. The value `None` means that the model or the pattern gives the
    default. Raises LlmcurateError (exit code 2) for an invalid option or combination of options."""

    model: Model = "bpe"
    """The model: `bpe` over bytes, `char-bpe` over characters, `wordpiece` or `unigram`."""
    sizes: tuple[int, ...] = (32_000,)
    """Size of the vocabulary in tokens, special and reserved tokens included. Each of several sizes
    gets a folder."""
    pattern: PatternName | None = None
    """Name of the pre-tokenisation pattern. Without a value: `o200k`, `metaspace` for char-bpe,
    `bert` for wordpiece."""
    regex: tuple[str, ...] = ()
    """Regular expressions that cut texts, applied one after the other, instead of a named
    pattern."""
    graphemes: bool = False
    """Never cut a grapheme cluster (UAX #29)."""
    digits: Digits | None = None
    """How runs of digits are cut. Without a value, a named pattern decides; without a named
    pattern, digits are cut one by one."""
    forbid: tuple[str, ...] = ()
    """Strings that are always tokenized apart from the text around them."""
    newlines: Newlines | None = None
    """How newlines are cut: each is one piece (`single`), or a run of newlines is one piece
    (`runs`). Without a value, the pattern decides."""
    space_runs: int = Field(0, ge=0, le=MOST_SPACES)
    """Each run of 2 up to this many spaces is one token; 0 adds no such tokens."""
    script_boundaries: bool = False
    """Never let a token span two scripts."""
    dictionary: str | None = None
    """Path of a file of Thai, Lao, Khmer and Burmese words. In training, texts are cut into these
    words."""
    space_token: str | None = None
    """The token that replaces every space."""
    normalize: Normal = "none"
    """Unicode normal form that texts are converted to first. `_cf` forms also fold case; `bert` is
    BERT's lower case without accents; `none` changes nothing."""
    chat_template: str | None = None
    """Path of a chat template to write into tokenizer_config.json."""
    special_tokens: tuple[str, ...] = ("<|endoftext|>",)
    """Special tokens, which get the first ids. One must name an end of text, such as `</s>`."""
    reserved: int = Field(0, ge=0, le=MOST_RESERVED)
    """Number of tokens `<|reserved_0|>` and so on, kept free for later use."""
    pad_to: int = Field(1, ge=1, le=MOST_PADDING)
    """Make the size of the vocabulary a multiple of this number, by reserved tokens at its end."""
    min_frequency: int = Field(2, ge=1)
    """Smallest number of occurrences of a merged pair."""
    max_token_length: int | None = Field(None, ge=2)
    """Largest length of a token in bytes (in characters for char-bpe and wordpiece). Without a
    value there is no limit."""
    superwords: int | None = Field(None, ge=2)
    """Size of the vocabulary from which tokens may span up to four words (SuperBPE, Liu et al.
    2025). Without a value, no token spans words."""
    character_coverage: float | None = Field(None, gt=0, le=1)
    """Share of the text's characters that are tokens; not for bpe. Without a value: 0.9995, and 1
    for wordpiece."""
    character_seeds: bool = False
    """Start unigram from substrings followed by different characters, not different bytes, and keep
    pieces expected at least twice. Gives more bytes per token in Thai, Lao, Khmer and Burmese, and
    other pieces than SentencePiece."""
    sample_bytes: int | None = Field(None, ge=1)
    """Largest number of bytes of text to train on; documents are drawn by the hash of their text.
    Without a value, all text is used."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """Seed of the sample."""
    weights: str | None = None
    """Weights of documents by the values of a column: `lang=th:3,en:0.5`; `*` means all other
    values."""
    temperature: float | None = Field(None, ge=0.1)
    """Temperature for groups of documents by the column `by`: a group's share is proportional to
    its bytes ** (1 / temperature) (Arivazhagan et al. 2019)."""
    by: str | None = None
    """Column of the groups for the temperature. Without a value: `lang`."""

    SECTIONS: ClassVar[dict[str, str]] = {
        **{"pattern": "Cuts of texts", "space_token": "Texts", "special_tokens": "Vocabulary"},
        **{"sample_bytes": "Sample and weights"},
    }

    def __post_init__(self) -> None:
        self._check_cutting()
        _check_mixture(self)
        self.learner.check(self)
        self._check_special()
        self._check_sizes()

    def _check_cutting(self) -> None:
        named = [n for n, v in (("pattern", self.pattern), ("regex", self.regex)) if v]
        named += ["graphemes"] if self.graphemes and self.pattern != "graphemes" else []
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)}: give one of them")
        if self.regex and self.digits is not None:
            raise UsageError("digits: regex says how numbers are cut; leave it out")
        if self.regex:
            own_pattern(self.regex)
        if self.pattern_name == "graphemes" and self.script_boundaries:
            raise UsageError(
                "script-boundaries: a cluster may hold two scripts; leave out graphemes"
            )
        if self.pattern_name == "graphemes" and self.digits == "triples-right":
            raise UsageError(
                "digits triples-right: not with graphemes; use triples, single or free"
            )
        if self.space_runs == 1:
            raise UsageError(f"space-runs 1: give a number from 2 to {MOST_SPACES}, or 0 for none")
        if self.space_token is not None and self.space_runs:
            raise UsageError("space-token and space-runs: give one of them")
        if not all(self.forbid) or len(set(self.forbid)) != len(self.forbid):
            raise UsageError("forbid: give each string once, and no empty string")

    def _check_special(self) -> None:
        tokens = () if self.special_tokens == Learner.special_tokens else self.special_tokens
        if not set(tokens) & set(SPELLINGS["ends"]):
            tokens = (*self.learner.special_tokens, *tokens)
            object.__setattr__(self, "special_tokens", tokens)
        if self.learner.unknown and self.learner.unknown not in tokens:
            raise UsageError(f"special tokens: {self.model} needs {self.learner.unknown}")
        if self.space_token is not None:
            tokens = (*tokens, self.space_token)
        if len(set(tokens)) != len(tokens):
            raise UsageError("special tokens: give each once")
        for token in tokens:
            # In bytes, other signs are allowed, but not the letters that stand for bytes.
            other = self.learner.bytes_only and not set(token) <= set(LETTERS)
            fits = (token.isascii() or other) and token.isprintable()
            if len(token) < 2 or not fits or " " in token:
                raise UsageError(
                    f"special token {token!r}: use two or more printable ASCII characters, no space"
                )
            if not self.learner.bytes_only and _BYTE_PIECE.fullmatch(token):
                raise UsageError(f"special token {token!r}: that is the token of a byte")
            if _RESERVED.fullmatch(token):
                raise UsageError(f"special token {token!r}: this is a reserved token, use reserved")

    def _check_sizes(self) -> None:
        if not self.sizes:
            raise UsageError("vocab: give at least one size")
        if len(set(self.sizes)) != len(self.sizes):
            raise UsageError("vocab: give each size once")
        for size in self.sizes:
            if size < self.least_size:
                raise UsageError(f"vocab {size}: ask for {self.least_size} or more")

    @property
    def least_size(self) -> int:
        return self.learner.symbols + self.unlearned + 1

    @property
    def unlearned(self) -> int:
        """Return the number of tokens that learning neither produces nor starts with: special and
        reserved tokens, the token for spaces, and runs of spaces."""
        return len(self.first_tokens) + max(0, self.space_runs - 1)

    @property
    def first_tokens(self) -> tuple[str, ...]:
        """Return the first tokens: special tokens, reserved tokens, the token for spaces."""
        space = () if self.space_token is None else (self.space_token,)
        return (*self.special_tokens, *map(reserved, range(self.reserved)), *space)

    @property
    def coverage(self) -> float:
        if self.character_coverage is not None:
            return self.character_coverage
        return self.learner.coverage

    @property
    def lossless(self) -> bool:
        return self.learner.exact and self.space_token is None and self.normalize == "none"

    @property
    def padding(self) -> tuple[str, ...]:
        return tuple(reserved(self.reserved + k) for k in range(self.pad_to - 1))

    @property
    def banned(self) -> tuple[str, ...]:
        """Return the strings that no merge may spell: special and reserved tokens, forbidden
        strings, and runs of spaces, which have their own merges."""
        runs = (" " * k for k in range(2, self.space_runs + 1))
        return (*self.first_tokens, *self.padding, *self.forbid, *runs)

    @property
    def learner(self) -> type[Learner]:
        return LEARNERS[self.model]

    @property
    def column(self) -> str | None:
        """Return the column that decides the weight of a document, or None without weights."""
        if self.weights is not None:
            return parse_weights(self.weights).column
        return None if self.temperature is None else self.by or "lang"

    @property
    def cutting(self) -> Pattern:
        """Return the pattern that cuts texts in the tokenizer: the chosen pattern with its rule for
        digits, and the expressions applied before and after it."""
        pattern = self._pattern
        if self.superwords is not None:
            pattern = superwords(pattern.digits)
        return compose(pattern, self.forbid, self.newlines, self.space_runs, self.script_boundaries)

    @property
    def _pattern(self) -> Pattern:
        name = self.pattern_name
        if self.regex:
            return own_pattern(self.regex)
        named = self.pattern or self.graphemes or self.learner.own_digits
        pattern_digits = PATTERNS[name].digits if named else "single"
        return pattern_with(name, self.digits or pattern_digits)

    @property
    def counted_parts(self) -> tuple[str, ...]:
        """Return the patterns that cut texts into words in training, in the order in which they are
        applied. With a `space_token`, which replaces every space, the first pattern separates
        spaces from all other text, as the tokenizer does."""
        space = () if self.space_token is None else (" ",)
        if self.superwords is None:
            return (*space, *self.cutting.parts)
        words = compose(self._pattern, space_runs=self.space_runs)
        return (*self.cutting.parts, *words.parts)

    @property
    def pattern_name(self) -> str:
        if self.regex:
            return "own"
        named = "graphemes" if self.graphemes else self.pattern
        return named or self.learner.pattern


def _check_mixture(options: TrainingOptions) -> None:
    if options.weights is not None:
        parse_weights(options.weights)
        if options.temperature is not None:
            raise UsageError("weights and temperature: give one of them")
    if options.by is not None and options.temperature is None:
        raise UsageError("by: only with temperature")
