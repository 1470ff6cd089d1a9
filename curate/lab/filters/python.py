"""Steps that call a function in a file of the user's own. `python` is a filter:

    def keep(text, metadata):
        if len(text) < 200:
            return "too_short"  # the reason to drop it
        return True

The function may also return a number: a measure that `min` and `max` limit. `python_map` changes
documents by a function that returns a new text, or a mapping of `text` and new columns.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import xxhash
from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from curate.documents.documents import NUMBER, PAYLOAD
from curate.documents.edits import EDITS
from curate.documents.limits import Limit, decide
from curate.steps.contracts import FromFiles, NamesCode, Step, step
from curate.steps.functions import FunctionInFile
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.pages.html import plain

if TYPE_CHECKING:
    from curate.documents.documents import Documents

HIDDEN = {NUMBER, EDITS, *(name for name, _ in PAYLOAD)}  # columns that functions do not get
MOST_REASONS = 100  # per batch; more describe single documents and are not rules
FARTHEST = 1e18  # the largest absolute value of a limit
TEXT, RNG = "text", "rng"
TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_NUMBER = re.compile(r"\b(float|int)\b")  # in a return annotation
Answers = list[tuple[int, Any]]  # (row of the batch, the function's answer)


class FunctionStep(Step, FromFiles, NamesCode):
    """A step that calls a function of the user, once per document or batch. A parameter `rng` of
    the function gets a random generator that depends only on the step's name in the recipe and the
    document's id. If the function is called per batch, it gets a list of such generators."""

    plain_setting: ClassVar[str] = "function"

    function: str
    batch: bool = False

    _function: FunctionInFile = PrivateAttr()
    _call: Callable[..., Any] | None = PrivateAttr(None)
    _signature: inspect.Signature = PrivateAttr()

    @field_validator("function", mode="before")
    @classmethod
    def _resolved(cls, value: Any, info: ValidationInfo) -> Any:
        if callable(value):
            return str(FunctionInFile.of(value))
        folder = (info.context or {}).get("folder")
        return str(FunctionInFile.named(value, folder)) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _located(self) -> FunctionStep:
        self._function = FunctionInFile.named(self.function)
        return self

    @property
    def by_id(self) -> bool:
        return RNG in self._function.parameters()

    def named_code(self) -> str:
        return self._function.shown

    def own_source(self) -> str:
        return self._function.digest()

    def resources(self) -> list[str]:
        return [str(path) for _, path in sorted(self._function.sources().items())]

    def open(self) -> None:
        self._call = self._function.load()
        self._signature = inspect.signature(self._call)
        if RNG in self._signature.parameters and not self.by_id:
            raise UsageError(f"{self._function.shown} takes `rng`: define it with `def` in a file")

    def answers(self, docs: Documents, rows: np.ndarray) -> Answers:
        """Call the function on these rows. Raises RunFailed, with a document's id, if it fails."""
        if self._call is None:
            self.open()
        assert self._call is not None
        names = [n for n in docs.table.column_names if n not in HIDDEN]
        draws = RNG in self._signature.parameters
        drawn: dict[str, Any]
        answers: Answers = []
        if self.batch and len(rows):
            first = int(rows[0])
            drawn = {RNG: [self._generator(docs, row) for row in rows]} if draws else {}
            with self._failing(docs, first, f"step {self.label} on the batch that begins with"):
                documents = self.batch_argument(docs.table.select(names).take(pa.array(rows)))
                values = self.batch_answers(self._call(documents, **drawn))
            if len(values) != len(rows):
                name = plain(docs.table["id"][first].as_py())
                raise RunFailed(
                    f"{self._function.shown} returned {len(values):,} values for"
                    f" {counted(len(rows), 'document')} (the first is {name})"
                )
            return list(zip(rows.tolist(), values, strict=True))
        texts = docs.text
        names.remove(TEXT)
        text_only = len(self._signature.parameters) - draws == 1
        columns = [] if text_only else docs.table.select(names).to_pylist()
        for row in rows.tolist():
            arguments = [texts[row].as_py(), *columns[row : row + 1]]
            drawn = {RNG: self._generator(docs, row)} if draws else {}
            with self._failing(docs, row, f"step {self.label} on document"):
                answers.append((row, self._call(*arguments, **drawn)))
        return answers

    def batch_argument(self, table: pa.Table) -> Any:
        """Return the argument that the function gets for a batch of documents."""
        return table

    def batch_answers(self, result: Any) -> list[Any]:
        """Return the list of answers, one per document, in the function's result for a batch."""
        raise NotImplementedError

    def bad_answer(self, answer: Any, docs: Documents, row: int, advice: str) -> RunFailed:
        """Return the error for a function's answer that the step does not accept. It ends with
        `advice`."""
        name, shown = plain(docs.table["id"][row].as_py()), plain(repr(answer), 60)
        return RunFailed(f"{self._function.shown} returned {shown} for document {name}: {advice}")

    def _generator(self, docs: Documents, row: int) -> random.Random:
        key = f"{self.label}\0{docs.table['id'][int(row)].as_py()}"
        return random.Random(xxhash.xxh3_64_intdigest(key.encode()))

    @contextmanager
    def _failing(self, docs: Documents, row: int, what: str) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            name = plain(docs.table["id"][row].as_py())
            raise self._function.failure(error, f"{what} {name}") from error


