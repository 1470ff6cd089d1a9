"""Load a ``tokenizer.json`` so that text stays text."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from tokenize_kit.errors import TokenizerError


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json``; raises ``TokenizerError`` naming the file.

    The spelling of a special token inside a document is encoded as the ordinary characters it is
    (``encode_special_tokens``): a document cannot forge an end of text.
    """
    if not path.is_file():
        raise TokenizerError(f"{path}: no such tokenizer.json", exit_code=2)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"{path}: not a tokenizer.json ({error})", exit_code=2) from error
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Name to id of every special token, by id."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in sorted(added.items()) if token.special}
