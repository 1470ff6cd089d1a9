"""Runs from Python: `Corpus` (inputs and steps) and `run_recipe` (a recipe by name or file). Tables
and rows in memory are first written to parquet files in the cache folder."""

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


ROWS = 10_000  # per row group
TAKES = "files, folders, URLs, tables (pandas, polars, Arrow, datasets) or a list of dicts"


def names_of(inputs: Any) -> list[str]:
    """Return the paths or URLs of one or several inputs. Tables and rows are written to files
    first. Raise UsageError for an object that cannot be an input."""
    if isinstance(inputs, (str, os.PathLike)):
        return [os.fspath(inputs)]
    if isinstance(inputs, Mapping) and all(map(_is_table, inputs.values())) and inputs:
        raise UsageError(f"a dict of tables is no table: give one of {', '.join(inputs)}")
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
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"the rows make no table: {' '.join(str(error).split())}") from None
    finally:
        aside.unlink(missing_ok=True)
    return str(path)


def _whole(table: Any, schema: Any) -> Any:
    return table.select(schema.names).cast(schema).combine_chunks()


Steps = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Corpus:
    """Inputs and the steps to run on their documents.

        clean = Corpus.read("crawl/*.warc.gz").extract().filter("gopher_quality").dedup("minhash")
        result = clean.run("out")

    Each method returns a new corpus, and nothing is read before `run`. An unknown step or setting
    raises UsageError at once, with the nearest name that exists.
    """

    inputs: tuple[str, ...]
    steps: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, *inputs: Any, **settings: Any) -> Corpus:
        """Return a corpus of files, folders, patterns or URLs, or lists of them.

        Formats are WARC, JSONL, parquet, CSV and more. For the folder of a run, or its `Result`,
        the documents are those that the run kept. Tables (pandas, polars, Arrow, `datasets`) and
        lists of dicts have one document per row; they are written to files in the cache for workers
        to read.

        settings: settings of a recipe's section `read`, such as limit=1000 (the first documents),
        share=0.01 (sampled by id) or split="test"; or text_column and date_column, the names of the
        columns with texts and dates.
        """
        names = [name for some in inputs for name in names_of(some)]
        if not names:
            what = "the list has no documents" if inputs else "name files, or a folder of them"
            raise UsageError(f"Corpus.read: {what}")
        columns = {name: settings.pop(f"{name}_column", None) for name in ("text", "date")}
        if columns := {name: column for name, column in columns.items() if column is not None}:
            settings["columns"] = {**settings.get("columns", {}), **columns}
        return cls(tuple(names))._with((), **settings)

    from_pandas = from_arrow = from_datasets = read  # the names that people look for

    def step(self, name: str | Settings, /, **settings: Any) -> Corpus:
        """Return this corpus with one more step, given by name or as an object. For example
        step("url_filter", domains="blocked.txt") or step(steps.UrlFilter(domains="blocked.txt")).
        name: a step that `llmcurate steps` lists, or "cut" to store the documents at this point."""
        if callable(name):
            raise UsageError(f"step: give an object, steps.{name.__name__}(), or a step's name")
        if not isinstance(name, str):
            return self.step(name.name, **name.model_dump(exclude_unset=True), **settings)
        return self._with([(name, settings)])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the input documents, before any step. Raise UsageError if a file has web pages."""
        from curate.corpus.direct_input import DirectInput

        reader = DirectInput.of_texts(self.inputs, self.recipe.read, quiet=True)
        for batch in reader.batches(None):
            yield from batch.to_pylist()

    def head(self, rows: int = 5) -> list[dict[str, Any]]:
        """Return the first input documents, before any step. Raise UsageError if `rows` is not a
        whole number."""
        if not isinstance(rows, int) or rows < 0:
            raise UsageError(f"head: rows is {rows!r}: give a whole number")
        return list(islice(self, rows))

    def __len__(self) -> int:
        """Return the number of input documents, before any step. This reads the whole input."""
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True  # must not read the input

    def extract(self, **settings: Any) -> Corpus:
        """Extract the main text of web pages: extract(format="markdown")."""
        return self.step("extract", **settings)

    def language(self, **settings: Any) -> Corpus:
        """Label documents by language: language(keep=["en"], threshold=0.65)."""
        return self.step("language", **settings)

    def quality(self, **settings: Any) -> Corpus:
        """Score documents with a classifier: quality(model="quality.bin", keep_fraction=0.1)."""
        return self.step("quality", **settings)

    def perplexity(self, **settings: Any) -> Corpus:
        """Label documents head, middle or tail by their perplexity, as CCNet does:
        perplexity(model="models/{lang}.bin", keep=["head"])."""
        return self.step("perplexity", **settings)

    def decontaminate(self, **settings: Any) -> Corpus:
        """Drop documents that contain items of evaluation sets:
        decontaminate(evals="benchmark.jsonl")."""
        return self.step("decontaminate", **settings)

    def filter(self, *rules: str | Callable[..., Any], **settings: Any) -> Corpus:
        """Drop documents by published rules or your own: filter("c4@tfds", "gopher_quality").
        rules: names of filters, or your own functions as "my_rules.py:keep" or as function objects
        that are defined in a file. settings: each setting is passed to every filter that has it."""
        if not rules:
            raise UsageError('filter needs the name of a filter: filter("gopher_quality")')
        if lists := [rule for rule in rules if isinstance(rule, (list, tuple))]:
            raise UsageError(f"filter: give the rules one after the other, not as {lists[0]!r}")
        return self._with(_shared([step for rule in rules for step in _filter(rule)], **settings))

    def map(self, function: str | Callable[..., Any], **settings: Any) -> Corpus:
        """Change texts and add columns by your own function, named as "my_maps.py:shorten" or given
        as an object: map(shorten, columns={"words": "int"}). settings: settings of `python_map`."""
        return self.step("python_map", function=_named(function), **settings)

    def dedup(self, method: str = "exact", **settings: Any) -> Corpus:
        """Remove duplicates: dedup("minhash", survivor="longest"). method: one of the methods that
        `llmcurate dedup --help` lists, or several joined with +. settings: each setting is passed
        to every step of the method that has a setting of this name."""
        from curate.dedup.methods import steps_of

        return self._with(_shared(steps_of(method), **settings))

    @property
    def recipe(self) -> Recipe:
        """The recipe of this corpus. When printed, it is the YAML that `llmcurate run` reads."""
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
        """Run the steps and write corpus/, rejected/ and a report to `out`, a folder or URL. The
        same call again resumes the run. workers: the number of processes; 0 means one per core.
        engine, address, scratch: the options of `llmcurate run` with these names. slurm: options of
        sbatch, such as {"partition": "cpu"}. Raise RunFailed if the run cannot continue, and
        LockHeld if another process uses `out`."""
        from curate.run.records import Options

        # The caller named the functions, so they may run.
        options = Options(workers, quiet, engine, address, allow_python=True)
        options = replace(options, slurm=sbatch(slurm))
        return result_of(self.recipe, list(self.inputs), out, options, scratch)

    def _with(self, steps: Steps | tuple[()], /, **reading: Any) -> Corpus:
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
    name = _named(rule)
    return [("python", {"function": name}) if ".py:" in name else (name, {})]


def _named(function: str | Callable[..., Any]) -> str:
    """Return the name of a function as FILE.py:FUNCTION. A function of a notebook is first written
    to a file."""
    from curate.steps.functions import FunctionInFile

    return function if isinstance(function, str) else str(FunctionInFile.of(function))


def _shared(steps: Steps, /, **settings: Any) -> Steps:
    """Add each setting to the steps that have a setting of this name. If no step has it, add it to
    the first step, which raises an error with the nearest name."""
    from curate.steps.registry import step_class

    fields = {name: step_class(name.partition("@")[0]).model_fields for name, _ in steps}
    for setting, value in settings.items():
        takers = [taker for name, taker in steps if setting in fields[name]] or [steps[0][1]]
        for taker in takers:
            if setting in taker:
                raise UsageError(
                    f"{steps[0][0]}: its name already sets {setting} to {taker[setting]!r}"
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
    """Run a recipe over files and return the result. The same call again resumes the run.

        run_recipe("fineweb", "crawl/*.warc.gz", "out", language={"keep": ["en"]}, workers=4)

    recipe: the name of a shipped recipe, a file, or an object from `load_recipe` or
    `Corpus.recipe`. inputs: files, folders, patterns or URLs; [] for the input that the recipe
    names. out: a folder or a URL. limit: the number of documents to read, from the first on. share:
    the share of documents to read, sampled by id. text_column: the column with the texts. split,
    config: the split (default: train) and the configuration of a dataset on the Hugging Face hub.
    workers: the number of processes; 0 means one per core. engine, address, scratch: the options of
    `llmcurate run` with these names. slurm: options of sbatch, such as {"partition": "cpu"}.
    allow_python: True if the recipe may run the Python files that it names. settings: the settings
    to change, as {setting: value} for each step; the section `read` may be used like a step.

    Raise UsageError if the call is wrong, RunFailed if the run cannot continue, and LockHeld if
    another process uses `out`. Each message is one line that says what to do.
    """
    from curate.run.records import Options
    from curate.steps.recipe import Change, load, parse

    reading = {"limit": limit, "share": share, "split": split, "config": config}
    reading["columns.text"] = text_column
    changes = []
    for section, values in settings.items():
        written = f"{section}={values!r}"
        if not isinstance(values, Mapping):
            raise UsageError(f"{written}: give a mapping, {section}={{'key': value}}")
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
    return tuple(f"{key}={value}" for key, value in (options or {}).items())
