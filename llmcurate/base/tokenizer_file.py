"""Tokenizer files, and tokenizers of the library `tokenizers`: reading, sizes, special tokens.

The library is imported only when a function needs it, because most commands open no tokenizer.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from pathlib import Path
from typing import TYPE_CHECKING

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import Roles, read_roles

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.processors import PostProcessor

MOST_BYTES = 256 << 20  # of a tokenizer's file; published ones have up to 50 MB
# A larger id means a damaged file. Tables and the library's to_str() would take memory for each id.
MOST_IDS = 1 << 24  # published vocabularies have 300,000

_PREFIX = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')


def read_file(path: Path) -> bytes:
    """Return the bytes of a file without a byte order mark. Raises ``LlmcurateError`` if it is
    unreadable or too large."""
    try:
        size = path.stat().st_size
        if size <= MOST_BYTES:
            return path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    raise UsageError(f"{path}: too large for a tokenizer ({size:,} bytes)")


def load_tokenizer(path: Path, *, dropout: bool = False) -> Tokenizer:
    """Load a ``tokenizer.json``. Raises ``LlmcurateError``, which names a file that cannot be
    loaded. If a document spells a special token, the spelling is encoded as ordinary characters
    (``encode_special_tokens``), so a document cannot forge an end of text. dropout: True to keep
    the file's BPE dropout. By default it is switched off, so a text always gets the same ids."""
    from tokenizers import Tokenizer

    if not path.is_file():
        raise UsageError(f"{path}: no such tokenizer.json")
    raw = read_file(path)
    _check_prefix(path, raw)
    try:
        tokenizer = Tokenizer.from_buffer(raw)
    except BaseException as error:  # the library raises bare Exception, and panics
        if not (isinstance(error, Exception) or panicked(error)):
            raise
        reason = f"not a tokenizer.json ({' '.join(str(error).split())[:200]})"
        if b'"token_bytes"' in raw:
            reason = "a tekken.json; llmcurate tokenizer convert makes a tokenizer.json from it"
        raise UsageError(f"{path}: {reason}") from error
    largest = size_of(tokenizer) - 1
    if largest >= MOST_IDS:
        raise UsageError(f"{path}: token ids up to {largest:,}; the limit is {MOST_IDS - 1:,}")
    if largest < 0:
        raise UsageError(f"{path}: the tokenizer has no tokens")
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if not dropout:
        switch_off_dropout(tokenizer)
    return tokenizer


def switch_off_dropout(tokenizer: Tokenizer) -> float:
    """Switch off a tokenizer's BPE dropout and return its rate, 0 if it has none."""
    rate = getattr(tokenizer.model, "dropout", None) or 0.0
    if rate:
        tokenizer.model.dropout = None
    return round(float(rate), 6)  # the library keeps float32


def _check_prefix(path: Path, raw: bytes) -> None:
    """Raise UsageError if a merge lacks the prefix for characters within words
    (``continuing_subword_prefix``): ``tokenizers`` 0.23.3 would abort the process."""
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


def size_of(tokenizer: Tokenizer) -> int:
    """Return the size of a tokenizer: its highest id plus one."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of all special tokens by name, in order of ids."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in sorted(added.items()) if token.special}


def roles_of(path: Path, tokenizer: Tokenizer, own: Roles | None = None) -> Roles:
    """Return the roles of special tokens in ``tokenizer``: which token begins a text, ends it, and
    so on. path: the file from which it was loaded. own: the roles that the file states, for formats
    other than tokenizer.json."""
    ids = tokenizer.get_vocab(with_added_tokens=True)
    return read_roles(path, ids, special_ids(tokenizer), own)


def post_processor(tokenizer: Tokenizer, roles: Roles) -> PostProcessor:
    """Return a post-processor that puts the tokens `before` and `behind` of the roles around a
    text, and around each text of a pair."""
    from tokenizers.processors import TemplateProcessing

    names = {number: tokenizer.id_to_token(number) for number in (*roles.before, *roles.behind)}
    before, behind = ([names[number] for number in side] for side in (roles.before, roles.behind))
    first = [f"{part}:0" for part in (*before, "$A", *behind)]
    second = [f"{part}:1" for part in (*before, "$B", *behind)]
    return TemplateProcessing(first, first + second, [(name, n) for n, name in names.items()])
