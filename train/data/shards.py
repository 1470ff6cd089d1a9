"""Read a folder of token shards as memory maps. The format is all this package knows of its data.

manifest.json            version, dtype, vocab_size, special_ids, documents, tokens, bytes, files
tokens-00000.bin         little-endian uint16 or uint32
tokens-00000.idx         uint64 ends of documents, in tokens, counted within this file
documents-00000.parquet  id, source, lang, tokens, bytes
loss-00000.mask          uint8 a token, 1 where it counts; where the manifest has loss_mask
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from train.errors import TrainError

# Names published tokenizers give to the token that ends a document, in the order we look.
_END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")


@dataclass(frozen=True, kw_only=True)
class Shards:
    """An opened shard folder.

    ``tokens``: one memory map a shard. Per document, in order: ``shard`` (index into ``tokens``),
    ``start`` and ``length`` (tokens, within that shard) and ``bytes`` (UTF-8 bytes of the text).
    ``masks``: of each shard uint8, 1 where a token counts in training; None where all do.
    ``fingerprint`` is the SHA-256 of the manifest, which names the SHA-256 of every file.
    """

    folder: Path
    vocab_size: int
    special_ids: dict[str, int]
    fingerprint: str
    tokens: list[npt.NDArray[Any]]
    shard: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    masks: list[npt.NDArray[np.uint8]] | None = None

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
        """The document ids of these documents, read from the documents tables."""
        first = np.searchsorted(self.shard, np.arange(len(self.tokens)))
        found: dict[int, str] = {}
        for number in sorted({int(self.shard[index]) for index in indices}):
            table = pq.read_table(self.folder / f"documents-{number:05d}.parquet", columns=["id"])
            for index in indices:
                if int(self.shard[index]) == number:
                    found[index] = str(table["id"][index - int(first[number])].as_py())
        return [found[index] for index in indices]


def end_of_text(special_ids: dict[str, int]) -> int | None:
    """The id of the token that ends documents, or None."""
    return next((special_ids[name] for name in _END_OF_TEXT if name in special_ids), None)


def _field(manifest: dict[str, Any], name: str, kind: type, where: Path) -> Any:
    value = manifest.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TrainError(f"{where}: {name} is missing or not {kind.__name__}; encode again")
    return value


def read_shards(folder: Path, *, verify: bool = False) -> Shards:
    """Open the shards in ``folder``; ``verify`` also checks every file's SHA-256.

    Raises ``TrainError``, naming the file, where the manifest is missing or does not fit the files.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise TrainError(
            f"{folder}: no manifest.json, so no finished token shards; encode them first",
            exit_code=2,
        )
    raw = path.read_bytes()
    try:
        manifest = json.loads(raw)
    except ValueError as error:
        raise TrainError(f"{path}: not JSON ({error}); encode again") from error
    if not isinstance(manifest, dict) or manifest.get("version") != 1:
        raise TrainError(f"{path}: not a version 1 manifest of token shards; encode again")
    form = manifest.get("format", "llmcurate")
    if form != "llmcurate":
        raise TrainError(f"{folder}: shards in the format {form}; encode without --format")
    tokenizer = manifest.get("tokenizer", "tokenizer.json")
    if tokenizer != "tokenizer.json":
        raise TrainError(f"{folder}: encoded with {tokenizer}; training takes a tokenizer.json")
    if not (folder / "tokenizer.json").is_file():
        raise TrainError(f"{folder / 'tokenizer.json'}: missing; encode again")
    name = manifest.get("dtype")
    if name not in ("uint16", "uint32"):
        raise TrainError(f"{path}: dtype {name!r}, expected uint16 or uint32; encode again")
    dtype = np.dtype("<u2" if name == "uint16" else "<u4")
    vocab_size = _field(manifest, "vocab_size", int, path)
    special_ids = _field(manifest, "special_ids", dict, path)
    files = _field(manifest, "files", dict, path)

    count = sum(str(file).endswith(".bin") for file in files)
    maps: list[npt.NDArray[Any]] = []
    masks: list[npt.NDArray[np.uint8]] = []
    masked = "loss_mask" in manifest
    lengths: list[npt.NDArray[np.int64]] = []
    sizes: list[npt.NDArray[np.int64]] = []
    for number in range(count):
        names = [f"tokens-{number:05d}.bin", f"tokens-{number:05d}.idx"]
        names.append(f"documents-{number:05d}.parquet")
        names += [f"loss-{number:05d}.mask"] if masked else []
        for file in names:
            if file not in files or not (folder / file).is_file():
                raise TrainError(f"{folder / file}: missing; encode again")
            if verify and _sha256(folder / file) != files[file]:
                raise TrainError(f"{folder / file}: not what the manifest says; encode again")
        tokens, length = _open(folder / names[0], folder / names[1], dtype)
        table = pq.read_table(folder / names[2], columns=["bytes"])
        if table.num_rows != len(length):
            raise TrainError(
                f"{folder / names[2]}: {table.num_rows} rows for {len(length)} "
                "documents; encode again"
            )
        if masked:
            masks.append(_open_mask(folder / names[3], len(tokens)))
        maps.append(tokens)
        lengths.append(length)
        sizes.append(table["bytes"].to_numpy().astype(np.int64))
    length = np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.int64)
    total = int(length.sum())
    if len(length) != manifest.get("documents") or total != manifest.get("tokens"):
        raise TrainError(
            f"{path}: says {manifest.get('documents')} documents and {manifest.get('tokens')} "
            f"tokens, the files hold {len(length)} and {total}; encode again"
        )
    return Shards(
        folder=folder,
        vocab_size=vocab_size,
        special_ids={str(key): int(value) for key, value in special_ids.items()},
        fingerprint=hashlib.sha256(raw).hexdigest(),
        tokens=maps,
        shard=np.repeat(np.arange(count), [len(part) for part in lengths]),
        start=np.concatenate([np.cumsum(part) - part for part in lengths] or [length]),
        length=length,
        bytes=np.concatenate(sizes or [length]),
        masks=masks if masked else None,
    )


def _open(
    tokens: Path, index: Path, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    size = tokens.stat().st_size
    if size % dtype.itemsize or index.stat().st_size % 8:
        raise TrainError(f"{tokens}: cut short; encode again")
    ends = np.fromfile(index, dtype="<u8").astype(np.int64)
    length = np.diff(ends, prepend=0)
    if (length < 0).any() or (int(ends[-1]) if len(ends) else 0) != size // dtype.itemsize:
        raise TrainError(f"{index}: its document ends do not fit {tokens.name}; encode again")
    # An empty file cannot be mapped.
    data = np.memmap(tokens, dtype=dtype, mode="r") if size else np.zeros(0, dtype=dtype)
    return data, length


def _open_mask(path: Path, tokens: int) -> npt.NDArray[np.uint8]:
    if path.stat().st_size != tokens:
        raise TrainError(f"{path}: not a byte a token; encode again")
    return np.memmap(path, dtype=np.uint8, mode="r") if tokens else np.zeros(0, dtype=np.uint8)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
