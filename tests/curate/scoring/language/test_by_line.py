"""Lines of a document by language: shares, scores, switches; and texts too short to be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.scoring.language.identification import Language
from curate.scoring.language.model import MOST, shares_of
from tests.curate.scoring.language.labelled_texts import (
    CHINESE,
    ENGLISH,
    GERMAN,
    corpus,
    labelled,
    rules,
)


def measured(model: Path, texts: list[str | None], **options: Any) -> list[dict[str, Any]]:
    rows = labelled(model, texts, lines=True, **options).table.to_pylist()
    return [
        {k.removeprefix("language."): v for k, v in row.items() if k.startswith("language.")}
        for row in rows
    ]


def names(row: dict[str, Any]) -> dict[str, float]:
    return {pair["lang"]: pair["share"] for pair in row["shares"]}


def test_a_document_of_one_language_does_not_switch(model: Path) -> None:
    (row,) = measured(model, [f"{ENGLISH}\n{ENGLISH}\n"])
    assert names(row) == {"en": 1.0}
    assert row["switched"] == 0
    assert row["line_score"] == pytest.approx(row["score"], abs=0.05)


def test_shares_are_bytes_of_lines(model: Path) -> None:
    (row,) = measured(model, [f"{ENGLISH}\n{ENGLISH}\n\n{GERMAN}\n{CHINESE}"])
    english, german, chinese = (len(t.encode()) for t in (2 * ENGLISH, GERMAN, CHINESE))
    total = english + german + chinese
    assert names(row) == pytest.approx(
        {"en": english / total, "de": german / total, "zh": chinese / total}
    )
    assert list(names(row)) == ["en", "de", "zh"]
    assert row["switched"] == pytest.approx(1 - english / total)
    assert 0.8 * english / total < row["line_score"] <= english / total


def test_short_lines_do_not_count(model: Path) -> None:
    text = f"{ENGLISH}\nMenü\nZurück zur\n"
    assert measured(model, [text])[0]["switched"] == 0
    assert measured(model, [text], line_chars=0)[0]["switched"] > 0


def test_a_line_of_exactly_line_chars_counts(model: Path) -> None:
    chars = len(GERMAN)  # one of its characters has two bytes
    for text in (f"{GERMAN}\nab", f"ab\n{GERMAN}"):
        assert names(measured(model, [text], line_chars=chars)[0]) == {"de": 1.0}
        assert names(measured(model, [text], line_chars=chars + 1)[0]) == {}


def test_a_document_without_a_line_that_counts_has_no_figures(model: Path) -> None:
    for row in measured(model, [None, "", "\n\n", "short", "</s>\n__label__de"]):
        assert (row["line_score"], row["switched"], row["shares"]) == (None, None, [])


def test_lines_drop_nothing_and_change_no_label(model: Path) -> None:
    texts = [f"{GERMAN}\n{GERMAN}\n{ENGLISH}", CHINESE, None]
    with_lines, plain = labelled(model, texts, lines=True), labelled(model, texts)
    assert not with_lines.drops
    for column in plain.table.column_names:
        assert with_lines.table[column].to_pylist() == plain.table[column].to_pylist()


def test_without_the_switch_there_are_no_such_columns(model: Path) -> None:
    columns = labelled(model, [ENGLISH]).table.column_names
    assert not {"language.line_score", "language.switched", "language.shares"} & set(columns)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 7),
            st.lists(st.tuples(st.integers(0, 7), st.integers(1, 9), st.booleans()), max_size=12),
        ),
        max_size=6,
    )
)
def test_the_kernel_counts_as_plain_python_does(
    batch: list[tuple[int, list[tuple[int, int, bool]]]],
) -> None:
    lines = [line for _, page in batch for line in page]
    rows = np.cumsum([0, *(len(page) for _, page in batch)]).astype(np.int64)
    codes, size = (np.array([x[i] for x in lines], np.int64) for i in (0, 1))
    counts = np.array([x[2] for x in lines], np.bool_)
    language = np.array([code for code, _ in batch], np.int32)
    scores = np.full(len(lines), 0.5, np.float32)
    score, switched, best, shares = shares_of(
        rows, codes.astype(np.int32), scores, size, counts, language, 8
    )
    for row, (label, page) in enumerate(batch):
        held: dict[int, int] = {}
        for code, many, counted in page:
            if counted:
                held[code] = held.get(code, 0) + many
        total = sum(held.values())
        if not total:
            assert np.isnan(score[row]) and np.isnan(switched[row])
            continue
        assert switched[row] == pytest.approx(1 - held.get(label, 0) / total)
        assert score[row] == pytest.approx(0.5 * held.get(label, 0) / total)
        order = sorted(held.items(), key=lambda item: (-item[1], item[0]))[:MOST]
        assert best[row].tolist() == [c for c, _ in order] + [-1] * (MOST - len(order))
        assert shares[row, : len(order)].tolist() == [n / total for _, n in order]


def test_short_documents_are_labelled_but_not_judged(model: Path) -> None:
    docs = labelled(model, ["1 2 3", GERMAN, "ab", ""], keep=["en"], min_chars=6)
    assert rules(docs) == [set(), {"language"}, set(), set()]
    assert docs.table["lang"].to_pylist()[1] == "de"
    assert docs.table["language.score"].to_pylist()[0] > 0


def test_characters_are_counted_not_bytes(model: Path) -> None:
    judged = lambda least: rules(labelled(model, ["ßß ßß"], threshold=1.0, min_chars=least))  # noqa: E731
    assert judged(5) == [{"language_score"}]
    assert judged(6) == [set()]


@pytest.mark.slow
def test_a_run_keeps_the_columns_whatever_the_workers(bench: Any, model: Path) -> None:
    source = corpus(bench, 20)
    steps = [{"language": {"model": str(model), "lines": True, "keep": ["en", "de"]}}]
    read = {"partition_bytes": 2000, "batch_rows": 7}
    bench.run(steps, source, out="one", workers=1, read=read)
    bench.run(steps, source, out="two", workers=2, read=read)
    assert bench.bytes_of("one") == bench.bytes_of("two")
    assert {r["language.switched"] for r in bench.rows("one")} == {0.0}
    assert all(r["language.shares"][0]["share"] == 1 for r in bench.rows("one"))


def test_no_document_gives_the_columns_all_the_same(model: Path) -> None:
    full = Language(model=str(model), lines=True)
    schemas = [
        full.apply(documents({"text": texts}).within("language")).table.schema
        for texts in ([], [ENGLISH])
    ]
    assert schemas[0] == schemas[1]
