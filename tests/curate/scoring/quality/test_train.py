"""Training gives the same bytes for the same documents, and a card that says what was counted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curate.engines.local import call_apart
from curate.scoring.fasttext.model_file import read_header
from curate.scoring.language.train import Training
from curate.scoring.quality.train import PRESETS, Texts, train
from llmcurate.base.errors import UsageError

pytest.importorskip("fasttext_pybind")
Sets = tuple[Path, Path]


def texts(*paths: Path) -> Texts:
    return Texts([str(p) for p in paths], True)


@pytest.fixture
def shuffled(sets: Sets, tmp_path: Path) -> Sets:
    """The same documents, backwards."""
    paths = []
    for path in sets:
        lines = path.read_text().splitlines(keepends=True)
        paths.append(tmp_path / path.name)
        paths[-1].write_text("".join(reversed(lines)))
    return paths[0], paths[1]


def test_the_same_bytes_in_any_order(
    sets: Sets, shuffled: Sets, tmp_path: Path, small: Training
) -> None:
    options: dict[str, Any] = {"balance": True, "samples": 90}
    first = train(texts(sets[0]), texts(sets[1]), tmp_path / "a", small, call_apart, **options)
    again = train(
        texts(shuffled[0]), texts(shuffled[1]), tmp_path / "b", small, call_apart, **options
    )
    assert first == again
    for name in ("quality.bin", "card.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert first["trained"] == {"cc": 90, "hq": 90}


def test_the_card_counts_every_document(sets: Sets, tmp_path: Path, small: Training) -> None:
    card = train(
        texts(sets[0]), texts(sets[1]), tmp_path, small, call_apart, balance=True, preset="mine"
    )
    assert card == json.loads((tmp_path / "card.json").read_text())
    hq, cc = card["labels"]["hq"], card["labels"]["cc"]
    assert (sum(hq.values()), sum(cc.values())) == (150, 250)
    assert card["trained"] == {"hq": hq["documents"], "cc": hq["documents"]}
    held = card["held_out"]
    assert held["documents"] == {"positive": hq["held_out"], "negative": cc["held_out"]}
    assert held["roc_auc"] > 0.95
    assert held["average_precision"] > 0.95
    assert sorted(p.name for p in tmp_path.iterdir()) == ["card.json", "quality.bin"]


def test_scores_divide_labelled_documents(sets: Sets, tmp_path: Path, small: Training) -> None:
    rows = [json.loads(line) for path in sets for line in path.read_text().splitlines()]
    scores = [None if n % 50 == 7 else 3 + n % 3 if n < 150 else n % 3 for n in range(len(rows))]
    path = tmp_path / "labels.jsonl"
    both = [json.dumps(r | {"score": s}) for r, s in zip(rows, scores, strict=True)]
    path.write_text("\n".join(both))
    good, rest = (Texts([str(path)], True, None, r) for r in ((3, math.inf), (-math.inf, 3)))
    card = train(good, rest, tmp_path / "out", small, call_apart)
    hq, cc = card["labels"]["hq"], card["labels"]["cc"]
    assert (sum(hq.values()), sum(cc.values())) == (147, 245)
    assert card["held_out"]["agreement"]["kappa"] > 0.8


@pytest.mark.parametrize("score", ["missing", "text"])
def test_labels_without_numbers_are_wrong_use(tmp_path: Path, score: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(
        json.dumps({"id": "a", "text": "b"} | ({} if score == "missing" else {"score": "x"}))
    )
    with pytest.raises(UsageError, match="no column `score` with numbers"):
        list(Texts([str(path)], True, None, (3, 9)).batches())


def test_a_quantized_model_is_smaller(sets: Sets, tmp_path: Path, small: Training) -> None:
    packed = replace(small, quantize=True)
    plain = train(texts(sets[0]), texts(sets[1]), tmp_path / "bin", small, call_apart)
    card = train(texts(sets[0]), texts(sets[1]), tmp_path / "ftz", packed, call_apart)
    assert card["file"] == "quality.ftz"
    assert card["bytes"] < plain["bytes"]
    assert read_header(tmp_path / "ftz" / "quality.ftz").quantized


def test_the_presets_are_the_published_settings() -> None:
    dclm, llama = PRESETS["dclm"], PRESETS["llama"]
    assert (dclm.lr, dclm.dim, dclm.epochs, dclm.word_ngrams) == (0.1, 100, 5, 2)
    assert (llama.lr, llama.dim, llama.epochs, llama.word_ngrams) == (0.1, 100, 5, 1)
    assert all((p.minn, p.maxn, p.min_count) == (0, 0, 1) for p in PRESETS.values())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "--negative"),
        ([{"id": "a", "text": " \n\t"}], "--negative"),
        ([{"id": "a", "text": "__label__cc </s>"}], "--negative"),
    ],
    ids=["no document", "white space", "commands alone"],
)
def test_a_set_without_words_is_a_one_line_error(
    sets: Sets, tmp_path: Path, small: Training, rows: list[Any], message: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows) or "\n")
    with pytest.raises(UsageError, match=message):
        train(texts(sets[0]), texts(path), tmp_path / "out", small, call_apart)
    assert not list((tmp_path / "out").iterdir())


def test_hostile_text_trains_nothing_but_words(sets: Sets, tmp_path: Path, small: Training) -> None:
    path = tmp_path / "odd.jsonl"
    odd = ["__label__evil good", "a\x00b </s> c", "x" * 100_000, "\ud800 broken", "", None]
    path.write_text(
        "".join(json.dumps({"id": str(i), "text": t}) + "\n" for i, t in enumerate(odd))
    )
    train(texts(sets[0], path), texts(sets[1]), tmp_path / "out", small, call_apart)
    assert set(read_header(tmp_path / "out" / "quality.bin").labels) == {"hq", "cc"}
