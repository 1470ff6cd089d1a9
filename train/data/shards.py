"""Token shards of any layout, as memory maps behind one view.

Our own folder, which is all that the rest of this package knows of its data:
manifest.json            version, dtype, vocab_size, special_ids, documents, tokens, bytes, files
tokens-00000.bin         little-endian uint16 or uint32
tokens-00000.idx         uint64 ends of documents, in tokens, counted within this file
documents-00000.parquet  id, source, lang, tokens, bytes
loss-00000.mask          uint8 a token, 1 where it counts; where the manifest has loss_mask

Other trainers' layouts (readers.py) are known by their content; a manifest beside them, as ours
writes it, says what they cannot.

OUT/compared.jsonl has a line a file that was as it should be ({"path", "bytes", "mtime_ns",
"sha256"}): one that has not changed since is not read again. {"begun": step} and {"complete": true}
say from which step on a run trained on what was not yet compared.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.sealed_json import unseal
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from train.data.readers import (
    FOREIGN_FILES,
    Foreign,
    Ints,
    Part,
    is_validation,
    own_files,
    read_foreign,
    read_own,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# Names published tokenizers give to the token that ends a document, in the order we look.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Opened shards.

    ``tokens``: one memory map a file. Per document, in order: ``shard`` (index into ``tokens``),
    ``start`` and ``length`` (tokens, within that file) and ``bytes`` (UTF-8 bytes of the text;
    None where the layout does not know them). ``masks``: of each file uint8, 1 where a token counts
    in training; None where all do. ``end`` is the id that ends documents. ``tokenizer``: its file,
    if there is one. ``fingerprint`` stands for the content: the SHA-256 of the manifest, which
    names the SHA-256 of every file; without one, of names, sizes and samples of the files.
    ``sums``: the files that a manifest names, each with its SHA-256. ``notes``: what a user should
    know of how the files were read.
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
    sums: tuple[tuple[Path, str], ...] = ()
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
        asked = np.asarray(indices, dtype=np.int64)
        shard = self.shard[asked]
        first = np.searchsorted(self.shard, np.arange(len(self.parts)))
        texts = [""] * len(indices)
        for number in np.unique(shard):
            part = self.parts[number]
            positions = np.flatnonzero(shard == number)
            rows = asked[positions] - first[number]
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
    """A column of a documents table; raises ``LlmcurateError`` naming the file."""
    try:
        column = pq.read_table(table, columns=[name])[name]
        column.validate(full=True)  # what is no UTF-8 would be an error where it is read
        return column
    except (pa.ArrowException, OSError, KeyError) as error:
        cause = str(error).splitlines()[0]
        raise RunFailed(f"{table}: cannot be read ({cause}); encode again") from error


def end_of_text(special_ids: dict[str, int]) -> int | None:
    """The id of the token that ends documents, or None."""
    return next((special_ids[name] for name in END_OF_TEXT if name in special_ids), None)


def read_shards(folder: Path, *, verify: bool = False, foreign: Foreign | None = None) -> Shards:
    """Open the shards in ``folder``, or one file of them; ``verify`` also checks the SHA-256 of
    every file that a manifest names.

    ``foreign`` says what files without a manifest do not. Raises ``LlmcurateError``, naming the
    file, where nothing is known of the layout or the files do not fit each other.
    """
    foreign = foreign or Foreign()
    if folder.is_file():
        return _without_manifest(folder.parent, {folder.name}, foreign, folder)
    if (folder / "manifest.json").is_file():
        return _with_manifest(folder, verify)
    names = {file.name for file in folder.iterdir() if file.is_file()} if folder.is_dir() else set()
    return _without_manifest(folder, names, foreign, folder)


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json`` so that the spelling of a special token in a text stays text."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise RunFailed(f"{path}: cannot be read ({error})") from error
    tokenizer.encode_special_tokens = True
    return tokenizer


_TYPES = ("uint8", "uint16", "uint32", "uint64", "int32")
_SAMPLES, _SAMPLE = 256, 1 << 12
_EDGE = 1 << 20


def _with_manifest(folder: Path, verify: bool) -> Shards:
    path = folder / "manifest.json"
    try:
        raw = path.read_bytes()
        manifest = json.loads(raw)
    except (OSError, ValueError, RecursionError) as error:
        raise RunFailed(f"{path}: damaged, or no manifest ({error}); encode again") from error
    if not isinstance(manifest, dict) or manifest.get("version") != 1:
        raise RunFailed(f"{path}: not a version 1 manifest of token shards; encode again")
    if "checksum" in manifest:  # those of older versions have none
        try:
            unseal(manifest)
        except ValueError as error:
            raise RunFailed(f"{path}: damaged ({error}); encode again") from None
    form = manifest.get("format", "llmcurate")
    if form not in ("llmcurate", "megatron", "nanogpt", "olmo"):
        raise RunFailed(f"{path}: the format {form!r} is not read here; encode again")
    tokenizer = manifest.get("tokenizer", "tokenizer.json")
    if tokenizer != "tokenizer.json":
        raise RunFailed(f"{folder}: encoded with {tokenizer}; training takes a tokenizer.json")
    if not (folder / tokenizer).is_file():
        raise RunFailed(f"{folder / tokenizer}: missing; encode again")
    dtype = manifest.get("dtype")
    if dtype not in ("uint16", "uint32") and (form, dtype) != ("megatron", "int32"):
        raise RunFailed(f"{path}: dtype {dtype!r}, expected uint16 or uint32; encode again")
    vocab_size = _field(manifest, "vocab_size", int, path)
    special = _field(manifest, "special_ids", dict, path)
    if not all(isinstance(value, int) for value in special.values()):
        raise RunFailed(f"{path}: special_ids must be whole numbers; encode again")
    _bound(vocab_size, folder / tokenizer, path)
    for name, value in special.items():
        if not 0 <= value < vocab_size:
            raise RunFailed(f"{path}: special_ids: {name} {value} of {vocab_size}; encode again")
    files = _field(manifest, "files", dict, path)
    for name, digest in files.items():
        # No name from a manifest may leave the folder.
        if name != Path(name).name or not (folder / name).is_file():
            raise RunFailed(f"{folder / name}: missing; encode again")
        # The tokenizer is used at once, and small; the rest is compared beside training.
        if (verify or name == tokenizer) and file_digest(folder / name) != digest:
            raise damaged_shard(folder / name)
    masked = "loss_mask" in manifest
    if form in ("nanogpt", "olmo"):
        listed = FOREIGN_FILES[form](folder, set(files))
    else:
        listed = own_files(set(files))
    parts = []
    for name in listed:
        table = _table(folder, name)
        for needed in [table, *_beside(folder / name, form, masked)]:
            if needed.name not in files:
                raise RunFailed(f"{needed}: missing; encode again")
        try:
            parts.append(_described(folder / name, form, np.dtype(dtype), masked, table))
        except LlmcurateError as error:
            again = str(error).removesuffix("; encode again")
            raise RunFailed(f"{again}; encode again") from error
    documents, tokens = sum(len(p.length) for p in parts), sum(int(p.length.sum()) for p in parts)
    if documents != manifest.get("documents") or tokens != manifest.get("tokens"):
        raise RunFailed(
            f"{path}: says {manifest.get('documents')} documents and {manifest.get('tokens')} "
            f"tokens, the files hold {documents} and {tokens}; encode again"
        )
    return _joined(
        folder,
        parts,
        form=form,
        vocab_size=vocab_size,
        special_ids=dict(special),
        end=end_of_text(special),
        fingerprint=hashlib.sha256(raw).hexdigest(),
        sums=tuple((folder / name, str(digest)) for name, digest in files.items()),
        tokenizer=folder / tokenizer,
    )


def _bound(vocab_size: int, tokenizer: Path, path: Path) -> None:
    """Each token takes a byte of the tokenizer's file at least, but ids may have gaps."""
    most = max(tokenizer.stat().st_size, 1 << 20)
    if not 0 < vocab_size <= most:
        raise RunFailed(
            f"{path}: vocab_size {vocab_size}, more than {most} ids of {tokenizer.name}"
        )


