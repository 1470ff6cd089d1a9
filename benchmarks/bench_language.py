"""The step `language` with lid.176.ftz against fastText itself and DataTrove's LanguageFilter.

    python benchmarks/bench_language.py

All three run the same model file over the same documents in memory, on one thread: English pieces
of 3,400 characters, such pieces in 19 languages, and the short texts of langid-dev. Ours counts
loading the model, labels, columns, marks and the split (keep en, threshold 0.65), and begins every
pass with an empty memory of words, as if it had never seen the documents; fastText's is its Python
package's `predict` on the text with newlines as spaces, loaded before; DataTrove's is
`LanguageFilter.run` with the same settings. Ours and fastText's run in turn in one process,
DataTrove in its own; medians of CPU seconds count. Peak memory is of a process of its own each.

Before that, all of langid-dev: the best label and its probability must be fastText's own.

Exit status 1 below four times fastText's rate on the English pieces, or where a label differs or a
probability by 1e-4.
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
from benchmarks.language_preparation import long_texts
from benchmarks.shared_texts import PEER, ROOT, last_json, need, peak_mib, pieces, reached, sized

TARGET = 4.0
APART = 1e-4
BATCH = 1000
PASSES = sized(5, 1)
DOCUMENTS = sized(2000, 100)
OURS, THEIRS, PEERS = "llmcurate", "fastText", "DataTrove 0.10.1"


def read(path: str) -> list[str]:
    return [json.loads(line)["text"] for line in Path(path).read_text().split("\n")[:-1]]


def ours(model: str, texts: list[str]) -> Callable[[], int]:
    """Our step over the documents; returns how many it keeps."""
    from curate.documents.documents import documents
    from curate.scoring.language.identification import Language

    batches = [documents({"text": texts[i : i + BATCH]}) for i in range(0, len(texts), BATCH)]

    def run() -> int:
        step = Language(model=model, keep=("en",))
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


KINDS = {OURS: ours, THEIRS: plain}


def in_turn(model: str, path: str) -> None:
    """Prints the figures of both."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    texts = read(path)
    both = {name: kind(model, texts) for name, kind in KINDS.items()}
    results: dict[str, dict] = {name: {"seconds": []} for name in both}
    for _ in range(PASSES + 1):  # the first is a warm-up
        for name, run in both.items():
            begin = time.process_time()
            results[name]["kept"] = run()
            results[name]["seconds"].append(time.process_time() - begin)
    for figures in results.values():
        del figures["seconds"][0]
    print(json.dumps(results))


def alone(name: str, model: str, path: str) -> None:
    """Prints the peak memory of one of both."""
    KINDS[name](model, read(path))()
    print(json.dumps(peak_mib()))


def compare(title: str, texts: list[str], model: str) -> float:
    """Prints the rates; returns ours over fastText's."""
    size = sum(len(t.encode()) for t in texts) / len(texts)
    print(f"{title}: {len(texts)} documents of {size:.0f} bytes")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": str(i), "text": text}) + "\n")
        file.flush()
        results = last_json([sys.executable, __file__, "--in-turn", model, file.name])
        for name in KINDS:
            own = [sys.executable, __file__, "--alone", name, model, file.name]
            results[name]["peak"] = last_json(own)
        if PEER.exists():
            peer = str(ROOT / "benchmarks" / "peers" / "datatrove_language.py")
            results[PEERS] = last_json([str(PEER), peer, model, file.name])
        else:
            print(f"  DataTrove is left out: no {PEER} (benchmarks/peer_env.sh makes it)")
    rates = {}
    for name, figures in results.items():
        rates[name] = len(texts) / statistics.median(figures["seconds"])
        peak = f", {figures['peak']:.0f} MiB at most" if "peak" in figures else ""
        print(
            f"  {name:<18}{rates[name]:9.0f} documents/s (best"
            f" {len(texts) / min(figures['seconds']):.0f}), {rates[name] * size / 1e6:6.2f} MB/s,"
            f" {figures['kept']} kept{peak}"
        )
    ratio = rates[OURS] / rates[THEIRS]
    other = f", to DataTrove {rates[OURS] / rates[PEERS]:.2f}" if PEERS in rates else ""
    print(f"  ratio to fastText {ratio:.2f}{other}")
    return ratio


def alike(texts: list[str], model: str) -> bool:
    """Whether every text has fastText's own label, and its probability; prints how many have."""
    import fasttext_pybind
    import numpy as np
    import pyarrow as pa

    from curate.scoring.fasttext.classifier import Classifier
    from curate.scoring.language.model import fasttext_lines
    from curate.text.buffers import text_buffers

    theirs = fasttext_pybind.fasttext()
    theirs.loadModel(model)
    lines = [text.replace("\n", " ") + "\n" for text in texts]
    labels, scores = theirs.multilinePredict(lines, 1, 0.0, "strict")
    classifier = Classifier(model)
    data = text_buffers(pa.array(texts, pa.large_string()))
    codes, shares = classifier.best(*fasttext_lines(*data, 0)[:2])
    names = [classifier.header.names[code] for code in codes]
    same = sum(label == best[0] for label, best in zip(names, labels, strict=True))
    apart = float(np.abs(shares - [float(best[0]) for best in scores]).max())
    print(
        f"{same} of {len(texts)} texts have fastText's label; probabilities differ by {apart:.1e}"
    )
    return same == len(texts) and apart < APART


def main() -> None:
    if sys.argv[1:2] == ["--in-turn"]:
        return in_turn(*sys.argv[2:])
    if sys.argv[1:2] == ["--alone"]:
        return alone(*sys.argv[2:])
    model = str(need("models/lid.176.ftz")[0])
    with gzip.open(need("langid/langid-dev.jsonl.gz")[0], "rt", encoding="utf-8") as file:
        short = [json.loads(line)["text"] for line in file][:: sized(1, 20)]
    right = alike(short, model)
    ratio = compare("English pieces", pieces()[:DOCUMENTS], model)
    compare("pieces in 19 languages", [text for text, _ in long_texts()], model)
    compare("langid-dev", short, model)
    sys.exit(0 if right and reached(ratio >= TARGET) else 1)


if __name__ == "__main__":
    main()
