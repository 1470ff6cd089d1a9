"""Trains small models of every kind with fastText's own library: python small_models.py FOLDER.

A process of its own, whose memory begins as zeros (curate/scoring/language/train.py says why).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

LETTERS = ["a", "e", "r", "n", "ß", "é", "я", "ш", "水", "火", "ñ", "𐍈"]
# loss, word n-grams, minn, maxn, form, labels; quantized with norms apart (normed), with a cutoff
# (pruned), the output too (packed).
Kind = tuple[str, int, int, int, str, int]
KINDS: list[Kind] = [
    (loss, ngrams, minn, maxn, form, 5)
    for loss in ("softmax", "hs", "ns", "ova")
    for ngrams in (1, 2)
    for minn, maxn in ((0, 0), (2, 4))
    for form in ("dense", "quantized")
]
KINDS += [
    ("softmax", 3, 1, 2, "dense", 5),
    ("softmax", 1, 2, 4, "normed", 5),
    ("softmax", 1, 2, 4, "pruned", 5),
    ("ova", 2, 2, 4, "pruned", 5),
    ("softmax", 1, 2, 4, "packed", 300),
    ("hs", 2, 2, 4, "packed", 300),
    ("hs", 1, 2, 3, "dense", 300),
]


def name(kind: Kind) -> str:
    return "-".join(map(str, kind))


def vocabulary(count: int = 500) -> list[str]:
    draw = random.Random(1)
    return sorted({"".join(draw.choices(LETTERS, k=draw.randrange(1, 8))) for _ in range(count)})


def examples(count: int, labels: int = 5, seed: int = 0) -> list[tuple[str, str]]:
    """(label, text): each label likes words of its own."""
    draw, words = random.Random(seed), vocabulary()
    lines = []
    for number in range(count):
        label = number % labels
        liked = words[label::labels] + words[:40]
        lines.append((f"l{label}", " ".join(draw.choices(liked, k=draw.randrange(1, 25)))))
    return lines


def train(kind: Kind, folder: Path) -> None:
    import fasttext_pybind as binding

    loss, ngrams, minn, maxn, form, labels = kind
    source = folder / f"{labels}.txt"
    rows = examples(max(300, 2 * labels), labels)
    source.write_text("".join(f"__label__{label} {text}\n" for label, text in rows))
    arguments = binding.args()
    values = {
        "input": str(source),
        "model": binding.model_name.supervised,
        "loss": getattr(binding.loss_name, loss),
        "lr": 0.3,
        "dim": 7,
        "epoch": 5,
        "minCount": 1,
        "minCountLabel": 0,
        "wordNgrams": ngrams,
        "minn": minn,
        "maxn": maxn,
        "bucket": 700 if maxn or ngrams > 1 else 0,
        "thread": 1,
        "verbose": 0,
    }
    for key, value in values.items():
        setattr(arguments, key, value)
    native = binding.fasttext()
    binding.train(native, arguments)
    if form != "dense":
        cutoff = 400 if form == "pruned" else 0
        rest = (cutoff, cutoff > 0, 3, 0.3, 1, 0, 2, form in ("normed", "packed"))
        native.quantize(str(source), form == "packed", *rest)
    native.saveModel(str(folder / f"{name(kind)}.bin"))


if __name__ == "__main__":
    for each in KINDS:
        train(each, Path(sys.argv[1]))
