"""A decoder with an encoder: what each token sees, and the plain reference."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from tests.train.model.variants import LATENT, SHAPE
from train.config import TrainConfig
from train.lab.objectives.denoise import width
from train.measure.accounting import (
    cache_bytes,
    flops_per_token,
    matmul_parameters,
    parameters,
    run_cost,
)
from train.measure.describe import describe, find_gpu
from train.model.decoder import Decoder
from train.objective_settings import Spans
from train.objectives.example import Example
from train.objectives.losses import Losses

ENCODER = {"encoder.layers": 3}
T5 = ENCODER | {"position": "t5", "attention.kv_heads": 4, "feed_forward.activation": "relu"}
BART = ENCODER | {
    "position": "learned",
    "norm.kind": "layer",
    "norm.place": "post",
    "embedding.norm": True,
    "attention.bias": "all",
    "feed_forward.bias": True,
    "feed_forward.activation": "gelu",
}
KINDS = {
    "rope": ENCODER,
    "t5": T5,
    "bart": BART,
    "sandwich, shared": ENCODER | {"norm.place": "sandwich", "encoder.shared": True, "layers": 3},
    "shallow decoder": ENCODER | {"layers": 1, "position": "sinusoidal"},
    "blocks alike": {"encoder.layers": 4, "share": 2, "position": "alibi"},
    "window": ENCODER | {"attention.window": 4, "attention.qk_norm": True},
}


def build(change: dict, **more) -> Decoder:
    model = Decoder(changed(SHAPE, change, "model"), **more)
    model.initialise(0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():  # larger than at the start, so that what is wrong shows
            weight.mul_(2.0).add_(0.1 * torch.randn(weight.shape, generator=draw))
    return model.double().eval()  # in floats rounding alone reaches 1e-4 on some machines


def tokens_of(rows: int, length: int, seed: int = 2) -> torch.Tensor:
    return torch.randint(61, (rows, length), generator=torch.Generator().manual_seed(seed))


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def _attention(ours, theirs):
    theirs.in_proj_weight.copy_(torch.cat([getattr(ours, n).weight for n in QKV]))
    theirs.in_proj_bias.copy_(torch.cat([getattr(ours, n).bias for n in QKV]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


QKV = ("query", "key", "value")


@torch.no_grad()
def test_an_encoder_decoder_computes_what_pytorchs_transformer_does():
    """Vaswani et al. 2017: norms after the parts, six of them in a decoder's three layers."""
    original = BART | {"feed_forward.activation": "relu", "position": "none"}
    model = build(original | {"attention.kv_heads": 4, "embedding.norm": False, "layers": 2})
    shape = {"dim_feedforward": 48, "dropout": 0.0, "batch_first": True}
    reference = nn.Transformer(32, 4, 3, 2, **shape).eval()
    reference.encoder.norm = reference.decoder.norm = None
    stacks = ((model.encoder.stack, reference.encoder), (model.stack, reference.decoder))
    for ours, theirs in stacks:
        for block, layer in zip(ours.blocks, theirs.layers, strict=True):
            _attention(block.attention, layer.self_attn)
            layer.norm1.load_state_dict(block.attention_norm.state_dict())
            last = layer.norm2
            if theirs is reference.decoder:
                _attention(block.cross, layer.multihead_attn)
                layer.norm2.load_state_dict(block.cross_norm.state_dict())
                last = layer.norm3
            last.load_state_dict(block.feed_forward_norm.state_dict())
            layer.linear1.load_state_dict(block.feed_forward.up.state_dict())
            layer.linear2.load_state_dict(block.feed_forward.down.state_dict())
    source, tokens = tokens_of(2, 9), tokens_of(2, 7, 3)
    later = nn.Transformer.generate_square_subsequent_mask(7)
    later = later.double()
    expected = reference.double()(model.embedding(source), model.embedding(tokens), tgt_mask=later)
    close(model.features(tokens, source=source), expected)


