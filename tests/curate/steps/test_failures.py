"""Errors inside a step: the line names the step, the source and the document."""

from __future__ import annotations

from typing import Any

import pytest

from curate.documents.documents import Documents, documents
from curate.steps import registry
from curate.steps.failures import failing, on_batch
from llmcurate.base.errors import RunFailed, UnexpectedError, UsageError

DOCS = documents(
    {"id": [f"a.jsonl#{n}" for n in range(9)], "text": ["x"] * 6 + ["bad", "x", "bad"]}
)


def refuses_bad(docs: Documents) -> Documents:
    if "bad" in docs.text.to_pylist():
        raise TypeError("no\nnumber")
    return docs


def test_the_first_document_on_which_a_step_fails_is_named() -> None:
    with pytest.raises(UnexpectedError) as failure:
        on_batch("s", refuses_bad, DOCS.within("s"))
    start = "step s failed on document a.jsonl#6: TypeError: no number"
    assert str(failure.value).startswith(start) and failure.value.exit_code == 1


def test_a_batch_is_named_where_no_document_alone_is_at_fault() -> None:
    def refuses_many(docs: Documents) -> Documents:
        assert len(docs) < 9, "many"
        return docs

    with pytest.raises(UnexpectedError, match=r"on the batch that begins with a\.jsonl#0: Assert"):
        on_batch("s", refuses_many, DOCS)


@pytest.mark.parametrize("answer", [None, DOCS.table.slice(1)])
def test_an_answer_without_a_row_for_each_document_is_refused(answer: Any) -> None:
    with pytest.raises(UnexpectedError, match=r"step s returned (NoneType|8 rows) for 9 documents"):
        on_batch("s", lambda docs: answer, DOCS)


@pytest.mark.parametrize("error", [UsageError("as it is"), MemoryError(), OSError(28, "full")])
def test_errors_that_speak_for_themselves_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as passed, failing("s"):
        raise error
    assert passed.value is error


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("no_such_module:A", "step mine cannot be loaded from no_such_module:A: ModuleNotFound"),
        ("curate.filters.c4:None_", "has no attribute 'None_'"),
        ("curate.filters.c4:C4", "needs `@step\\('mine'\\)` above it"),
    ],
)
def test_a_step_that_cannot_be_loaded_is_a_one_line_error(
    place: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.REGISTRY, "mine", place)
    with pytest.raises(RunFailed, match=says):
        registry.step_class("mine")
