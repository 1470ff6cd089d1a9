"""The step `language` with lid.176.ftz against DataTrove's LanguageFilter and fastText itself, and
what looking at the beginning of a document alone gains and costs.

    python benchmarks/bench_language.py

All three run the same model file over the same documents in memory, in one process each: English
pieces of 3,400 characters, and the short texts of langid-dev. Ours counts labels, columns, marks and
the split (keep en, threshold 0.65); DataTrove's counts `LanguageFilter.run` (the same settings);
fastText's is `predict` on `text.replace("\\n", " ")`. Exit status 1 where ours has less than 0.9 of
fastText's rate: all of them share its inference, so a step must not cost more than it.
"""

from __future__ import annotations

import gzip
import io
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, need, peak_mib, peer_python, pieces

TARGET = 0.9
BATCH = 1000
PASSES = 3
DOCUMENTS = 4000
CUTS = (0, 2000, 1000, 500, 200)


def read(path: str) -> list[str]:
    return [json.loads(line)["text"] for line in Path(path).read_text().split("\n")[:-1]]


def ours(model: str, path: str) -> None:
    """Prints the figures of our step over the documents in a file."""
    import pyarrow as pa

    from curate.documents import documents
    from curate.language.step import Language

    pa.set_cpu_count(1)
    texts = read(path)
    batches = [documents({"text": texts[i : i + BATCH]}) for i in range(0, len(texts), BATCH)]
    step = Language(model=model, keep=("en",))
    step.open()
    step.apply(batches[0].within("language")).split()
    times = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        kept = 0
        for batch in batches:
            kept += step.apply(batch.within("language")).split()[0].num_rows
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": times, "kept": kept, "peak_mib": peak_mib()}))


def plain(model: str, path: str) -> None:
    """Prints the figures of fastText's own Python package."""
    from fasttext.FastText import _FastText

    texts = read(path)
    loaded = _FastText(model)
    times = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        kept = 0
        for text in texts:
            labels, scores = loaded.predict(text.replace("\n", " "))
            kept += labels[0] == "__label__en" and scores[0] >= 0.65
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": times, "kept": int(kept), "peak_mib": peak_mib()}))


def long_texts(size: int = 3400) -> list[tuple[str, str]]:
    """(text, language) of the documents in all languages, in pieces, at most 300 a language."""
    import zstandard

    found: list[tuple[str, str]] = []
    for path in need("longtext/*.jsonl.zst"):
        by_language: dict[str, list[tuple[str, str]]] = {}
        with path.open("rb") as file:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
                row = json.loads(line)
                text = row["text"]
                mine = by_language.setdefault(row["lang"], [])
                cuts = range(0, len(text) - size + 1, size)
                mine += [(text[i : i + size], row["lang"]) for i in cuts]
        for mine in by_language.values():
            found += mine[:: max(1, len(mine) // 300)][:300]
    return found


def beginnings(model: str) -> None:
    """Prints accuracy and speed by `max_chars`."""
    from curate.documents import documents
    from curate.language.codes import comparable
    from curate.language.step import Language

    rows = long_texts()
    docs = documents({"text": [text for text, _ in rows]})
    languages = {lang for _, lang in rows}
    print(f"{len(rows)} pieces of 3400 characters in {len(languages)} languages, by max_chars")
    for cut in CUTS:
        step = Language(model=model, max_chars=cut)
        step.open()
        begin = time.perf_counter()
        table = step.apply(docs.within("language")).table
        seconds = time.perf_counter() - begin
        labels = table["lang"].to_pylist()
        right = sum(comparable(a or "") == comparable(b) for a, (_, b) in zip(labels, rows))
        sure = sum(score >= 0.65 for score in table["language.score"].to_pylist())
        print(
            f"  {cut or 'all':>5}{len(rows) / seconds:9.0f} documents/s, label right"
            f" {100 * right / len(rows):6.2f} %, score from 0.65 {100 * sure / len(rows):6.2f} %"
        )


def compare(title: str, texts: list[str], model: str) -> float:
    """Prints the three rates; returns ours over fastText's."""
    size = sum(len(t.encode()) for t in texts) / len(texts)
    print(f"{title}: {len(texts)} documents of {size:.0f} bytes")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": str(i), "text": text}) + "\n")
        file.flush()
        me = [sys.executable, __file__]
        peer = str(ROOT / "benchmarks" / "peers" / "datatrove_language.py")
        found = {
            "llmcurate": last_json([*me, "--ours", model, file.name]),
            "fastText": last_json([*me, "--plain", model, file.name]),
            "DataTrove 0.10.1": last_json([peer_python(), peer, model, file.name]),
        }
    rates = {}
    for name, figures in found.items():
        rates[name] = len(texts) / statistics.median(figures["seconds"])
        print(
            f"  {name:<18}{rates[name]:9.0f} documents/s, {rates[name] * size / 1e6:6.2f} MB/s,"
            f" {figures['kept']} kept, peak {figures['peak_mib']:.0f} MiB"
        )
    ratio = rates["llmcurate"] / rates["fastText"]
    other = rates["llmcurate"] / rates["DataTrove 0.10.1"]
    print(f"  ratio to fastText {ratio:.2f}, to DataTrove {other:.2f}")
    return ratio


def main() -> None:
    if sys.argv[1:2] == ["--ours"]:
        return ours(*sys.argv[2:])
    if sys.argv[1:2] == ["--plain"]:
        return plain(*sys.argv[2:])
    model = str(need("models/lid.176.ftz")[0])
    with gzip.open(need("langid/langid-dev.jsonl.gz")[0], "rt", encoding="utf-8") as file:
        short = [json.loads(line)["text"] for line in file]
    ratios = [
        compare("English pieces", pieces()[:DOCUMENTS], model),
        compare("langid-dev", short, model),
    ]
    beginnings(model)
    sys.exit(0 if min(ratios) >= TARGET else 1)


if __name__ == "__main__":
    main()
