from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from tests.train.attention.cases import MASKS, PREFIX, case, mask, untraced
from train import device as devices
from train.attention import (
    BACKENDS,
    Alibi,
    Backend,
    Mask,
    Relative,
    attend,
    backends,
    choice,
    positions_of,
)
from train.attention.backends import lengths_of
from train.attention.choice import choose
from train.config import TrainConfig
from train.loop.backends import backends_line, layer_backends
from train.model.encodings.alibi import alibi_slopes
from train.model.presets import preset

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2], [3, 3, 3, 3, 3, 3, 3, -1]])


def test_training_needs_no_triton():
    code = (
        "import sys; sys.modules['triton'] = None; import train.loop.pretrain, train.evaluate.judge"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0
    )


@pytest.mark.parametrize("backend", ["sdpa", "flex"])  # triton: test_flash.py
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["one document", "documents"])
@pytest.mark.parametrize("kind", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("queries", "kv_heads"), [(8, 4), (8, 2), (3, 2), (1, 1)])
def test_every_back_end_agrees_with_eager(monkeypatch, backend, documents, kind, queries, kv_heads):
    if documents is None or (queries, kv_heads) != (8, 2):
        untraced(monkeypatch)
    q, k, v = case(queries=queries, kv_heads=kv_heads)
    positions = None if documents is None else positions_of(documents)
    spec = mask(queries=queries, documents=documents, positions=positions, **kind)
    expected = attend(q, k, v, spec, "eager")
    torch.testing.assert_close(attend(q, k, v, spec, backend), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["sdpa", "flex"])
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["one document", "documents"])
@pytest.mark.parametrize("size", [4, 24])
def test_values_may_have_other_dimensions_than_keys(monkeypatch, backend, documents, size):
    if documents is None:
        untraced(monkeypatch)
    q, k, _ = case()
    v = torch.randn(2, 2, 8, size, generator=torch.Generator().manual_seed(1))
    spec = mask(documents=documents)
    expected = attend(q, k, v, spec, "eager")
    assert expected.shape == (2, 4, 8, size)
    torch.testing.assert_close(attend(q, k, v, spec, backend), expected, rtol=1e-5, atol=1e-5)


def test_on_a_gpu_compressed_keys_as_wide_as_deepseeks_are_left_to_sdpa():
    """Not measured there: FlexAttention's kernel keeps blocks of keys in a memory of 228 KB."""
    like = SimpleNamespace(dtype=torch.bfloat16, device=torch.device("cuda"), requires_grad=False)
    spec = mask(documents=DOCUMENTS)
    like.shape = (2, 128, 8, 192)
    assert choose(like, spec, 128).backend == "flex"
    like.shape = (2, 128, 8, 576)
    assert choose(like, spec, 512).backend == "sdpa"


def test_triton_refuses_such_values_in_one_line():
    q, k, v = case(kv_heads=4)
    with pytest.raises(
        LlmcurateError, match="triton does not support values of 4 dimensions"
    ) as refused:
        attend(q, k, v[..., :4], mask(), "triton")
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", [{}, {"window": 3}, MASKS["alibi"]])
def test_a_cap_on_scores_is_computed_by_eager_alone(kind):
    q, k, v = case(kv_heads=4)
    spec = mask(softcap=0.5, **kind)
    scores = 0.5 * torch.tanh(q @ k.transpose(-2, -1) / 16**0.5 / 0.5)
    bias = spec.scores(scores.dtype)
    scores = scores if bias is None else scores + bias
    expected = scores.masked_fill(~spec.dense, float("-inf")).softmax(-1) @ v
    for backend in ("eager", "auto"):
        torch.testing.assert_close(attend(q, k, v, spec, backend), expected, rtol=1e-5, atol=1e-5)
    for backend in ("sdpa", "triton", "flex"):
        with pytest.raises(LlmcurateError, match=f"{backend} does not support the mask softcap"):
            attend(q, k, v, spec, backend)
    like = SimpleNamespace(dtype=torch.bfloat16, device=torch.device("cuda"), requires_grad=True)
    like.shape = (2, 4, 8, 16)
    assert choose(like, spec).backend == "eager"


