"""What trafilatura takes for title, author and date of pages, for benchmarks/bench_metadata.py.

    page_metadata.py PAGES.jsonl STATED.jsonl

PAGES has one {"html": ..., "url": ...} a line; STATED gets one of title, author and date a line,
null where it finds none. The settings are its defaults, dates by htmldate's extensive search.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trafilatura.metadata import extract_metadata


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    with target.open("w") as out:
        for line in source.read_text().split("\n")[:-1]:
            page = json.loads(line)
            try:
                found = extract_metadata(page["html"], default_url=page["url"])
                row = {"title": found.title, "author": found.author, "date": found.date}
            except Exception:
                row = dict.fromkeys(("title", "author", "date"))
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
