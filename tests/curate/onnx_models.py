"""Tiny models in ONNX, written byte by byte, and their tokenizers of whole words."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

INT64, FLOAT = 7, 1


def number(value: int) -> bytes:
    """A protobuf varint."""
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(key: int, value: int | bytes | str) -> bytes:
    """A protobuf field: a number, or bytes with their length."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(data)) + data


def value_info(name: str, kind: int, shape: list[str | int]) -> bytes:
    dims = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def attribute(name: str, key: int, value: int, kind: int) -> bytes:
    """A node's attribute; key: of the field that holds the value, kind: the type's number."""
    return field(5, field(1, name) + field(key, value) + field(20, kind))


def onnx_model(table: np.ndarray, mean: bool = False) -> bytes:
    """A model whose output for each token is its row of the table; mean: the mean of these, one row
    a text (onnx.proto3: ModelProto)."""
    rows, size = table.shape
    data = struct.pack(f"<{rows * size}f", *table.ravel())
    tensor = field(1, rows) + field(1, size) + field(2, FLOAT) + field(8, "table") + field(9, data)
    node = field(1, "table") + field(1, "input_ids") + field(2, "tokens") + field(4, "Gather")
    graph = field(1, node)
    if mean:
        node = field(1, "tokens") + field(2, "mean") + field(4, "ReduceMean")
        node += attribute("axes", 8, 1, 7) + attribute("keepdims", 3, 0, 2)
        graph += field(1, node)
    graph += field(2, "g") + field(5, tensor)
    for name in ("input_ids", "attention_mask"):
        graph += field(11, value_info(name, INT64, ["batch", "length"]))
    if mean:
        graph += field(12, value_info("mean", FLOAT, ["batch", size]))
    else:
        graph += field(12, value_info("tokens", FLOAT, ["batch", "length", size]))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13))


def write_model(folder: Path, model: bytes, words: list[str], labels: int = 1) -> None:
    """The model, its tokenizer and its config.json in a folder; the first word is that of unknown
    ones; labels: the numbers per text."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder.mkdir()
    (folder / "model.onnx").write_bytes(model)
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token=words[0]))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"architectures": ["BertForSequenceClassification"], "pad_token_id": 0}
    config["id2label"] = {i: f"LABEL_{i}" for i in range(labels)}
    (folder / "config.json").write_text(json.dumps(config))