@pytest.mark.parametrize("kind", MASKS.values(), ids=MASKS)
def test_sdpa_has_the_gradients_of_eager(kind):
    grads = []
    for backend in ("eager", "sdpa"):
        spec = mask(documents=DOCUMENTS, positions=positions_of(DOCUMENTS), **kind)
        tensors = [tensor.requires_grad_() for tensor in case(dtype=torch.float64)]
        weight = torch.arange(16, dtype=torch.float64).cos()
        (attend(*tensors, spec, backend) * weight).sum().backward()
        grads.append([tensor.grad for tensor in tensors])
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("ids", [[0] * 50 + [1] * 46, [7] * 96, [0] * 30 + [1] * 30 + [-1] * 36])
def test_documents_one_at_a_time_are_those_of_the_whole_mask(ids):
    """Output and gradients, over rows of different documents."""
    documents = torch.tensor([ids, [at // 40 for at in range(96)]])
    outputs = []
    for backend in ("eager", "sdpa"):
        draw = torch.Generator().manual_seed(0)
        q = torch.randn(2, 4, 96, 8, generator=draw, dtype=torch.float64).requires_grad_()
        k, v = torch.randn(2, 2, 2, 96, 8, generator=draw, dtype=torch.float64).unbind()
        k.requires_grad_()
        v.requires_grad_()
        spec = mask(queries=96, keys=96, documents=documents)
        out = attend(q, k, v, spec, backend)
        (out * out.detach().cos()).sum().backward()
        assert ("_lengths" in spec.__dict__) == (backend == "sdpa")
        outputs.append([out.detach(), q.grad, k.grad, v.grad])
    torch.testing.assert_close(*outputs, rtol=1e-9, atol=1e-9)


def test_documents_go_one_at_a_time_only_where_that_is_the_same_and_less():
    def lengths(ids, **more):
        spec = mask(queries=len(ids), keys=len(ids), documents=torch.tensor([ids]), **more)
        return lengths_of(spec)

    apart = [0] * 40 + [1] * 60
    assert lengths(apart) == ((40, 60),)
    assert lengths(apart, window=3) is None and lengths(apart, causal=False) is None
    assert lengths([0] * 40 + [1] * 40 + [0] * 40) is None  # 0 sees across 1
    assert lengths(list(range(100))) is None


@pytest.mark.parametrize("kind", MASKS.values(), ids=MASKS)
def test_the_mask_is_the_rule_key_by_key(kind):
    spec = mask(queries=5, documents=DOCUMENTS, positions=positions_of(DOCUMENTS), **kind)
    positions = positions_of(DOCUMENTS)
    for row, query, key in itertools.product(range(2), range(3, 8), range(8)):
        distance = int(positions[row, query] - positions[row, key])
        near = spec.window is None or abs(distance) < spec.window
        seen = (key <= query or not spec.causal) and (
            near or bool(positions[row, key] < spec.sinks)
        )
        seen = seen or (spec.prefix is not None and bool(spec.prefix[row, key]))
        seen = seen and bool(DOCUMENTS[row, query] == DOCUMENTS[row, key])
        assert bool(spec.dense[row, 0, query - 3, key]) == seen


def test_a_query_that_sees_no_key_gets_zeros():
    q, k, v = case(queries=8)
    documents = torch.tensor([[0] * 8, [0] * 8])
    far = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7]])
    spec = mask(documents=documents, positions=far, causal=False)
    spec.__dict__["dense"] = spec.dense.clone()
    spec.dense[:, :, 3] = False
    for backend in ("eager", "sdpa"):
        out = attend(q, k, v, spec, backend)
        assert torch.equal(out[:, :, 3], torch.zeros(2, 4, 16))
        assert out.isfinite().all()


def test_alibi_is_the_distance_times_a_slope_of_the_head():
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    twelve = alibi_slopes(12)
    assert twelve[:8].tolist() == [2.0**-i for i in range(1, 9)]
    assert twelve[8:].tolist() == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    scores = Alibi(slopes=torch.tensor([0.5, 0.25])).scores(mask().distance)
    assert scores[0, 1, 6, 2] == -1.0


def test_relative_buckets_are_those_of_t5():
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(0, 300)[None, None]
    ours = Relative(weight=torch.zeros(32, 1), distance=128).bucket(distance)
    theirs = T5Attention._relative_position_bucket(
        -distance, bidirectional=False, num_buckets=32, max_distance=128
    )
    assert torch.equal(ours, theirs)


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
    for backend in set(BACKENDS) - {"triton"}:  # whose interpreter refuses it
        rounded = attend(*case(dtype=torch.bfloat16), spec, backend)
        assert rounded.dtype == torch.bfloat16
        torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.05)


