"""Damaged models that score documents, fastText's and of n-grams: answers, or one line."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given

from curate.scoring.fasttext.classifier import Classifier
from curate.scoring.language.train import FILLED
from curate.scoring.perplexity.model import NgramModel
from curate.scoring.perplexity.model_file import read_arpa, write_arpa
from tests.curate.scoring.fasttext import small_models
from tests.curate.scoring.fasttext.conftest import packed, strange
from tests.curate.scoring.perplexity.conftest import sentences
from tests.curate.scoring.perplexity.conftest import trained as trained_ngrams
from tests.fuzz.mutations import FUZZ, SEEDS, damaged, damaged_tree, outcome
from tests.tokenize_kit.sentencepiece_models import trained as pieces

TEXTS = [" ".join(line) for line in sentences(60, 12)]


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# -- fastText ------------------------------------------------------------------------------

KINDS: list[small_models.Kind] = [
    ("softmax", 2, 2, 4, "dense", 5),
    ("hs", 2, 2, 4, "packed", 300),
    ("ova", 2, 2, 4, "pruned", 5),
    ("softmax", 1, 2, 4, "normed", 5),
]
_TRAIN = (
    "import sys; from pathlib import Path; from tests.curate.scoring.fasttext import small_models\n"
    "for kind in eval(sys.argv[2]): small_models.train(kind, Path(sys.argv[1]))"
)


@pytest.fixture(scope="module")
def fasttext(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("fasttext_pybind")
    folder = tmp_path_factory.mktemp("fasttext")
    command = [sys.executable, "-c", _TRAIN, folder, repr(KINDS)]
    root = Path(__file__).resolve().parents[2]
    subprocess.run(command, check=True, cwd=root, env=os.environ | FILLED)
    return folder


@FUZZ
@given(seed=SEEDS)
def test_a_damaged_fasttext_model_answers_or_is_a_one_line_error(fasttext: Path, seed: int) -> None:
    kind = small_models.name(KINDS[seed % len(KINDS)])
    path = fasttext / "damaged.bin"
    path.write_bytes(damaged((fasttext / f"{kind}.bin").read_bytes(), seed))
    lines, ends = packed(strange())

    def ask() -> None:
        model = Classifier(path)
        labels, _ = model.best(lines, ends)
        assert labels.min() >= -1 and labels.max() < len(model.labels)
        model.probabilities(lines, ends)

    result = outcome(ask)
    assert result is None or str(path) in str(result)


# -- n-gram models -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ngrams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ngrams")
    trained_ngrams(folder, TEXTS, order=3, fallback=True)
    model = pieces("unigram", normalization_rule_name="identity")
    trained_ngrams(folder, TEXTS, "pieces.bin", order=2, fallback=True, unit="pieces", pieces=model)
    from curate.scoring.perplexity.model_file import read_model

    write_arpa(folder / "m.arpa", read_model(folder / "m.bin", whole=True))
    return folder


def _with_digest(data: bytes, seed: int) -> bytes:
    """A model whose header is damaged, and its checksum made anew: who writes one can do that."""
    from xxhash import xxh3_128_digest

    magic, version, size = struct.unpack("<8sII", data[:16])
    header = json.dumps(damaged_tree(json.loads(data[16 : 16 + size]), seed)).encode()
    new = header.ljust(size) if len(header) <= size else header
    return struct.pack("<8sII", magic, version, len(new)) + new + xxh3_128_digest(new) + data[
        32 + size :
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["m.bin", "pieces.bin", "m.arpa"])
@FUZZ
@given(seed=SEEDS)
def test_a_damaged_ngram_model_scores_or_is_a_one_line_error(
    ngrams: Path, name: str, seed: int
) -> None:
    data = (ngrams / name).read_bytes()
    crafted = name.endswith(".bin") and seed % 3 == 0
    path = _write(
        ngrams / "damaged" / name, _with_digest(data, seed) if crafted else damaged(data, seed)
    )

    def score() -> None:
        if name.endswith(".arpa"):
            model = NgramModel(read_arpa(path, "plain", "whitespace", b""), path)
        else:
            model = NgramModel.open(path)
        assert len(model.perplexity(pa.array(TEXTS, pa.large_string()))) == len(TEXTS)

    result = outcome(score)
    assert result is None or str(path) in str(result)
