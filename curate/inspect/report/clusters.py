"""The largest clusters of a run's decisions, with the texts of a few members of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.documents.edits import remaining
from curate.errors import UsageError
from curate.inspect.report.store import KEY, Place, Store, opened, places, read_rows
from curate.pages import diff
from curate.run.records import read_record

CHARS = 20_000  # of each text that is compared
PASSAGE = 2_000  # characters of a passage that are shown
ABOUT = ["url", "source", "date", "step"]


@dataclass
class Member:
    """A document, or a passage of one, in a cluster.

    span: bytes of the text as the step received it; None: the whole document. gone: it was dropped,
    or cut. text: None where this run's files do not hold it. difference: to the copy that stays.
    """

    id: str
    gone: bool
    partner: str | None = None
    corpus: str | None = None  # the earlier corpus that the partner lies in
    similarity: float | None = None
    span: tuple[int, int] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    text: str | None = None
    difference: diff.Diff | None = None


@dataclass
class Cluster:
    """stays: None where no copy stays, or where it lies in an earlier corpus; members: the first of
    those that went, the least similar first; similarity: least, median and greatest."""

    method: str
    number: int
    size: int
    kept_id: str | None
    passages: bool
    gone: int
    similarity: tuple[float, float, float] | None
    stays: Member | None = None
    members: list[Member] = field(default_factory=list)


@dataclass
class Browsed:
    """unknown: by method, what went of which no partner is known; total: clusters that fit the
    choice, of which `clusters` are the largest."""

    clusters: list[Cluster]
    total: int
    unknown: dict[str, int]


def browse(out: Path, show: int, method: str | None, least: int, members: int) -> Browsed:
    """The `show` largest clusters of OUT/decisions.parquet with at least `least` members.

    method: as decisions name it, or a --method of dedup; members: how many of each cluster.
    UsageError where OUT holds no decisions, or none of that method.
    """
    with opened(out) as store:
        if store is None:
            raise UsageError(f"{out} holds no corpus/ of a finished run; name a run's OUT")
        if not store.has_decisions:
            raise UsageError(f"{out} holds no decisions.parquet: no dedup ran there")
        chosen = _methods(store, method)
        within = f"method IN ({', '.join('?' * len(chosen))})" if chosen else "false"
        unknown = store.rows(
            f"""SELECT method, count(*) FROM decisions WHERE cluster IS NULL AND {within}
            GROUP BY method ORDER BY method""",
            chosen,
        )
        # A member stays if it has no partner, unless no copy stays at all.
        store.db.execute(
            f"""CREATE OR REPLACE TEMP TABLE browsed AS
            SELECT method, cluster, count(*) AS size, min(kept_id) AS kept_id,
                   count(span_start) > 0 AS passages,
                   count(*) FILTER (partner_id IS NOT NULL OR kept_id IS NULL) AS gone,
                   min(similarity) AS least, median(similarity) AS middle,
                   max(similarity) AS most
            FROM decisions WHERE cluster IS NOT NULL AND {within}
            GROUP BY method, cluster HAVING count(*) >= ?""",
            [*chosen, least],
        )
        ((total,),) = store.rows("SELECT count(*) FROM browsed")
        rows = store.rows(
            "SELECT * FROM browsed ORDER BY size DESC, method, kept_id, cluster LIMIT ?", [show]
        )
        clusters = [_cluster(store, row, members) for row in rows]
        _add_texts(store, clusters, read_record(out))
    return Browsed(clusters, total, dict(unknown))


def _methods(store: Store, wanted: str | None) -> list[str]:
    """Which of the decisions' methods the user means."""
    have = [m for (m,) in store.rows("SELECT DISTINCT method FROM decisions ORDER BY method")]
    if wanted is None:
        return have
    names = {wanted, *_of_command(wanted)}
    found = [m for m in have if m in names or m.partition(":")[0] == wanted]
    if not found:
        raise UsageError(f"--method {wanted}: the decisions are of {', '.join(have) or 'none'}")
    return found


def _of_command(name: str) -> list[str]:
    """How decisions name the steps of a --method of `llmcurate dedup`."""
    from curate.dedup.methods import METHODS
    from curate.steps.recipe import make_step

    found = []
    for part in name.split("+"):
        for step, settings in METHODS.get(part.strip(), ()):
            found.append(str(getattr(make_step(step, settings), "method", "")))
    return found


