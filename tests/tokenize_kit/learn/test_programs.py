"""The programs said before training to open a tokenizer are those it can be converted for."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from llmcurate.base.errors import UsageError
from tokenize_kit.change.convert import convert
from tokenize_kit.formats.forms import CannotHold
from tokenize_kit.judge.compare import HARD_TEXTS, SCRIPTS
from tokenize_kit.learn.options import LEARNERS, TrainingOptions
from tokenize_kit.learn.programs import opening_lines, refusals, way_to_llama_cpp
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.pattern.named import DIGITS, PATTERNS

TEXTS = [text for text in (*HARD_TEXTS, *SCRIPTS) if len(text) < 300]
TEXTS = [*TEXTS, "It's THE naïve Été, 12345 cafés; isn't it?"] * 4
GPT2 = PATTERNS["gpt2"].parts
OPTIONS: list[dict[str, Any]] = [
    {},
    {"normalize": "nfkc"},
    {"normalize": "nmt_nfkc_cf"},
    {"space_token": "<_>"},
    {"superwords": 400},
    {"graphemes": True},
    {"forbid": ("the",)},
    {"newlines": "runs"},
    {"space_runs": 3},
    {"script_boundaries": True},
    {"special_tokens": ("</s>", "<s>"), "reserved": 2, "pad_to": 16},
    {"min_frequency": 3, "max_token_length": 9},
    {"character_coverage": 0.9},
    {"regex": GPT2},
    {"regex": (r"\p{N}", *GPT2)},
    {"regex": (r"\S+|\s+",)},
    *({"digits": rule} for rule in DIGITS),
]
OTHERS = [name for name in LEARNERS if name != "bpe"]
PATTERN_OPTIONS = [*itertools.product(PATTERNS, (None, "single", "triples")), ("gpt2", "free")]


def valid(settings: dict[str, Any]) -> bool:
    try:
        TrainingOptions(sizes=(700,), **settings)
    except UsageError:
        return False
    return True


CASES = [
    case
    for case in (
        *({"model": model, **options} for model in OTHERS for options in OPTIONS),
        *({"pattern": "gpt2", **options} for options in OPTIONS),
        *({"pattern": name, "digits": rule} for name, rule in PATTERN_OPTIONS),
    )
    if valid(case)
]


def converted(folder: Path, to: str, model: str) -> bool:
    """Whether `tokenizer convert` writes the format. Of Unigram's two files, SentencePiece opens
    tokenizer.model: there the ids of the two are compared."""
    if (to, model) == ("sentencepiece", "unigram"):
        library = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        own = Tokenizer.from_file(str(folder / "tokenizer.json"))
        plain = [text for text in TEXTS if text.isprintable() and not set("▁<") & set(text)]
        assert len(plain) > 20
        return all(library.encode(t) == own.encode(t).ids for t in plain)
    try:
        convert(folder, folder / f"file.{to}", to)
    except CannotHold:
        return False
    return True


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_what_is_said_before_training_is_what_convert_then_does(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    options = TrainingOptions(sizes=(700,), **settings)
    said = {program: not reason for program, reason in refusals(options).items()}
    train_tokenizer(TEXTS, tmp_path, vocab=700, **settings)
    formats = {"llama.cpp": "gguf", "tiktoken": "tiktoken", "SentencePiece": "sentencepiece"}
    done = {name: converted(tmp_path, to, options.model) for name, to in formats.items()}
    assert said == done


ALL = "--pattern gpt2, llama3, qwen2 or deepseek"


@pytest.mark.parametrize(
    "settings, way",
    [
        ({}, f"use {ALL}"),
        ({"pattern": "o200k"}, f"use {ALL}"),
        ({"digits": "triples"}, "use --pattern llama3, qwen2 or deepseek"),
        ({"pattern": "gpt2", "digits": "single"}, "use --pattern llama3 or qwen2"),
        ({"pattern": "qwen2", "normalize": "nfc"}, "leave out --normalize"),
        ({"normalize": "nfc"}, f"leave out --normalize and use {ALL}"),
        ({"regex": (r"\S+|\s+",)}, f"leave out --pattern-file and use {ALL}"),
        (
            {"pattern": "llama3", "space_runs": 4, "forbid": ("<",)},
            "leave out --forbid and --space-runs",
        ),
        ({"model": "unigram", "character_seeds": True}, f"use --model bpe {ALL}"),
        ({"model": "wordpiece", "sizes": (200,)}, f"use --model bpe {ALL}"),
        (
            {"model": "wordpiece", "normalize": "bert", "digits": "free"},
            "leave out --normalize and use --model bpe --pattern gpt2",
        ),
        ({"model": "char-bpe", "character_coverage": 0.9}, f"use --model bpe {ALL}"),
    ],
    ids=str,
)
def test_the_fewest_options_that_open_llama_cpp_are_named(
    settings: dict[str, Any], way: str
) -> None:
    options = TrainingOptions(**settings)
    assert way_to_llama_cpp(options) == way
    assert opening_lines(options)[1] == f"for llama.cpp, {way}"


def test_sizes_reserved_tokens_and_a_dictionary_do_not_change_the_programs() -> None:
    """The dictionary need not exist yet, and 100,000 reserved tokens cost nothing."""
    more: dict[str, Any] = {"reserved": 100_000, "pad_to": 128, "dictionary": "none.txt"}
    for settings in ({"pattern": "llama3"}, {"model": "unigram"}):
        large = TrainingOptions(sizes=(110_000, 120_000), **settings, **more)
        assert refusals(large) == refusals(TrainingOptions(**settings))
