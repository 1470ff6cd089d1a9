"""Parts of a model from a user's own file; the files are those of docs/guides/own-layers.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change, from_dict, to_dict
from tests.train.model.variants import SHAPE
from train.hf.families import family_of
from train.measure.accounting import architecture_row, attention_flops, parameters, parts
from train.measure.describe import training
from train.model import plugin_settings, plugins, roles
from train.model.config import ModelConfig
from train.model.decoder import Decoder

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "own-layers.md"
ENCODER = {"causal": False, "position": "learned", "attention.kv_heads": 4}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(plugin_settings, "TRUSTED", set())


@pytest.fixture
def written(tmp_path):
    """The files of the page, by their names."""
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def file_of(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text, "utf-8")
    return path


def model_of(changes: dict) -> Decoder:
    model = Decoder(change(SHAPE, changes, "model"))
    model.initialise(0)
    return model


TOKENS = torch.arange(24).reshape(2, 12)


def test_a_feed_forward_of_a_file_computes_what_its_class_says(written):
    model = model_of({"feed_forward": f"{written}/liglu.py:LiGLU", "feed_forward.width": 20})
    part, x = model.stack.blocks[0].feed_forward, torch.randn(2, 3, 32)
    assert part.up.weight.shape == (20, 32)
    expected = (x @ part.gate.weight.T * (x @ part.up.weight.T)) @ part.down.weight.T
    torch.testing.assert_close(part(x, None), expected)
    usual = model_of({"feed_forward.width": 20, "feed_forward.activation": "swiglu"})
    usual.load_state_dict(model.state_dict())
    for block in usual.stack.blocks:
        block.feed_forward.activation = nn.Identity()
    torch.testing.assert_close(model(TOKENS), usual(TOKENS))


def test_the_width_is_the_models_where_none_is_set(written):
    model = model_of({"feed_forward": f"{written}/liglu.py:LiGLU"})
    assert model.stack.blocks[0].feed_forward.up.out_features == SHAPE.feed_forward.width


def test_the_cost_of_a_users_layer_is_counted_by_roles(written):
    config = change(SHAPE, {"feed_forward": f"{written}/liglu.py:LiGLU"}, "model")
    assert parameters(config) == sum(weight.numel() for weight in Decoder(config).parameters())
    assert parts(config).feed_forward == config.layers * 3 * 32 * config.feed_forward.width
    assert architecture_row(config)["feed-forward"].startswith("liglu.py:LiGLU")


def test_the_operations_of_a_users_layer_are_those_of_its_matrices(written):
    own = {"feed_forward": f"{written}/liglu.py:LiGLU", "feed_forward.width": 20}
    config = change(SHAPE, own, "model")
    names = {one.name: one.flops for one in training(config, rows=2, context=8)}
    assert names["feed-forward plugin"] == 2 * 16 * 3 * 32 * 20
    usual = change(SHAPE, {"feed_forward.width": 20, "feed_forward.activation": "glu"}, "model")
    plain = {one.name: one.flops for one in training(usual, rows=2, context=8)}
    both = plain["feed-forward in"] + plain["feed-forward out"]
    assert names["feed-forward plugin"] == both
    assert names["attention"] == plain["attention"]


def test_blocks_of_a_file_may_differ_by_layer(tmp_path):
    mine = file_of(
        tmp_path,
        "from torch import nn\nfrom train.model.block import SerialBlock\n"
        "class Mine(SerialBlock):\n"
        "    def __init__(self, config, layer, backend):\n"
        "        super().__init__(config, layer, backend)\n"
        "        self.more = nn.Linear(3, layer + 1, bias=False)\n",
    )
    config = change(SHAPE, {"residual": f"{mine}:Mine"}, "model")
    assert parameters(config) == sum(weight.numel() for weight in Decoder(config).parameters())


def test_linformer_with_as_many_sums_as_tokens_can_be_full_attention(written):
    changes = {**ENCODER, "context": 12}
    own = {"attention": f"{written}/linformer.py:Linformer", "attention.size": 12}
    model, full = model_of({**changes, **own}), model_of(changes)
    state = model.state_dict()
    full.load_state_dict({name: value for name, value in state.items() if "sums" not in name})
    with torch.no_grad():
        for block in model.stack.blocks:
            block.attention.sums.weight.copy_(torch.eye(12))
    torch.testing.assert_close(model(TOKENS), full(TOKENS))


def test_an_attention_says_what_it_costs(written):
    own = {"attention": f"{written}/linformer.py:Linformer", "attention.size": 5}
    config = change(SHAPE, {**ENCODER, **own}, "model")
    heads = config.attention
    assert attention_flops(config, 12) == config.layers * 4 * heads.heads * heads.head_dim * 5


def test_fourier_mixing_is_the_transform_of_both_dimensions(written):
    model = model_of({**ENCODER, "attention": f"{written}/fnet.py:Fourier"})
    x = torch.randn(2, 6, 32)
    places = [torch.arange(n, dtype=torch.float64) for n in (6, 32)]
    turns = [torch.outer(place, place) * (2 * torch.pi / len(place)) for place in places]
    rows, columns = (torch.complex(turn.cos(), -turn.sin()) / len(turn) ** 0.5 for turn in turns)
    view = type("View", (), {"counted": None})
    mixed = model.stack.blocks[0].attention(x, view)
    torch.testing.assert_close(mixed, (rows @ x.to(rows.dtype) @ columns).real.float())
    assert parts(model.config).attention == 0
    assert torch.isfinite(model(TOKENS)).all()


def test_padding_adds_nothing_to_what_mixes_a_row(written):
    documents = torch.zeros(2, 12, dtype=torch.long)
    documents[:, 9:] = -1
    other = TOKENS.clone()
    other[:, 9:] = 40
    for name in ("linformer.py:Linformer", "fnet.py:Fourier"):
        model = model_of({**ENCODER, "attention": f"{written}/{name}"})
        out = [model(tokens, documents=documents)[:, :9] for tokens in (TOKENS, other)]
        torch.testing.assert_close(*out)


def test_positions_and_blocks_may_be_of_a_file_too(tmp_path):
    mine = file_of(
        tmp_path,
        "from train.model.positions import Positions\n"
        "from train.model.block import SerialBlock\n"
        "class Shifted(Positions):\n"
        "    def __init__(self, config, *, by=1.0):\n"
        "        super().__init__(config)\n"
        "        self.by = by\n"
        "    def embed(self, x, positions):\n"
        "        return x + self.by\n"
        "class Still(SerialBlock):\n"
        "    def forward(self, x, view):\n"
        "        return x, {}\n",
    )
    own = {"position": f"{mine}:Shifted", "position.by": 2.0, "residual": f"{mine}:Still"}
    model = model_of(own)
    expected = model.logits(model.stack.norm(model.embedding(TOKENS) + 2.0))
    torch.testing.assert_close(model(TOKENS), expected)


def test_a_configuration_stores_the_code_and_no_longer_needs_the_file(written):
    path = written / "liglu.py"
    config = change(SHAPE, {"feed_forward": f"{path}:LiGLU", "feed_forward.width": 8}, "model")
    path.unlink()
    again = from_dict(ModelConfig, to_dict(config), "model")
    assert again == config
    assert again.feed_forward.kind == "liglu.py:LiGLU"
    Decoder(again)


def test_a_folder_from_elsewhere_runs_nothing_unless_it_is_trusted(tmp_path, monkeypatch):
    mine = file_of(
        tmp_path,
        "import pathlib\nfrom train.model.layers import FeedForward\n"
        f"pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "class Mine(FeedForward):\n    pass\n",
    )
    values = to_dict(change(SHAPE, {"feed_forward": f"{mine}:Mine"}, "model"))
    (tmp_path / "cache" / "trusted-code").unlink()
    monkeypatch.setattr(plugin_settings, "TRUSTED", set())
    stranger = from_dict(ModelConfig, values, "config.json")
    with pytest.raises(LlmcurateError, match="--trust-code"):
        Decoder(stranger)
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("LLMCURATE_TRUST_CODE", "1")
    Decoder(stranger)
    assert (tmp_path / "ran").exists()


def test_what_was_named_here_is_known_to_later_processes(written, monkeypatch):
    values = to_dict(change(SHAPE, {"feed_forward": f"{written}/liglu.py:LiGLU"}, "model"))
    monkeypatch.setattr(plugin_settings, "TRUSTED", set())
    Decoder(from_dict(ModelConfig, values, "config.json"))
    values["feed_forward"]["code"] += "\nraise SystemExit\n"
    with pytest.raises(LlmcurateError, match="--trust-code"):
        Decoder(from_dict(ModelConfig, values, "config.json"))


def test_a_checkpoint_cannot_name_a_file_of_this_machine(written):
    values = to_dict(change(SHAPE, {"feed_forward": f"{written}/liglu.py:LiGLU"}, "model"))
    values["feed_forward"]["kind"] = f"{written}/liglu.py:LiGLU"
    with pytest.raises(LlmcurateError, match=r"feed_forward\.kind"):
        from_dict(ModelConfig, values, "config.json")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("class Mine(:\n", r"^mine.py:1: invalid syntax"),
        ("import torch\n1 / 0\n", r"^mine.py:2: ZeroDivisionError: division by zero$"),
        ("from torch import nn\nclass Min(nn.Module): pass\n", r"no class Mine .* mean Min\?"),
        (
            "from torch import nn\nclass Mine(nn.Module):\n"
            "    def __init__(self, config, *, size):\n        raise ValueError(size)\n",
            r"^mine.py:4: ValueError: 3$",
        ),
        (
            "from torch import nn\nclass Mine(nn.Module):\n"
            "    def __init__(self, config, *, sise=1):\n        super().__init__()\n",
            r"mine.py:Mine: no keyword 'size' .* did you mean sise\?",
        ),
    ],
)
def test_errors_of_the_file_are_one_line_with_its_place(tmp_path, text, line):
    own = {"feed_forward": f"{file_of(tmp_path, text)}:Mine", "feed_forward.size": 3}
    with pytest.raises(LlmcurateError, match=line) as caught:
        model_of(own)
    assert "\n" not in str(caught.value)


def test_an_error_while_it_computes_names_its_line(tmp_path):
    mine = file_of(
        tmp_path,
        "from torch import nn\nclass Mine(nn.Module):\n"
        "    def __init__(self, config):\n        super().__init__()\n"
        "    def forward(self, x, view):\n        return x @ x\n",
    )
    model = model_of({"feed_forward": f"{mine}:Mine"})
    with pytest.raises(LlmcurateError, match=r"^mine.py:6: RuntimeError"), plugins.plugin_errors():
        model(TOKENS)
    with pytest.raises(IndexError), plugins.plugin_errors():  # none of the file's
        model(TOKENS + 10_000)


def test_a_missing_file_and_a_wrong_kind_are_a_one_line_error():
    with pytest.raises(LlmcurateError, match=r"^nowhere.py: cannot be read: No such file"):
        change(SHAPE, {"feed_forward": "nowhere.py:Mine"}, "model")
    with pytest.raises(LlmcurateError, match=r"choose one of dense, experts, FILE.py:CLASS"):
        change(SHAPE, {"feed_forward": "liglu"}, "model")


def test_no_family_of_transformers_computes_it(written):
    config = change(SHAPE, {"feed_forward": f"{written}/liglu.py:LiGLU"}, "model")
    with pytest.raises(LlmcurateError, match=r"computes feed_forward liglu.py:LiGLU"):
        family_of(config)


def test_modules_without_roles_begin_as_pytorchs_do():
    norms = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.GroupNorm(2, 4))
    roles.initialise(norms, 0)
    for norm in (norms[0], norms[2]):
        assert norm.weight.tolist() == [1.0] * 4
        assert norm.bias.tolist() == [0.0] * 4
    assert norms[1].bias.tolist() == [0.0] * 4
    assert norms[1].weight.std() > 0.2
