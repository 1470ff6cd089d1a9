"""The documents of a run, searched by words, rule, language, score, label and cluster.

Every value that a reader types is a parameter of the SQL query, and column names are taken only
from the files. Queries run one at a time, because the server's threads share the DuckDB connection.
A query reads only the columns it names; texts are read only to search words or to sort by length.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from curate.corpus.decisions import Decision
from curate.documents.attributes import read_schema, source_sql
from curate.documents.rejected import sql_rules
from curate.inspect.browse.labels import FILE, LABELS, Labels
from curate.inspect.report.documents import HOST, sql_domain
from curate.inspect.report.store import KEY, Position, Store, opened
from curate.run.homes import corpus_of
from llmcurate.base.disk.database import literal, quoted
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.process import cores
from llmcurate.base.errors import UsageError

PAGE = 50  # documents per page of the list
MOST_PAGES = 100_000
MOST_PARTNERS = 6  # documents of a cluster that are shown beside another
MOST_VALUES = 100  # of a facet
MOST_COUNTED = 5_000_000  # documents; in larger runs domains and sources are not counted
SEARCHES = 4  # number of searches whose counts are cached
CORE = ("text", "url", "lang", "source")  # columns of documents
TITLES = ("title", "extract.title")  # columns; the first one present is used
# Facet -> column. Domains and sources may have any number of values.
FACETS = {"status": "status_", "rule": "rules_", "lang": "lang_"}
MANY = {"domain": "domain_", "source": "source_"}
ORDERS = {
    "": "",
    "longest": "coalesce(strlen(text), 0) DESC,",
    "shortest": "coalesce(strlen(text), 0),",
    "highest": "score_ DESC,",
    "lowest": "score_,",
    "id": "id,",
    "random": "md5_number_lower(concat(?, id)),",
}


@dataclass(frozen=True)
class Query:
    """A search. Empty strings select everything.

    `words` are searched in text, id and URL, ignoring case. `rule` is `step.rule`. `domain` is the
    registered domain of the URL. `column`, `least` and `most` select a range of a score. `cluster`
    is `method:number`. `order` sorts by length, score or id, or at random by `seed`. `page` and
    `at` (the number of a document in the list) count from 0.
    """

    words: str = ""
    status: Literal["", "kept", "rejected"] = ""
    rule: str = ""
    lang: str = ""
    domain: str = ""
    source: str = ""
    label: Literal["", "good", "bad", "none"] = ""
    column: str = ""
    least: float | None = None
    most: float | None = None
    cluster: str = ""
    order: Literal["", "longest", "shortest", "highest", "lowest", "id", "random"] = ""
    seed: Annotated[int, Field(ge=0, le=10**9)] = 0
    page: Annotated[int, Field(ge=0, le=MOST_PAGES)] = 0
    at: Annotated[int, Field(ge=0, le=MOST_PAGES * PAGE)] | None = None

    @classmethod
    def of(cls, fields: dict[str, str]) -> Query:
        """Parse the fields of a form. Raises UsageError for an invalid value."""
        try:
            return TypeAdapter(cls).validate_python({k: v.strip() for k, v in fields.items()})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            wrong = f"{first['loc'][0]} {str(first['input'])[:40]!r}"
            raise UsageError(f"{wrong}: {first['msg']}") from None


class Library:
    """The documents of one run, in a database for searches. `facets` maps a property whose values
    are counted, such as the language, to its SQL column."""

    def __init__(
        self, out: Path, store: Store, record: dict[str, Any], report: Path, labels: Labels
    ) -> None:

        self.out, self.store, self.record, self.report = out, store, record, report
        self.labels = labels
        self.kept = {str(path) for path in store.kept}
        self._lock = threading.RLock()
        self.columns = sorted(store.columns)
        self.rules = sorted({r for s in record.get("stages", ()) for r in s.get("reasons", ())})
        self.title = next((n for n in TITLES if n in store.names), None)
        self._groups: dict[tuple[Any, ...], str] = {}  # tables of the latest searches
        host = f"lower(regexp_extract(coalesce(url, ''), '{HOST}', 1))"
        parts = []
        for files, status in ((store.kept, "kept"), (store.gone, "rejected")):
            named = ", filename = 'file_', file_row_number = true, union_by_name = true"
            source = f"SELECT *, {host} AS host_ FROM {source_sql(files, named, CORE)}"
            held = {n for path in (files[0], files[-1]) for n in read_schema(path).names}
            rules = sql_rules() if status == "rejected" else "[]::VARCHAR[]"
            scores = (
                f", {quoted(n) if n in held else 'NULL::DOUBLE'} AS {quoted(n)}"
                for n in self.columns
            )
            parts.append(
                f"SELECT id, text, url, file_, file_row_number AS row_, '{status}' AS status_,"
                f" coalesce(lang, '') AS lang_, coalesce(source, '') AS source_,"
                f" {sql_domain('host_')} AS domain_,"
                f" list_sort(list_distinct(coalesce({rules}, []))) AS rules_{''.join(scores)}"
                f" FROM ({source})"
            )
        store.db.execute(f"CREATE VIEW all_rows AS {' UNION ALL '.join(parts)}")
        ((self.total,),) = self.rows("SELECT count(*) FROM all_rows")
        self.facets = FACETS | (MANY if self.total <= MOST_COUNTED else {})

    def rows(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        with self._lock:
            return self.store.rows(sql, values)

    def places(self, query: Query, start: int, number: int) -> list[tuple[str, Position]]:
        """Return (id, (file, row)) of up to `number` documents that match the query, skipping the
        first `start` matches. Raises UsageError if the query names a score (column) or a cluster
        that the run does not have."""
        where, values = self._where(query)
        if query.order in ("highest", "lowest") and not query.column:
            raise UsageError(f"order {query.order}: choose a score to sort by")
        score = f", {quoted(query.column)} AS score_" if query.column else ""
        values += [str(query.seed)] if query.order == "random" else []
        matches = self.rows(
            f"""SELECT id, file_, row_ FROM (SELECT *{score} FROM all_rows) WHERE {where}
            ORDER BY {ORDERS[query.order]} status_, file_, row_ LIMIT ? OFFSET ?""",
            [*values, number, start],
        )
        return [(id or "", (file, row)) for id, file, row in matches]

    def counts(self, query: Query) -> dict[str, dict[str, int]]:
        """Return {facet: {value: number of documents}}, the most frequent values first. A facet's
        numbers count the documents that match all conditions of the query except the one on this
        facet. The facet `label` (good, bad, none) counts all documents."""
        facets = {"label": {name: len(self.labels.of(name)) for name in LABELS}}
        facets["label"]["none"] = self.total - len(self.labels.of("none"))
        with self._lock:
            table = self._grouped(query)
            for name, column in self.facets.items():
                where, values = self._chosen(query, self.facets.keys() - {name})
                value = f"unnest({column})" if name == "rule" else column
                rows = self.rows(
                    f"""SELECT value, sum(n)::BIGINT FROM
                    (SELECT {value} AS value, n FROM {table} WHERE {where}) WHERE value <> ''
                    GROUP BY value ORDER BY 2 DESC, 1 LIMIT {MOST_VALUES}""",
                    values,
                )
                facets[name] = dict(rows)
        return facets

    def _grouped(self, query: Query) -> str:
        """Return the name of a table with one row per combination of facet values. Its column `n`
        is the number of documents with that combination."""
        every: dict[str, Any] = dict.fromkeys(self.facets, "")
        base = replace(query, order="", seed=0, page=0, at=None, **every)
        key = (base, self.labels.changes if query.label else 0)
        if key not in self._groups:
            where, values = self._where(base)
            name = f"groups_{len(self._groups)}"
            if len(self._groups) == SEARCHES:
                name = self._groups.pop(next(iter(self._groups)))
            self.rows(
                f"""CREATE OR REPLACE TEMP TABLE {name} AS SELECT *, count(*) AS n FROM
                (SELECT {", ".join(self.facets.values())} FROM all_rows WHERE {where})
                GROUP BY ALL""",
                values,
            )
            self._groups[key] = name
        return self._groups[key]

    def _chosen(self, query: Query, facets: Iterable[str]) -> tuple[str, list[Any]]:
        chosen = {n: value for n in facets if (value := getattr(query, n))}
        columns = FACETS | MANY
        conditions = [
            f"list_contains({columns[n]}, ?)" if n == "rule" else f"{columns[n]} = ?"
            for n in chosen
        ]
        return " AND ".join(["true", *conditions]), [*chosen.values()]

    def _where(self, query: Query) -> tuple[str, list[Any]]:
        chosen, values = self._chosen(query, FACETS | MANY)
        conditions = [chosen]
        if query.words:
            held = [f"contains(lower(coalesce({n}, '')), lower(?))" for n in ("text", "id", "url")]
            conditions.append(f"({' OR '.join(held)})")
            values += [query.words] * 3
        if query.label:
            without = "NOT " if query.label == "none" else ""
            conditions.append(f"id {without}IN (SELECT unnest(?::VARCHAR[]))")
            values.append([label.id for label in self.labels.of(query.label)])
        if query.column:
            if query.column not in self.columns:
                raise UsageError(f"this run has no score {query.column!r}")
            conditions.append(f"{quoted(query.column)} IS NOT NULL")
            for sign, limit in ((">=", query.least), ("<=", query.most)):
                if limit is not None:
                    conditions.append(f"{quoted(query.column)} {sign} ?")
                    values.append(limit)
        if query.cluster:
            conditions.append("id IN (SELECT id FROM decisions WHERE method = ? AND cluster = ?)")
            values += self._cluster(query.cluster)
        return " AND ".join(conditions), values

    def _cluster(self, cluster: str) -> list[Any]:
        method, _, number = cluster.rpartition(":")
        if not self.store.has_decisions:
            raise UsageError("this run has no clusters: its recipe has no dedup step")
        if not method or not number.isascii() or not number.isdigit() or len(number) > 18:
            raise UsageError(f"cluster {cluster!r}: write method:number, as in minhash:12")
        return [method, int(number)]

    def position(self, name: str) -> tuple[str, int] | None:
        matches = self.rows("SELECT file_, row_ FROM all_rows WHERE id = ? LIMIT 1", [name])
        return (matches[0][0], matches[0][1]) if matches else None

    def decisions(self, name: str) -> list[Decision]:
        """Return the dedup decisions on a document. Decisions on the whole document come first."""
        if not self.store.has_decisions:
            return []
        rows = self.rows(
            """SELECT id, cluster, kept_id, partner_id, similarity, method, span_start, span_end,
            partner_corpus FROM decisions WHERE id = ?
            ORDER BY span_start NULLS FIRST, method, cluster LIMIT 200""",
            [name],
        )
        return [Decision(*row) for row in rows]

    def members(self, method: str, cluster: int, beside: str) -> list[str]:
        """Return up to MOST_PARTNERS ids of a cluster, except `beside`, ordered by their hashes."""
        rows = self.rows(
            f"""SELECT DISTINCT id, {KEY} FROM decisions WHERE method = ? AND cluster = ?
            AND id <> ? ORDER BY {KEY}, id LIMIT {MOST_PARTNERS}""",
            [method, cluster, beside],
        )
        return [i for i, _ in rows]

    def export_labels(self, folder: Path) -> dict[Path, int]:
        """Write the labelled documents to good.jsonl and bad.jsonl, sorted by id, except those
        whose text has changed since. Return {path: number of documents}."""
        counts = {}
        for label in LABELS:
            labels, path = self.labels.of(label), folder / f"{label}.jsonl"
            with replacing(path) as aside:
                ((counts[path],),) = self.rows(
                    f"""COPY (SELECT id, text, url, '{label}' AS label FROM all_rows
                    WHERE (id, sha256(text)) IN (SELECT (unnest(?), unnest(?))) ORDER BY id)
                    TO {literal(aside)} (FORMAT json)""",
                    [[each.id for each in labels], [each.digest for each in labels]],
                )
        return counts


@contextmanager
def library(out: Path, labels: Path | None = None) -> Iterator[Library]:
    """Open a finished run. The labels are in OUT/labels.jsonl unless another file is given. Raises
    UsageError if OUT holds no finished run."""
    try:
        corpus = corpus_of(out)
        record = corpus.record()
    except (OSError, ValueError):
        raise UsageError(f"{out} holds no finished run: give the OUT of a run") from None
    with opened(out, ".spill-browse", cores()) as store:
        if store is None:
            raise UsageError(
                f"{out} holds no corpus/ and rejected/: give the OUT of a run with filters"
            )
        yield Library(out, store, record, corpus.run / "report.html", Labels(labels or out / FILE))
