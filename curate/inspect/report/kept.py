"""Documents kept against dropped: by length, by language, by domain.

Lengths are of texts, which make up most of a corpus: of a large one a share of the row groups is
read, always the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.inspect.report.bins import Histogram, Range, edges_of
from curate.inspect.report.store import FilesTask, Store
from llmcurate.base.disk.process import in_order
from llmcurate.base.messages import Message

MOST_LABELS = 20
MOST_BYTES = 256 << 20  # of texts that are read for their lengths
ROW_BYTES = 64  # what a row costs beside its text
# Second levels of countries' domains, as in bbc.co.uk; all of them would take a list of registries.
SECOND = "ac|co|com|edu|go|gob|gouv|gov|gub|mil|ne|net|nom|or|org|sch"
HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(?P<host>\[[^\]/]*\]|[^:/?#]+)"
_DOMAIN = rf"([^.]+\.(?:(?:{SECOND})\.[a-z][a-z]|[^.]+))$"
_NUMERIC_HOST = r"^[0-9.]+$|^\["
Counts = dict[str, tuple[int, int]]  # label -> (kept, dropped)


def sql_domain(host: str) -> str:
    """The registered domain of a host in lower case, as SQL."""
    return (
        f"CASE WHEN regexp_matches({host}, '{_NUMERIC_HOST}') OR NOT contains({host}, '.')"
        f" THEN {host} ELSE regexp_extract({host}, '{_DOMAIN}', 1) END"
    )


@dataclass
class Lengths:
    """Characters of the texts of kept and dropped documents. one_in: of so many row groups one was
    read; all, gone: documents by length; medians: of kept and of dropped ones, None without any."""

    one_in: int
    all: Histogram
    gone: Histogram
    medians: tuple[float | None, float | None]

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        histogram = self.all.dump() | {"marked": self.gone.counts.tolist()}
        kept, dropped = self.medians
        return {
            "one_in": self.one_in,
            "median": {"kept": kept, "rejected": dropped},
            "histogram": histogram,
        }


UNLABELLED = "(none)"  # of documents without a language


@dataclass
class Kept:
    """languages, domains: the most frequent labels; other_domains: how many more there are."""

    lengths: Lengths | None = None
    languages: Counts = field(default_factory=dict)
    domains: Counts = field(default_factory=dict)
    other_domains: int = 0

    @property
    def main_language(self) -> str | None:
        """The label of most documents that were kept."""
        labels = [label for label in self.languages if label != UNLABELLED]
        return max(labels, key=lambda label: self.languages[label][0], default=None)

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "languages": _counts(self.languages),
            "domains": _counts(self.domains),
            **({"lengths": self.lengths.dump()} if self.lengths else {}),
        }


def _counts(labels: Counts) -> dict[str, dict[str, int]]:
    return {label: {"kept": kept, "rejected": gone} for label, (kept, gone) in labels.items()}


def gather(store: Store) -> Kept:
    """The figures of a finished run."""
    domains, others = count_domains(store)
    return Kept(count_lengths(store), count_languages(store), domains, others)


def count_languages(store: Store) -> Counts:
    """The most frequent labels; nothing where no document has one."""
    store.pieces(
        {
            "langs": """SELECT lang, sum(kept)::BIGINT AS kept, sum(gone)::BIGINT AS gone FROM (
              SELECT lang, 1 AS kept, 0 AS gone FROM kept
              UNION ALL SELECT lang, 0, 1 FROM gone) GROUP BY lang"""
        }
    )
    rows = store.rows(
        f"""SELECT lang, sum(kept)::BIGINT, sum(gone)::BIGINT FROM langs
        GROUP BY lang ORDER BY sum(kept + gone) DESC, lang LIMIT {MOST_LABELS}"""
    )
    if all(lang is None for lang, _, _ in rows):
        return {}
    return {UNLABELLED if lang is None else lang: (kept, gone) for lang, kept, gone in rows}


def count_domains(store: Store) -> tuple[Counts, int]:
    """(the registered domains of most documents, how many others there are)."""
    if "url" not in store.names:
        return {}, 0
    parts = " UNION ALL ".join(
        f"SELECT lower(regexp_extract(url, '{HOST}', 1)) AS host, {kept} AS stays"
        f" FROM {view} WHERE url IS NOT NULL"
        for view, kept in (("kept", True), ("gone", False))
    )
    store.pieces(
        {
            "domains": f"""SELECT md5_number_lower(domain) AS key, domain,
              count(*) FILTER (stays) AS kept, count(*) FILTER (NOT stays) AS gone
            FROM (SELECT {sql_domain("host")} AS domain, stays FROM ({parts}) WHERE host <> '')
            GROUP BY domain"""
        },
        # of each range of keys how many domains it has, too
        {
            "domains": f"""SELECT domain, sum(kept)::BIGINT AS kept, sum(gone)::BIGINT AS gone,
              count(*) OVER () AS many, min(min(key)) OVER () AS least
            FROM {{piece}} p GROUP BY domain ORDER BY sum(p.kept + p.gone) DESC, domain
            LIMIT {MOST_LABELS}"""
        },
    )
    ((many,),) = store.rows(
        "SELECT coalesce(sum(many), 0)::BIGINT FROM (SELECT DISTINCT least, many FROM domains)"
    )
    rows = store.rows(
        f"""SELECT domain, kept, gone FROM domains ORDER BY kept + gone DESC, domain
        LIMIT {MOST_LABELS}"""
    )
    return {domain: (kept, gone) for domain, kept, gone in rows}, many - len(rows)


def count_lengths(store: Store, most_bytes: int = MOST_BYTES) -> Lengths | None:
    """The lengths of texts; None where no document has one. most_bytes: of text that is read."""
    tasks = store.tasks(FilesTask)
    done = sorted(store.map(f"{__name__}:group_sizes", tasks, Texts), key=lambda d: d[0].part)
    total = sum(sum(sizes.kept) + sum(sizes.gone) for _, sizes in done)
    one_in = -(-total // most_bytes) or 1
    before = [0, 0]  # row groups of the groups before
    each = []
    for task, sizes in done:
        skip = [-count % one_in for count in before]
        each.append(LengthsTask(**vars(task), skip=skip, one_in=one_in))
        before = [before[0] + len(sizes.kept), before[1] + len(sizes.gone)]
    texts: dict[str, list[np.ndarray]] = {kind: [_NONE] for kind in KINDS}
    for _, found in store.map(f"{__name__}:group_lengths", each, Texts):
        texts["kept"].append(np.array(found.kept, np.float64))
        texts["gone"].append(np.array(found.gone, np.float64))
    values = [np.concatenate(texts[kind]) for kind in KINDS]
    lengths = np.concatenate(values)
    if not len(lengths):
        return None
    span = Range(True)
    span.add(lengths)
    counted = edges_of(span)
    gone = Histogram(counted.edges, counted.scale)
    counted.add(lengths)
    gone.add(values[1])
    kept_median, gone_median = (float(np.median(v)) if len(v) else None for v in values)
    return Lengths(one_in, counted, gone, (kept_median, gone_median))


_NONE = np.zeros(0, np.float64)
KINDS = ("kept", "gone")


@dataclass(frozen=True)
class Texts(Message):
    """Numbers of kept and of gone documents: of row groups, or of texts."""

    kept: list[int]
    gone: list[int]


def group_sizes(task: FilesTask) -> Texts:
    """The bytes that reading the texts of each row group costs."""
    kept, gone = ([size for _, _, size in _row_groups(p)] for p in (task.kept, task.gone))
    return Texts(kept, gone)


@dataclass(frozen=True)
class LengthsTask(FilesTask):
    """Texts are to be measured in one of `one_in` row groups, from the one numbered `skip` on, of
    kept and of gone documents."""

    skip: list[int]
    one_in: int


def group_lengths(task: LengthsTask) -> Texts:
    """The lengths of texts, in characters."""
    lengths = []
    for skip, paths in zip(task.skip, (task.kept, task.gone), strict=True):
        places = [(path, group) for path, group, _ in _row_groups(paths)]
        values = [*in_order(_lengths, places[skip :: task.one_in], task.threads), _NONE]
        lengths.append(np.concatenate(values).astype(np.int64).tolist())
    return Texts(*lengths)


def _row_groups(paths: Iterable[Path]) -> Iterator[tuple[Path, int, int]]:
    """(file, row group, what reading its texts costs in bytes)."""
    for path in paths:
        metadata = pq.read_metadata(path)
        column = metadata.schema.names.index("text")
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group)
            size = rows.column(column).total_uncompressed_size
            yield path, group, size + ROW_BYTES * rows.num_rows


def _lengths(place: tuple[Path, int]) -> np.ndarray:
    """float64[texts of a row group]: characters."""
    path, group = place
    with pq.ParquetFile(path) as file:
        texts = file.read_row_group(group, columns=["text"], use_threads=False)["text"]
    return pc.utf8_length(texts.drop_null()).to_numpy().astype(np.float64)
