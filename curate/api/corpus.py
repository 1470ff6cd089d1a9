"""Runs from Python: `Corpus`, files to read and the steps that their documents go through, and
`run_recipe`, a recipe by name, by file or as an object.

Tables and rows in memory are inputs too: each is a file in the folder for caches, by its content.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.api.result import Location, Result, result_of
from llmcurate.base.disk.files import cache_folder, file_digest, temporary_name
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.steps.contracts import Settings
    from curate.steps.recipe import Recipe


ROWS = 10_000  # of a row group, whatever pieces a table comes in
TAKES = "files, folders, URLs, tables (pandas, polars, Arrow, datasets) or a list of dicts"


def names_of(inputs: Any) -> list[str]:
    """The names of one input or of several; those of tables and rows, of files with their content.
    UsageError names the type of what is no input."""
    if isinstance(inputs, (str, os.PathLike)):
        return [os.fspath(inputs)]
    if _is_table(inputs):
        return [_kept(_tables(inputs))]
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        raise UsageError(f"documents are read from {TAKES}, not from {type(inputs).__name__}")
    items = list(inputs)
    if items and all(isinstance(item, Mapping) for item in items):
        return [_kept(_tables(items))]
    return [name for item in items for name in names_of(item)]


def _is_table(value: Any) -> bool:
    return any(
        hasattr(value, n) for n in ("__arrow_c_stream__", "__arrow_c_array__", "with_format")
    )


def _tables(value: Any) -> Iterator[Any]:
    """The Arrow tables of a table, or of rows."""
    import pyarrow as pa

    if isinstance(value, list):
        names = dict.fromkeys(name for row in value for name in row)
        yield pa.table({name: [row.get(name) for row in value] for name in names})
    elif hasattr(value, "with_format"):  # of Hugging Face's datasets
        yield from value.with_format("arrow").iter(ROWS)
    else:
        streams = hasattr(value, "__arrow_c_stream__")
        yield pa.table(value) if streams else pa.table(pa.record_batch(value))


def _kept(tables: Iterator[Any]) -> str:
    """The parquet file of the tables, in a folder of the cache that has its content's name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    home = cache_folder() / "tables"
    home.mkdir(parents=True, exist_ok=True)
    aside = home / temporary_name("table.parquet")
    try:
        first = next(tables, pa.table({}))
        names = [n for n in first.column_names if not n.startswith("__index_level_")]
        schema = first.select(names).schema.remove_metadata()
        with pq.ParquetWriter(aside, schema, compression="zstd", store_schema=False) as writer:
            writer.write_table(_whole(first, schema), ROWS)
            for table in tables:
                writer.write_table(_whole(table, schema), ROWS)
        path = home / file_digest(aside, "xxh3-128") / "table.parquet"
        path.parent.mkdir(exist_ok=True)
        aside.replace(path)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(f"the rows are no table: {' '.join(str(error).split())}") from None
    finally:
        aside.unlink(missing_ok=True)
    return str(path)


def _whole(table: Any, schema: Any) -> Any:
    return table.select(schema.names).cast(schema).combine_chunks()


