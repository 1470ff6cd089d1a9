"""Unigram language-model tokenizer: trained by SentencePiece, written as an HF ``tokenizer.json``.

Two formats come out, ``tokenizer.model`` (SentencePiece) and ``tokenizer.json``; both give the same
ids. In the JSON a space is a space, not U+2581: a literal U+2581 then falls to its three bytes and
round-trips, which SentencePiece itself cannot do (it reads U+2581 as a space, so on texts that
contain it, and only there, the two differ).
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.errors import TokenizerError

SPACE = "\u2581"

# What SentencePiece's trainer ends or discards a sentence at: no piece may contain a tab, a line
# end, NUL or U+2581, and a sentence with U+2585 is skipped whole. We cut there, and lose nothing.
_CUT = re.compile("[\x00\t\n\r\u2581\u2585]+")
_PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_BYTE_PIECES = 256
_COVERAGE = 0.9995  # SentencePiece's default: rarer characters are spelled in bytes

# Never chosen where another path exists. In HF's lattice every piece can match the text, so without
# this the text "<0x41>" or "<|endoftext|>" would become a byte or a control token.
_NEVER = -1e6


@dataclass
class Corpus:
    """What was spilled for the trainer: ``lines`` of text and how often each character occurs."""

    path: Path
    lines: int = 0
    characters: Counter[str] = field(default_factory=Counter)


def spill(texts: Iterator[str], path: Path) -> Corpus:
    """Write the texts to ``path``, one line a sentence, cut where no piece could reach across."""
    corpus = Corpus(path)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for text in texts:
            corpus.characters.update(text)
            for line in _CUT.split(text):
                if line:
                    file.write(line + "\n")
                    corpus.lines += 1
    for character in "\x00\t\n\r\u2581\u2585":
        corpus.characters.pop(character, None)
    return corpus


def coverage_for(characters: Counter[str], room: int) -> float:
    """The share of characters to keep as pieces so that the alphabet takes half of ``room``.

    At most SentencePiece's default 0.9995; less where the vocabulary is small for the scripts in
    the corpus (SentencePiece would refuse). The rest is spelled in bytes: nothing is lost.
    """
    total = characters.total()
    kept = sum(count for _, count in characters.most_common(max(1, room // 2)))
    return min(_COVERAGE, kept / total)


def train_unigram(
    corpus: Corpus, *, vocab: int, special_tokens: Sequence[str]
) -> tuple[bytes, Tokenizer, float]:
    """Train on a spilled corpus.

    Returns SentencePiece's model file, the same tokenizer for ``tokenizers``, and the character
    coverage used. Ids: 0 unknown (never produced: bytes catch everything), special tokens, newline,
    tab, 256 bytes, pieces. Raises ``TokenizerError`` where the vocabulary is too small.
    """
    room = vocab - _BYTE_PIECES - len(_PRINTABLE_ASCII) - len(special_tokens) - 3
    if room < 16:
        least = vocab - room + 16
        raise TokenizerError(f"vocab {vocab} is too small for unigram: ask for {least} or more")
    if not corpus.lines:
        raise TokenizerError("the corpus holds no text to learn from: give documents with text")
    coverage = coverage_for(corpus.characters, room)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus.path),
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
            character_coverage=coverage,
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
            user_defined_symbols=["\n", "\t"],
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
        raise TokenizerError(
            f"SentencePiece could not train {vocab} pieces: {reason}; try a smaller vocab, "
            "more text, or model bpe"
        ) from error
    return model.getvalue(), convert(model.getvalue()), coverage


def convert(model: bytes) -> Tokenizer:
    """A SentencePiece Unigram model, as trained here, for ``tokenizers``.

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
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\n| +[^ \n]*|[^ \n]+"), behavior="isolated"
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return tokenizer
