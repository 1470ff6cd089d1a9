"""Training data: sources by name, splits and pads counted, all text shown as text."""

from __future__ import annotations

from curate.cli.training import step_text
from curate.inspect.report.page import Figures, RunPage
from curate.run.records import held_out_lines, product_line
from train.measure.step_documents import Step, StepDocument


def score(loss: float, bits: float | None) -> dict:
    return {"loss": loss, "bits_per_byte": bits, "documents": 3, "tokens": 40, "bytes": 99}


PART = {
    "packing": "best-fit", "documents": 5, "tokens": 900, "rows": 12, "split": 4, "padded": 77,
    "used": 0.921, "cropped": 0, "taken_rows": 20,
}  # fmt: skip
SOURCE = {
    "documents": 5, "held_out_documents": 3, "unique_tokens": 900, "tokens": 1500,
    "epochs": 5 / 3, "repeated_tokens": 600,
}  # fmt: skip
SUMMARY = {
    "parameters": 2_000_000, "steps": 9, "first_loss": 5.5, "last_loss": 4.25,
    "held_out_loss": 4.5, "bits_per_byte": None, "sample": "<b>word</b>",
    "held_out_sources": {"web": score(4.25, 1.875), "<i>wiki": score(4.75, None)},
    "data": {
        "sources": {"web": SOURCE},
        "stages": [
            {"name": "anneal", "steps": 9, "rows": 4, "context": 32, "sources": {"web": PART}}
        ],
    },
}  # fmt: skip
PRODUCT = {"label": "pretrain", "makes": "model", "summary": SUMMARY, "metrics": []}


def test_the_chapter_has_sources_packing_and_epochs():
    page = RunPage({"products": [PRODUCT]}, Figures()).chapter("products")
    for shown in ("1.875", "4.750", "anneal", "best-fit", "92.1 %", "77", "1.67", "1,500"):
        assert shown in page, shown
    assert "<i>wiki" not in page and "&lt;i&gt;wiki" in page and "<b>word" not in page


def test_the_terminal_has_a_line_a_source():
    lines = held_out_lines(SUMMARY)
    assert len(lines) == 3 and "1.875" in lines[1] and lines[2].split()[-1] == "-"
    assert held_out_lines({**SUMMARY, "held_out_sources": {}}) == []


def test_texts_scored_whole_are_listed_with_their_sources_in_report_and_terminal():
    text = {**score(3.5, 1.625), "sources": {"a<b": score(3.25, None)}}
    summary = {**SUMMARY, "held_out_sources": {}, "eval": {"news": text}}
    lines = held_out_lines(summary)
    assert [line.split()[-1] for line in lines] == ["bits/byte", "1.625", "-"]
    page = RunPage({"products": [{**PRODUCT, "summary": summary}]}, Figures()).chapter("products")
    assert "1.625" in page and "news: a&lt;b" in page and "a<b" not in page


def test_a_model_of_tokens_without_bytes_tells_its_loss():
    assert "loss 4.50 on held-out text" in product_line(PRODUCT)


def test_the_line_of_a_fine_tuning_counts_its_held_out_samples():
    terms = {"held_out_terms": {"accuracy": 1.0}, "scored_documents": 1}
    line = product_line({**PRODUCT, "summary": SUMMARY | terms})
    assert line.endswith(
        "training loss 5.50 -> 4.25; on 1 held-out sample (too few to trust: raise --held-out):"
        " loss 4.50, accuracy 1.000"
    )
    many = product_line({**PRODUCT, "summary": SUMMARY | terms | {"scored_documents": 20}})
    assert many.endswith("on 20 held-out samples: loss 4.50, accuracy 1.000")


def test_the_documents_of_a_step_are_lines():
    document = StepDocument("web", "", "a\x1bb", 12)
    lines = step_text(Step(3, "anneal", 2, 12, [document], "loss nan")).splitlines()
    assert lines[0] == "step 3 (anneal): 2 rows, 12 tokens of 1 document"
    assert lines[1].endswith("loss nan") and lines[2].split() == ["12", "web", "a␛b"]