def damaged_shard(path: Path) -> LlmcurateError:
    """For a file that is not what the manifest beside it says."""
    return RunFailed(f"{path}: damaged (not what the manifest says); encode again")


def _beside(path: Path, form: str, masked: bool) -> list[Path]:
    paths = [path.with_suffix(".idx")] if form in ("llmcurate", "megatron") else []
    if masked:
        paths.append(path.with_name(path.name.replace("tokens-", "loss-")).with_suffix(".mask"))
    return paths


def _table(folder: Path, name: str) -> Path:
    label = "train" if name == "train.bin" else Path(name).stem.removeprefix("tokens-")
    return folder / f"documents-{label}.parquet"


def _described(path: Path, form: str, dtype: np.dtype[Any], masked: bool, table: Path) -> Part:
    """A file whose documents a table lists: it knows their lengths where the layout does not."""
    if form == "llmcurate":
        part = read_own(path, dtype.newbyteorder("<"), masked=masked)
    else:
        part = read_foreign(form, path, Foreign(dtype=dtype.name))
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


def _without_manifest(folder: Path, names: set[str], foreign: Foreign, named: Path) -> Shards:
    beside = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    single = named.is_file()
    form, paths = "nanogpt", []
    # Of one file, what lies beside it decides what it is.
    for layout, files in FOREIGN_FILES.items():
        if paths := [name for name in files(folder, beside) if name in names]:
            form = layout
            break
    if not paths and single and is_validation(named.name):
        paths = [named.name]  # named itself, so it is meant
    # An index of ours beside it: an encoding that was not finished, whose bounds must not be lost.
    unfinished = form == "nanogpt" and any(Path(n).stem + ".idx" in beside for n in paths)
    if not paths or unfinished:
        raise UsageError(
            f"{named}: no manifest.json, so no finished token shards, and no files of another "
            "layout (.bin, .npy, .ds); encode them first"
        )
    foreign, special, tokenizer = _resolved(foreign, named)
    parts = [read_foreign(form, folder / name, foreign) for name in paths]
    notes = []
    left_out = sorted(name for name in names - set(paths) if form == "nanogpt" and ".bin" in name)
    if left_out:
        notes.append(f"{', '.join(left_out)}: not trained on")
    digest = hashlib.sha256()
    for name in paths:
        _sample(folder / name, digest)
    ends = f"{form} {foreign.vocab_size} {foreign.end_of_text} {foreign.dtype}"
    digest.update(ends.encode())
    for part in parts:
        digest.update(part.start.tobytes() + part.length.tobytes())
    assert foreign.vocab_size is not None
    return _joined(
        named,
        parts,
        form=form,
        vocab_size=foreign.vocab_size,
        special_ids=special,
        end=foreign.end_of_text,
        fingerprint=digest.hexdigest(),
        tokenizer=tokenizer,
        notes=notes,
    )


