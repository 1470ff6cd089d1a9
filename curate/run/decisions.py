"""Make and check the decisions of a CorpusStep, a step that needs the whole corpus, such as
deduplication. The check stops a dedup step that would remove too much, before documents are
changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from curate.corpus import journal
from curate.corpus.indexes import Index, earlier_files
from curate.corpus.manifests import part_path, read_kept
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import MARK, Run, SketchedCorpus, Sketches, run_here
from curate.dedup.removal import DedupStep, DocumentDedup
from curate.documents.documents import NUMBER
from curate.run.messages import Resolved, ResolveTask
from curate.steps.contracts import CorpusStep
from curate.steps.failures import failing
from llmcurate.base.disk.database import literal, scratch_database
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.seals import seal
from llmcurate.base.disk.store import current
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import TooMuchRemoved

SUPERSEDED = "superseded.parquet"  # earlier documents replaced by newer versions


def resolve(
    step: CorpusStep,
    corpus: SketchedCorpus,
    own: Path,
    decisions: Path,
    size: tuple[int, int],
    workers: int,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> Resolved:
    """Let a step decide on all documents of a corpus, and write its decisions to the file
    `decisions`. Return a summary. `own` is the step's folder. `size` is (documents, bytes of text)
    that reached the step. `run` is a function that runs the step's tasks, and `sizes` has the sizes
    of tasks."""
    began = time.perf_counter()
    earlier = step.earlier()
    for index in earlier:
        index.check()
    own.mkdir(exist_ok=True)
    with (
        scratch_database(corpus.folder / ".spill-resolve", workers) as db,
        replacing(decisions) as aside,
    ):
        files = (*earlier_files(earlier), *corpus.files())
        named = tuple((index.name, index.step_folder) for index in earlier)
        whole = corpus.folder / ".spill-resolve" / "with-earlier.parquet" if earlier else aside
        sketches = Sketches(db, whole, own, files, named, run, sizes)
        if step.keeps_newest or not step.in_tasks:
            sketches.make_view()
        with journal.resolving(own), failing(step.label):
            counts = step.resolve(sketches).record()
            if isinstance(step, DocumentDedup) and step.keep == "none":
                _drop_all(db, whole, step.method)
                counts["dropped"] = counts["members"]
            if earlier and step.replaces:
                counts["superseded"] = _superseded(db, whole, own / SUPERSEDED)
        if earlier:
            counts |= _own_decisions(db, whole, aside, earlier)
            for index in earlier:  # again, because the index was read meanwhile
                index.check()
        if step.keeps_newest:
            counts["notices"] = [*counts.get("notices", []), *undated(db, step.label)]
        if notice := overlooked(step, corpus.folder, corpus.parts, aside):
            counts["notices"] = [*counts.get("notices", []), notice]
        if step.most_removed is not None:
            counts["removal"] = _removal(db, aside, size, counts.pop("cut", None))
    seconds = round(time.perf_counter() - began, 3)
    return Resolved({**counts, "seconds": seconds}, seal(decisions))


def undated(db: Any, label: str) -> list[str]:
    """Return a notice if the step keeps the newest duplicate but some documents have no date."""
    if "date" not in [row[0] for row in db.execute("DESCRIBE sketches").fetchall()]:
        return []
    documents, dated = db.execute("SELECT count(*), count(date) FROM sketches").fetchone()
    if documents == dated:
        return []
    if not dated:
        return [
            f"{label}: the newest duplicate is to be kept, but none of"
            f" {counted(documents, 'document')} has a date, so the one of least id was kept; name"
            " the date column by --date-column, or choose another survivor"
        ]
    return [
        f"{label}: {documents - dated:,} of {counted(documents, 'document')} have no date; they"
        " are kept only if no duplicate has one"
    ]


def resolve_one_partition(task: ResolveTask) -> Resolved:
    from curate.run.worker.stage import load_stage

    stage = load_stage(task.spec)
    step = stage.sketch
    assert step is not None
    corpus = SketchedCorpus(stage.folder, 1, stage.spec.sketch_kind, task.ids_changed)
    return resolve(step, corpus, task.own, task.decisions, task.size, 1, sizes=task.sizes)


def _drop_all(db: Any, path: Path, method: str) -> None:
    """Change decisions so that all members of the clusters of the method `method` are dropped. The
    decision on the document that was to be kept then names the most similar other member."""
    decided = f"read_parquet({literal(path)})"
    nearest = "partner_id = kept_id DESC, similarity DESC, id"
    with replacing(path) as aside:
        db.execute(
            f"""COPY (
            WITH members AS (
              SELECT *, method = '{method}' AND cluster IS NOT NULL AS mine FROM {decided}),
            nearest AS (
              SELECT cluster, id, similarity FROM members WHERE mine AND "drop"
              QUALIFY row_number() OVER (PARTITION BY cluster ORDER BY {nearest}) = 1)
            SELECT m.* EXCLUDE (mine) REPLACE (
              m."drop" OR m.mine AS "drop",
              CASE WHEN NOT m.mine THEN m.kept_id END AS kept_id,
              CASE WHEN m.mine THEN coalesce(m.partner_id, o.id) ELSE m.partner_id END
                AS partner_id,
              CASE WHEN m.mine THEN coalesce(m.similarity, o.similarity) ELSE m.similarity END
                AS similarity)
            FROM members m LEFT JOIN nearest o ON m.mine AND m.cluster = o.cluster
            ORDER BY m.part, m.n
            ) TO {literal(aside)} (FORMAT parquet)"""
        )


def _superseded(db: Any, whole: Path, path: Path) -> int:
    mark = literal(MARK)
    start = f"instr(substr(id, 2), {mark}) + 2"
    with replacing(path) as aside:
        db.execute(
            f"""COPY (
            SELECT substr(id, {start}) AS id, kept_id AS "by" FROM read_parquet({literal(whole)})
            WHERE part < 0 AND "drop" AND NOT starts_with(kept_id, {mark}) ORDER BY 1
            ) TO {literal(aside)} (FORMAT parquet)"""
        )
    row = db.execute(f"SELECT count(*) FROM read_parquet({literal(path)})").fetchone()
    return int(row[0])


def _own_decisions(
    db: Any, whole: Path, path: Path, earlier: list[Index]
) -> dict[str, int | dict[str, int]]:
    # MARK, corpus, MARK, id; the id may also contain MARK
    def second(column: str) -> str:
        return f"instr(substr({column}, 2), {mark})"

    def plain(column: str) -> str:
        rest = f"substr({column}, {second(column)} + 2)"
        return f"CASE WHEN starts_with({column}, {mark}) THEN {rest} ELSE {column} END"

    mark = literal(MARK)
    name = f"substr(partner_id, 2, {second('partner_id')} - 1)"
    db.execute(
        f"""COPY (
        SELECT * REPLACE ({plain("kept_id")} AS kept_id, {plain("partner_id")} AS partner_id),
               CASE WHEN starts_with(partner_id, {mark}) THEN {name} END AS partner_corpus
        FROM read_parquet({literal(whole)}) WHERE part >= 0
        ORDER BY part, n, span_start NULLS FIRST, span_end
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    rows = db.execute(
        f"""SELECT count(DISTINCT cluster), count(*) FILTER ("drop" OR cluster IS NOT NULL),
               count(*) FILTER ("drop")
        FROM read_parquet({literal(path)})"""
    ).fetchone()
    counts = dict(zip(("clusters", "members", "dropped"), map(int, rows), strict=True))
    by_corpus = db.execute(
        f"""SELECT partner_corpus, count(*) FROM read_parquet({literal(path)})
        WHERE "drop" AND partner_corpus IS NOT NULL GROUP BY 1 ORDER BY 1"""
    ).fetchall()
    hits = dict(by_corpus)
    return {**counts, "against": {index.name: hits.get(index.name, 0) for index in earlier}}


def _removal(
    db: Any, path: Path, size: tuple[int, int], cut: int | None
) -> dict[str, list[int] | str]:
    """Return how much a step removes: {"documents": [dropped, all], "bytes": [cut, all], "most":
    text on the document with the most duplicates}. `size` is (all documents, all bytes). `cut` is
    the number of bytes cut from kept documents if the step has counted them, else None."""
    source = f"read_parquet({literal(path)})"
    if cut is not None:
        return {"documents": [0, size[0]], "bytes": [cut, size[1]], "most": _largest(db, source)}
    gone, cut = db.execute(
        f"""WITH spans AS (
          SELECT span_start AS a, span_end AS z, coalesce(max(span_end) OVER (
            PARTITION BY part, n ORDER BY span_start, span_end
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS seen
          FROM {source} WHERE "drop" AND span_start IS NOT NULL)
        SELECT (SELECT count(DISTINCT (part, n)) FROM {source}
                WHERE "drop" AND span_start IS NULL),
               (SELECT coalesce(sum(greatest(0, z - greatest(a, seen))), 0)::BIGINT FROM spans)"""
    ).fetchone()
    return {"documents": [gone, size[0]], "bytes": [cut, size[1]], "most": _largest(db, source)}


def guard(
    step: CorpusStep,
    documents: Sequence[int],
    bytes: Sequence[int],
    most: str,
    against: Mapping[str, int] = {},
) -> None:
    """Raise TooMuchRemoved if a dedup step would remove more than its `max_removal`. `documents`
    and `bytes` hold (number removed, number of all); `most` is a text on the largest cluster;
    `against` maps earlier corpora to the numbers of duplicates that they have. The decisions are
    kept, so a run with a higher limit continues from them."""
    limit = step.most_removed
    if limit is None:
        return
    for unit, (part, all_) in (("documents", documents), ("bytes", bytes)):
        if all_ and part / all_ > limit:
            there = "".join(
                f"; {n:,} duplicates are in {name} already" for name, n in against.items() if n
            )
            stop = TooMuchRemoved(
                f"{step.label} would remove {part:,} of {all_:,} {unit} ({part / all_:.1%}), more"
                f" than max_removal {limit:g}{there}{most}; nothing was removed."
                " If that is right, raise the limit: --max-removal 1, or max_removal in the recipe"
            )
            stop.share = part / all_
            raise stop


def _largest(db: Any, source: str) -> str:
    row = db.execute(
        f"""SELECT kept_id, count(*) FROM {source} WHERE "drop" AND kept_id IS NOT NULL
        GROUP BY kept_id ORDER BY 2 DESC, 1 LIMIT 1"""
    ).fetchone()
    return f"; {row[0]} has the most duplicates ({row[1]:,})" if row else ""


# The sample: at most this many texts, characters per text, and partitions.
TEXTS, MOST_CHARS, PARTS = 500, 20_000, 4


def overlooked(step: CorpusStep, folder: Path, parts: int, decisions: Path) -> str | None:
    """Return a notice if the dedup step missed texts that are equal after Unicode's NFKC_Casefold.
    Only a sample of the kept texts is compared. `folder` is the folder of the stage whose documents
    were deduplicated, and `parts` is its number of partitions."""
    if not isinstance(step, DedupStep) or not step.of_texts or step.compare != "raw":
        return None
    from curate.text.compared import nfkc_casefold

    texts: set[str] = set()
    with suppress(OSError, ValueError):  # damage is reported when the whole file is read
        texts.update(islice(_kept_texts(folder, parts, decisions), TEXTS))
    more = len(texts) - len(set(map(nfkc_casefold, texts)))
    if not more:
        return None
    return (
        f"{step.label}: in a sample of {counted(len(texts), 'kept text')}, {more:,} differ from"
        " another only in case, width or Unicode form; `compare: nfkc_cf` finds these too"
    )


def _kept_texts(folder: Path, parts: int, decisions: Path) -> Iterator[str]:
    for part in np.random.default_rng(parts).permutation(parts)[:PARTS].tolist():
        paths = [part_path(folder, part, kind) for kind in ("kept", "keys")]
        if not all(map(current().holds, paths)):  # a rehearsal has only sketches
            continue
        for path in paths:
            current().read(path)
        of_part = [("part", "==", part), ("drop", "==", True)]
        gone = {*pq.read_table(decisions, columns=["n"], filters=of_part)["n"].to_pylist()}
        for batch in read_kept(folder, part, 100):
            for n, text in zip(*(batch[c].to_pylist() for c in (NUMBER, "text")), strict=True):
                if text and n not in gone and len(text) < MOST_CHARS:
                    yield text
