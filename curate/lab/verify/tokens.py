"""Check of token shards with tokenizers or sentencepiece, which encode sampled documents again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.formats.inputs import plan_inputs
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from curate.lab.verify.finished_run import PARTS, FinishedRun, first
from curate.lab.verify.tally import NotChecked, NotInRun, Tally, need
from curate.products.tokenizers import ShardsProduct
from llmcurate.base.tokenizer_file import load_tokenizer

Encode = Callable[[str], list[int]]


def check(run: FinishedRun) -> list[Tally]:
    path = run.out / "manifest.json"
    if not run.of(ShardsProduct) or not path.is_file():
        raise NotInRun("the run made no token shards")
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
            at = next(
                (i for i, (x, y) in enumerate(zip(inner, theirs, strict=False)) if x != y),
                min(len(inner), len(theirs)),
            )
            tally.differs(
                name,
                f"{len(inner)} ids, {library} has {len(theirs)}; they differ from position {at}",
            )
        elif not special.issuperset(edge) or len(edges) > 1:
            tally.differs(name, f"begins and ends with {edge}, expected the special ids")
        else:
            tally.agrees()
    return [tally]


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
    texts: dict[str, str] = {}
    names = [file["path"] for file in run.record["inputs"]]
    if names and all(name.endswith(".parquet") for name in names):
        return _of_files(map(Path, names), asked_ids)
    plan = plan_inputs(names)
    for part in range(len(plan.partitions)):
        for batch in PartitionReader(plan, part, ReadSettings()):
            table = batch.docs.table
            ids = table["id"].to_pylist()
            for row, name in enumerate(ids):
                if name in asked_ids:
                    texts[name] = table["text"][row].as_py() or ""
        if len(texts) == len(asked_ids):
            break
    return texts


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
