"""Clusters of duplicates: sizes, similarities and a few pairs for the report, and the largest
clusters of a run with texts and differences (`llmcurate dedup clusters`)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curate.documents.edits import EDITS, edits_of, remaining
from curate.inspect.report.store import (
    KEY,
    Histogram,
    Position,
    Range,
    Store,
    edges_of,
    find_rows,
    opened,
    read_rows,
)
from curate.run.homes import corpus_of
from curate.run.records import read_record
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.pages.html import Diff, compare, plain
from llmcurate.base.terminal import width, wrapped

PAIRS = 2  # chosen by hash, besides the least similar pair
CHARS = 20_000  # of each text that is compared
SIZES = (2, 3, 4, 5, 10, 20, 50, 100, 1000)  # a cluster counts for the largest bound it reaches
LARGEST = 5
FETCH = 100_000


@dataclass(frozen=True)
class Pair:
    """A dropped document and the document that it duplicates."""

    id: str  # of the dropped document
    partner: str  # id of the other document
    similarity: float
    text: str  # of the dropped document
    other: str  # text of the other document


@dataclass
class Method:
    """Figures of one dedup method. `sizes` maps each bound of SIZES to the number of clusters that
    have at least this many members and fewer than the next bound."""

    JSON = (
        "clusters", "members", "of", "dropped", "sizes", "largest", "unknown?",
        "unknown_whole?unknown", "similarity?",
    )  # fmt: skip
    name: str
    clusters: int = 0
    members: int = 0  # whole documents, or passages if `passages` is True
    passages: bool = False  # True if the method removes passages
    unknown: int | None = None  # dropped without a cluster: the earlier document is not recorded
    unknown_whole: int = 0  # whole documents among `unknown`
    dropped: int = 0  # members that were removed
    sizes: dict[int, int] = field(default_factory=dict)
    largest: list[tuple[int, str | None]] = field(default_factory=list)  # members, kept id
    similarity: Histogram | None = None
    pairs: list[Pair] = field(default_factory=list)

    @property
    def counted(self) -> bool:
        return bool(self.members or self.unknown)

    @property
    def of(self) -> str:
        return "passages" if self.passages else "documents"


def gather(store: Store) -> dict[str, Method]:
    """Return {method: figures} for the dedup methods in decisions.parquet."""
    if not store.has_decisions:
        return {}
    # A member was dropped if it has a partner, or if no duplicate is kept.
    store.db.execute(
        """CREATE OR REPLACE TEMP TABLE clusters AS
        SELECT method, cluster, count(*) AS size, min(kept_id) AS kept_id,
               count(*) FILTER (partner_id IS NOT NULL OR kept_id IS NULL) AS gone
        FROM decisions WHERE cluster IS NOT NULL GROUP BY method, cluster"""
    )
    methods = []
    for name, unknown, whole, spans in store.rows(
        """SELECT method, count(*) - count(cluster),
               count(*) FILTER (cluster IS NULL AND span_start IS NULL), count(span_start)
        FROM decisions GROUP BY method ORDER BY method"""
    ):
        ((clusters, members, gone),) = store.rows(
            """SELECT count(*), coalesce(sum(size), 0)::BIGINT, coalesce(sum(gone), 0)::BIGINT
            FROM clusters WHERE method = ?""",
            [name],
        )
        method = Method(name, clusters, members, spans > 0, unknown or None, whole, gone)
        for size, n in store.rows(
            "SELECT size, count(*) FROM clusters WHERE method = ? GROUP BY size ORDER BY size",
            [name],
        ):
            bound = max((s for s in SIZES if s <= size), default=SIZES[0])
            method.sizes[bound] = method.sizes.get(bound, 0) + n
        method.largest = store.rows(
            f"""SELECT size, kept_id FROM clusters WHERE method = ?
            ORDER BY size DESC, kept_id LIMIT {LARGEST}""",
            [name],
        )
        _similarities(store, method)
        methods.append(method)
    _pairs(store, methods)
    return {method.name: method for method in methods}


def _similarities(store: Store, method: Method) -> None:
    where = "FROM decisions WHERE method = ? AND similarity IS NOT NULL"
    ((least, most, n),) = store.rows(
        f"SELECT min(similarity), max(similarity), count(*) {where}", [method.name]
    )
    if not n or least == most:
        return
    method.similarity = edges_of(Range(False, n, least, most))
    at = store.db.execute(f"SELECT similarity {where}", [method.name])
    while rows := at.fetchmany(FETCH):
        method.similarity.add(np.array([r[0] for r in rows], np.float64))


def _pairs(store: Store, methods: list[Method]) -> None:
    chosen: dict[str, list[tuple[str, str, float]]] = {}
    for method in methods:
        if method.passages:
            continue  # the report shows passages as examples of cuts
        part = """FROM decisions WHERE method = ? AND partner_id IS NOT NULL AND partner_id <> id
        AND partner_corpus IS NULL"""
        rows = store.rows(
            f"SELECT id, partner_id, similarity {part} ORDER BY similarity, {KEY}, id LIMIT 1",
            [method.name],
        )
        rows += store.rows(
            f"SELECT id, partner_id, similarity {part} ORDER BY {KEY}, id LIMIT {PAIRS}",
            [method.name],
        )
        unique = dict.fromkeys((a, b, 1.0 if s is None else s) for a, b, s in rows)
        most = 1 if method.similarity is None else PAIRS + 1
        chosen[method.name] = list(unique)[:most]
    ids = sorted({i for rows in chosen.values() for a, b, _ in rows for i in (a, b)})
    if not ids:
        return
    positions = store.find(ids)
    texts = read_rows(positions.values(), ["text"], CHARS)
    for method in methods:
        for a, b, similarity in chosen.get(method.name, ()):
            if a in positions and b in positions:
                first, second = (texts[positions[i]]["text"] or "" for i in (a, b))
                method.pairs.append(Pair(a, b, similarity, first, second))


PASSAGE = 2_000  # characters shown of a passage
ABOUT = ["url", "source", "date", "step"]


class DiffPart(NamedTuple):
    """A run of words in the kept (`stays`) and the dropped duplicate (`went`)."""

    stays: str
    went: str
    equal: bool  # True if both have the same words


@dataclass
class Member:
    """A document or a passage in a cluster of duplicates."""

    JSON = (
        "id", "partner_id=partner", "partner_corpus=corpus", "similarity", "span", "url?",
        "source?", "date?", "step?", "text=excerpt!difference",
        "same_words=difference.equal?difference", "diff?difference",
    )  # fmt: skip
    id: str
    gone: bool  # True if it was dropped
    partner: str | None = None  # id of the document that it duplicates
    corpus: str | None = None  # the earlier corpus that holds the partner
    similarity: float | None = None
    span: tuple[int, int] | None = None  # (start, end) of a passage in bytes
    url: str | None = None
    source: str | None = None
    date: str | None = None
    step: str | None = None
    text: str | None = None  # if the run's files hold it
    difference: Diff | None = None  # from the kept member's text

    @property
    def diff(self) -> list[DiffPart]:
        runs = self.difference.runs if self.difference is not None else []
        return [DiffPart("".join(stays), "".join(went), same) for stays, went, same in runs]

    @property
    def excerpt(self) -> str | None:
        return None if self.text is None else self.text[:EXCERPT]


@dataclass
class Cluster:
    """A cluster of duplicates. `stays` is the kept member, or None if the recipe keeps none or if
    an earlier corpus holds it."""

    JSON = (
        "method", "cluster=number", "size", "gone", "of", "kept_id", "similarity", "stays",
        "members",
    )  # fmt: skip
    method: str
    number: int
    size: int
    kept_id: str | None
    passages: bool
    gone: int
    similarity: tuple[float, float, float] | None  # least, median, greatest
    stays: Member | None = None
    members: list[Member] = field(default_factory=list)  # dropped, the least similar first

    @property
    def of(self) -> str:
        return "passages" if self.passages else "documents"


@dataclass
class ClusterList:
    """The largest clusters that match a search."""

    JSON = ("total", "unknown", "clusters")
    clusters: list[Cluster]
    total: int  # number of all matching clusters
    unknown: dict[str, int]  # method -> duplicates without a recorded cluster


def browse(out: Path, show: int, method: str | None, least: int, members: int) -> ClusterList:
    """Return the `show` largest clusters of OUT/decisions.parquet with at least `least` members.

    `method` is a method's name in the decisions, or a value of `llmcurate dedup --method`. At most
    `members` members of each cluster are returned. Raises UsageError if OUT holds no decisions, or
    none of that method, or if OUT is a HOME.
    """
    if corpus_of(out).is_home:
        raise UsageError(
            f"{out} holds several runs (refresh), whose clusters are not joined: see the duplicates"
            f" of a document with `llmcurate browse {shlex.quote(str(out))}`"
        )
    with opened(out) as store:
        if store is None:
            raise UsageError(f"{out} holds no corpus/ of a finished run: give the OUT of a run")
        if not store.has_decisions:
            raise UsageError(f"{out} holds no decisions.parquet: its recipe has no dedup step")
        chosen = _methods(store, method)
        within = f"method IN ({', '.join('?' * len(chosen))})" if chosen else "false"
        unknown = store.rows(
            f"""SELECT method, count(*) FROM decisions WHERE cluster IS NULL AND {within}
            GROUP BY method ORDER BY method""",
            chosen,
        )
        # A member is kept if it has no partner, unless the recipe keeps none.
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
        _add_texts(store, clusters, *_steps(out))
    return ClusterList(clusters, total, dict(unknown))


def _methods(store: Store, asked: str | None) -> list[str]:
    have = [m for (m,) in store.rows("SELECT DISTINCT method FROM decisions ORDER BY method")]
    if asked is None:
        return have
    names = {asked, *_of_command(asked)}
    matches = [m for m in have if m in names or m.partition(":")[0] == asked]
    if not matches:
        raise UsageError(
            f"--method {asked}: no decisions of this method; known: {', '.join(have) or 'none'}"
        )
    return matches


def _of_command(name: str) -> list[str]:
    from curate.dedup.methods import methods
    from curate.steps.recipe import make_step

    names = []
    for part in name.split("+"):
        for step, settings in methods().get(part.strip(), ()):
            names.append(str(getattr(make_step(step, settings), "method", "")))
    return names


def _cluster(store: Store, row: tuple[Any, ...], most: int) -> Cluster:
    method, number, size, kept_id, passages, gone, least, middle, greatest = row
    similarity = None if least is None else (least, middle, greatest)
    cluster = Cluster(method, number, size, kept_id, passages, gone, similarity)
    columns = "id, partner_id, partner_corpus, similarity, span_start, span_end"
    of_cluster = "FROM decisions WHERE method = ? AND cluster = ?"
    stays = store.rows(
        f"""SELECT {columns} {of_cluster} AND partner_id IS NULL AND kept_id IS NOT NULL
        ORDER BY id, span_start LIMIT 1""",
        [method, number],
    )
    cluster.stays = _member(stays[0], False) if stays else None
    went = store.rows(
        f"""SELECT {columns} {of_cluster} AND (partner_id IS NOT NULL OR kept_id IS NULL)
        ORDER BY similarity NULLS LAST, {KEY}, id, span_start LIMIT ?""",
        [method, number, most],
    )
    cluster.members = [_member(r, True) for r in went]
    return cluster


def _member(row: tuple[Any, ...], gone: bool) -> Member:
    name, partner, corpus, similarity, start, end = row
    span = None if start is None else (start, end)
    return Member(name, gone, partner, corpus, similarity, span)


def _add_texts(
    store: Store, clusters: list[Cluster], order: list[str], labels: dict[str, str]
) -> None:
    members = [m for c in clusters for m in (c.stays, *c.members) if m is not None]
    positions = find_rows(store.paths, [m.id for m in members])
    whole = {positions[m.id] for m in members if m.span is None and m.id in positions}
    texts = read_rows(whole, ["text", *ABOUT], CHARS)
    about = read_rows(set(positions.values()) - whole, ABOUT, 1000)
    for cluster in clusters:
        label = labels.get(cluster.method)
        for member in (cluster.stays, *cluster.members):
            position = positions.get(member.id) if member is not None else None
            if member is None or position is None:
                continue
            row = texts.get(position) or about[position]
            member.url, member.source, member.date, member.step = (
                None if row.get(k) is None else str(row[k]) for k in ABOUT
            )
            if member.span is None:
                member.text = row.get("text") or ""
            elif label is not None:
                member.text = _passage(position, member.span, label, order)
        if cluster.stays is not None and cluster.stays.text is not None:
            for member in cluster.members:
                if member.text is not None:
                    member.difference = compare(cluster.stays.text, member.text)


def _steps(out: Path) -> tuple[list[str], dict[str, str]]:
    from curate.steps.recipe import make_step

    steps = read_record(out)["steps"]
    labels: dict[str, str] = {}
    twice = set()
    for step in steps:
        try:
            method = getattr(make_step(step["name"], step["settings"]), "method", None)
        except UsageError:  # settings of another version
            continue
        if method in labels:
            twice.add(method)
        if method:
            labels[method] = step["label"]
    order = [step["label"] for step in steps]
    return order, {m: label for m, label in labels.items() if m not in twice}


def _passage(position: Position, span: tuple[int, int], label: str, order: list[str]) -> str | None:
    # One document at a time, because a passage may be anywhere in a long text.
    row = read_rows([position], ["text", EDITS, "step"], 1 << 40)[position]
    dropped_by = row.get("step")
    stop = order.index(dropped_by) if dropped_by in order else len(order)
    before = order[:stop]
    later = set(before[before.index(label) :]) if label in before else set()
    edits = [edit for edit in edits_of(row) if edit.step in later]
    data = (row["text"] or "").encode("utf-8", "replace")
    pieces = [data[a:b] for a, b in remaining([span], edits)]
    text = b" ... ".join(pieces).decode("utf-8", "replace")
    return text[:PASSAGE] or None


AROUND = 10  # equal words shown on each side of a difference
WORD = 100  # characters shown of a word: one may be a megabyte long
NAME = 100  # characters shown of a name
EXCERPT = 300
INDENT = " " * 11


def text(browsed: ClusterList) -> str:
    lines = []
    for method, n in browsed.unknown.items():
        lines.append(
            f"{method}: {n:,} dropped as seen before; in no cluster, as the place is unknown"
        )
    if not browsed.clusters:
        return "\n".join([*lines, "no cluster matches"])
    shown = len(browsed.clusters)
    of = counted(browsed.total, "cluster")
    which = "the largest" if shown == 1 else f"the {shown:,} largest"
    lines.append(f"{of}:" if browsed.total == shown else f"{of}; {which}:")
    if any(m.difference and not m.difference.equal for c in browsed.clusters for m in c.members):
        lines.append("marked: [-only in the kept duplicate-] {+only in the dropped one+}")
    for nth, cluster in enumerate(browsed.clusters, 1):
        lines += ["", *_cluster_lines(nth, cluster)]
    return "\n".join(piece for line in lines for piece in wrapped(line, width()))


def _cluster_lines(nth: int, cluster: Cluster) -> list[str]:
    gone = "cut" if cluster.passages else "dropped"
    head = f"{nth}. {cluster.size:,} {cluster.of}, {cluster.gone:,} {gone}, by {cluster.method}"
    if cluster.similarity and cluster.similarity[0] < 1:
        least, middle, most = cluster.similarity
        head += f"; similarity {least:.3f} to {most:.3f}, median {middle:.3f}"
    lines = [head]
    if cluster.stays is not None:
        lines.append(f"  kept     {_about(cluster.stays)}")
        if cluster.stays.text is None:
            lines.append(f"{INDENT}(its text is not in this run's files)")
        elif cluster.passages or not any(
            m.difference and not m.difference.equal for m in cluster.members
        ):
            lines.append(INDENT + _excerpt(cluster.stays.text))
    elif cluster.kept_id is None:
        lines.append("  no duplicate is kept")
    else:
        lines.append(f"  kept     {_name(cluster.kept_id)}, which is not in this run")
    for member in cluster.members:
        lines.append(f"  {gone:<9}{_about(member)}")
        lines += _compared(member, cluster)
    rest = cluster.gone - len(cluster.members)
    if rest > 0:
        lines.append(f"  and {rest:,} more")
    return lines


def _compared(member: Member, cluster: Cluster) -> list[str]:
    if member.difference is not None and not member.difference.equal:
        return [INDENT + _marked(member.difference)]
    if member.difference is not None:
        return [] if cluster.passages else [f"{INDENT}the same words"]
    if member.text is None:
        return [] if cluster.passages else [f"{INDENT}(its text is not in this run's files)"]
    return [INDENT + _excerpt(member.text)]


def _about(member: Member) -> str:
    parts = [_name(member.id)]
    if member.span is not None:
        parts.append(f"bytes {member.span[0]:,} to {member.span[1]:,}")
    if member.gone and member.similarity is not None and member.similarity < 1:
        parts.append(f"similarity {member.similarity:.3f}")
    if member.corpus:
        parts.append(f"duplicate of {_name(member.partner or '')} in {_name(member.corpus)}")
    parts += [_name(name) for name in (member.url, member.source) if name and name != member.id]
    if member.date is not None:
        parts.append(member.date[:10])
    return ", ".join(parts)


def _name(value: object) -> str:
    return plain(str(value), NAME).replace("\n", " ").replace("\t", " ")


def _excerpt(text: str) -> str:
    return '"' + " ".join(plain(text, EXCERPT).split()) + '"'


def _marked(diff: Diff) -> str:
    words = ["\u2026"] if diff.begun else []
    last = len(diff.runs) - 1
    for nth, (stays, went, same) in enumerate(diff.runs):
        if same:
            bare = [plain(w.strip(), WORD) for w in stays]
            before = bare[:AROUND] if nth else []
            if nth == 0 and diff.begun:
                words.clear()
            after = bare[-AROUND:] if nth < last else []
            if len(bare) > len(before) + len(after):
                bare = [*before, "\u2026", *after]
            elif nth == 0 and diff.begun:
                bare = ["\u2026", *bare]
            words += bare
            continue
        for side, opening, closing in ((stays, "[-", "-]"), (went, "{+", "+}")):
            if side:
                bare = [plain(w.strip(), WORD) for w in side]
                words.append(f"{opening}{' '.join(bare)}{closing}")
    if any(diff.more) and words[-1] != "\u2026":
        words.append("\u2026")
    return " ".join(words)
