"""Unigram language-model tokenizer: trained by SentencePiece, written as an HF ``tokenizer.json``.

Two formats come out, ``tokenizer.model`` (SentencePiece) and ``tokenizer.json``; both give the same
ids, with two exceptions. In the JSON a space is a space, not U+2581: a literal U+2581 then falls to
its three bytes and round-trips, which SentencePiece cannot do (it reads U+2581 as a space). And
SentencePiece adds log-probabilities in float32 over a whole text, so that beyond some 100 KB
without a break its rounding decides between equally good paths; the JSON splits at spaces and is
exact.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.encode.words import WORDS
from tokenize_kit.errors import TokenizerError
from tokenize_kit.formats.forms import CONTROL, NORMAL, SPACE
from tokenize_kit.formats.sentencepiece_model import NotAModel, Piece, read_model, with_pieces
from tokenize_kit.formats.tokenizer_json import add_tokens
from tokenize_kit.learn.char_bpe import choose_characters
from tokenize_kit.learn.options import COVERAGE
from tokenize_kit.segment.dictionary import Dictionary

# Characters at which SentencePiece's trainer ends or discards a sentence: no piece may contain a
# tab, a line end, NUL or U+2581, and a sentence with U+2585 is skipped whole. We cut there, and
# lose nothing.
_CUT = re.compile("[\x00\t\n\r\u2581\u2585]+")
_PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_BYTE_PIECES = 256

# Log-probabilities are rounded to 1/64: sums to 2**18 are then exact in float32, and SentencePiece
# chooses between equal paths by the same rule as everyone, not by its rounding errors.
_GRAIN = 64

# Never chosen where another path exists. In HF's lattice every piece can match the text, so without
# this the text "<0x41>" or "<|endoftext|>" would become a byte or a control token.
_NEVER = -1e6


@dataclass
class Corpus:
    """The file of lines for the trainer: the number of ``lines``, and how often each character
    occurs.

    weighted: a line has a tab and how often it counts at its end; space: the token that spaces
    became, at which lines are cut.
    """

    path: Path
    weighted: bool = False
    space: str | None = None
    lines: int = 0
    characters: Counter[str] = field(default_factory=Counter)


def write_lines(texts: Iterator[str], path: Path) -> Corpus:
    """Write the texts to ``path``, one line a sentence, cut where no piece could reach across."""
    return write_weighted_lines(((text, 1) for text in texts), Corpus(path))


def write_weighted_lines(
    documents: Iterable[tuple[str, int]], corpus: Corpus, dictionary: Dictionary | None = None
) -> Corpus:
    """As `spill`, texts with their weights, cut between the words of a dictionary as well."""
    cut = re.compile(f"{_CUT.pattern}| +") if corpus.space else _CUT
    with corpus.path.open("w", encoding="utf-8", newline="\n") as file:
        for text, weight in documents:
            counted = Counter(text)
            for character, count in counted.items():
                corpus.characters[character] += count * weight
            end = f"\t{weight}\n" if corpus.weighted else "\n"
            for line in cut.split(_in_words(text, dictionary) if dictionary else text):
                if line:
                    file.write(line + end)
                    corpus.lines += 1
    for character in "\x00\t\n\r\u2581\u2585" + (" " if corpus.space else ""):
        corpus.characters.pop(character, None)
    return corpus


def _in_words(text: str, dictionary: Dictionary) -> str:
    """The text with a line's end between words."""
    raw = np.frombuffer(bytearray(text.encode()), np.uint8)
    bounds = dictionary.cut(raw, np.array([0, len(raw)])).tolist()
    return "\n".join([raw[a:z].tobytes().decode() for a, z in pairwise(bounds)])


def _lines(corpus: Corpus, kept: set[str]) -> Iterator[str]:
    """The spilled lines, cut at every character that is not kept, as SentencePiece does itself.

    (Its own ``character_coverage`` does the same, but refuses to go below 0.98.)
    """
    rare = {ord(character): "\n" for character in corpus.characters if character not in kept}
    with corpus.path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            sentence, tab, weight = line[:-1].partition("\t")
            if not rare:
                yield line[:-1]
                continue
            for part in sentence.translate(rare).split("\n"):
                if part:
                    yield part + tab + weight


