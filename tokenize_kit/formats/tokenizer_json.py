"""Read a tokenizer.json with `tokenizers`; write the files that transformers expects next to it."""

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
    """Raised if our kernels cannot encode a tokenizer; the message names the feature."""


class _Typed(TypedDict):
    type: str


class Step(_Typed, total=False):
    """A normalizer, pre-tokenizer or post-processor. Its keys depend on its type."""

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
    """The model of a tokenizer.json. ``vocab`` maps tokens to ids; in a Unigram it is a list of
    tokens with their scores."""

    vocab: Any
    merges: list[Any]
    unk_id: int | None
    unk_token: str | None
    fuse_unk: bool
    byte_fallback: bool
    ignore_merges: bool


class AddedPart(TypedDict):
    """An added token of a tokenizer.json, which is matched in the text."""

    id: int
    content: str
    special: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


class Parts(TypedDict):
    """The contents of a tokenizer.json."""

    model: Model
    normalizer: Step | None
    pre_tokenizer: Step | None
    post_processor: Step | None
    added_tokens: list[AddedPart]


def parts_of(tokenizer: Tokenizer) -> Parts:
    """Return the contents of the tokenizer.json that the library would write."""
    parts: Parts = json.loads(tokenizer.to_str())
    return parts


def flat_steps(step: Step | None) -> list[Step]:
    """Return the single steps of a normalizer or pre-tokenizer, in order."""
    if step is None:
        return []
    if step["type"] == "Sequence":
        inside = step.get("normalizers") or step.get("pretokenizers") or []
        return [inner for part in inside for inner in flat_steps(part)]
    return [step]


def patterns_of(step: Step | None) -> list[str]:
    """Return the patterns of a pre-tokenizer whose last step is ByteLevel. Raises Unsupported."""
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
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
LETTERS = [""] * 256  # by byte
for _byte in _PRINTABLE:
    LETTERS[_byte] = chr(_byte)
for _position, _byte in enumerate(_OTHERS):
    LETTERS[_byte] = chr(256 + _position)
_BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}
# The order in which `tokenizers` numbers the bytes: by code point of the letter.
ORDER = sorted(range(256), key=LETTERS.__getitem__)


def to_letters(data: bytes) -> str:
    """Spell each byte by GPT-2's letter for it."""
    return "".join([LETTERS[byte] for byte in data])


def from_letters(letters: str) -> bytes:
    """Return the bytes of GPT-2's letters. Raises KeyError if a letter stands for no byte."""
    return bytes([_BYTES[letter] for letter in letters])


def cut_to_bytes(tokenizer: Tokenizer, parts: Sequence[str]) -> None:
    """Make a tokenizer split texts by patterns, in this order, and spell the pieces in bytes."""
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()


def add_tokens(tokenizer: Tokenizer, special: Sequence[str], space: str | None = None) -> None:
    """Make tokens of the vocabulary special. space: a token that replaces every space, or None. As
    with WangchanBERTa's `<_>`, spaces are replaced before the text is split, so the token is never
    part of another token, and decoding turns it back into a space. If a text contains the token's
    own spelling, this spelling is decoded as a space too."""
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    if space is None:
        return
    tokenizer.normalizer = normalizers.Replace(" ", space)
    tokenizer.decoder = decoders.Sequence([tokenizer.decoder, decoders.Replace(space, " ")])
    tokenizer.add_tokens([AddedToken(space, special=False, normalized=True)])


# A larger id means a damaged file: tables and the library's to_str() count up to the largest id.
MOST_IDS = 1 << 24  # published vocabularies have 300,000

_PREFIX = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a ``tokenizer.json``. Raises ``LlmcurateError`` naming the file. The spelling of a
    special token inside a document is encoded as ordinary characters (``encode_special_tokens``),
    so a document cannot forge an end of text."""
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
        raise UsageError(f"{path}: token ids up to {largest:,}; the limit is {MOST_IDS - 1:,}")
    if largest < 0:
        raise UsageError(f"{path}: the tokenizer has no tokens")
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _check_prefix(path: Path) -> None:
    """Raise LlmcurateError if merges lack the model's prefix for characters within words, because
    the library (0.23.3) would abort the process."""
    raw = read_file(path)
    if not _PREFIX.search(raw):
        return
    try:
        model = json.loads(raw)["model"]
        prefix = model["continuing_subword_prefix"]
        merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges", ())]
        bare = prefix and any(not merge[-1].startswith(prefix) for merge in merges)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return  # the library reports the error
    if bare:
        raise UsageError(
            f"{path}: not a tokenizer.json (a merge without the prefix {prefix[:20]!r})"
        )


def panicked(error: BaseException) -> bool:
    """Return True for a panic of the library's Rust code, which is not an Exception in Python."""
    return type(error).__name__ == "PanicException"


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of all special tokens by name, in order of ids."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in sorted(added.items()) if token.special}


# Names of the token that ends a document in published tokenizers, in order of preference.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")


# Names of the token that begins a document in published tokenizers, in order of preference.
BEGIN_OF_TEXT = ("<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "[CLS]")


# Spellings of tokens by role; the end of text is passed by the caller.
_ROLES = {
    "bos_token": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"),
    "pad_token": ("<pad>", "<|pad|>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
}


def _special_tokens_map(special: list[str], end_of_text: str) -> dict[str, str | list[str]]:
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
    """Write tokenizer_config.json, as PreTrainedTokenizerFast reads it, and
    special_tokens_map.json. end: the end-of-text token, or None. The clean-up of decoded text is
    disabled, so that decoding returns the exact text."""
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
