"""Check of token shards and tokenizers with tokenizers or sentencepiece, which encode sampled
documents again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.formats.reading import PartitionReader, plan_reading
from curate.lab.verify.finished_run import PARTS, FinishedRun, draw, first
from curate.lab.verify.tally import NotChecked, NotInRun, Tally, need
from curate.products.tokenizers import ShardsProduct, TokenizerProduct
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import pack

Encode = Callable[[str], list[int]]


def check(run: FinishedRun) -> list[Tally]:
    path = run.out / "manifest.json"
    if not run.of(ShardsProduct) or not path.is_file():
        return _of_tokenizers(run)
    manifest = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("format", "llmcurate") != "llmcurate":
        raise NotChecked(f"token shards in the format {manifest['format']} cannot be checked")
    library, encode = _encoder(run.out, manifest.get("tokenizer", "tokenizer.json"))
    tally = Tally(library, "token ids of documents")
    stored = _stored(run, manifest["dtype"])
    texts = _texts(run, set(stored))
    begin, end = manifest.get("bos", False), manifest.get("eos", True)
    edge_ids = {manifest.get("bos_token_id"), manifest.get("eos_token_id")}
    special = edge_ids.union(manifest["special_ids"].values())
    edges: set[tuple[int, ...]] = set()
    for name, tokens in sorted(stored.items()):
        if name not in texts:
            tally.differs(name, "the document is not in the corpus")
            continue
        inner = tokens[1 if begin else 0 : len(tokens) - 1 if end else None]
        edge = tuple(tokens[:1] * begin + tokens[-1:] * end)
        edges.add(edge)
        theirs = encode(texts[name])
        if inner != theirs:
            tally.differs(name, _difference(inner, theirs, library))
        elif not special.issuperset(edge) or len(edges) > 1:
            tally.differs(name, f"begins and ends with {edge}, expected the special ids")
        else:
            tally.agrees()
    return [tally]


def _of_tokenizers(run: FinishedRun) -> list[Tally]:
    """Compare the ids of sampled documents: ours and those of a library."""
    files = sorted({*run.out.glob("tokenizer.json"), *run.out.glob("*/tokenizer.json")})
    if not run.of(TokenizerProduct) or not files:
        raise NotInRun("the run made neither token shards nor tokenizers")
    need("tokenizers", "tokenizers")
    texts = {document.id: document.text.decode() for document in run.sample if document.kept}
    if not run.kept:
        drawn = nsmallest(run.documents, _inputs(run, PARTS), lambda row: draw(run.seed, row[0]))
        texts = dict(drawn)
    data, offsets = pack([text.encode() for text in texts.values()])
    tallies = []
    for file in files:
        tokenizer = load_tokenizer(file)
        ids, counts = Encoder(tokenizer).encode(data, offsets)
        ours = np.split(ids, np.cumsum(counts)[:-1])
        tally = Tally("tokenizers", f"token ids of documents, {file.relative_to(run.out)}")
        for (name, text), own in zip(texts.items(), ours, strict=True):
            theirs = tokenizer.encode(text, add_special_tokens=False).ids
            if own.tolist() == theirs:
                tally.agrees()
            else:
                tally.differs(name, _difference(own.tolist(), theirs, "tokenizers"))
        tallies.append(tally)
    return tallies


def _difference(own: list[int], theirs: list[int], library: str) -> str:
    pairs = enumerate(zip(own, theirs, strict=False))
    at = next((i for i, (x, y) in pairs if x != y), min(len(own), len(theirs)))
    return f"{len(own)} ids, {library} has {len(theirs)}; they differ from position {at}"


def _encoder(out: Path, name: str) -> tuple[str, Encode]:
    if name not in ("tokenizer.json", "tokenizer.model"):
        raise NotChecked(f"{name} is neither tokenizer.json nor tokenizer.model")
    path = out / name
    if not path.is_file():
        raise NotChecked(f"{path} is missing: encode again")
    if name == "tokenizer.json":
        need("tokenizers", "tokenizers")
        tokenizer = load_tokenizer(path)
        return "tokenizers", lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    need("sentencepiece", "sentencepiece")
    from sentencepiece import SentencePieceProcessor

    processor: Any = SentencePieceProcessor(model_file=str(path))
    return "sentencepiece", lambda text: list(processor.encode(text))


def _stored(run: FinishedRun, name: str) -> dict[str, list[int]]:
    dtype = np.dtype(name).newbyteorder("<")
    tables = [*run.out.glob("documents-*.parquet"), *run.out.glob("val/documents-*.parquet")]
    stored: dict[str, list[int]] = {}
    drawn = first(run.seed, sorted(tables), PARTS)
    for table in drawn:
        number = table.stem.rpartition("-")[2]
        ids = pq.read_table(table, columns=["id"])["id"].to_pylist()
        ends = np.fromfile(table.parent / f"tokens-{number}.idx", "<u8").astype(np.int64)
        tokens = np.memmap(table.parent / f"tokens-{number}.bin", dtype, "r")
        begins = np.concatenate([[0], ends[:-1]])
        rows = first(run.seed, range(len(ids)), max(1, run.documents // len(drawn)))
        for row in rows:
            stored[ids[row]] = tokens[int(begins[row]) : int(ends[row])].tolist()
    return stored


def _texts(run: FinishedRun, asked_ids: set[str]) -> dict[str, str]:
    for folder in ("mix", "corpus"):
        if (run.out / folder).is_dir():
            return _of_files((run.out / folder).glob("part-*.parquet"), asked_ids)
    names = [file["path"] for file in run.record["inputs"]]
    if names and all(name.endswith(".parquet") for name in names):
        return _of_files(map(Path, names), asked_ids)
    asked = (document for document in _inputs(run) if document[0] in asked_ids)
    return dict(islice(asked, len(asked_ids)))


def _inputs(run: FinishedRun, parts: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of the documents in the run's input files, or in `parts` partitions."""
    plan = plan_reading([file["path"] for file in run.record["inputs"]], run.read)
    every = range(len(plan.partitions))
    for part in first(run.seed, every, len(every) if parts is None else parts):
        for batch in PartitionReader(plan, part, run.read):
            ids, texts = (batch.docs.table[name].to_pylist() for name in ("id", "text"))
            yield from ((name, text or "") for name, text in zip(ids, texts, strict=True))


def _of_files(paths: Iterable[Path], asked_ids: set[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in sorted(paths):
        if not path.is_file():
            raise NotChecked(f"the encoded documents {path} are missing: encode again")
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                ids = file.read_row_group(group, ["id"])["id"].to_pylist()
                rows = [row for row, name in enumerate(ids) if name in asked_ids]
                if rows:
                    column = file.read_row_group(group, ["text"])["text"].take(pa.array(rows))
                    texts.update(zip((ids[r] for r in rows), column.to_pylist(), strict=True))
    return texts
