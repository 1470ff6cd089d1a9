"""Our paragraph rule and sentence dedup against DataTrove's, on the same documents.

    python benchmarks/parity_passages.py [documents]

English pieces of 3,400 characters; every fourth one gets a run of 3 to 12 sentences of another, a
heading and a date in front. First with one sentence a line, given to DataTrove as lines in a normal
form of lower case, so that segmentation and normal form are the same: what stays has to be equal.
Then as they are, each with its own sentences and normal form: the share of characters that go. Exit
status 1 where paragraphs or lines differ.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, peer_python, pieces


def sentences_of(texts: list[str]) -> list[list[str]]:
    """The sentences of each text, white space in them as one blank."""
    from curate.documents.documents import documents
    from curate.text.sentences import sentences

    docs = documents({"text": texts})
    table = sentences(docs)
    data, _ = docs.buffers()
    spelled = [
        " ".join(data[a:z].tobytes().decode().split())
        for a, z in zip(table.start, table.end, strict=True)
    ]
    return [spelled[a:z] for a, z in zip(table.rows[:-1], table.rows[1:], strict=True)]


def made(count: int) -> list[dict[str, str]]:
    """Documents: id, text, and lines (the same sentences, one a line)."""
    draw = random.Random(0)
    texts = draw.sample(pieces(), count)
    each = sentences_of(texts)
    rows = []
    for i, text in enumerate(texts):
        sentences = list(each[i])
        if i % 4 == 3:
            other = each[draw.randrange(i)]
            at = draw.randrange(len(other))
            copied = other[at : at + draw.randrange(3, 13)]
            head = ["News of the day.", f"On {draw.randrange(1, 29)} March it was written:"]
            sentences = [*head, *copied, *sentences]
            text = "\n".join([*head, " ".join(copied), text])
        # Lines that both cut alike: no line ends of other kinds, none that is cut further.
        lines = "\n".join(s for s in sentences if len(s.splitlines()) == 1)
        rows.append({"id": f"d{i}", "text": text, "lines": lines})
    return rows


def ours(rows: list[dict[str, str]], column: str) -> dict[str, str]:
    """The texts that our step leaves of the documents, in their order, first copy stays."""
    import pyarrow.parquet as pq

    from curate.corpus.sketches import Sketches
    from curate.dedup.passages.repeated_passages import DedupPassages
    from curate.documents.documents import documents
    from curate.run.worker.stage import sketch_rows
    from llmcurate.base.disk.database import scratch_database

    choice: dict[str, Any] = {"min_words": 0, "min_sentences": 0, "survivor": "first"}
    step = DedupPassages(unit="sentences", **choice)
    docs = documents({"id": [r["id"] for r in rows], "text": [r[column] for r in rows]})
    with tempfile.TemporaryDirectory() as folder, scratch_database(Path(folder, "spill")) as db:
        db.register("sketches", sketch_rows(step, docs.table, 0))
        path = Path(folder, "decisions.parquet")
        step.resolve(Sketches(db, path, path.parent))
        done = step.apply(docs.within(step.label), pq.read_table(path))
    kept = done.split()[0]
    return dict(zip(kept["id"].to_pylist(), kept["text"].to_pylist(), strict=True))


def gone(rows: list[dict[str, str]], remaining: dict[str, str]) -> float:
    """Share of the characters of `text` that are not left, white space aside."""
    count = lambda texts: sum(len("".join(t.split())) for t in texts)  # noqa: E731
    return 1 - count(remaining.values()) / count(r["text"] for r in rows)


def main() -> None:
    from curate.documents.documents import documents
    from curate.filters.c4 import C4Paragraphs

    rows = made(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows)
        file.flush()
        peer = ROOT / "benchmarks" / "peers" / "datatrove_passages.py"
        theirs: dict[str, Any] = last_json([peer_python(), str(peer), file.name])
    step = C4Paragraphs()
    dropped = step.apply(documents({"text": [r["text"] for r in rows]}).within("c4_paragraphs"))
    same = sum(a == b for a, b in zip(dropped.marked().tolist(), theirs["paragraphs"], strict=True))
    drops = f"{int(dropped.marked().sum())} and {sum(theirs['paragraphs'])} dropped"
    print(f"paragraph rule: {same} of {len(rows)} decisions equal, {drops}")
    lines = ours(rows, "lines")
    differ = [
        r["id"]
        for r in rows
        if lines.get(r["id"], "").split("\n") != theirs["lines"].get(r["id"], "").split("\n")
    ]
    cut = sum(lines.get(r["id"]) != r["lines"] for r in rows)
    print(f"one sentence a line: {len(rows) - len(differ)} of {len(rows)} equal, {cut} cut")
    for name in differ[:3]:
        print(f"  {name}: ours {lines.get(name)!r}, theirs {theirs['lines'].get(name)!r}")
    remaining = ours(rows, "text")
    print(
        f"own sentences and normal forms: characters gone, ours {gone(rows, remaining):.2%},"
        f" DataTrove {gone(rows, theirs['sentences']):.2%}"
    )
    sys.exit(1 if differ or same < len(rows) else 0)


if __name__ == "__main__":
    main()
