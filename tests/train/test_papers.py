"""Constants that a paper prints, beside the place or the file where they were read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from train.config import TrainConfig
from train.lab import mixtures, rope_search
from train.lab.model import heads, latent
from train.lab.objectives import labels, masked
from train.lab.scaling import laws
from train.model.position_settings import Rope, RopeScaling
from train.model.presets import preset
from train.objective_settings import (
    Bart,
    BertStyle,
    DroppedTokens,
    FillInTheMiddle,
    Masked,
    MassStyle,
    Replaced,
    Spans,
    Ul2,
)
from train.optim import optimizers

PRINTED = {
    "Liu et al. 2024, synthesize_mixture.py of regmix: MIN_STRENGH and MAX_STRENGH": (
        mixtures.CONCENTRATIONS,
        (0.1, 5.0),
    ),
    "Ding et al. 2024, dim_mono.json of LongRoPE: population, parents, mutation, crossover": (
        (rope_search.POPULATION, rope_search.TOP, rope_search.MUTATIONS, rope_search.CROSSOVERS),
        (64, 32, 16, 16),
    ),
    "Radford et al. 2019, model.py of gpt-2, which Gopher and Chinchilla build on: tanh's GELU": (
        {
            preset(name).feed_forward.activation
            for name in ("gpt2", "gopher-280b", "chinchilla-70b")
        },
        {"gelu_tanh"},
    ),
    "Chowdhery et al. 2022, section 2: no biases in dense kernels or layer norms": (
        (preset("palm-540b").norm.kind, preset("palm-540b").feed_forward.bias),
        ("layer_no_bias", False),
    ),
    "Devlin et al. 2019, create_pretraining_data.py: 80 % masks, 10 % random, 10 % as it is": (
        (masked.MASKED, masked.RANDOM),
        (0.8, 0.1),
    ),
    "Devlin et al. 2019, the same, masked_lm_prob: 15 % hidden": (
        (Masked().rate, Masked().fixed),
        (0.15, False),
    ),
    "Devlin et al. 2019, run_squad.py: answers of 30 tokens": (
        labels.LONGEST,
        30,
    ),
    "Joshi et al. 2020, span_bert.py: spans of 10 words at most; 3.1: 3.8 in the mean": (
        (masked.LONGEST, Masked().span),
        (10, 3.8),
    ),
    "Joshi et al. 2020, span_bert.py, max-pair-targets: 20 places in a span": (heads.PLACES, 20),
    "Levine et al. 2021, README.md of pmi-masking: 2 to 5 words, over 10 occurrences": (
        (masked.LONGEST_NGRAM, masked.MIN_COUNT),
        (5, 10),
    ),
    "Clark et al. 2020, configure_pretraining.py, disc_weight: 50": (Replaced().weight, 50.0),
    "Raffel et al. 2020, span_3_15_u_u.gin: 15 % hidden, spans of 3": (
        (Spans().rate, Spans().span),
        (0.15, 3),
    ),
    "Raffel et al. 2020, iid_15_{r10s90_f,m_f,d_d}.gin: of 15 % a tenth random, or none": (
        (BertStyle().rate, BertStyle().random, MassStyle().random, DroppedTokens().rate),
        (0.15, 0.1, 0.0, 0.15),
    ),
    "Tay et al. 2022, table 1, as README.md of unify-learning-paradigms quotes it": (
        [(d.mode, d.rate, d.span, d.weight) for d in Ul2().denoisers],
        [
            ("R", 0.15, 3.0, 1.0),
            ("R", 0.15, 8.0, 1.0),
            ("S", 0.25, None, 1.0),
            ("X", 0.5, 3.0, 1.0),
            ("X", 0.5, 8.0, 1.0),
            ("X", 0.15, 64.0, 1.0),
            ("X", 0.5, 64.0, 1.0),
        ],
    ),
    "Lewis et al. 2020, 5.1: 30 %, sentences permuted; 2.2: spans of 3 (Poisson)": (
        (Bart().rate, Bart().span, Bart().noises),
        (0.3, 3.0, ("permutation", "infilling")),
    ),
    "Bavarian et al. 2022, as Ben Allal et al. 2023 (SantaCoder): rate 0.5, half suffix first": (
        (FillInTheMiddle().rate, FillInTheMiddle().spm),
        (0.5, 0.5),
    ),
    "Jordan et al. 2024, muon.py: five steps of the quintic": (
        (optimizers._A, optimizers._B, optimizers._C, optimizers._NEWTON_SCHULZ_STEPS),
        (3.4445, -4.7750, 2.0315, 5),
    ),
    "Jordan et al. 2024, muon.py: momentum of Muon": (TrainConfig().momentum, 0.95),
    "Brown et al. 2020, appendix B: AdamW and the norm of a gradient": (
        [getattr(TrainConfig(), n) for n in ("beta1", "beta2", "eps", "clip", "weight_decay")],
        [0.9, 0.95, 1e-8, 1.0, 0.1],
    ),
    "Shazeer and Stern 2018, as the Adafactor of transformers": (
        (optimizers._GRADIENT_EPS, optimizers._SCALE_EPS, optimizers._CLIP, optimizers._DECAY),
        (1e-30, 1e-3, 1.0, -0.8),
    ),
    "Hoffmann et al. 2022, equation 10": (
        dataclasses.astuple(laws.HOFFMANN),
        (1.69, 406.4, 410.7, 0.34, 0.28),
    ),
    "Hoffmann et al. 2022, table 3: 20 tokens per parameter": (laws.TOKENS_PER_PARAMETER, 20),
    "Besiroglu et al. 2024, table 1": (
        dataclasses.astuple(laws.BESIROGLU),
        (1.8172, 482.01, 2085.43, 0.3478, 0.3658),
    ),
    "Kaplan et al. 2020, table 2": (
        dataclasses.astuple(laws.KAPLAN),
        (6.4e13, 1.8e13, 0.076, 0.103),
    ),
    "Kaplan et al. 2020, 2.1: C = 6ND": (laws.PER_PAIR, 6),
    "Muennighoff et al. 2023, README.md of datablations: R_D* and R_N*": (
        dataclasses.astuple(laws.Repeats()),
        (15.387756, 5.309743),
    ),
    "DeepSeek-V2's code, as transformers has it: eps of the norms of latent attention": (
        latent.EPS,
        1e-6,
    ),
}


@pytest.mark.parametrize("paper", PRINTED)
def test_a_constant_is_that_of_its_paper(paper):
    ours, printed = PRINTED[paper]
    assert ours == printed


@pytest.mark.parametrize(
    ("name", "theta"),
    [
        ("llama-7b", 10_000),  # Su et al. 2021, section 3.3
        ("llama2-70b", 10_000),
        ("mistral-7b", 10_000),
        ("llama3-8b", 500_000),  # Grattafiori et al. 2024, section 3.2
        ("llama3.1-405b", 500_000),
        ("qwen-7b", 10_000),
        ("qwen2.5-7b", 1_000_000),  # Yang et al. 2024, section 3.3
        ("yi-34b", 5_000_000),  # its config.json
    ],
)
def test_the_base_of_the_rotation_is_the_published_one(name, theta):
    position = preset(name).position
    assert isinstance(position, Rope) and position.theta == theta


def test_yarn_has_the_turns_of_its_paper():
    """Peng et al. 2023, scaled_rope of its code: beta_slow 1, beta_fast 32."""
    scaling = RopeScaling(kind="yarn", factor=4.0, original_context=2048)
    assert (scaling.beta_slow, scaling.beta_fast) == (1.0, 32.0)


@pytest.mark.parametrize(
    ("name", "factor"), [("llama3.1-8b", 8.0), ("llama3.1-405b", 8.0), ("llama3.2-1b", 32.0)]
)
def test_llama_31_stretches_the_rotation_as_its_config_says(name, factor):
    position = preset(name).position
    assert isinstance(position, Rope) and position.scaling is not None
    scaling = position.scaling
    assert (scaling.kind, scaling.factor, scaling.original_context) == ("llama3", factor, 8192)
    assert (scaling.low, scaling.high) == (1.0, 4.0)


@pytest.mark.parametrize(
    ("hidden", "width"), [(4096, 11_008), (5120, 13_824), (6656, 17_920), (8192, 22_016)]
)
def test_a_gated_width_is_two_thirds_of_four_times_the_hidden_size_as_llama_rounds_it(
    hidden, width
):
    """Touvron et al. 2023, section 2.2, after Shazeer 2020; widths of the released models."""
    sizes = {4096: "7b", 5120: "13b", 6656: "33b", 8192: "65b"}
    published = preset(f"llama-{sizes[hidden]}").feed_forward.width
    assert -(-(8 * hidden // 3) // 256) * 256 == published == width


def test_a_tenth_of_a_budget_and_ten_times_of_it_are_the_printed_models_of_chinchilla():
    """Hoffmann et al. 2022, table 3: 400 million to 8.0 billion, 67 billion to 1.5 trillion."""
    for flops, parameters, tokens in ((1.92e19, 4e8, 8e9), (5.76e23, 6.7e10, 1.5e12)):
        assert laws.rule_of_twenty(flops) == pytest.approx((parameters, tokens), rel=0.12)
    assert laws.MUENNIGHOFF.alpha == laws.MUENNIGHOFF.beta == 0.3526596
    assert np.log([laws.MUENNIGHOFF.a, laws.MUENNIGHOFF.b]) == pytest.approx([6.255414, 7.3049974])
