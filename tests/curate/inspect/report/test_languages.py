"""What a language threshold dropped from the middle: counts by label, and some of the texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from curate.documents.documents import documents, strip_number
from curate.inspect.report import languages
from curate.inspect.report.languages import EACH, Unsure
from curate.inspect.report.page import Figures, render_chapter
from curate.inspect.report.store import opened

# Label, score, whether another rule marks it too; five documents of each.
ROWS = [
    ("en", 0.9, False),
    ("en", 0.65, False),
    ("en", 0.64, False),
    ("en", 0.3, False),
    ("en", 0.29, False),
    ("en", 0.5, True),
    ("de", 0.4, True),
    (None, 0.0, False),
]
TIMES = 5


def written(folder: Path, threshold: float = 0.65) -> Path:
    rows = [row for row in ROWS for _ in range(TIMES)]
    score = np.array([row[1] for row in rows])
    ids = [f"d{i}" for i in range(len(rows))]
    texts = [f"<b>text {i}" for i in range(len(rows))]
    docs = documents({"id": ids, "text": texts, "lang": [row[0] for row in rows]})
    docs = docs.within("language#2").drop(score < threshold, "language_score", score, threshold)
    docs = docs.within("other").drop(np.array([row[2] for row in rows]), "rule")
    for name, table in zip(("corpus", "rejected"), docs.split(), strict=True):
        (folder / name).mkdir()
        half = table.num_rows // 2
        for i, part in enumerate((table.slice(0, half), table.slice(half))):
            pq.write_table(strip_number(part), folder / name / f"part-{i:05d}.parquet")
    return folder


def gathered(folder: Path) -> list[Unsure]:
    with opened(folder) as store:
        assert store is not None
        return languages.gather(store)


def test_scores_from_0_3_up_to_the_threshold_are_counted_by_label(tmp_path: Path) -> None:
    labels = gathered(written(tmp_path))
    assert [(u.lang, u.dropped, u.alone) for u in labels] == [("en", 15, 10), ("de", 5, 0)]


def test_examples_are_documents_that_no_other_rule_marked(tmp_path: Path) -> None:
    english, german = gathered(written(tmp_path))
    assert len(english.examples) == EACH
    assert {score for _, score, _ in english.examples} <= {0.3, 0.64}
    assert all(text == f"<b>text {name[1:]}" for name, _, text in english.examples)
    assert german.examples == []
    assert gathered(tmp_path)[0].examples == english.examples


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_a_threshold_of_0_3_leaves_nothing_to_look_at(tmp_path: Path, threshold: float) -> None:
    assert gathered(written(tmp_path, threshold)) == []
    assert render_chapter("measures", {}, Figures()).strip() == ""


def test_the_chapter_shows_counts_and_texts_as_text(tmp_path: Path) -> None:
    figures = Figures(unsure=gathered(written(tmp_path)))
    page = render_chapter("measures", {}, figures)
    assert "en: 3 of 10" in page and "&lt;b&gt;text" in page and "<b>text" not in page
    assert figures.dump()["unsure"]["en"] == {"dropped": 15, "alone": 10}
    assert "text" not in str(figures.dump()["unsure"])
