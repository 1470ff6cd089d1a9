"""Unigram language-model tokenizer, written as `tokenizer.json` and as a SentencePiece model.

Both files give the same ids, with two exceptions. In the JSON a space is a space, not U+2581: a
literal U+2581 becomes its three bytes and round-trips, while SentencePiece reads it as a space. And
SentencePiece adds log-probabilities in float32 over a whole text: in a text of more than some 100
KB, rounding decides between equally good ways to split the text. The tokenizer of the JSON splits
at spaces first and adds exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from llmcurate.base.errors import RunFailed
from tokenize_kit.encode.words import WORDS
from tokenize_kit.formats.forms import (
    BYTE,
    BYTE_PIECES,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    Pieces,
)
from tokenize_kit.formats.sentencepiece_model import write_form
from tokenize_kit.formats.tokenizer_json import add_tokens
from tokenize_kit.learn.bpe import Trained, choose_characters
from tokenize_kit.learn.cutting import Normal, rules_of
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.unigram_pieces import PieceLearner
from tokenize_kit.segment import Dictionary

PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
UNKNOWN_PIECE = "<unk>"
_LEAST = 16  # the fewest pieces to learn

# Log-probabilities are rounded to 1/64: sums up to 2**18 are then exact in float32, and
# SentencePiece chooses between equal paths by rule, not by rounding errors.
_GRAIN = 64

# The score of pieces that no text may match. In the lattice of `tokenizers` every piece can match
# the text: "<0x41>" or "<|endoftext|>" would become a byte or a control token.
_NEVER = -1e6


def train_unigram(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[Trained]:
    """Train Unigram tokenizers of all sizes in options, each as a SentencePiece model and as a
    tokenizer.json. documents: normalised texts with integer weights; scale: the integer that stands
    for a weight of 1. Order of ids: the unknown token, special tokens, newline, tab, the token for
    spaces, 256 bytes, pieces, padding. The unknown token may be one of the special tokens; it is
    never produced, since bytes spell everything. Raises `LlmcurateError` for a too small
    vocabulary."""
    special = [token for token in options.first_tokens if token != options.space_token]
    special = special if UNKNOWN_PIECE in special else [UNKNOWN_PIECE, *special]
    space = options.space_token
    rooms = {}
    for size in options.sizes:
        rooms[size] = size - len(special) - len(BYTE_PIECES) - (2 if space is None else 3)
        lacking = _LEAST + len(PRINTABLE_ASCII) - rooms[size]
        if lacking > 0:
            raise RunFailed(
                f"vocab {size} is too small for unigram: ask for {size + lacking} or more"
            )
    learner = PieceLearner(documents, space is not None, dictionary, options.character_seeds, scale)
    if not learner.characters:
        raise RunFailed("the corpus is empty: give at least one document with text")
    trained = []
    for size in options.sizes:
        available = rooms[size] - len(PRINTABLE_ASCII)
        kept, share = choose_characters(learner.characters, available, options.coverage)
        symbols = [*special, *([] if space is None else [space]), *BYTE_PIECES]
        pieces = learner.learn(sorted(kept), PRINTABLE_ASCII, symbols, rooms[size])
        model = model_of(pieces, special, space, options.normalize, options.padding)
        raw = write_form(model)
        tokenizer = to_tokenizer_json(model, space)
        trained.append(Trained(tokenizer, True, character_coverage=share, spm=raw))
    return trained


def model_of(
    pieces: Sequence[tuple[str, float]],
    special: Sequence[str],
    space: str | None = None,
    normal: Normal = "none",
    padding: Sequence[str] = (),
) -> Pieces:
    """Build a model from learned pieces and their scores, rounded to multiples of 1/64. Newline and
    tab become normal pieces of score 0; no other piece contains them, so they are always used. They
    are not user-defined pieces, which would get a bonus that is not a multiple of 1/64. padding:
    tokens, appended from the first on until the size is a multiple of len(padding) + 1."""
    rows = [(text, 0.0, UNKNOWN if text == UNKNOWN_PIECE else CONTROL) for text in special]
    rows += [("\n", 0.0, NORMAL), ("\t", 0.0, NORMAL)]
    rows += [] if space is None else [(space, 0.0, USER_DEFINED)]
    rows += [(name, 0.0, BYTE) for name in BYTE_PIECES]
    rows += [(t.replace(" ", SPACE), round(s * _GRAIN) / _GRAIN, NORMAL) for t, s in pieces]
    rows += [(token, 0.0, CONTROL) for token in padding[: -len(rows) % (len(padding) + 1)]]
    return Pieces(
        "unigram",
        tuple(rows),
        charsmap=b"" if normal == "none" else rules_of(normal),
        prefix=False,
        squeeze=False,
        byte_fallback=True,
    )


def to_tokenizer_json(model: Pieces, space: str | None = None) -> Tokenizer:
    """Convert a SentencePiece Unigram model trained here to `tokenizers`. space: the token that
    replaces every space, or None. Texts are split before each run of spaces, which keeps the
    lattices short; it changes no id, because no piece has a space after another character."""
    vocab: list[tuple[str, float]] = []
    for text, score, kind in model.pieces:
        ordinary = kind in (NORMAL, USER_DEFINED)
        vocab.append((text.replace(SPACE, " "), score) if ordinary else (text, _NEVER))
    special = [text for text, _, kind in model.pieces if kind == CONTROL]
    tokenizer = Tokenizer(models.Unigram(vocab, model.unknown, True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    add_tokens(tokenizer, special, space)
    return tokenizer
