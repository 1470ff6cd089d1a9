"""The demo's own language model recognises the demo's pages."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from curate.demo.web import WEB, read_truth

pytest.importorskip("fasttext_pybind")

from curate.demo.language import train_demo_model
from curate.extract.extraction import Extract
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader, plan_reading
from curate.scoring.language.identification import Language


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_demo_model(tmp_path_factory.mktemp("demo-model"))


@pytest.mark.slow  # trains it twice
def test_the_demo_model_is_small_and_reproducible(model: Path, tmp_path: Path, capsys) -> None:
    again = train_demo_model(tmp_path)
    assert "held-out pieces" in capsys.readouterr().err
    digests = {hashlib.sha256(p.read_bytes()).hexdigest() for p in (model, again)}
    assert len(digests) == 1
    assert model.stat().st_size < 3_000_000


@pytest.mark.slow  # the demo proves the same of what it kept
def test_every_page_of_prose_is_recognised(model: Path) -> None:
    """Covers all pages in wrong languages, all clean pages and their duplicates, as extraction
    leaves them."""
    prose = ("clean", "wrong_language", "near_dup", "exact_dup", "substring_dup", "url_dup", "pii")
    truth = {page.id: page for page in read_truth(WEB / "truth.jsonl") if page.kind in prose}
    extract, step = Extract(), Language(model=str(model), keep=("en",))
    extract.open()
    read = ReadSettings()
    plan, found = plan_reading([*map(str, WEB.glob("*.gz"))], read), {}
    for part in range(len(plan.partitions)):
        for batch in PartitionReader(plan, part, read):
            docs = extract.apply(batch.docs.within("extract"))
            docs = step.apply(docs.within("language"))
            columns = (docs.table[name].to_pylist() for name in ("id", "lang", "language.score"))
            found |= {row[0]: row[1:] for row in zip(*columns, docs.marked().tolist(), strict=True)}
    for name, page in truth.items():
        label, score, dropped = found[name]
        assert label == page.lang and score >= 0.65, (page.url, label, score)
        assert dropped == (page.lang != "en")
