"""The options of training a tokenizer, checked before anything is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import Setting, check, either
from tokenize_kit.formats.tokenizer_json import END_OF_TEXT
from tokenize_kit.learn.cutting import (
    MOST_SPACES,
    NEWLINES,
    NORMAL,
    Newlines,
    Normal,
    compose,
    own_pattern,
)
from tokenize_kit.learn.options_together import check_together
from tokenize_kit.learn.weights import parse_weights
from tokenize_kit.pattern.named import DIGITS, PATTERNS, Digits, Pattern, pattern_with, superwords

COVERAGE = 0.9995  # SentencePiece's default: rarer characters are spelled in bytes


Model = Literal["bpe", "char-bpe", "wordpiece", "unigram"]
MODELS: tuple[Model, ...] = get_args(Model)
Backend = Literal["own", "tokenizers", "sentencepiece"]
BACKENDS: dict[Model, tuple[Backend, ...]] = {  # the first is the one taken where none is named
    "bpe": ("own", "tokenizers", "sentencepiece"),
    "char-bpe": ("own", "sentencepiece"),
    "wordpiece": ("own", "sentencepiece"),
    "unigram": ("own", "sentencepiece"),
}


UNKNOWN = "[UNK]"
# Special tokens of WordPiece where none are named: BERT's, its end of text first.
BERT_TOKENS = ("[SEP]", UNKNOWN, "[CLS]", "[PAD]", "[MASK]")

DEFAULT_PATTERN = "o200k"
_PATTERN_OF = {"char-bpe": "metaspace", "wordpiece": "bert"}
_FIXED = {"bpe": 256, "char-bpe": 256, "wordpiece": 0, "unigram": 256}  # tokens of bytes
MOST_PADDING, MOST_RESERVED = 4096, 1 << 20
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_RESERVED = re.compile(r"<\|reserved_\d+\|>")


def reserved(number: int) -> str:
    """The spelling of a token that is kept free for later."""
    return f"<|reserved_{number}|>"


@dataclass(frozen=True)
class TrainingOptions:
    """The options of a training; `None` stands for the default of the model or the pattern.

    Raises LlmcurateError (exit code 2) for an option, or two together, that make no sense.
    """

    model: Annotated[
        Model,
        Setting(
            "The model: `bpe` over bytes, `char-bpe` over characters, `wordpiece` or `unigram`.",
            choices=MODELS,
        ),
    ] = "bpe"
    backend: Annotated[
        Backend | None,
        Setting(
            "The learner: `own`, `tokenizers` or `sentencepiece`. Without a value own.",
            choices=get_args(Backend),
        ),
    ] = None
    sizes: Annotated[
        tuple[int, ...],
        Setting(
            "Tokens of the vocabulary, special and reserved ones included; of several sizes each "
            "gets a folder."
        ),
    ] = (32_000,)
    pattern: Annotated[
        str | None,
        Setting(
            "Name of the pre-tokenisation pattern. Without a value `o200k`, `metaspace` for "
            "char-bpe and `bert` for wordpiece.",
            choices=tuple(PATTERNS),
        ),
    ] = None
    regex: Annotated[
        tuple[str, ...],
        Setting(
            "Regular expressions that cut texts, one after the other, in place of a named pattern."
        ),
    ] = ()
    graphemes: Annotated[bool, Setting("Never cut a grapheme cluster (UAX #29).")] = False
    digits: Annotated[
        Digits | None,
        Setting(
            "How runs of digits are cut. Without a value as the pattern cuts them, and into single "
            "digits where no pattern is named.",
            choices=DIGITS,
        ),
    ] = None
    forbid: Annotated[
        tuple[str, ...], Setting("Strings that no token holds a part of together with other text.")
    ] = ()
    newlines: Annotated[
        Newlines | None,
        Setting(
            "How newlines are cut: each is a piece of its own (`single`), or those in a row are "
            "one (`runs`). Without a value as the pattern cuts them.",
            choices=NEWLINES,
        ),
    ] = None
    space_runs: Annotated[
        int,
        Setting(
            "Runs of 2 up to that many spaces are one token each; 0 adds none.",
            ge=0,
            le=MOST_SPACES,
        ),
    ] = 0
    script_boundaries: Annotated[bool, Setting("Never let a token span two scripts.")] = False
    dictionary: Annotated[
        str | None,
        Setting(
            "Path of a file of Thai, Lao, Khmer and Burmese words that texts are cut into in "
            "training."
        ),
    ] = None
    space_token: Annotated[str | None, Setting("The token that every space becomes.")] = None
    normalise: Annotated[
        Normal,
        Setting(
            "Unicode's normal form that texts are brought into before all else, `_cf` with case "
            "folded, or `none`.",
            choices=NORMAL,
        ),
    ] = "none"
    chat_template: Annotated[
        str | None, Setting("Path of a chat template that goes into tokenizer_config.json.")
    ] = None
    special_tokens: Annotated[
        tuple[str, ...], Setting("Special tokens; the first one ends documents.")
    ] = ("<|endoftext|>",)
    reserved: Annotated[
        int,
        Setting(
            "Number of tokens `<|reserved_0|>` and so on that are kept free for later.",
            ge=0,
            le=MOST_RESERVED,
        ),
    ] = 0
    pad_to: Annotated[
        int,
        Setting(
            "Number of which the size of the vocabulary is made a multiple, by reserved tokens at "
            "its end.",
            ge=1,
            le=MOST_PADDING,
        ),
    ] = 1
    min_frequency: Annotated[
        int, Setting("Least number of occurrences of a pair that is merged.", ge=1)
    ] = 2
    max_token_length: Annotated[
        int | None,
        Setting(
            "Largest length of a token in bytes (in characters for char-bpe and wordpiece). "
            "Without a value there is no limit.",
            ge=2,
        ),
    ] = None
    superwords: Annotated[
        int | None,
        Setting(
            "Size of the vocabulary from which on tokens may span words, four at most (SuperBPE, "
            "Liu et al. 2025). Without a value no token does.",
            ge=2,
        ),
    ] = None
    character_coverage: Annotated[
        float | None,
        Setting(
            "Share of the text whose characters are tokens; bpe has none. Without a value 0.9995, "
            "and 1 for wordpiece.",
            gt=0,
            le=1,
        ),
    ] = None
    character_seeds: Annotated[
        bool,
        Setting(
            "Unigram begins with substrings that different characters follow, not different bytes, "
            "and keeps pieces expected twice: more bytes a token in Thai, Lao, Khmer and Burmese, "
            "other pieces than SentencePiece's."
        ),
    ] = False
    sample_bytes: Annotated[
        int | None,
        Setting(
            "Bytes of text that are read at most, drawn by the hash of the documents. Without a "
            "value all text is read.",
            ge=1,
        ),
    ] = None
    seed: Annotated[int, Setting("Seed of the sample.", ge=0, lt=1 << 63)] = 0
    weights: Annotated[
        str | None,
        Setting(
            "How often documents count, by the values of a column: `lang=th:3,en:0.5`; `*` stands "
            "for all other values."
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Setting(
            "Temperature of groups of documents, by the column `by`: a group has a share of its "
            "bytes ** (1 / temperature) (Arivazhagan et al. 2019).",
            ge=0.1,
        ),
    ] = None
    by: Annotated[
        str | None,
        Setting("Column of the groups that the temperature weighs. Without a value `lang`."),
    ] = None

    def __post_init__(self) -> None:
        check(self, dash="-")
        self._check_backend()
        self._check_cutting()
        check_together(self)
        self._check_special()
        self._check_sizes()

    def _check_backend(self) -> None:
        if self.backend is None:
            return
        backends = BACKENDS[self.model]
        if self.backend not in backends:
            raise UsageError(
                f"backend {self.backend}: {self.model} is learned by {either(backends)}"
            )
        if self.backend == "sentencepiece" and self.min_frequency != 2:
            raise UsageError("min-frequency: SentencePiece has none; use backend own")
        if self.backend == "tokenizers":
            excluded = {
                "dictionary": self.dictionary is not None,
                "several sizes": len(self.sizes) > 1,
                "weights": self.weights is not None,
                "temperature": self.temperature is not None,
            }
            for name, is_given in excluded.items():
                if is_given:
                    raise UsageError(f"{name}: not with backend tokenizers; use own")

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
            raise UsageError("forbid: give each string once, and none that is empty")

    def _check_special(self) -> None:
        tokens = self.special_tokens
        if self.model == "wordpiece" and tokens == (END_OF_TEXT[0],):
            tokens = BERT_TOKENS
            object.__setattr__(self, "special_tokens", tokens)
        if self.model == "wordpiece" and UNKNOWN not in tokens:
            raise UsageError(f"special tokens: wordpiece needs {UNKNOWN}")
        if not tokens or tokens[0] not in END_OF_TEXT:
            raise UsageError(
                f"special tokens: begin with the end of text, one of {', '.join(END_OF_TEXT)}"
            )
        if self.space_token is not None:
            tokens = (*tokens, self.space_token)
        if len(set(tokens)) != len(tokens):
            raise UsageError("special tokens: give each once")
        for token in tokens:
            if len(token) < 2 or not token.isascii() or not token.isprintable() or " " in token:
                raise UsageError(
                    f"special token {token!r}: use two or more printable ASCII characters, no space"
                )
            if self.model != "bpe" and _BYTE_PIECE.fullmatch(token):
                raise UsageError(f"special token {token!r}: that is the token of a byte")
            if _RESERVED.fullmatch(token):
                raise UsageError(f"special token {token!r}: that is a reserved one's, use reserved")

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
        """The least size of a vocabulary with a merge."""
        return _FIXED[self.model] + self.unlearned + 1

    @property
    def unlearned(self) -> int:
        """How many tokens are neither symbols nor learned: the first ones and runs of spaces."""
        return len(self.first_tokens) + max(0, self.space_runs - 1)

    @property
    def first_tokens(self) -> tuple[str, ...]:
        """The tokens that take the first ids: special, then reserved ones, then that of spaces."""
        space = () if self.space_token is None else (self.space_token,)
        return (*self.special_tokens, *map(reserved, range(self.reserved)), *space)

    @property
    def coverage(self) -> float:
        """The share of the text whose characters are to be tokens."""
        if self.character_coverage is not None:
            return self.character_coverage
        return 1.0 if self.model == "wordpiece" else COVERAGE

    @property
    def lossless(self) -> bool:
        """Whether every text comes back exactly."""
        exact = self.space_token is None and self.normalise == "none"
        return exact and self.model != "wordpiece"

    @property
    def padding(self) -> tuple[str, ...]:
        """The reserved tokens of which as many as it takes pad a vocabulary."""
        return tuple(reserved(self.reserved + k) for k in range(self.pad_to - 1))

    @property
    def banned(self) -> tuple[str, ...]:
        """The strings that no merge may spell: special tokens, forbidden strings, runs of spaces
        (which have merges of their own)."""
        runs = (" " * k for k in range(2, self.space_runs + 1))
        return (*self.first_tokens, *self.padding, *self.forbid, *runs)

    @property
    def learner(self) -> Backend:
        return self.backend or BACKENDS[self.model][0]

    @property
    def column(self) -> str | None:
        """The column whose values decide how a document counts, if any does."""
        if self.weights is not None:
            return parse_weights(self.weights).column
        return None if self.temperature is None else self.by or "lang"

    @property
    def cutting(self) -> Pattern:
        """The pattern with its rule for digits, and the parts before and behind it: what cuts texts
        in the tokenizer."""
        pattern = self._pattern
        if self.superwords is not None:
            pattern = superwords(pattern.digits)
        return compose(pattern, self.forbid, self.newlines, self.space_runs, self.script_boundaries)

    @property
    def _pattern(self) -> Pattern:
        name = self.pattern_name
        if self.regex:
            return own_pattern(self.regex)
        named = self.pattern or self.graphemes or self.model == "wordpiece"
        pattern_digits = PATTERNS[name].digits if named else "single"
        return pattern_with(name, self.digits or pattern_digits)

    @property
    def counted_parts(self) -> tuple[str, ...]:
        """The patterns that cut texts into words in training; spaces that are a token of their own
        stand apart, as they will in the tokenizer."""
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
        return named or _PATTERN_OF.get(self.model, DEFAULT_PATTERN)
