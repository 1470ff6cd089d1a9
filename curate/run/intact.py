"""Committed files compared with their seals, before a run that goes on takes them as they are."""

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
from llmcurate.base.disk.files import inside
from llmcurate.base.disk.seals import Seal
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import Damaged, RunFailed, UsageError
from llmcurate.base.terminal import Progress, say

COMPARE = "llmcurate.base.disk.seals:compare"
MOST_NAMED = 100
MOST_ANEW = 10  # damaged files that a run makes anew while it goes on
EXTRA = "is no file of this run"
RECORDS = ("run.json", "recipe.yaml", "report.html", "corrupt.jsonl")


class Intact:
    """The comparisons of a run. What is wrong with a file is said in a line, once."""

    def __init__(self, options: Options, end: str = ": what it belongs to is made anew") -> None:
        self.options, self._end = options, end
        self._said: set[str] = set()
        self._anew: set[str] = set()  # the damages that this run made good while it went on

    def faults(
        self,
        files: Iterable[tuple[Path, Seal]],
        engine: Engine | None = None,
        title: str = "",
        most: int = 0,
    ) -> dict[str, str]:
        """What is wrong with which of the files, by path. engine: whose workers compare them where
        they are many; None: this process does. most: of files that there may be."""
        source = seals.tasks(files)
        first = list(islice(source, 2))
        tasks = chain(first, source)
        apart = engine is not None and len(first) > 1
        differences: dict[str, str] = {}
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
        self.tell(differences)
        return differences

    @contextmanager
    def reading(
        self,
        files: Callable[[], Iterable[tuple[Path, Seal]]],
        engine: Engine | None = None,
        title: str = "",
    ) -> Iterator[None]:
        """What this process and its tasks read within, in whatever parts, as a whole: compared when
        it was read, or could not be. Damaged where a file is not what was written."""
        cause: Exception | None = None
        try:
            yield
        except (Damaged, UsageError):
            raise
        except Exception as error:
            cause, engine = error, None  # which it may have ended
        faults = self.faults(files(), engine, title)
        for path, difference in faults.items():
            raise Damaged(f"{path} {difference}") from cause
        if cause is not None:
            raise cause

    def anew(self, damage: Damaged) -> None:
        """Say that a file was damaged while this run went on. RunFailed if it is the same one
        again, or one of many."""
        line = str(damage)
        if line in self._anew or len(self._anew) == MOST_ANEW:
            advice = "see what else writes there, and whether the disk is sound"
            if line.endswith("is missing"):  # a disk that is not sound takes no file away
                advice = "if nothing else removes files there, report this fault of llmcurate"
            raise RunFailed(
                f"{line}, after {counted(len(self._anew), 'file')} had been made anew while this"
                f" run went on: {advice}"
            ) from damage
        self._anew.add(line)
        self._tell([line])

    def tell(self, faults: Mapping[str, str]) -> None:
        """A line a file, of the first ones."""
        self._tell([f"{path} {faults[path]}" for path in sorted(faults)])

    def _tell(self, lines: Iterable[str]) -> None:
        new = [line for line in lines if line not in self._said]
        for line in new[: max(0, MOST_NAMED - len(self._said))]:
            say(f"{line}{self._end}", self.options.quiet)
        self._said.update(new)

    def changed_since(self, out: Path, ledger: Ledger) -> bool:
        """Whether a file of the finished run is another now, or one lies there that it did not
        write. Content is compared where size or time of change differ."""
        differences = {str(path): EXTRA for path in extra_files(out)}
        rows, touched = [], False
        for name, sealed, changed in ledger.files():
            path = place(out, ledger, name)
            difference = seals.fault(path, sealed, content=False)
            if difference is None and path.lstat().st_mtime_ns != changed:
                difference = seals.fault(path, sealed)
                touched = True
            if difference is not None:
                differences[str(path)] = difference
            else:
                rows.append((name, sealed, path.lstat().st_mtime_ns))
        self.tell(differences)
        if touched and not differences:
            ledger.record_files(rows)
        return bool(differences)

    def corpus_stands(self, out: Path, beside: dict[str, Seal], engine: Engine) -> bool:
        """Return whether OUT's corpus is what was written, and nothing else lies there. beside: the
        seals of its manifests and decisions."""
        extra = {str(path): EXTRA for path in extra_files(out)}
        self.tell(extra)
        return (
            not extra
            and not self.faults((out / name, sealed) for name, sealed in beside.items())
            and not self.faults(corpus_seals(out), engine, "corpus")
        )


def corpus_seals(out: Path) -> Iterator[tuple[Path, Seal]]:
    """The files of OUT/corpus and OUT/rejected as their manifests seal them."""
    for name in manifests.FOLDERS:
        for file, entry in manifests.entries(out / name):
            yield inside(out / name, file), [None, entry.get("sha256")]


def changed_after(at: int, files: Iterable[tuple[Path, Seal]]) -> Iterator[tuple[Path, Seal]]:
    """Return the files that changed after a time (in nanoseconds) or are missing."""
    for path, sealed in files:
        if not path.is_file() or path.stat().st_mtime_ns > at:
            yield path, sealed


def newest(files: Iterable[Path]) -> int:
    """The latest time of change among the files, in nanoseconds."""
    return max((path.lstat().st_mtime_ns for path in files), default=0)


def extra_files(out: Path) -> list[Path]:
    """List the files in OUT/corpus and OUT/rejected that no manifest names."""
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
    """The files of a finished run: path from OUT, seal, time of change. products: the seals of
    theirs; leaves: files that dedups put beside the corpus."""
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
    """Where a file of a finished run lies: records beside the ledger, all others below OUT."""
    folder = ledger.path.parent if name in RECORDS else out
    return inside(folder, name, ledger.path, follow=False)
