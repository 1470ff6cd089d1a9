"""A model's tables of tokens for another tokenizer: rows of tokens that both have, and new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokenize_kit.change.addition import check_init
from tokenize_kit.change.embeddings import Blend, new_rows
from tokenize_kit.change.focus import focus
from tokenize_kit.change.original import Original, open_tokenizer
from tokenize_kit.change.tokens import Key, ids_of, keys_of
from tokenize_kit.change.verify import Texts, pack_texts


class Transplant:
    """The rows of tables for the tokens of another tokenizer.

    A token that both have keeps its row: ordinary ones by their text (bytes of byte fallback are
    those of a byte-level BPE), special ones by their spelling, the end of a text by its role. The
    others begin by `init`: the mean of the rows of the old tokens that their text was, focus
    (focus.py, on `texts`; without a vector, the mean), or random.
    """

    def __init__(
        self, old: Path, new: Path, init: str = "mean", seed: int = 0, texts: Texts | None = None
    ) -> None:
        check_init(init, texts)
        self.init, self.seed = init, seed
        before, after = open_tokenizer(old), open_tokenizer(new)
        self.old_size, self.size = before.size, after.size
        old_ids = ids_of(before)
        shared: list[tuple[int, int]] = []
        others: dict[int, Key] = {}
        for number, keys in sorted(keys_of(after).items()):
            here = next((key for key in keys if key in old_ids), None)
            if here is None:
                others[number] = keys[-1]
            else:
                shared.append((number, old_ids[here]))
        self.known, self.kept = np.array(shared, np.int64).reshape(-1, 2).T
        self.new = np.array(list(others), np.int64)
        parts = _parts(before, old_ids, list(others.values()))
        self.blends: list[Blend] = [(ids, None) for ids in parts]
        if init == "focus" and texts is not None:
            blends = focus(after.encode, self.size, texts, self.new, self.known)
            place = {n: k for k, n in enumerate(self.new.tolist())}
            for number, (positions, weights) in blends.items():
                self.blends[place[number]] = self.kept[positions], weights

    def rows(self, table: np.ndarray, turn: int) -> np.ndarray:
        """float32[size, width]: a table for the new tokens.

        table: float32[rows, width], of the old ones; turn: its number, so that random rows of two
        tables differ. Ids that no token of the new tokenizer has get the mean of all rows.
        """
        stored = table[: self.old_size]
        out = np.tile(stored.mean(0, dtype=np.float64).astype(np.float32), (self.size, 1))
        out[self.known] = stored[self.kept]
        if len(self.new):
            out[self.new] = new_rows(stored, self.blends, self.init, self.seed + turn)
        return out

    def describe(self) -> dict[str, Any]:
        """Counts of tokens."""
        return {
            "old_tokens": self.old_size,
            "new_tokens": self.size,
            "common_tokens": len(self.known),
            "init": self.init,
            "focused": sum(weights is not None for _, weights in self.blends),
        }


def _parts(before: Original, ids: dict[Key, int], keys: list[Key]) -> list[np.ndarray]:
    """The old ids that the text of each key is: as the old tokenizer encodes it, of a part of a
    character its bytes, of what has none all ordinary tokens."""
    ordinary = np.array([n for key, n in ids.items() if isinstance(key, bytes)], np.int64)
    whole = [key.decode("utf-8", "replace") if isinstance(key, bytes) else "" for key in keys]
    texts = ["" if "\ufffd" in text else text for text in whole]
    numbers, sizes = before.encode(*pack_texts(texts))
    encoded = np.split(numbers.astype(np.int64), np.cumsum(sizes))[:-1]
    parts = []
    for key, part in zip(keys, encoded, strict=True):
        if not len(part) and isinstance(key, bytes):
            part = np.array([ids[bytes([b])] for b in key if bytes([b]) in ids], np.int64)
        parts.append(part if len(part) else ordinary)
    return parts
