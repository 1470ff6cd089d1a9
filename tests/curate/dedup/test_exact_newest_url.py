"""`dedup_exact key=url survivor=newest` keeps what C4 keeps: the newest page of each URL.

The reference says in plain Python what tensorflow_datasets/text/c4.py does: pages are grouped by
`normalize_url`, and `select_newest_page` keeps the greatest timestamp of a group. C4 leaves ties to
the order in which Beam groups pages; here the smallest id stays, in any order.
"""

from __future__ import annotations

import random

import pytest

from curate.dedup.exact import normal_url

# Worked out by hand from the three lines of normalize_url.
NORMAL = {
    "https://www.site.test/a/": "site.test/a",
    "http://site.test/a": "site.test/a",
    "https://site.test/a//": "site.test/a",
    "https://www.www.site.test/": "www.site.test",
    "www.site.test": "www.site.test",  # www. goes with the scheme alone
    "HTTPS://www.site.test": "HTTPS://www.site.test",  # case is kept
    "https://site.test/A": "site.test/A",
    "https://site.test/a?utm_source=x&id=1": "site.test/a",
    "https://site.test/a?ref=x": "site.test/a",
    "https://site.test/a?reference=x": "site.test/a",
    "https://site.test/a?feed": "site.test/a",
    "https://site.test/a?id=1&utm_source=x": "site.test/a?id=1&utm_source=x",
    "https://site.test/a/?utm_source=x": "site.test/a",
    "https://site.test/a#part": "site.test/a#part",
    "https://web.test/2020/https://www.site.test/a": "web.test/2020/site.test/a",  # every scheme
    "ftp://site.test/": "ftp://site.test",
    "https://site.test:443/": "site.test:443",
}


@pytest.mark.parametrize("url", NORMAL)
def test_the_normal_form_is_c4s(url: str) -> None:
    assert normal_url(url) == NORMAL[url]


def newest(rows: list[dict[str, str]]) -> list[str]:
    """Ids of the newest page of each normal URL."""
    best: dict[str, tuple[str, str]] = {}
    for row in sorted(rows, key=lambda r: r["id"]):
        key = normal_url(row["url"])
        if key not in best or row["date"] > best[key][0]:
            best[key] = (row["date"], row["id"])
    return sorted(name for _, name in best.values())


def test_the_newest_page_of_each_url_stays_in_any_order_and_number_of_files(bench) -> None:
    draw = random.Random(0)
    urls, day = list(NORMAL), "20{}-0{}-11T0{}:00:00Z"
    rows = [
        {
            "id": f"d{i:03}",
            "text": f"text {i}",
            "url": draw.choice(urls),
            "date": day.format(draw.randrange(10, 20), draw.randrange(1, 9), draw.randrange(9)),
        }
        for i in range(150)
    ]
    want = newest(rows)
    assert 5 < len(want) < len(urls)
    kept = []
    for number, cut in enumerate((150, 40)):
        draw.shuffle(rows)
        inputs = [bench.jsonl(f"{number}/a.jsonl", rows[:cut])]
        inputs += [bench.jsonl(f"{number}/b.jsonl", rows[cut:])] if rows[cut:] else []
        out = f"out-{number}"
        steps = [{"dedup_exact": {"key": "url", "survivor": "newest", "max_removal": 1}}]
        bench.run(steps, *inputs, out=out, workers=number + 1)
        kept.append(sorted(bench.ids(out)))
    assert kept == [want, want]
