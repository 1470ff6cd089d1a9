"""Curves of runs: the mean of the runs at each place."""

from __future__ import annotations

import json

import pytest

from train.runs.curves import loss_curve, text_curve


@pytest.fixture
def folders(tmp_path):
    """Two runs of three and four steps; the second has no loss at its second step."""
    losses, texts = ((3.0, 2.0, 1.0), (5.0, None, 3.0, 9.0)), ((1.0, 3.0), (3.0, 5.0))
    for number, (own, bits) in enumerate(zip(losses, texts, strict=True)):
        lines = [{"step": step, "loss": loss} for step, loss in enumerate(own, 1)]
        scores = {f"t{n}": {"bits_per_byte": b, "bytes": 1 + 2 * n} for n, b in enumerate(bits)}
        lines[2]["eval"] = scores
        (tmp_path / str(number)).mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / str(number) / "metrics.jsonl").write_text(text)
    return [tmp_path / "0", tmp_path / "1"]


def test_the_loss_is_the_mean_of_the_runs_up_to_the_shortest(folders):
    assert loss_curve(folders, 64) == [(64, 4.0), (128, 2.0), (192, 2.0)]


def test_the_score_of_texts_is_weighted_by_their_bytes(folders):
    ((at, bits),) = text_curve(folders, ["t0", "t1"], 64)
    assert at == 192 and bits == pytest.approx(((1 + 9) / 4 + (3 + 15) / 4) / 2)
    assert text_curve(folders, ["other"], 64) == []
