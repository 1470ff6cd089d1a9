"""The writer of token shards: encodes documents into the folder that a trainer reads.

tokens-00000.bin         little-endian uint16, or uint32 for a larger vocabulary
tokens-00000.idx         uint64 ends of documents, in tokens, counted within this file
documents-00000.parquet  id, source, lang, tokens, bytes; one row per document, in the same order
loss-00000.mask          one byte per token, 1 if it counts in training; only with loss_mask
tokenizer.json           the tokenizer used (or tokenizer.model, tokenizer.tiktoken), and the files
                         that lie beside it (llmcurate/base/roles.py)
manifest.json            counts and checksums; written last, so it exists only if all files do
val/                     the same for the documents held out, if any

Formats of other trainers have other files instead of .bin and .idx (shard_files.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from llmcurate.base.disk.files import file_digest, sync_path, write_atomic
from llmcurate.base.disk.process import in_order
from llmcurate.base.disk.sealed_json import encode_json, seal
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.roles import BESIDE, copy_beside
from llmcurate.base.tokenizer_file import read_file
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.gigatoken_encoder import trusted
from tokenize_kit.encode.parts import PART_BYTES, encode_parts
from tokenize_kit.encode.vocabulary import Vocabulary, open_vocabulary
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.shards.loss_mask import mask_of
from tokenize_kit.shards.progress import (
    SAVE_BYTES,
    InputChanged,
    Position,
    Progress,
    input_changed_error,
)
from tokenize_kit.shards.shard_files import (
    DOCUMENTS,
    FORMATS,
    PATTERNS,
    Encoded,
    Format,
    Side,
    SideState,
    add_edges,
    token_dtype,
)
from tokenize_kit.shards.shuffle import RUN_TOKENS, DocumentKeys, Shuffle, Spilled, keys
from tokenize_kit.shards.texts import NAMES, PIECE_BYTES, Texts, texts_of

VERSION = 1
SAMPLE_BYTES = 8 << 20  # a smaller corpus takes less time than loading gigatoken
_SHARE = 8  # the first eighth of each piece is compared


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Settings that decide the content and the format of shards.

    shard_tokens   The most tokens in a shard, except for a longer document.
    append_eos     Add the tokenizer's end-of-text token after each document.
    prepend_bos    Add the tokenizer's beginning-of-text token before each document. None adds it if
                   the tokenizer begins texts with it, or if `bos_token` names it.
    eos_token      The token that ends documents, if it is not the tokenizer's.
    bos_token      The token that begins documents, if it is not the tokenizer's.
    val_fraction   The share of documents held out, by the hash of their ids.
    val_by         Hold out single documents (id), or whole clusters (cluster; needs Keys.sides).
    shuffle        The seed of the order, which depends only on the seed and the ids; None keeps
                   the input's order.
    packing        Keep the order (input), or put similar documents together (neighbours; needs
                   Keys.order).
    form           The format of the files (shard_files.py).
    pattern        The name of the pattern that cuts text, for a tokenizer in tiktoken's format.
    loss_mask      The column with the tokens that count in training (loss_mask.py).
    sampling       The rate of random splits into tokens (BPE dropout); None: not random.
    sampling_seed  The seed of random splits, used with the documents' ids."""

    shard_tokens: int = 100_000_000
    append_eos: bool = True
    prepend_bos: bool | None = None
    eos_token: str | None = None
    bos_token: str | None = None
    val_fraction: float = 0.0
    val_by: Literal["id", "cluster"] = "id"
    shuffle: int | None = None
    packing: Literal["input", "neighbours"] = "input"
    form: Format = "llmcurate"
    pattern: str | None = None
    loss_mask: str | None = None
    sampling: float | None = None
    sampling_seed: int = 0

    def __post_init__(self) -> None:
        if self.shard_tokens < 1:
            raise UsageError(f"shard_tokens {self.shard_tokens}: give 1 or more")
        if not 0 <= self.val_fraction < 1:
            raise UsageError(f"val_fraction {self.val_fraction}: give 0 or more, and less than 1")
        if self.shuffle is not None and not 0 <= self.shuffle < 1 << 64:
            raise UsageError(f"shuffle {self.shuffle}: give a seed from 0 on")
        if self.shuffle is not None and self.packing != "input":
            raise UsageError(f"packing {self.packing} sets the order: leave shuffle out")
        if self.form not in FORMATS:
            raise UsageError(f"format {self.form!r}: give one of {', '.join(FORMATS)}")
        if self.loss_mask is not None and self.form != "llmcurate":
            raise UsageError(
                f"loss_mask: the format {self.form} has no loss mask; encode without --format"
            )


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Keys that replace the hashes of document ids. sides: the keys for the split into train and
    val, the same for all documents of a cluster; small keys are held out (val). order: the keys by
    which documents are sorted."""

    sides: DocumentKeys | None = None
    order: DocumentKeys | None = None

    def digests(self) -> dict[str, str]:
        """Return {name: hash of the keys} for `sides` and `order`, without fields that are None."""
        named = {"sides": self.sides, "order": self.order}
        return {name: draws.digest for name, draws in named.items() if draws is not None}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Amounts that do not change the shards. piece_bytes: text encoded at once; save_bytes: text
    encoded between two saves of the progress; run_tokens: tokens of documents sorted at once;
    sample_bytes: text to read before gigatoken, another encoder, is compared with ours."""

    piece_bytes: int = PIECE_BYTES
    save_bytes: int = SAVE_BYTES
    run_tokens: int = RUN_TOKENS
    sample_bytes: int = SAMPLE_BYTES