def test_a_back_end_that_cannot_says_what_it_cannot(monkeypatch):
    causal_only = Backend(
        attention=BACKENDS["eager"].attention,
        masks=frozenset({"causal"}),
        dtypes=frozenset({torch.float32}),
    )
    monkeypatch.setitem(BACKENDS, "narrow", causal_only)
    with pytest.raises(LlmcurateError, match="mask documents"):
        attend(*case(), mask(documents=DOCUMENTS), "narrow")
    with pytest.raises(LlmcurateError, match="float16"):
        attend(*case(dtype=torch.float16), mask(), "narrow")
    with pytest.raises(LlmcurateError, match="choose auto"):
        attend(*case(), mask(), "absent")


HALF, EXACT = torch.bfloat16, torch.float32
T5 = {"bias": Relative(weight=torch.zeros(4, 4), distance=8)}


@pytest.mark.parametrize(
    ("device", "dtype", "queries", "more", "taken"),
    [
        ("cuda", HALF, 8, {}, "sdpa"),
        ("cuda", HALF, 8, {"causal": False}, "sdpa"),
        ("cuda", HALF, 8, {"documents": DOCUMENTS}, "triton"),
        ("cuda", HALF, 8, {"window": 3, "sinks": 1}, "triton"),
        ("cuda", HALF, 8, {"prefix": PREFIX}, "triton"),
        ("cuda", HALF, 8, T5, "flex"),
        ("cuda", EXACT, 8, {"window": 3}, "flex"),
        ("cuda", HALF, 1, {"window": 3}, "sdpa"),
        ("cuda", HALF, 1, {}, "sdpa"),
        ("cpu", EXACT, 8, {"window": 3}, "sdpa"),
        ("cpu", HALF, 8, {"documents": DOCUMENTS}, "sdpa"),
    ],
    ids=[
        *("causal", "full", "documents", "window and sinks", "prefix", "t5", "window in float32"),
        *("window, generating", "causal, generating", "window on a CPU", "documents on a CPU"),
    ],
)
def test_auto_goes_by_mask_dtype_and_device(device, dtype, queries, more, taken, monkeypatch):
    op = pytest.importorskip("train.attention.flash.op")
    monkeypatch.setattr(op, "INTERPRETED", False)
    q = SimpleNamespace(
        dtype=dtype, device=torch.device(device), requires_grad=False, shape=(2, 4, queries, 16)
    )
    assert choose(q, mask(queries=queries, **more)).backend == taken


HOPPER, AMPERE, BLACKWELL = 9, 8, 10
OLD, NEW = 91_001, 91_600  # cuDNN 9.10.1 and 9.16.0


@pytest.mark.parametrize(
    ("card", "cudnn", "same_bits", "keys", "more", "taken", "why"),
    [
        (HOPPER, NEW, False, 4096, {}, "sdpa", "cuDNN"),
        (BLACKWELL, NEW, False, 256, {"causal": False}, "sdpa", "cuDNN"),
        (HOPPER, OLD, False, 4096, {}, "triton", "without cuDNN"),
        (HOPPER, NEW, True, 4096, {}, "triton", "without cuDNN"),
        (HOPPER, NEW, True, 512, {}, "sdpa", "FlashAttention-2"),
        (AMPERE, NEW, False, 4096, {}, "sdpa", "FlashAttention-2"),
        (BLACKWELL, OLD, False, 4096, {}, "sdpa", "FlashAttention-2"),
        (HOPPER, NEW, False, 4096, {"window": 64}, "triton", "no block that the mask hides"),
        (AMPERE, OLD, True, 4096, {"window": 64}, "triton", "no block that the mask hides"),
    ],
)
def test_auto_takes_the_fastest_for_a_mask_on_a_card(
    card, cudnn, same_bits, keys, more, taken, why, on_card, monkeypatch
):
    on_card(card, cudnn)
    own = Mask(queries=keys, keys=keys, device=torch.device("meta"), **more)
    shape = (2, 4, keys, 64)
    q = SimpleNamespace(dtype=HALF, device=torch.device("cuda"), requires_grad=True, shape=shape)
    with devices.same_bits(q.device, same_bits):
        row = choose(q, own)
    assert row.backend == taken and why in row.why


@pytest.fixture
def on_card(monkeypatch):
    """A function after which PyTorch says that this machine has such a card and such a cuDNN."""
    op = pytest.importorskip("train.attention.flash.op")
    monkeypatch.setattr(op, "INTERPRETED", False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")

    def pretend(card, cudnn):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (card, 0))
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda: cudnn)

    return pretend


