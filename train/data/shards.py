"""Token shards of any layout, memory-mapped and presented alike.

A folder that llmcurate wrote holds:
manifest.json            version, dtype, vocab_size, special_ids, documents, tokens, bytes, files
tokens-00000.bin         little-endian uint16 or uint32
tokens-00000.idx         uint64 ends of documents, in tokens, counted within this file
documents-00000.parquet  id, source, lang, tokens, bytes
loss-00000.mask          uint8 per token, 1 where it is scored; only if the manifest has loss_mask

Layouts of other trainers (readers.py) are recognised by their content. If llmcurate wrote files in
such a layout, a manifest beside these files records what the layout does not.

OUT/compared.jsonl has a line for each file that matched its manifest ({"path", "bytes", "mtime_ns",
"sha256"}); an unchanged file is not read again. {"begun": step}: training started at this step
before all files were compared. {"complete": true}: all files matched.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.sealed_json import unseal
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.index import modules_of
from llmcurate.base.roles import BESIDE, read_roles
from llmcurate.base.tokenizer_file import load_tokenizer, roles_of, size_of, special_ids
from train.data.readers import (
    LAYOUTS,
    Foreign,
    Ints,
    Part,
    is_validation,
    own_files,
    read_own,
)

modules_of("train.lab.data")


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Opened shards.

    ``tokens`` has one memory map per file. For each document, in order: ``shard`` (index into
    ``tokens``), ``start`` and ``length`` (tokens within that file), ``bytes`` (UTF-8 bytes of the
    text; None if the layout does not record them). ``masks`` has for each file uint8 per token, 1
    where the token counts in training; None if all count. ``end`` is the id that ends documents.
    ``begin`` is the id that begins documents, None if they begin with their text. ``tokenizer`` is
    the path of the tokenizer, if the shards have one. ``held_out`` has the numbers of the documents
    that the files name as held-out text, and is empty if they name none. ``answers`` is True if
    each document is a sample whose answer the masks mark. Then masks also apply to held-out
    documents; the id before a document is the previous id in its file, not the property ``before``.

    ``fingerprint`` identifies the content: it is the SHA-256 of the manifest, which has the SHA-256
    of every file; without a manifest, the SHA-256 of names, sizes and samples of the files.
    ``sums`` are the files in the manifest, each with its SHA-256. ``notes`` tell the user how the
    files were read."""

    folder: Path
    vocab_size: int
    special_ids: dict[str, int]
    fingerprint: str
    tokens: list[npt.NDArray[Any]]
    shard: Ints
    start: Ints
    length: Ints
    bytes: Ints | None
    held_out: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    masks: list[npt.NDArray[np.uint8]] | None = None
    end: int | None = None
    begin: int | None = None
    form: str = "llmcurate"
    sums: tuple[tuple[Path, str], ...] = ()
    answers: bool = False
    tokenizer: Path | None = None
    tokenizer_sha256: str | None = None
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def documents(self) -> int:
        return len(self.length)

    @property
    def before(self) -> int | None:
        """The id before the first token of a text: ``begin``, or if it is None, ``end``."""
        return self.end if self.begin is None else self.begin

    def texts(self) -> Shards:
        """Return the shards without the token ``begin`` at the start of each document. To predict
        the first token of a text, put the token of the property ``before`` in front of the text."""
        if self.begin is None:
            return self
        return replace(self, start=self.start + 1, length=self.length - 1)

    def document(self, index: int) -> npt.NDArray[Any]:
        start = int(self.start[index])
        return self.tokens[int(self.shard[index])][start : start + int(self.length[index])]

    def counted(self, index: int) -> npt.NDArray[np.bool_]:
        """Return a bool per token of a document: True if training scores the token."""
        if self.masks is None:
            return np.ones(int(self.length[index]), np.bool_)
        start = int(self.start[index])
        mask = self.masks[int(self.shard[index])][start : start + int(self.length[index])]
        return mask.astype(np.bool_)

    def ids(self, indices: list[int]) -> list[str]:
        """Return the ids of documents; "file:number" for files without ids."""
        return self._column("id", indices)

    def sources(self, indices: list[int]) -> list[str]:
        """Return the sources of documents (column ``source``); "" if the layout has none."""
        return self._column("source", indices)

    def _column(self, name: str, indices: list[int]) -> list[str]:
        wanted = np.asarray(indices, dtype=np.int64)
        shard = self.shard[wanted]
        first = np.searchsorted(self.shard, np.arange(len(self.parts)))
        texts = [""] * len(indices)
        for number in np.unique(shard):
            part = self.parts[number]
            positions = np.flatnonzero(shard == number)
            rows = wanted[positions] - first[number]
            if part.table is not None:
                values = read_column(part.table, name).take(pa.array(rows)).to_pylist()
            elif name == "id" and part.ids is not None:
                values = part.ids.take(pa.array(rows)).to_pylist()
            else:
                values = [f"{part.name}:{row}" if name == "id" else "" for row in rows]
            for position, value in zip(positions, values, strict=True):
                texts[position] = "" if value is None else str(value)
        return texts


