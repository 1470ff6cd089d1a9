"""What a run's lines say: things that are counted by name, one of them without a plural."""

from __future__ import annotations

from pathlib import Path

from curate.refresh.outcome import Refreshed
from curate.run.funnel import product_line


def test_held_out_tokens_are_of_documents() -> None:
    val = {"tokens": 18532, "documents": 28}
    shards = {"label": "shards", "makes": "shards", "tokens": 1, "documents": 1, "bytes": 4}
    assert product_line(shards) == "shards: 1 token of 1 document, 4.00 bytes a token"
    held = product_line({**shards, "val": val})
    assert held.endswith("; held out 18,532 tokens of 28 documents")


def test_one_new_input_is_no_plural() -> None:
    outcome = Refreshed(Path("home"), "run", "day", inputs=1, totals={"read": 1, "kept": 1})
    outcome.corpus = {"documents": 1}
    assert outcome.line() == "day: 1 new input, 1 document read, 1 kept; corpus 1 document; 0.0 s"


def test_a_loss_that_is_not_known_is_not_stated() -> None:
    summary = {"bits_per_byte": 1.0, "parameters": 1_000_000, "steps": 2, "last_loss": 6.74}
    model = {"makes": "model", "label": "pretrain", "summary": summary | {"first_loss": None}}
    assert "2 steps, loss 6.74, 1.00 bits a byte" in product_line(model)
    model["summary"] = summary | {"first_loss": 7.39}
    assert "loss 7.39 -> 6.74, " in product_line(model)
