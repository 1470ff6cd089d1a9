"""Encode documents into token shards, the folder a trainer reads.

tokens-00000.bin         little-endian uint16, or uint32 where the vocabulary needs it
tokens-00000.idx         uint64 ends of documents, in tokens, counted within this file
documents-00000.parquet  id, source, lang, tokens, bytes; one row a document, same order
tokenizer.json           the tokenizer that made them
manifest.json            counts and checksums; written last, so its presence means all is there
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.errors import TokenizerError
from tokenize_kit.files import sha256, sync, to_json, write_atomic
from tokenize_kit.load import end_of_text, load_tokenizer, special_ids

VERSION = 1
_ENCODE_ROWS = 256  # documents encoded at once; bounds memory, changes no result
_DOCUMENTS = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("lang", pa.string()),
        ("tokens", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


class _Shard:
    """One open shard: tokens go to disk as they come, the table of documents stays in memory."""

    def __init__(self, folder: Path, number: int, dtype: np.dtype[Any]) -> None:
        self.names = [f"tokens-{number:05d}.bin", f"tokens-{number:05d}.idx"]
        self.names.append(f"documents-{number:05d}.parquet")
        self.folder, self.dtype, self.tokens = folder, dtype, 0
        self.ends = array("Q")
        self.rows: dict[str, list[Any]] = {name: [] for name in _DOCUMENTS.names}
        self.file = (folder / self.names[0]).open("wb")

    def add(self, ids: np.ndarray, row: dict[str, Any], size: int) -> None:
        self.file.write(ids.astype(self.dtype).tobytes())
        self.tokens += len(ids)
        self.ends.append(self.tokens)
        for name in ("id", "source", "lang"):
            self.rows[name].append(row[name])
        self.rows["tokens"].append(len(ids))
        self.rows["bytes"].append(size)

    def close(self) -> None:
        self.file.close()
        (self.folder / self.names[1]).write_bytes(np.asarray(self.ends, dtype="<u8").tobytes())
        table = pa.table(self.rows, schema=_DOCUMENTS)
        pq.write_table(table, self.folder / self.names[2], compression="zstd")


def encode_shards(
    batches: Iterable[pa.RecordBatch],
    tokenizer_json: Path,
    out: Path,
    *,
    shard_tokens: int = 100_000_000,
    append_eos: bool = True,
) -> dict[str, Any]:
    """Encode batches with columns ``id, source, lang, text`` (``source``, ``lang`` may be missing).

    A document is never split over shards; a shard is closed before the document that would take it
    over ``shard_tokens``. Each document ends with the tokenizer's end-of-text token, unless
    ``append_eos`` is false. The bytes written depend on the documents and the tokenizer alone, not
    on how they come in batches.

    Returns the manifest. ``bytes`` counts the UTF-8 bytes of the texts, ``tokens`` includes the
    end-of-text tokens. Raises ``TokenizerError`` for an unusable tokenizer, a missing column, a
    null text, and where no document comes; ``out`` is then as it was.
    """
    if shard_tokens < 1:
        raise TokenizerError(f"shard_tokens {shard_tokens}: give 1 or more", exit_code=2)
    tokenizer = load_tokenizer(tokenizer_json)
    end = np.array([end_of_text(tokenizer)] if append_eos else [], np.uint32)
    out.mkdir(parents=True, exist_ok=True)
    aside = out / ".shards.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        manifest = _encode(batches, tokenizer, end, aside, shard_tokens)
        shutil.copyfile(tokenizer_json, aside / "tokenizer.json")
        names = [*manifest["files"], "tokenizer.json"]
        manifest["files"] = {name: sha256(aside / name) for name in names}
        manifest["tokenizer_sha256"] = manifest["files"]["tokenizer.json"]
        _commit(aside, out, manifest)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return manifest


def _encode(
    batches: Iterable[pa.RecordBatch],
    tokenizer: Tokenizer,
    end: np.ndarray,
    folder: Path,
    shard_tokens: int,
) -> dict[str, Any]:
    vocab = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    dtype = np.dtype("<u2" if vocab <= 1 << 16 else "<u4")
    special = special_ids(tokenizer)
    # The unknown token is an honest answer to text; every other special token would be a forgery.
    forbidden = np.zeros(vocab, np.bool_)
    forbidden[[index for name, index in special.items() if "unk" not in name.lower()]] = True
    encoder = Encoder(tokenizer)
    shard = _Shard(folder, 0, dtype)
    files: list[str] = [*shard.names]
    shards = 1
    documents = tokens = size = 0
    try:
        for rows in _rows(batches):
            texts = [row["text"].encode("utf-8") for row in rows]
            offsets = np.cumsum([0, *map(len, texts)])
            encoded, counts = encoder.encode(np.frombuffer(b"".join(texts), np.uint8), offsets)
            forged = forbidden[encoded].any()
            for row, text, ids in zip(
                rows, texts, np.split(encoded, np.cumsum(counts)[:-1]), strict=True
            ):
                if forged and forbidden[ids].any():
                    raise TokenizerError(
                        f"document {row['id']}: this tokenizer turns ordinary text into a special "
                        "token; use one trained here, or one with a byte-level model",
                    )
                ids = np.concatenate([ids, end])
                if shard.tokens and shard.tokens + len(ids) > shard_tokens:
                    shard.close()
                    shard = _Shard(folder, shards, dtype)
                    files += shard.names
                    shards += 1
                length = len(text)
                shard.add(ids, row, length)
                documents, tokens, size = documents + 1, tokens + len(ids), size + length
    finally:
        shard.close()
    if not documents:
        raise TokenizerError("no documents to encode: check the input and the filters before it")
    return {
        "version": VERSION,
        "dtype": "uint16" if dtype.itemsize == 2 else "uint32",
        "vocab_size": vocab,
        "tokenizer_sha256": "",
        "special_ids": special,
        "documents": documents,
        "tokens": tokens,
        "bytes": size,
        "files": dict.fromkeys(files, ""),
    }


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterable[list[dict[str, Any]]]:
    for batch in batches:
        for name in ("id", "text"):
            if name not in batch.schema.names:
                raise TokenizerError(f"the documents have no column {name!r}", exit_code=2)
        present = [name for name in ("id", "source", "lang", "text") if name in batch.schema.names]
        for start in range(0, batch.num_rows, _ENCODE_ROWS):
            rows = batch.slice(start, _ENCODE_ROWS).select(present).to_pylist()
            for row in rows:
                if row["text"] is None:
                    raise TokenizerError(f"document {row['id']}: its text is null; drop it first")
                row.setdefault("source", None)
                row.setdefault("lang", None)
            yield rows


def _commit(aside: Path, out: Path, manifest: dict[str, Any]) -> None:
    """Move the files in; an old manifest goes first and the new one comes last."""
    for name in manifest["files"]:
        sync(aside / name)
    (out / "manifest.json").unlink(missing_ok=True)
    for pattern in ("tokens-*.bin", "tokens-*.idx", "documents-*.parquet"):
        for old in out.glob(pattern):
            old.unlink()
    for name in manifest["files"]:
        (aside / name).replace(out / name)
    sync(out)
    write_atomic(out / "manifest.json", to_json(manifest))
