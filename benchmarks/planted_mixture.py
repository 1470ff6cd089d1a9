"""Whether `llmcurate mix search` finds what a text is made of: four real sources, and an evaluation
text planted of held-out documents of them, in shares that nothing in it names (docs/mixing.md).

`python benchmarks/planted_mixture.py OUT [OPTIONS OF mix search]`; the real texts: shared_texts.py.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import longtext, need, sized  # noqa: E402

PLANTED = {"german": 0.50, "peps": 0.30, "code": 0.15, "novels": 0.05}  # of the bytes
TEXT_BYTES, PIECE = 100_000, 1900
HELD_OUT = 8  # one of so many documents
MOST = sized(8_000_000, 100_000)  # bytes of a source
OPTIONS = [
    *"--runs=40 --confirm=8 --tokens=100000 --total=2000000 --vocab=2048".split(),
    *"--rows=4 --context=128".split(),
    *"--set=model.layers=2 --set=model.hidden=96 --set=model.attention.heads=4".split(),
    *"--set=model.attention.kv_heads=4 --set=model.feed_forward.width=256".split(),
]


def texts_of(source: str) -> Iterator[str]:
    """The documents of a source."""
    names = {"german": "de-novels", "peps": "en-peps", "novels": "en-novels"}
    if source in names:
        yield from longtext(names[source])
    else:
        with gzip.open(need("code/code.jsonl.gz")[0], "rt", encoding="utf-8") as file:
            yield from (json.loads(line)["text"] for line in file)


def pieces_of(text: str) -> Iterator[str]:
    """Some pieces of a document; not its beginning, where licences stand."""
    data = text.encode()
    for at in range(PIECE, min(len(data) - PIECE, 4 * PIECE), PIECE):
        yield data[at : at + PIECE].decode("utf-8", "ignore")


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def plant(out: Path) -> list[str]:
    """Writes the sources and the text; returns arguments of the command."""
    planted, arguments = [], []
    for source, share in PLANTED.items():
        kept, size, room = [], 0, share * TEXT_BYTES
        for number, text in enumerate(texts_of(source)):
            if number % HELD_OUT == 0:
                for piece in pieces_of(text):
                    if room > PIECE / 2:
                        planted.append({"id": f"{source}-{len(planted)}", "text": piece})
                        room -= len(piece.encode())
            elif size < MOST:
                kept.append({"id": f"{source}/{number}", "text": text})
                size += len(text.encode())
        write(out / f"{source}.jsonl", kept)
        arguments.append(f"{source}={out / source}.jsonl")
    write(out / "planted.jsonl", planted)
    return [*arguments, "--on", f"planted={out / 'planted.jsonl'}"]


def planted_shares(out: Path) -> dict[str, float]:
    """Shares of the tokens of the text that was scored, by the ids of its documents."""
    from train.data.shards import read_shards

    shards = read_shards(out / "search" / "eval" / "planted")
    tokens = dict.fromkeys(PLANTED, 0)
    for name, length in zip(shards.ids(list(range(shards.documents))), shards.length, strict=True):
        tokens[name.rpartition("-")[0]] += int(length)
    return {source: count / sum(tokens.values()) for source, count in tokens.items()}


def main(out: Path, options: list[str]) -> None:
    """Plants, searches, and says how near the mixtures come."""
    from curate.cli.app import invoke

    out.mkdir(parents=True, exist_ok=True)
    arguments = ["mix", "search", *plant(out), *OPTIONS, *options, "-o", str(out / "search")]
    print("llmcurate", *arguments, flush=True)
    if code := invoke(arguments):
        sys.exit(code)
    figures = json.loads((out / "search" / "mixtures.json").read_text(encoding="utf-8"))
    planted = planted_shares(out)
    print("planted, in tokens:", ", ".join(f"{s} {100 * v:.1f} %" for s, v in planted.items()))
    for name, mixture in figures["mixtures"].items():
        distance = sum(abs(mixture["shares"][s] - v) for s, v in planted.items()) / 2
        print(f"{name}: total variation distance {distance:.3f} from the planted shares")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
