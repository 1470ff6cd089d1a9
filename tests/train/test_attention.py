from __future__ import annotations

import pytest
import torch

from train.attention import BACKENDS, Backend, Mask, attend
from train.errors import TrainError

DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2], [3, 3, 3, 3, 3, 3, 3, -1]])


def case(queries=8, keys=8, heads=4, kv_heads=2, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(2, heads, queries, 16, generator=draw).to(dtype)
    k = torch.randn(2, kv_heads, keys, 16, generator=draw).to(dtype)
    v = torch.randn(2, kv_heads, keys, 16, generator=draw).to(dtype)
    return q, k, v


def mask(queries=8, keys=8, causal=True, documents=None):
    device = torch.device("cpu")
    return Mask(queries=queries, keys=keys, device=device, causal=causal, documents=documents)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["one document", "documents"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("queries", [8, 3, 1])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_every_back_end_agrees_with_eager(backend, documents, causal, queries, kv_heads):
    q, k, v = case(queries=queries, kv_heads=kv_heads)
    spec = mask(queries=queries, causal=causal, documents=documents)
    expected = BACKENDS["eager"].attention(q, k, v, spec)
    torch.testing.assert_close(attend(q, k, v, spec, backend), expected, rtol=1e-5, atol=1e-5)


def test_eager_is_the_textbook_formula():
    q, k, v = case(kv_heads=4, dtype=torch.float64)
    out = attend(q, k, v, mask(documents=DOCUMENTS), "eager")
    for position in range(8):
        seen = [key for key in range(position + 1) if DOCUMENTS[0, key] == DOCUMENTS[0, position]]
        weights = torch.softmax(k[0, 1, seen] @ q[0, 1, position] / 4.0, dim=0)
        torch.testing.assert_close(out[0, 1, position], weights @ v[0, 1, seen])


def test_bfloat16_stays_near_float32():
    spec = mask(documents=DOCUMENTS)
    exact = attend(*case(), spec, "eager")
    for backend in BACKENDS:
        rounded = attend(*case(dtype=torch.bfloat16), spec, backend)
        assert rounded.dtype == torch.bfloat16
        torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.05)


def test_a_back_end_that_cannot_says_what_it_cannot(monkeypatch):
    causal_only = Backend(
        attention=BACKENDS["eager"].attention,
        masks=frozenset({"causal"}),
        dtypes=frozenset({torch.float32}),
        devices=frozenset({"cpu"}),
    )
    monkeypatch.setitem(BACKENDS, "narrow", causal_only)
    with pytest.raises(TrainError, match="mask documents"):
        attend(*case(), mask(documents=DOCUMENTS), "narrow")
    with pytest.raises(TrainError, match="float16"):
        attend(*case(dtype=torch.float16), mask(), "narrow")
    with pytest.raises(TrainError, match="choose auto"):
        attend(*case(), mask(), "absent")
