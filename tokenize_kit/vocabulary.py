"""What encoding needs of a tokenizer, whatever kind of file it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.errors import TokenizerError
from tokenize_kit.load import END_OF_TEXT, load_tokenizer, special_ids

# Names published tokenizers give to the token that begins a document, in the order we look.
BEGIN_OF_TEXT = ("<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "[CLS]")

# (data: uint8[], offsets: int64[rows + 1]) to (ids: uint32[], how many of each row: int64[rows])
Encode = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Vocabulary:
    """size: the highest id and one; special: name to id; file: its name beside the shards;
    forbidden: bool[size]: ids that no text may give."""

    path: Path
    file: str
    size: int
    special: dict[str, int]
    forbidden: np.ndarray
    encode: Encode

    def end(self) -> int:
        """The id of the token that ends a document."""
        return self._first(END_OF_TEXT, "end-of-text", "encode without it (--no-eos)")

    def begin(self) -> int:
        """The id of the token that begins a document."""
        return self._first(BEGIN_OF_TEXT, "beginning-of-text", "encode without it (no --bos)")

    def _first(self, names: tuple[str, ...], what: str, without: str) -> int:
        for name in names:
            if name in self.special:
                return self.special[name]
        raise TokenizerError(
            f"the tokenizer has no {what} token (one of {', '.join(names)}): add one, or {without}",
            exit_code=2,
        )


def open_vocabulary(path: Path) -> Vocabulary:
    """Read a ``tokenizer.json``; raises ``TokenizerError`` naming the file."""
    tokenizer = load_tokenizer(path)
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    special = special_ids(tokenizer)
    # The unknown token is an honest answer to text; every other special token would be a forgery.
    forbidden = np.zeros(size, np.bool_)
    forbidden[[index for name, index in special.items() if "unk" not in name.lower()]] = True
    return Vocabulary(path, "tokenizer.json", size, special, forbidden, Encoder(tokenizer).encode)
