"""The tokenizer that lies beside shards and models."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from train.errors import TrainError


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json`` so that the spelling of a special token in a text stays text."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise TrainError(f"{path}: cannot be read ({error})") from error
    tokenizer.encode_special_tokens = True
    return tokenizer