def read_column(table: Path, name: str) -> pa.ChunkedArray:
    """Return a column of a documents table. Raises ``LlmcurateError`` if it cannot be read."""
    try:
        column = pq.read_table(table, columns=[name])[name]
        column.validate(full=True)  # invalid UTF-8 would fail later
        return column
    except (pa.ArrowException, OSError, KeyError) as error:
        cause = str(error).splitlines()[0]
        raise RunFailed(f"{table}: cannot be read ({cause}); encode again") from error


def read_shards(
    folder: Path, *, verify: bool = False, foreign: Foreign | None = None, val: bool = False
) -> Shards:
    """Open the shards in a folder, or a single file of token shards. ``verify``: check the SHA-256
    of every file in the manifest. ``foreign`` describes files without a manifest. ``val``: open the
    documents in the subfolder ``val`` of our shards, too, as held-out text. Raises
    ``LlmcurateError`` if files are missing, damaged or of no known layout."""
    if (folder / "manifest.json").is_file():
        return _with_manifest(folder, verify, val)
    return _without_manifest(folder, foreign or Foreign())


_TYPES = ("uint8", "uint16", "uint32", "uint64", "int32")
_SAMPLES, _SAMPLE = 256, 1 << 12
_EDGE = 1 << 20


def _with_manifest(folder: Path, verify: bool, val: bool) -> Shards:
    path = folder / "manifest.json"
    try:
        raw = path.read_bytes()
        manifest = json.loads(raw)
    except (OSError, ValueError, RecursionError) as error:
        raise RunFailed(f"{path}: damaged or not a manifest ({error}); encode again") from error
    if not isinstance(manifest, dict) or manifest.get("version") != 1:
        raise RunFailed(f"{path}: not a version 1 manifest of token shards; encode again")
    if "checksum" in manifest:  # older versions have none
        try:
            unseal(manifest)
        except ValueError as error:
            raise RunFailed(f"{path}: damaged ({error}); encode again") from None
    form = manifest.get("format", "llmcurate")
    if form not in ("llmcurate", "megatron", "nanogpt", "olmo"):
        raise RunFailed(f"{path}: the format {form!r} is not supported; encode again")
    tokenizer = manifest.get("tokenizer", "tokenizer.json")
    if tokenizer != "tokenizer.json":
        raise RunFailed(f"{folder}: encoded with {tokenizer}; training needs a tokenizer.json")
    if not (folder / tokenizer).is_file():
        raise RunFailed(f"{folder / tokenizer}: missing; encode again")
    dtype = manifest.get("dtype")
    if dtype not in ("uint16", "uint32") and (form, dtype) != ("megatron", "int32"):
        raise RunFailed(f"{path}: dtype {dtype!r}, expected uint16 or uint32; encode again")
    vocab_size = _field(manifest, "vocab_size", int, path)
    special = _field(manifest, "special_ids", dict, path)
    if not all(isinstance(value, int) for value in special.values()):
        raise RunFailed(f"{path}: special_ids must be whole numbers; encode again")
    _check_vocab_size(vocab_size, folder / tokenizer, path)
    edges = {name: manifest.get(name) for name in ("bos_token_id", "eos_token_id")}
    for name, value in (special | edges).items():
        if value is not None and not (isinstance(value, int) and 0 <= value < vocab_size):
            raise RunFailed(f"{path}: special_ids: {name} {value} of {vocab_size}; encode again")
    files = _field(manifest, "files", dict, path)
    for name, digest in files.items():
        # No name from a manifest may leave the folder.
        if name != Path(name).name or not (folder / name).is_file():
            raise RunFailed(f"{folder / name}: missing; encode again")
        # The tokenizer's files are small and used at once; others are compared during training.
        if (verify or name in (tokenizer, *BESIDE)) and file_digest(folder / name) != digest:
            raise damaged_shard(folder / name)
    masked = "loss_mask" in manifest
    if form in ("nanogpt", "olmo"):
        listed = LAYOUTS[form][0](folder, set(files))
    else:
        listed = own_files(set(files))
    parts = []
    for name in listed:
        table = folder / f"documents-{Path(name).stem.removeprefix('tokens-')}.parquet"
        needed_files = [table]
        if form in ("llmcurate", "megatron"):
            needed_files.append((folder / name).with_suffix(".idx"))
        if masked:
            needed_files.append(folder / f"{Path(name).stem.replace('tokens-', 'loss-')}.mask")
        for needed in needed_files:
            if needed.name not in files:
                raise RunFailed(f"{needed}: missing; encode again")
        try:
            parts.append(_read_listed(folder / name, form, np.dtype(dtype), masked, table))
        except LlmcurateError as error:
            again = str(error).removesuffix("; encode again")
            raise RunFailed(f"{again}; encode again") from error
    sizes = [part.length for part in parts if not is_validation(part.name)]
    documents, tokens = sum(map(len, sizes)), sum(int(size.sum()) for size in sizes)
    if documents != manifest.get("documents") or tokens != manifest.get("tokens"):
        raise RunFailed(
            f"{path}: says {manifest.get('documents')} documents and {manifest.get('tokens')} "
            f"tokens, the files hold {documents} and {tokens}; encode again"
        )
    sums = [(folder / name, str(digest)) for name, digest in files.items()]
    expected, inner = manifest.get("val", {}).get("manifest_sha256"), folder / "val"
    if val and expected is not None and (inner / path.name).is_file():
        if file_digest(inner / path.name) != expected:
            raise damaged_shard(inner / path.name)
        held_out = _with_manifest(inner, verify, False)
        parts += [replace(part, name=f"val/{part.name}") for part in held_out.parts]
        sums += held_out.sums
    end = edges["eos_token_id"]
    return _join(
        folder,
        parts,
        form=form,
        vocab_size=vocab_size,
        special_ids=dict(special),
        end=read_roles(folder / tokenizer, special).end if end is None else end,
        begin=edges["bos_token_id"],
        fingerprint=hashlib.sha256(raw).hexdigest(),
        sums=tuple(sums),
        tokenizer=folder / tokenizer,
    )


