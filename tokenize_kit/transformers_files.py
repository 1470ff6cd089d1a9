"""The two files beside tokenizer.json that `transformers` reads: what special tokens are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokenize_kit.files import to_json, write_atomic

# Spellings from which a token's role is known; the end of text is given.
_ROLES = {
    "bos_token": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"),
    "pad_token": ("<pad>", "<|pad|>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
}


def special_tokens_map(special: list[str], end_of_text: str) -> dict[str, Any]:
    """special_tokens_map.json: roles, and the tokens that have none.

    special: all special tokens in order of their ids.
    """
    found: dict[str, Any] = {"eos_token": end_of_text}
    for role, spellings in _ROLES.items():
        for token in special:
            if token in spellings and role not in found:
                found[role] = token
    others = [token for token in special if token not in found.values()]
    return found | ({"additional_special_tokens": others} if others else {})


def tokenizer_config(tokenizer: Tokenizer, end_of_text: str) -> dict[str, Any]:
    """tokenizer_config.json, as PreTrainedTokenizerFast reads it.

    Nothing is cleaned up after decoding, so that text comes back as it was.
    """
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    decoder = {
        str(number): {
            "content": token.content,
            "lstrip": token.lstrip,
            "normalized": token.normalized,
            "rstrip": token.rstrip,
            "single_word": token.single_word,
            "special": token.special,
        }
        for number, token in added
    }
    special = [token.content for _, token in added if token.special]
    return {
        "added_tokens_decoder": decoder,
        **special_tokens_map(special, end_of_text),
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),  # transformers' "no limit"
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def write_transformers(folder: Path, tokenizer: Tokenizer, end: str | None) -> None:
    """tokenizer_config.json and special_tokens_map.json; end: of text, None where there is none."""
    config = tokenizer_config(tokenizer, end or "")
    special = [
        t.content for _, t in sorted(tokenizer.get_added_tokens_decoder().items()) if t.special
    ]
    roles = special_tokens_map(special, end or "")
    for found in (config, roles):
        if not end:
            del found["eos_token"]
    write_atomic(folder / "tokenizer_config.json", to_json(config))
    write_atomic(folder / "special_tokens_map.json", to_json(roles))
