"""`python -m train`: what it prints is obeyed by no terminal, and a dry run writes nothing."""

from __future__ import annotations

import json

import pytest

from curate.cli.app import invoke
from llmcurate.base.messages import json_values
from llmcurate.base.terminal import say
from train.__main__ import main
from train.config import TrainConfig
from train.loop.forecast import forecast


def test_control_characters_of_names_are_made_visible_on_one_line(capsys):
    say("shards a\x1b[2J\nb\x9b\u202e")
    assert capsys.readouterr().err == "shards a\u241b[2J b[U+009B][U+202E]\n"


@pytest.fixture
def dry_run(shard_folder, tmp_path, monkeypatch, capsys):
    """The output of a dry run of 6 steps with these options, and its exit code."""

    def run(*options: str) -> tuple[int, str]:
        arguments = [str(shard_folder), str(tmp_path / "out"), "--set", "steps=6", "--dry-run"]
        monkeypatch.setattr("sys.argv", ["train", *arguments, *options])
        code = main()
        printed = capsys.readouterr()
        assert not (tmp_path / "out").exists()
        return code, printed.out + printed.err

    return run


def test_a_dry_run_says_what_the_command_says(dry_run, shard_folder, tmp_path, capsys):
    code, said = dry_run()
    command = ["pretrain", str(shard_folder), "-o", str(tmp_path / "out"), "--steps", "6"]
    assert invoke([*command, "--dry-run"]) == code == 0
    assert capsys.readouterr().out.endswith("\n\n" + said)
    assert "tiny: 1,632,192 parameters" in said and "6 steps of 4 x 256 tokens" in said


def test_a_dry_run_as_json_has_the_figures(dry_run, shard_folder, tmp_path):
    figures = forecast(shard_folder, tmp_path / "out", train=TrainConfig(steps=6))
    assert json.loads(dry_run("--json")[1]) == json.loads(json.dumps(json_values(figures)))


def test_a_dry_run_is_of_the_processes_that_were_started_and_the_first_says_it(
    dry_run, monkeypatch
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "Memory of each of 2 processes" in dry_run()[1]
    monkeypatch.setenv("RANK", "1")
    assert dry_run() == (0, "")


def test_a_dry_run_refuses_what_the_run_would(dry_run):
    code, said = dry_run("--set", "schedule=cosin")
    assert code == 2 and said.count("\n") == 1 and "cosin" in said


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