def _check_vocab_size(vocab_size: int, tokenizer: Path, path: Path) -> None:
    max_ids = max(tokenizer.stat().st_size, 1 << 20)
    if not 0 < vocab_size <= max_ids:
        raise RunFailed(
            f"{path}: vocab_size {vocab_size} does not fit {tokenizer.name}: at most {max_ids}"
        )


def damaged_shard(path: Path) -> LlmcurateError:
    return RunFailed(f"{path}: damaged (not what the manifest says); encode again")


def _read_listed(path: Path, form: str, dtype: np.dtype[Any], masked: bool, table: Path) -> Part:
    if form == "llmcurate":
        part = read_own(path, dtype.newbyteorder("<"), masked=masked)
    else:
        part = LAYOUTS[form][1](path, Foreign(dtype=dtype.name))
    size = read_column(table, "bytes").to_numpy().astype(np.int64)
    if form in ("nanogpt", "olmo"):
        length = read_column(table, "tokens").to_numpy().astype(np.int64)
        if (length < 0).any() or int(length.sum()) != len(part.tokens):
            raise RunFailed(f"{table}: its documents do not fit {path.name}; encode again")
        part = replace(part, start=np.cumsum(length) - length, length=length, notes=())
    if len(size) != len(part.length):
        raise RunFailed(
            f"{table}: {counted(len(size), 'row')} for {counted(len(part.length), 'document')};"
            " encode again"
        )
    return replace(part, bytes=size, table=table)


