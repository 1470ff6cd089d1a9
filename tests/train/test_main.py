"""`python -m train`: what it prints is obeyed by no terminal, and errors come before writing."""

from __future__ import annotations

import pytest

from curate.cli.app import invoke
from llmcurate.base.terminal import say
from train.__main__ import main


def test_control_characters_of_names_are_made_visible_on_one_line(capsys):
    say("shards a\x1b[2J\nb\x9b\u202e")
    assert capsys.readouterr().err == "shards a\u241b[2J b[U+009B][U+202E]\n"


def test_a_wrong_setting_is_refused_before_anything_is_written(
    shard_folder, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "out"
    monkeypatch.setattr(
        "sys.argv", ["train", str(shard_folder), str(out), "--set", "schedule=cosin"]
    )
    assert main() == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "cosin" in said
    assert not out.exists()


SLOPES = """
import torch
from torch import nn
from train.attention import Alibi
from train.model.positions import Positions
from train.model.roles import Role, set_roles

class Slopes(Positions):
    def __init__(self, config):
        super().__init__(config)
        self.weight = nn.Parameter(torch.zeros(config.attention.heads))
        set_roles(self, weight=Role(part="positions", use="vector"))
    def bias(self):
        return Alibi(slopes=self.weight.exp())
"""


def test_a_kernel_that_would_drop_a_gradient_is_refused_before_anything_is_written(
    shard_folder, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("triton")
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    mine = tmp_path / "mine.py"
    mine.write_text(SLOPES, "utf-8")
    command = ["pretrain", str(shard_folder), "-o", str(tmp_path / "out"), "--steps", "1"]
    command += ["--set", f"model.position={mine}:Slopes", "--attention", "triton", "--dry-run"]
    assert invoke(command) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith("triton does not support gradients of ALiBi's slopes; auto takes sdpa")
    assert not (tmp_path / "out").exists()
