"""Recipes that `llmcurate migrate` writes for blocks of DataTrove, against the blocks themselves.

    python benchmarks/migrate_decisions.py [documents]

Each block stands alone in a script, which is migrated and run by the command line on 200 English
documents: half of them are pieces of novels and documentation, half the same pieces with a fault
(parity_datatrove.py), and addresses. DataTrove runs in an environment of its own (peer_env.sh).
Printed are the documents that each drops, and the share of equal decisions, on all documents and on
the pieces without faults; for MinHash, which keeps any document of a cluster, how close the numbers
dropped are. Exit status 1 where fewer than 95 % of the decisions on pieces without faults agree.
DataTrove's sentences run over line ends, so SentenceDedup may differ more.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.parity_datatrove import worsened
from benchmarks.shared_texts import ROOT, SHARED, last_json, peer_python, pieces, reached, sized

LEAST = 0.95
MODEL = SHARED / "corpora" / "models" / "lid.176.ftz"
BLOCKS = [
    "GopherQualityFilter()",
    "GopherQualityFilter(min_doc_words=100, max_avg_word_length=None, min_stop_words=4)",
    "GopherQualityFilter(max_bullet_lines_ratio=0, max_ellipsis_lines_ratio=0.2)",
    "GopherRepetitionFilter()",
    "GopherRepetitionFilter(dup_line_frac=0.5, top_n_grams=((2, 0.1),), dup_n_grams=())",
    "C4QualityFilter()",
    "C4QualityFilter(filter_no_terminal_punct=False)",
    "C4QualityFilter(min_num_sentences=-1, min_words_per_line=8)",
    "C4ParagraphFilter()",
    "FineWebQualityFilter()",
    "FineWebQualityFilter(line_punct_thr=0.3, short_line_thr=0.5, new_line_ratio=0.1)",
    "LambdaFilter(lambda doc: len(doc.text) > 3000)",
    "PIIFormatter()",
    "MinhashDedupSignature(FOLDER, MinhashConfig())",
    "MinhashDedupSignature(FOLDER, MinhashConfig(n_grams=3, num_buckets=20))",
    "SentenceDedupSignature(FOLDER, config=SentDedupConfig())",
]


def ours(block: str, folder: Path, count: int) -> list[str | None]:
    """The text of each document after the migrated recipe; None if it is dropped."""
    import pyarrow.parquet as pq

    script = folder / "script.py"
    script.write_text(f"from datatrove.pipeline import *\nFOLDER = 'signatures'\n{block}\n")
    recipe, out = folder / "recipe.yaml", folder / "out"
    command = [sys.executable, "-m", "llmcurate"]
    sets = [f"--set=language.model={MODEL}"] if block.startswith("Language") else []
    for arguments in (
        ["migrate", script, "-o", recipe],
        ["run", recipe, folder.parent / "in.jsonl", "-o", out, "--quiet", *sets],
    ):
        done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{block}: {done.stderr}")
    kept = {}
    for path in (out / "corpus").rglob("*.parquet"):
        rows = pq.read_table(path, columns=["id", "text"]).to_pylist()
        kept |= {int(row["id"]): row["text"] for row in rows}
    return [kept.get(i) for i in range(count)]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else sized(200, 20)
    rng = random.Random(0)
    real = rng.sample(pieces(), count // 2)
    contact = "\nWrite to {0}@mail.example.net or 9.{0}.8.7 please, and wait for an answer.\n"
    texts = real + [worsened(t, rng) + contact.format(i) for i, t in enumerate(real)]
    blocks = BLOCKS + ["LanguageFilter(['en'], 0.8)"] * MODEL.exists()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = ({"id": str(i), "text": text} for i, text in enumerate(texts))
        (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "blocks.txt").write_text("\n".join(blocks))
        peer = ROOT / "benchmarks" / "peers" / "datatrove_blocks.py"
        files = [str(folder / "blocks.txt"), str(folder / "in.jsonl"), str(MODEL)]
        theirs = last_json([peer_python(), str(peer), *files])
        print(f"{len(texts):>4} documents{'ours':>70}{'theirs':>8}{'equal':>9}{'no faults':>11}")
        for number, block in enumerate(blocks):
            (folder / str(number)).mkdir()
            mine = ours(block, folder / str(number), len(texts))
            pairs = list(zip(mine, theirs[block], strict=True))
            dropped = [sum(text is None for text in side) for side in (mine, theirs[block])]
            equal = [(a is None) == (b is None) for a, b in pairs]
            shares = [sum(part) / len(part) for part in (equal, equal[: len(real)])]
            if block.startswith("Minhash"):
                shares = [1 - abs(dropped[0] - dropped[1]) / len(pairs)] * 2
            failed |= shares[1] < LEAST and not block.startswith("Sentence")
            print(f"{block:<82}{dropped[0]:>2}{dropped[1]:>8}{shares[0]:>9.1%}{shares[1]:>11.1%}")
    sys.exit(0 if reached(not failed) else 1)


if __name__ == "__main__":
    main()