def _without_manifest(path: Path, foreign: Foreign) -> Shards:
    """Open a folder of another trainer's files, or a single such file. The layout of a single file
    depends on the files beside it."""
    folder = path.parent if path.is_file() else path
    places = [folder, *(folder / side for side in ("train", "val", "valid", "validation"))]
    files_found = [file for place in places if place.is_dir() for file in place.iterdir()]
    names = {str(file.relative_to(folder)) for file in files_found if file.is_file()}
    listed: list[str] = []
    for form, (files, read) in LAYOUTS.items():  # noqa: B007
        if listed := files(folder, names):
            break
    if path.is_file():
        listed = [name for name in listed if name == path.name]
    if not listed:
        raise UsageError(
            f"{path}: no manifest.json, so no finished token shards, and no files of another "
            "layout (.bin, .npy, .ds, .mds; an .idx begins with MMIDIDX); encode them first"
        )
    foreign, special, tokenizer = _resolve(foreign, path, folder)
    parts = [replace(read(folder / name, foreign), name=name) for name in listed]
    digest = hashlib.sha256()
    for name in listed:
        _sample(folder / name, digest)
    ends = f"{form} {foreign.vocab_size} {foreign.end_of_text} {foreign.dtype}"
    digest.update(ends.encode())
    for part in parts:
        digest.update(part.start.tobytes() + part.length.tobytes())
    assert foreign.vocab_size is not None
    return _join(
        path,
        parts,
        form=form,
        vocab_size=foreign.vocab_size,
        special_ids=special,
        end=foreign.end_of_text,
        fingerprint=digest.hexdigest(),
        tokenizer=tokenizer,
    )


def _resolve(
    foreign: Foreign, path_given: Path, folder: Path
) -> tuple[Foreign, dict[str, int], Path | None]:
    """Return (``foreign`` completed from its tokenizer, special ids, the tokenizer's path).
    ``foreign`` describes the files of another trainer. If ``foreign`` names no tokenizer and no
    vocabulary size, the tokenizer.json in ``folder`` is taken. Errors name ``path_given``."""
    special: dict[str, int] = {}
    path = None
    unknown = foreign.tokenizer is None and foreign.vocab_size is None
    if unknown and (folder / "tokenizer.json").is_file():
        foreign = replace(foreign, tokenizer=str(folder))
    if foreign.tokenizer is not None:
        path = Path(foreign.tokenizer)
        path = path / "tokenizer.json" if path.is_dir() else path
        loaded = load_tokenizer(path)
        special, largest = special_ids(loaded), size_of(loaded)
        _check_vocab_size(largest, path, path)
        foreign = replace(
            foreign,
            vocab_size=foreign.vocab_size or largest,
            end_of_text=foreign.end_of_text
            if foreign.end_of_text is not None
            else roles_of(path, loaded).end,
        )
    if foreign.vocab_size is None:
        pickled = "; meta.pkl is not read: a pickle can run code"
        raise UsageError(
            f"{path_given}: no tokenizer.json beside the files; give --tokenizer FILE, or --vocab"
            f" SIZE and --end-of-text ID{pickled if (folder / 'meta.pkl').exists() else ''}"
        )
    if foreign.vocab_size < 1 or not -1 < (foreign.end_of_text or 0) < foreign.vocab_size:
        raise UsageError(
            f"vocab_size {foreign.vocab_size}, end_of_text {foreign.end_of_text}: the id must lie "
            "within the vocabulary"
        )
    if foreign.dtype is not None and foreign.dtype not in _TYPES:
        raise UsageError(f"dtype {foreign.dtype!r}: choose one of {', '.join(_TYPES)}")
    return foreign, special, path


def _join(
    folder: Path,
    parts: list[Part],
    *,
    tokenizer: Path | None,
    **facts: Any,
) -> Shards:

    def joined(name: str) -> Any:
        return np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])

    masks = None
    if any(part.mask is not None for part in parts):
        masks = [
            np.ones(len(part.tokens), np.uint8) if part.mask is None else part.mask
            for part in parts
        ]
    notes: dict[str, list[str]] = {}
    for part in parts:
        for note in part.notes:
            notes.setdefault(note, []).append(part.name)
    asides = [is_validation(part.name) for part in parts]
    if all(asides):  # the user named a file of held-out text to read
        asides = [False] * len(parts)
    held_out = np.repeat(asides, [len(part.length) for part in parts])
    if any(asides):
        notes["held-out text"] = [part.name for part in parts if is_validation(part.name)]
    return Shards(
        folder=folder,
        tokens=[part.tokens for part in parts],
        shard=np.repeat(np.arange(len(parts)), [len(part.length) for part in parts]),
        start=joined("start"),
        length=joined("length"),
        bytes=None if any(part.bytes is None for part in parts) else joined("bytes"),
        masks=masks,
        tokenizer=tokenizer,
        tokenizer_sha256=None if tokenizer is None else file_digest(tokenizer),
        parts=tuple(parts),
        notes=tuple(
            f"{first}{f' and {len(others)} more' if others else ''}: {note}"
            for note, (first, *others) in notes.items()
        ),
        held_out=np.flatnonzero(held_out),
        **facts,
    )


