"""Every back end gives every learned number the gradient that the reference gives it.

The combinations come from the project's tables: a position encoding or a back end that joins them
is tested from then on, and a feature of masks that no case here has fails a test.
"""

from __future__ import annotations

import os

# Before triton is imported: see tests/conftest.py.
os.environ.setdefault("TRITON_INTERPRET", "1")

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change, from_dict, to_dict
from tests.train.model.variants import SHAPE
from train.attention import BACKENDS, Alibi, Mask, Relative, attend, choice
from train.attention.choice import choose
from train.attention.flash import op
from train.config import TrainConfig
from train.loop.backends import layer_backends
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.position_settings import POSITIONS

pytestmark = [
    pytest.mark.skipif(not op.INTERPRETED, reason="TRITON_INTERPRET is 0"),
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]

CPU = torch.device("cpu")

OWN = '''
import torch
from torch import nn
from train.attention import Alibi, Relative
from train.model.positions import Positions
from train.model.roles import Role, set_roles

class Slopes(Positions):
    """ALiBi with learned slopes."""
    def __init__(self, config):
        super().__init__(config)
        self.weight = nn.Parameter(torch.zeros(config.attention.heads))
        set_roles(self, weight=Role(part="positions", use="vector"))
    def bias(self):
        return Alibi(slopes=(self.weight + 0.3).exp())

class Kernel:
    """KERPLE's bias (Chi et al. 2022), a form that the project does not have."""
    def __init__(self, weight):
        self.weight = weight
    def scores(self, distance):
        return -torch.log1p(self.weight.exp()[:, None, None] * distance[:, None].abs())

class Kerple(Slopes):
    def bias(self):
        return Kernel(self.weight)

class Root(Alibi):
    """Another formula under the name of ALiBi's."""
    def scores(self, distance):
        return super().scores(distance).abs().add(1).sqrt()

class Roots(Slopes):
    def bias(self):
        return Root(slopes=self.weight.exp())

class Turned(Slopes):
    """Rotary positions whose frequencies are learned."""
    def rotation(self, positions, windowed=False):
        angle = positions[:, None, :, None].float() * self.weight.exp()
        cos, sin = angle.cos(), angle.sin()
        return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)))
    def bias(self):
        return None
'''
ENCODED = [*POSITIONS, *(f"own.py:{name}" for name in ("Slopes", "Kerple", "Roots", "Turned"))]

ENCODER = {"causal": False}
BLOCKS = {"window": 1, "globals": 1, "random": 1, "block": 2}
DILATED = {"window": 2, "dilations": (1, 2), "window_pattern": "D"}
# What a model is changed by, and what its batch has beside tokens.
MASKED: dict[str, tuple[dict, tuple[str, ...]]] = {
    "causal": ({}, ()),
    "documents": ({}, ("documents",)),
    "prefix": ({}, ("documents", "prefix")),
    "window and sinks": ({"attention.window": 3, "attention.sinks": 1}, ("documents",)),
    "dilated window": ({"attention": DILATED}, ("documents",)),
    "segments": ({"attention.segment": 4}, ("documents",)),
    "capped scores": ({"attention.softcap": 0.5}, ("documents",)),
    "encoder": (ENCODER, ("documents",)),
    "blocks of an encoder": (ENCODER | {"attention": BLOCKS}, ("documents",)),
    "encoder-decoder": ({"encoder": {"layers": 1}}, ("documents", "source")),
}
TOKENS = torch.arange(24).reshape(2, 12) * 7 % 61
BATCH = {
    "documents": torch.tensor([[0] * 5 + [1] * 7, [2] * 11 + [-1]]),
    "prefix": torch.arange(12).expand(2, -1) < 3,
    "source": TOKENS.flip(1),
}


def shape(position: str, changes: dict) -> ModelConfig:
    own = {"position": position} if position in POSITIONS else {}
    if position in ("disentangled", "clipped"):
        own["position.span"] = 4
    config = change(SHAPE, {"layers": 1} | own | changes, "model")
    if own:
        return config
    return from_dict(
        ModelConfig, to_dict(config) | {"position": {"kind": position, "code": OWN}}, "model"
    )


