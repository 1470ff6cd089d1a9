"""Scores of a model in ONNX, and the integer score that FineWeb-Edu keeps from 3 on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from curate.documents.documents import documents
from curate.lab.scoring.onnx_score import OnnxScore
from llmcurate.base.errors import UsageError
from tests.curate.onnx_models import onnx_model, write_model

WORDS = ["[UNK]", "low", "half", "good", "best"]
VALUES = np.array([[0.0], [-1.0], [2.5], [2.6], [9.0]], np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'llmcurate[onnx]'")
    write_model(tmp_path / "edu", onnx_model(VALUES, mean=True), WORDS)
    return tmp_path / "edu"


def test_the_integer_score_is_rounded_as_python_rounds_and_stays_within_0_and_5(
    folder: Path,
) -> None:
    texts = ["low", "half", "good", "best", "low best", "", None]
    docs = documents({"id": [str(i) for i in range(len(texts))], "text": texts})
    done = OnnxScore(model=str(folder), threshold=3).apply(docs.within("onnx_score"))
    score = done.table["onnx_score.score"].to_pylist()
    assert score[:5] == pytest.approx([-1, 2.5, 2.6, 9, 4]) and score[5:] == [None, None]
    whole = [round(max(0, min(s, 5))) for s in score[:5]]  # run_edu_bert.py
    assert done.table["onnx_score.int_score"].to_pylist() == [*whole, None, None]
    kept, gone = done.split()
    assert kept["id"].to_pylist() == ["2", "3", "4"]
    assert gone["rule"].to_pylist() == ["low_score", "low_score", "no_text", "no_text"]


def test_only_the_first_tokens_are_seen_and_without_a_threshold_nothing_goes(folder: Path) -> None:
    docs = documents({"id": ["a", "b"], "text": ["best " * 8 + "low " * 80, ""]})
    done = OnnxScore(model=str(folder), max_tokens=8).apply(docs.within("onnx_score"))
    assert done.table["onnx_score.score"].to_pylist() == [pytest.approx(9), None]
    assert len(done.split()[0]) == 2


def test_a_file_that_is_no_model_is_a_one_line_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give --set onnx_score.model=FOLDER with model.onnx"):
        OnnxScore(model=str(tmp_path / "none")).identity()
    with pytest.raises(UsageError, match=r"neither model.onnx nor onnx/model.onnx"):
        OnnxScore(model=str(tmp_path)).identity()
    with pytest.raises(UsageError, match=r"returns 1 numbers per text: output must be below that"):
        docs = documents({"id": ["a"], "text": ["low"]})
        OnnxScore(model=str(folder), output=1).apply(docs.within("onnx_score"))
    before = OnnxScore(model=str(folder)).identity()
    (folder / "model.onnx").write_bytes(onnx_model(VALUES + 1, mean=True))
    assert OnnxScore(model=str(folder)).identity() != before
