"""A filter by a function in a file of the user's own:

    def keep(text, metadata):
        if len(text) < 200:
            return "too_short"  # the reason to drop it
        return True

The function may also return a number: a measure that `min` and `max` limit.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from curate.documents.documents import NUMBER, PAYLOAD
from curate.documents.edits import EDITS
from curate.documents.limits import Limit, decide
from curate.steps.contracts import FromFiles, NamesCode, Step, step
from curate.steps.functions import FunctionInFile
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed
from llmcurate.base.pages.html import plain

if TYPE_CHECKING:
    from curate.documents.documents import Documents

HIDDEN = {"text", NUMBER, EDITS, *(name for name, _ in PAYLOAD)}  # columns that are not metadata
MOST_REASONS = 100  # per batch; with more they describe single documents and are not rules
FARTHEST = 1e18  # the largest limit
_NUMBER = re.compile(r"\b(float|int)\b")  # in a return annotation
Answers = list[tuple[int, Any]]  # (row of the batch, the function's answer)


@step("python")
class PythonFilter(Step, FromFiles, NamesCode):
    """Drops documents by a function in your own file: keep(text, metadata)."""

    only_measures: ClassVar[bool] = True
    plain_setting: ClassVar[str] = "function"

    function: str = Field(
        description="The function, as FILE.py:FUNCTION. The file is looked up in the recipe's"
        " folder, then in the current folder. The function takes the text and a mapping of the"
        " document's other columns, or only the text. It returns True to keep the document, False"
        " to drop it, a string as the reason to drop it ('reason: detail'), or a number as a"
        " measure.",
    )
    batch: bool = Field(
        False,
        description="The function takes an Arrow table of documents and returns an array with a"
        " boolean, a reason (null keeps the document) or a number for each.",
    )
    min: float | None = Field(
        None,
        ge=-FARTHEST,
        le=FARTHEST,
        description="Documents with a smaller measure are dropped; none: no limit.",
    )
    max: float | None = Field(
        None,
        ge=-FARTHEST,
        le=FARTHEST,
        description="Documents with a larger measure are dropped; none: no limit.",
    )

    _function: FunctionInFile = PrivateAttr()
    _call: Callable[..., Any] | None = PrivateAttr(None)
    _measures: bool = PrivateAttr(False)
    _text_only: bool = PrivateAttr(False)

    @field_validator("function")
    @classmethod
    def _resolved(cls, value: str, info: ValidationInfo) -> str:
        return str(FunctionInFile.named(value, (info.context or {}).get("folder")))

    @model_validator(mode="after")
    def _ordered(self) -> PythonFilter:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}: nothing would be kept")
        self._function = FunctionInFile.named(self.function)
        return self

    def named_code(self) -> str:
        return self._function.shown

    def own_source(self) -> str:
        return self._function.digest()

    def resources(self) -> list[str]:
        return [str(path) for _, path in sorted(self._function.sources().items())]

    def limits(self) -> list[Limit]:
        name = self._function.name
        return [
            Limit("too_low", name, "min", self.min, above=False, detail=name),
            Limit("too_high", name, "max", self.max, above=True, detail=name),
        ]

    def open(self) -> None:
        self._call = self._function.load()
        signature = inspect.signature(self._call)
        limited = self.min is not None or self.max is not None
        # The column must not depend on the documents: all partitions have one schema.
        self._measures = limited or bool(_NUMBER.search(str(signature.return_annotation)))
        self._text_only = len(signature.parameters) == 1

    def apply(self, docs: Documents) -> Documents:
        if self._call is None:
            self.open()
        rows = np.flatnonzero(~docs.text.is_null().to_numpy(zero_copy_only=False))
        answers = self._call_on_batch(docs, rows) if self.batch else self._call_on_each(docs, rows)
        values = np.full(len(docs), np.nan)
        reasons: dict[str, dict[int, str | None]] = {}
        for row, answer in answers:
            if isinstance(answer, (bool, np.bool_)):
                if not answer:
                    reasons.setdefault(self._function.name, {})[row] = None
            elif isinstance(answer, str) and (rule := _rule(answer)):
                reasons.setdefault(rule, {})[row] = answer.partition(":")[2].strip() or None
            elif isinstance(answer, (int, float, np.number)) and self._measures:
                values[row] = answer
            else:
                raise self._bad_answer(answer, docs.table["id"][row].as_py())
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
        if not self._measures:
            return docs
        measured = pa.array(values, pa.float64(), mask=np.isnan(values))
        return decide(docs.annotate(self._function.name, measured), self.limits())

    def _call_on_each(self, docs: Documents, rows: np.ndarray) -> Answers:
        assert self._call is not None
        texts, answers = docs.text, []
        names = [n for n in docs.table.column_names if n not in HIDDEN]
        columns = [] if self._text_only else docs.table.select(names).to_pylist()
        for row in rows.tolist():
            arguments = [texts[row].as_py(), *columns[row : row + 1]]
            with self._failing(docs, row, f"step {self.label} on document"):
                answers.append((row, self._call(*arguments)))
        return answers

    def _call_on_batch(self, docs: Documents, rows: np.ndarray) -> Answers:
        assert self._call is not None
        if len(rows) == 0:
            return []
        hidden = HIDDEN - {"text"}
        names = [n for n in docs.table.column_names if n not in hidden]
        table = docs.table.select(names).take(pa.array(rows))
        first = int(rows[0])
        with self._failing(docs, first, f"step {self.label} on the batch that begins with"):
            result = self._call(table)
            array = pa.array(result) if not isinstance(result, pa.ChunkedArray) else result
        if len(array) != len(rows):
            raise RunFailed(
                f"{self._function.shown} returned {len(array):,} values for"
                f" {counted(len(rows), 'document')}"
            )
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            rows, array = rows[np.asarray(pc.is_valid(array))], pc.drop_null(array)
        return list(zip(rows.tolist(), array.to_pylist(), strict=True))

    @contextmanager
    def _failing(self, docs: Documents, row: int, what: str) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            name = plain(docs.table["id"][row].as_py())
            raise self._function.failure(error, f"{what} {name}") from error

    def _bad_answer(self, answer: Any, name: str) -> RunFailed:
        advice = "return True, False, a reason or a number"
        if isinstance(answer, (int, float, np.number)):
            advice = "for a measure set `min` or `max`, or annotate the function with `-> float`"
        shown = plain(repr(answer), 60)
        return RunFailed(
            f"{self._function.shown} returned {shown} for document {plain(name)}: {advice}"
        )


def _rule(reason: str) -> str:
    return re.sub(r"[^\w.-]+", "_", reason.partition(":")[0]).strip("_")[:80]
