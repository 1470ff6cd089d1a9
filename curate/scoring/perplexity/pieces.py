"""Trains the SentencePiece model that texts are cut by, with CCNet's settings.

Source: the Makefile of cc_net (Wenzek et al. 2020): unigram, coverage 0.9995, texts normalised
before. It draws at most a million sentences, by a fixed seed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from curate.errors import RunFailed
from curate.scoring.perplexity.normal import ccnet_text
from curate.scoring.perplexity.sentences import Variant

_COVERAGE = 0.9995
_SENTENCES = 1_000_000
_LONGEST = 16_384  # bytes of a sentence; what is longer is passed over, so it is cut before
_THREADS = 4  # fixed, since sums of their floats depend on their number


def train_pieces(
    texts: Callable[[], Iterable[pa.LargeStringArray]], variant: Variant, vocab: int
) -> bytes:
    """A SentencePiece model's file. RunFailed where the text is too little for so many pieces."""
    import sentencepiece

    def lines() -> Iterator[str]:
        for batch in texts():
            for given in batch.to_pylist():
                text = given or ""
                found = [ccnet_text(text)] if variant == "ccnet" else text.splitlines()
                for line in found:
                    for a in range(0, len(line), _LONGEST // 4):
                        if part := line[a : a + _LONGEST // 4].strip().replace("\0", " "):
                            yield part

    out = io.BytesIO()
    sentencepiece.set_random_generator_seed(0)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=out,
            vocab_size=vocab,
            model_type="unigram",
            character_coverage=_COVERAGE,
            input_sentence_size=_SENTENCES,
            shuffle_input_sentence=True,
            max_sentence_length=_LONGEST,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        why = " ".join(str(error).split())[-160:]
        raise RunFailed(f"no {vocab} pieces can be trained on this text: {why}") from None
    return out.getvalue()
