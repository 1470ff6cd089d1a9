"""`llmcurate tokenizer train`: its options and its messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.cli.app import invoke

ROWS = [
    {"id": "1", "text": "the cat sat on the mat\n\nthe rat   ate the hat " * 9, "lang": "en"},
    {"id": "2", "text": "ภาษาไทย ตากลม " * 9, "lang": "th"},
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    return path


def _train(capsys: Any, corpus: Path, *arguments: Any) -> tuple[int, str, dict[str, Any]]:
    out = corpus.parent / "out"
    code = invoke(["tokenizer", "train", str(corpus), "-o", str(out), *map(str, arguments)])
    card = out / "tokenizer_card.json"
    return code, capsys.readouterr().err, json.loads(card.read_text()) if card.exists() else {}


def test_tokens_span_words_from_a_size_on(capsys: Any, corpus: Path) -> None:
    code, _, card = _train(capsys, corpus, "--vocab", 290, "--superwords", 270)
    assert code == 0 and card["algorithm"].startswith("SuperBPE")
    code, message, _ = _train(capsys, corpus, "--vocab", 290, "--superwords", "all")
    assert code == 2 and message.count("\n") == 1 and "superwords" in message


def test_stages_time_and_peak_memory_are_printed(capsys: Any, corpus: Path) -> None:
    code, messages, _ = _train(capsys, corpus, "--vocab", 280)
    assert code == 0
    lines = [line for line in messages.splitlines() if "peak memory" in line]
    begins = ["tokenizer: read 0.0 MB in 2 documents: ", "tokenizer: learned 280 tokens: "]
    assert [line.startswith(begin) for line, begin in zip(lines, begins, strict=False)] == [
        True
    ] * 2
    assert "wrote the files" in lines[2] and lines[2].endswith(" MiB")
    run = json.loads((corpus.parent / "out" / ".run" / "run.json").read_text())
    assert "peak_bytes" in json.dumps(run)


def test_programs_that_will_open_the_tokenizer_are_named_before_a_word_is_counted(
    capsys: Any, corpus: Path
) -> None:
    _, messages, card = _train(capsys, corpus, "--vocab", 280)
    assert messages.splitlines()[:2] == [
        "tokenizer: opens in transformers, tiktoken; not in llama.cpp or SentencePiece",
        "tokenizer: for llama.cpp, use --pattern gpt2, llama3, qwen2 or deepseek",
    ]
    assert card["notes"][0].startswith("llama.cpp (GGUF) cannot use this tokenizer")
    assert card["notes"][0].endswith("; use --pattern gpt2, llama3, qwen2 or deepseek")
    _, messages, card = _train(capsys, corpus, "--vocab", 280, "--pattern", "gpt2", "--restart")
    opens = "tokenizer: opens in transformers, llama.cpp, tiktoken; not in SentencePiece"
    assert messages.splitlines()[0] == opens and "for llama.cpp" not in messages
    assert card["notes"] == [] and card["gguf"]["tokenizer.ggml.pre"] == "gpt-2"


@pytest.mark.parametrize("flag", ["-q", "--json"])
def test_quiet_and_json_name_no_programs(capsys: Any, corpus: Path, flag: str) -> None:
    code, messages, _ = _train(capsys, corpus, "--vocab", 280, flag)
    assert code == 0 and "llama.cpp" not in messages


def test_options_as_typed_are_in_the_card(capsys: Any, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("ภาษา\nไทย\nตาก\nลม\n", encoding="utf-8")
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    (tmp_path / "cut.txt").write_text("# words\n\\p{L}[\\p{L}\\p{M}]*| +|\\n+\n", encoding="utf-8")
    code, messages, card = _train(
        capsys, corpus, "--vocab", 400, "--model", "char-bpe", "--character-coverage", 1,
        "--pattern-file", tmp_path / "cut.txt", "--script-boundaries", "--newlines", "single",
        "--space-runs", 3, "--forbid", "cat", "--forbid", "hat", "--normalize", "nfc",
        "--dictionary", tmp_path / "words.txt", "--chat-template", tmp_path / "chat.jinja",
        "--special", "<|user|>",
    )  # fmt: skip
    assert code == 0, messages
    assert card["model"] == "char-bpe" and card["character_coverage"] == 1.0
    assert card["pattern"] == "own" and card["regex"][3] == "\\p{L}[\\p{L}\\p{M}]*| +|\\n+"
    assert (card["newlines"], card["space_runs"], card["script_boundaries"]) == ("single", 3, True)
    assert card["forbidden"] == ["cat", "hat"] and card["normalisation"] == "nfc"
    assert card["dictionary"]["words"] == 4
    assert list(card["special_tokens"]) == ["<|endoftext|>", "<|user|>"]
    config = json.loads((corpus.parent / "out" / "tokenizer_config.json").read_text())
    assert config["chat_template"] == "{{ messages }}"


def test_another_dictionary_under_the_same_name_is_another_tokenizer(
    capsys: Any, corpus: Path, tmp_path: Path
) -> None:
    words = tmp_path / "words.txt"
    words.write_text("ภาษา\nไทย", encoding="utf-8")
    first = _train(capsys, corpus, "--vocab", 300, "--dictionary", words)[2]
    words.write_text("ตาก\nลม", encoding="utf-8")
    code, messages, _ = _train(capsys, corpus, "--vocab", 300, "--dictionary", words)
    assert code == 2 and "was made with content of dictionary" in messages
    again = _train(capsys, corpus, "--vocab", 300, "--dictionary", words, "--restart")[2]
    assert first["dictionary"]["sha256"] != again["dictionary"]["sha256"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--pattern-file", "missing.txt"], "missing.txt: cannot be read (No such file"),
        (["--dictionary", "missing.txt"], "missing.txt: No such file"),
        (["--chat-template", "missing.txt"], "missing.txt: No such file"),
        (["--space-runs", "1"], "from 2 to 512"),
        (["--model", "wordpiece", "--special", "</s>"], "needs [UNK]"),
    ],
    ids=["pattern-file", "dictionary", "chat-template", "space-runs", "wordpiece"],
)
def test_wrong_tokenizer_options_are_a_one_line_error(
    capsys: Any, corpus: Path, arguments: list[str], message: str
) -> None:
    code, error, card = _train(capsys, corpus, *arguments)
    assert code == 2 and message in error and error.count("\n") == 1 and card == {}
