"""Unigram's pieces by SentencePiece's trainer, from a file of lines."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import sentencepiece

from llmcurate.base.errors import RunFailed
from tokenize_kit.formats.forms import NORMAL, SPACE
from tokenize_kit.formats.sentencepiece_model import NotAModel, read_model
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
