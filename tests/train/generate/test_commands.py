"""`llmcurate generate`: prompts from the command line and from files."""

from __future__ import annotations

import json

import pytest
import torch

import train.generate
from curate.cli.app import invoke
from curate.cli.training import _prompts
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import change
from llmcurate.base.terminal import visible
from tests.train.loop.small_runs import build, trained
from train.data.vocabulary import vocabulary
from train.model.presets import preset
from train.objectives.causal import FillInTheMiddle


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_tokenizer):
    config = preset("tiny", vocab=270, context=64)
    return trained(tmp_path_factory.mktemp("run") / "run", build(config), small_tokenizer)


def generate(capsys, *arguments):
    code = invoke(["generate", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_prompts_of_the_command_line_and_of_a_file_are_one_batch(run, tmp_path, capsys):
    plain, lines = tmp_path / "prompts.txt", tmp_path / "prompts.jsonl"
    plain.write_text("the mat\n\nthe  sat\n")
    lines.write_text('{"prompt": "the mat"}\n{"text": "the  sat", "id": 4}\n')
    common = ("--model", run, "--max-tokens", 9, "--seed", 4, "--json")
    code, out, _ = generate(capsys, "the cat", *common, "--prompts", plain)
    assert code == 0
    completions = json.loads(out)["completions"]
    assert [completion["prompt"] for completion in completions] == [
        "the cat",
        "the mat",
        "the  sat",
    ]
    assert all(
        completion["stopped"] in ("end", "length") and completion["tokens"] <= 9
        for completion in completions
    )
    assert generate(capsys, "the cat", *common, "--prompts", lines)[1] == out
    assert generate(capsys, "the cat", *common, "--prompts", lines, "--batch", 1)[1] == out
    code, text, _ = generate(capsys, "the cat", "the mat", *common[:-1])
    assert text.split("\n---\n")[0] == visible("the cat" + completions[0]["text"])


def test_every_option_changes_the_text(run, capsys):
    common = ("the cat", "--model", run, "--max-tokens", 30, "--temperature", 3, "--top-k", 0)
    plain = generate(capsys, *common)[1]
    for option in (
        ("--temperature", 0), ("--top-k", 3), ("--top-p", 0.3), ("--min-p", 0.5),
        ("--repetition-penalty", 9), ("--seed", 8),
    ):  # fmt: skip
        assert generate(capsys, *common, *option)[1] != plain


def test_precision_and_compilation_are_those_asked_for(run, monkeypatch, capsys):
    seen, complete = [], train.generate.complete

    def spied(*given, compiled, **how):
        seen.append((torch.is_autocast_enabled("cpu"), compiled))
        return complete(*given, **how)

    monkeypatch.setattr(train.generate, "complete", spied)
    for options in ((), ("--precision", "bf16"), ("--compile",)):
        assert generate(capsys, "the cat", "--model", run, "--max-tokens", 2, *options)[0] == 0
    assert seen == [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has no prompt"),
        (b"caf\xe9\n", "not UTF-8, at byte 3"),
        (b'{"prompt": "a"}\n{"prompt": 3}\n', "prompts.jsonl:2: no text"),
        (b'"a"\n', "no text under"),
        (b"{\n", "prompts.jsonl:1: not JSON"),
        (b'{"prompt": "\\ud800"}\n', "prompts.jsonl:1: not UTF-8"),
        (None, "cannot be read"),
    ],
    ids=["empty", "latin-1", "a number", "no object", "cut", "surrogate", "missing"],
)
def test_a_file_of_prompts_that_cannot_be_read_says_where(data, message, run, tmp_path, capsys):
    file = tmp_path / "prompts.jsonl"
    if data is not None:
        file.write_bytes(data)
    code, _, error = generate(capsys, "--prompts", file, "--model", run)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_a_line_of_prompts_ends_at_a_line_feed_alone(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_bytes('{"prompt": "a\u2028b\x85c"}\r\n\r\n{"text": "d"}'.encode())
    assert _prompts(file) == ["a\u2028b\x85c", "d"]
    file = tmp_path / "prompts.txt"
    file.write_bytes("a\u2028b\r\n c \n".encode())
    assert _prompts(file) == ["a\u2028b", " c "]


def test_an_array_of_prompts_is_not_taken_for_text(tmp_path):
    (tmp_path / "prompts.json").write_text('[{"prompt": "a"}]')
    with pytest.raises(UsageError, match=r"prompts.json:1: no text under `prompt` or `text`"):
        _prompts(tmp_path / "prompts.json")


def test_a_prompt_that_is_no_text_is_a_one_line_error(run, capsys):
    code, _, error = generate(capsys, "caf\udce9", "--model", run)
    assert (code, error) == (2, "llmcurate: a prompt: not UTF-8\n")


@pytest.mark.parametrize(
    "option",
    [("--top-p", "0"), ("--min-p", "2"), ("--temperature", "nan"), ("--repetition-penalty", "-1")],
    ids=" ".join,
)
def test_a_wrong_value_is_a_one_line_error(option, run, capsys):
    code, _, error = generate(capsys, "the", "--model", run, *option)
    assert (code, error.count("\n")) == (2, 1)


def test_an_exported_model_is_to_be_imported_first(run, tmp_path, capsys):
    exported, imported = tmp_path / "hf", tmp_path / "run"
    assert invoke(["export", str(run), "-o", str(exported), "--format", "hf"]) == 0
    code, _, error = generate(capsys, "the cat", "--model", exported)
    assert code == 2 and f"`llmcurate import {exported} -o MODEL`" in error
    assert invoke(["import", str(exported), "-o", str(imported)]) == 0
    assert generate(capsys, "the cat", "--model", imported)[0] == 0


@pytest.mark.lab
@pytest.mark.parametrize("fill", ["mask-predict", "gibbs"])
def test_an_encoder_fills_masks_within_a_prompt_or_after_it(encoder_run, fill, capsys):
    common = ("--model", encoder_run, "--max-tokens", 4, "--fill", fill, "--json")
    code, out, _ = generate(capsys, "the [MASK] sat on [MASK] mat", "the cat", *common)
    assert code == 0
    inside, behind = json.loads(out)["completions"]
    assert inside["prompt"] == "the [MASK] sat on [MASK] mat"
    assert inside["tokens"] == 2 and behind["tokens"] == 4
    assert "sat on" in inside["text"] and inside["text"].endswith(" mat")
    assert behind["prompt"] == "the cat" and "[MASK]" not in inside["text"] + behind["text"]


@pytest.mark.lab
def test_the_candidates_of_each_mask_are_listed_with_probabilities(encoder_run, capsys):
    asked = ("the [MASK] sat on [MASK] mat", "--model", encoder_run, "--top", 3)
    code, out, _ = generate(capsys, *asked, "--json")
    assert code == 0
    (filled,) = json.loads(out)["completions"]
    assert [len(mask) for mask in filled["candidates"]] == [3, 3]
    for mask in filled["candidates"]:
        chances = [candidate["probability"] for candidate in mask]
        assert chances == sorted(chances, reverse=True) and 0 < sum(chances) < 1
    _, out, _ = generate(capsys, *asked)
    first = filled["candidates"][0][0]
    assert f"mask 1: {first['token'].strip()} {first['probability']:.3f}, " in out
    code, _, error = generate(capsys, "the cat", "--model", encoder_run, "--top", 3)
    assert code == 2 and "a prompt has no [MASK]" in error


@pytest.mark.lab
def test_a_text_that_is_too_long_for_an_encoder_is_a_one_line_error(encoder_run, capsys):
    code, _, error = generate(capsys, "the cat", "--model", encoder_run, "--max-tokens", 90)
    assert code == 2 and "the model's context is 64" in error


@pytest.fixture(scope="module")
def encoder_run(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("encoder")
    tokens = vocabulary(270, {}, small_tokenizer, ("mask",))
    (folder / "tokenizer.json").write_bytes(tokens.written())
    config = change(preset("roberta-tiny", context=64), {"vocab": tokens.size}, "model")
    return trained(folder / "run", build(config), folder / "tokenizer.json")


@pytest.fixture(scope="module")
def fim_run(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("fim")
    tokens = vocabulary(270, {}, small_tokenizer, FillInTheMiddle.needs(None, 64))
    (folder / "tokenizer.json").write_bytes(tokens.written())
    config = change(preset("tiny", context=64), {"vocab": tokens.size}, "model")
    return trained(folder / "run", build(config), folder / "tokenizer.json")


def test_a_middle_is_written_between_a_prompt_and_a_suffix(fim_run, run, capsys):
    common = ("the cat", "--model", fim_run, "--max-tokens", 5, "--suffix", " on the mat")
    code, out, _ = generate(capsys, *common)
    assert code == 0 and out.startswith("the cat") and out.rstrip("\n").endswith(" on the mat")
    other = generate(capsys, *common[:-1], " sat")[1]
    assert out.removesuffix(" on the mat\n") != other.removesuffix(" sat\n")  # it is read
    code, _, error = generate(capsys, "the cat", "--model", run, "--suffix", " on")
    assert code == 2 and "trained with objective fim" in error
    code, _, error = generate(capsys, *common[:-1], " sat" * 80)
    assert code == 2 and "but the model's context is 64: give shorter ones" in error


@pytest.mark.lab
def test_an_encoder_adds_as_many_masks_as_its_context_has_room_for(encoder_run, capsys):
    common = ("the cat", "--model", encoder_run, "--json")
    code, out, _ = generate(capsys, *common)
    (filled,) = json.loads(out)["completions"]
    assert code == 0 and 1 <= filled["tokens"] < 100
    code, _, error = generate(capsys, *common, "--max-tokens", 100)
    assert code == 2 and "or a lower --max-tokens" in error


def test_a_system_message_without_chat_is_refused(run, capsys):
    code, _, error = generate(capsys, "hi", "--model", run, "--system", "x")
    assert code == 2 and "give --chat, too" in error


def test_a_missing_folder_and_a_packed_file_of_prompts_are_named(tmp_path, capsys):
    code, _, error = generate(capsys, "hi", "--model", tmp_path / "nope")
    assert code == 2 and "nope: no such folder" in error
    code, _, error = generate(capsys, "--model", tmp_path, "--prompts", tmp_path / "x.jsonl.gz")
    assert code == 2 and "x.jsonl.gz: give plain text or JSONL, not .gz" in error
