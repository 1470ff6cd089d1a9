"""OLMo's .npy: tokens as np.memmap writes them, no NumPy header, of the smallest type that holds
the vocabulary; beside it NAME.csv.gz with start, end, id of documents, or nothing
(allenai/OLMo, olmo/data/memmap_dataset.py; allenai/dolma, python/dolma/tokenizer/executor.py).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from train.data.part import Foreign, Part, map_tokens, scan
from train.errors import TrainError


def files(names: set[str]) -> list[str]:
    return sorted(name for name in names if name.endswith(".npy"))


def read(path: Path, foreign: Foreign) -> Part:
    """A file of tokens, with the bounds beside it or those of a scan."""
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise TrainError(f"{path}: a NumPy file with a header; OLMo's are tokens alone")
    tokens = map_tokens(path, foreign.raw)
    bounds = path.with_suffix(".csv.gz")
    if not bounds.is_file():
        start, length, note = scan(tokens, foreign, path.name)
        return Part(name=path.name, tokens=tokens, start=start, length=length, notes=(note,))
    table = _bounds(bounds, len(tokens))
    start, end = table["f0"].to_numpy(), table["f1"].to_numpy()
    if len(start) and (
        (start < 0).any()
        or (end < start).any()
        or (end > len(tokens)).any()
        or (start[1:] < end[:-1]).any()
    ):
        raise TrainError(f"{bounds}: its documents overlap or lie behind {len(tokens)} tokens")
    remainder = len(tokens) - int((end - start).sum())
    notes = (
        (f"{path.name}: {remainder} tokens are in no document of {bounds.name}",)
        if remainder
        else ()
    )
    ids = table["f2"].combine_chunks() if "f2" in table.column_names else None
    return Part(
        name=path.name, tokens=tokens, start=start, length=end - start, ids=ids, notes=notes
    )


def _bounds(path: Path, tokens: int) -> pa.Table:
    """start, end (tokens) and, if there, id; no more rows than tokens are taken."""
    options = csv.ConvertOptions(
        column_types={"f0": pa.int64(), "f1": pa.int64(), "f2": pa.string()},
        null_values=[],
        strings_can_be_null=False,
    )
    names = csv.ReadOptions(autogenerate_column_names=True, use_threads=False)
    batches: list[pa.RecordBatch] = []
    rows = 0
    try:
        with csv.open_csv(path, names, convert_options=options) as stream:
            if not {"f0", "f1"} <= set(stream.schema.names):
                raise TrainError(f"{path}: expected lines of start,end,id")
            kept = [name for name in ("f0", "f1", "f2") if name in stream.schema.names]
            for batch in stream:
                rows += batch.num_rows
                if rows > tokens + 1:
                    raise TrainError(f"{path}: more documents than tokens")
                batches.append(batch.select(kept))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TrainError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    return pa.Table.from_batches(batches)