Steps = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Corpus:
    """Documents of files, and steps in order. Each method returns a new corpus; nothing is read
    before `run`.

        clean = Corpus.read("crawl/*.warc.gz").extract().filter("gopher_quality").dedup("minhash")
        result = clean.run("out")

    A step or a setting that there is not raises UsageError at once, with the nearest one.
    """

    inputs: tuple[str, ...]
    steps: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, *inputs: Any, **settings: Any) -> Corpus:
        """The documents of files, folders, patterns or URLs, or of lists of them: WARC, JSON lines,
        parquet, CSV and more. A folder that a run wrote, or its `Result`, stands for the documents
        that it kept. A frame of pandas or polars, an Arrow table, a data set of `datasets` and a
        list of dicts hold documents, a row each; they are kept in the cache for workers to read.

        settings: of the section `read` of recipes, as limit=1000 (the first documents), share=0.01
        (drawn by id) or split="test"; text_column="content" names the column of the texts,
        date_column that of the dates.
        """
        names = [name for some in inputs for name in names_of(some)]
        if not names:
            raise UsageError("Corpus.read needs the files to read, or a folder of them")
        columns = {name: settings.pop(f"{name}_column", None) for name in ("text", "date")}
        if columns := {name: column for name, column in columns.items() if column is not None}:
            settings["columns"] = {**settings.get("columns", {}), **columns}
        return cls(tuple(names))._with((), **settings)

    from_pandas = from_arrow = from_datasets = read  # the names that people look for

    def step(self, name: str | Settings, /, **settings: Any) -> Corpus:
        """With any step of `llmcurate steps` behind the others, as step("url_filter",
        domains="blocked.txt") or step(steps.UrlFilter(domains="blocked.txt")); "cut" ends a stage.
        """
        if not isinstance(name, str):
            return self.step(name.name, **name.model_dump(exclude_unset=True), **settings)
        return self._with([(name, settings)])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The documents as they are read, before any step, a batch at a time. UsageError for web
        pages, whose text `extract` makes."""
        from curate.corpus.direct_input import DirectInput

        reader = DirectInput.of_texts(self.inputs, self.recipe.read, quiet=True)
        for batch in reader.batches(None):
            yield from batch.to_pylist()

    def head(self, rows: int = 5) -> list[dict[str, Any]]:
        """The first documents as they are read, before any step."""
        return list(islice(self, rows))

    def __len__(self) -> int:
        """How many documents the input has, before any step; all of it is read for that."""
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True  # no reason to read the input

    def extract(self, **settings: Any) -> Corpus:
        """With the main text of web pages: extract(format="markdown")."""
        return self.step("extract", **settings)

    def language(self, **settings: Any) -> Corpus:
        """With the language of each document: language(keep=["en"], threshold=0.65)."""
        return self.step("language", **settings)

    def quality(self, **settings: Any) -> Corpus:
        """With a classifier's score: quality(model="quality.bin", keep_fraction=0.1)."""
        return self.step("quality", **settings)

    def perplexity(self, **settings: Any) -> Corpus:
        """With CCNet's head, middle and tail: perplexity(model="models/{lang}.bin",
        keep=["head"])."""
        return self.step("perplexity", **settings)

    def decontaminate(self, **settings: Any) -> Corpus:
        """Without what stands in evaluation sets: decontaminate(evals="benchmark.jsonl")."""
        return self.step("decontaminate", **settings)

    def filter(self, *rules: str | Callable[..., Any], **settings: Any) -> Corpus:
        """Without the documents that published rules drop: filter("c4@tfds", "gopher_quality").

        rules: filters by name, or functions of yours, as "my_rules.py:keep" or the object itself
        where a file holds it. settings: of each of these filters that has them.
        """
        if not rules:
            raise UsageError('filter needs the name of a filter, as filter("gopher_quality")')
        return self._with(_shared([step for rule in rules for step in _filter(rule)], **settings))

    def dedup(self, method: str = "exact", **settings: Any) -> Corpus:
        """With one of each set of copies: dedup("minhash", survivor="longest").

        method: as of `llmcurate dedup --method`, several joined by +. settings: of each of its
        steps that has them.
        """
        from curate.dedup.methods import steps_of

        return self._with(_shared(steps_of(method), **settings))

    @property
    def recipe(self) -> Recipe:
        """The recipe of this corpus, which prints as the YAML that `llmcurate run` takes."""
        from curate.steps.recipe import compose

        steps = [(name, dict(settings)) for name, settings in self.steps]
        return replace(compose("corpus", steps, **self.reading), input=self.inputs)

    def run(
        self,
        out: Location,
        *,
        workers: int = 0,
        engine: str = "local",
        address: str | None = None,
        slurm: Mapping[str, str | int] | None = None,
        scratch: Location | None = None,
        quiet: bool = False,
    ) -> Result:
        """Reads the files, takes the steps, and leaves corpus/, rejected/ and a report in the
        folder `out`, or at its URL. The same call again resumes.

        workers: number of processes; 0: one a core. engine, address, scratch: as the options of
        `llmcurate run`; slurm: options of sbatch, as {"partition": "cpu"}. Raises RunFailed where
        the run cannot go on, LockHeld where another process works in `out`.
        """
        from curate.run.records import Options

        # Whoever calls this has named the functions that it runs.
        options = Options(workers, quiet, engine, address, allow_python=True)
        options = replace(options, slurm=sbatch(slurm))
        return result_of(self.recipe, list(self.inputs), out, options, scratch)

    def _with(self, steps: Steps | tuple[()], /, **reading: Any) -> Corpus:
        """With more steps; UsageError where one of them cannot be."""
        more = replace(
            self,
            steps=(*self.steps, *((name, deepcopy(settings)) for name, settings in steps)),
            reading={**self.reading, **deepcopy(reading)},
        )
        _ = more.recipe
        return more

    def __repr__(self) -> str:
        steps = ", ".join(name for name, _ in self.steps) or "no steps"
        return f"Corpus of {', '.join(self.inputs)}: {steps}"