def encode_shards(
    batches: Iterable[pa.RecordBatch],
    tokenizer: Path,
    out: Path,
    layout: Layout | None = None,
    workers: int = 1,
    say: Callable[[str], None] | None = None,
    sizes: Sizes | None = None,
    by: Keys | None = None,
    record: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Encode documents into token shards in `out` and return the manifest. batches: documents with
    the columns `id` and `text`, optionally `source` and `lang`, and the column given as `loss_mask`
    in the layout.

    tokenizer: a tokenizer.json or another file that vocabulary.py supports. workers: the number of
    threads (always one if the tokenizer's library encodes, not our encoder); each holds some
    megabytes of text, or one document. say: a function that is called with lines for the user, such
    as why a stopped run cannot be resumed. by: the keys for `val_by` and `packing` of the layout.
    record: a function that is called with the name of the encoder, which is not part of the
    manifest.

    A document is never split over shards. The bytes written depend only on the documents, the
    tokenizer, the layout and the keys. They do not depend on the batches or on `workers`. A killed
    run resumes with the same `out` and writes the same bytes (progress.py).

    In the manifest, `bytes` counts the UTF-8 bytes of the texts; `tokens` includes the tokens that
    begin and end documents. Raises `LlmcurateError` for an unusable tokenizer, a missing column, a
    null text, no documents, or no documents to train on or to hold out; `out` is then unchanged."""
    layout, sizes, by = layout or Layout(), sizes or Sizes(), by or Keys()
    named = layout.bos_token, layout.eos_token
    vocabulary = open_vocabulary(tokenizer, layout.pattern)
    vocabulary, lines = vocabulary.with_edges(layout.prepend_bos, layout.append_eos, *named)
    for line in lines:
        if say is not None:
            say(line)
    dtype = token_dtype(layout.form, vocabulary.size)
    if say and vocabulary.dropout and layout.sampling is None:
        rate = f"{vocabulary.dropout:g}"
        say(f"{tokenizer.name} has dropout {rate}, which is off; --sampling {rate} draws with it")
    out.mkdir(parents=True, exist_ok=True)
    identity = {"version": VERSION, "tokenizer": file_digest(vocabulary.path), **asdict(layout)}
    identity |= by.digests() | {"edges": [vocabulary.begin, vocabulary.end]}
    progress = Progress(out / ".shards.partial", identity, say, sizes.save_bytes)
    try:
        pieces = texts_of(batches, layout.loss_mask, progress.position, sizes.piece_bytes)
        chosen = _Chosen(vocabulary, sizes.sample_bytes)
        if layout.sampling is None:
            pieces = chosen.watch(pieces)
        else:
            chosen.name = "ours, not gigatoken: it does not draw ids"
        threads = workers if vocabulary.encoder.reason is None else 1
        most = 2 * threads * sizes.piece_bytes
        encode = _encoder(vocabulary, chosen, layout, dtype)
        documents = in_order(encode, pieces, threads, Texts.size, most)
        sides = _write(documents, progress, layout, dtype, sizes.run_tokens, by)
        manifest = _manifests(sides, vocabulary, layout, progress)
        _commit(progress, out, list(manifest["files"]), encode_json(manifest))
    except InputChanged:
        progress.remove()
        raise input_changed_error() from None
    except BaseException as error:
        if isinstance(error, Exception) or not progress.saved:  # after Ctrl-C, run again to resume
            progress.remove()
        raise
    progress.remove()
    if record is not None:
        record(chosen.name)
    return manifest


class _Chosen:
    """The encoder that all threads use: at first ours; gigatoken as soon as it gives the same ids
    for a sample of the texts. name: gigatoken's name, or the reason why it is not used."""

    def __init__(self, vocabulary: Vocabulary, sample_bytes: int) -> None:
        self.encode, self._ours, self._bytes = vocabulary.encode, vocabulary.encoder, sample_bytes
        self.name = "ours, not gigatoken: the corpus is small"

    def watch(self, pieces: Iterator[Texts]) -> Iterator[Texts]:
        """Yield the pieces, and choose the encoder once they are enough for a sample."""
        sample: list[tuple[np.ndarray, np.ndarray]] = []
        for texts in pieces:
            if self._bytes > 0:
                self._bytes -= texts.size()
                if texts.size() <= PART_BYTES:
                    sample.append((texts.data, texts.offsets[: len(texts.offsets) // _SHARE + 2]))
                if self._bytes <= 0:
                    encode, self.name = trusted(self._ours, sample)
                    self.encode = encode or self.encode
                    sample.clear()
            yield texts


def _encoder(
    vocabulary: Vocabulary, chosen: _Chosen, layout: Layout, dtype: np.dtype[Any]
) -> Callable[[Texts], tuple[Encoded, Position]]:
    begin, end = vocabulary.begin, vocabulary.end
    column, rate = layout.loss_mask, layout.sampling
    sample = None if rate is None else vocabulary.sampled(rate)
    candidate = None if column is None else open_candidate(vocabulary.path, layout.pattern)
    in_parts = sample is None and column is None and vocabulary.encoder.can_settle

    count_unknown = vocabulary.encoder.count_unknown

    def encode_whole(texts: Texts) -> Encoded:
        mask, undrawn = None, 0
        if sample is None or rate is None:
            try:
                ids, counts = chosen.encode(texts.data, texts.offsets)
            except RunFailed as error:
                raise RunFailed(f"{vocabulary.path}: {error}") from error
        else:
            drawn_by = keys(texts.names["id"], layout.sampling_seed)
            ids, counts = sample(texts.data, texts.offsets, drawn_by, rate)
            assert isinstance(vocabulary.encoder, Encoder)  # the others draw none
            undrawn = int(vocabulary.encoder.odd(texts.data, texts.offsets).sum())
        _refuse_forgery(ids, counts, texts, vocabulary.forbidden)
        tokens, lengths = add_edges(ids, counts, begin, end, dtype)
        if column is not None and candidate is not None:
            edges = (begin is not None, end is not None)
            mask = mask_of(texts, column, candidate, ids, counts, *edges)
        unknown = count_unknown(texts.data[texts.offsets[0] : texts.offsets[-1]], ids)
        return Encoded(tokens, _table(texts, lengths), mask, undrawn, unknown)

    def encode_long(texts: Texts) -> Encoded:
        tokens, unknown = np.array([] if begin is None else [begin], dtype), 0

        def append(ids: np.ndarray) -> None:
            tokens.resize(len(tokens) + len(ids), refcheck=False)  # moves pages without a copy
            tokens[len(tokens) - len(ids) :] = ids

        row = texts.data[texts.offsets[0] : texts.offsets[1]]
        for ids in encode_parts([row], vocabulary.encode, vocabulary.encoder.encode_settled):
            _refuse_forgery(ids, np.array([len(ids)]), texts, vocabulary.forbidden)
            append(ids)
            unknown += count_unknown(row[:0], ids)
        if end is not None:
            append(np.array([end]))
        return Encoded(tokens, _table(texts, np.array([len(tokens)])), unknown=unknown)

    def encode_texts(texts: Texts) -> tuple[Encoded, Position]:
        alone = len(texts.offsets) == 2 and texts.size() > PART_BYTES
        return (encode_long if in_parts and alone else encode_whole)(texts), texts.position

    return encode_texts


def _table(texts: Texts, lengths: np.ndarray) -> pa.Table:
    columns = {name: texts.names[name] for name in NAMES}
    sizes = {"tokens": pa.array(lengths), "bytes": pa.array(np.diff(texts.offsets))}
    return pa.table({**columns, **sizes}, schema=DOCUMENTS)


def _refuse_forgery(
    ids: np.ndarray, counts: np.ndarray, texts: Texts, forbidden: np.ndarray
) -> None:
    forged = np.flatnonzero(forbidden[ids])
    if len(forged):
        row = int(np.searchsorted(np.cumsum(counts), forged[0], "right"))
        raise RunFailed(
            f"document {texts.names['id'][row]}: this tokenizer turns ordinary text into a special "
            "token; use one trained here, or one with a byte-level model"
        )


def _write(
    documents: Iterable[tuple[Encoded, Position]],
    progress: Progress,
    layout: Layout,
    dtype: np.dtype[Any],
    run_tokens: int,
    by: Keys,
) -> list[Side]:
    masked, aside, state = layout.loss_mask is not None, progress.folder, progress.state
    rows = aside / "rows"
    rows.mkdir(exist_ok=True)
    shuffled = layout.shuffle is not None or by.order is not None
    if shuffled:
        seed, spilled = layout.shuffle or 0, Spilled.from_json(state.get("spill", b"{}"))
        shuffle = Shuffle(aside / "spill", seed, dtype, masked, spilled, run_tokens, by.order)
        documents = _shuffled(documents, progress, shuffle)
    shared = (layout.form, dtype, layout.shard_tokens, masked, rows)
    train, val = (SideState.from_json(state.get(name, b"{}")) for name in ("train", "val"))
    sides = [Side(aside, "train", *shared, train)]
    if layout.val_fraction:
        folder = aside if layout.form == "nanogpt" else aside / "val"
        sides.append(Side(folder, "val", *shared, val))
    bound = np.uint64(int(layout.val_fraction * 2.0**64))
    try:
        for part, position in documents:
            size = part.bytes
            progress.undrawn += part.undrawn
            progress.unknown += part.unknown
            if layout.val_fraction:
                ids = part.table["id"]
                chosen = (keys(ids) if by.sides is None else by.sides.of(ids)) < bound
                sides[1].add(part.select(np.flatnonzero(chosen)))
                part = part.select(np.flatnonzero(~chosen)) if chosen.any() else part
            sides[0].add(part)
            if not shuffled:
                progress.advance(position, size, {side.name: side.checkpoint for side in sides})
    finally:
        for side in sides:
            side.close()
    total = sum(side.documents for side in sides)
    if not total:
        raise RunFailed("no documents to encode: check the input and the filters before it")
    for side in sides:
        if not side.documents:
            raise RunFailed(
                f"val_fraction {layout.val_fraction:g} of {counted(total, 'document')} leaves"
                " none for "
                f"{side.name}: give another fraction, or more documents"
            )
    if masked and not any(side.loss_tokens for side in sides):
        raise RunFailed(f"column {layout.loss_mask!r} counts no token: there is nothing to learn")
    return sides


def _shuffled(
    documents: Iterable[tuple[Encoded, Position]],
    progress: Progress,
    shuffle: Shuffle,
) -> Iterator[tuple[Encoded, Position]]:
    """Yield documents in the shuffled order. Progress is saved only while documents are collected
    on disk. A run that is interrupted after this has to write all shards again."""
    position = progress.position
    try:
        for part, position in documents:
            shuffle.add(part)
            progress.undrawn += part.undrawn
            progress.unknown += part.unknown
            progress.advance(position, part.bytes, {"spill": shuffle.checkpoint})
        progress.advance(position, 0, {"spill": shuffle.checkpoint}, last=True)
    finally:
        shuffle.close()
    for part in shuffle.documents():
        yield part, position


def _manifests(
    sides: list[Side], vocabulary: Vocabulary, layout: Layout, progress: Progress
) -> dict[str, Any]:
    chosen = {
        "format": (layout.form, "llmcurate"),
        "val_fraction": (layout.val_fraction, 0.0),
        "val_by": (layout.val_by, "id"),
        "shuffle": (layout.shuffle, None),
        "packing": (layout.packing, "input"),
        "bos": (vocabulary.begin is not None, False),
        "eos": (layout.append_eos, True),
        "tokenizer": (vocabulary.file, "tokenizer.json"),
        "pattern": (None if vocabulary.converted else layout.pattern, None),
        "loss_mask": (layout.loss_mask, None),
        "sampling": (layout.sampling, None),
        "sampling_seed": (layout.sampling_seed, 0),
    }
    aside = progress.folder
    manifests: list[dict[str, Any]] = []
    for side in sides:
        if side.folder != aside or side.name == "train":
            data = vocabulary.converted or read_file(vocabulary.path)
            write_atomic(side.folder / vocabulary.file, data)
            beside = copy_beside(vocabulary.path, side.folder, vocabulary.roles)
            side.files += [vocabulary.file, *beside]
        files = {name: file_digest(side.folder / name) for name in side.files}
        manifests.append(
            {
                "version": VERSION,
                "dtype": side.dtype.name,
                "vocab_size": vocabulary.size,
                "tokenizer_sha256": files.get(vocabulary.file, ""),
                "special_ids": vocabulary.special,
                "bos_token_id": vocabulary.begin,
                "eos_token_id": vocabulary.end,
                "documents": side.documents,
                "tokens": side.tokens,
                "bytes": side.bytes,
                "files": files,
                **({"loss_tokens": side.loss_tokens} if layout.loss_mask else {}),
                **{name: value for name, (value, usual) in chosen.items() if value != usual},
            }
        )
    manifest = manifests[0]
    if len(sides) == 2:
        counts = ("documents", "tokens", "bytes")
        manifest["val"] = {name: manifests[1][name] for name in counts}
        if sides[1].folder == aside:
            manifest["files"] |= manifests[1]["files"]
        else:
            manifests[1]["side"] = "val"
            write_atomic(sides[1].folder / "manifest.json", encode_json(seal(manifests[1])))
            manifest["val"]["manifest_sha256"] = file_digest(sides[1].folder / "manifest.json")
    if layout.sampling is not None:
        manifest["undrawn"] = progress.undrawn
    if progress.unknown:
        lost = "left_out" if vocabulary.encoder.unknown is None else "unknown_tokens"
        manifest[lost] = progress.unknown
    return seal(manifest)


def _commit(progress: Progress, out: Path, files: list[str], manifest: bytes) -> None:
    aside = progress.folder
    for name in files:
        sync_path(aside / name)
    progress.forget()
    (out / "manifest.json").unlink(missing_ok=True)
    val = out / "val"
    if val.is_symlink():  # never write through a link
        val.unlink()
    if (val / "manifest.json").is_file() or (aside / "val").is_dir():
        val.mkdir(exist_ok=True)
        (val / "manifest.json").unlink(missing_ok=True)
        _clear(val)
        for old in val.glob("tokenizer.*"):
            old.unlink()
        if not any(val.iterdir()):
            val.rmdir()
    _clear(out)
    if (aside / "val").is_dir():
        val.mkdir(exist_ok=True)
        names = sorted(path.name for path in (aside / "val").iterdir())
        for name in sorted(names, key="manifest.json".__eq__):
            sync_path(aside / "val" / name)
            (aside / "val" / name).replace(val / name)
        sync_path(val)
    for name in files:
        (aside / name).replace(out / name)
    sync_path(out)
    write_atomic(out / "manifest.json", manifest)


def _clear(folder: Path) -> None:
    for pattern in (*PATTERNS, *BESIDE):
        for old in folder.glob(pattern):
            old.unlink()