def passes(config: ModelConfig, batch: tuple[str, ...], name: str, exact: bool = False) -> dict:
    """The gradient of every parameter of a model by a back end."""
    torch.manual_seed(0)
    model = Decoder(config, attention=name)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    model = model.double() if exact else model
    out = model(TOKENS, **{key: BATCH[key] for key in batch})
    (out * torch.arange(out.numel()).cos().view(out.shape)).sum().backward()
    return {key: weight.grad for key, weight in model.named_parameters()}


def check_alike(actual: dict, wanted: dict) -> None:
    """Each gradient is there where the reference has one, and is the same but for rounding."""
    assert [*actual] == [*wanted]
    for name, exact in wanted.items():
        assert (actual[name] is None) == (exact is None), f"{name}: no gradient"
    for name, exact in wanted.items():
        if exact is not None:
            bound = 1e-5 + 1e-4 * float(exact.abs().max())
            worst = float((actual[name] - exact).abs().max())
            assert worst <= bound, f"{name}: the gradient differs by {worst:.1g}"


@pytest.fixture
def attended(monkeypatch):
    """Queries, masks and widths of values that the reference has met."""
    met, eager = [], BACKENDS["eager"]

    def noted(q, k, v, mask, added=None):
        met.append((q, mask, v.shape[-1]))
        return eager.attention(q, k, v, mask, added)

    monkeypatch.setitem(BACKENDS, "eager", dataclasses.replace(eager, attention=noted))
    return met


@pytest.fixture
def auto_takes(monkeypatch):
    """Let auto take the back end of this name where it fits, the reference elsewhere."""

    def take(name: str) -> None:
        rows = choice.Row(backend=name, why="tried"), choice.Row(backend="eager", why="else")
        monkeypatch.setitem(choice.TABLE, "cpu", rows)

    return take


@pytest.fixture(autouse=True)
def _flex_on_a_cpu(monkeypatch):
    """FlexAttention, not compiled, has the gradients of its formulas; a CPU is only refused."""
    monkeypatch.setenv("LLMCURATE_TRUST_CODE", "1")
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    traced = "torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
    monkeypatch.setattr(traced, False)
    flex = dataclasses.replace(BACKENDS["flex"], forward_only=frozenset())
    monkeypatch.setitem(BACKENDS, "flex", flex)


def on_a_gpu(mask: Mask, dtype: torch.dtype, q: torch.Tensor, values: int) -> str:
    """The back end that auto takes for these there."""
    like = SimpleNamespace(
        dtype=dtype, device=torch.device("cuda"), shape=q.shape, requires_grad=q.requires_grad
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "INTERPRETED", False)
        return choose(like, mask, values).backend


def cases() -> list:
    """Every encoding with every mask; quick are those with the first of either, but for encodings
    of which attention sees no more than of another."""
    made = []
    for position in ENCODED:
        for masked, (changes, batch) in MASKED.items():
            quick = position == ENCODED[0] or masked == next(iter(MASKED))
            quick = quick and position not in ("learned", "sinusoidal", "own.py:Turned")
            try:
                config = shape(position, changes)
            except LlmcurateError:  # two choices that do not go together
                continue
            marks = () if quick else pytest.mark.slow
            made.append(pytest.param(config, batch, id=f"{position}, {masked}", marks=marks))
    return made


@pytest.mark.lab
@pytest.mark.parametrize(("config", "batch"), cases())
def test_every_weight_has_the_gradient_of_the_reference(config, batch, attended, auto_takes):
    wanted = passes(config, batch, "eager", exact=True)
    masks, tried = [(q.float(), mask, values) for q, mask, values in attended], []
    for name in [*BACKENDS]:
        fitting = [each for each in masks if BACKENDS[name].refusal(*each) is None]
        if fitting and name != "eager":
            auto_takes(name)
            check_alike(passes(config, batch, "auto"), wanted)
            tried += [(name, mask) for _, mask, _ in fitting]
    for q, mask, values in masks:
        for dtype in (torch.bfloat16, torch.float32):
            taken = on_a_gpu(mask, dtype, q, values)
            assert taken == "eager" or (taken, mask) in tried


@pytest.mark.lab
def test_every_feature_of_a_mask_is_in_a_case(attended):
    for position in ENCODED:
        passes(shape(position, {}), ("documents",), "eager")
    for changes, batch in MASKED.values():
        passes(shape(ENCODED[0], changes), batch, "eager")
    names = set().union(*(mask.features for _, mask, _ in attended))
    others = set().union(*(Mask(**NONE | more).features for more in PARTIAL.values()))
    assert names | others == BACKENDS["eager"].masks


