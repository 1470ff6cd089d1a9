"""Our Triton kernels, interpreted, against ``eager`` in float64."""

from __future__ import annotations

import os

# Before triton is imported: see tests/conftest.py.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from llmcurate.base.errors import LlmcurateError
from tests.parameters import mostly_slow
from train.attention import Alibi, Mask, Relative, attend, backends, positions_of
from train.attention.flash import op
from train.attention.flash.op import flash_attention
from train.attention.flash.spans import bounds

pytestmark = [
    pytest.mark.skipif(not op.INTERPRETED, reason="TRITON_INTERPRET is 0"),
    pytest.mark.filterwarnings("ignore:All-NaN slice"),
]

KEYS = 40  # three blocks of 16, the last not full
DOCUMENTS = torch.tensor([[0] * 3 + [1] * 20 + [2] * 17, [4] * 37 + [-1] * 3])
PREFIX = torch.zeros(2, KEYS, dtype=torch.bool)
PREFIX[0, :2] = PREFIX[0, 3:12] = PREFIX[1, :35] = PREFIX[1, 36] = True
SLOPES = Alibi(slopes=torch.tensor([0.5, 0.03]))
KINDS = {
    "causal": {},
    "window over blocks": {"window": 21},
    "window ahead too": {"window": 5, "sinks": 1, "causal": False},
    "many sinks, to both sides": {"window": 2, "sinks": 9, "causal": False},
    "window and sinks": {"window": 5, "sinks": 2},
    "prefix": {"prefix": PREFIX},
    "full, alibi": {"causal": False, "bias": SLOPES},
    "all": {"window": 5, "sinks": 2, "prefix": PREFIX, "bias": SLOPES},
}


