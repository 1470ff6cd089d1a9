"""OUT/corpus, OUT/rejected and OUT/decisions.parquet from the stages of a finished run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.atomic import replacing, sync_folder, write_text
from curate.database import database, literal, paths_literal
from curate.documents import NUMBER, PAYLOAD, REASON_COLUMNS
from curate.stage import changed_ids, part_path, with_ids
from curate.table_writer import TableWriter, conform

DECISIONS = "id, cluster, kept_id, partner_id, similarity, method, span_start, span_end"


def _public(table: pa.Table) -> pa.Table:
    hidden = [n for n in (NUMBER, *(n for n, _ in PAYLOAD)) if n in table.column_names]
    return table.drop_columns(hidden) if hidden else table


def rejected_schema(folders: list[Path]) -> pa.Schema:
    """All stages' rejected columns: documents and annotations first, reasons last."""
    schema = pa.unify_schemas(
        [_public(pq.read_schema(part_path(f, 0, "rejected")).empty_table()).schema for f in folders]
    )
    fields = [f for f in schema if f.name not in REASON_COLUMNS]
    return pa.schema([*fields, *(schema.field(n) for n in REASON_COLUMNS)])


def _groups(path: Path, changed: dict[int, str], schema: pa.Schema | None, out: TableWriter) -> int:
    """Copies a stage's file row group by row group; returns bytes of text."""
    size = 0
    with pq.ParquetFile(path) as file:
        empty = _public(file.schema_arrow.empty_table())
        out.write(empty if schema is None else schema.empty_table())
        for group in range(file.num_row_groups):
            table = _public(with_ids(file.read_row_group(group, use_threads=False), changed))
            out.write(table if schema is None else conform(table, schema))
            size += pc.sum(pc.binary_length(table["text"])).as_py() or 0
    return size


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def assemble_partition(payload: dict[str, Any]) -> dict[str, Any]:
    """One partition's part of corpus and rejected. folders: the stages' folders in order."""
    part = payload["part"]
    folders = [Path(f) for f in payload["folders"]]
    changed = changed_ids(payload["ids"], part)
    name = f"part-{part:05d}.parquet"
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(payload["rejected_schema"])))
    result: dict[str, Any] = {}
    for kind, sources in (("kept", folders[-1:]), ("rejected", folders)):
        target = Path(payload["corpus" if kind == "kept" else "rejected"]) / name
        writer = TableWriter(target)
        done = False
        try:
            text = 0
            for source in sources:
                renamed = changed if source == folders[0] else {}
                wanted = schema if kind == "rejected" else None
                text += _groups(part_path(source, part, kind), renamed, wanted, writer)
            done = True
        finally:
            writer.close(failed=not done)
        result[kind] = {
            "name": name,
            "documents": writer.rows,
            "text_bytes": text,
            "sha256": _sha256(target),
        }
    return result


# Readers of a whole folder pass over names that begin with an underscore; the corpus's manifest
# keeps the name that the contract gives it.
MANIFESTS = {"corpus": "manifest.json", "rejected": "_manifest.json"}


def write_manifest(folder: Path, name: str, files: list[dict[str, Any]], stage: str) -> None:
    """The folder's manifest, written last: a folder that has one is complete."""
    entries = {f["name"]: {k: v for k, v in f.items() if k != "name"} for f in files}
    manifest = {
        "version": 1,
        "documents": sum(f["documents"] for f in files),
        "text_bytes": sum(f["text_bytes"] for f in files),
        "stage": stage,
        "files": entries,
    }
    write_text(folder / name, json.dumps(manifest, indent=1) + "\n")


def is_complete(folder: Path, stage: str) -> bool:
    """Whether the folder holds every file of its manifest, and of that stage."""
    try:
        manifest = json.loads((folder / MANIFESTS[folder.name]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return manifest["stage"] == stage and all((folder / f).exists() for f in manifest["files"])


def clear_unfinished(out: Path) -> None:
    """Removes what a killed run left beside corpus/ and rejected/."""
    for name in MANIFESTS:
        for path in (out / f".{name}-new", out / f".{name}-old"):
            shutil.rmtree(path, ignore_errors=True)
    for path in (*out.glob(".spill-*"), *out.glob("stages/*/.spill-*")):
        shutil.rmtree(path, ignore_errors=True)


def swap(new: Path, old: Path) -> None:
    """Puts a complete folder in the place of another."""
    aside = old.with_name(f".{old.name}-old")
    shutil.rmtree(aside, ignore_errors=True)
    if old.exists():
        old.rename(aside)
    new.rename(old)
    sync_folder(old.parent)
    shutil.rmtree(aside, ignore_errors=True)


def write_decisions(parts: list[Path], out: Path) -> None:
    """OUT/decisions.parquet: the decisions of every CorpusStep, in their order."""
    with database(out.parent / ".spill-decisions") as db, replacing(out) as aside:
        selects = [
            f"SELECT {i} AS nth, part, n, {DECISIONS} FROM read_parquet({paths_literal([p])})"
            for i, p in enumerate(parts)
        ]
        union = " UNION ALL ".join(selects)
        db.execute(
            f"COPY (SELECT {DECISIONS} FROM ({union}) ORDER BY nth, part, n)"
            f" TO {literal(aside)} (FORMAT parquet)"
        )


def schema_hex(schema: pa.Schema) -> str:
    """A schema as text, for a task's payload."""
    return str(schema.serialize().to_pybytes().hex())
