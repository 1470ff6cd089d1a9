"""Unigram language-model tokenizer, written as ``tokenizer.json`` and as SentencePiece's model.

Its pieces are learned by our own learner (unigram_pieces.py), or by SentencePiece's. Both formats
give the same ids, with two exceptions. In the JSON a space is a space, not U+2581: a literal U+2581
then falls to its three bytes and round-trips, which SentencePiece cannot do (it reads U+2581 as a
space). And SentencePiece adds log-probabilities in float32 over a whole text, so that beyond some
100 KB without a break its rounding decides between equally good paths; the JSON splits at spaces
and is exact.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from llmcurate.base.errors import RunFailed
from tokenize_kit.encode.words import WORDS
from tokenize_kit.formats.forms import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, USER_DEFINED, Pieces
from tokenize_kit.formats.sentencepiece_model import NotAModel, read_model, write_form
from tokenize_kit.formats.tokenizer_json import add_tokens
from tokenize_kit.learn.bpe import BYTE_PIECES, choose_characters
from tokenize_kit.learn.cutting import Normal, rules_of
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.segment.dictionary import Dictionary

# Where its trainer ends or discards a sentence (unigram_segments.py).
_CUT = re.compile("[\x00\t\n\r\u2581\u2585]+")


class SentencePieceLearner:
    """Texts on disk, one line a sentence, with how often it counts behind a tab where one counts
    more than once."""

    def __init__(
        self,
        documents: Iterable[tuple[str, int]],
        space_cuts: bool = False,
        dictionary: Dictionary | None = None,
    ) -> None:
        """As unigram_segments.count_sentences."""
        self.characters: Counter[str] = Counter()
        self._folder = TemporaryDirectory()
        self._path = Path(self._folder.name) / "sentences"
        self._weighted = False
        cut = re.compile(f"{_CUT.pattern}| +") if space_cuts else _CUT
        with self._path.open("w", encoding="utf-8", newline="\n") as file:
            for text, weight in documents:
                for character, count in Counter(text).items():
                    self.characters[character] += count * weight
                self._weighted = self._weighted or weight != 1
                for line in cut.split(_in_words(text, dictionary) if dictionary else text):
                    if line:
                        file.write(f"{line}\t{weight}\n")
        for character in "\x00\t\n\r\u2581\u2585" + (" " if space_cuts else ""):
            self.characters.pop(character, None)

    def learn(
        self, kept: Sequence[str], required: str, symbols: Sequence[str], room: int
    ) -> list[tuple[str, float]]:
        """As unigram.Learner says."""
        unknown, *others = symbols
        named = [symbol for symbol in others if not re.fullmatch("<0x[0-9A-F]{2}>", symbol)]
        vocab = room + len(symbols) + 2  # newline and tab
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=self._lines(set(kept)),  # a path would be recorded in the model
                input_format="tsv" if self._weighted else "",
                model_writer=model,
                model_type="unigram",
                vocab_size=vocab,
                hard_vocab_limit=False,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                allow_whitespace_only_pieces=True,
                split_digits=True,
                byte_fallback=True,
                character_coverage=1.0,  # see ``_lines``
                required_chars=required,
                max_sentence_length=2**30,  # the default drops sentences over 4192 bytes
                input_sentence_size=0,
                shuffle_input_sentence=False,
                num_threads=2,  # fixed: sums of floats depend on how the sentences are dealt out
                unk_id=0,
                unk_piece=unknown,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                control_symbols=named,
                user_defined_symbols=["\n", "\t"],
                minloglevel=2,
            )
            pieces = read_model(model.getvalue()).pieces
        except (RuntimeError, OSError) as error:
            reason = (
                str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
            )
            raise RunFailed(
                f"SentencePiece could not train {vocab} pieces: {reason}; use backend own, or try "
                "a smaller vocab or more text"
            ) from error
        except NotAModel as error:
            raise RunFailed(f"SentencePiece wrote a model of unknown form: {error}") from None
        return [(p.text.replace(SPACE, " "), p.score) for p in pieces if p.kind == NORMAL]

    def _lines(self, kept: set[str]) -> Iterator[str]:
        """The lines, cut at every character that is not kept, as SentencePiece does itself.

        (Its own ``character_coverage`` does the same, but refuses to go below 0.98.)
        """
        rare = {ord(character): "\n" for character in self.characters if character not in kept}
        with self._path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                sentence, tab, weight = line[:-1].partition("\t")
                for part in sentence.translate(rare).split("\n") if rare else [sentence]:
                    if part:
                        yield part + tab + weight if self._weighted else part


def _in_words(text: str, dictionary: Dictionary) -> str:
    """The text with a line's end between words."""
    raw = np.frombuffer(bytearray(text.encode()), np.uint8)
    bounds = dictionary.cut(raw, np.array([0, len(raw)])).tolist()
    return "\n".join([raw[a:z].tobytes().decode() for a, z in pairwise(bounds)])


PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
UNKNOWN_PIECE = "<unk>"
_LEAST = 16  # pieces to learn

# Log-probabilities are rounded to 1/64: sums to 2**18 are then exact in float32, and SentencePiece
# chooses between equal paths by the same rule as everyone, not by its rounding errors.
_GRAIN = 64

# Never chosen where another path exists. In HF's lattice every piece can match the text, so without
# this the text "<0x41>" or "<|endoftext|>" would become a byte or a control token.
_NEVER = -1e6


class Learner(Protocol):
    """A learner that has read the texts. characters: how often each occurs."""

    characters: Counter[str]

    def learn(
        self, kept: Sequence[str], required: str, symbols: Sequence[str], room: int
    ) -> list[tuple[str, float]]:
        """The pieces with their scores, best first, a space as a space.

        kept: the characters that are pieces, by code point; required: more of them, whether they
        occur or not; symbols: spellings that no piece holds a part of; room: pieces at most.
        """


def train_unigram(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    dictionary: Dictionary | None = None,
    scale: int = 1,
) -> list[tuple[bytes, Tokenizer, dict[str, Any]]]:
    """Of each of the sizes SentencePiece's model file, the same tokenizer for ``tokenizers``, and
    what its card says of it.

    documents: normalised texts with their weights; scale: that of a text that counts once. Ids: 0
    unknown (never produced: bytes catch everything), special tokens, newline, tab, 256 bytes,
    pieces, padding. Raises ``LlmcurateError`` where a vocabulary is too small.
    """
    special = [token for token in options.first_tokens if token != options.space_token]
    space = options.space_token
    rooms = {}
    for size in options.sizes:
        rooms[size] = size - len(special) - len(BYTE_PIECES) - (3 if space is None else 4)
        lacking = _LEAST + len(PRINTABLE_ASCII) - rooms[size]
        if lacking > 0:
            raise RunFailed(
                f"vocab {size} is too small for unigram: ask for {size + lacking} or more"
            )
    learner: Learner
    if options.learner == "own":
        from tokenize_kit.learn.unigram_pieces import OwnLearner

        learner = OwnLearner(
            documents, space is not None, dictionary, options.character_seeds, scale
        )
    else:
        learner = SentencePieceLearner(documents, space is not None, dictionary)
    if not learner.characters:
        raise RunFailed("the corpus is empty of text to learn from: give documents with text")
    trained = []
    for size in options.sizes:
        available = rooms[size] - len(PRINTABLE_ASCII)
        kept, share = choose_characters(learner.characters, available, options.coverage)
        symbols = [UNKNOWN_PIECE, *special, *([] if space is None else [space]), *BYTE_PIECES]
        pieces = learner.learn(sorted(kept), PRINTABLE_ASCII, symbols, rooms[size])
        model = model_of(pieces, special, space, options.normalise, options.padding)
        raw = write_form(model)
        details = {"byte_fallback": True, "character_coverage": share}
        trained.append((raw, to_tokenizer_json(model, space), details))
    return trained


def model_of(
    pieces: Sequence[tuple[str, float]],
    special: Sequence[str],
    space: str | None = None,
    normal: Normal = "none",
    padding: Sequence[str] = (),
) -> Pieces:
    """The vocabulary with scores in whole 1/64.

    Newline and tab are ordinary pieces of score 0: as symbols of the user they would add a bonus
    that is no whole number of 1/64, and being characters of no other piece they match all the same.
    padding: tokens of which so many stand at the end as make the vocabulary a multiple of one more
    than there are.
    """
    rows = [(UNKNOWN_PIECE, 0.0, UNKNOWN), *((token, 0.0, CONTROL) for token in special)]
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
    """A SentencePiece Unigram model, as trained here, for ``tokenizers``.

    space: the token that every space becomes, if any.

    Splitting before each run of spaces changes no id (no piece has a space behind another
    character) and keeps the lattices short.
    """
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