@step("python")
class PythonFilter(FunctionStep):
    """Drops documents by a function in your own file: keep(text, metadata)."""

    only_measures: ClassVar[bool] = True

    function: str
    """The function, as FILE.py:FUNCTION. The file is looked up in the recipe's folder, then in the
    current folder. The function takes the text and a mapping of the document's other columns, or
    only the text. It returns True to keep the document, False to drop it, a string as the reason to
    drop it ('reason: detail'), or a number as a measure."""
    batch: bool = False
    """The function takes an Arrow table of documents and returns an array with a boolean, a reason
    (null keeps the document) or a number for each."""
    min: float | None = Field(None, ge=-FARTHEST, le=FARTHEST)
    """Documents with a smaller measure are dropped; none: no limit."""
    max: float | None = Field(None, ge=-FARTHEST, le=FARTHEST)
    """Documents with a larger measure are dropped; none: no limit."""

    @model_validator(mode="after")
    def _ordered(self) -> PythonFilter:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}: nothing would be kept")
        return self

    def limits(self) -> list[Limit]:
        name = self._function.name
        return [
            Limit("too_low", name, "min", self.min, above=False, detail=name),
            Limit("too_high", name, "max", self.max, above=True, detail=name),
        ]

    def apply(self, docs: Documents) -> Documents:
        rows = np.flatnonzero(~docs.text.is_null().to_numpy(zero_copy_only=False))
        answers = self.answers(docs, rows)
        limited = self.min is not None or self.max is not None
        # The column must not depend on the documents: all partitions have one schema.
        measures = limited or bool(_NUMBER.search(str(self._signature.return_annotation)))
        values = np.full(len(docs), np.nan)
        reasons: dict[str, dict[int, str | None]] = {}
        for row, answer in answers:
            if isinstance(answer, (bool, np.bool_)):
                if not answer:
                    reasons.setdefault(self._function.name, {})[row] = None
            elif isinstance(answer, str) and (rule := _rule(answer)):
                reasons.setdefault(rule, {})[row] = answer.partition(":")[2].strip() or None
            elif isinstance(answer, (int, float, np.number)) and measures:
                if not -FARTHEST <= answer <= FARTHEST:  # NaN too
                    advice = f"a measure is at most {FARTHEST:g}; without one, return True"
                    raise self.bad_answer(answer, docs, row, advice)
                values[row] = answer
            else:
                advice = "return True, False, a reason or a number"
                if isinstance(answer, (int, float, np.number)):
                    advice = (
                        "for a measure set `min` or `max`, or annotate the function with `-> float`"
                    )
                raise self.bad_answer(answer, docs, row, advice)
        if len(reasons) > MOST_REASONS:
            raise RunFailed(
                f"{self._function.shown} returned more than {MOST_REASONS} different reasons for"
                f" {counted(len(docs), 'document')}, such as {plain(next(iter(reasons)), 40)!r}:"
                " write details after a colon, as in 'too_short: 12 words'"
            )
        for rule in sorted(reasons):
            mask = np.zeros(len(docs), np.bool_)
            mask[list(reasons[rule])] = True
            details = [reasons[rule].get(row) for row in range(len(docs))]
            docs = docs.drop(mask, rule, detail=details)
        if not measures:
            return docs
        measured = pa.array(values, pa.float64(), mask=np.isnan(values))
        return decide(docs.annotate(self._function.name, measured), self.limits())

    def batch_answers(self, result: Any) -> list[Any]:
        array = result if isinstance(result, pa.ChunkedArray) else pa.array(result)
        answers = array.to_pylist()
        of_texts = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        return [True if a is None else a for a in answers] if of_texts else answers


