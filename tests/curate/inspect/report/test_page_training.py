"""The report's training chapter: complete and incomplete records, all text escaped."""

from __future__ import annotations

from typing import Any

from curate.inspect.report.page import Figures, RunPage

MODEL = {
    "parameters": 1, "steps": 5, "first_loss": 6.0, "last_loss": 1.2, "held_out_loss": 1.5,
    "bits_per_byte": 0.7,
}  # fmt: skip


def training(product: dict[str, Any]) -> str:
    record = {"products": [{"makes": "model", "label": "model", **product}]}
    return RunPage(record, Figures()).chapter("products")


def record(**changes: Any) -> dict[str, Any]:
    metrics = [
        {"step": step, "loss": 6 / step, "lr": step / 10, "grad_norm": 1.0} for step in range(1, 6)
    ]
    metrics[4]["held_out"] = {"loss": 1.5, "bits_per_byte": 0.7}
    summary = {
        **MODEL,
        "sample": "the <b>cat</b>",
        "skipped_steps": 0,
        "best_checkpoint": "checkpoints/step-0000005",
        "plan": {"train": {"optimizer": "muon", "schedule": "wsd", "ema": 0.0, "rows": 4}},
        "timing": {"tokens_per_second": 1234.5, "flops_per_second": 2.5e12, "processes": 1},
    }
    return {"metrics": metrics, "summary": summary, **changes}


def test_curves_of_loss_rate_and_gradient_are_drawn() -> None:
    page = training(record())
    assert page.count("<svg") == 3
    assert "6.00 to 1.20; dots: on held-out documents, 1.50 at the end" in page
    assert "learning rate by step" in page and "gradient norm" in page


def test_loads_of_experts_are_drawn_by_layer() -> None:
    mixture = record()
    mixture["summary"]["loads"] = [[0.5, 0.125, 0.125, 0.25], [0.25] * 4]
    for line in mixture["metrics"]:
        line["load"] = 1.5
    page = training(mixture)
    assert page.count("<svg") == 5 and "largest load of an expert" in page
    assert "load of each expert (column)" in page
    drawn = page[page.index('aria-label="loads of experts"') :]
    assert drawn.count("fill-opacity=") - drawn.count('fill-opacity="0.5"') == 5  # of the mean
    assert drawn.count('fill-opacity="0.5"') == 2  # a half of it


def test_the_chapter_shows_work_and_speed_and_no_share_of_an_unknown_peak() -> None:
    page = training(record())
    for name, value in (("optimizer", "muon"), ("tokens per second", "1,234"), ("rows", "4")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert "<dd>2.50 T</dd>" in page and "MFU" not in page and "<dt>ema</dt>" not in page
    measured = record()
    measured["summary"]["timing"]["mfu"] = 0.413
    assert "<dt>of the GPU&#39;s peak (MFU)</dt><dd>41.3\u00a0%</dd>" in training(measured)


def test_a_skipped_training_step_is_listed_with_its_documents() -> None:
    skipping = record()
    skipping["metrics"][2] |= {"loss": None, "skipped": "loss nan", "documents": ["<i>", "b"]}
    skipping["summary"]["skipped_steps"] = 1
    page = training(skipping)
    assert "<li>step 3: loss nan. Documents: &lt;i&gt;, b.</li>" in page


def test_text_is_text_and_a_record_of_nothing_is_no_crash() -> None:
    assert "the &lt;b&gt;cat&lt;/b&gt;" in training(record())
    bare = training({"metrics": [], "summary": MODEL})
    assert "<svg" not in bare and "<dl" not in bare and "<table" not in bare
    only = training(record(metrics=[{"step": 1, "loss": float("nan"), "lr": 0.1}]))
    assert "<svg" not in only
