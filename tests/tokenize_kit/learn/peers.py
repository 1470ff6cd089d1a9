"""Reference learners: those of SentencePiece and `tokenizers`, with the inputs of our learners."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from tokenize_kit.formats.forms import NORMAL, SPACE
from tokenize_kit.formats.sentencepiece_model import read_model
from tokenize_kit.formats.tokenizer_json import LETTERS, from_letters
from tokenize_kit.learn.bpe import Merge, Words

_PLANES = ((0xF0000, 0xFFFE), (0x100000, 0xFFFE))  # private use: first code point, how many
_LONGEST = 512  # symbols of a piece at most in SentencePiece
_WORD = 60_000  # symbols of a word: SentencePiece counts positions in 16 bits


def learn_sentencepiece(
    words: Words, most: int, longest: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges by SentencePiece's BPE trainer.

    Its pieces come in the order of its merges. Their merges are all ways to make a piece of two
    others, which is how SentencePiece itself encodes: by the piece, not by its parts.
    """
    if not len(words.symbols) or most <= words.bases:
        return []
    occurring = len(np.unique(words.symbols))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_lines(words),
        input_format="tsv",
        model_writer=model,
        model_type="bpe",
        # Merges, symbols, the unknown token, and as many more as may turn out to be banned.
        vocab_size=most - words.bases + occurring + 1 + len(banned),
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_by_unicode_script=False,
        split_by_number=False,
        character_coverage=1.0,
        max_sentencepiece_length=min(longest, _LONGEST),
        max_sentence_length=2**30,
        input_sentence_size=0,
        shuffle_input_sentence=False,
        num_threads=1,
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    spelled = (_symbols(pieces.id_to_piece(k)) for k in range(1, pieces.get_piece_size()))
    refused = set(map(tuple, banned))
    return _merges_of((s for s in spelled if len(s) > 1 and s not in refused), words.bases, most)


def _letter(symbol: int) -> str:
    (first, size), (second, _) = _PLANES
    return chr(first + symbol if symbol < size else second + symbol - size)


def _symbols(piece: str) -> tuple[int, ...]:
    (first, size), (second, _) = _PLANES
    return tuple(ord(c) - first if ord(c) < second else ord(c) - second + size for c in piece)


def _lines(words: Words) -> Iterator[str]:
    """Words with their counts, sorted: the order in which they were met decides nothing."""
    letters = np.array([_letter(k) for k in range(words.bases)])
    ends = np.append(0, np.cumsum(words.sizes))
    texts = (words.symbols[a:z] for a, z in pairwise(ends.tolist()))
    counted = zip(texts, words.counts.tolist(), strict=True)
    spelled = sorted(("".join(letters[symbols]), count) for symbols, count in counted)
    for word, count in spelled:
        for k in range(0, len(word), _WORD):
            yield f"{word[k : k + _WORD]}\t{count}"


def _merges_of(pieces: Iterator[tuple[int, ...]], bases: int, most: int) -> list[Merge]:
    numbers: dict[tuple[int, ...], int] = {(k,): k for k in range(bases)}
    merges = []
    for piece in pieces:
        if len(numbers) >= most:
            break
        splits = ((piece[:k], piece[k:]) for k in range(1, len(piece)))
        pairs = [(numbers[a], numbers[b]) for a, b in splits if a in numbers and b in numbers]
        if pairs:  # a piece whose parts were banned cannot be made
            merges += [(left, right, len(numbers)) for left, right in sorted(pairs)]
            numbers[piece] = len(numbers)
    return merges


def learn_tokenizers(
    documents: Iterable[tuple[str, int]],
    parts: Sequence[str],
    most: int,
    least: int,
    longest: int,
    banned: Sequence[bytes],
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens, merges) as bpe.learn_merges gives them, learned by `tokenizers`.

    It counts in 32 bits, without the documents' weights. It makes the spellings of special tokens,
    which are taken out here.
    """
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=most,
        min_frequency=least,
        initial_alphabet=sorted(LETTERS),
        max_token_length=min(longest, 1 << 32),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text, _ in documents), trainer=trainer)
    model = json.loads(tokenizer.to_str())["model"]
    refused = set(banned)
    spelled = [
        from_letters(token) for token in sorted(model["vocab"], key=model["vocab"].__getitem__)
    ]
    merges = [(from_letters(left), from_letters(right)) for left, right in model["merges"]]
    while True:  # a token that is taken out takes those along that can only be made of it
        kept = [(a, b) for a, b in merges if not {a, b, a + b} & refused]
        merged = {a + b for a, b in kept}
        lost = {name for name in spelled if len(name) > 1 and name not in merged} - refused
        if not lost:
            break
        refused |= lost
    names = [name for name in spelled if name not in refused]
    numbers = {name: k for k, name in enumerate(names)}
    return names, [(numbers[a], numbers[b]) for a, b in kept]


# Where its trainer ends or discards a sentence (unigram_segments.py).
_CUT = re.compile("[\x00\t\n\r\u2581\u2585]+")


class SentencePieceLearner:
    """Writes texts to disk, one sentence per line, with its weight after a tab if it is not 1."""

    def __init__(self, documents: Iterable[tuple[str, int]]) -> None:
        self.characters: Counter[str] = Counter()
        self._folder = TemporaryDirectory()
        self._path = Path(self._folder.name) / "sentences"
        self._weighted = False
        with self._path.open("w", encoding="utf-8", newline="\n") as file:
            for text, weight in documents:
                for character, count in Counter(text).items():
                    self.characters[character] += count * weight
                self._weighted = self._weighted or weight != 1
                for line in _CUT.split(text):
                    if line:
                        file.write(f"{line}\t{weight}\n")
        for character in "\x00\t\n\r\u2581\u2585":
            self.characters.pop(character, None)

    def learn(
        self, kept: Sequence[str], required: str, symbols: Sequence[str], room: int
    ) -> list[tuple[str, float]]:
        """As PieceLearner.learn."""
        unknown, *others = symbols
        named = [symbol for symbol in others if not re.fullmatch("<0x[0-9A-F]{2}>", symbol)]
        vocab = room + len(symbols) + 2  # newline and tab
        model = io.BytesIO()
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
        return [(text.replace(SPACE, " "), score) for text, score, kind in pieces if kind == NORMAL]

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
