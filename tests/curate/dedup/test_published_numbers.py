"""The numbers that papers and published code give, beside the place where they were read."""

from __future__ import annotations

from typing import Any

import pytest

from curate.dedup.bloom.seen_before import DedupBloom
from curate.dedup.decontaminate.decontamination import NGRAM, THRESHOLD, Decontaminate
from curate.dedup.decontaminate.windows import CHARACTERS, SHORTEST
from curate.dedup.minhash.near_duplicates import NGRAM as SHINGLE
from curate.dedup.minhash.near_duplicates import PRESETS, VERIFIED
from curate.dedup.passages.kernels import UNITS
from curate.dedup.passages.repeated_passages import MIN_SENTENCES, MIN_WORDS
from curate.dedup.suffix_array import exact_substrings as suffix_array
from curate.lab.semantic.semantic_duplicates import DedupSemantic
from curate.scoring.language.identification import THRESHOLD as LANGUAGE
from curate.scoring.perplexity.model import CUTOFFS
from curate.scoring.perplexity.perplexity import Perplexity
from curate.steps.contracts import Settings

DEFAULTS: dict[str, tuple[type[Settings], dict[str, Any]]] = {
    "Brown et al. 2020 (GPT-3), appendix C, as lm-evaluation-harness, janitor.py, has it": (
        Decontaminate, {"context": 200, "min_piece": 200, "max_pieces": 10},
    ),
    "Li et al. 2024 (DCLM), dedup/bff/README.md": (
        DedupBloom, {"ngram": 13, "threshold": 0.8, "false_positives": 0.01},
    ),
    "Abbas et al. 2023, epsilon: one of those of SemDeDup, constants.py": (
        DedupSemantic, {"epsilon": 0.07},
    ),
    "Wenzek et al. 2020 (CCNet), cc_net/perplexity.py, percentile_head and _tail": (
        Perplexity, {"head": 30.0, "tail": 60.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", DEFAULTS)
def test_defaults_are_the_numbers_of(source: str) -> None:
    step, expected = DEFAULTS[source]
    assert {name: step.model_fields[name].default for name in expected} == expected


def test_bands_are_those_of_the_papers() -> None:
    """Penedo et al. 2024 (FineWeb), E.1: 112 hashes, and RefinedWeb's 9,000; Penedo et al. 2023
    (RefinedWeb), G.3.1, after Lee et al. 2022, A; Li et al. 2024 (DCLM): 1,395 hashes."""
    assert PRESETS == {
        "fineweb": (14, 8), "lee2022": (450, 20), "refinedweb": (450, 20), "dclm": (93, 15),
    }  # fmt: skip
    assert VERIFIED == {"lee2022": 0.8} and SHINGLE["word"] == 5


def test_passages_are_as_long_as_in_the_papers() -> None:
    """Lee et al. 2022, README.md of its code: 50 tokens; Raffel et al. 2020, 2.2: spans of three
    sentences; c4_utils.py, _MIN_NUM_SENTENCES: pages of three; DataTrove, sentence_dedup.py: both,
    and 50 words."""
    assert suffix_array.THRESHOLD["tokens"] == 50
    assert {name: unit.span for name, unit in UNITS.items()} == {
        "line": 1, "sentences": 3, "paragraph": 1,
    }  # fmt: skip
    assert MIN_SENTENCES == {"line": 3, "sentences": 3, "paragraph": 0}
    assert MIN_WORDS == {"line": 0, "sentences": 50, "paragraph": 0}


def test_windows_of_evaluation_items_are_as_long_as_in_the_papers() -> None:
    """Brown et al. 2020, appendix C: 13 words (janitor.py), items of at least 8;
    OpenAI 2023, appendix C: 50 characters; Chowdhery et al. 2022, section 8: 70 % of 8-grams;
    Borgeaud et al. 2022, section 2.1: 13-grams, a similarity of 0.8 or higher."""
    assert (CHARACTERS, SHORTEST["13-gram"], NGRAM["jaccard"]) == (50, 8, 13)
    assert (NGRAM["overlap"], THRESHOLD) == (8, {"overlap": 0.7, "jaccard": 0.8})


def test_ccnets_cut_offs_are_those_of_its_table() -> None:
    """facebookresearch/cc_net, cc_net/data/cutoff.csv, percentiles 30 and 60."""
    assert CUTOFFS == {
        "en": (340, 520), "de": (370, 590), "fr": (180, 330), "ru": (210, 310), "zh": (1460, 1950),
    }  # fmt: skip


def test_a_language_is_sure_from_refinedwebs_score_on() -> None:
    """DataTrove, language_filter.py; DCLM, refinedweb.yaml (Penedo et al. 2023 and 2024, 3.1)."""
    assert LANGUAGE == 0.65
