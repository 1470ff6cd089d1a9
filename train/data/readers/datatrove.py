"""DataTrove's NAME.ds: raw uint16 or uint32 tokens; NAME.ds.index: uint64 ends of documents, in
tokens; NAME.ds.loss, if there: a byte a token, 1 where it counts (huggingface/datatrove,
src/datatrove/pipeline/tokens/tokenizer.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from train.data.part import Part, from_ends, map_tokens
from train.data.readers.own import map_mask
from train.errors import TrainError


def files(names: set[str]) -> list[str]:
    return sorted(name for name in names if name.endswith(".ds"))


def read(path: Path) -> Part:
    """A .ds and the files beside it."""
    index = path.with_name(path.name + ".index")
    if not index.is_file() or index.stat().st_size % 8:
        raise TrainError(f"{index}: missing or cut short")
    ends = np.fromfile(index, dtype="<u8")
    size, count = path.stat().st_size, int(ends[-1]) if len(ends) else 0
    # The file names no type: it is what makes the last end the end of the file.
    width = next((width for width in (2, 4) if width * count == size), None)
    if width is None:
        raise TrainError(f"{path}: {size} bytes are not the {count} tokens of {index.name}")
    tokens = map_tokens(path, np.dtype(f"<u{width}"))
    start, length = from_ends(ends, count, index)
    loss = path.with_name(path.name + ".loss")
    mask = map_mask(loss, count) if loss.is_file() else None
    return Part(name=path.name, tokens=tokens, start=start, length=length, mask=mask)
