"""Residual connections and the order of norms in a block, against the papers."""

from __future__ import annotations

import itertools

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.model.variants import SHAPE
from train.attention import Mask
from train.config import TrainConfig
from train.loop.distributed import check_split
from train.model.config import DeepNorm, ModelConfig
from train.model.decoder import Decoder
from train.model.layers import View

TOKENS = torch.randint(0, 61, (2, 9), generator=torch.Generator().manual_seed(1))


def shaped(**settings: object) -> ModelConfig:
    return change(SHAPE, {"position": "none", **settings}, "model")


def built(config: ModelConfig) -> Decoder:
    model = Decoder(config, attention="eager").double()
    model.initialise(3)
    return model


def view(x: torch.Tensor) -> View:
    return View(mask=Mask(queries=x.shape[1], keys=x.shape[1], device=x.device))


def plain(model: Decoder, order: str, alpha: float = 1.0) -> torch.Tensor:
    """The features by the paper's notation: s is attention, f a feed-forward, in this order."""
    attends, feeds = itertools.count(), itertools.count()
    post = model.config.norm.place == "post"
    x = model.embedding(TOKENS)
    for letter in order:
        name = "attention" if letter == "s" else "feed_forward"
        block = model.stack.blocks[next(attends if letter == "s" else feeds)]
        part, norm = getattr(block, name), getattr(block, f"{name}_norm")
        out = part(x if post else norm(x), view(x))
        out = out[0] if isinstance(out, tuple) else out
        weight = getattr(block.join, "weight", 1.0)
        x = alpha * x + weight * out
        x = norm(x) if post else x
    return x if model.stack.norm is None else model.stack.norm(x)


@pytest.mark.parametrize(
    ("layers", "sandwich", "order"),
    [(3, 0, "sfsfsf"), (4, 1, "ssfsfsff"), (4, 3, "ssssffff")],
)
def test_the_sandwich_order_of_the_paper(layers: int, sandwich: int, order: str) -> None:
    config = shaped(layers=layers, **{"residual.sandwich": sandwich})
    assert order == "s" * sandwich + "sf" * (layers - sandwich) + "f" * sandwich
    model = built(config)
    torch.testing.assert_close(model.features(TOKENS), plain(model, order))


def test_a_sandwich_generates_from_its_cache_what_it_says_of_whole_texts() -> None:
    model = built(shaped(layers=4, **{"residual.sandwich": 2}))
    cache = model.empty_cache()
    parts = [model(TOKENS[:, :5], cache=cache)]
    parts += [model(TOKENS[:, n : n + 1], cache=cache) for n in range(5, 9)]
    torch.testing.assert_close(torch.cat(parts, 1), model(TOKENS))


@pytest.mark.parametrize("residual", ["serial", "parallel"])
def test_with_projections_of_zeros_blocks_begin_as_the_identity(residual: str) -> None:
    config = shaped(residual=residual, **{"head.tied": False})
    model = built(change(config, {"zero_projections": True}, "model"))
    torch.testing.assert_close(model.features(TOKENS), model.stack.norm(model.embedding(TOKENS)))
    drawn = dict(built(config).named_parameters())
    for name, weight in model.named_parameters():
        zero = name.endswith(("attention.out.weight", "feed_forward.down.weight", "head.weight"))
        assert torch.equal(weight, drawn[name] * (not zero)), name


def test_rezero_begins_as_the_identity_and_weighs_what_is_added() -> None:
    model = built(shaped(residual="rezero", **{"norm.place": "none"}))
    torch.testing.assert_close(model.features(TOKENS), model.embedding(TOKENS))
    for number, block in enumerate(model.stack.blocks):
        torch.nn.init.constant_(block.join.weight, 0.3 + number)
    torch.testing.assert_close(model.features(TOKENS), plain(model, "sfsf"))


def test_deepnorm_weighs_the_stream_by_the_table_of_the_paper() -> None:
    config = shaped(residual="deepnorm", **{"norm.place": "post"})
    model = built(config)
    torch.testing.assert_close(model.features(TOKENS), plain(model, "sfsf", (2 * 2) ** 0.25))


def test_deepnorm_has_the_numbers_of_figure_2() -> None:
    """Decoders and encoders alone; encoder-decoders of N and M layers."""
    assert DeepNorm().scales(12) == pytest.approx((24**0.25, 96**-0.25))
    assert DeepNorm().scales(6, read=True) == pytest.approx((18**0.25, 72**-0.25))
    alpha, beta = DeepNorm().of_encoder(18, 6).scales(18)
    assert alpha == pytest.approx(0.81 * (18**4 * 6) ** (1 / 16))
    assert beta == pytest.approx(0.87 * (18**4 * 6) ** (-1 / 16))


def test_deepnorm_begins_with_smaller_values_and_feed_forwards_but_not_queries() -> None:
    wide = {"hidden": 64, "layers": 8, "attention.head_dim": 16, "attention.kv_heads": 4}
    usual = built(shaped(**wide, **{"norm.place": "post"}))
    deep = built(shaped(**wide, residual="deepnorm", **{"norm.place": "post"}))
    beta = (8 * 8) ** -0.25
    pairs = dict(deep.stack.blocks[0].named_parameters())
    for name, before in usual.stack.blocks[0].named_parameters():
        if name.endswith(".weight") and "norm" not in name:
            writes = name in ("attention.out.weight", "feed_forward.down.weight")
            smaller = 4.0 * beta if writes else 1.0 if "query" in name or "key" in name else beta
            torch.testing.assert_close(pairs[name].std(), before.std() * smaller)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"residual.sandwich": 2}, "give less than layers"),
        ({"residual": "deepnorm"}, "set norm.place=post"),
        ({"residual": "rezero", "residual.norms": 1}, "norms"),
        ({"attention.qk_norm_whole": True}, "without attention.qk_norm: set that too"),
    ],
)
def test_incompatible_settings_are_a_one_line_error(settings: dict[str, object], line: str) -> None:
    with pytest.raises(LlmcurateError, match=line):
        shaped(**settings)


def test_a_norm_over_all_heads_is_not_split_among_processes() -> None:
    config = shaped(attention={"qk_norm": True, "qk_norm_whole": True})
    with pytest.raises(LlmcurateError, match=r"tensor 2 with attention\.qk_norm_whole"):
        check_split(config, TrainConfig(tensor=2))
    check_split(config, TrainConfig())