@pytest.mark.parametrize("change", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_documents_of_a_row_see_their_own_source_alone(change):
    """Rows of three documents, with padding, say of each what it says alone."""
    model = build(change)
    source, tokens = tokens_of(1, 20), tokens_of(1, 16, 3)
    of_source = torch.tensor([[4] * 9 + [1] * 5 + [7] * 4 + [-1] * 2])
    of_tokens = torch.tensor([[4] * 6 + [1] * 7 + [7] * 2 + [-1]])
    packed = model(tokens, documents=of_tokens, source=source, source_documents=of_source)
    assert packed.isfinite().all()
    for document in (4, 1, 7):
        own, read = of_tokens == document, of_source == document
        alone = model(tokens[own][None], source=source[read][None])
        close(packed[own][None], alone)


@pytest.mark.parametrize("change", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_a_token_sees_the_whole_source_and_none_that_follow_it(change):
    model = build(change | {"attention.window": None})
    source, tokens = tokens_of(2, 9), tokens_of(2, 8, 3)
    plain = model(tokens, source=source)
    later = tokens.clone()
    later[:, 5:] = 7
    assert torch.equal(model(later, source=source)[:, :5], plain[:, :5])
    for place in (0, 8):
        other = source.clone()
        other[:, place] = (other[:, place] + 1) % 61
        assert (model(tokens, source=other) != plain).any(-1).all()


@pytest.mark.parametrize("change", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_a_cache_gives_the_same_logits_and_makes_the_sources_keys_once(change):
    model, made = build(change), []
    for block in model.stack.blocks:
        block.cross.key.register_forward_hook(lambda *_: made.append(1))
    source, tokens = tokens_of(2, 9), tokens_of(2, 12, 3)
    of_source = torch.tensor([[0] * 9, [0] * 5 + [-1] * 4])  # a shorter one beside a longer
    whole = model(tokens, source=source, source_documents=of_source)
    close(whole[1:], model(tokens[1:], source=source[1:, :5]))
    made.clear()
    cache = model.empty_cache()
    pieces = [model(tokens[:, :1], source=source, source_documents=of_source, cache=cache)]
    pieces += [model(tokens[:, i : i + 1], cache=cache) for i in range(1, 12)]
    close(torch.cat(pieces, dim=1), whole)
    assert len(made) == model.config.layers


@torch.no_grad()
def test_the_cache_holds_as_much_as_is_counted():
    model = build(ENCODER)
    cache = model.empty_cache()
    model(tokens_of(1, 64), source=tokens_of(1, 64), cache=cache)
    assert cache.bytes == 4 * cache_bytes(model.config, 64)  # float64 here, bfloat16 there


def test_a_shared_encoder_has_the_decoders_weights_and_learns_through_both():
    shape = {"layers": 3, **T5}
    apart, shared = build(shape), build(shape | {"encoder.shared": True})
    assert shared.encoder.stack.blocks is shared.stack.blocks
    names = {name for name, _ in apart.named_parameters()}
    missing = names - {name for name, _ in shared.named_parameters()}
    assert missing == {name for name in names if name.startswith("encoder.stack.blocks")}
    assert set(shared.state_dict()) == names - missing
    tokens, source = tokens_of(2, 6), tokens_of(2, 9)
    before = shared.encode(source).detach()
    shared.features(tokens, source=source).square().mean().backward()
    assert all(weight.grad.abs().sum() > 0 for _, weight in shared.named_parameters())
    with torch.no_grad():
        shared.stack.blocks[0].attention.query.weight.add_(1.0)
    assert not torch.equal(shared.encode(source), before)


@pytest.mark.parametrize("change", KINDS.values(), ids=KINDS)
def test_weights_and_operations_are_counted(change):
    config = changed(SHAPE, change | {"attention.window": None}, "model")
    model = Decoder(config, attention="eager")
    assert parameters(config) == sum(weight.numel() for weight in model.parameters())
    tokens = tokens_of(2, 32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(tokens, source=tokens)
    causal = 2 * config.layers * 2 * 32 * 31 * 4 * 8  # scores that are masked, which eager makes
    measured = (counter.get_total_flops() - causal) / (2 * 32)
    assert 3 * measured == pytest.approx(flops_per_token(config, 32))
    assert matmul_parameters(config) > 0


def test_operations_of_a_run_are_those_of_its_sources_and_targets():
    """T5's spans: targets are far shorter than sources."""
    config = changed(SHAPE, T5, "model")
    plan = TrainConfig(steps=1, rows=1, context=128, objective=Spans())
    positions, operations = run_cost(config, plan)
    target = positions - 128
    assert target == width(Spans(), 128) < 48
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        Decoder(config, attention="eager")(tokens_of(1, target), source=tokens_of(1, 128))
    causal = 2 * config.layers * target * (target - 1) * 4 * 8
    assert operations == pytest.approx(3 * (counter.get_total_flops() - causal))


def test_running_blocks_again_changes_no_gradient_nor_does_the_number_of_rows():
    """Dropout follows from a row's seed, of source and target in different ways."""
    model = build(BART | {"dropout": 0.3}).train()
    source, tokens, draws = tokens_of(2, 9), tokens_of(2, 7, 3), torch.tensor([5, 6])
    gradients = []
    for again in (False, True, 2):
        for stack in model.stacks:
            stack.recompute = again
        model.zero_grad()
        out = model.features(tokens, source=source, draws=draws)
        out.square().mul(torch.arange(32)).mean().backward()
        gradients.append(
            [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
        )
    for one, two, three in zip(*gradients, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    alone = model.features(tokens[1:], source=source[1:], draws=draws[1:])
    torch.testing.assert_close(alone, out[1:], rtol=1e-5, atol=1e-5)
    same = build(BART | {"dropout": 0.3, "embedding.norm": False, "position": "none"}).train()
    dropped = []
    for stack in same.stacks:
        stack.register_forward_pre_hook(lambda _, args: dropped.append(args[0] == 0))
    same.features(tokens, source=tokens, draws=draws)
    assert not torch.equal(*dropped)


def test_the_compiled_step_has_no_graph_break():
    torch._dynamo.reset()
    model = build(T5 | {"layers": 1, "encoder.layers": 1}).train()
    source, inputs = tokens_of(2, 12), tokens_of(2, 8, 3)
    of_source = torch.tensor([[0] * 5 + [1] * 7, [2] * 12])
    documents = torch.tensor([[0] * 3 + [1] * 5, [2] * 7 + [-1]])
    example = Example(
        inputs=inputs,
        targets=inputs,
        documents=documents,
        source=source,
        source_documents=of_source,
    )
    losses = Losses(model, TrainConfig(loss_chunk=16))
    compiled = torch.compile(losses, fullgraph=True, backend=lambda graph, _: graph.forward)
    close(compiled(example)["objective"].sum, losses(example)["objective"].sum)


def test_an_encoder_decoder_learns_to_copy_its_source():
    """Of a source in reverse, of 16 words; without cross-attention the loss would end at ln 16."""
    model = Decoder(changed(SHAPE, BART | {"layers": 1, "encoder.layers": 1}, "model"))
    model.initialise(0)
    losses, draw = Losses(model, TrainConfig()), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    seen = []
    for _ in range(120):
        words = torch.randint(1, 17, (32, 4), generator=draw)
        targets = words.flip(1)
        inputs = torch.cat((torch.zeros(32, 1, dtype=torch.long), targets[:, :-1]), dim=1)
        example = Example(inputs=inputs, targets=targets, documents=None, source=words)
        loss = losses(example)["objective"].sum / targets.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(float(loss.detach()))
    assert seen[0] == pytest.approx(4.1, abs=0.2)
    assert seen[-1] < 0.5


def test_a_model_on_paper_has_its_encoder():
    config = changed(SHAPE, T5, "model")
    facts = describe(config, device=find_gpu("H200"), rows=2, context=32, batch=1)
    assert facts["row"]["encoder"] == "3 layers"
    assert {"cross-attention", "cross output"} <= {step["name"] for step in facts["decoding"]}
    alone = describe(SHAPE, device=find_gpu("H200"), rows=2, context=32, batch=1)
    assert facts["memory"]["activations"] > 2 * alone["memory"]["activations"]


@pytest.mark.parametrize(
    "change",
    [
        {"causal": False},
        {"attention": LATENT},
        {"residual": "parallel"},
        {"mup_base": 32},
        {"head.mtp": 1},
        {"feed_forward": {"kind": "experts", "width": 8}},
        {"encoder.shared": True},
        {"share": 2},
    ],
)
def test_settings_incompatible_with_an_encoder_are_refused(change):
    with pytest.raises(LlmcurateError, match="encoder") as caught:
        changed(SHAPE, ENCODER | change, "model")
    assert caught.value.exit_code == 2


def test_a_source_goes_with_the_first_tokens():
    model, tokens = build(ENCODER), tokens_of(1, 4)
    for source in (None, tokens):
        cache = model.empty_cache()
        if source is not None:
            model(tokens, source=source, cache=cache)
        with pytest.raises(ValueError, match="needs a source with the first tokens"):
            model(tokens, source=source, cache=cache)
    with pytest.raises(ValueError, match="needs a source with the first tokens"):
        build({})(tokens, source=tokens)
