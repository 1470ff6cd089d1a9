"""Token files made of records: LitData's chunks and MosaicML Streaming's MDS shards.

Both begin with uint32 numbers: the number of records, the byte offset of each, and the end offset.

LitData, as litgpt uses it: each record holds tokens, whose type is in index.json
(Lightning-AI/litData, src/litdata/streaming/writer.py: _create_chunk; item_loader.py: TokensLoader;
constants.py).

MDS, as llm-foundry uses it: a JSON object with the columns follows the offsets. A record has the
uint32 sizes of the columns without a fixed size, then the columns (mosaicml/streaming,
streaming/base/format/mds/writer.py; encodings.py: NDArray).

Tokens that are compressed or lie between other data are copied to a temporary file without a name,
which the system removes when the process ends."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from llmcurate.base.errors import RunFailed
from train.data.readers import Foreign, Ints, Part, ending, from_records, layout, map_tokens

Bytes = npt.NDArray[np.uint8]
_BLOCK = 1 << 20
_MOST = 1 << 32  # bytes of a file, because its offsets are uint32

# LitData's numbers of types.
_LITDATA = {
    "no_header_tensor": {11: "<u1", 12: "<i1", 14: "<i2", 16: "<i4", 18: "<i8", 20: "<u2"},
    "no_header_numpy": dict(enumerate(("<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8"))),
}
_MDS = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in ("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8")
}


def _chunks(folder: Path, names: set[str]) -> list[str]:
    found = [n for n in ending(".bin")(folder, names) if Path(n).name.startswith("chunk-")]
    found.sort(key=lambda n: (Path(n).parent, *map(int, re.findall(r"\d+", Path(n).name))))
    return _complete(folder, names, found, "chunks")


@layout("litdata", _chunks)
def read_litdata(path: Path, foreign: Foreign) -> Part:
    """Open a chunk (a file) that LitData wrote for its TokensLoader."""
    index = path.with_name("index.json")
    kind, compression = _litdata_config(index, index.stat().st_mtime_ns if index.is_file() else 0)
    raw = _content(path, bool(compression))
    bounds = _bounds(raw, path)
    sizes = np.diff(bounds)
    if len(odd := np.flatnonzero(sizes % kind.itemsize)):
        raise RunFailed(f"{path}: record {odd[0]} does not hold whole {kind.name} tokens")
    return from_records(path.name, raw[bounds[0] :].view(kind), sizes // kind.itemsize, foreign)


@lru_cache(maxsize=8)
def _litdata_config(index: Path, changed: int) -> tuple[np.dtype[Any], str]:
    """Return (type of tokens, compression) of an index.json. ``changed``, the time of the file's
    last change, keeps the cache from returning old content."""
    try:
        config = json.loads(index.read_bytes())["config"]
        name, _, number = "".join(config["data_format"]).partition(":")
        kind = np.dtype(_LITDATA[name][int(number)])
        compression = config["compression"] or ""
        known = compression.partition(":")[0] in ("", "zstd")
        if known and config["item_loader"] == "TokensLoader" and not config["encryption"]:
            return kind, compression
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RunFailed(f"{index}: config of the tokens cannot be read ({error})") from error
    raise RunFailed(
        f"{index}: config: only files that litdata.optimize wrote with item_loader=TokensLoader(), "
        "without encryption, and without compression or with zstd, are read"
    )


def _shards(folder: Path, names: set[str]) -> list[str]:
    packed = ending(".mds.zstd")(folder, names)
    found = [*ending(".mds")(folder, names), *(n for n in packed if n[:-5] not in names)]
    return _complete(folder, names, sorted(found), "shards")


@layout("mds", _shards)
def read_mds(path: Path, foreign: Foreign) -> Part:
    """Return the documents of an MDS shard. Their tokens are copied to a temporary file."""
    raw = _content(path, path.suffix == ".zstd")
    bounds = _bounds(raw, path)
    columns = _mds_columns(raw[4 * len(bounds) + 4 : bounds[0]], path)
    found = [k for k, (name, _, _) in enumerate(columns) if name in ("tokens", "input_ids")]
    form, _, rest = columns[found[0]][1].partition(":") if found else ("", "", "")
    kind = _MDS.get(rest.partition(":")[0])
    if form == "bytes":  # int64 by default (llmfoundry/data/text_data.py: token_encoding_type)
        kind = foreign.raw("<i8")
    if kind is None or form not in ("bytes", "ndarray"):
        shown = ", ".join(f"{name} ({encoding})" for name, encoding, _ in columns)
        raise RunFailed(
            f"{path}: its columns are {shown}: none is tokens or input_ids, of bytes or"
            " ndarray:int32 or another type of integers"
        )
    fixed = np.array([size for _, _, size in columns])
    first, last = _mds_values(raw, bounds, fixed, found[0], path)
    if form == "ndarray" and ":" not in rest:  # a byte with number and width of sizes, then these
        head = raw[np.minimum(first, len(raw) - 1)].astype(np.int64)
        first = first + 1 + (head >> 2 << (head & 3))
    length, remainder = np.divmod(last - first, kind.itemsize)
    if len(odd := np.flatnonzero((length < 0) | (remainder > 0))):
        raise RunFailed(f"{path}: record {odd[0]} does not hold whole {kind.name} tokens")
    blocks = (raw[begin:end].tobytes() for begin, end in zip(first, last, strict=True))
    return from_records(path.name, _copied(path, blocks, kind), length, foreign)


def _mds_columns(head: Bytes, path: Path) -> list[tuple[str, str, int]]:
    """Return (name, encoding, size in bytes) of each column. The size is 0 if it varies."""
    try:
        facts = json.loads(head[:_BLOCK].tobytes())
        lists = [facts[f"column_{name}"] for name in ("names", "encodings", "sizes")]
        return [
            (str(name), str(encoding), int(size or 0) % _MOST)
            for name, encoding, size in zip(*lists, strict=True)
        ]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise RunFailed(f"{path}: its columns cannot be read ({error})") from error


def _mds_values(
    raw: Bytes, bounds: Ints, fixed: Ints, column: int, path: Path
) -> tuple[Ints, Ints]:
    """Return (begin, end): the byte offsets of a column in each record. ``fixed`` has the size of
    each column, or 0 if its size varies."""
    variable = fixed == 0
    heads = bounds[:-1] + 4 * int(variable.sum())
    if len(wrong := np.flatnonzero(heads + fixed.sum() > bounds[1:])):
        raise RunFailed(f"{path}: record {wrong[0]} is too short for its columns")
    sizes = np.tile(fixed, (len(heads), 1))
    at = bounds[:-1, None] + np.arange(4 * int(variable.sum()))
    sizes[:, variable] = raw[at].view("<u4")
    ends = heads[:, None] + np.cumsum(sizes, axis=1)
    if len(wrong := np.flatnonzero(ends[:, -1] != bounds[1:])):
        raise RunFailed(f"{path}: record {wrong[0]}: its columns do not fill it")
    return ends[:, column] - sizes[:, column], ends[:, column]


def _complete(folder: Path, names: set[str], found: list[str], key: str) -> list[str]:
    """Return the files ``found``. Raises ``LlmcurateError`` if an index.json lists more files."""
    parents = [Path(name).parent for name in found]
    for parent in dict.fromkeys(parents):
        if str(index := parent / "index.json") not in names:
            continue
        try:
            listed = len(json.loads((folder / index).read_bytes())[key])
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise RunFailed(f"{folder / index}: list of {key} cannot be read ({error})") from error
        if listed > parents.count(parent):
            raise RunFailed(
                f"{folder / index}: lists {listed} {key}, {parents.count(parent)} of them are"
                " there; copy the others"
            )
    return found


def _content(path: Path, packed: bool) -> Bytes:
    """Map the bytes of a file into memory. ``packed``: True if it is compressed by zstd."""
    if not packed:
        return map_tokens(path, np.dtype("u1"))
    with pa.input_stream(str(path), compression="zstd") as stream:
        blocks = iter(lambda: stream.read(_BLOCK), b"")
        return _copied(path, itertools.islice(blocks, _MOST // _BLOCK), np.dtype("u1"))


def _copied(path: Path, blocks: Iterable[bytes], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array, mapped into memory from a temporary file with the content of ``blocks``.
    Error messages name ``path``, the file that the blocks come from."""
    try:
        with tempfile.TemporaryFile() as file:
            file.writelines(blocks)
            file.flush()
            return np.memmap(file, kind, "r") if file.tell() else np.zeros(0, kind)
    except (pa.ArrowException, OSError) as error:
        where = tempfile.gettempdir()
        raise RunFailed(f"{path}: cannot be unpacked or copied to {where} ({error})") from error


def _bounds(raw: Bytes, path: Path) -> Ints:
    """Return the byte offset of each of a file's records, and then of its end."""
    head = raw[: len(raw) // 4 * 4].view("<u4")
    records = int(head[0]) if len(head) else 0
    bounds = head[1 : records + 2].astype(np.int64)
    if len(bounds) < records + 1 or bounds[0] < 4 * records + 8 or bounds[-1] != len(raw):
        raise RunFailed(f"{path}: cut short, or does not begin with the offsets of its records")
    if len(back := np.flatnonzero(np.diff(bounds) < 0)):
        raise RunFailed(f"{path}: record {back[0]} ends before it begins")
    return bounds
