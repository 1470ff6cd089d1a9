"""Small models that fastText's own library trains, of every kind that its files know."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from curate.scoring.language.train import FILLED
from tests.curate.scoring.fasttext import small_models
from tests.curate.scoring.fasttext.small_models import vocabulary
from tests.curate.scoring.language.conftest import ftz, langid, model  # noqa: F401

Lines = tuple[np.ndarray, np.ndarray]


def strange() -> list[bytes]:
    """Lines that are no clean text."""
    draw = random.Random(2)
    noise = [bytes(draw.choices(range(1, 256), k=draw.randrange(1, 60))) for _ in range(60)]
    words = [w.encode() for w in vocabulary()]
    glued = [b"".join(draw.choices(words, k=30)) for _ in range(5)]
    kinds = [b"", b" ", b"\0", b"\x80\xbf", b"a\x80 \xe6b", b"<a>", b"</s> a", b"a </s> b", b"</s>"]
    kinds += [b"__label__l0", b"__label__ a", b"a\tb\vc\fd\re\0f", b"x" * 5000, b"l0 l1"]
    return kinds + [n.replace(b"\n", b" ") for n in noise] + glued


def packed(lines: list[bytes]) -> Lines:
    """Lines as the engine takes them."""
    ends = np.concatenate(([0], np.cumsum([len(line) for line in lines]))).astype(np.int64)
    return np.frombuffer(bytearray().join(lines), np.uint8), ends


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The file of a kind: (loss, word n-grams, minn, maxn, form, labels), as in small_models.py."""
    pytest.importorskip("fasttext_pybind")
    base = tmp_path_factory.getbasetemp()  # of several workers one trains, and the others wait
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "small_models"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(folder.glob("*.bin")):
            command = [sys.executable, small_models.__file__, folder]
            subprocess.run(command, env=os.environ | FILLED, check=True)

    def of(
        loss: str,
        ngrams: int = 1,
        minn: int = 2,
        maxn: int = 4,
        form: str = "dense",
        labels: int = 5,
    ) -> Path:
        return folder / f"{small_models.name((loss, ngrams, minn, maxn, form, labels))}.bin"

    return of


@pytest.fixture(scope="session")
def native_predict() -> Callable[..., list[list[tuple[float, str]]]]:
    """fastText's own k best of many lines."""
    binding = pytest.importorskip("fasttext_pybind")

    def predict(path: Path, lines: list[bytes], k: int) -> list[list[tuple[float, str]]]:
        native = binding.fasttext()
        native.loadModel(str(path))
        return [native.predict(line, k, 0.0, "replace") for line in lines]

    return predict
