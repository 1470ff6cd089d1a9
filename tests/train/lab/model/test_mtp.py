"""Modules for multi-token prediction: their input, their targets, and where they are refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.data.feed_settings import MODEL, PLAIN
from tests.train.loop.small_runs import build, trained
from tests.train.model.variants import LATENT, SHAPE
from train.config import TrainConfig
from train.generate import load as load_run
from train.hf.export import export
from train.hf.load import import_model
from train.lab.model.heads import mtp_features
from train.loop.pretrain import pretrain
from train.loop.training_step import rebalance
from train.measure.accounting import (
    attention_flops,
    matmul_parameters,
    parameters,
    parts,
)
from train.measure.describe import weight_bytes
from train.model.decoder import Decoder
from train.objectives.example import IGNORED, Example
from train.objectives.losses import Losses

CONFIG = change(SHAPE, {"head.mtp": 2}, "model")
DOCUMENTS = torch.tensor([[0] * 7 + [1] * 5, [2] * 10 + [-1] * 2])


def example() -> Example:
    tokens = torch.randint(61, (2, 13), generator=torch.Generator().manual_seed(3))
    targets = torch.where(DOCUMENTS < 0, IGNORED, tokens[:, 1:])
    targets[0, 6] = IGNORED  # the next token is of another document
    return Example(inputs=tokens[:, :-1], targets=targets, documents=DOCUMENTS)


def made(config=CONFIG) -> Decoder:
    model = Decoder(config)
    model.initialise(0)
    return model.double()


EXPERTS = {"feed_forward": {"kind": "experts", "count": 4, "width": 20}}


@pytest.mark.parametrize(
    "changes", [{}, {"attention": LATENT}, EXPERTS], ids=["grouped", "latent", "experts"]
)
@torch.no_grad()
def test_a_module_reads_the_features_and_as_many_tokens_ahead_as_its_depth(changes):
    model, rows = made(change(CONFIG, changes, "model")), example()
    whole = list(mtp_features(model, rows.read_by(model), rows.inputs, documents=DOCUMENTS))
    for depth, features in enumerate(whole, start=1):
        changed = rows.inputs.clone()
        changed[0, 5] = (changed[0, 5] + 1) % 61
        other = dataclasses.replace(rows, inputs=changed)
        again = list(mtp_features(model, other.read_by(model), changed, documents=DOCUMENTS))[
            depth - 1
        ]
        differs = ((features - again).abs() > 1e-9).any(-1)
        assert differs.nonzero().tolist() == [[0, n] for n in range(5 - depth, 7)]


@torch.no_grad()
def test_a_module_is_that_of_transformers():
    transformers = pytest.importorskip("transformers")
    layers = pytest.importorskip("transformers.modeling_layers")
    if not hasattr(layers, "MtpLayer"):
        pytest.skip("this version of transformers has no modules of this kind")
    from transformers.models.llama import modeling_llama as llama

    model, rows = build(change(CONFIG, {"head.mtp": 1}, "model")), example()
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5, attn_implementation="eager",
    )  # fmt: skip
    theirs = layers.MtpLayer(config, llama.LlamaDecoderLayer, llama.LlamaRMSNorm, 0)
    (ours,) = model.mtp
    names = {
        "enorm": ours.token_norm,
        "hnorm": ours.norm,
        "eh_proj": ours.join,
        "post_norm": ours.out_norm,
        "mtp_block.input_layernorm": ours.block.attention_norm,
        "mtp_block.self_attn.q_proj": ours.block.attention.query,
        "mtp_block.self_attn.k_proj": ours.block.attention.key,
        "mtp_block.self_attn.v_proj": ours.block.attention.value,
        "mtp_block.self_attn.o_proj": ours.block.attention.out,
        "mtp_block.post_attention_layernorm": ours.block.feed_forward_norm,
        "mtp_block.mlp.gate_proj": ours.block.feed_forward.gate,
        "mtp_block.mlp.up_proj": ours.block.feed_forward.up,
        "mtp_block.mlp.down_proj": ours.block.feed_forward.down,
    }
    theirs.load_state_dict({f"{name}.weight": part.weight for name, part in names.items()})
    tokens, length = rows.inputs, 12
    features = model.features(tokens)
    (found,) = mtp_features(model, features, tokens)
    places = torch.arange(length)[None]
    seen = torch.full((length, length), float("-inf")).triu(1)[None, None]
    later = F.pad(tokens[:, 1:], (0, 1))
    expected = theirs(
        model.embedding(later),
        features,
        position_embeddings=llama.LlamaRotaryEmbedding(config)(features, places),
        attention_mask=seen,
        position_ids=places,
        past_key_values=None,
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_the_loss_is_the_mean_of_the_modules_over_targets_that_are_in_the_document():
    model, rows = made(), example()
    losses = Losses(model, TrainConfig(mtp_weight=0.2))
    terms = losses(rows)
    nats = []
    features = rows.read_by(model)
    for depth, read in enumerate(
        mtp_features(model, features, rows.inputs, documents=DOCUMENTS), start=1
    ):
        logits, total = model.logits(read), torch.zeros((), dtype=torch.float64)
        for row in range(2):
            for i in range(12 - depth):
                j = i + depth
                if DOCUMENTS[row, i] == DOCUMENTS[row, j] and rows.targets[row, j] != IGNORED:
                    total = total + F.cross_entropy(logits[row, i], rows.targets[row, j])
        nats.append(total)
    expected = torch.stack(nats).mean()
    assert terms["mtp"].weight == 0.2
    torch.testing.assert_close(terms["mtp"].sum, expected, check_dtype=False)
    leaves = [weight for name, weight in model.named_parameters() if "mtp" in name]
    leaves += [model.embedding.weight, model.stack.blocks[0].attention.query.weight]
    got = torch.autograd.grad(terms["mtp"].sum, leaves, retain_graph=True)
    torch.testing.assert_close(got, torch.autograd.grad(expected, leaves), check_dtype=False)
    plain = made(SHAPE)
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if not name.startswith("mtp.")}
    )
    alone = Losses(plain, TrainConfig())(rows)
    assert "mtp" not in alone
    assert torch.equal(alone["loss"].sum, terms["loss"].sum)


def test_experts_of_modules_are_balanced_as_those_of_layers_are():
    given = EXPERTS["feed_forward"] | {"bias_rate": 0.1, "first_dense": 1, "dense_width": 40}
    model = made(change(CONFIG, {"feed_forward": given}, "model"))
    losses, rows = Losses(model, TrainConfig()), example()
    terms = losses(rows)
    assert terms["loads"].sum.shape == (3, 4)  # of the second layer and of both modules
    assert terms["loads"].sum.sum(-1).tolist() == [44, 44, 44]  # 22 tokens, two experts each
    assert terms["balance"].weight == pytest.approx(3 * 0.01)
    mixtures = [model.stack.blocks[1].feed_forward, *(m.block.feed_forward for m in model.mtp)]
    said = [mixture.router.weight for mixture in mixtures]
    assert all(grad.any() for grad in torch.autograd.grad(terms["balance"].sum, said))
    rebalance(model, terms["loads"].sum)
    for mixture, loads in zip(mixtures, terms["loads"].sum, strict=True):
        assert torch.equal(mixture.router.bias.sign(), (loads.mean() - loads).sign().double())


def test_a_run_learns_them_and_logs_their_loss(shard_folder, tmp_path):
    torch.set_num_threads(1)
    model = change(MODEL, {"head.mtp": 2}, "model")
    plan = dataclasses.replace(PLAIN, steps=12, lr=0.01, log_every=1)
    pretrain(shard_folder, tmp_path / "run", model=model, train=plan)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line)["mtp"] for line in lines if "mtp" in line]
    assert len(logged) == 12
    assert logged[-1] < 0.95 * logged[0]


@torch.no_grad()
def test_export_leaves_mtp_modules_out(tmp_path, small_tokenizer):
    transformers = pytest.importorskip("transformers")
    model = build(change(CONFIG, {"vocab": 300}, "model"))
    run = trained(tmp_path / "run", model, small_tokenizer)
    facts = export(run, tmp_path / "hf")
    assert facts.parameters == parameters(model.config) - parts(model.config).mtp
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokens = torch.randint(300, (2, 24), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(theirs(tokens).logits, model(tokens), rtol=1e-4, atol=1e-4)
    import_model(tmp_path / "hf", tmp_path / "back")
    back, _ = load_run(tmp_path / "back")
    assert back.config == model.config.trunk
    assert torch.equal(back(tokens), model(tokens))


def test_mtp_modules_cost_a_block_two_norms_and_the_head_again():
    one = change(CONFIG, {"layers": 1, "head.mtp": 0}, "model")
    a_block = parts(one).attention + parts(one).feed_forward
    assert parts(CONFIG).mtp == 2 * (a_block + 2 * 32 * 32 + 5 * 32)
    assert parameters(CONFIG) == sum(weight.numel() for weight in Decoder(CONFIG).parameters())
    more = matmul_parameters(CONFIG) - matmul_parameters(CONFIG.trunk)
    assert more == 2 * (a_block + 2 * 32 * 32 + 32 * 61)
    assert attention_flops(CONFIG, 32) == 2 * attention_flops(CONFIG.trunk, 32)
    assert weight_bytes(CONFIG) == weight_bytes(CONFIG.trunk)  # serving needs none of them


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({"causal": False}, "causal false"),
        ({"mup_base": 32}, "mup_base"),
        ({"embedding.size": 8}, "embedding.size"),
    ],
)
def test_settings_incompatible_with_mtp_are_refused_in_one_line(settings, other):
    with pytest.raises(LlmcurateError, match=f"head.mtp 2 with {other}") as caught:
        change(CONFIG, settings, "model")
    assert caught.value.exit_code == 2