def _filter(rule: str | Callable[..., Any]) -> Steps:
    """The step of a filter's name or of a function."""
    from curate.steps.functions import FunctionInFile

    if not isinstance(rule, str):
        return [("python", {"function": str(FunctionInFile.of(rule))})]
    return [("python", {"function": rule}) if ".py:" in rule else (rule, {})]


def _shared(steps: Steps, /, **settings: Any) -> Steps:
    """The steps with each setting in those that have it. One that none has goes to the first step,
    which refuses it and names the nearest."""
    from curate.steps.registry import step_class

    fields = {name: step_class(name.partition("@")[0]).model_fields for name, _ in steps}
    for setting, value in settings.items():
        takers = [taker for name, taker in steps if setting in fields[name]] or [steps[0][1]]
        for taker in takers:
            if setting in taker:
                raise UsageError(
                    f"{steps[0][0]}: {setting} is {taker[setting]!r} here, by its name"
                )
            taker[setting] = value
    return steps


def run_recipe(
    recipe: Location | Recipe,
    inputs: Location | Iterable[Location],
    out: Location,
    *,
    limit: int | None = None,
    share: float | None = None,
    text_column: str | None = None,
    split: str | None = None,
    config: str | None = None,
    workers: int = 0,
    engine: str = "local",
    address: str | None = None,
    slurm: Mapping[str, str | int] | None = None,
    scratch: Location | None = None,
    allow_python: bool = False,
    quiet: bool = False,
    **settings: Mapping[str, Any],
) -> Result:
    """Runs a recipe over files and returns the result; the same call again resumes.

        run_recipe("fineweb", "crawl/*.warc.gz", "out", language={"keep": ["en"]}, workers=4)

    recipe: the name of a shipped one, a file, or what `load_recipe` or `Corpus.recipe` gave.
    inputs: files, folders, patterns or URLs; without any, [], the recipe names its own. out: a
    folder or a URL. limit, share: documents to read, the first ones, or a share drawn by id.
    text_column: the column of the texts. split, config: of data sets of the hub, train without one.
    workers: number of processes; 0: one a core. engine, address, scratch: as the options of
    `llmcurate run`; slurm: options of sbatch, as {"partition": "cpu"}. allow_python: the recipe may
    run the Python files that it names. settings: of steps by name, or of the section `read`, each a
    mapping.

    Raises UsageError where the call is wrong, RunFailed where the run cannot go on, LockHeld where
    another process works in `out`; each is one line that says what to do.
    """
    from curate.run.records import Options
    from curate.steps.recipe import Change, load, parse

    reading = {"limit": limit, "share": share, "split": split, "config": config}
    reading["columns.text"] = text_column
    changes = []
    for section, values in settings.items():
        written = f"{section}={values!r}"
        if not isinstance(values, Mapping):
            raise UsageError(f"{written}: settings are a mapping, as {section}={{'key': value}}")
        changes += [Change(section, str(key), value, written) for key, value in values.items()]
    changes += [Change("read", k, v, f"{k}={v}") for k, v in reading.items() if v is not None]
    if isinstance(recipe, (str, os.PathLike)):
        chosen = load(Path(recipe) if isinstance(recipe, os.PathLike) else recipe, tuple(changes))
    else:
        chosen = parse(str(recipe), recipe.name, tuple(changes)) if changes else recipe
    options = Options(workers, quiet, engine, address, allow_python=allow_python)
    options = replace(options, slurm=sbatch(slurm))
    return result_of(chosen, names_of(inputs), out, options, scratch)


def sbatch(options: Mapping[str, str | int] | None) -> tuple[str, ...]:
    """Options of sbatch as the engine takes them, KEY=VALUE."""
    return tuple(f"{key}={value}" for key, value in (options or {}).items())
