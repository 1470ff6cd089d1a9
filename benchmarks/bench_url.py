"""The URL filter with a list of a million domains: URLs a second, and what the list costs.

    python benchmarks/bench_url.py

Made-up domains, URLs and words, the same in every run; CPU time of one process. Exit status 1 under
100,000 URLs a second. DataTrove's filter needs packages that its environment here does not have.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import peak_mib, reached, sized

DOMAINS, URLS, BATCH, PASSES = sized((1_000_000, 200_000, 1000, 3), (1000, 2000, 1000, 1))
TARGET = 100_000
WORDS = "news article shop review index page category product music video travel recipe".split()


def resident_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    from curate.documents.documents import documents
    from curate.filters.url import UrlFilter

    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with (path / "domains").open("w") as f:
            f.writelines(f"host-{draw.randrange(10**9)}.test\n" for _ in range(DOMAINS))
        size = (path / "domains").stat().st_size
        words = ["".join(draw.choices("abcdefghijklmnop", k=7)) for _ in range(300)]
        (path / "words").write_text("\n".join(words))
        small = UrlFilter(exclude=["a.test"], banned_words=str(path / "words"))
        small.apply(documents({"url": ["http://a.test/x"]}).within("url_filter"))
        before, begin = resident_mib(), time.process_time()
        step = UrlFilter(
            domains=str(path / "domains"),
            banned_words=str(path / "words"),
            banned_subwords=str(path / "words"),
        )
        step.open()
        seconds = time.process_time() - begin
    keys = step._lists.domains.nbytes / 2**20 if step._lists else 0.0
    print(
        f"{DOMAINS} domains ({size / 1e6:.0f} MB) read in {seconds:.1f} s; {keys:.1f} MiB of"
        f" hashes, resident memory +{resident_mib() - before:.0f} MiB,"
        f" while reading +{peak_mib() - before:.0f} MiB"
    )
    urls = [
        f"https://www.site{draw.randrange(9999)}.test/{'-'.join(draw.choices(WORDS, k=5))}/"
        f"{draw.randrange(10**6)}?id={draw.randrange(999)}"
        for _ in range(URLS)
    ]
    first = 0.0
    for name, tail in (("ASCII", ""), ("every one with %D0%B0", "%D0%B0")):
        batches = [
            documents({"url": [u + tail for u in urls[i : i + BATCH]]}).within("url_filter")
            for i in range(0, URLS, BATCH)
        ]
        times = []
        for _ in range(PASSES):
            begin = time.process_time()
            for batch in batches:
                step.apply(batch)
            times.append(time.process_time() - begin)
        rate = URLS / statistics.median(times)
        first = first or rate
        print(f"  {name:<24}{rate:9.0f} URLs/s")
    print(f"  target {TARGET} URLs/s (ASCII)")
    sys.exit(0 if reached(first >= TARGET) else 1)


if __name__ == "__main__":
    main()
