"""Rehearsal: run a recipe's steps on three documents, so that their kernels are compiled early.

A kernel (a numba function) is compiled when it is first called, once per machine. A run's first
worker calls the kernels in the order of the steps. A worker that would have to wait for a kernel
rehearses the steps from last to first instead. If there are fewer partitions than workers, one
extra process also rehearses the steps from last to first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.manifests import part_path
from curate.corpus.sketches import SketchedCorpus
from curate.documents.documents import CORE, NUMBER, PAYLOAD, Documents
from curate.documents.edits import EDIT, EDITS
from curate.engines import worker
from curate.engines.local import call_apart
from curate.run.messages import Rehearsed, RehearseStage, RehearseStep, StepRecord
from curate.run.worker.stage import build_step, load_stage, sketch_rows
from curate.steps.contracts import CorpusStep, ProductContext, Step, is_ours, open_in
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.kernels import compile_time

TEXT = """The river rose in the night, and by the morning the whole valley was under water. \
People who had lived there for years said that they had never seen anything like it before.

They wrote to the council at https://example.org/help or to help@example.org, and called 10.0.0.1.
Nobody answered for three days, which the mayor said was due to the holiday."""
PAGE = f"""<html><head><title>River</title></head><body><p class=author>By A. Reader<p>{TEXT}<p>
{TEXT}</body></html>"""
ROWS = 3


_begun: set[Path] = set()  # specifications of the stages this process has begun


def begin_stage(spec: Path) -> None:
    """Let this and another process compile the kernels (numba functions) of a stage in parallel.

    To compile its kernels, a step is run on three documents. The other process may run the steps
    from last to first. This process also runs them from last to first whenever it would have to
    wait for a kernel. If this process has already compiled any kernel, it begins by running the
    steps from first to last. Without that run, the kernels of the step `extract`, which take
    longest, would be compiled late: a partition's first batch has no documents, so it does not call
    them."""
    task = RehearseStage(spec, backwards=True)
    worker.offer_help("curate.run.worker.rehearsal:rehearse_all", task)

    def busy() -> None:
        rehearse_all(task)
        worker.waiting_for_kernel()

    compile_time.on_busy = busy
    if spec not in _begun:
        _begun.add(spec)
        _ = load_stage(spec).steps  # loads the models
        if compile_time.seconds:
            rehearse_all(RehearseStage(spec, backwards=False))


def rehearse_all(task: RehearseStage) -> None:
    """Run the built-in steps of a stage and of later stages on a few documents, to compile their
    kernels. Skip steps whose kernels another process is compiling. Errors are ignored, because they
    occur again in the run itself."""
    stage = load_stage(task.spec)
    plain = [step for step in stage.to_rehearse() if is_ours(step)]
    steps: list[Any] = [*plain, *stage.spec.later]
    for step in reversed(steps) if task.backwards else steps:
        with suppress(Exception), _refusing():
            step = build_step(step) if isinstance(step, StepRecord) else step
            rehearse(step, stage.folder)
            worker.ready(step.label, stage.spec.of)


def rehearse_one(task: RehearseStep) -> Rehearsed:
    from llmcurate.base.kernels.locks import Busy

    try:
        with nullcontext() if task.wait else _refusing():
            if task.step is None:
                rehearse_products()
            else:
                rehearse(build_step(task.step), Path())
    except Busy:
        return Rehearsed(busy=True)
    except LlmcurateError as error:  # a model or a library is missing
        return Rehearsed(missing=str(error))
    except Exception as error:  # reported by name; a run may never meet it
        return Rehearsed(missing=f"{type(error).__name__}: {error}")
    return Rehearsed()


@contextmanager
def _refusing() -> Iterator[None]:
    from llmcurate.base.kernels import locks

    before, compile_time.on_busy = compile_time.on_busy, locks.refuse
    try:
        yield
    finally:
        compile_time.on_busy = before


def rehearse(step: Step | CorpusStep, folder: Path) -> None:
    """Do all that a run does with a step, to compile its kernels. `folder` has the step's files."""
    docs = _sample(step.name == "extract")
    if isinstance(step, Step):
        open_in(step, folder)
        step.apply(docs.within(step.label)).split()
        return
    from curate.run.decisions import resolve

    step.open()
    with tempfile.TemporaryDirectory(prefix="llmcurate-") as name:
        corpus = SketchedCorpus(Path(name), 1, "sketch", False)
        with writing(part_path(corpus.folder, 0, corpus.kind)) as writer:
            writer.write(sketch_rows(step, docs.table, 0))
        decisions = corpus.folder / "decisions.parquet"
        size = ROWS, ROWS * 2 * len(TEXT)
        resolve(step, corpus, corpus.folder / "own", decisions, size, 1)
        step.apply(docs.within(step.label), pq.read_table(decisions)).split()


def _sample(as_pages: bool) -> Documents:
    values = {
        "text": None if as_pages else f"{TEXT}\n\n{TEXT}",
        "url": "https://www.example.org/river.html",
        "source": "sample",
        "lang": "en",
        "payload": PAGE.encode(),
        "mime": "text/html",
    }
    fields = (*CORE, *PAYLOAD, (EDITS, pa.list_(EDIT)))
    columns = {name: pa.array([values.get(name)] * ROWS, kind) for name, kind in fields}
    columns["id"] = pa.array([f"sample-{row}" for row in range(ROWS)])
    columns[NUMBER] = pa.array(range(ROWS), pa.int64())
    return Documents(pa.table(columns))


def rehearse_products() -> None:
    from curate.products.tokenizers import ShardsProduct, TokenizerProduct

    table = _sample(False).table.select(["id", "source", "lang", "text"])
    with tempfile.TemporaryDirectory(prefix="llmcurate-") as name:
        folders = {kind: Path(name, f"00-{kind}-sample") for kind in ("tokenizer", "shards")}
        for product in (TokenizerProduct(vocab=300), ShardsProduct()):
            folders[product.name].mkdir()
            product.build(
                ProductContext(
                    folders[product.name],
                    lambda columns=None: iter(table.to_batches()),
                    call_apart,
                    {"tokenizer": folders["tokenizer"]},
                )
            )
