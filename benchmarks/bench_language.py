"""The step `language` with lid.176.ftz against DataTrove's LanguageFilter and fastText itself.

    python benchmarks/bench_language.py

All three run the same model file over the same documents in memory: English pieces of 3,400
characters, and the short texts of langid-dev. Ours counts labels, columns, marks and the split
(keep en, threshold 0.65); DataTrove's counts `LanguageFilter.run` with the same settings;
fastText's is `predict` on the text with newlines as spaces. Ours and fastText's run in turn in one
process, DataTrove in its own; the best of several passes in CPU seconds counts, since other work on
a machine only adds. Exit status 1 where ours has less than 0.9 of fastText's rate: all share its
inference, so that a step must not cost more than it.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, need, peer_python, pieces

TARGET = 0.9
BATCH = 1000
PASSES = 5
DOCUMENTS = 2000


def read(path: str) -> list[str]:
    return [json.loads(line)["text"] for line in Path(path).read_text().split("\n")[:-1]]


def ours(model: str, texts: list[str]) -> Callable[[], int]:
    """Our step over the documents; returns how many it keeps."""
    from curate.documents import documents
    from curate.language.step import Language

    batches = [documents({"text": texts[i : i + BATCH]}) for i in range(0, len(texts), BATCH)]
    step = Language(model=model, keep=("en",))
    step.open()

    def run() -> int:
        return sum(step.apply(b.within("language")).split()[0].num_rows for b in batches)

    return run


def plain(model: str, texts: list[str]) -> Callable[[], int]:
    """fastText's own Python package over the documents."""
    from fasttext.FastText import _FastText

    loaded = _FastText(model)

    def run() -> int:
        kept = 0
        for text in texts:
            labels, scores = loaded.predict(text.replace("\n", " "))
            kept += bool(labels[0] == "__label__en" and scores[0] >= 0.65)
        return kept

    return run


def in_turn(model: str, path: str) -> None:
    """Prints the figures of both."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    texts = read(path)
    both = {"llmcurate": ours(model, texts), "fastText": plain(model, texts)}
    found: dict[str, dict] = {name: {"seconds": []} for name in both}
    for _ in range(PASSES + 1):  # the first is a warm-up
        for name, run in both.items():
            begin = time.process_time()
            found[name]["kept"] = run()
            found[name]["seconds"].append(time.process_time() - begin)
    for figures in found.values():
        del figures["seconds"][0]
    print(json.dumps(found))


def compare(title: str, texts: list[str], model: str) -> float:
    """Prints the three rates; returns ours over fastText's."""
    size = sum(len(t.encode()) for t in texts) / len(texts)
    print(f"{title}: {len(texts)} documents of {size:.0f} bytes")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": str(i), "text": text}) + "\n")
        file.flush()
        peer = str(ROOT / "benchmarks" / "peers" / "datatrove_language.py")
        found = last_json([sys.executable, __file__, "--in-turn", model, file.name])
        found["DataTrove 0.10.1"] = last_json([peer_python(), peer, model, file.name])
    rates = {}
    for name, figures in found.items():
        rates[name] = len(texts) / min(figures["seconds"])
        median = len(texts) / statistics.median(figures["seconds"])
        print(
            f"  {name:<18}{rates[name]:9.0f} documents/s (median {median:.0f}),"
            f" {rates[name] * size / 1e6:6.2f} MB/s, {figures['kept']} kept"
        )
    ratio = rates["llmcurate"] / rates["fastText"]
    other = rates["llmcurate"] / rates["DataTrove 0.10.1"]
    print(f"  ratio to fastText {ratio:.2f}, to DataTrove {other:.2f}")
    return ratio


def main() -> None:
    if sys.argv[1:2] == ["--in-turn"]:
        return in_turn(*sys.argv[2:])
    model = str(need("models/lid.176.ftz")[0])
    with gzip.open(need("langid/langid-dev.jsonl.gz")[0], "rt", encoding="utf-8") as file:
        short = [json.loads(line)["text"] for line in file]
    ratios = [
        compare("English pieces", pieces()[:DOCUMENTS], model),
        compare("langid-dev", short, model),
    ]
    sys.exit(0 if min(ratios) >= TARGET else 1)


if __name__ == "__main__":
    main()
