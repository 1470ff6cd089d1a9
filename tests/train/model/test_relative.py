from __future__ import annotations

import math

import pytest
import torch

from llmcurate.base.settings import change
from tests.train.model.variants import SHAPE
from train.model.decoder import Decoder


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_scores_are_those_of_keys_with_the_vector_of_their_distance(causal):
    """Shaw et al. 2018, equations 1, 2 and 4, one pair at a time."""
    config = change(
        SHAPE, {"position": "clipped", "position.span": 3, "layers": 1, "causal": causal}, "model"
    )
    model = Decoder(config).double()
    model.initialise(0)
    layer, seen = model.stack.blocks[0].attention, []
    layer.register_forward_hook(lambda module, inputs, out: seen.append((inputs[0], out)))
    model(torch.arange(9)[None])
    ((x, out),) = seen
    q, (k, v) = layer.queries(x, None)[0], layer.keys_and_values(x, None)
    k, v = k[0].repeat_interleave(2, dim=0), v[0].repeat_interleave(2, dim=0)
    mixed = torch.zeros(9, 4, 8, dtype=torch.float64)
    for head in range(4):
        for i in range(9):
            keys = range(i + 1 if causal else 9)
            rows = [min(i - j, 3) if causal else max(-3, min(i - j, 3)) + 3 for j in keys]
            scores = [
                float(q[head, i] @ (k[head, j] + layer.distances[row])) / math.sqrt(8)
                for j, row in zip(keys, rows, strict=True)
            ]
            weights = torch.tensor(scores, dtype=torch.float64).softmax(dim=0)
            mixed[i, head] = weights @ v[head, : len(keys)]
    torch.testing.assert_close(out[0], layer.out(mixed.flatten(1)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_scores_are_the_four_terms_of_transformer_xl(causal):
    """Dai et al. 2019, section 3.3, one pair at a time, with the sinusoids written out."""
    config = change(SHAPE, {"position": "distances", "layers": 1, "causal": causal}, "model")
    model = Decoder(config).double()
    model.initialise(0)
    layer, seen = model.stack.blocks[0].attention, []
    torch.nn.init.normal_(layer.content_bias)
    torch.nn.init.normal_(layer.distance_bias)
    layer.register_forward_hook(lambda module, inputs, out: seen.append((inputs[0], out)))
    model(torch.arange(9)[None])
    ((x, out),) = seen
    q, (k, v) = layer.queries(x, None)[0], layer.keys_and_values(x, None)
    k, v = k[0].repeat_interleave(2, dim=0), v[0].repeat_interleave(2, dim=0)
    mixed = torch.zeros(9, 4, 8, dtype=torch.float64)
    for head in range(4):
        matrix = layer.distance.weight[8 * head : 8 * head + 8]
        of_content, of_distance = layer.content_bias[head, 0], layer.distance_bias[head, 0]
        for i in range(9):
            scores = []
            for j in range(i + 1 if causal else 9):
                angles = [(i - j) * 10_000 ** (-2 * n / 32) for n in range(16)]
                waves = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
                r = matrix @ torch.tensor(waves, dtype=torch.float64)
                terms = q[head, i] @ k[head, j] + q[head, i] @ r
                terms = terms + of_content @ k[head, j] + of_distance @ r
                scores.append(float(terms) / math.sqrt(8))
            weights = torch.tensor(scores, dtype=torch.float64).softmax(dim=0)
            mixed[i, head] = weights @ v[head, : len(scores)]
    torch.testing.assert_close(out[0], layer.out(mixed.flatten(1)), rtol=1e-6, atol=1e-6)
