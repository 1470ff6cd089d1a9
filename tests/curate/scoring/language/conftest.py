"""A small model for tests: the demo's, of ten languages, trained in a second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[5] / "shared"))
FTZ = SHARED / "corpora" / "models" / "lid.176.ftz"
LANGID = SHARED / "corpora" / "langid" / "langid-dev.jsonl.gz"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file; the test is skipped where this Python has no fastText."""
    pytest.importorskip("fasttext_pybind")
    from curate.demo.language import train_demo_model

    return train_demo_model(tmp_path_factory.mktemp("model"), quiet=True)


@pytest.fixture(scope="session")
def ftz() -> Path:
    """fastText's own lid.176.ftz, where it is at hand."""
    pytest.importorskip("fasttext_pybind")
    if not FTZ.exists():
        pytest.skip(f"no {FTZ}; set LLMCURATE_SHARED")
    return FTZ


@pytest.fixture(scope="session")
def langid() -> Path:
    """Labelled texts in many languages, where they are at hand."""
    if not LANGID.exists():
        pytest.skip(f"no {LANGID}; set LLMCURATE_SHARED")
    return LANGID


@pytest.fixture(autouse=True)
def _nobody_elses_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No model by environment, an empty cache, no download."""
    monkeypatch.delenv("LLMCURATE_LID_MODEL", raising=False)
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")
    yield
