"""Longformer and BigBird: their masks and sizes are those of transformers' classes."""

from __future__ import annotations

import pytest
import torch

from llmcurate.base.settings import change
from train.lab.hf.encoders import ROBERTA
from train.measure.accounting import parameters
from train.model.decoder import Decoder
from train.model.presets import preset


def test_a_longformer_has_the_logits_of_transformers_class():
    """Its global tokens' own projections are made equal to those of all tokens."""
    import transformers  # takes seconds, also where tests are only collected

    config = change(
        preset("longformer-tiny", vocab=50, context=62),
        {"layers": 2, "hidden": 24, "attention.heads": 3, "attention.kv_heads": 3}
        | {"attention.head_dim": 8, "attention.window": 5, "dropout": 0.0},
        "model",
    )
    model = Decoder(config).eval()
    model.initialise(1)
    theirs = transformers.LongformerForMaskedLM(
        transformers.LongformerConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=3,
            intermediate_size=config.feed_forward.width,
            max_position_embeddings=config.context + 2,
            type_vocab_size=1,
            attention_window=8,
            pad_token_id=1,
            layer_norm_eps=config.norm.eps,
        )
    ).eval()
    ours, state = model.state_dict(), {}
    for weight in ROBERTA.weights(config):
        packed = weight.layout.pack([ours[name] for name in weight.ours])
        name = weight.theirs.replace("roberta.", "longformer.")
        state[name] = packed
        for part in ("query", "key", "value"):
            if f"self.{part}." in name:
                state[name.replace(f"self.{part}.", f"self.{part}_global.")] = packed
    missing, strange = theirs.load_state_dict(state, strict=False)
    assert not strange and {name.rsplit(".", 2)[-2] for name in missing} <= {"decoder", "lm_head"}
    tokens = torch.randint(2, 50, (2, 48), generator=torch.Generator().manual_seed(0))
    marked = torch.zeros_like(tokens)
    marked[:, 0] = 1
    with torch.no_grad():
        expected = theirs(tokens, global_attention_mask=marked).logits
        logits = model(tokens)
    assert float((logits - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


CLASSES = {
    "longformer-base": (
        "Longformer",
        {"vocab_size": 50_265, "max_position_embeddings": 4098, "type_vocab_size": 1},
        "_global.",  # projections of global tokens
    ),
    "bigbird-base": (
        "BigBird",
        {},
        ".pooler.",  # of pairs of segments
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_presets_have_the_weights_of_the_classes_but_for_those_named(name):
    import transformers

    kind, settings, without = CLASSES[name]
    config = getattr(transformers, f"{kind}Config")(**settings)
    with torch.device("meta"):
        theirs = getattr(transformers, f"{kind}ForMaskedLM")(config)
    count = sum(w.numel() for name, w in theirs.named_parameters() if without not in name)
    assert parameters(preset(name)) == count
