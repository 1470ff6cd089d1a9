"""What SemDeDup drops of real near copies, by the embedding, at MinHash's share of documents.

    python benchmarks/semantic_versions.py [--pages N] [NAME=MODEL ...]

The documents are versions of pages (Python's PEPs, the Rust book), all of N pages that are drawn.
MinHash decides how many stay; SemDeDup by hashed embeddings and by those of the models (folders as
`dedup_semantic` takes them), the longest documents, and documents drawn at random are cut to as
many. Of each, by the exact Jaccard similarity of word 5-grams: pairs that are still there, and
pages of which no version is.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import pyarrow as pa

from benchmarks.shared_texts import need, sized

ALIKE = (0.9, 0.8, 0.5)  # least similarities of the pairs that are counted
DRAWS = sized(20, 1)  # of documents at random
Row = dict[str, Any]


def versions(pages: int) -> list[Row]:
    """All versions of so many pages that have several."""
    with pa.input_stream(str(need("dedup/versions.jsonl.zst")[0])) as file:
        rows = [json.loads(line) for line in file.read().splitlines()]
    named: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        named.setdefault((row["set"], row["path"]), []).append(row)
    several = sorted(name for name, own in named.items() if len(own) > 1)
    drawn = random.Random(0).sample(several, min(pages, len(several)))
    return [row for name in drawn for row in named[name]]


def pairs(ids: set[str]) -> list[Row]:
    """The pairs among these documents, each with its similarity."""
    with gzip.open(need("dedup/pairs.jsonl.gz")[0], "rt", encoding="utf-8") as file:
        return [pair for pair in map(json.loads, file) if {pair["a"], pair["b"]} <= ids]


def kept(rows: list[Row], method: str, folder: Path, **settings: Any) -> set[str]:
    """Ids that a method leaves."""
    from llmcurate import Corpus

    folder.mkdir()
    source = folder / "versions.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = Corpus.read(source).dedup(method, **settings).run(folder / "out", workers=1)
    return set(out.corpus.to_arrow(["id"])["id"].to_pylist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=150)
    parser.add_argument("models", nargs="*", metavar="NAME=MODEL")
    options = parser.parse_args()
    rows = versions(options.pages)
    pages = {row["id"]: (row["set"], row["path"]) for row in rows}
    near = pairs(set(pages))

    def line(name: str, sets: list[set[str]]) -> str:
        """The means over the sets of ids that a method leaves."""
        counts = []
        for ids in sets:
            there = [pair["jaccard"] for pair in near if {pair["a"], pair["b"]} <= ids]
            left = [sum(jaccard >= least for jaccard in there) for least in ALIKE]
            lost = len(set(pages.values())) - len({pages[each] for each in ids})
            counts.append([len(ids), *left, lost])
        means = [sum(column) / len(sets) for column in zip(*counts, strict=True)]
        return f"| {name} | " + " | ".join(f"{figure:,.0f}" for figure in means) + " |"

    print(f"| {len(pages):,} versions of {options.pages} pages | left | "
          + " | ".join(f"pairs J >= {least}" for least in ALIKE) + " | pages lost |")  # fmt: skip
    print("|---|" + "---:|" * (len(ALIKE) + 2))
    print(line("all", [set(pages)]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        by_minhash = kept(rows, "minhash", folder / "minhash")
        print(line("MinHash", [by_minhash]))
        share, embeddings = len(by_minhash) / len(rows), {"hashed": "hashed"}
        embeddings |= dict(each.split("=", 1) for each in options.models)
        for label, embedding in embeddings.items():
            settings = {"embedding": embedding, "keep_fraction": share, "max_tokens": 256}
            ids = kept(rows, "semantic", folder / label, **settings)
            print(line(f"SemDeDup, {label}", [ids]), flush=True)
    longest = sorted(rows, key=lambda row: (-len(row["text"]), row["id"]))[: len(by_minhash)]
    print(line("the longest", [{row["id"] for row in longest}]))
    draws = [random.Random(seed).sample(sorted(pages), len(by_minhash)) for seed in range(DRAWS)]
    print(line(f"random, mean of {DRAWS}", [set(draw) for draw in draws]))


if __name__ == "__main__":
    main()
