"""Scoring with an n-gram model beside KenLM's Python binding: the same model, the same pieces.

    python benchmarks/bench_perplexity.py [--arpa MODEL.arpa --model MODEL.bin]

A 5-gram model over 32,000 SentencePiece pieces is trained on nine in ten of the English novels
(once; kept in .bench/perplexity) and written as ARPA, which KenLM loads into its default hash
table. Both score 10,000 lines, of the novels held out and of Python's PEPs, in turn in one process
and one thread:

- `pieces as text`: from strings of pieces joined by spaces to scores, the look-up of ids included;
- `ids alone`: ours from ids. KenLM's binding takes strings only, so what it takes with a model of
  the same words and one bigram, which is splitting, looking up ids and its loop, is taken off its
  time; nothing is taken off ours;
- `document text`: from text to scores, SentencePiece included in both; no target.

Processor seconds: the best of several passes, since other work on a machine only adds, and the
ratio of the medians beside it. Log10 probabilities must agree within 1e-4. Exit status 1 where they
do not, or where a ratio of the best passes with a target is below 3.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, longtext, novels, peak_mib, reached, sized

TARGET = 3
LINES, PASSES = sized((10_000, 15), (200, 1))
FOLDER = ROOT / ".bench" / sized("perplexity", "perplexity-smoke")


def held_out(number: int) -> bool:
    """Whether the novel of that number is not trained on."""
    return number % 10 == 9


def trained() -> Path:
    """The folder of the model, trained where it is not there."""
    out = FOLDER / "model"
    if not (out / "perplexity.arpa").exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        source = FOLDER / "train.jsonl"
        with source.open("w") as file:
            for i, text in enumerate(novels()):
                if not held_out(i):
                    file.write(json.dumps({"id": str(i), "text": text}) + "\n")
        train = ["train", str(source), "-o", str(out), "--vocab", sized("32000", "1000")]
        convert = ["convert", str(out / "perplexity.bin"), "-o", str(out / "perplexity.arpa")]
        for command in (train, convert):
            line = [sys.executable, "-m", "curate.cli.app", "perplexity", *command]
            subprocess.run(line, check=True, cwd=ROOT)
    return out


def lines() -> list[str]:
    """Lines of the novels held out, then of the PEPs."""
    chosen = []
    for i, text in enumerate(novels()):
        if held_out(i):
            chosen += [line for line in text.splitlines() if line.strip()]
    for text in longtext("en-peps"):
        if len(chosen) >= LINES:
            break
        chosen += [line for line in text.splitlines() if line.strip()]
    return chosen[:LINES]


def words_alone(source: Path, target: Path) -> None:
    """Writes an ARPA file with the words of another one and a single bigram."""
    with source.open(errors="surrogateescape") as file:
        unigrams = []
        for line in file:
            if line.startswith("\\2-grams"):
                break
            unigrams.append(line)
    head = unigrams.index("\n")
    with target.open("w", errors="surrogateescape") as file:
        file.write("\\data\\\n" + unigrams[1] + "ngram 2=1\n")
        file.writelines(unigrams[head:])
        file.write("\\2-grams:\n-1\t<s> </s>\n\n\\end\\\n")


def timed(work: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, float]]:
    """(best, median) processor seconds of each, run in turn; the first pass is a warm-up."""
    spent: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(PASSES + 1):
        for name, run in work.items():
            begin = time.process_time()
            run()
            spent[name].append(time.process_time() - begin)
    return {n: (min(seconds[1:]), statistics.median(seconds[1:])) for n, seconds in spent.items()}


def main() -> None:
    import numpy as np
    import pyarrow as pa

    from curate.scoring.perplexity.model import NgramModel, numbered_lines
    from curate.scoring.perplexity.sentences import Sentences
    from curate.text.buffers import text_buffers

    parser = argparse.ArgumentParser()
    parser.add_argument("--arpa", type=Path)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    import kenlm

    pa.set_cpu_count(1)
    folder = trained() if options.arpa is None or options.model is None else None
    arpa = options.arpa or folder / "perplexity.arpa"
    begin = time.perf_counter()
    model = NgramModel.open(options.model or folder / "perplexity.bin")
    opened, before = time.perf_counter() - begin, peak_mib()
    config = kenlm.Config()
    config.show_progress, config.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    begin = time.perf_counter()
    peer = kenlm.Model(str(arpa), config)
    loaded, after = time.perf_counter() - begin, peak_mib()

    texts = lines()
    pieces, _ = model._pieces
    cut = [pieces.encode(t, out_type=str) for t in texts]
    joined = [" ".join(words) for words in cut]
    array, originals = pa.array(joined, pa.large_string()), pa.array(texts, pa.large_string())
    sentences = Sentences(*numbered_lines(*text_buffers(array), model.data.words))
    assert len(sentences.ends) == len(texts)
    with tempfile.TemporaryDirectory() as aside:
        words_alone(arpa, Path(aside) / "words.arpa")
        words_only = kenlm.Model(str(Path(aside) / "words.arpa"), config)

    def from_text() -> np.ndarray:
        buffers = text_buffers(pa.array(joined, pa.large_string()))
        ids, ends, _ = numbered_lines(*buffers, model.data.words)
        return model.log10(ids, ends)[1]

    seconds = timed(
        {
            "ours": from_text,
            "KenLM": lambda: [peer.score(line) for line in joined],
            "ours, ids": lambda: model.log10(sentences.ids, sentences.ends),
            "KenLM, words": lambda: [words_only.score(line) for line in joined],
            "ours, text": lambda: model.by_sentence(originals),
            "KenLM, text": lambda: [
                peer.score(" ".join(pieces.encode(t, out_type=str))) for t in texts
            ],
        }
    )
    count = len(sentences.ids) + len(sentences.ends)
    print(
        f"{len(texts)} lines, {count} pieces and ends of lines; loaded: ours {opened * 1e3:.0f} ms"
    )
    print(f"  ({before:.0f} MiB at most), KenLM from ARPA {loaded:.1f} s ({after:.0f} MiB)")
    alone = tuple(a - b for a, b in zip(seconds["KenLM"], seconds["KenLM, words"], strict=True))
    rows = [
        ("pieces as text", seconds["ours"], seconds["KenLM"]),
        ("ids alone", seconds["ours, ids"], alone),
        ("document text", seconds["ours, text"], seconds["KenLM, text"]),
    ]
    for name, own, other in rows:
        print(
            f"{name:<15} ours {count / own[0] / 1e6:6.2f} M/s, KenLM"
            f" {count / other[0] / 1e6:6.2f} M/s, ratio {other[0] / own[0]:.2f}"
            f" (medians {other[1] / own[1]:.2f})"
        )
    want = np.array([peer.score(line) for line in joined])
    exact = np.array([sum(s for s, _, _ in peer.full_scores(line)) for line in joined])
    sums, single = model.log10(sentences.ids, sentences.ends)
    off = float(np.abs(sums - exact).max())
    print(
        f"largest difference of log10: {off:.1e} (sums of 64 bits),"
        f" {float(np.abs(single - want).max()):.1e} (of 32 bits, as KenLM's)"
    )
    good = off < 1e-4 and reached(all(x[0] / own[0] >= TARGET for _, own, x in rows[:2]))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