# Masks of some of the queries: of a chunk of a row, and of what continues a cache.
NONE = {"queries": 5, "keys": 9, "device": CPU}
PARTIAL = {
    "the last queries": {},
    "queries amid the keys": {"ahead": 2},
    "after keys that a cache left out": {"gaps": True, "positions": torch.arange(9)[None] * 2},
}
LEARNS = {
    "nothing": lambda weight: None,
    "alibi": lambda weight: Alibi(slopes=weight),
    "relative": lambda weight: Relative(weight=weight.expand(6, 2) * SPREAD, distance=7),
}
SPREAD = torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2)


def inputs(dtype=torch.float64) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    sizes = {"q": (1, 2, 5, 8), "k": (1, 1, 9, 8), "v": (1, 1, 9, 8), "bias": (2,)}
    drawn = {
        key: torch.randn(size, generator=draw, dtype=torch.float64) for key, size in sizes.items()
    }
    return {key: x.to(dtype).requires_grad_() for key, x in drawn.items()}


def added_scores(of: dict[str, torch.Tensor]) -> torch.Tensor:
    """Scores of a layer's own, by a learned number a head."""
    return of["bias"][None, :, None, None] * torch.linspace(-1, 1, 9, dtype=of["bias"].dtype)


def attention_gradients(name: str, of: dict, kind: str, **more) -> dict:
    """The gradients of q, k, v and of what is learned beside them."""
    added = added_scores(of) if kind == "added by the layer" else None
    bias = None if added is not None else LEARNS[kind](of["bias"])
    mask = Mask(**NONE | more, bias=bias)
    out = attend(of["q"], of["k"], of["v"], mask, name, added)
    (out * torch.arange(out.numel()).cos().view(out.shape)).sum().backward()
    return {key: x.grad for key, x in of.items()}


@pytest.mark.parametrize("kind", [*LEARNS, "added by the layer"])
@pytest.mark.parametrize("more", PARTIAL.values(), ids=PARTIAL)
def test_queries_keys_and_values_have_the_gradients_of_the_reference(kind, more, auto_takes):
    wanted = attention_gradients("eager", inputs(), kind, **more)
    assert (wanted["bias"] is None) == (kind == "nothing")
    for name in [*BACKENDS]:
        auto_takes(name)
        check_alike(attention_gradients("auto", inputs(torch.float32), kind, **more), wanted)


@pytest.mark.parametrize("lost", ["q", "k", "v", "bias"])
def test_a_back_end_that_drops_a_gradient_does_not_pass(lost, auto_takes, monkeypatch):
    eager = BACKENDS["eager"]

    def drops(q, k, v, mask):
        if lost == "bias":
            mask = dataclasses.replace(mask, bias=Alibi(slopes=mask.bias.slopes.detach()))
        parts = {"q": q, "k": k, "v": v}
        return eager.attention(
            **{n: x.detach() if n == lost else x for n, x in parts.items()}, mask=mask
        )

    monkeypatch.setitem(BACKENDS, "new", dataclasses.replace(eager, attention=drops))
    auto_takes("new")
    wanted = attention_gradients("eager", inputs(), "alibi")
    with pytest.raises(AssertionError, match=f"{lost}: no gradient"):
        check_alike(attention_gradients("auto", inputs(torch.float32), "alibi"), wanted)
    weights = {"q": "query", "k": "key", "v": "value", "bias": "positions"}
    config = shape("own.py:Slopes", {})
    exact = passes(config, (), "eager", exact=True)
    with pytest.raises(AssertionError, match=rf"{weights[lost]}\.weight: no gradient"):
        check_alike(passes(config, (), "auto"), exact)


def mask_of(slopes: torch.Tensor) -> Mask:
    return Mask(**NONE, documents=torch.zeros(1, 9, dtype=torch.long), bias=Alibi(slopes=slopes))


def test_auto_falls_back_to_a_back_end_with_gradients_for_slopes():
    q, fixed, learned = torch.zeros(1, 2, 5, 8), torch.ones(2), torch.ones(2, requires_grad=True)
    half = torch.bfloat16
    assert on_a_gpu(mask_of(fixed), half, q, 8) == "triton"
    for slopes in (learned, nn.Parameter(fixed), learned * 2):
        assert on_a_gpu(mask_of(slopes), half, q, 8) == "flex"
    assert on_a_gpu(mask_of(learned.detach()), half, q, 8) == "triton"
    with torch.no_grad():
        assert on_a_gpu(mask_of(learned), half, q, 8) == "triton"
    with torch.inference_mode():
        assert on_a_gpu(mask_of(learned), half, q, 8) == "triton"


