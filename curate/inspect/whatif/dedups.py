"""Bounds for steps over the whole corpus, which decide otherwise where other documents reach them.

Their stored marks say what they decided over the documents of the run. With other documents they
may drop some that they kept (*displaced*) and keep some that they dropped (*returned*). How many at
most follows from what such a step can do (`CorpusStep.reach`) and from its clusters:

- `one` (exact): one document of each cluster stays. So each document that is new displaces at
  most one, and of each cluster whose kept document goes, one of the others returns, unless a new
  one takes its place.
- `cluster` (MinHash): a new document may join clusters, and displace any number. A cluster of
  which a document goes may fall apart, so that all that are left of it return; of one that lost
  the kept document at least one does.
- `any`: whatever reaches it otherwise may change all it decides.
- `own`: it decides on each document by itself, and nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.inspect.whatif.question import READER, Question
from curate.inspect.whatif.verdicts import Decider, Verdicts
from curate.run.homes import Corpus
from curate.steps.contracts import CorpusStep


@dataclass(frozen=True)
class Resolved:
    """A step that decides over other documents now. admitted, gone: documents that reach it, or
    do not, unlike before, at most; displaced, returned: (least, most) documents; of: how many it
    kept, and how many it dropped, that still reach it. displaced_bytes, returned_bytes: most."""

    step: str
    admitted: int
    gone: int
    displaced: tuple[int, int]
    returned: tuple[int, int]
    of: tuple[int, int]
    displaced_bytes: int
    returned_bytes: int


@dataclass
class _Reaching:
    """bool[rows] of documents at one step. admitted: that reach it now and did not; gone: that did
    and do not; passed, marked: that reach it as before, and were kept by it, or dropped; kept: of
    those gone, which it kept."""

    admitted: np.ndarray
    gone: np.ndarray
    passed: np.ndarray
    marked: np.ndarray
    kept: np.ndarray


def resolved(question: Question, decider: Decider, now: Verdicts) -> list[Resolved]:
    """Of each such step behind the first change, in order; what is not certain of one counts for
    the next."""
    changed = [r.at for r in question.rules if r.was != r.now]
    unknown = [at for at, _ in question.again.values()]
    first = min([*changed, *unknown, len(question.steps)])
    results: list[Resolved] = []
    for at, step in enumerate(question.was.document_steps):
        if not isinstance(step, CorpusStep) or at < first or step.reach == "own":
            continue
        reaching = _reaching(question, decider, now, at)
        # Of earlier steps it is not known which documents come or go beside those.
        more = sum(r.returned[1] for r in results)
        fewer = sum(r.displaced[1] for r in results)
        if any(place <= at for place in unknown):
            more = fewer = len(now.scores)
        if reaching.admitted.any() or reaching.gone.any() or more or fewer:
            results.append(_bounds(question.corpus, step, reaching, now, more, fewer))
    return results


def _reaching(question: Question, decider: Decider, now: Verdicts, at: int) -> _Reaching:
    place = decider.first  # of the step that marked it, behind all steps for one that is kept
    before = place >= at
    after = place != READER
    places = {label: i for i, label in enumerate(question.steps)}
    for name, mask in now.fails.items():
        if places.get(name.partition(".")[0], READER) < at:
            after = after & ~mask
    stays, gone, marked = before & after, before & ~after, place == at
    return _Reaching(after & ~before, gone, stays & ~marked, stays & marked, gone & ~marked)


def _bounds(
    corpus: Corpus,
    step: CorpusStep,
    of: _Reaching,
    now: Verdicts,
    more: int,
    fewer: int,
) -> Resolved:
    admitted, gone, passed, marked = (
        int(np.count_nonzero(mask)) for mask in (of.admitted, of.gone, of.passed, of.marked)
    )
    new, lost, reach = admitted + more, gone + fewer, step.reach
    # One that is new takes one place, or it may match any number; none matches without a new one.
    displaced = passed if reach == "any" or new else 0
    if reach == "one":
        displaced = min(new, passed)
    least, returned, rows = 0, marked, np.flatnonzero(of.marked)
    if reach != "any":
        returned = min(marked, lost) if reach == "one" else marked if lost else 0
        clusters = _clusters(corpus, step, of) if gone and not fewer else None
        if clusters is not None:
            least, returned, rows = clusters
    size = now.scores.bytes
    return Resolved(
        step.label,
        admitted,
        gone,
        (0, displaced),
        (0 if new else least, returned),
        (passed, marked),
        _largest(size[of.passed], displaced),
        _largest(size[rows], returned),
    )


def _largest(sizes: np.ndarray, count: int) -> int:
    """Bytes of the largest `count` texts."""
    if count == 0 or count >= len(sizes):
        return int(sizes.sum()) if count else 0
    return int(np.partition(sizes, len(sizes) - count)[len(sizes) - count :].sum())


def _clusters(
    corpus: Corpus, step: CorpusStep, of: _Reaching
) -> tuple[int, int, np.ndarray] | None:
    """(least, most, rows of those) that return, by the clusters that lose a document; None where
    decisions do not tell."""
    method = getattr(step, "method", None)
    if method is None or len(corpus.decisions) != 1 or corpus.is_home:
        return None
    table = pq.read_table(corpus.decisions[0], columns=["id", "cluster", "method", "span_start"])
    table = table.filter(pc.equal(table["method"], method))
    places = np.flatnonzero(of.gone | of.marked | of.passed)
    at = pc.index_in(table["id"], value_set=_ids(corpus).take(pa.array(places)))
    decided = at.is_valid().to_numpy(zero_copy_only=False)
    rows = places[at.filter(pa.array(decided)).to_numpy()]
    cluster = table["cluster"].filter(pa.array(decided)).to_numpy()
    # Two steps by one method number their clusters alike.
    if table["span_start"].null_count < len(table) or len(np.unique(rows)) < len(rows):
        return None
    number = int(cluster.max()) + 1 if len(cluster) else 0

    def count(mask: np.ndarray) -> np.ndarray:
        counts: np.ndarray = np.bincount(cluster[mask[rows]], minlength=number)
        return counts

    loses = count(of.kept if step.reach == "one" else of.gone) > 0
    dropped, passed = count(of.marked), count(of.passed)
    headless = (count(of.kept) > 0) & (passed == 0) & (dropped > 0)
    of_each = np.minimum(dropped, 1) if step.reach == "one" else dropped
    back = rows[of.marked[rows] & loses[cluster]]
    return int(np.count_nonzero(headless)), int(of_each[loses].sum()), back


def _ids(corpus: Corpus) -> pa.ChunkedArray:
    """Ids of all documents, those of corpus/ first."""
    paths = [*corpus.kept, *corpus.gone]
    return pa.chunked_array(
        [chunk for p in paths for chunk in pq.read_table(p, columns=["id"])["id"].chunks],
        pa.string(),
    )
