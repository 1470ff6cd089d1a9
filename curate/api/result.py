"""The result of a run: its documents, its report, and methods for next steps such as training.
Documents are read only when needed. For documents larger than memory, use `dataset` or `files`."""

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
    """Documents in parquet files, one document per row. The column `attributes` has the scores and
    edits of all steps. Methods with a parameter `columns` also accept names of scores. The object
    supports Arrow's C stream interface, so it can be passed to `pyarrow.table(...)` and others."""

    def __init__(self, files: Sequence[Path], of: str) -> None:
        self.files, self._of = tuple(files), of

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Return all files as one dataset, which queries read batch by batch. Raise UsageError if
        there are no files."""
        import pyarrow as pa
        import pyarrow.dataset
        import pyarrow.parquet as pq

        if not self.files:
            raise UsageError(f"{self._of} has no documents")
        # The files of a run have the same schema; a refreshed corpus has files of several runs.
        schemas = [pq.read_schema(path) for path in {p.parent: p for p in self.files}.values()]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        return pyarrow.dataset.dataset([str(path) for path in self.files], schema=schema)

    @property
    def columns(self) -> list[str]:
        return list(self.dataset().schema.names)

    @property
    def scores(self) -> list[str]:
        """The names of the fields of the column `attributes`: `edits`, and a name STEP.FIGURE, such
        as quality.score, for each figure of a step."""
        from curate.documents.attributes import flat, is_attribute

        return [field.name for field in flat(self.dataset().schema) if is_attribute(field)]

    def __len__(self) -> int:
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(path).num_rows for path in self.files)

    def head(self, rows: int = 5) -> pa.Table:
        """Return the first documents."""
        return self.dataset().head(rows)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Load all documents into memory as an Arrow table. columns: the names of columns or scores
        to load; None means all. Raise UsageError for an unknown column."""
        from pyarrow.dataset import field

        from curate.documents.attributes import ATTRIBUTES

        dataset, chosen = self.dataset(), {}
        columns = [columns] if isinstance(columns, str) else columns
        for name in columns or ():
            if name not in dataset.schema.names and name not in self.scores:
                names = ", ".join([*dataset.schema.names, *self.scores])
                raise UsageError(f"{self._of} has no column {name!r}; choose from {names}")
            inner = name not in dataset.schema.names
            chosen[name] = field(ATTRIBUTES, name) if inner else field(name)
        return dataset.to_table(columns=None if columns is None else chosen)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """Load all documents into a pandas data frame. columns: the same as for `to_arrow`."""
        _need("pandas")
        return self.to_arrow(columns).to_pandas(split_blocks=True, self_destruct=True)

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """Load all documents into a polars data frame. columns: the same as for `to_arrow`."""
        frame: polars.DataFrame = _need("polars").from_arrow(self.to_arrow(columns))
        return frame

    def to_datasets(self, streaming: bool = False) -> datasets.Dataset | datasets.IterableDataset:
        """Return the documents as a dataset of Hugging Face's library `datasets`, which copies them
        to its cache. streaming: True to read the documents one by one instead."""
        library = _need("datasets")
        if not self.files:
            raise UsageError(f"{self._of} has no documents")
        files = [str(path) for path in self.files]
        return library.load_dataset("parquet", data_files=files, split="train", streaming=streaming)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.dataset().scanner().to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        if not self.files:
            return f"{self._of}: no documents"
        return f"{self._of}: {counted(len(self), 'document')} with {', '.join(self.columns)}"

    def _repr_html_(self) -> str:
        if not self.files:
            return _html_table([self._of], [["no documents"]])
        first = [n for n in ("id", "step", "rule", "text", "url", "lang") if n in self.columns]
        rows = self.dataset().head(5, columns=first).to_pylist()
        shown = [[str(row[n] if row[n] is not None else "")[:SHOWN] for n in first] for row in rows]
        return f"<p>{escape(repr(self))}</p>{_html_table(first, shown)}"


SHOWN = 200  # characters of a value that a notebook shows