def _rule(reason: str) -> str:
    return re.sub(r"[^\w.-]+", "_", reason.partition(":")[0]).strip("_")[:80]


@step("python_map")
class PythonMap(FunctionStep):
    """Changes texts and adds columns by a function in your own file: change(text, metadata)."""

    function: str
    """The function, as FILE.py:FUNCTION. The file is looked up in the recipe's folder, then in the
    current folder. The function takes the text and a mapping of the document's other columns, or
    only the text. It returns the new text, or a mapping of columns and, if it changes, the
    `text`."""
    batch: bool = False
    """The function takes a list of documents, each a mapping of `text` and the other columns, and
    returns a list with an answer for each. No answer may depend on other documents of the list,
    because batches have no fixed size."""
    columns: dict[str, Literal["str", "int", "float", "bool"]] = {}
    """The columns that the function adds, each with the type of its values."""

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.passes import RowEdit, with_edits

        rows = np.flatnonzero(~docs.text.is_null().to_numpy(zero_copy_only=False) & ~docs.marked())
        texts, edits = docs.text, list[RowEdit]()
        columns: dict[str, list[Any]] = {name: [None] * len(docs) for name in self.columns}
        for row, answer in self.answers(docs, rows):
            for name, value in (answer if isinstance(answer, Mapping) else {TEXT: answer}).items():
                kind = TYPES["str"] if name == TEXT else TYPES.get(self.columns.get(name, ""))
                if kind is None:
                    declare = f"declare it, as in `columns: {{{name}: str}}`"
                    raise self.bad_answer({name: value}, docs, row, declare)
                if not _fits(value, kind) or (name == TEXT and value is None):
                    expected = "the text or a mapping" if name == TEXT else f"{name!r} as {kind}"
                    advice = f"return {expected}"
                    if isinstance(value, str) and pa.types.is_string(kind):
                        advice = "it has a lone surrogate, which no file stores: replace or drop it"
                    raise self.bad_answer(value, docs, row, advice)
                if name != TEXT:
                    columns[name][row] = value
                elif value != (before := texts[row].as_py()):
                    edits.append((row, *_edit(before, value)))
        for name, values in columns.items():
            docs = docs.annotate(name, pa.array(values, TYPES[self.columns[name]]))
        return with_edits(docs, edits, (self._function.name,))

    def batch_argument(self, table: pa.Table) -> list[dict[str, Any]]:
        documents: list[dict[str, Any]] = table.to_pylist()
        return documents

    def batch_answers(self, result: Any) -> list[Any]:
        if not isinstance(result, (list, tuple)):
            raise TypeError(f"it returned a {type(result).__name__}, not a list of answers")
        return list(result)


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Return True if Arrow stores the value in this type unchanged."""
    try:
        return bool(value != value or pa.scalar(value, kind).as_py() == value)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False


def _edit(before: str, after: str) -> tuple[int, int, int, str]:
    """Return the edit that turns `before` into `after`: (start and end in bytes, number of the
    rule, replacement). The step has one rule, number 0. Equal characters at the beginning and end
    of both texts are left out."""
    start = _alike(before, after)
    end = _alike(before[start:][::-1], after[start:][::-1])
    first = len(before[:start].encode())
    last = first + len(before[start : len(before) - end].encode())
    return first, last, 0, after[start : len(after) - end]


def _alike(one: str, other: str) -> int:
    """Return the length of the longest common beginning of two texts, in characters."""
    size = min(len(one), len(other))
    return next((k for k in range(size) if one[k] != other[k]), size)