def _cluster(store: Store, row: tuple[Any, ...], most: int) -> Cluster:
    method, number, size, kept_id, passages, gone, least, middle, greatest = row
    similarity = None if least is None else (least, middle, greatest)
    cluster = Cluster(method, number, size, kept_id, passages, gone, similarity)
    columns = "id, partner_id, partner_corpus, similarity, span_start, span_end"
    mine = "FROM decisions WHERE method = ? AND cluster = ?"
    stays = store.rows(
        f"""SELECT {columns} {mine} AND partner_id IS NULL AND kept_id IS NOT NULL
        ORDER BY id, span_start LIMIT 1""",
        [method, number],
    )
    cluster.stays = _member(stays[0], False) if stays else None
    went = store.rows(
        f"""SELECT {columns} {mine} AND (partner_id IS NOT NULL OR kept_id IS NULL)
        ORDER BY similarity NULLS LAST, {KEY}, id, span_start LIMIT ?""",
        [method, number, most],
    )
    cluster.members = [_member(r, True) for r in went]
    return cluster


def _member(row: tuple[Any, ...], gone: bool) -> Member:
    name, partner, corpus, similarity, start, end = row
    span = None if start is None else (start, end)
    return Member(name, gone, partner, corpus, similarity, span)


def _add_texts(store: Store, clusters: list[Cluster], record: dict[str, Any]) -> None:
    """Reads the texts, and compares each member with the copy that stays."""
    every = [m for c in clusters for m in (c.stays, *c.members) if m is not None]
    found = places(store.paths, [m.id for m in every])
    whole = {found[m.id] for m in every if m.span is None and m.id in found}
    texts = read_rows(whole, ["text", *ABOUT], CHARS)
    about = read_rows(set(found.values()) - whole, ABOUT, 1000)
    order = [s["label"] for s in record["steps"]]
    labels = _labels(record)
    for cluster in clusters:
        label = labels.get(cluster.method)
        for member in (cluster.stays, *cluster.members):
            place = found.get(member.id) if member is not None else None
            if member is None or place is None:
                continue
            row = texts.get(place) or about[place]
            member.about = {k: row[k] for k in ABOUT if row.get(k) is not None}
            if member.span is None:
                member.text = row.get("text") or ""
            elif label is not None:
                member.text = _passage(place, member.span, label, order)
        _compare(cluster)


def _compare(cluster: Cluster) -> None:
    stays = cluster.stays
    if stays is None or stays.text is None:
        return
    for member in cluster.members:
        if member.text is not None:
            member.difference = diff.compare(stays.text, member.text)


def _labels(record: Mapping[str, Any]) -> dict[str, str]:
    """The step behind each method, where it is only one."""
    from curate.steps.recipe import make_step

    found: dict[str, str] = {}
    twice = set()
    for step in record["steps"]:
        try:
            method = getattr(make_step(step["name"], step["settings"]), "method", None)
        except UsageError:  # settings of another version
            continue
        if method in found:
            twice.add(method)
        if method:
            found[method] = step["label"]
    return {m: label for m, label in found.items() if m not in twice}


def _passage(place: Place, span: tuple[int, int], label: str, order: list[str]) -> str | None:
    """The passage as far as the document still holds it; None where nothing is left of it."""
    # One document at a time: a passage may stand anywhere in a long one.
    row = read_rows([place], ["text", "edits", "step"], 1 << 40)[place]
    dropped_by = row.get("step")
    stop = order.index(dropped_by) if dropped_by in order else len(order)
    edits = _from(label, row.get("edits") or (), order[:stop])
    data = (row["text"] or "").encode("utf-8", "replace")
    pieces = [data[a:b] for a, b in remaining([span], edits)]
    text = b" ... ".join(pieces).decode("utf-8", "replace")
    return text[:PASSAGE] or None


def _from(label: str, edits: Iterable[Any], order: list[str]) -> list[dict[str, Any]]:
    """The edits of the step and of those behind it."""
    later = set(order[order.index(label) :]) if label in order else set()
    return [e for e in edits if e["step"] in later]