def _html_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [(head, "th"), *((row, "td") for row in rows)]
    cells = ("".join(f"<{t}>{escape(str(v))}</{t}>" for v in row) for row, t in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _need(library: str) -> Any:
    from importlib import import_module

    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        raise UsageError(f"this needs {error.name}: pip install {error.name}") from None


Location = str | os.PathLike[str]  # of a file or folder, or a URL


@dataclass(frozen=True, repr=False)
class Shown:
    """Results of an analysis: text when printed, an HTML page in a notebook."""

    figures: Any  # the results as an object
    text: str
    page: str

    def _repr_html_(self) -> str:
        return _framed(self.page, "Figures")

    def __repr__(self) -> str:
        return self.text


class Browser:
    """A server of pages that show documents, at `address`. It runs until `close`, and only this
    computer can reach it."""

    def __init__(self, out: Path) -> None:
        from threading import Thread

        from curate.inspect.browse.library import library
        from curate.inspect.browse.server import Server

        self._stack = ExitStack()
        self._server = self._stack.enter_context(Server(self._stack.enter_context(library(out)), 0))
        self.address: str = self._server.address
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._stack.close()

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.address)}" target="_blank">{escape(self.address)}</a>'

    def __repr__(self) -> str:
        return f"documents at {self.address} (this computer only; close() stops it)"


def _framed(page: str, title: str) -> str:
    # Without <base>, links within the page would lead to the notebook's address.
    page = page.replace("<head>", '<head><base href="about:srcdoc">', 1)
    style = "width: 100%; height: 40em; border: 1px solid #8888"
    return f'<iframe srcdoc="{escape(page)}" style="{style}" sandbox="" title="{title}"></iframe>'


