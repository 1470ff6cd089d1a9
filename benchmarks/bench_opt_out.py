"""The cost of robots.txt and other reservations: the step opt_out beside extraction.

    python benchmarks/bench_opt_out.py [WARC...]

Pages are the demo's small web (or the files given), repeated; robots.txt files are made, one a
site, the same in every run. protego reads them; each URL is matched for all agents that the step
names by default. CPU time of one process, medians of PASSES. Exit status 1 where the step takes
more than a tenth of extraction's time.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import peak_mib, reached, sized

PAGES, SITES, URLS, PASSES = sized((2000, 5000, 50_000, 7), (100, 100, 1000, 1))
MOST_SHARE = 0.1
RULES = (
    "/wp-admin/ /search /cart /*?s= /private/ /*.pdf$ /user/ /tag/*/feed/ /api/ /cgi-bin/".split()
)
AGENTS = "GPTBot CCBot Google-Extended ClaudeBot Bytespider AhrefsBot SemrushBot".split()


def robots_txt(draw: random.Random) -> bytes:
    """Everyone's rules, and for one site in four some agents that may have nothing."""
    lines = ["User-agent: *", *(f"Disallow: {r}" for r in draw.sample(RULES, draw.randint(1, 6)))]
    lines.append("Allow: /wp-admin/admin-ajax.php")
    if draw.random() < 0.25:
        lines += [*(f"User-agent: {a}" for a in draw.sample(AGENTS, 3)), "Disallow: /"]
    return "\n".join(lines).encode()


def record(url: str, body: bytes) -> bytes:
    content = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\n"
        f"WARC-Date: 2026-01-01T00:00:00Z\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n\r\n"


def median(work: Callable[[], object]) -> float:
    """CPU seconds."""
    times = []
    for _ in range(PASSES):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def pages(archives: list[str], folder: Path) -> list:
    """Payload, type and headers of PAGES pages."""
    from curate.demo.web import build_web
    from curate.formats.events import Row
    from curate.formats.warc import read_archive

    if not archives:
        build_web(folder)
        archives = sorted(str(p) for p in folder.rglob("*.warc.gz"))
    rows = []
    for path in archives:
        with open(path, "rb") as file:
            rows += [e for e in read_archive(file) if isinstance(e, Row) and e.payload]
    return (rows * (PAGES // len(rows) + 1))[:PAGES]


def main() -> None:
    from curate.documents.documents import CORE, PAYLOAD, documents
    from curate.extract.extraction import Extract
    from curate.filters.opt_out import AGENTS as NAMED
    from curate.filters.opt_out import OptOut
    from curate.filters.opt_out_robots import forbidding, path_of, policy_of

    draw = random.Random(0)
    files = [robots_txt(draw) for _ in range(SITES)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "robots.warc").write_bytes(
            b"".join(record(f"https://s{n}.test/robots.txt", f) for n, f in enumerate(files))
        )
        rows = pages(sys.argv[1:], folder / "web")
        step = OptOut(robots_txt=str(folder / "robots.warc"))
        begin = time.process_time()
        step.open()
    opened = time.process_time() - begin
    names = ("payload", "mime", "charset", "opt_out_headers")
    columns = {n: [getattr(r, n) for r in rows] for n in names}
    columns["url"] = [f"https://s{n % SITES}.test/{draw.choice('abc')}/{n}" for n in range(PAGES)]
    docs = documents(columns, (*CORE, *PAYLOAD))
    extract = Extract()
    size = sum(len(r.payload) for r in rows)
    out, text = docs.within("opt_out"), docs.within("extract")
    outcome = step.apply(out)  # compiles
    extract.apply(text)
    dropped = {d.rule: len(d.rows) for d in outcome.drops}
    print(
        f"{PAGES} pages, {size / 1e6:.1f} MB; {SITES} robots.txt read in {opened:.2f} s: {dropped}"
    )
    ours, theirs = median(lambda: step.apply(out)), median(lambda: extract.apply(text))
    share = ours / theirs
    print(f"  opt_out   {PAGES / ours:10.0f} documents/s {size / ours / 1e6:8.0f} MB/s")
    print(f"  extract   {PAGES / theirs:10.0f} documents/s {size / theirs / 1e6:8.0f} MB/s")
    print(f"  the step takes {share:.1%} of extraction's time (at most {MOST_SHARE:.0%})")

    def parse() -> None:
        for data in files:
            policy_of(data, NAMED)

    policies = [policy_of(f, NAMED) for f in files]
    asked = [
        (n % SITES, f"https://s{n % SITES}.test/{draw.choice(RULES).strip('/*$')}/{n}?s=1")
        for n in range(URLS)
    ]
    seconds = median(lambda: [forbidding(policies[k], path_of(u)) for k, u in asked])
    print(f"  matching  {URLS / seconds:10.0f} URLs/s, each for {len(NAMED)} agents")
    print(f"  parsing   {SITES / median(parse):10.0f} files/s")
    print(f"  peak memory {peak_mib():.0f} MiB")
    sys.exit(0 if reached(share <= MOST_SHARE) else 1)


if __name__ == "__main__":
    main()