def train_unigram(
    corpus: Corpus,
    *,
    vocab: int,
    special_tokens: Sequence[str],
    coverage: float = COVERAGE,
    normal: str = "identity",
    padding: Sequence[str] = (),
) -> tuple[bytes, Tokenizer, float]:
    """Train on a spilled corpus.

    Returns SentencePiece's model file, the same tokenizer for ``tokenizers``, and the character
    coverage used. Ids: 0 unknown (never produced: bytes catch everything), special tokens, newline,
    tab, 256 bytes, pieces, and so many of `padding` as make the vocabulary a multiple of one more
    than there are. normal: SentencePiece's rule of normalisation. Raises ``TokenizerError`` where
    the vocabulary is too small.
    """
    space = [corpus.space] if corpus.space else []
    available = vocab - _BYTE_PIECES - len(_PRINTABLE_ASCII) - len(special_tokens) - len(space) - 3
    if available < 16:
        least = vocab - available + 16
        raise TokenizerError(f"vocab {vocab} is too small for unigram: ask for {least} or more")
    if not corpus.lines:
        raise TokenizerError("the corpus holds no text to learn from: give documents with text")
    kept, covered = choose_characters(corpus.characters, available, coverage)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(corpus, set(kept)),  # a path would be recorded in the model
            input_format="tsv" if corpus.weighted else "",
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab,
            hard_vocab_limit=False,
            normalization_rule_name=normal,
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            byte_fallback=True,
            character_coverage=1.0,  # see ``_lines``
            required_chars=_PRINTABLE_ASCII,
            max_sentence_length=2**30,  # the default drops sentences over 4192 bytes
            input_sentence_size=0,
            shuffle_input_sentence=False,
            num_threads=2,  # fixed: sums of floats depend on how the sentences are dealt out
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            control_symbols=list(special_tokens),
            user_defined_symbols=["\n", "\t", *space],
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
        raise TokenizerError(
            f"SentencePiece could not train {vocab} pieces: {reason}; try a smaller vocab, "
            "more text, or model bpe"
        ) from error
    exact = round_scores(model.getvalue())
    size = sentencepiece.SentencePieceProcessor(model_proto=exact).get_piece_size()
    more = [Piece(name, 0.0, CONTROL) for name in padding[: -size % (len(padding) + 1)]]
    exact = with_pieces(exact, [*read_model(exact).pieces, *more])
    return exact, to_tokenizer_json(exact, corpus.space), covered


def round_scores(raw: bytes) -> bytes:
    """The model file with scores in whole 1/64, newline and tab made ordinary pieces of score 0.

    As user-defined symbols, which training needs, newline and tab would add a bonus that is no
    whole number of 1/64; being single characters that occur in no other piece, they are matched all
    the same.
    """
    try:
        pieces = read_model(raw).pieces
    except NotAModel as error:
        raise TokenizerError(f"SentencePiece wrote a model file of unknown form: {error}") from None
    return with_pieces(raw, [_rounded(piece) for piece in pieces])


def _rounded(piece: Piece) -> Piece:
    if piece.text in ("\n", "\t"):
        return Piece(piece.text, 0.0, NORMAL)
    return Piece(piece.text, round(piece.score * _GRAIN) / _GRAIN, piece.kind)


def to_tokenizer_json(model: bytes, space: str | None = None) -> Tokenizer:
    """A SentencePiece Unigram model, as trained here, for ``tokenizers``.

    space: the token that every space becomes, if any.

    Splitting before each run of spaces changes no id (no piece has a space behind another
    character) and keeps the lattices short.
    """
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocab: list[tuple[str, float]] = []
    special: list[str] = []
    for index in range(pieces.get_piece_size()):
        name = pieces.id_to_piece(index)
        if pieces.is_control(index):
            special.append(name)
        ordinary = not (
            pieces.is_control(index) or pieces.is_byte(index) or pieces.is_unknown(index)
        )
        text = name.replace(SPACE, " ") if ordinary else name
        vocab.append((text, pieces.get_score(index) if ordinary else _NEVER))
    tokenizer = Tokenizer(models.Unigram(vocab, pieces.unk_id(), True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    add_tokens(tokenizer, special, space)
    return tokenizer
