"""The lines that a run prints: counts by name, with correct plurals."""

from __future__ import annotations

from pathlib import Path

from curate.refresh.outcome import Corpus, Refreshed, Totals
from curate.run.records import StageRecord, funnel_rows, product_line, reasons


def test_a_step_has_its_own_rules_the_largest_first_and_of_equals_by_name() -> None:
    stage = StageRecord(
        read=100, steps=["c4", "c4#2", "c4_paragraphs"], cut={"c4.end": 2, "c4#2.end": 3},
        primary={"c4.b": 7, "c4.a": 7, "c4.x": 9, "c4#2.a": 1, "engine.quarantine": 2},
        cut_bytes={"c4.end": 1500}, seconds={"c4": 1.5},
    )  # fmt: skip
    first, second, third, engine = funnel_rows([stage])
    assert [*first.rules.items()] == [("x", 9), ("a", 7), ("b", 7)] and first.cut == {"end": 2}
    assert (first.after, second.before, third.before, engine.after) == (77, 77, 76, 74)
    assert reasons(first, 3) == "x 9, a 7, b 7; cut 1.50 kB of text"
    assert reasons(first, 2) == "x 9, a 7 and 1 more; cut 1.50 kB of text"


def test_held_out_tokens_are_of_documents() -> None:
    val = {"tokens": 18532, "documents": 28}
    shards = {"label": "shards", "makes": "shards", "tokens": 1, "documents": 1, "bytes": 4}
    assert product_line(shards) == "shards: 1 token of 1 document, 4.00 bytes per token"
    held = product_line({**shards, "val": val})
    assert held.endswith("; held out 18,532 tokens of 28 documents")


def test_one_new_input_is_no_plural() -> None:
    outcome = Refreshed(Path("home"), "run", "day", inputs=1, totals=Totals(read=1, kept=1))
    outcome.corpus = Corpus(documents=1)
    assert outcome.line() == "day: 1 new input, 1 document read, 1 kept; corpus 1 document; 0.0 s"


def test_a_loss_that_is_not_known_is_not_stated() -> None:
    summary = {"bits_per_byte": 1.0, "parameters": 1_000_000, "steps": 2, "last_loss": 6.74}
    model = {"makes": "model", "label": "pretrain", "summary": summary | {"first_loss": None}}
    assert "2 steps, loss 6.74, 1.00 bits per byte" in product_line(model)
    model["summary"] = summary | {"first_loss": 7.39}
    assert "loss 7.39 -> 6.74, " in product_line(model)
