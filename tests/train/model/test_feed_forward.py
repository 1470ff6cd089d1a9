from __future__ import annotations

import math

import pytest
import torch

from llmcurate.base.settings import change as changed
from tests.train.model.variants import SHAPE
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.layers import FeedForward
from train.model.roles import initialise


def normal(x):
    """The share of normally distributed numbers below x."""
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# As the papers write them, of one number. SELU's constants: Klambauer et al. 2017, section 2.
PLAIN = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * normal(x),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "swish": lambda x: x * sigmoid(x),
    "relu2": lambda x: max(x, 0.0) ** 2,
    "elu": lambda x: x if x > 0 else math.exp(x) - 1,
    "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x)),
    "sigmoid": sigmoid,
    "softplus": lambda x: math.log(1 + math.exp(x)),
}
GATED = {
    "glu": "sigmoid",
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
    "reglu": "relu",
    "swiglu": "swish",
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_each_feed_forward_computes_the_formula_of_its_paper(name, bias):
    config = changed(
        SHAPE, {"feed_forward.activation": name, "feed_forward.bias": bias}, where="model"
    )
    layer = FeedForward(config).double()
    initialise(layer, 0)
    draw = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    x = 2 * torch.randn(3, config.hidden, generator=draw, dtype=torch.float64)
    function = PLAIN[GATED.get(name, name)]
    inner = layer.gate if name in GATED else layer.up
    between = inner(x).apply_(function)
    if name in GATED:
        between = between * layer.up(x)
    torch.testing.assert_close(layer(x)[0], layer.down(between), rtol=1e-12, atol=1e-12)
