"""Two vocabularies, documents of each, and a model trained on them in a second."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.scoring.language.train import Training

SMALL = Training(
    dim=10, minn=0, maxn=0, word_ngrams=2, loss="softmax", bucket=2000, epochs=5, lr=0.5,
    held_out=0.2,
)  # fmt: skip

# A vocabulary of each kind, and words of both.
GOOD = "theorem proof lemma function energy measure cell history river engine study".split()
POOR = "buy cheap click login sale shipping casino offer cart subscribe".split()
COMMON = "the a of and to in is that it for on with as was".split()


def documents(kind: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Mostly common words, the rest of one's own vocabulary, a few of the other's."""
    draw = random.Random(f"{kind}{seed}")
    own = GOOD if kind == "good" else POOR

    def word() -> str:
        chance = draw.random()
        return draw.choice(COMMON if chance < 0.7 else own if chance < 0.92 else GOOD + POOR)

    rows = []
    for i in range(count):
        lines = (" ".join(word() for _ in range(8)) for _ in range(3))
        rows.append({"id": f"{kind}{seed}-{i}", "text": "\n".join(lines)})
    return rows


@pytest.fixture(autouse=True)
def _nobody_elses_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No model by environment."""
    monkeypatch.delenv("LLMCURATE_QUALITY_MODEL", raising=False)
    yield


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(good documents, others) as JSON lines."""
    folder = tmp_path_factory.mktemp("sets")
    paths = folder / "good.jsonl", folder / "poor.jsonl"
    for path, count in zip(paths, (150, 250), strict=True):
        rows = documents(path.stem, count)
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return paths


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, sets: tuple[Path, Path]) -> Path:
    """A model file; the test is skipped where this Python has no fastText."""
    pytest.importorskip("fasttext_pybind")
    from curate.engines.local import call_apart
    from curate.scoring.quality.train import Texts, train

    folder = tmp_path_factory.mktemp("quality")
    train(Texts([str(sets[0])], True), Texts([str(sets[1])], True), folder, SMALL, call_apart)
    return folder / "quality.bin"


@pytest.fixture(scope="session")
def small() -> Training:
    """Settings of a model that trains at once."""
    return SMALL


@pytest.fixture(scope="session")
def make_documents() -> Any:
    """The function `documents`."""
    return documents


@pytest.fixture(scope="session")
def words_of() -> dict[str, list[str]]:
    """The vocabulary of each kind."""
    return {"good": GOOD, "poor": POOR}
