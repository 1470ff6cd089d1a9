"""What a language threshold dropped from the middle: counts by label, and some of the texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow.parquet as pq
import pytest

from curate.documents.documents import NUMBER
from curate.documents.documents import documents as documents_of
from curate.inspect.report import documents
from curate.inspect.report.documents import EACH, Unsure
from curate.inspect.report.page import Figures, RunPage
from curate.inspect.report.store import opened
from curate.text.languages import Chosen, chosen
from llmcurate.base.messages import json_values

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
    docs = documents_of({"id": ids, "text": texts, "lang": [row[0] for row in rows]})
    docs = docs.within("language#2").drop(score < threshold, "language_score", score, threshold)
    docs = docs.within("other").drop(np.array([row[2] for row in rows]), "rule")
    for name, table in zip(("corpus", "rejected"), docs.split(), strict=True):
        (folder / name).mkdir()
        half = table.num_rows // 2
        for i, part in enumerate((table.slice(0, half), table.slice(half))):
            pq.write_table(part.drop_columns([NUMBER]), folder / name / f"part-{i:05d}.parquet")
    return folder


def gathered(folder: Path) -> dict[str, Unsure]:
    with opened(folder) as store:
        assert store is not None
        return documents.unsure_languages(store)


def test_scores_from_0_3_up_to_the_threshold_are_counted_by_label(tmp_path: Path) -> None:
    labels = gathered(written(tmp_path))
    assert [(u.lang, u.dropped, u.alone) for u in labels.values()] == [("en", 15, 10), ("de", 5, 0)]


def test_examples_are_documents_that_no_other_rule_marked(tmp_path: Path) -> None:
    english, german = gathered(written(tmp_path)).values()
    assert len(english.examples) == EACH
    assert {score for _, score, _ in english.examples} <= {0.3, 0.64}
    assert all(text == f"<b>text {name[1:]}" for name, _, text in english.examples)
    assert german.examples == []
    assert gathered(tmp_path)["en"].examples == english.examples


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_a_threshold_of_0_3_leaves_nothing_to_look_at(tmp_path: Path, threshold: float) -> None:
    assert gathered(written(tmp_path, threshold)) == {}
    assert RunPage({}, Figures()).chapter("measures").strip() == ""


def test_the_chapter_shows_counts_and_escaped_texts(tmp_path: Path) -> None:
    figures = Figures(unsure=gathered(written(tmp_path)))
    page = RunPage({}, figures).chapter("measures")
    assert "en: 3 of 10" in page and "&lt;b&gt;text" in page and "<b>text" not in page
    assert json_values(figures)["unsure"]["en"] == {"dropped": 15, "alone": 10}
    assert "text" not in str(json_values(figures)["unsure"])


def run_of(
    folder: Path,
    langs: dict[str | None, tuple[int, int]],
    judged: Mapping[str, Chosen] = MappingProxyType({}),
) -> list[str]:
    """The lines on a run of two steps. langs: (documents that come to the second step, documents
    that it drops); 60 of each language go in the first."""
    rows = [(lang, i) for lang, (came, _) in langs.items() for i in range(60 + came)]
    docs = documents_of(
        {"text": ["t"] * len(rows), "id": [f"d{i}" for i in range(len(rows))],
         "lang": [lang for lang, _ in rows]}
    )  # fmt: skip
    number = np.array([i for _, i in rows])
    gone = np.array([langs[lang][1] for lang, _ in rows])
    docs = docs.within("first").drop(number < 60, "rule")
    # It measures what is marked already, too.
    docs = docs.within("second#2").drop((number < 60) | (number < 60 + gone), "it's")
    for name, table in zip(("corpus", "rejected"), docs.split(), strict=True):
        (folder / name).mkdir(parents=True)
        pq.write_table(table.drop_columns([NUMBER]), folder / name / "part-00000.parquet")
    with opened(folder) as store:
        assert store is not None
        return documents.lost(store, ["first", "second#2"], judged)


def test_a_rule_that_drops_over_half_of_a_language_is_reported(
    tmp_path: Path,
) -> None:
    lines = run_of(tmp_path, {"th": (60, 31), "de": (60, 30), "fr": (49, 49), None: (60, 60)})
    of_second = [line for line in lines if line.startswith("second")]
    assert of_second == [
        "second#2.it's drops 31 of 60 documents in th: its limit may not fit the language"
    ]
    (least,) = run_of(tmp_path / "fifty", {"nl": (50, 26)})[-1:]
    assert least.startswith("second#2.it's drops 26 of 50 documents in nl")
    # Of the 120 documents in th or de that reach the first step half goes, of those in fr more.
    assert [x for x in lines if x not in of_second] == [
        "first.rule drops 60 of 109 documents in fr: its limit may not fit the language"
    ]


def test_labels_without_a_profile_are_counted_once_by_label(tmp_path: Path) -> None:
    langs = {"xx": (1, 0), "nl": (2, 0), "zho_Hant": (3, 0), "yue": (3, 0), "EN-us": (3, 0)}
    judged = {"second#2": chosen("auto")}
    lines = run_of(tmp_path, langs | {None: (9, 0)}, judged)
    assert [line for line in lines if "profile" in line] == [
        "no language profile, so the limits of English were used: nl (2 documents), xx (1 document)"
    ]


def test_a_language_excluded_by_the_recipe_is_not_reported(tmp_path: Path) -> None:
    docs = documents_of(
        {"text": ["t"] * 60, "id": [f"d{i}" for i in range(60)], "lang": ["de"] * 60}
    )
    docs = docs.within("language").drop(np.ones(60, np.bool_), "language")
    for name, table in zip(("corpus", "rejected"), docs.split(), strict=True):
        (tmp_path / name).mkdir()
        pq.write_table(table.drop_columns([NUMBER]), tmp_path / name / "part-00000.parquet")
    with opened(tmp_path) as store:
        assert store is not None and documents.lost(store, ["language"]) == []
