"""Read the parts of a tokenizer.json, and write the files that transformers expects next to it."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
)

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import encode_json
from llmcurate.base.roles import SPELLING, TOKEN_NAMES, Roles
from tokenize_kit.formats.forms import FLAGS
from tokenize_kit.pattern.named import PATTERNS


class Unsupported(ValueError):
    """Raised if our kernels cannot encode a tokenizer; the message names the feature."""


# A normalizer, pre-tokenizer, post-processor or decoder; its keys depend on its `type`.
Step = dict[str, Any]
# The model. `vocab` maps tokens to ids; in a Unigram it is a list of tokens with their scores.
Model = dict[str, Any]


class Parts(TypedDict):
    """The contents of a tokenizer.json."""

    model: Model
    normalizer: Step | None
    pre_tokenizer: Step | None
    post_processor: Step | None
    decoder: Step | None
    added_tokens: list[dict[str, Any]]


def parts_of(tokenizer: Tokenizer) -> Parts:
    """Return the contents of the tokenizer.json that the library would write."""
    parts: Parts = json.loads(tokenizer.to_str())
    return parts


def flat_steps(step: Step | None) -> list[Step]:
    """Return the single steps of a normalizer, pre-tokenizer or decoder, in order."""
    if step is None:
        return []
    if step["type"] == "Sequence":
        inside = step.get("normalizers") or step.get("pretokenizers") or step.get("decoders") or []
        return [inner for part in inside for inner in flat_steps(part)]
    return [step]


def patterns_of(step: Step | None) -> list[str]:
    """Return the patterns of a pre-tokenizer whose last step is ByteLevel. Raises Unsupported if
    the last step is another one, or if patterns cannot express a step."""
    if step is None:
        raise Unsupported("no pre-tokenizer")
    kind = step["type"]
    if kind == "Sequence":
        patterns: list[str] = []
        parts = step["pretokenizers"]
        for number, part in enumerate(parts):
            if part["type"] == "ByteLevel" and number < len(parts) - 1:
                raise Unsupported("a pre-tokenizer after ByteLevel")
            patterns += patterns_of(part)
        if not parts or parts[-1]["type"] != "ByteLevel":
            raise Unsupported("a pre-tokenizer that does not end in ByteLevel")
        return patterns
    if kind == "ByteLevel":
        if step.get("add_prefix_space", True):
            raise Unsupported("a space before the text (add_prefix_space)")
        return list(PATTERNS["gpt2"].parts) if step.get("use_regex", True) else []
    if kind == "Digits":
        return [r"\p{N}" if step.get("individual_digits") else r"\p{N}+"]
    if kind == "Split":
        if step["behavior"] != "Isolated" or step.get("invert"):
            raise Unsupported(f"a split with the behavior {step['behavior']}")
        if "Regex" not in step["pattern"]:
            raise Unsupported("a split at a string")
        return [step["pattern"]["Regex"]]
    raise Unsupported(f"the pre-tokenizer {kind}")


# The printable letters that stand for bytes in byte-level vocabularies (GPT-2's encoder.py).
_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = iter(range(256, 512))
LETTERS = [chr(byte if byte in _PRINTABLE else next(_OTHERS)) for byte in range(256)]  # by byte
_LETTERS = "".join(LETTERS)
_BYTES = {ord(letter): byte for byte, letter in enumerate(LETTERS)}
# The order in which `tokenizers` numbers the bytes: by code point of the letter.
ORDER = sorted(range(256), key=LETTERS.__getitem__)


def to_letters(data: bytes) -> str:
    """Spell each byte by GPT-2's letter for it."""
    return codecs.charmap_decode(data, "strict", _LETTERS)[0]


def from_letters(letters: str) -> bytes:
    """Return the bytes of GPT-2's letters. Raises KeyError if a letter stands for no byte."""
    try:
        return codecs.charmap_encode(letters, "strict", _BYTES)[0]
    except UnicodeEncodeError as error:
        raise KeyError(letters[error.start]) from None


def cut_to_bytes(tokenizer: Tokenizer, parts: Sequence[str]) -> None:
    """Make a tokenizer split texts by patterns, in this order, and spell the pieces in bytes."""
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()


def add_tokens(tokenizer: Tokenizer, special: Sequence[str], space: str | None = None) -> None:
    """Make tokens of the vocabulary special. space: a token that replaces every space, or None.
    Spaces are replaced before the text is split, as with WangchanBERTa's `<_>`, so this token is
    never part of another. Decoding turns it back into a space, even where the original text
    contained the token's own spelling."""
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    if space is None:
        return
    tokenizer.normalizer = normalizers.Replace(" ", space)
    tokenizer.decoder = decoders.Sequence([tokenizer.decoder, decoders.Replace(space, " ")])
    tokenizer.add_tokens([AddedToken(space, special=False, normalized=True)])


def write_transformers(
    folder: Path, tokenizer: Tokenizer, roles: Roles, chat_template: str | None = None
) -> None:
    """Write tokenizer_config.json, as PreTrainedTokenizerFast reads it, special_tokens_map.json
    and, if several tokens end a text, generation_config.json. The clean-up of decoded text is
    disabled, so that decoding returns the exact text."""
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    decoder = {
        str(number): {name: getattr(token, name) for name in ("content", *sorted(FLAGS))}
        for number, token in added
    }
    ids = {name: getattr(roles, role) for role, name in TOKEN_NAMES.items() if role != "ends"}
    if roles.begin == roles.cls and roles.origin.get("begin") == SPELLING:
        del ids["bos_token"]  # BERT's tokenizers have none
    ids = {"eos_token": roles.end} | ids
    named = {name: tokenizer.id_to_token(n) for name, n in ids.items() if n is not None}
    special = [token.content for _, token in added if token.special]
    others = [token for token in special if token not in named.values()]
    tokens = named | ({"additional_special_tokens": others} if others else {})
    config = {
        "added_tokens_decoder": decoder,
        **tokens,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),  # transformers' "no limit"
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({} if chat_template is None else {"chat_template": chat_template}),
    }
    write_atomic(folder / "tokenizer_config.json", encode_json(config))
    write_atomic(folder / "special_tokens_map.json", encode_json(tokens))
    generation = folder / "generation_config.json"
    if len(roles.ends) > 1 and not generation.is_file():
        ids_of_ends = {"bos_token_id": roles.begin, "eos_token_id": list(roles.ends)}
        write_atomic(generation, encode_json(ids_of_ends | {"pad_token_id": roles.pad}))