def _resolved(foreign: Foreign, named: Path) -> tuple[Foreign, dict[str, int], Path | None]:
    """Vocabulary, end of text and special ids, from the settings or the tokenizer."""
    special: dict[str, int] = {}
    path = None
    if foreign.tokenizer is not None:
        path = Path(foreign.tokenizer)
        path = path / "tokenizer.json" if path.is_dir() else path
        loaded = load_tokenizer(path)
        added = loaded.get_added_tokens_decoder()
        special = {token.content: number for number, token in added.items() if token.special}
        largest = max(loaded.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        _bound(largest, path, path)
        foreign = replace(
            foreign,
            vocab_size=foreign.vocab_size or largest,
            end_of_text=foreign.end_of_text
            if foreign.end_of_text is not None
            else end_of_text(special),
        )
    if foreign.vocab_size is None:
        raise UsageError(
            f"{named}: nothing here says how large the vocabulary is; give vocab_size and "
            "end_of_text, or tokenizer (a tokenizer.json)"
        )
    if foreign.vocab_size < 1 or not -1 < (foreign.end_of_text or 0) < foreign.vocab_size:
        raise UsageError(
            f"vocab_size {foreign.vocab_size}, end_of_text {foreign.end_of_text}: the id lies "
            "within the vocabulary"
        )
    if foreign.dtype is not None and foreign.dtype not in _TYPES:
        raise UsageError(f"dtype {foreign.dtype!r}: one of {', '.join(_TYPES)}")
    return foreign, special, path


def _joined(
    folder: Path,
    parts: list[Part],
    *,
    tokenizer: Path | None,
    notes: list[str] | None = None,
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
        notes=(*(notes or ()), *(note for part in parts for note in part.notes)),
        **facts,
    )


def _sample(path: Path, digest: Any) -> None:
    """Name, size, both ends and pieces from all over a file: reading terabytes at every start costs
    more than the risk that a change falls between them."""
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
    """Compares the files of ``shards`` in a thread, smaller ones first; ``step``: where training
    goes on. ``since``: the step up to which it read nothing that was not compared.
    """

    def __init__(self, shards: Iterable[Shards], record: Path, step: int) -> None:
        self._record = record
        compared, begun = _read(record)
        self.since = step if begun is None else min(begun, step)
        self._note({"begun": step})
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compare")
        files = {path.resolve(): digest for part in shards for path, digest in part.sums}
        self._work = self._pool.submit(self._compare, files, compared)

    def done(self) -> bool:
        """Whether all files are what their manifest says; raises ``LlmcurateError`` naming one that
        is not, as soon as that is known.
        """
        return self._work.done() and self._work.result() is None

    def wait(self) -> None:
        """Until all are compared; raises as ``done``."""
        self._work.result()

    @property
    def failed(self) -> bool:
        """Whether a file was found damaged."""
        return self._work.done() and self._work.exception() is not None

    def close(self) -> None:
        """End the thread."""
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
                self._note(
                    {"path": str(path), "bytes": size, "mtime_ns": changed, "sha256": digest}
                )
        except OSError as error:
            raise RunFailed(f"{error.filename}: cannot be read ({error.strerror})") from error
        self._note({"complete": True})

    def _digest(self, path: Path) -> str | None:
        """The SHA-256 of a file, or None where there is no more need of it."""
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                if self._stop.is_set():
                    return None
                digest.update(block)
        return digest.hexdigest()

    def _note(self, line: dict[str, str | int]) -> None:
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _read(record: Path) -> tuple[set[tuple[Any, ...]], int | None]:
    """The files that were as they should be, and where training on others began, if it did."""
    compared: set[tuple[Any, ...]] = set()
    begun = None
    for text in record.read_bytes().splitlines() if record.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # cut off by a crash: that file is read again
        if not isinstance(line, dict):
            continue
        if isinstance(step := line.get("begun"), int):
            begun = step if begun is None else min(begun, step)
        elif "complete" in line:
            begun = None
        elif all(isinstance(value, (str, int)) for value in line.values()):
            compared.add(tuple(line.get(name) for name in ("path", "bytes", "mtime_ns", "sha256")))
    return compared, begun
