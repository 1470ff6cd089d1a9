"""Mistral's tekken.json: byte-level BPE as tiktoken's ranks, with pattern and special tokens.

The keys are read as in Tekkenizer.from_file of mistral-common 1.13 (tokens/tokenizers/tekken.py).
Special tokens have the first ids, and ranks count from there. `config.default_vocab_size` cuts the
list of tokens.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from tokenizers import Tokenizer

from llmcurate.base.errors import UsageError
from llmcurate.base.tokenizer_file import load_tokenizer, read_file
from tokenize_kit.formats.forms import Added, ByteBpe
from tokenize_kit.formats.json_forms import byte_bpe_tokenizer
from tokenize_kit.formats.tiktoken import LARGEST, merges_of_ranks

# A tokenizer.json may have a token of this name, but with a number.
_TOKEN = re.compile(rb'"token_bytes"\s*:\s*"')
# The special tokens of files without a list of them (versions up to v7).
_SPECIAL = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS]"
    " [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX]"
    " [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()


def load_json(path: Path, *, dropout: bool = False) -> Tokenizer:
    """Load a tokenizer.json, as `load_tokenizer` does, or a tekken.json; the content tells which it
    is. Raises ``LlmcurateError`` naming the file."""
    if not is_tekken(path):
        return load_tokenizer(path, dropout=dropout)
    try:
        tokenizer = byte_bpe_tokenizer(read_tekken(read_file(path)))
    except Exception as error:  # the library raises bare Exception for an unsupported pattern
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)[:200]
        raise UsageError(f"{path}: a damaged tekken.json ({reason})") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def read_tekken(raw: bytes) -> ByteBpe:
    """Return the tokenizer in the bytes of a tekken.json. Raises ValueError, LookupError or
    TypeError if the file is damaged."""
    content = json.loads(raw)
    config, listed = content["config"], content.get("special_tokens")
    apart, size = int(config["default_num_special_tokens"]), int(config["default_vocab_size"])
    names = [*_SPECIAL] if listed is None else [str(entry["token_str"]) for entry in listed]
    names += [f"<SPECIAL_{number}>" for number in range(len(names), min(apart, LARGEST))]
    if len(set(names)) != apart or any(e["rank"] != n for n, e in enumerate(listed or ())):
        raise ValueError(f"its special tokens are not {apart} different ones in order of rank")
    tokens: dict[bytes, int] = {}
    for rank, entry in enumerate(content["vocab"][: max(size - apart, 0)]):
        token = base64.b64decode(entry["token_bytes"], validate=True)
        if entry["rank"] != rank or not token or token in tokens:
            raise ValueError(f"token {rank} of vocab is empty, repeated or has another rank")
        tokens[token] = apart + rank
    if len(tokens) != size - apart or any(bytes([byte]) not in tokens for byte in range(256)):
        raise ValueError("vocab lacks a byte, or does not fit default_vocab_size")
    added = tuple(Added(name, number, True) for number, name in enumerate(names))
    return ByteBpe(tokens, merges_of_ranks(tokens), (str(config["pattern"]),), added, True)


def is_tekken(file: Path) -> bool:
    """Return True if the content of a file is that of a tekken.json, even of a damaged one."""
    return file.is_file() and _TOKEN.search(read_file(file)) is not None
