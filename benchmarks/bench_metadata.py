"""Title, author and date that pages state: ours and trafilatura 2's against a person's.

    python benchmarks/bench_metadata.py [--half 0|1]

The pages are wcxb's, decoded once. trafilatura gets the page's address too. An answer is right,
wrong or missing where gold states a value, false where it states none. accuracy: pages with the
right answer, which may be none. F1: of right answers among those given and among those of gold.
A date is ours as the column has it, in UTC. `--half` takes the sites of one half alone. Exit status
1 where ours is behind in accuracy or F1 of all pages.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import PEER, site_of
from benchmarks.shared_texts import ROOT, need

FIELDS = ("title", "author", "date")
Row = dict[str, Any]

# How answers are compared: the same for gold, ours and the other.
_QUOTES = dict.fromkeys(map(ord, "‘’‚‛`´′"), "'") | dict.fromkeys(map(ord, "“”„‟«»″"), '"')
_SITE = re.compile(r"\s+[|\-–—·•»:]+\s+[^|–—·•»]+$")
_NAMES = re.compile(r"[,;&|\n]|\s+and\s+")
_BY = re.compile(r"^(?:written\s+)?by\b:?\s*")


def title_key(title: str) -> str:
    """Case, white space and the shape of quotes do not count."""
    return " ".join(title.translate(_QUOTES).casefold().split())


def short_title_key(title: str) -> str:
    """As title_key, without a last part that a separator sets apart, as names of sites are."""
    return _SITE.sub("", title_key(title))


def author_key(author: str) -> frozenset[str]:
    """The names, in any order, a leading "by" off."""
    names = (_BY.sub("", " ".join(n.casefold().split())) for n in _NAMES.split(author.casefold()))
    return frozenset(n for n in names if n)


def date_key(date: str) -> str:
    """The day."""
    return date[:10]


KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "title": ("title", title_key),
    "title, site's name off": ("title", short_title_key),
    "author": ("author", author_key),
    "date": ("date", date_key),
}


def outcome(gold: str | None, answer: str | None, key: Callable[[str], Any]) -> str:
    """right, wrong, missing; false or none where gold states nothing."""
    if not gold:
        return "false" if answer else "none"
    if not answer:
        return "missing"
    return "right" if key(gold) == key(answer) else "wrong"


def figures(counts: Counter[str]) -> tuple[float, float]:
    """Accuracy and F1."""
    stated = counts["right"] + counts["wrong"] + counts["missing"]
    given = counts["right"] + counts["wrong"] + counts["false"]
    return (
        (counts["right"] + counts["none"]) / max(1, sum(counts.values())),
        2 * counts["right"] / max(1, stated + given),
    )


def load() -> tuple[list[Row], list[str]]:
    """Rows of gold and their decoded pages."""
    from warcio.archiveiterator import ArchiveIterator

    from curate.text.buffers import decode

    with gzip.open(need("wcxb/dev-gold.jsonl.gz")[0], "rt") as lines:
        gold = {row["record_id"]: row for row in map(json.loads, lines)}
    rows, pages = [], []
    with need("wcxb/dev.warc.gz")[0].open("rb") as file:
        for record in ArchiveIterator(file):
            name = (record.rec_headers.get_header("WARC-Record-ID") or "").strip("<>")
            row = gold.get(name) or gold.get(f"<{name}>")
            if row is not None and record.rec_type == "response":
                rows.append(row)
                pages.append(decode(record.content_stream().read())[0])
    return rows, pages


def ours(rows: list[Row], pages: list[str]) -> list[Row]:
    """What the step `extract` writes into its columns."""
    import pyarrow as pa

    from curate.extract import metadata
    from curate.extract.blocks import main_texts

    stated: list[Row] = []
    for k in range(0, len(pages), 64):
        texts = main_texts(pa.array(pages[k : k + 64], pa.large_string()))
        for row in range(len(texts.text)):
            title, date, author, _ = texts.stated(row)
            when = metadata.published(date)
            stated.append(
                {
                    "title": title,
                    "author": metadata.author(author),
                    "date": when and when.date().isoformat(),
                }
            )
    return stated


def theirs(rows: list[Row], pages: list[str]) -> list[Row]:
    """trafilatura's answers, in its own environment, which is built when absent."""
    build = ["sh", str(ROOT / "benchmarks" / "peer_env.sh"), "extract"]
    subprocess.run(build, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "pages.jsonl"), Path(folder, "stated.jsonl")
        lines = (
            json.dumps({"html": page, "url": row["url"]}) + "\n"
            for row, page in zip(rows, pages, strict=True)
        )
        source.write_text("".join(lines))
        script = ROOT / "benchmarks" / "peers" / "page_metadata.py"
        subprocess.run([str(PEER), str(script), str(source), str(target)], check=True)
        return [json.loads(line) for line in target.read_text().split("\n")[:-1]]


def half(row: Row) -> int:
    """0 or 1 by the site's name."""
    return zlib.crc32(site_of(row["url"]).encode()) & 1


def table(rows: list[Row], answers: dict[str, list[Row]]) -> bool:
    """Prints the counts of each field, overall and by kind of page; whether ours is behind."""
    names = ("right", "wrong", "missing", "false", "none")
    kinds = ["all", *sorted({row["page_type"] for row in rows})]
    behind = False
    for label, (field, key) in KEYS.items():
        print(f"\n{label:38}" + "".join(f"{n:>8}" for n in (*names, "acc.", "F1")))
        for kind in kinds:
            scores = []
            for name, stated in answers.items():
                counts = Counter(
                    outcome(row[field], answer[field], key)
                    for row, answer in zip(rows, stated, strict=True)
                    if kind in ("all", row["page_type"])
                )
                scores.append(figures(counts))
                shown = "".join(f"{counts[n]:8}" for n in names)
                print(f"  {kind:14} {name:20} {shown}" + "".join(f"{f:8.3f}" for f in scores[-1]))
            if kind == "all":
                behind |= any(a < b for a, b in zip(*scores, strict=True))
    return behind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", type=int, choices=(0, 1), help="sites of one half alone")
    chosen = parser.parse_args().half
    rows, pages = load()
    kept = [k for k, row in enumerate(rows) if chosen is None or half(row) == chosen]
    rows, pages = [rows[k] for k in kept], [pages[k] for k in kept]
    print(f"{len(pages)} pages of {len({site_of(row['url']) for row in rows})} sites")
    answers = {"llmcurate": ours(rows, pages), "trafilatura 2.0": theirs(rows, pages)}
    sys.exit(table(rows, answers))


if __name__ == "__main__":
    main()
