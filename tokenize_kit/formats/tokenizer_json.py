"""A tokenizer.json as `tokenizers` reads it, and the files that transformers reads beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import encode_json
from llmcurate.base.errors import UsageError
from tokenize_kit.formats.forms import read_file
from tokenize_kit.pattern.named import PATTERNS


class Unsupported(ValueError):
    """Why a tokenizer is left to the library: the feature, named."""


class _Typed(TypedDict):
    type: str


class Step(_Typed, total=False):
    """A normaliser, pre-tokeniser or post-processor, with the keys of its type."""

    normalizers: list[Step]  # of a Sequence, as the next two
    pretokenizers: list[Step]
    processors: list[Step]
    pattern: dict[str, str]
    content: str
    behavior: str
    invert: bool
    individual_digits: bool
    add_prefix_space: bool
    use_regex: bool
    prepend: str
    prepend_scheme: str
    replacement: str
    split: bool
    strip_left: bool
    strip_right: bool
    precompiled_charsmap: str
    special_tokens: dict[str, Any]
    sep: tuple[str, int]
    cls: tuple[str, int]


class Model(_Typed, total=False):
    """A model: ``vocab`` has ids by token, or of a Unigram tokens with scores."""

    vocab: Any
    merges: list[Any]
    unk_id: int | None
    unk_token: str | None
    fuse_unk: bool
    byte_fallback: bool
    ignore_merges: bool


class AddedPart(TypedDict):
    """A token that is looked for in the text."""

    id: int
    content: str
    special: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


class Parts(TypedDict):
    """A tokenizer.json."""

    model: Model
    normalizer: Step | None
    pre_tokenizer: Step | None
    post_processor: Step | None
    added_tokens: list[AddedPart]


def parts_of(tokenizer: Tokenizer) -> Parts:
    """The file of a tokenizer, as the library would write it."""
    parts: Parts = json.loads(tokenizer.to_str())
    return parts


def flat_steps(step: Step | None) -> list[Step]:
    """The steps of a normaliser or pre-tokeniser, one after the other."""
    if step is None:
        return []
    if step["type"] == "Sequence":
        inside = step.get("normalizers") or step.get("pretokenizers") or []
        return [inner for part in inside for inner in flat_steps(part)]
    return [step]


def patterns_of(step: Step | None) -> list[str]:
    """Patterns of a pre-tokeniser that ends in ByteLevel, in order."""
    if step is None:
        raise Unsupported("no pre-tokeniser")
    kind = step["type"]
    if kind == "Sequence":
        patterns: list[str] = []
        parts = step["pretokenizers"]
        for number, part in enumerate(parts):
            if part["type"] == "ByteLevel" and number < len(parts) - 1:
                raise Unsupported("a pre-tokeniser behind ByteLevel")
            patterns += patterns_of(part)
        if not parts or parts[-1]["type"] != "ByteLevel":
            raise Unsupported("a pre-tokeniser that does not end in ByteLevel")
        return patterns
    if kind == "ByteLevel":
        if step.get("add_prefix_space", True):
            raise Unsupported("a space put before the text")
        return list(PATTERNS["gpt2"].parts) if step.get("use_regex", True) else []
    if kind == "Digits":
        return [r"\p{N}" if step.get("individual_digits") else r"\p{N}+"]
    if kind == "Split":
        if step["behavior"] != "Isolated" or step.get("invert"):
            raise Unsupported(f"a split that leaves pieces {step['behavior'].lower()}")
        if "Regex" not in step["pattern"]:
            raise Unsupported("a split at a string")
        return [step["pattern"]["Regex"]]
    raise Unsupported(f"the pre-tokeniser {kind}")


# The printable letters that stand for bytes in byte-level vocabularies (GPT-2's encoder.py).
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
LETTERS = [""] * 256  # of each byte
for _byte in _PRINTABLE:
    LETTERS[_byte] = chr(_byte)
for _position, _byte in enumerate(_OTHERS):
    LETTERS[_byte] = chr(256 + _position)
_BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}
# The order in which `tokenizers` numbers them: by code point of the letter.
ORDER = sorted(range(256), key=LETTERS.__getitem__)


def to_letters(data: bytes) -> str:
    """Bytes as letters."""
    return "".join([LETTERS[byte] for byte in data])


def from_letters(letters: str) -> bytes:
    """Letters as bytes; raises KeyError where one stands for none."""
    return bytes([_BYTES[letter] for letter in letters])


def cut_to_bytes(tokenizer: Tokenizer, parts: Sequence[str]) -> None:
    """Texts are cut by patterns, one after the other, and what is left is spelled in bytes."""
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()


def add_tokens(tokenizer: Tokenizer, special: Sequence[str], space: str | None = None) -> None:
    """Tokens that the vocabulary has, made special; space: the one that every space becomes.

    WangchanBERTa's `<_>`: a space is written as the token before the text is cut, so that it is
    never part of another one, and read back from it. A text that spells the token gets a space.
    """
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    if space is None:
        return
    tokenizer.normalizer = normalizers.Replace(" ", space)
    tokenizer.decoder = decoders.Sequence([tokenizer.decoder, decoders.Replace(space, " ")])
    tokenizer.add_tokens([AddedToken(space, special=False, normalized=True)])


MOST_IDS = 1 << 24  # a larger id is a damaged file: tables, and the library's own to_str(), count
# up to the largest; published vocabularies have 300,000

_PREFIX = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json``; raises ``LlmcurateError`` naming the file.

    The spelling of a special token inside a document is encoded as the ordinary characters it is
    (``encode_special_tokens``): a document cannot forge an end of text.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such tokenizer.json")
    _check_prefix(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except BaseException as error:  # the library raises bare Exception, and panics
        if not (isinstance(error, Exception) or panicked(error)):
            raise
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"{path}: not a tokenizer.json ({reason})") from error
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= MOST_IDS:
        raise UsageError(f"{path}: token ids up to {largest:,}; less than {MOST_IDS:,} is taken")
    if largest < 0:
        raise UsageError(f"{path}: a tokenizer without tokens")
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _check_prefix(path: Path) -> None:
    """Refuses merges that lack the prefix they are cut by: the library (0.23.3) does not panic
    there, it aborts the process."""
    raw = read_file(path)
    if not _PREFIX.search(raw):
        return
    try:
        model = json.loads(raw)["model"]
        prefix = model["continuing_subword_prefix"]
        merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges", ())]
        bare = prefix and any(not merge[-1].startswith(prefix) for merge in merges)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return  # the library says what is wrong
    if bare:
        raise UsageError(
            f"{path}: not a tokenizer.json (a merge without the prefix {prefix[:20]!r})"
        )


def panicked(error: BaseException) -> bool:
    """Whether the library's Rust code gave up; that is no Exception in Python."""
    return type(error).__name__ == "PanicException"


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Name to id of every special token, by id."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in sorted(added.items()) if token.special}


