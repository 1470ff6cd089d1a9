"""The result of a run: its documents, its report, and what can be made of them next.

No document is read before it is asked for, and `dataset` and `files` are the ways to documents that
do not fit into memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import say

if TYPE_CHECKING:
    import datasets
    import pandas
    import polars
    import pyarrow as pa
    import pyarrow.dataset

    from curate.inspect.explain import Account
    from curate.run.homes import Corpus as Files
    from curate.run.records import Options
    from curate.steps.recipe import Recipe


class StoredDocuments:
    """The documents in parquet files, one a row. As in the files, `attributes` holds the scores and
    edits of all steps; methods that take columns take the names of scores, too.

    It speaks Arrow's C stream interface, so that `pyarrow.table(...)` and others take it as it is.
    """

    def __init__(self, files: Sequence[Path], of: str) -> None:
        self.files, self._of = tuple(files), of

    def dataset(self) -> pyarrow.dataset.Dataset:
        """All files as one data set, which reads what a query asks for, batch by batch. UsageError
        where there are no files."""
        import pyarrow as pa
        import pyarrow.dataset
        import pyarrow.parquet as pq

        if not self.files:
            raise UsageError(f"there are no documents: {self._of} holds none")
        # The files of a run have one schema; a refreshed corpus has those of several runs.
        schemas = [pq.read_schema(path) for path in {p.parent: p for p in self.files}.values()]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        return pyarrow.dataset.dataset([str(path) for path in self.files], schema=schema)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.dataset().schema.names)

    @property
    def scores(self) -> list[str]:
        """The names of what `attributes` holds, `step.figure` each, and `edits`."""
        from curate.documents.attributes import flat, is_attribute

        return [field.name for field in flat(self.dataset().schema) if is_attribute(field)]

    def __len__(self) -> int:
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(path).num_rows for path in self.files)

    def head(self, rows: int = 5) -> pa.Table:
        """The first documents."""
        return self.dataset().head(rows)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All documents in memory. columns: by name; None: all of them. UsageError names a column
        that is not there."""
        from pyarrow.dataset import field

        from curate.documents.attributes import ATTRIBUTES

        dataset, chosen = self.dataset(), {}
        for name in columns or ():
            if name not in dataset.schema.names and name not in self.scores:
                names = ", ".join([*dataset.schema.names, *self.scores])
                raise UsageError(f"{self._of} has no column {name!r}; there are {names}")
            inner = name not in dataset.schema.names
            chosen[name] = field(ATTRIBUTES, name) if inner else field(name)
        return dataset.to_table(columns=None if columns is None else chosen)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """All documents in memory as a frame of pandas; columns: as of `to_arrow`."""
        _need("pandas")
        return self.to_arrow(columns).to_pandas(split_blocks=True, self_destruct=True)

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """All documents in memory as a frame of polars; columns: as of `to_arrow`."""
        frame: polars.DataFrame = _need("polars").from_arrow(self.to_arrow(columns))
        return frame

    def to_datasets(self, streaming: bool = False) -> datasets.Dataset | datasets.IterableDataset:
        """The documents as a data set of Hugging Face's `datasets`, which copies them into its
        cache and maps that into memory; streaming: reads them one after the other instead."""
        library = _need("datasets")
        if not self.files:
            raise UsageError(f"there are no documents: {self._of} holds none")
        files = [str(path) for path in self.files]
        return library.load_dataset("parquet", data_files=files, split="train", streaming=streaming)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.dataset().scanner().to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        if not self.files:
            return f"{self._of}: no documents"
        return f"{self._of}: {counted(len(self), 'document')} with {', '.join(self.columns)}"

    def _repr_html_(self) -> str:
        """The first rows of what users look at first."""
        if not self.files:
            return _html_table([self._of], [["no documents"]])
        first = [n for n in ("id", "step", "rule", "text", "url", "lang") if n in self.columns]
        rows = self.dataset().head(5, columns=first).to_pylist()
        shown = [[str(row[n] if row[n] is not None else "")[:SHOWN] for n in first] for row in rows]
        return f"<p>{escape(repr(self))}</p>{_html_table(first, shown)}"


SHOWN = 200  # characters of a value in a notebook


