"""What-if on 1,000,000 documents: seconds and memory of the whole command.

    python benchmarks/bench_whatif.py [--documents N] [--times N]
    python benchmarks/bench_whatif.py --apply [limit|threshold|verify] [--documents N] [--times N]

The documents are made up, in the form of a run's folders: texts of 200 to 1,500 bytes, four
languages, the columns and rules of gopher_quality, gopher_repetition, fineweb_quality and
document_length, with values drawn so that three quarters are kept. `llmcurate whatif OUT --set
gopher_quality.min_words=80 --json` runs in a process of its own: the first time it also reads how
long the texts are, and that is said apart; the median of the later ones is compared with the
target. Exit status 1 beyond 2 s a million.

With `--apply limit`: CPU seconds of a run over an archive of made-up pages (by default 50,000, with
texts of 60 to 700 words between links; one in eight is a copy of another with a few words changed)
through extraction, filters, MinHash, a step that cuts lines, and personal data, against those of
`whatif --apply` with a limit that admits 1 % of the documents, both with their reports, in turns.
`threshold` changes MinHash's from 0.7 to 0.85, whose sketches are others; `verify` the similarity
that pairs must have, over the same sketches. Exit status 1 where the bytes differ from a run with
these settings, or apply takes more than half of its CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
BATCH, PART, SECONDS = 10_000, 100_000, 2.0
STEPS = ["gopher_quality", "gopher_repetition", "fineweb_quality", "document_length"]
CHILD = """
import resource, sys
from curate.cli import app as cli
sys.argv = ["llmcurate", *sys.argv[1:]]
code = cli.invoke(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, file=sys.stderr)
sys.exit(code)
"""


def make(out: Path, documents_: int) -> None:
    """Writes OUT/corpus, OUT/rejected, recipe.yaml and run.json as a run leaves them."""
    import numpy as np
    import pyarrow as pa
    import yaml

    from curate.disk.parquet_writer import TableWriter
    from curate.documents.documents import documents
    from curate.documents.limits import decide
    from curate.documents.rejected import strip_number
    from curate.steps.recipe import compose

    recipe = compose("bench", [(n, {"min": 40} if "length" in n else {}) for n in STEPS], ())
    draw = np.random.default_rng(1)
    filler = "The river runs past the old mill and nobody works there any more. " * 24
    langs = pa.array(["en", "de", "fr", "th"])
    writers: list[TableWriter] = []
    for start in range(0, documents_, BATCH):
        if start % PART == 0:
            for writer in writers:
                writer.close()
            name = f"part-{start // PART:05d}.parquet"
            writers = [TableWriter(out / kind / name) for kind in ("corpus", "rejected")]
        number = min(BATCH, documents_ - start)
        size = draw.integers(200, 1500, number)
        made = documents(
            {
                "id": [f"document-{i}" for i in range(start, start + number)],
                "text": [f"{filler[:n]} {i}" for i, n in enumerate(size.tolist())],
                "lang": langs.take(pa.array(draw.integers(0, 4, number))),
            }
        )
        for step in recipe.document_steps:
            docs = made.within(step.label)
            for column in dict.fromkeys(x.column for x in step.limits()):
                docs = docs.annotate(column, values(column, number, draw))
            made = decide(docs, step.limits())
        for writer, table in zip(writers, made.split(), strict=True):
            writer.write(strip_number(table))
    for writer in writers:
        writer.close()
    (out / "recipe.yaml").write_text(yaml.safe_dump(recipe.resolved(), sort_keys=False))
    record = {"recipe": "bench", "stages": [{"steps": STEPS}], "products": []}
    (out / "run.json").write_text(json.dumps(record))


def values(column: str, number: int, draw):
    """number[rows] as real ones lie: most documents on the good side of every limit."""
    import numpy as np

    if column in ("words", "lines"):
        return draw.lognormal(6 if column == "words" else 3, 1, number).astype(np.int32)
    if column == "word_length":
        return draw.normal(4.7, 0.6, number)
    if column == "stop_words":
        return draw.integers(1, 9, number).astype(np.int32)
    if column in ("alpha_words", "end_marks"):
        return 1 - draw.beta(1, 12, number)
    found = draw.beta(1, 60, number)
    if column.startswith(("duplicate", "bullet", "hash", "ellipsis")):
        found[draw.random(number) < 0.7] = 0  # most documents repeat nothing and have no bullets
    return found


RECIPE = """
steps:
  - extract
  - gopher_repetition
  - gopher_quality: {min_words: MIN}
  - fineweb_quality
  - dedup_minhash: {MINHASH}
  - c4: {min_sentences: 1, min_words_per_line: 3}
  - pii
