"""Memory of training a BPE of 32,000 tokens on gigabytes of text: does it stay within 6 GiB?

    python benchmarks/tokenizer_memory.py [--gb 4] [--unspaced 0.01] [--folder DIR]

Generated documents as parquet files. Words are drawn by Zipf's law out of 20 million, so that
distinct pieces grow with the text as in real text; a share of the bytes is stretches of 30 CJK
characters without a break, each of which comes once: what takes memory is distinct pieces, and
scripts without spaces have most. Memory is the proportional size of all processes, sampled
(dedup_memory.py). Exit status 1 over the limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from numba import njit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.dedup_memory import GIB, LIMIT_GIB, run
from benchmarks.shared_texts import sized

WORDS = sized(20_000_000, 20_000)
SLOPE = 0.05
GROUP = sized(2_000_000, 20_000)  # words drawn at once
DOCUMENT = 500
STRETCH = 30  # characters
_SYLLABLES = "ba ce di fo gu la me ni so tu ra ve zi po ku sha tre lin mor dan".split()


@njit(cache=False)
def _spell(numbers, syllables, ends, out, places):
    """A space and the word of each number, a syllable a digit, to out; its end to places."""
    base = len(ends) - 1
    w = 0
    for k in range(len(numbers)):
        out[w] = 32
        w += 1
        rest = numbers[k]
        while rest > 0:
            digit = rest % base
            for at in range(ends[digit], ends[digit + 1]):
                out[w] = syllables[at]
                w += 1
            rest //= base
        places[k] = w


def _words(numbers: np.ndarray) -> tuple[bytes, np.ndarray]:
    """(text, ends) of words of numbers: as many syllables as the number has digits to that base."""
    ends = np.cumsum([0, *map(len, _SYLLABLES)])
    out, places = np.empty(20 * len(numbers), np.uint8), np.empty(len(numbers), np.int64)
    _spell(numbers, np.frombuffer("".join(_SYLLABLES).encode(), np.uint8), ends, out, places)
    return out[: places[-1]].tobytes(), places


def write(folder: Path, size: float, unspaced: float, seed: int = 0) -> tuple[int, int]:
    """(documents, bytes) of parquet files of two million words each; size: bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents = written = part = 0
    while written < size:
        draw = np.random.default_rng([seed, part])
        # The power law k^-(1 + SLOPE) from 1 to WORDS, by its inverse.
        drawn = (1 + draw.random(GROUP) * (WORDS**-SLOPE - 1)) ** (-1 / SLOPE)
        words, ends = _words(drawn.astype(np.int64))
        ends = [0, *ends[DOCUMENT - 1 :: DOCUMENT].tolist()]
        texts = [words[a:z].decode() for a, z in pairwise(ends)]
        length = sum(map(len, texts))
        stretches = int(length * unspaced / (1 - unspaced) / (3 * STRETCH))
        letters = draw.zipf(1.2, stretches * STRETCH) % 6000 + 0x4E00
        han = letters.astype(np.uint32).tobytes().decode("utf-32-le")
        for k in range(stretches):
            texts[k % len(texts)] += " " + han[k * STRETCH : (k + 1) * STRETCH]
        ids = [f"{part}-{k}" for k in range(len(texts))]
        table = pa.table({"id": ids, "text": pa.array(texts, pa.large_string())})
        pq.write_table(table, folder / f"part-{part:05}.parquet")
        documents += len(texts)
        written += sum(len(text.encode()) for text in texts)
        part += 1
    return documents, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gb", type=float, default=4.0, help="10^9 bytes of text")
    parser.add_argument("--unspaced", type=float, default=0.01, help="share of bytes, below 1")
    parser.add_argument("--folder", help="where files are written; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "in").mkdir()
        documents, size = write(folder / "in", options.gb * 1e9, options.unspaced)
        print(f"{documents} documents, {size / 1e9:.2f} GB, limit {LIMIT_GIB:g} GiB", flush=True)
        command = [sys.executable, "-m", "curate.cli.app", "tokenizer", "train", str(folder / "in")]
        seconds, peak = run([*command, "-o", str(folder / "tok"), "--quiet"])
        card = json.loads(next((folder / "tok").rglob("tokenizer_card.json")).read_text())
        over = peak.total > LIMIT_GIB * GIB
        print(
            f"  {card['vocab']} tokens in {seconds:.0f} s, {size / seconds / 1e6:.1f} MB/s; peak of"
            f" all processes {peak.total / GIB:.2f} GiB (mapped files {peak.files / GIB:.2f}), of"
            f" one {peak.largest / GIB:.2f} GiB{'  OVER THE LIMIT' if over else ''}"
        )
    sys.exit(over)


if __name__ == "__main__":
    main()
