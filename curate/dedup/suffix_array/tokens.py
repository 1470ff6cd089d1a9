"""Documents as tokens of a given tokenizer, with the bytes that each token stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.errors import RunFailed
from curate.text.buffers import text_buffers

_BATCH = 64  # documents encoded together


class Encoder:
    """A tokenizer.json, loaded; the spelling of a special token in a text is ordinary text."""

    def __init__(self, path: Path) -> None:
        """RunFailed where the file is no tokenizer."""
        from tokenize_kit.errors import TokenizerError
        from tokenize_kit.load import load_tokenizer

        try:
            self._tokenizer = load_tokenizer(path)
        except TokenizerError as error:
            failure = RunFailed(str(error))
            failure.exit_code = error.exit_code
            raise failure from None
        vocab = max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.dtype = np.dtype(np.uint16 if vocab <= 1 << 16 else np.uint32)

    def columns(self, texts: pa.LargeStringArray) -> dict[str, pa.Array]:
        """tokens, token_start, token_end: lists, a document's tokens and their bytes in it; a token
        of a part of a character has the bytes of the whole character."""
        data, offsets = text_buffers(texts)
        ends = np.zeros(len(texts) + 1, np.int64)
        parts: dict[str, list[np.ndarray]] = {"tokens": [], "token_start": [], "token_end": []}
        for first in range(0, len(texts), _BATCH):
            some = [t or "" for t in texts.slice(first, _BATCH).to_pylist()]
            encoded = self._tokenizer.encode_batch(some, add_special_tokens=False)
            for r, encoding in enumerate(encoded, first):
                row = data[offsets[r] : offsets[r + 1]]
                places = np.append(np.flatnonzero((row & 0xC0) != 0x80), len(row))
                spans = places[np.array(encoding.offsets, np.int64).reshape(-1, 2)]
                parts["tokens"].append(np.array(encoding.ids, self.dtype))
                parts["token_start"].append(spans[:, 0].astype(np.uint32))
                parts["token_end"].append(spans[:, 1].astype(np.uint32))
                ends[r + 1] = len(encoding.ids)
        lists = pa.array(np.cumsum(ends), pa.int64())
        place = np.dtype(np.uint32)
        kinds = {"tokens": self.dtype, "token_start": place, "token_end": place}
        return {
            name: pa.LargeListArray.from_arrays(
                lists, pa.array(np.concatenate([np.empty(0, kinds[name]), *values]))
            )
            for name, values in parts.items()
        }
