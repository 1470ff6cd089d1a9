"""Perplexity of a 5-gram model: the kinds of bad text that it parts from clean prose.

    python benchmarks/bench_perplexity_quality.py

The model is that of bench_perplexity.py: English novels, a tenth of the chapters held out. From
the chapters held out come pieces of 3,400 characters, and from each of them, or from other texts,
bad ones: its words shuffled, lists of boilerplate (lines that the annotators of real pages marked
as no main text, English ones), other languages, and its first lines over and over.

AUC: how often a bad piece has a higher perplexity than a clean one (ties count half). Repeated
lines are a case of their own: an n-gram model looks back four words, so that the tenth copy of a
line is as unexpected to it as the first. What parts them is the perplexity of first occurrences,
10 ** -(sum of log10 of lines that are new in the document / words of all lines): there the bad
ones are the low ones. Exit status 1 where an AUC is below 0.98; plain perplexity on repeated lines
is printed beside it, without a target.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_perplexity import held_out, trained
from benchmarks.shared_texts import longtext, need, novels, reached

if TYPE_CHECKING:
    import numpy as np


TARGET, SIZE, MOST = 0.98, 3400, 1000
LANGUAGES = ("de-novels", "fr-novels", "ru-novels", "ja-aozora")


def sentences(text: str) -> list[str]:
    """Roughly: pieces that end with a full stop."""
    return [s for s in re.split(r"(?<=[.!?])\s+", text) if s.strip()]


def in_pieces(texts: Iterator[str]) -> list[str]:
    """Pieces of SIZE characters, a sentence a line."""
    cut = []
    for text in texts:
        for a in range(0, len(text) - SIZE + 1, SIZE):
            cut.append("\n".join(sentences(text[a : a + SIZE])))
    return cut


def shuffled(text: str, draw: random.Random) -> str:
    """The same words, in lines of the same numbers of words, in any order."""
    words = text.split()
    draw.shuffle(words)
    remaining = iter(words)
    return "\n".join(" ".join(next(remaining) for _ in line.split()) for line in text.split("\n"))


def repeated(text: str) -> str:
    """The first three lines until the piece is full."""
    first = text.split("\n")[:3]
    times = -(-SIZE // (len("\n".join(first)) + 1))
    return "\n".join(first * times)


def boilerplate() -> list[str]:
    """Lines of real pages that are no main text, the English ones, in documents of SIZE."""
    from curate.documents.documents import documents
    from curate.scoring.language.identification import Language

    with gzip.open(need("web/gold-snippets.jsonl.gz")[0], "rt", encoding="utf-8") as file:
        lines = [s for row in file for s in json.loads(row)["without"] if s.strip()]
    step = Language(model=str(need("models/lid.176.ftz")[0]))
    step.open()
    batch = documents({"id": [str(i) for i in range(len(lines))], "text": lines})
    langs = step.apply(batch.within("language")).table["lang"].to_pylist()
    english = [line for line, lang in zip(lines, langs, strict=True) if lang == "en"]
    draw, samples = random.Random(1), []
    for _ in range(200):
        draw.shuffle(english)
        text = "\n".join(english)
        samples.append(text[:SIZE])
    return samples


def auc(bad: np.ndarray, clean: np.ndarray) -> float:
    """The share of pairs in which a bad value is above a clean one; ties count half."""
    import numpy as np

    ordered = np.sort(clean)
    below, upto = np.searchsorted(ordered, bad), np.searchsorted(ordered, bad, "right")
    return float(((below + upto) / 2).mean() / len(clean))


def main() -> None:
    import pyarrow as pa

    from curate.scoring.perplexity.model import NgramModel

    model = NgramModel.open(trained() / "perplexity.bin")
    draw = random.Random(0)
    clean = in_pieces(t for i, t in enumerate(novels()) if held_out(i))[:MOST]
    kinds = {
        "shuffled words": [shuffled(t, draw) for t in clean],
        "boilerplate lists": boilerplate(),
        **{name: in_pieces(longtext(name))[:200] for name in LANGUAGES},
    }

    def perplexity(texts: list[str]) -> np.ndarray:
        return model.perplexity(pa.array(texts, pa.large_string()))

    good, areas = perplexity(clean), {}
    print(f"{len(clean)} clean pieces, median perplexity {sorted(good)[len(good) // 2]:.0f}")
    for kind, texts in kinds.items():
        values = perplexity(texts)
        areas[kind] = auc(values, good)
        middle = sorted(values)[len(values) // 2]
        print(f"  {kind:<20}{len(texts):5d} pieces, median {middle:8.0f}, AUC {areas[kind]:.4f}")
    again = [repeated(t) for t in clean]
    plain = auc(-perplexity(again), -good)
    print(f"  repeated lines: AUC of perplexity, low ones bad: {plain:.4f}")
    first = [
        model.first_occurrences(pa.array(texts, pa.large_string())) for texts in (again, clean)
    ]
    low = auc(-first[0], -first[1])
    areas["repeated lines"] = low
    print(f"  repeated lines: AUC of first occurrences, low ones bad: {low:.4f}")
    sys.exit(0 if reached(min(areas.values()) >= TARGET) else 1)


if __name__ == "__main__":
    main()
