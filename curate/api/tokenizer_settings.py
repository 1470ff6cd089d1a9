"""Settings of commands on tokenizers, as those of command_settings.py."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from curate.api.command_settings import CommandSettings


class TokenizerEval(CommandSettings):
    """The comparison of tokenizers."""

    command = "tokenizer eval"

    baseline: Path | None = Field(
        None, description="Tokenizer whose lengths the others' are given as shares of."
    )
    pattern: str | None = Field(
        None,
        description="How text is cut, for a .tiktoken file: gpt2, cl100k, o200k, llama3 or qwen2.",
    )
    dictionary: Path | None = Field(
        None, description="List of words, one a line, that cuts scripts without spaces into words."
    )
    separator: str | None = Field(
        None,
        min_length=1,
        description="What stands between words in the texts, as |. It is taken out before they are"
        " encoded.",
    )
    words: str | None = Field(
        None,
        description="Column with the words of each text: a list of them, or the text with white"
        " space between.",
    )
    morphemes: Path | None = Field(
        None,
        description="List of words: on each line a word, a tab, and its morphemes with spaces"
        " between.",
    )
    pivot: str | None = Field(
        None, description="Language whose tokens the others' are set against. The default is en."
    )
    price: float | None = Field(None, ge=0, description="Price of a million tokens.")
    context: int | None = Field(
        None, ge=1, description="Tokens of a context, to say how much text fits into it."
    )
    show: int = Field(
        0, ge=0, le=100, description="Number of texts, the first ones, that are shown cut."
    )
    color: bool | None = Field(
        None, description="Whether the output has colours. Without a value it does on a terminal."
    )


class TokenizerDiff(CommandSettings):
    """The difference of two tokenizers."""

    command = "tokenizer diff"

    pattern: str | None = TokenizerEval.field("pattern")
    dictionary: Path | None = TokenizerEval.field("dictionary")


class TokenizerStudy(CommandSettings):
    """The comparison of sizes of a vocabulary."""

    command = "tokenizer study"

    vocab: str = Field(
        "4000,8000,16000,32000,64000", description="Sizes to compare, with commas between them."
    )
    digits: str = Field(
        "single", description="How digits are cut: single, triples, triples-right or free."
    )
    dictionary: Path | None = TokenizerEval.field("dictionary")
    width: int = Field(768, ge=1, description="Width of the model's embedding.")
    worth: float = Field(
        0.03, ge=0, le=1, description="Least share of the tokens that a doubled vocabulary saves."
    )


class TokenizerExtend(CommandSettings):
    """The extension of a tokenizer."""

    command = "tokenizer extend"

    min_frequency: int = Field(
        2, ge=1, description="Least occurrences of a pair of tokens that is merged (BPE)."
    )
    init: Literal["mean", "focus", "random"] = Field(
        "mean",
        description="New rows of the embeddings: the mean of a token's old parts; a blend of tokens"
        " that stand in like contexts of the texts given (Dobler and de Melo 2023); or random as"
        " the old rows are.",
    )
    seed: int = Field(0, ge=0, description="Seed of the random rows.")
    scripts: str = Field(
        "",
        description="Scripts that the tokens of --from may hold, with commas between them; with a"
        " minus, as -Thai, those that they may not. Without a value all.",
    )


class TokenizerPrune(CommandSettings):
    """The pruning of a tokenizer."""

    command = "tokenizer prune"

    keep_used: int | None = Field(
        None, ge=1, description="Number of tokens that stay, those used most."
    )
    min_count: int | None = Field(
        None, ge=1, description="Least uses of a token that stays; 1 keeps all that are used."
    )
