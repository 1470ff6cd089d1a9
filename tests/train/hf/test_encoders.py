"""An encoder computes in transformers what it does here, and comes back bit for bit."""

from __future__ import annotations

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.roles import Roles
from llmcurate.base.settings import from_dict, unflatten
from tests.train.hf.small_encoders import small
from tests.train.loop.small_runs import build, trained
from train.generate import load as load_run
from train.hf.export import config_json, export
from train.hf.families import FAMILIES, family_of
from train.hf.load import import_model
from train.measure.accounting import parameters
from train.model.config import ModelConfig
from train.model.presets import preset

transformers = pytest.importorskip("transformers")
ENDS = Roles(begin=0, ends=(0,))

pytestmark = pytest.mark.lab
transformers.logging.set_verbosity_error()


CASES = {
    "bert": small("bert-tiny"),
    "bert without pairs": small("bert-tiny", **{"head.pair": "none", "embedding.segments": 1}),
    "roberta": small("roberta-tiny", **{"position.offset": 2}),
    "albert": small("albert-tiny", **{"embedding.size": 20}),
    "albert in groups": small("albert-tiny", **{"share": 2, "embedding.size": 20}),
    "deberta": small("deberta-tiny", **{"position.span": 16}),
    "deberta, short": small("deberta-tiny", **{"position.span": 200}),
    "deberta-v2": small("deberta-tiny", **{"attention.bias": "all", "embedding.segments": 2}),
    "deberta-v3": small(
        "deberta-tiny",
        **{"attention.bias": "all", "position": {"span": 60, "buckets": 8}},
        **{"position.norm": True, "position.shared": True},
    ),
    "electra": small("electra-tiny", generator=None),
    "electra, narrow": small("electra-tiny", generator=None, **{"embedding.size": 20}),
    "electra's generator": small(
        "electra-tiny", **{"generator.smaller": 2, "embedding.size": 20}
    ).generator_config,
    "modernbert": small("modernbert-tiny", **{"attention.window": 4}),
}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
@torch.no_grad()
def test_the_export_computes_the_same_and_comes_back(config, tmp_path, small_tokenizer):
    model = build(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    architecture = export(run, tmp_path / "hf").architecture
    theirs, info = getattr(transformers, architecture).from_pretrained(
        tmp_path / "hf", output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids = torch.randint(5, 300, (2, 40), generator=torch.Generator().manual_seed(2))
    kinds = {}
    if config.embedding.segments == 2:
        kinds = {"token_type_ids": (torch.arange(40) > 17).long().expand(2, -1)}
    out = theirs.eval()(input_ids=ids, **kinds)
    logits = out.logits if "logits" in out else out.prediction_logits
    if config.head.replaced:
        ours = model.replaced(ids, segments=kinds["token_type_ids"])
    else:
        features = model.features(ids, segments=kinds.get("token_type_ids"))
        ours = model.logits(features)
    assert float((logits - ours).abs().max()) <= 1e-5 * float(ours.abs().max())
    if model.head.pair is not None:
        pair = out.seq_relationship_logits if config.head.pair == "next" else out.sop_logits
        assert torch.allclose(model.head.pair(features[:, 0]), pair, atol=1e-5, rtol=1e-5)

    import_model(tmp_path / "hf", tmp_path / "back")
    back, _ = load_run(tmp_path / "back")
    assert back.config == config
    for name, weight in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight), name


# Parameters of transformers' classes for masked language models, with the heads for pairs of
# segments that BERT and ALBERT were trained with. ModernBERT's are those its model cards state,
# DeBERTa-v3's with theirs (44, 86 and 304 million, and 98 or 131 of embeddings) too; ELECTRA's are
# the discriminators', of which the paper says 14, 110 and 335 million.
PUBLISHED = {
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "roberta-base": 124_697_433,
    "roberta-large": 355_412_057,
    "albert-base": 11_813_810,
    "albert-large": 17_847_474,
    "albert-xlarge": 59_021_490,
    "albert-xxlarge": 223_158_450,
    "spanbert-base": 108_340_804,
    "spanbert-large": 333_610_308,
    "deberta-base": 139_244_121,
    "deberta-large": 406_264_921,
    "deberta-v3-small": 142_024_548,
    "deberta-v3-base": 184_551_780,
    "deberta-v3-large": 435_191_908,
    "electra-small": 13_549_057,
    "electra-base": 109_483_009,
    "electra-large": 335_142_913,
    "modernbert-base": 149_655_232,
    "modernbert-large": 395_881_664,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_published_sizes_and_those_of_the_classes(name):
    config = preset(name).trunk
    family = family_of(config)
    assert parameters(config) == PUBLISHED[name]
    values = dict(config_json(config, family, ENDS))
    theirs = getattr(transformers, family.class_of(config))
    with torch.device("meta"):
        model = theirs(theirs.config_class(**values))
    assert sum(weight.numel() for weight in model.parameters()) == parameters(config)
    settings = FAMILIES[family.name].settings(values, "config.json")
    read = unflatten(family.read(settings, None).ours | {"vocab": config.vocab})
    assert from_dict(ModelConfig, read, "config.json") == config


@torch.no_grad()
def test_a_discriminator_is_exported_with_its_generator(tmp_path, small_tokenizer):
    config = small("electra-tiny", **{"generator.smaller": 2})
    model = build(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    assert export(run, tmp_path / "hf").architecture == "ElectraForPreTraining"
    ids = torch.randint(5, 300, (2, 40), generator=torch.Generator().manual_seed(2))
    for folder, of, ours in (
        ("hf", "ElectraForPreTraining", model.replaced(ids)),
        ("hf/generator", "ElectraForMaskedLM", model(ids)),
    ):
        theirs = getattr(transformers, of).from_pretrained(tmp_path / folder).eval()
        assert float((theirs(ids).logits - ours).abs().max()) <= 1e-5 * float(ours.abs().max())
    import_model(tmp_path / "hf", tmp_path / "back")
    back, _ = load_run(tmp_path / "back")
    assert torch.equal(back.replaced(ids), model.replaced(ids))
    with pytest.raises(LlmcurateError, match="a discriminator predicts no tokens"):
        back(ids)


def test_models_without_a_class_are_refused_with_the_nearest_class():
    config = small("bert-tiny", **{"feed_forward.activation": "geglu"})
    with pytest.raises(LlmcurateError, match=r"nearest is bert, but for feed_forward\.activation"):
        family_of(config)
