"""Three vocabularies from one learning: ours against a training a size by `tokenizers`.

    python benchmarks/bench_tokenizer_sizes.py [--mb N] [--passes N]

One core each, the same texts, CPU seconds, median of the passes, which take turns. Exit status 1
where a tokenizer differs from the library's of that size, or where ours takes more than a quarter
of its time, or more than 1.25 times what ours takes for the largest size alone.
"""

from __future__ import annotations

import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_tokenizer_train import by_library
from benchmarks.shared_texts import peak_mib, reached, sized
from benchmarks.tokenizer_texts import documents

SIZES = sized((5_000, 25_000, 32_000), (500, 800, 1000))
AGAINST_LIBRARY, AGAINST_ONE = 0.25, 1.25


def ours(texts: list[str], sizes: tuple[int, ...]) -> list[str]:
    from tokenize_kit.learn.bpe import train_byte_bpe
    from tokenize_kit.learn.options import TrainingOptions

    options = TrainingOptions(sizes=sizes)
    return [t.tokenizer.to_str() for t in train_byte_bpe([(text, 1) for text in texts], options)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    texts = documents("all", options.mb * 1e6)
    ours(["warm up, warm up"], (300,))
    ways: dict[str, Callable[[], list[str]]] = {
        "ours, three sizes": lambda: ours(texts, SIZES),
        "ours, the largest": lambda: ours(texts, SIZES[-1:]),
        "tokenizers, one after the other": lambda: [by_library(texts, size) for size in SIZES],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, list[str]] = {}
    for _ in range(options.passes):
        for name, way in ways.items():
            begin = time.process_time()
            results[name] = way()
            seconds[name].append(time.process_time() - begin)
    size = sum(len(text.encode()) for text in texts) / 1e6
    medians = {name: statistics.median(passes) for name, passes in seconds.items()}
    for name, median in medians.items():
        print(f"{size:.1f} MB, {name}: {median:.2f} s (of {options.passes})")
    three, single, library = medians.values()
    same = results["ours, three sizes"] == results["tokenizers, one after the other"]
    print(f"  {three / library:.3f} of the library's time, {three / single:.2f} of one size's")
    print(
        f"  peak {peak_mib():.0f} MiB, " + ("the same tokenizers" if same else "OTHER TOKENIZERS")
    )
    good = three <= AGAINST_LIBRARY * library and three <= AGAINST_ONE * single
    sys.exit(not (same and reached(good)))


if __name__ == "__main__":
    main()