def few(*quick):
    """All kinds, those but the quick ones as slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(k, id=n, marks=() if n in quick else slow) for n, k in KINDS.items()]


def mask(queries=KEYS, keys=KEYS, documents=None, **more):
    positions = None if documents is None else positions_of(documents)
    return Mask(
        queries=queries,
        keys=keys,
        device=torch.device("cpu"),
        documents=documents,
        positions=positions,
        **more,
    )


def tensors(batch=2, heads=2, kv_heads=1, queries=KEYS, keys=KEYS, head_dim=16):
    draw = torch.Generator().manual_seed(queries + keys)
    shapes = [(heads, queries), (kv_heads, keys), (kv_heads, keys)]
    return [
        torch.randn(batch, count, length, head_dim, generator=draw).requires_grad_()
        for count, length in shapes
    ]


def passes(inputs, spec, name):
    """The result and the gradients of q, k and v, for gradients that differ everywhere."""
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    out = attend(*inputs, spec, name)
    weight = torch.arange(out.numel(), dtype=out.dtype).cos().view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), inputs)]


def agree(inputs, spec):
    exact = passes([tensor.double() for tensor in inputs], spec, "eager")
    for actual, wanted in zip(passes(inputs, spec, "triton"), exact, strict=True):
        torch.testing.assert_close(actual.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", few("window over blocks", "window ahead too", "all"))
def test_result_and_gradients_are_those_of_eager(kind):
    agree(tensors(), mask(documents=DOCUMENTS, **kind))


@pytest.mark.parametrize("kind", few("all"))
def test_result_and_gradients_are_those_of_eager_without_documents(kind):
    agree(tensors(), mask(**kind))


@pytest.mark.parametrize("kind", ["full, alibi", "all"])
def test_queries_may_be_fewer_than_the_keys(kind):
    agree(tensors(queries=19), mask(queries=19, documents=DOCUMENTS, **KINDS[kind]))


@pytest.mark.parametrize("head_dim", mostly_slow([60, 256, 80, 96], 2))
def test_results_agree_with_eager_for_any_head_dim_up_to_256(head_dim):
    agree(tensors(1, 1, 1, 18, 18, head_dim), mask(18, 18))


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2), (3, 1)], ids=["mha", "gqa", "mqa"])
def test_heads_share_keys_without_copies(heads, kv_heads):
    agree(tensors(1, heads, kv_heads, 20, 20), mask(20, 20))


@pytest.mark.parametrize("length", mostly_slow([1, 17, 16, 31], 2))
def test_results_agree_with_eager_for_any_length(length):
    agree(tensors(1, 1, 1, length, length), mask(length, length))


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_results_agree_with_eager_for_any_mask_on_small_shapes(data):
    keys = data.draw(st.integers(1, 33), "keys")
    queries = data.draw(st.integers(1, keys), "queries")
    cuts = data.draw(st.lists(st.booleans(), min_size=keys, max_size=keys), "cuts")
    seen = data.draw(st.lists(st.booleans(), min_size=keys, max_size=keys), "prefix")
    more = {
        "causal": data.draw(st.booleans(), "causal"),
        "window": data.draw(st.none() | st.integers(1, keys), "window"),
        "sinks": data.draw(st.integers(0, 3), "sinks"),
        "bias": data.draw(st.sampled_from([None, Alibi(slopes=torch.tensor([0.3]))]), "bias"),
    }
    if data.draw(st.booleans(), "with prefix"):
        more["prefix"] = torch.tensor([seen])
    documents = None
    if data.draw(st.booleans(), "with documents"):
        documents = torch.tensor([cuts]).cumsum(dim=1)
    agree(tensors(1, 1, 1, queries, keys), mask(queries, keys, documents, **more))


def test_what_a_query_does_not_see_changes_no_bit():
    inputs = [tensor.detach() for tensor in tensors()]
    spec = mask(documents=DOCUMENTS, **KINDS["window and sinks"])
    before = attend(*inputs, spec, "triton")
    for key in (1, 25):
        blind = ~spec.dense[:, 0, :, key]
        q, k, v = (tensor.clone() for tensor in inputs)
        k[:, :, key] += 3
        v[:, :, key] -= 2
        after = attend(q, k, v, spec, "triton")
        changed = (after != before).any(dim=-1).any(dim=1)
        assert not (changed & blind).any() and (changed | blind).all()


TWO = torch.tensor([[0] * 16 + [1] * 40])


@pytest.mark.parametrize(
    ("kind", "documents", "unread", "queries"),
    [
        ({}, None, slice(16, 32), slice(0, 16)),
        ({"window": 5}, None, slice(0, 16), slice(32, 56)),
        ({"window": 5, "sinks": 2}, None, slice(16, 32), slice(48, 56)),
        ({"causal": False}, TWO, slice(0, 16), slice(16, 56)),
        ({"prefix": torch.arange(56)[None] < 9}, TWO, slice(16, 56), slice(0, 16)),
    ],
    ids=["after", "before the window", "between sinks and window", "other document", "prefix"],
)
def test_blocks_that_nothing_needs_are_not_read(kind, documents, unread, queries):
    """A NaN that is read and only then masked would still be a NaN."""
    q, k, v = (tensor.detach() for tensor in tensors(1, 1, 1, 56, 56))
    spec = mask(56, 56, documents=documents, **kind)
    k[:, :, unread] = v[:, :, unread] = float("nan")
    assert attend(q, k, v, spec, "triton")[:, :, queries].isfinite().all()
    # And the other way round: these keys' gradients come from other queries alone.
    q, k, v = tensors(1, 1, 1, 56, 56)
    out = attend(q, k, v, spec, "triton")
    grad = torch.ones_like(out)
    grad[:, :, queries] = float("nan")
    of_q, of_k = torch.autograd.grad(out, (q, k), grad)
    assert of_k[:, :, unread].isfinite().all()
    assert of_q[:, :, queries].isnan().all()


def test_the_logsumexp_and_its_gradient():
    q, k, v = tensors(1, 2, 1, 20, 20)
    _, lse = flash_attention(q, k, v)
    scores = (q @ k.transpose(-2, -1)) / 4
    wanted = scores.masked_fill(~mask(20, 20).dense, float("-inf")).logsumexp(dim=-1)
    torch.testing.assert_close(lse, wanted)
    weight = torch.arange(20.0).sin()
    gradients, exact = (
        torch.autograd.grad((value * weight).sum(), (q, k)) for value in (lse, wanted)
    )
    torch.testing.assert_close(gradients, exact, rtol=1e-4, atol=1e-5)


def test_no_layout_is_copied_and_each_is_right():
    """As the model has them: heads inside a token; and a gradient without strides of its own."""
    q, k, v = (tensor.detach().transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors())
    q.requires_grad_()
    out, _ = flash_attention(q, k, v)
    assert out.transpose(1, 2).is_contiguous()
    wanted = attend(*tensors(), mask(), "eager")
    torch.testing.assert_close(out, wanted)
    gradient = torch.autograd.grad(out.sum(), q)[0]
    inputs = tensors()
    exact = torch.autograd.grad(attend(*inputs, mask(), "eager").sum(), inputs[0])[0]
    torch.testing.assert_close(gradient, exact, rtol=1e-4, atol=1e-5)
    last = torch.randn(1, 1, 16, 20).transpose(2, 3)  # head_dim is not innermost: copied
    torch.testing.assert_close(
        flash_attention(last, last, last)[0], attend(last, last, last, mask(20, 20), "eager")
    )


def test_the_operator_is_well_formed():
    q, k, v = tensors(1, 1, 1, 6, 6)
    starts, ends = bounds(DOCUMENTS[:1, :6])
    arguments = (q, k, v, starts, ends, None, None, None, None, True, 0, 0)
    torch.library.opcheck(op.operator, arguments)


def test_what_the_kernels_cannot_do_is_refused(monkeypatch):
    short = mask(4, 4)
    q, k, v = (tensor.detach() for tensor in tensors(1, 1, 1, 4, 4))
    rough = [tensor.bfloat16() for tensor in (q, k, v)]
    with pytest.raises(LlmcurateError, match="bfloat16 under TRITON_INTERPRET=1"):
        attend(*rough, short, "triton")
    with pytest.raises(LlmcurateError, match="bfloat16 under TRITON_INTERPRET=1"):
        flash_attention(*rough)
    wide = torch.zeros(1, 1, 4, 257)
    with pytest.raises(LlmcurateError, match="head_dim of 257"):
        attend(wide, wide, wide, short, "triton")
    bias = Relative(weight=torch.zeros(4, 1), distance=8)
    with pytest.raises(LlmcurateError, match="mask relative"):
        attend(q, k, v, mask(4, 4, bias=bias), "triton")
    with pytest.raises(LlmcurateError, match="mask gaps"):
        attend(q, k, v, mask(4, 4, window=2, gaps=True), "triton")
    monkeypatch.setattr(op, "INTERPRETED", False)
    with pytest.raises(LlmcurateError, match="a CPU, but for tests"):
        attend(q, k, v, short, "triton")
    monkeypatch.setattr(backends, "TRITON_INSTALLED", False)
    with pytest.raises(LlmcurateError, match=r"pip install 'llmcurate\[gpu\]'"):
        attend(q, k, v, short, "triton")


def test_a_row_may_lie_further_than_2_to_the_31_numbers_from_the_first():
    """As 64 heads of 128 dimensions do beyond 262,144 tokens. Nobody writes on most of the memory,
    so that it is never given."""
    import mmap

    row, rows = 2**27 + 16, 18
    size = 4 * (row * rows + 64)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    with mmap.mmap(-1, size, flags=flags) as memory:
        wide = torch.frombuffer(memory, dtype=torch.float32)
        inputs, far = tensors(1, 1, 1, rows, rows), []
        for tensor in inputs:
            strided = wide[len(far) * 16 :].as_strided(tensor.shape, (16, 16, row, 1))
            far.append(strided.copy_(tensor.detach()))
        spec = mask(rows, rows)
        near = attend(*(tensor.detach() for tensor in inputs), spec, "triton")
        assert torch.equal(attend(*far, spec, "triton"), near)
        with torch.enable_grad():
            want = passes(inputs, spec, "triton")[1:]
            ends = [tensor.requires_grad_() for tensor in far]
            out = attend(*ends, spec, "triton")
            weight = torch.arange(out.numel(), dtype=out.dtype).cos().view(out.shape)
            got = torch.autograd.grad((out * weight).sum(), ends)
        for one, other in zip(got, want, strict=True):
            assert torch.equal(one, other)
        del far, ends, strided, wide, out, got
