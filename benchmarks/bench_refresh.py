"""A refresh with 1 % new input beside a run over everything: seconds of CPU time.

    python benchmarks/bench_refresh.py [--documents N] [--rounds N]

Generated pages in web archives go through a recipe like FineWeb's (main text, Gopher, C4, FineWeb,
MinHash against all earlier documents, personal data). A HOME takes 99 % of them in with its first
refresh; then one per cent comes. CPU time of the command is counted, its workers' and its start
included, and beside it that of the command over ten pages: what starting up costs (Python,
libraries, workers, compiled code). Exit status 1 where the refresh costs more than that start and
3 % of what the run over everything costs.
"""

from __future__ import annotations

import argparse
import html
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.generated_corpus import documents  # noqa: E402
from benchmarks.shared_texts import reached, sized  # noqa: E402

TARGET = 0.03
FILES = sized(100, 10)
RECIPE = """\
name: refreshed
steps:
  - extract
  - gopher_repetition: {variant: datatrove}
  - gopher_quality: {variant: datatrove, min_stop_words: 0}
  - c4: {require_end_mark: false, min_words_per_line: 3, min_sentences: 5}
  - dedup_minhash: {preset: fineweb}
  - pii: {emails: true, ips: true}
"""
NAVIGATION = "".join(f'<li><a href="/section/{i}">Section {i}</a></li>' for i in range(40))


def page(document: dict[str, str]) -> bytes:
    """A document as a page of a site: head, navigation, paragraphs, foot."""
    body = "".join(f"<p>{html.escape(line)}</p>\n" for line in document["text"].split("\n"))
    return (
        f"<!doctype html><html><head><title>{document['id']}</title></head><body>"
        f"<nav><ul>{NAVIGATION}</ul></nav><main><article><h1>{document['id']}</h1>{body}"
        f"</article></main><footer><ul>{NAVIGATION}</ul></footer></body></html>"
    ).encode()


def write(folder: Path, count: int) -> None:
    """The documents as archives of one per cent each."""
    import gzip

    rows = documents(count)
    for n in range(FILES):
        with gzip.open(folder / f"{n:03d}.warc.gz", "wb", 1) as f:
            for _ in range(count // FILES):
                row = next(rows)
                data = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page(row)
                head = (
                    "WARC/1.0\r\nWARC-Type: response\r\n"
                    f"WARC-Record-ID: <urn:uuid:{row['id']}>\r\nWARC-Target-URI: {row['url']}\r\n"
                    f"WARC-Date: {row['date']}T00:00:00Z\r\nContent-Type: application/http;"
                    f" msgtype=response\r\nContent-Length: {len(data)}\r\n\r\n"
                )
                f.write(head.encode() + data + b"\r\n\r\n")


def cpu(*arguments: object) -> float:
    """Seconds of CPU time that the command and its workers took."""
    command = [sys.executable, "-m", "curate.cli.app", *map(str, arguments), "--workers", "1", "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def manifest(home: Path) -> dict[str, Any]:
    """The manifest of the current snapshot."""
    folder = (home / "current").resolve()
    content: dict[str, Any] = json.loads(folder.with_name(f"{folder.name}.json").read_text())
    return content


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3, help="of the refresh; of the run one")
    options = parser.parse_args()
    count = options.documents // FILES * FILES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("few", "all", "most", "new"):
            (folder / part).mkdir()
        write(folder / "few", 10 * FILES)
        few = folder / "few" / "000.warc.gz"
        (folder / "r.yaml").write_text(RECIPE, encoding="utf-8")
        recipe = folder / "r.yaml"
        cpu("refresh", recipe, few, "-o", folder / "warm")  # compiles what is not compiled yet
        write(folder / "all", count)
        files = sorted((folder / "all").iterdir())
        for file in files[:-1]:
            (folder / "most" / file.name).hardlink_to(file)
        whole = cpu("refresh", recipe, folder / "all", "-o", folder / "whole")
        most = cpu("refresh", recipe, folder / "most", "-o", folder / "most-home")
        starts, ones = [], []
        for n in range(options.rounds):
            starts.append(cpu("refresh", recipe, few, "-o", folder / f"start-{n}"))
            home = folder / f"home-{n}"
            shutil.copytree(folder / "most-home", home, symlinks=True)
            ones.append(cpu("refresh", recipe, folder / "most", files[-1], "-o", home))
        corpora = [folder / f"home-{n}" for n in range(options.rounds)]
        manifests = [manifest(home) for home in corpora]
        kept = sum(f["documents"] for f in manifests[0]["files"].values())
        same = manifest(folder / "whole")["documents"]
        if {m["documents"] for m in manifests} != {same}:
            sys.exit(f"a refresh keeps {kept} documents, a run over everything {same}")
    start, added = statistics.median(starts), statistics.median(ones)
    share = (added - start) / whole
    print(f"{count:,} pages, {kept:,} kept either way; seconds of CPU time, one worker")
    print(f"  over everything     {whole:8.1f}   (99 % of it {most:.1f})")
    print(f"  refresh with 1 %    {added:8.2f}   {added / whole:.2%} of it; rounds {sorted(ones)}")
    print(f"  start-up, ten pages {start:8.2f}   rounds {sorted(starts)}")
    print(f"  refresh but start-up{added - start:8.2f}   {share:.2%}, target {TARGET:.0%} or less")
    sys.exit(not reached(share <= TARGET))


if __name__ == "__main__":
    main()