def test_triton_refuses_learned_slopes_in_one_line_and_computes_with_them_without_gradients():
    of = inputs(torch.float32)
    tensors, mask = (of["q"], of["k"], of["v"]), mask_of(of["bias"])
    with pytest.raises(LlmcurateError, match="not support gradients of ALiBi's slopes") as refused:
        attend(*tensors, mask, "triton")
    assert refused.value.exit_code == 2 and str(refused.value).endswith("; auto takes sdpa")
    with pytest.raises(LlmcurateError, match="gradients of ALiBi's slopes"):
        op.flash_attention(*tensors, slopes=of["bias"])
    with torch.no_grad():
        torch.testing.assert_close(
            attend(*tensors, mask, "triton"), attend(*tensors, mask, "eager")
        )


def test_triton_raises_where_a_gradient_of_a_gradient_is_asked_for():
    q, k, v = (inputs(torch.float32)[name] for name in "qkv")
    out = attend(q, k, v, Mask(**NONE), "triton")
    (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        grad.sum().backward()


def test_a_form_of_bias_that_kernels_do_not_know_goes_to_those_that_add_its_scores():
    class Steeper(Alibi):
        def scores(self, distance):
            return 2 * super().scores(distance)

    of = inputs()
    mask = dataclasses.replace(mask_of(of["bias"]), bias=Steeper(slopes=of["bias"].detach()))
    for name in ("triton", "flex"):
        with pytest.raises(LlmcurateError, match=f"{name} does not support the mask bias"):
            attend(of["q"].float(), of["k"].float(), of["v"].float(), mask, name)
    assert on_a_gpu(mask, torch.bfloat16, of["q"], 8) == "sdpa"
    twice = mask_of(of["bias"].detach() * 2)
    for name in ("sdpa", "eager"):
        expected = attend(of["q"], of["k"], of["v"], twice, "eager")
        torch.testing.assert_close(attend(of["q"], of["k"], of["v"], mask, name), expected)


def test_scores_that_a_layer_adds_are_added_with_any_mask_and_any_width_of_values():
    of = inputs()
    for more in ({}, {"documents": torch.zeros(1, 9, dtype=torch.long)}):
        for width in (8, 4):
            args = (of["q"], of["k"], of["v"][..., :width], Mask(**NONE | more))
            expected = attend(*args, "eager", added_scores(of))
            torch.testing.assert_close(attend(*args, "auto", added_scores(of)), expected)
            assert not torch.allclose(expected, attend(*args, "eager"))


def test_a_run_with_learned_slopes_takes_no_triton_and_refuses_it_before_it_begins(monkeypatch):
    config = shape("own.py:Slopes", {})
    with pytest.raises(
        LlmcurateError, match="triton does not support gradients of ALiBi"
    ) as refused:
        layer_backends(config, TrainConfig(attention="triton", precision="fp32"), CPU)
    assert refused.value.exit_code == 2
    monkeypatch.setattr(op, "INTERPRETED", False)
    (row,) = layer_backends(config, TrainConfig(), torch.device("cuda"))
    assert row.backend == "flex"
    assert row.why.endswith("triton does not support gradients of ALiBi's slopes")
    (row,) = layer_backends(shape("alibi", {}), TrainConfig(), torch.device("cuda"))
    assert row.backend == "triton"


@pytest.mark.slow  # small ones: those above, not compiled
@pytest.mark.parametrize("recompute", [False, True], ids=["", "blocks run again"])
def test_a_compiled_step_gives_learned_biases_their_gradient(recompute):
    torch._dynamo.reset()
    config, wanted = shape("own.py:Slopes", {}), None
    for compiled in (False, True):
        torch.manual_seed(0)
        model = Decoder(config).train()
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.3)
        model.stack.recompute = recompute
        run = torch.compile(model, backend="aot_eager") if compiled else model
        run(TOKENS, documents=BATCH["documents"]).cos().sum().backward()
        found = {name: weight.grad.double() for name, weight in model.named_parameters()}
        check_alike(found, wanted or found)
        wanted = found
    assert wanted["stack.positions.weight"].abs().max() > 0
