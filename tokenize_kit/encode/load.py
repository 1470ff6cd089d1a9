"""Load a ``tokenizer.json`` so that text stays text, and a strange file stops nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, normalizers

from tokenize_kit.errors import TokenizerError

# The printable letters that stand for bytes in byte-level vocabularies (GPT-2's encoder.py).

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
LETTERS = [""] * 256  # of each byte
for _byte in _PRINTABLE:
    LETTERS[_byte] = chr(_byte)
for _place, _byte in enumerate(_OTHERS):
    LETTERS[_byte] = chr(256 + _place)
_BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}
# The order in which `tokenizers` numbers them: by code point of the letter.
ORDER = sorted(range(256), key=LETTERS.__getitem__)


def spelled(data: bytes) -> str:
    """Bytes as letters."""
    return "".join([LETTERS[byte] for byte in data])


def unspelled(letters: str) -> bytes:
    """Letters as bytes; raises KeyError where one stands for none."""
    return bytes([_BYTES[letter] for letter in letters])


# The tokens that are looked for in a text before its pieces: special ones, and one for spaces.


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
    """Read ``tokenizer.json``; raises ``TokenizerError`` naming the file.

    The spelling of a special token inside a document is encoded as the ordinary characters it is
    (``encode_special_tokens``): a document cannot forge an end of text.
    """
    if not path.is_file():
        raise TokenizerError(f"{path}: no such tokenizer.json", exit_code=2)
    _check_prefix(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except BaseException as error:  # the library raises bare Exception, and panics
        if not (isinstance(error, Exception) or panicked(error)):
            raise
        said = " ".join(str(error).split())[:200]
        raise TokenizerError(f"{path}: not a tokenizer.json ({said})", exit_code=2) from error
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= MOST_IDS:
        raise TokenizerError(
            f"{path}: token ids up to {largest:,}; less than {MOST_IDS:,} is taken", exit_code=2
        )
    if largest < 0:
        raise TokenizerError(f"{path}: a tokenizer without tokens", exit_code=2)
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _check_prefix(path: Path) -> None:
    """Refuses merges that lack the prefix they are cut by: the library (0.23.3) does not panic
    there, it aborts the process."""
    raw = path.read_bytes()
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
        raise TokenizerError(
            f"{path}: not a tokenizer.json (a merge without the prefix {prefix[:20]!r})",
            exit_code=2,
        )


def panicked(error: BaseException) -> bool:
    """Whether the library's Rust code gave up; that is no Exception in Python."""
    return type(error).__name__ == "PanicException"


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Name to id of every special token, by id."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in sorted(added.items()) if token.special}
