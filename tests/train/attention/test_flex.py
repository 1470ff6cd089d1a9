"""FlexAttention is compiled for every shape, or refused."""

from __future__ import annotations

import pytest
import torch

from llmcurate.base.errors import RunFailed
from train.attention import Mask, attend, flex


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_is_compiled_for_more_shapes_than_pytorchs_limit_and_then_refused(monkeypatch):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    kernel = torch.compile(flex.flex_attention, dynamic=False, backend="eager")
    monkeypatch.setattr(flex, "_kernel", lambda: kernel)
    monkeypatch.setattr(flex, "SHAPES", 3)

    def both(length):
        mask = Mask(queries=length, keys=length, device=torch.device("cpu"))
        q, k, v = torch.randn(3, 1, 2, length, 16)
        block = flex.block_mask(mask, 1)
        return flex.compiled(q, k, v, block_mask=block), attend(q, k, v, mask, "eager")

    with torch._dynamo.config.patch(recompile_limit=2):
        for length in range(20, 23):
            torch.testing.assert_close(*both(length))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3
    with pytest.raises(RunFailed, match=r"compiled for 3 shapes of rows, .*choose attention sdpa"):
        both(23)
    torch._dynamo.reset()
