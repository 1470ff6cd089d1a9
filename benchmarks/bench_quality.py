"""The step `quality` against fastText's own `predict`, with a model of DCLM's settings.

    python benchmarks/bench_quality.py [--smaller]

A model is trained first with the preset `dclm`: documentation against novels, in pieces of 3,400
characters; 100 dimensions, pairs of words in 2,000,000 rows, 800 MB; --smaller has 100,000 rows,
40 MB. Then both score other pieces of the same texts. Ours counts preparation, scores, column,
marks and split (threshold 0.5). fastText's is DCLM's code: `" ".join(text.strip().splitlines())`,
`predict`, 1 - p where the label is the other one. Both run in turn in one process, so that other
work on the machine hits both; the median of the passes counts, in CPU seconds. Peak memory is that
of a process of its own each. Exit status 1 below the target, or where two scores differ by more
than 0.00001.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, need, peak_mib, reached, sized

TARGET = 2.0
BATCH = 1000
PASSES = sized(5, 1)
DOCUMENTS = sized(3000, 60)
CHARS = 3400
LIMIT = 0.5


def halves(pattern: str) -> tuple[list[str], list[str]]:
    """The texts of some files in pieces: every other one to train on, the rest to score."""
    import io

    import zstandard

    cut: list[str] = []
    for path in need(pattern):
        with path.open("rb") as file:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
                text = json.loads(line)["text"]
                cut += [text[i : i + CHARS] for i in range(0, len(text) - CHARS + 1, CHARS)]
    return cut[::2], cut[1::2]


def prepare(folder: Path, bucket: int) -> None:
    """quality.bin and scored.jsonl in the folder."""
    from curate.engines.local import call_apart
    from curate.scoring.quality.train import PRESETS, Texts, train

    good, more_good = halves("longtext/en-[pr]*.jsonl.zst")
    rest, more_rest = halves("longtext/en-novels.jsonl.zst")
    more = [t for pair in zip(more_good, more_rest, strict=False) for t in pair][:DOCUMENTS]
    for name, texts in (("good", good), ("rest", rest[: len(good)]), ("scored", more)):
        rows = (json.dumps({"id": str(i), "text": t}) + "\n" for i, t in enumerate(texts))
        (folder / f"{name}.jsonl").write_text("".join(rows))
    sets = [Texts([str(folder / f"{name}.jsonl")], True) for name in ("good", "rest")]
    card = train(sets[0], sets[1], folder, replace(PRESETS["dclm"], bucket=bucket), call_apart)
    held = card["held_out"]
    print(
        f"model of {card['bytes'] / 1e6:.0f} MB, {sum(card['trained'].values())} pieces;"
        f" held out: ROC AUC {held['roc_auc']:.4f}",
        flush=True,
    )


def ours(model: str, texts: list[str]) -> Callable[[], list[float]]:
    """Our step over the documents; returns their scores."""
    from curate.documents.documents import documents
    from curate.scoring.quality.quality import Quality

    batches = [documents({"text": texts[i : i + BATCH]}) for i in range(0, len(texts), BATCH)]
    step = Quality(model=model, threshold=LIMIT)
    step.open()

    def run() -> list[float]:
        scores: list[float] = []
        for batch in batches:
            after = step.apply(batch.within("quality"))
            after.split()
            scores += after.table["quality.score"].to_pylist()
        return scores

    return run


def plain(model: str, texts: list[str]) -> Callable[[], list[float]]:
    """fastText's own Python package over the documents, as DCLM calls it."""
    from fasttext.FastText import _FastText

    loaded = _FastText(model)

    def run() -> list[float]:
        scores = []
        for text in texts:
            (label,), (share,) = loaded.predict(" ".join(text.strip().splitlines()))
            scores.append(float(share if label == "__label__hq" else 1 - share))
        return scores

    return run


MAKERS = {"llmcurate": ours, "fastText": plain}


def read(folder: str) -> list[str]:
    """The documents that are scored."""
    lines = (Path(folder) / "scored.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line)["text"] for line in lines]


def in_turn(folder: str) -> None:
    """Prints seconds of both, and how far their scores are apart."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    texts = read(folder)
    runs = {name: make(f"{folder}/quality.bin", texts) for name, make in MAKERS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    scores = {name: run() for name, run in runs.items()}  # a warm-up
    for _ in range(PASSES):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            seconds[name].append(time.process_time() - begin)
    apart = max(abs(a - b) for a, b in zip(*scores.values(), strict=True))
    print(json.dumps({"seconds": seconds, "apart": apart}))


def memory(folder: str, name: str) -> None:
    """Prints the most memory that one of them needs, documents included."""
    MAKERS[name](f"{folder}/quality.bin", read(folder))()
    print(json.dumps({"peak": peak_mib()}))


def main() -> None:
    if sys.argv[1:2] == ["--in-turn"]:
        return in_turn(sys.argv[2])
    if sys.argv[1:2] == ["--memory"]:
        return memory(*sys.argv[2:])
    bucket = 100_000 if "--smaller" in sys.argv[1:] else 2_000_000
    me = [sys.executable, __file__]
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), bucket)
        result = last_json([*me, "--in-turn", folder])
        peaks = {n: last_json([*me, "--memory", folder, n])["peak"] for n in MAKERS}
        texts = read(folder)
    size = sum(len(t.encode()) for t in texts)
    print(f"{len(texts)} documents of {size / len(texts):.0f} bytes")
    rates = {}
    for name, seconds in result["seconds"].items():
        rates[name] = len(texts) / statistics.median(seconds)
        low, high = len(texts) / max(seconds), len(texts) / min(seconds)
        print(
            f"  {name:<10}{rates[name]:8.0f} documents/s ({low:.0f} to {high:.0f}),"
            f" {rates[name] * size / len(texts) / 1e6:6.2f} MB/s, peak {peaks[name]:.0f} MiB"
        )
    ratio = rates["llmcurate"] / rates["fastText"]
    print(f"  ratio {ratio:.2f}, target {TARGET:g}; scores differ by {result['apart']:.1e} at most")
    sys.exit(0 if reached(ratio >= TARGET) and result["apart"] <= 1e-5 else 1)


if __name__ == "__main__":
    main()
