"""Constants that a paper or a published program has, beside the place where they were read.

Files *.cc and *.proto are sentencepiece's.
"""

from __future__ import annotations

import pytest

from tokenize_kit.encode import unigram
from tokenize_kit.judge import tally
from tokenize_kit.lab import embeddings as focus
from tokenize_kit.lab import unigram as changed
from tokenize_kit.learn import bpe, options, unigram_em, unigram_pieces, unigram_seeds

PRINTED = {
    "sentencepiece_model.proto: character_coverage": (options.COVERAGE, 0.9995),
    "sentencepiece_model.proto: seed_sentencepiece_size, max_sentencepiece_length": (
        (unigram_seeds.MOST, unigram_seeds.LONGEST),
        (1_000_000, 16),
    ),
    "sentencepiece_model.proto: num_sub_iterations, shrinking_factor": (
        (unigram_pieces._ROUNDS, unigram_pieces._SHRINK),
        (2, 0.75),
    ),
    "unigram_model_trainer.cc: kExpectedFrequencyThreshold, 1.1 times the vocabulary": (
        (float(unigram_pieces._LEAST), unigram_pieces._SURPLUS),
        (0.5, 1.1),
    ),
    "unigram_model_trainer.cc: kMinScorePenaltyDelta, of characters without a score": (
        float(unigram_pieces._STEP),
        pytest.approx(0.0001),
    ),
    "unigram_model.cc: kUnkPenalty": (
        (unigram.PENALTY, unigram_em.PENALTY, changed._UNKNOWN),
        (10.0, 10.0, 10.0),
    ),
    "Zouhar et al. 2023, tokenization-scorer: Renyi efficiency at 2.5": (
        tally.ALPHA,
        2.5,
    ),
    "Liu et al. 2025 (SuperBPE), scripts: mw4, four words of a token": (
        bpe.WORDS,
        4,
    ),
    "Levy et al. 2015, context distribution smoothing: to the power 0.75": (focus._SMOOTHING, 0.75),
    "fastText, src/args.cc: ws 5, dim 100; FOCUS, focus.py: fasttext_model_dim 100": (
        (focus._WINDOW, focus._DIMENSIONS),
        (5, 100),
    ),
}


@pytest.mark.parametrize("paper", PRINTED)
def test_a_constant_is_that_of_its_paper(paper):
    ours, printed = PRINTED[paper]
    assert ours == printed
