"""The demo's own language model knows the demo's pages."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from curate.demo.plan import plan_pages
from curate.documents.documents import documents

pytest.importorskip("fasttext_pybind")

from curate.demo.language import train_demo_model
from curate.extract.extraction import Extract
from curate.scoring.language.identification import Language


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_demo_model(tmp_path_factory.mktemp("demo-model"))


@pytest.mark.slow  # trains it twice
def test_it_is_small_and_the_same_every_time(model: Path, tmp_path: Path, capsys) -> None:
    again = train_demo_model(tmp_path)
    assert "held-out pieces" in capsys.readouterr().err
    digests = {hashlib.sha256(p.read_bytes()).hexdigest() for p in (model, again)}
    assert len(digests) == 1
    assert model.stat().st_size < 3_000_000


@pytest.mark.slow  # the demo proves the same of what it kept
def test_every_page_of_prose_is_recognised(model: Path) -> None:
    """All wrong languages, all clean pages and their copies, as extraction leaves them."""
    prose = ("clean", "wrong_language", "near_dup", "exact_dup", "substring_dup", "url_dup", "pii")
    pages = [p for p in plan_pages() if p.kind in prose]
    from curate.documents.documents import CORE, PAYLOAD

    schema = (*CORE, *PAYLOAD)
    columns = {
        "payload": [p.html.encode() for p in pages],
        "mime": ["text/html"] * len(pages),
        "charset": ["utf-8"] * len(pages),
    }
    extract, step = Extract(), Language(model=str(model), keep=("en",))
    extract.open()
    docs = extract.apply(documents(columns, schema).within("extract"))
    docs = step.apply(docs.within("language"))
    labels = docs.table["lang"].to_pylist()
    scores = docs.table["language.score"].to_pylist()
    wrong = [
        (p.key, p.lang, label, score)
        for p, label, score in zip(pages, labels, scores, strict=True)
        if label != p.lang or score < 0.65
    ]
    assert wrong == []
    dropped = docs.marked().tolist()
    assert dropped == [p.lang != "en" for p in pages]
