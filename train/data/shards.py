"""Token shards of any layout, as memory maps behind one view.

Our own folder, which is all that the rest of this package knows of its data:
manifest.json            version, dtype, vocab_size, special_ids, documents, tokens, bytes, files
tokens-00000.bin         little-endian uint16 or uint32
tokens-00000.idx         uint64 ends of documents, in tokens, counted within this file
documents-00000.parquet  id, source, lang, tokens, bytes
loss-00000.mask          uint8 a token, 1 where it counts; where the manifest has loss_mask

Other trainers' layouts (readers/) are known by their content; a manifest beside them, as ours
writes it, says what they cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from train.data.part import Foreign, Ints, Part
from train.errors import TrainError

# Names published tokenizers give to the token that ends a document, in the order we look.
_END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Opened shards.

    ``tokens``: one memory map a file. Per document, in order: ``shard`` (index into ``tokens``),
    ``start`` and ``length`` (tokens, within that file) and ``bytes`` (UTF-8 bytes of the text;
    None where the layout does not know them). ``masks``: of each file uint8, 1 where a token counts
    in training; None where all do. ``end`` is the id that ends documents. ``tokenizer``: its file,
    if there is one. ``fingerprint`` stands for the content: the SHA-256 of the manifest, which
    names the SHA-256 of every file; without one, of names, sizes and samples of the files
    (opening.py). ``notes``: what a user should know of how the files were read.
    """

    folder: Path
    vocab_size: int
    special_ids: dict[str, int]
    fingerprint: str
    tokens: list[npt.NDArray[Any]]
    shard: Ints
    start: Ints
    length: Ints
    bytes: Ints | None
    masks: list[npt.NDArray[np.uint8]] | None = None
    end: int | None = None
    form: str = "llmcurate"
    tokenizer: Path | None = None
    tokenizer_sha256: str | None = None
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def documents(self) -> int:
        return len(self.length)

    def document(self, index: int) -> npt.NDArray[Any]:
        """The tokens of one document."""
        start = int(self.start[index])
        return self.tokens[int(self.shard[index])][start : start + int(self.length[index])]

    def counted(self, index: int) -> npt.NDArray[np.bool_]:
        """Which tokens of one document count in training."""
        if self.masks is None:
            return np.ones(int(self.length[index]), np.bool_)
        start = int(self.start[index])
        mask = self.masks[int(self.shard[index])][start : start + int(self.length[index])]
        return mask.astype(np.bool_)

    def ids(self, indices: list[int]) -> list[str]:
        """The ids of these documents; "file:number" where the layout has none."""
        return self._column("id", indices)

    def sources(self, indices: list[int]) -> list[str]:
        """Where these documents come from: the column ``source``; "" where there is none."""
        return self._column("source", indices)

    def _column(self, name: str, indices: list[int]) -> list[str]:
        wanted = np.asarray(indices, dtype=np.int64)
        shard = self.shard[wanted]
        first = np.searchsorted(self.shard, np.arange(len(self.parts)))
        found = [""] * len(indices)
        for number in np.unique(shard):
            part = self.parts[number]
            places = np.flatnonzero(shard == number)
            rows = wanted[places] - first[number]
            if part.table is not None:
                values = read_column(part.table, name).take(pa.array(rows)).to_pylist()
            elif name == "id" and part.ids is not None:
                values = part.ids.take(pa.array(rows)).to_pylist()
            else:
                values = [f"{part.name}:{row}" if name == "id" else "" for row in rows]
            for place, value in zip(places, values, strict=True):
                found[place] = "" if value is None else str(value)
        return found


def read_column(table: Path, name: str) -> pa.ChunkedArray:
    """A column of a documents table; raises ``TrainError`` naming the file."""
    try:
        return pq.read_table(table, columns=[name])[name]
    except (pa.ArrowException, OSError, KeyError) as error:
        what = str(error).splitlines()[0]
        raise TrainError(f"{table}: cannot be read ({what}); encode again") from error


def end_of_text(special_ids: dict[str, int]) -> int | None:
    """The id of the token that ends documents, or None."""
    return next((special_ids[name] for name in _END_OF_TEXT if name in special_ids), None)


def read_shards(folder: Path, *, verify: bool = False, foreign: Foreign | None = None) -> Shards:
    """Open the shards in ``folder``, or one file of them; ``verify`` also checks the SHA-256 of
    every file that a manifest names.

    ``foreign`` says what files without a manifest do not. Raises ``TrainError``, naming the file,
    where nothing is known of the layout or the files do not fit each other.
    """
    from train.data.opening import open_shards

    return open_shards(folder, verify=verify, foreign=foreign or Foreign())