class Report:
    """The report page of a run. A notebook shows it in a frame."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        import webbrowser

        webbrowser.open(self.path.resolve().as_uri())

    def _repr_html_(self) -> str:
        return _framed(self.path.read_text(encoding="utf-8"), "Report")

    def __repr__(self) -> str:
        return f"report: {self.path}"


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run in the folder `out`. `Corpus.run`, `run_recipe` and `Result.open` return it.
    record: the content of the run's run.json."""

    out: Path
    record: dict[str, Any]
    _files: Files
    _home: Path  # folder of recipe and report

    @classmethod
    def open(cls, out: Location) -> Result:
        from curate.run.homes import corpus_of
        from curate.run.ledger import RUN
        from curate.run.records import read_record

        files = corpus_of(Path(out))
        try:
            return cls(files.out, files.record(), files, files.run)
        except FileNotFoundError:
            home = files.out / RUN  # a run of products only
        try:
            return cls(files.out, read_record(home), files, home)
        except FileNotFoundError:
            raise UsageError(f"{out} holds no finished run") from None

    @property
    def counts(self) -> dict[str, Any]:
        """The totals that `--json` prints: the documents read, kept and dropped (in all and by
        rule), bytes, time."""
        return dict(self.record["totals"])

    @property
    def corpus(self) -> StoredDocuments:
        """The documents that the run kept."""
        return StoredDocuments(self._files.kept, f"corpus of {self.out}")

    @property
    def rejected(self) -> StoredDocuments:
        """The documents that the run dropped, each with the step, rule, value and threshold that
        dropped it, and with any further reasons."""
        return StoredDocuments(self._files.gone, f"rejected documents of {self.out}")

    @property
    def report(self) -> Report:
        """The report page of the run."""
        return Report(self._home / "report.html")

    @property
    def recipe(self) -> Recipe:
        """The recipe with all its settings. When printed, it is YAML."""
        from curate.steps.recipe import load

        return load(self._home / "recipe.yaml")

    @property
    def products(self) -> dict[str, dict[str, Any]]:
        """The figures of the run's products, by kind: tokenizer, shards or model. The entry `files`
        of the figures lists the product's files."""
        return {product["makes"]: product for product in self.record["products"]}

    @property
    def card(self) -> dict[str, Any]:
        """The figures of the last product: a tokenizer's card, the counts of token shards, or the
        summary of a training. Raises UsageError if there is no product."""
        if not self.record["products"]:
            raise UsageError(f"{self.out} has documents but no product")
        last = self.record["products"][-1]
        return dict(last.get("card") or last.get("summary") or last)

    def explain(self, id: str) -> Account:
        """Explain why a document was kept or dropped, what was cut from it, and which document it
        duplicates. Raise UsageError, with the nearest id, if there is no document with this id."""
        from curate.inspect.explain import explain
        from curate.run.homes import runs_that_read

        runs = runs_that_read(self.out.resolve(), str(id)) or [self.out]
        return explain(runs, str(id))

    def whatif(self, **changes: Mapping[str, Any]) -> Shown:
        """Estimate what a run with other settings would have kept. changes: {step: {setting:
        value}}, as in whatif(gopher_quality={"min_words": 80}). Raise UsageError for an unknown
        step or setting."""
        from curate.inspect.whatif.figures import answer
        from curate.inspect.whatif.rendering import page, text

        sets = []
        for step, settings in changes.items():
            if not isinstance(settings, Mapping):
                raise UsageError(f"{step}={settings!r}: give a mapping, {step}={{'key': value}}")
            sets += [f"{step}.{name}={json.dumps(value)}" for name, value in settings.items()]
        figures = answer(self.out, tuple(sets))
        return Shown(figures, text(figures), page(figures))

    def stats(self) -> Shown:
        """Measure the kept documents: lengths, scores, languages, domains, dates, sources."""
        from curate.inspect.stats import gather

        figures = gather(self._with_documents())
        return Shown(figures, figures.text(), figures.page())

    def browse(self) -> Browser:
        """Start a server of pages that show the kept and dropped documents, with search."""
        return Browser(self.out)

    def train_tokenizer(
        self, out: Location, *, workers: int = 0, quiet: bool = False, **settings: Any
    ) -> Result:
        """Train a tokenizer on the documents into the folder `out`. workers: the number of
        processes; 0 means one per core. settings: any that `llmcurate steps tokenizer` lists, for
        example vocab=32000."""
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
        """Encode the documents into token shards in the folder `out`. tokenizer: the file or folder
        of a tokenizer, or a result that has one; None means the tokenizer trained by this run.
        settings: any that `llmcurate steps shards` lists, for example val_fraction=0.01."""
        documents = self._with_documents()
        if tokenizer is None and "tokenizer" not in self.products:
            raise UsageError(f"{self.out} has no tokenizer: give tokenizer=, its folder")
        settings = {"tokenizer": os.fspath(tokenizer or self.out), **settings}
        return _product("shards", documents, out, workers, quiet, **settings)

    def pretrain(self, out: Location, *, quiet: bool = False, **settings: Any) -> Result:
        """Train a language model on the token shards of this result into the folder `out`. The same
        call with more steps continues the training. settings: any that `llmcurate steps pretrain`
        lists, for example steps=400."""
        if "shards" not in settings and not settings.get("sources"):
            if "shards" not in self.products:
                raise UsageError(f"{self.out} has no token shards: call `encode` first")
            settings = {"shards": str(self.out), **settings}
        return _product("pretrain", [], out, 1, quiet, **settings)

    def generate(self, prompt: str = "", **settings: Any) -> str:
        """Return a text with which the model of this result continues the prompt. settings:
        max_tokens, temperature, top_k, seed (the same seed gives the same text), checkpoint ("best"
        by held-out loss, or "last"). Raise UsageError if there is no model."""
        from train.generate import generate

        return generate(self.out, prompt, **settings)

    def _with_documents(self) -> list[str]:
        if not self._files.kept:
            raise UsageError(f"{self.out} has no corpus")
        return [str(self.out)]

    def __fspath__(self) -> str:
        return str(self.out)

    def __repr__(self) -> str:
        from curate.run.records import RunRecord, funnel

        return f"{funnel(RunRecord.of(self.record))}\n{self.report}"

    def _repr_html_(self) -> str:
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
    """Run the recipe and return its result. After an interrupt the same call resumes the run."""
    from curate.run.driver import carry_out

    aside = None if scratch is None else Path(scratch)
    try:
        outcome = carry_out(recipe, inputs, Path(out), options, aside)
    except KeyboardInterrupt:
        say("stopped; make the same call to resume", options.quiet)
        raise
    if outcome.nothing_new:
        say(f"nothing to do in {out}: same input, same settings", options.quiet)
    return Result.open(outcome.out)


def _product(
    step: str, inputs: list[str], out: Location, workers: int, quiet: bool, /, **settings: Any
) -> Result:
    from curate.run.records import Options
    from curate.steps.recipe import compose

    return result_of(compose(step, [(step, settings)]), inputs, out, Options(workers, quiet))
