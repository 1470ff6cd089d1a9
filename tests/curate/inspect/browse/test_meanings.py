"""Rules described in words, and scores as positions on a bar."""

from __future__ import annotations

import pytest

from curate.documents.rejected import Reason
from curate.inspect.browse.pages import Meanings, spoken

WORDS = {"scale": "log", "edges": [0.0, 99.0], "counts": [3]}
RECORD = {
    "steps": [{"label": "gopher_quality", "about": "Drops what is no prose."}],
    "figures": {
        "rules": {
            "gopher_quality.few_words": {
                "column": "gopher_quality.words", "threshold": 9.0, "above": False,
                "histogram": WORDS,
            },
            "c4.odd": {"threshold": 2.0, "above": None},
        },
        "measures": {"quality.score": {"scale": "linear", "edges": [-1.0, 0.0, 1.0]}},
    },
}  # fmt: skip


def test_a_score_is_marked_at_its_position_in_the_chart() -> None:
    meanings = Meanings.of(RECORD)
    assert meanings.place("quality.score", 0.5) == 0.75
    assert meanings.place("gopher_quality.words", 9) == pytest.approx(0.5)
    assert [meanings.place("quality.score", v) for v in (-7, 7)] == [0.0, 1.0]
    for value in (None, "text", float("nan")):
        assert meanings.place("quality.score", value) is None
    assert meanings.place("unknown.column", 1.0) is None
    assert meanings.limits == {"gopher_quality.words": 9.0}


def test_a_condition_is_said_in_words() -> None:
    meanings = Meanings.of(RECORD)
    few = Reason("gopher_quality", "few_words", 4.0, 9.0, None)
    assert meanings.why(few) == "drops if words is below 9"
    odd = Reason("c4", "odd", 3.0, 2.0, None)
    assert meanings.why(odd) == "drops if its value is above 2"
    assert meanings.why(odd._replace(threshold=None)) == ""
    assert spoken("gopher_quality.few_words") == "gopher_quality: few words"


def test_a_record_without_figures_has_no_bars() -> None:
    meanings = Meanings.of({})
    assert meanings.place("quality.score", 0.5) is None and meanings.steps == {}