# Names published tokenizers give to the token that ends a document, in the order of preference.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")


# Names published tokenizers give to the token that begins a document, in the order of preference.
BEGIN_OF_TEXT = ("<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "[CLS]")


# Spellings from which a token's role is known; the end of text is given.
_ROLES = {
    "bos_token": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"),
    "pad_token": ("<pad>", "<|pad|>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
}


def _special_tokens_map(special: list[str], end_of_text: str) -> dict[str, str | list[str]]:
    """special_tokens_map.json: roles, and the tokens that have none.

    special: all special tokens in order of their ids.
    """
    roles: dict[str, str | list[str]] = {"eos_token": end_of_text}
    for role, spellings in _ROLES.items():
        for token in special:
            if token in spellings and role not in roles:
                roles[role] = token
    others = [token for token in special if token not in roles.values()]
    return roles | ({"additional_special_tokens": others} if others else {})


def write_transformers(
    folder: Path, tokenizer: Tokenizer, end: str | None, chat_template: str | None = None
) -> None:
    """tokenizer_config.json, as PreTrainedTokenizerFast reads it, and special_tokens_map.json.

    end: of text, None where there is none. Nothing is cleaned up after decoding, so that text
    comes back as it was.
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
    roles = _special_tokens_map([token.content for _, token in added if token.special], end or "")
    if not end:
        del roles["eos_token"]
    config = {
        "added_tokens_decoder": decoder,
        **roles,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),  # transformers' "no limit"
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({} if chat_template is None else {"chat_template": chat_template}),
    }
    write_atomic(folder / "tokenizer_config.json", encode_json(config))
    write_atomic(folder / "special_tokens_map.json", encode_json(roles))