def _sample(path: Path, digest: Any) -> None:
    """Add to a digest a file's name and size, its first and last bytes, and samples between them. A
    change elsewhere is not noticed: to read terabytes at every start would take too long."""
    size = path.stat().st_size
    digest.update(f"{path.name} {size} ".encode())
    inner = max(0, size - 2 * _EDGE)
    offsets = [0, max(0, size - _EDGE), *(_EDGE + inner * k // _SAMPLES for k in range(_SAMPLES))]
    with path.open("rb") as file:
        for number, offset in enumerate(offsets if inner else offsets[:2]):
            file.seek(offset)
            digest.update(file.read(_EDGE if number < 2 else _SAMPLE))


def _field(manifest: dict[str, Any], name: str, kind: type, where: Path) -> Any:
    value = manifest.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RunFailed(f"{where}: {name} is missing or not {kind.__name__}; encode again")
    return value


_BLOCK = 1 << 20


class Comparison:
    """A thread that compares files with the SHA-256 in their manifests, smaller files first.
    ``step``: the step at which this run begins. ``since``: the first step that may have read a
    damaged file. This is the first step of this run, or of an earlier run that ended before all
    files were compared."""

    def __init__(self, shards: Iterable[Shards], record: Path, step: int) -> None:
        self._record = record
        compared, begun = _read_record(record)
        self.since = step if begun is None else min(begun, step)
        self._append_record({"begun": step})
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compare")
        files = {path.resolve(): digest for part in shards for path, digest in part.sums}
        self._work = self._pool.submit(self._compare, files, compared)

    def done(self) -> bool:
        """Return True if all files are compared. Raises ``LlmcurateError`` for a damaged file."""
        return self._work.done() and self._work.result() is None

    def wait(self) -> None:
        """Wait until all files have been compared. Raises ``LlmcurateError`` for a damaged file."""
        self._work.result()

    @property
    def failed(self) -> bool:
        """True if the comparison has ended with a damaged or unreadable file."""
        return self._work.done() and self._work.exception() is not None

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown()

    def _compare(self, files: dict[Path, str], compared: set[tuple[Any, ...]]) -> None:
        try:
            facts = {path: path.stat() for path in files}
            for path in sorted(files, key=lambda path: (facts[path].st_size, path)):
                size, changed, digest = facts[path].st_size, facts[path].st_mtime_ns, files[path]
                if (str(path), size, changed, digest) in compared:
                    continue
                actual = self._digest(path)
                if actual is None:
                    return
                if actual != digest:
                    raise damaged_shard(path)
                self._append_record(
                    {"path": str(path), "bytes": size, "mtime_ns": changed, "sha256": digest}
                )
        except OSError as error:
            raise RunFailed(f"{error.filename}: cannot be read ({error.strerror})") from error
        self._append_record({"complete": True})

    def _digest(self, path: Path) -> str | None:
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                if self._stop.is_set():
                    return None
                digest.update(block)
        return digest.hexdigest()

    def _append_record(self, line: dict[str, str | int]) -> None:
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _read_record(record: Path) -> tuple[set[tuple[Any, ...]], int | None]:
    """Return (the intact files that a compared.jsonl lists, step). step: the first at which
    training began since the last time that all files were found intact, or None."""
    compared: set[tuple[Any, ...]] = set()
    begun = None
    for text in record.read_bytes().splitlines() if record.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # cut off by a crash: that file is compared again
        if not isinstance(line, dict):
            continue
        if isinstance(step := line.get("begun"), int):
            begun = step if begun is None else min(begun, step)
        elif "complete" in line:
            begun = None
        elif all(isinstance(value, (str, int)) for value in line.values()):
            compared.add(tuple(line.get(name) for name in ("path", "bytes", "mtime_ns", "sha256")))
    return compared, begun