def _html_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of texts, which stay texts whatever they hold."""
    lines = [(head, "th"), *((row, "td") for row in rows)]
    cells = ("".join(f"<{t}>{escape(str(v))}</{t}>" for v in row) for row, t in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _need(library: str) -> Any:
    """The module of a library that is no dependency of ours; UsageError says how to get it."""
    from importlib import import_module

    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        raise UsageError(f"this needs {error.name}: pip install {error.name}") from None


Location = str | os.PathLike[str]  # of a file or folder, or a URL


@dataclass(frozen=True, repr=False)
class Shown:
    """Figures that print as text and show themselves in a notebook as their page."""

    figures: Any
    text: str
    page: str

    def _repr_html_(self) -> str:
        return _framed(self.page, "Figures")

    def __repr__(self) -> str:
        return self.text


class Browser:
    """The pages of the documents at `address`, for this computer alone, until `close`."""

    def __init__(self, out: Path) -> None:
        from threading import Thread

        from curate.inspect.browse.library import library
        from curate.inspect.browse.server import Server

        self._stack = ExitStack()
        self._server = self._stack.enter_context(Server(self._stack.enter_context(library(out)), 0))
        self.address: str = self._server.address
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._stack.close()

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.address)}" target="_blank">{escape(self.address)}</a>'

    def __repr__(self) -> str:
        return f"documents at {self.address} (this computer only; close() ends it)"


def _framed(page: str, title: str) -> str:
    """A frame that holds the page: its styles do not reach the notebook, and nothing in it runs."""
    # Else links within the page would lead to the notebook's own address.
    page = page.replace("<head>", '<head><base href="about:srcdoc">', 1)
    style = "width: 100%; height: 40em; border: 1px solid #8888"
    return f'<iframe srcdoc="{escape(page)}" style="{style}" sandbox="" title="{title}"></iframe>'


class Report:
    """The page of a run. In a notebook it shows itself, in a frame of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Shows the page in the browser."""
        import webbrowser

        webbrowser.open(self.path.resolve().as_uri())

    def _repr_html_(self) -> str:
        return _framed(self.path.read_text(encoding="utf-8"), "Report")

    def __repr__(self) -> str:
        return f"report: {self.path}"


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run in its folder `out`. record: the content of its run.json. `run` of a corpus
    and `run_recipe` give one, and `Result.open` one that was made before."""

    out: Path
    record: dict[str, Any]
    _files: Files
    _home: Path  # of recipe and report

    @classmethod
    def open(cls, out: Location) -> Result:
        """The result in a folder: of a run, here or by the command line, of a product, or of a
        refreshed HOME. UsageError for a folder that holds none."""
        from curate.run.homes import corpus_of
        from curate.run.ledger import RUN
        from curate.run.records import read_record

        files = corpus_of(Path(out))
        try:
            return cls(files.out, files.record(), files, files.run)
        except FileNotFoundError:
            home = files.out / RUN  # of products alone
        try:
            return cls(files.out, read_record(home), files, home)
        except FileNotFoundError:
            raise UsageError(f"{out} holds no finished run") from None

    @property
    def counts(self) -> dict[str, Any]:
        """Documents read, kept and rejected, by rule too, bytes and seconds, as `--json` has."""
        return dict(self.record["totals"])

    @property
    def corpus(self) -> StoredDocuments:
        """The documents that were kept."""
        return StoredDocuments(self._files.kept, f"corpus of {self.out}")

    @property
    def rejected(self) -> StoredDocuments:
        """The documents that were dropped, with step, rule, value and threshold, and all other
        reasons."""
        return StoredDocuments(self._files.gone, f"rejected documents of {self.out}")

    @property
    def report(self) -> Report:
        """The page that the run wrote."""
        return Report(self._home / "report.html")

    @property
    def recipe(self) -> Recipe:
        """The recipe with all settings; it prints as YAML."""
        from curate.steps.recipe import load

        return load(self._home / "recipe.yaml")

    @property
    def products(self) -> dict[str, dict[str, Any]]:
        """What was made of the documents, by kind (tokenizer, shards, model): its figures, and
        under `files` its files below `out`."""
        return {product["makes"]: product for product in self.record["products"]}

    @property
    def card(self) -> dict[str, Any]:
        """The figures of the last product: a tokenizer's card, the numbers of shards, the summary
        of a training. UsageError where there is no product."""
        if not self.record["products"]:
            raise UsageError(f"{self.out} holds documents and no product")
        last = self.record["products"][-1]
        return dict(last.get("card") or last.get("summary") or last)

    def explain(self, id: str) -> Account:
        """Why a document was dropped, what was cut, and of what it is a copy. UsageError names
        an id like it where there is no such document."""
        from curate.inspect.explain import explain
        from curate.run.homes import runs_that_read

        runs = runs_that_read(self.out.resolve(), id) or [self.out]
        return explain(runs, id)

    def whatif(self, **changes: Mapping[str, Any]) -> Shown:
        """What other settings would have kept, as whatif(gopher_quality={"min_words": 80}): steps
        by name, each a mapping. UsageError for a step or setting that there is not."""
        from curate.inspect.whatif.figures import answer
        from curate.inspect.whatif.rendering import page, text

        sets = (
            f"{step}.{name}={json.dumps(value)}"
            for step, settings in changes.items()
            for name, value in settings.items()
        )
        figures = answer(self.out, tuple(sets))
        return Shown(figures, text(figures), page(figures))

    def stats(self) -> Shown:
        """Lengths, scores, languages, domains, dates and sources of the documents kept."""
        from curate.inspect.stats import gather

        figures = gather(self._with_documents())
        return Shown(figures, figures.text(), figures.page())

    def browse(self) -> Browser:
        """Starts the pages of the documents, kept and dropped, with search; shows their address."""
        return Browser(self.out)

    def train_tokenizer(
        self, out: Location, *, workers: int = 0, quiet: bool = False, **settings: Any
    ) -> Result:
        """A tokenizer trained on the documents, in the folder `out`.

        settings: those of `llmcurate steps tokenizer`, as vocab=32000.
        """
        return _product("tokenizer", self._with_documents(), out, workers, quiet, **settings)

    def encode(
        self,
        out: Location,
        tokenizer: Location | None = None,
        *,
        workers: int = 0,
        quiet: bool = False,
        **settings: Any,
    ) -> Result:
        """The documents as token shards, in the folder `out`.

        tokenizer: its file or folder, or the result that has it; by default the one that the run's
        own recipe trained. settings: those of `llmcurate steps shards`, as val_fraction=0.01.
        """
        documents = self._with_documents()
        if tokenizer is None and "tokenizer" not in self.products:
            raise UsageError(f"{self.out} holds no tokenizer: give tokenizer=, its folder")
        settings = {"tokenizer": os.fspath(tokenizer or self.out), **settings}
        return _product("shards", documents, out, workers, quiet, **settings)

    def pretrain(self, out: Location, *, quiet: bool = False, **settings: Any) -> Result:
        """A language model trained on the token shards of this result, in the folder `out`. The
        same call with more steps goes on.

        settings: those of `llmcurate steps pretrain`, as steps=400.
        """
        if "shards" not in settings and not settings.get("sources"):
            if "shards" not in self.products:
                raise UsageError(f"{self.out} holds no token shards: encode documents first")
            settings = {"shards": str(self.out), **settings}
        return _product("pretrain", [], out, 1, quiet, **settings)

    def generate(self, prompt: str = "", **settings: Any) -> str:
        """The continuation of a prompt by the model of this result, the same for the same seed.

        settings: max_tokens, temperature, top_k, seed, checkpoint ("best" by held-out loss, or
        "last"). UsageError where there is no model.
        """
        from train.generate import generate

        return generate(self.out, prompt, **settings)

    def _with_documents(self) -> list[str]:
        """The run as an input; UsageError where it has no documents."""
        if not self._files.kept:
            raise UsageError(f"{self.out} holds no corpus")
        return [str(self.out)]

    def __fspath__(self) -> str:
        return str(self.out)

    def __repr__(self) -> str:
        from curate.run.records import RunRecord, funnel

        return f"{funnel(RunRecord.of(self.record))}\n{self.report}"

    def _repr_html_(self) -> str:
        """The funnel, the three rules that decide most, and where the report is."""
        from curate.run.records import RunRecord, funnel_rows, reasons

        record = RunRecord.of(self.record)
        rows = [
            (row.step, f"{row.before:,}", f"{row.dropped:,}", f"{row.after:,}", reasons(row, 2))
            for row in funnel_rows(record.stages)
        ]
        most = [*record.totals.by_rule.items()][:3]
        rules = ", ".join(f"{rule} {count:,}" for rule, count in most)
        report = self.report.path.resolve()
        return (
            f"<p>kept {counted(record.totals.kept, 'document')} of {record.totals.read:,}</p>"
            f"{_html_table(('step', 'in', 'dropped', 'out', 'reasons'), rows)}"
            f"<p>{escape(f'most dropped by: {rules}') if rules else 'nothing was dropped'}</p>"
            f'<p>report: <a href="{escape(report.as_uri())}">{escape(str(report))}</a></p>'
        )


def result_of(
    recipe: Recipe,
    inputs: list[str],
    out: Location,
    options: Options,
    scratch: Location | None = None,
) -> Result:
    """Runs the recipe. An interrupt leaves `out` as a killed run does: the same call goes on."""
    from curate.run.driver import carry_out

    aside = None if scratch is None else Path(scratch)
    try:
        outcome = carry_out(recipe, inputs, Path(out), options, aside)
    except KeyboardInterrupt:
        say("stopped; the same call goes on from here", options.quiet)
        raise
    if outcome.nothing_new:
        say(f"all is done in {out}: same input, same settings", options.quiet)
    return Result.open(outcome.out)


def _product(
    step: str, inputs: list[str], out: Location, workers: int, quiet: bool, /, **settings: Any
) -> Result:
    """The result of one product's recipe, as the command of that product runs it."""
    from curate.run.records import Options
    from curate.steps.recipe import compose

    return result_of(compose(step, [(step, settings)]), inputs, out, Options(workers, quiet))