def test_the_table_of_a_gpu_can_be_read_while_a_compiler_traces(monkeypatch):
    monkeypatch.setitem(choice.TABLE, "cpu", choice.TABLE["cuda"])
    torch._dynamo.reset()
    q, k, v = case()
    run = torch.compile(attend, fullgraph=True, backend="eager")
    torch.testing.assert_close(run(q, k, v, mask()), attend(q, k, v, mask(), "eager"))


def test_without_triton_auto_takes_flex(monkeypatch):
    monkeypatch.setattr(backends, "TRITON_INSTALLED", False)
    q = SimpleNamespace(
        dtype=HALF, device=torch.device("cuda"), requires_grad=True, shape=(2, 4, 8, 16)
    )
    assert choose(q, mask(documents=DOCUMENTS)).backend == "flex"


def test_a_run_says_which_back_end_each_layer_has_and_why(monkeypatch):
    op = pytest.importorskip("train.attention.flash.op")
    monkeypatch.setattr(op, "INTERPRETED", False)
    shape = changed(
        preset("tiny"),
        {
            "layers": 3,
            "position": "alibi",
            "attention": {"window": 8, "window_pattern": "WWF"},
        },
        "model",
    )
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    rows = layer_backends(shape, TrainConfig(), gpu)
    assert [(layer.layers, layer.backend) for layer in rows] == [
        (2, "triton"),
        (1, "triton"),
    ]
    assert backends_line(rows).startswith(
        "attention: triton in 2 layers (alibi, causal, documents, window; bfloat16 on cuda): its"
    )
    learned = layer_backends(changed(shape, {"position": "t5"}, "model"), TrainConfig(), gpu)
    assert {layer.backend for layer in learned} == {"flex"}
    assert "T5's learned bias" in backends_line(learned)
    asked = layer_backends(shape, TrainConfig(attention="eager"), cpu)
    assert asked[0].why == "as asked" and asked[0].backend == "eager"
    with pytest.raises(LlmcurateError, match="triton does not support the mask relative"):
        layer_backends(
            changed(shape, {"position": "t5"}, "model"), TrainConfig(attention="triton"), gpu
        )
    with pytest.raises(LlmcurateError, match="triton does not support a CPU"):
        layer_backends(shape, TrainConfig(attention="triton"), cpu)


def test_alibi_weighs_by_the_distance_where_a_prefix_shows_later_keys_too():
    """With queries and keys of zeros the bias alone decides."""
    q = torch.zeros(1, 1, 48, 16)
    v = torch.eye(48)[None, None, :, :]
    spec = mask(
        48,
        48,
        prefix=torch.ones(1, 48, dtype=torch.bool),
        bias=Alibi(slopes=torch.tensor([0.5])),
    )
    for backend in ("eager", "sdpa"):
        weights = attend(q, q, v, spec, backend)[0, 0]
        for query in (0, 20, 47):
            distance = (torch.arange(48) - query).abs()
            expected = torch.exp(-0.5 * distance) / torch.exp(-0.5 * distance).sum()
            torch.testing.assert_close(weights[query], expected)


def test_queries_of_another_text_see_the_keys_of_their_document():
    q, k, v = case(queries=3, keys=8)
    queries = torch.tensor([[1, 2, 0], [3, -1, 3]])
    spec = mask(3, 8, causal=False, documents=DOCUMENTS, query_documents=queries)
    seen = spec.dense[:, 0]
    for row, query, key in itertools.product(range(2), range(3), range(8)):
        assert bool(seen[row, query, key]) == bool(queries[row, query] == DOCUMENTS[row, key])
    expected = attend(q, k, v, spec, "eager")
    torch.testing.assert_close(attend(q, k, v, spec, "sdpa"), expected)
    with pytest.raises(LlmcurateError, match="does not support the mask cross"):
        attend(q, k, v, spec, "triton")


def test_buckets_of_both_ways_are_those_of_t5s_encoder():
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-300, 300)[None, None]
    weight = torch.zeros(32, 1)
    ours = Relative(weight=weight, distance=128, both_ways=True).bucket(distance)
    theirs = T5Attention._relative_position_bucket(
        -distance, bidirectional=True, num_buckets=32, max_distance=128
    )
    assert torch.equal(ours, theirs)
