"""Write OUT/corpus, OUT/rejected and OUT/decisions.parquet from the files of finished stages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.manifests import (
    FOLDERS,
    changed_ids,
    file_ids_hash,
    manifest_path,
    part_path,
    public,
    read_kept,
    with_ids,
)
from curate.documents.attributes import pack
from curate.documents.rejected import FOLDER, joined_schema
from curate.engines.base import cpu_seconds
from curate.run.messages import Assembled, AssembleTask, FileRecord
from llmcurate.base.disk.database import literal, scratch_database
from llmcurate.base.disk.files import clear_temporary, file_digest, remove, replacing, sync_path
from llmcurate.base.disk.parquet_writer import conform, writing
from llmcurate.base.disk.store import current, verify

BATCH_ROWS = 1000
DECISIONS = "id, cluster, kept_id, partner_id, similarity, method, span_start, span_end"
OTHER_CORPUS = "partner_corpus"


def rejected_schema(folders: list[Path]) -> str:
    """Return the schema of rejected/ in hexadecimal, from the rejected files of stages."""
    schemas = [pq.read_schema(part_path(folder, 0, FOLDER)) for folder in folders]
    joined = joined_schema([public(schema.empty_table()).schema for schema in schemas])
    return str(joined.serialize().to_pybytes().hex())


def _write_renamed(folder: Path, part: int, changed: dict[int, str], target: Path) -> FileRecord:
    schema = pq.read_schema(part_path(folder, part, "kept"))
    own = schema.names
    with writing(target) as writer:
        writer.write(schema.empty_table())
        for table in read_kept(folder, part, BATCH_ROWS):
            writer.write(pack(public(with_ids(table, changed)), own))
    return {"documents": writer.rows, "sha256": file_digest(target)}


def _write_rejected(
    task: AssembleTask, changed: dict[int, str], schema: pa.Schema, target: Path
) -> FileRecord:
    size = 0
    folders, part, own = task.folders, task.part, task.own
    with writing(target) as writer:
        writer.write(pack(schema.empty_table(), own))
        for folder in folders:
            own_ids = changed if folder == folders[0] else {}
            with pq.ParquetFile(part_path(folder, part, FOLDER)) as file:
                for group in range(file.num_row_groups):
                    table = with_ids(file.read_row_group(group, use_threads=False), own_ids)
                    writer.write(pack(conform(public(table), schema), own))
                    size += pc.sum(pc.binary_length(table["text"])).as_py() or 0
    return {"documents": writer.rows, "text_bytes": size, "sha256": file_digest(target)}


def assemble_partition(task: AssembleTask) -> Assembled:
    """Write one partition of the corpus and of the rejected documents."""
    began = cpu_seconds()
    verify(task.sealed, task.shared)
    part, folders = task.part, task.folders
    changed = changed_ids(str(task.ids), part)
    name = f"part-{part:05d}.parquet"
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(task.schema)))
    target = task.corpus / name
    if changed and len(folders) == 1:
        kept = _write_renamed(folders[0], part, changed, target)
    else:
        source = part_path(folders[-1], part, "kept")
        with replacing(target) as aside:
            shutil.copyfile(source, aside)
        kept = {"documents": pq.read_metadata(source).num_rows, "sha256": file_digest(target)}
    kept |= {"name": name, "text_bytes": task.kept_bytes, "ids": file_ids_hash(target)}
    rejected_target = task.rejected / name
    rejected = _write_rejected(task, changed, schema, rejected_target)
    current().put(target, rejected_target)
    changes = target.stat().st_mtime_ns, rejected_target.stat().st_mtime_ns
    return Assembled(kept, {"name": name, **rejected}, *changes, cpu_seconds() - began)


def clear_unfinished(out: Path) -> None:
    for name in FOLDERS:
        for path in (out / f".{name}-new", out / f".{name}-old"):
            remove(path, inside=out)
    for path in (*out.glob(".spill-*"), *out.glob("stages/*/.spill-*")):
        remove(path, inside=out)


def swap(new: Path, old: Path) -> None:
    """Replace the folder `old` by `new`, which is complete. The manifest of `old` is removed first,
    so that no reader takes it for the manifest of `new`."""
    clear_temporary(new)
    manifest_path(old).unlink(missing_ok=True)
    aside = old.with_name(f".{old.name}-old")
    remove(aside, inside=old.parent)
    if old.exists():
        old.rename(aside)
    new.rename(old)
    sync_path(old.parent)
    remove(aside, inside=old.parent)


def write_decisions(parts: list[Path], out: Path) -> None:
    """Write OUT/decisions.parquet: the decisions of every CorpusStep (a step that needs the whole
    corpus, such as deduplication), in the order of the steps. The file has the column
    partner_corpus if any step compared with earlier corpora."""
    named = [OTHER_CORPUS in pq.read_schema(path).names for path in parts]
    selects = []
    for nth, (path, has_corpus) in enumerate(zip(parts, named, strict=True)):
        corpus = OTHER_CORPUS if has_corpus else f"NULL::VARCHAR AS {OTHER_CORPUS}"
        source = f"read_parquet({literal(path)})"
        # Leave out rows that only hold measures: they drop no document and belong to no cluster.
        relevant = f'{source} WHERE "drop" OR cluster IS NOT NULL'
        selects.append(f"SELECT {nth} AS nth, part, n, {DECISIONS}, {corpus} FROM {relevant}")
    columns = f"{DECISIONS}, {OTHER_CORPUS}" if any(named) else DECISIONS
    union = " UNION ALL ".join(selects)
    with scratch_database(out.parent / ".spill-decisions") as db, replacing(out) as aside:
        db.execute(
            f"COPY (SELECT {columns} FROM ({union}) ORDER BY nth, part, n, span_start)"
            f" TO {literal(aside)} (FORMAT parquet)"
        )
