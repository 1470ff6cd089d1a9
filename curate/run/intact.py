"""Compare finished files with their seals (size and digest) before a run reuses them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from pathlib import Path

from curate.corpus import indexes, manifests
from curate.corpus.sketches import run_here
from curate.engines.base import Engine, mapping
from curate.run.ledger import Ledger
from curate.run.records import Options
from llmcurate.base.disk import seals
from llmcurate.base.disk.files import path_inside
from llmcurate.base.disk.seals import Seal
from llmcurate.base.disk.store import current
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import Damaged, RunFailed, UsageError
from llmcurate.base.terminal import Progress, say

COMPARE = "llmcurate.base.disk.seals:compare"
MOST_NAMED = 100
MOST_ANEW = 10  # damaged files that a run recomputes before it gives up
EXTRA = "is not a file of this run"
RECORDS = ("run.json", "recipe.yaml", "report.html", "corrupt.jsonl")


class Intact:
    """Compares files with their recorded digests during a run. Each difference is reported once."""

    def __init__(self, options: Options, end: str = ": it is computed again") -> None:
        self.options, self._end = options, end
        self._reported: set[str] = set()
        self._recomputed: set[str] = set()  # damaged files that this run has already recomputed

    def faults(
        self,
        files: Iterable[tuple[Path, Seal]],
        engine: Engine | None = None,
        title: str = "",
        most: int = 0,
    ) -> dict[str, str]:
        """Return {path: what is wrong} for the files that differ from their seals (sizes and
        digests). The workers of `engine` compare the files if there are many; if `engine` is None,
        this process compares them. `most` is the most files that
        `files` can have, shown as the total on the progress line."""
        store, differences = current(), dict[str, str]()

        def in_mirror() -> Iterator[tuple[Path, Seal]]:
            for path, sealed in files:
                if not store.lacks(path):
                    yield path, sealed
                elif (difference := store.fault(path, sealed)) is not None:
                    differences[str(path)] = difference

        source = seals.tasks(in_mirror() if store.url else files)
        first = list(islice(source, 2))
        tasks = chain(first, source)
        apart = engine is not None and len(first) > 1
        progress = Progress(f"compare {title}"[:24], most, self.options.quiet)
        with progress if apart else nullcontext():
            if apart and engine is not None:
                results = mapping(engine, "the comparison")(COMPARE, tasks, seals.Faults)
            else:
                results = run_here(COMPARE, tasks, seals.Faults)
            for task, result in results:
                differences |= result.faults
                if apart:
                    progress.update(progress.done + len(task.files))
        self.report(differences)
        return differences

    @contextmanager
    def reading(
        self,
        files: Callable[[], Iterable[tuple[Path, Seal]]],
        engine: Engine | None = None,
        title: str = "",
    ) -> Iterator[None]:
        """Return a context in which this process and its tasks read files. At its start, download
        the files that are only in the remote store. At its end, compare the files with their seals
        (size and digest), also after most errors. Raises Damaged if one differs."""
        current().read_all(files() if current().url else ())
        cause: Exception | None = None
        try:
            yield
        except (Damaged, UsageError):
            raise
        except Exception as error:
            cause, engine = error, None  # the error may have ended its workers
        faults = self.faults(files(), engine, title)
        for path, difference in faults.items():
            raise Damaged(f"{path} {difference}") from cause
        if cause is not None:
            raise cause

    def record_damage(self, damage: Damaged) -> None:
        """Print that a file was damaged during this run and is computed again. Raises RunFailed if
        the same file is damaged again, or if many files were damaged."""
        line = str(damage)
        if line in self._recomputed or len(self._recomputed) == MOST_ANEW:
            advice = "check what else writes there, and whether the disk is faulty"
            if line.endswith("is missing"):  # a faulty disk removes no files
                advice = "if nothing else removes files there, report this fault of llmcurate"
            raise RunFailed(
                f"{line}, after {counted(len(self._recomputed), 'file')} had been computed again in"
                f" this run: {advice}"
            ) from damage
        self._recomputed.add(line)
        self._report_lines([line])

    def report(self, faults: Mapping[str, str]) -> None:
        self._report_lines([f"{path} {faults[path]}" for path in sorted(faults)])

    def _report_lines(self, lines: Iterable[str]) -> None:
        new = [line for line in lines if line not in self._reported]
        for line in new[: max(0, MOST_NAMED - len(self._reported))]:
            say(f"{line}{self._end}", self.options.quiet)
        self._reported.update(new)

    def changed_since(self, out: Path, ledger: Ledger) -> bool:
        """Return True if a file of the finished run has changed, or if the run's folders hold other
        files. Content is compared only if the size or the time of change differs."""
        differences = {str(path): EXTRA for path in extra_files(out)}
        rows, touched = [], False
        for name, sealed, changed in ledger.files():
            path = place(out, ledger, name)
            if current().lacks(path):
                difference = current().fault(path, sealed)
            else:
                difference = seals.fault(path, sealed, content=False)
                if difference is None and path.lstat().st_mtime_ns != changed:
                    difference = seals.fault(path, sealed)
                    changed, touched = path.lstat().st_mtime_ns, True
            if difference is not None:
                differences[str(path)] = difference
            rows.append((name, sealed, changed))
        self.report(differences)
        if touched and not differences:
            ledger.record_files(rows)
        return bool(differences)

    def corpus_is_intact(self, out: Path, beside: dict[str, Seal], engine: Engine) -> bool:
        """Return True if the files of OUT's corpus are unchanged and its folders hold no other
        files. `beside` holds digests of the manifests and decisions."""
        extra = {str(path): EXTRA for path in extra_files(out)}
        self.report(extra)
        return (
            not extra
            and not self.faults((out / name, sealed) for name, sealed in beside.items())
            and not self.faults(corpus_seals(out), engine, "corpus")
        )


def corpus_seals(out: Path) -> Iterator[tuple[Path, Seal]]:
    for name in manifests.FOLDERS:
        for file, entry in manifests.entries(out / name):
            yield path_inside(out / name, file), [None, entry.get("sha256")]


def changed_after(at: int, files: Iterable[tuple[Path, Seal]]) -> Iterator[tuple[Path, Seal]]:
    """Yield the files that are missing or were changed after the time `at` (in nanoseconds)."""
    for path, sealed in files:
        if not path.is_file() or path.stat().st_mtime_ns > at:
            yield path, sealed


def newest(files: Iterable[Path]) -> int:
    return max((path.lstat().st_mtime_ns for path in files), default=0)


def extra_files(out: Path) -> list[Path]:
    extra: list[Path] = []
    for name in manifests.FOLDERS:
        names = {file for file, _ in manifests.entries(out / name)}
        if names and (out / name).is_dir():
            paths = sorted((out / name).iterdir())
            extra += [p for p in paths if p.name not in names and p.name[0] != "."]
    return extra


def finished_files(
    out: Path, home: Path, products: dict[str, Seal], leaves: list[Path]
) -> Iterator[tuple[str, Seal, int]]:
    """Yield (path relative to OUT, [size, digest], modification time in ns) for each file of a
    finished run. `products` maps product files to [size, digest]; `leaves` are the files that dedup
    steps write beside the corpus."""
    sealed = [(out / name, seal) for name, seal in products.items()]
    for record in sorted(out.glob(f"{indexes.FOLDER}/*/{indexes.RECORD}")):
        files = json.loads(record.read_text(encoding="utf-8")).get("files", {})
        sealed += [(record.parent / name, seal) for name, seal in files.items()]
        leaves = [*leaves, record]
    beside = [manifests.manifest_path(out / name) for name in manifests.FOLDERS]
    beside += [out / "decisions.parquet", out / indexes.FOLDER / indexes.FILES]
    beside += [home / name for name in RECORDS]
    sealed += [(path, seals.seal(path)) for path in (*beside, *leaves) if path.is_file()]
    for path, (size, digest) in chain(corpus_seals(out), sealed):
        stat = path.lstat()
        seal = [stat.st_size if size is None else size, digest]
        name = path.name if path.parent == home else path.relative_to(out).as_posix()
        yield name, seal, stat.st_mtime_ns


def place(out: Path, ledger: Ledger, name: str) -> Path:
    """Return the path of the file `name` of a finished run. The files in RECORDS, such as run.json,
    are in the ledger's folder, all others in the output folder `out`."""
    folder = ledger.path.parent if name in RECORDS else out
    return path_inside(folder, name, ledger.path, follow=False)
