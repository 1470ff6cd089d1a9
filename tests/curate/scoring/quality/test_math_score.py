"""MathScore: the limit is lower where a text has formulas, and the model sees none of them."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.scoring.math_score import _PUNCTUATION, MathScore, has_formula, normal
from llmcurate.base.errors import UsageError


def reference(text: str) -> str:
    """text_normalizer.py, normalize, and score_text of OpenWebMath's code."""
    line = text.strip()
    if not line:
        return line
    line = line.lower()
    line = "".join(c for c in unicodedata.normalize("NFD", line) if unicodedata.category(c) != "Mn")
    line = re.sub(r"\d", "0", line)
    line = "".join(_PUNCTUATION.get(c, c) for c in line)
    line = re.sub(r"(?<!\\)(\$\$?.+?\$\$?)", "[EQUATION]", line, flags=re.DOTALL)
    line = re.sub(r"\`{1,3}.*?\`{1,3}", "[CODE]", line, flags=re.DOTALL)
    line = line.replace("<s>", "").replace("</s>", "")
    line = re.sub(f"[{''.join(map(chr, [*range(32), *range(127, 160)]))}]", "", line)
    return line.replace("\n", " ").replace("[EQUATION]", "")


@given(st.text(st.sampled_from("aÄé1５$\\`\n x。—»<s>/"), max_size=40))
def test_the_normal_form_is_that_of_openwebmath(text: str) -> None:
    assert normal(text) == reference(text)


def test_a_price_is_no_formula() -> None:
    assert has_formula("Let $x^2 = 1$ hold.") and has_formula("$$\\alpha$$")
    assert not has_formula("It costs $5, or $6 with tax.") and not has_formula("one $ alone = x")


def test_the_limit_depends_on_formulas(model: Path) -> None:
    text = "theorem proof and the lemma buy cheap"
    columns = {"id": ["formula", "plain"], "text": [f"{text} $x^2$", text]}
    first = MathScore(model=str(model)).apply(documents(columns).within("math_score"))
    score = first.table["math_score.score"].to_pylist()
    assert score[0] == pytest.approx(score[1])  # formulas are not read
    step = MathScore(model=str(model), threshold=score[0] - 0.01, plain_threshold=score[0] + 0.01)
    kept, gone = step.apply(documents(columns).within("math_score")).split()
    assert kept["id"].to_pylist() == ["formula"]
    assert gone["rule"].to_pylist() == ["low_plain"]


def test_a_missing_model_says_how_to_train_one() -> None:
    with pytest.raises(UsageError, match="quality train --preset openwebmath"):
        MathScore(model="nowhere").identity()