"""
SHARE, MOST = 0.01, 0.5  # admitted; of a run's CPU seconds
# What is changed: MinHash's settings, and another one; none: the limit on words.
CHANGES = {
    "limit": ("", ""),
    "threshold": ("threshold: 0.7", "dedup_minhash.threshold=0.85"),
    "verify": ("verify: 0.7", "dedup_minhash.verify=0.95"),
}


def pages(path: Path, documents_: int) -> tuple[int, int]:
    """Writes an archive of pages; returns two limits on words between which 1 % of them lie."""
    import gzip

    import numpy as np

    draw = np.random.default_rng(2)
    letters = np.array(list("etaoinshrdlu"))
    known = ["the", "be", "to", "of", "and", "that", "have", "with"]
    known += ["".join(draw.choice(letters, int(n))) for n in draw.integers(3, 10, 8000)]
    odds = 1 / np.arange(1, len(known) + 1) ** 0.8
    odds /= odds.sum()
    links = "".join(f"<li><a href='/{w}'>{w.title()}</a></li>" for w in known[8:60])
    counts, before = [], []
    with path.open("wb") as f:
        for i in range(documents_):
            words = [known[k] for k in draw.choice(len(known), draw.integers(60, 700), p=odds)]
            if i % 8 == 7:
                words = list(before[draw.integers(len(before))])
                words[5:8] = ["quite", "another", f"copy{i}"]
            before = [*before[-200:], words]
            counts.append(len(words))
            lines = [
                " ".join(words[at : at + 28]).capitalize() + "." for at in range(0, len(words), 28)
            ]
            body = "".join(f"<p>{line}</p>\n" for line in lines)
            html = (
                f"<html><head><title>{words[0]} {i}</title></head><body><ul>{links}</ul>"
                f"<div><h1>{words[1]} {i}</h1>{body}</div><ul>{links}</ul></body></html>"
            ).encode()
            http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html
            head = (
                f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{i}>\r\n"
                f"WARC-Target-URI: http://a.test/{i}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
                "Content-Type: application/http; msgtype=response\r\n"
                f"Content-Length: {len(http)}\r\n\r\n"
            ).encode()
            f.write(gzip.compress(head + http + b"\r\n\r\n", 1))
    at = np.sort(counts)
    high = int(np.quantile(at, 0.2))
    low = int(at[int(np.searchsorted(at, high)) - round(SHARE * documents_)])
    return high, low


def spent(*arguments: str) -> tuple[float, float, str]:
    """(CPU seconds, wall seconds, the last line) of a command with its workers."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "curate.cli.app", *arguments, "--workers", "1", "-q", "--json"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return core, wall, done.stdout.splitlines()[-1]


def contents(out: Path) -> dict[str, bytes]:
    """What a run promises to repeat byte by byte."""
    paths = [*out.glob("corpus/*"), *out.glob("rejected/*"), out / "decisions.parquet"]
    return {str(p.relative_to(out)): p.read_bytes() for p in paths}


def applied(what: str, documents_: int, times: int) -> int:
    """CPU seconds of runs and of `--apply`, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "in").mkdir()
        high, low = pages(home / "in" / "pages.warc.gz", documents_)
        recipe = home / "recipe.yaml"
        minhash, change = CHANGES[what]
        recipe.write_text(RECIPE.replace("MINHASH", minhash).replace("MIN", str(high)))
        changed = ("--set", change or f"gopher_quality.min_words={low}")
        spent("run", str(recipe), str(home / "in"), "-o", str(home / "first"))  # compiles, too
        runs, applies, said = [], [], ""
        for nth in range(times):
            run, new = str(home / f"run{nth}"), str(home / f"apply{nth}")
            runs.append(spent("run", str(recipe), str(home / "in"), "-o", run, *changed))
            applies.append(spent("whatif", str(home / "first"), *changed, "--apply", "-o", new))
            said = applies[-1][2]
        same = contents(home / "run0") == contents(home / "apply0")
    for stage in json.loads(said)["measured"]:
        print(
            f"{stage['stage']}: measured {stage['measured']:,} of {stage['documents']:,},"
            f" sketched {stage['sketched']:,} {stage['why']}{stage['why_sketched']}"
        )
    core, wall = ([statistics.median(x[k] for x in side) for side in (runs, applies)]
                  for k in (0, 1))  # fmt: skip
    ratios = sorted(b[0] / a[0] for a, b in zip(runs, applies, strict=True))
    print(
        f"{documents_:,} documents, {changed[1]}: run {core[0]:.1f} CPU s"
        f" ({wall[0]:.1f} s), apply {core[1]:.1f} CPU s ({wall[1]:.1f} s), of a run"
        f" {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f});"
        f" bytes {'the same' if same else 'DIFFER'}"
    )
    return int(not same or statistics.median(ratios) > MOST)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apply", nargs="?", const="limit", choices=list(CHANGES))
    parser.add_argument("--documents", type=int)
    parser.add_argument("--times", type=int)
    given = parser.parse_args()
    if given.apply:
        return applied(given.apply, given.documents or 50_000, given.times or 2)
    given.documents, given.times = given.documents or 1_000_000, given.times or 5
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), given.documents)
        command = [sys.executable, "-c", CHILD, "whatif", folder]
        command += ["--set", "gopher_quality.min_words=80", "--json"]
        seconds, core, peak = [], [], 0
        for _ in range(given.times + 1):
            began = time.perf_counter()
            done = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            seconds.append(time.perf_counter() - began)
            core.append(float(done.stderr.split()[-2]))
            peak = max(peak, int(done.stderr.split()[-1]))
        found = json.loads(done.stdout)
    first, median = seconds[0], statistics.median(seconds[1:])
    print(
        f"{found['documents']:,} documents, {len(found['rules'])} rules: kept"
        f" {found['before']['documents']:,}, now {found['after']['least']['documents']:,}"
    )
    print(f"first call (reads the texts' lengths): {first:.2f} s, of a core {core[0]:.2f} s")
    print(
        f"median of {given.times}: {median:.2f} s ({min(seconds[1:]):.2f} to"
        f" {max(seconds[1:]):.2f}), of a core {statistics.median(core[1:]):.2f} s,"
        f" {peak / 2**20:.0f} MiB"
    )
    return int(median > SECONDS * given.documents / 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
