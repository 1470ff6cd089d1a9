"""Segments that see the one before, against Transformer-XL read segment by segment."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.model.variants import SHAPE
from train.attention import attend
from train.attention.mask import Mask
from train.model.block import split_notes
from train.model.decoder import Decoder
from train.objective_settings import Causal, Prefix
from train.objectives.objectives import objective_for

SEGMENT = 6
XL = {"attention.segment": SEGMENT, "position": "distances", "norm.place": "post"}


def decoder(changes: dict) -> Decoder:
    model = Decoder(change(SHAPE, changes, "model")).double()
    model.initialise(0)
    for block in model.stack.blocks:
        if hasattr(block.attention, "content_bias"):
            torch.nn.init.normal_(block.attention.content_bias)
            torch.nn.init.normal_(block.attention.distance_bias)
    return model


def segment_by_segment(model: Decoder, tokens: Tensor) -> Tensor:
    """Dai et al. 2019, section 3.2: each layer reads its input for this segment, and beside it what
    it kept of the one before, without a gradient. Blocks with norms after the parts, one text.
    """
    memories: list[Tensor | None] = [None] * len(model.stack.blocks)
    logits = []
    for piece in tokens.split(SEGMENT, dim=1):
        x = model.embedding(piece)
        for layer, block in enumerate(model.stack.blocks):
            attention, memory = block.attention, memories[layer]
            memories[layer] = x.detach()
            both = x if memory is None else torch.cat((memory, x), dim=1)
            q, (k, v) = attention.queries(x, None), attention.keys_and_values(both, None)
            mask = Mask(queries=x.shape[1], keys=both.shape[1], device=x.device, content=True)
            relation = model.stack.positions.relation(mask)
            rows = attention.distance(relation.rows.to(x.dtype))
            rows = rows.unflatten(-1, (4, 8)).transpose(0, 1)
            scores = (q + attention.distance_bias) @ rows.transpose(1, 2)
            scores = scores.gather(-1, relation.index[:, None].expand(1, 4, -1, -1)) * 8**-0.5
            out = attend(q + attention.content_bias, k, v, mask, "eager", scores)
            x = block.attention_norm(x + attention.out(out.transpose(1, 2).flatten(-2)))
            x = block.feed_forward_norm(x + split_notes(block.feed_forward(x, None))[0])
        logits.append(model.logits(x))
    return torch.cat(logits, dim=1)


def gradients(model: Decoder, logits: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    logits.pow(2).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_a_row_gives_the_logits_and_gradients_of_transformer_xl_read_segment_by_segment():
    model, tokens = decoder(XL), torch.arange(23)[None] * 7 % 61
    ours, plain = model(tokens), segment_by_segment(model, tokens)
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)
    own, reference = gradients(model, ours), gradients(model, plain)
    assert own.keys() == reference.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(gradient, reference[name], rtol=1e-8, atol=1e-9, msg=name)


def test_no_gradient_flows_into_the_segment_before():
    model, tokens = decoder(XL | {"head.tied": False}), torch.arange(18)[None]
    model(tokens)[:, 2 * SEGMENT :].square().sum().backward()
    met = model.embedding.weight.grad.abs().sum(dim=1) > 0
    assert met[12:18].all() and not met[:12].any()


@torch.no_grad()
def test_each_layer_reaches_one_segment_further_back():
    """With two layers a token of the third segment depends on the first, one of the fourth not."""
    model, tokens = decoder(XL), torch.arange(24)[None]
    other = tokens.clone()
    other[0, 0] = 60
    same = (model(tokens) == model(other)).all(dim=-1)[0]
    assert not same[: 3 * SEGMENT].any() and same[3 * SEGMENT :].all()


@pytest.mark.parametrize("changes", [XL, {"attention.segment": SEGMENT}], ids=["XL", "rope"])
def test_learning_and_scoring_see_the_same(changes):
    """With gradients keys come twice, without them once; documents begin segments of their own."""
    model, tokens = decoder(changes), torch.arange(40).view(2, 20)
    documents = torch.tensor([[0] * 9 + [1] * 11, [2] * 17 + [-1] * 3])
    learning = model(tokens, documents=documents)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens, documents=documents), learning)
        alone = model(tokens[:1, 9:])
    torch.testing.assert_close(alone, learning[:1, 9:])


@torch.no_grad()
def test_a_cache_keeps_two_segments():
    model, sizes = decoder(XL), []
    cache = model.empty_cache()
    for first in range(0, 30, 3):
        model(torch.arange(first, first + 3)[None], cache=cache)
        sizes.append(cache.bytes)
    assert len(set(sizes[3:])) == 1


def test_the_weights_are_those_of_a_model_without_segments():
    plain = {name: value for name, value in XL.items() if name != "attention.segment"}
    shapes = [{name: p.shape for name, p in decoder(c).named_parameters()} for c in (XL, plain)]
    assert shapes[0] == shapes[1]


def test_settings_incompatible_with_segments_are_refused_in_one_line():
    with pytest.raises(LlmcurateError, match=r"attention.segment with attention.window"):
        change(SHAPE, {"attention.segment": 4, "attention.window": 4}, "model")
    with pytest.raises(LlmcurateError, match=r"attention.segment with an encoder"):
        change(SHAPE, {"attention.segment": 4, "causal": False}, "model")
    model = change(SHAPE, {"attention.segment": 4}, "model")
    assert objective_for(model, Causal()) == Causal()
    with pytest.raises(LlmcurateError, match=r"attention.segment with objective prefix"):
        objective_for(model, Prefix())
