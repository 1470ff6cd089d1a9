"""Archived robots.txt and TDM files of a site, chosen by date and HTTP status."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.filters.opt_out import FORBIDDEN, NOTHING, origin_of, reservations_of
from tests.curate.filters.robots_archives import record, sites

ALL = b"User-agent: *\nDisallow: /p\n"


def test_a_site_is_scheme_and_host_and_the_newest_capture_counts(tmp_path: Path) -> None:
    policies = sites(
        tmp_path,
        record("https://x.test/robots.txt", ALL, date="2026-02-01"),
        record("https://x.test/robots.txt", b"", date="2026-01-01"),
        record("https://x.test/other.txt", ALL),
        record("http://y.test:8080/robots.txt", b""),
    )
    policy = policies.robots("https://x.test")
    assert policy and policy[0][0] == "*"
    assert policies.robots("http://x.test") == policy  # of the other scheme, where it has none
    assert policies.robots("http://y.test:8080") == NOTHING
    assert policies.robots("http://y.test") is None and len(policies) == 2


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("HTTP/1.1 200 OK", None),
        ("HTTP/1.1 300 Choose\nLocation: /robots.txt", None),
        ("HTTP/1.1 399 Moved\nlocation: /robots.txt", None),
        ("HTTP/1.1 400 Bad", NOTHING),
        ("HTTP/1.1 499 Gone away", NOTHING),
        ("HTTP/1.1 500 Broken", FORBIDDEN),
        ("HTTP/1.1 599 Broken", FORBIDDEN),
        ("HTTP/1.1 404 Not Found", NOTHING),
        ("HTTP/1.1 403 Forbidden", NOTHING),
        ("HTTP/1.1 503 Busy", FORBIDDEN),
        ("HTTP/1.1 301 Moved\nLocation: /robots.txt", None),
        ("HTTP/1.1 301 Moved\nLocation: /index.html", None),
        ("HTTP/1.1 302 Found\nLocation: https://x.test/robots.txt", None),
        ("HTTP/1.1 302 Found", NOTHING),
        ("HTTP/1.1 302 Found\nLocation: http://[", NOTHING),
    ],
)
def test_an_answer_means_what_the_rfc_says(tmp_path: Path, head: str, expected) -> None:
    answer = record("http://x.test/robots.txt", ALL, head)
    policy = sites(tmp_path, answer, unreachable=FORBIDDEN).robots("http://x.test")
    assert policy == ((("*", ("Disallow: /p",)),) if " 200 " in head else expected)


@pytest.mark.parametrize(
    ("first", "second", "newest"),
    [("2026-01-01", "2026-01-02", 1), ("2026-01-02", "2026-01-01", 0), ("2026-01-01",) * 2 + (1,)],
)
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
def test_the_newest_capture_of_each_file_counts_of_equals_the_later(
    tmp_path: Path, first: str, second: str, newest: int, status: str
) -> None:
    """An answer that is none counts as one to robots.txt alone."""
    tdm = '[{"location": "/%d", "tdm-reservation": 1}]'
    answers = [
        record(f"https://x.test{path}", body.encode(), f"HTTP/1.1 {answer}", date)
        for n, (date, answer) in enumerate(((first, "200 OK"), (second, status)))
        for path, body in (
            ("/robots.txt", f"User-agent: *\nDisallow: /{n}\nContent-Signal: ai-train={'ny'[n]}o"),
            ("/ai.txt", f"User-agent: *\nDisallow: /{n}"),
            ("/.well-known/tdmrep.json", tdm % n),
        )
    ]
    held = sites(tmp_path, *answers, signals=("ai-train",))
    answered = newest if status == "200 OK" else 0
    ai, rule = held.ai("https://x.test"), held.reservation("https://x.test", f"/{answered}")
    assert ai == (("*", (f"Disallow: /{answered}",)),) and rule is not None
    assert held.reservation("https://x.test", f"/{1 - answered}") is None
    robots = (("*", (f"Disallow: /{newest}",)),)
    assert held.robots("https://x.test") == (NOTHING if newest > answered else robots)
    assert (held.signal("https://x.test") is not None) == (newest == 0)


def test_five_redirects_are_followed_and_no_sixth(tmp_path: Path) -> None:
    head = "HTTP/1.1 301 Moved\nLocation: //h{}.test/robots.txt"
    hops = [
        record(f"http://h{n}.test/robots.txt", b"", head.format(n + 1)) for n in range(6)
    ]  # fmt: skip
    policies = sites(tmp_path, *hops, record("http://h6.test/robots.txt", ALL))
    assert policies.robots("http://h1.test") == policies.robots("http://h6.test") != NOTHING
    assert policies.robots("http://h0.test") == NOTHING


def test_equal_policies_are_one_object(tmp_path: Path) -> None:
    policies = sites(tmp_path, *(record(f"http://h{n}.test/robots.txt", ALL) for n in range(3)))
    assert policies.robots("http://h0.test") is policies.robots("http://h2.test")


def test_the_first_rule_of_tdmrep_that_matches_counts(tmp_path: Path) -> None:
    data = (
        b'[{"location": "/open/*", "tdm-reservation": 0}, {"location": "/", "tdm-reservation": 1}]'
    )
    policies = sites(tmp_path, record("https://x.test/.well-known/tdmrep.json", data))
    lines = [policies.reservation("https://x.test", path) for path in ("/open/a", "/a")]
    assert [(r.reserved, r.line) for r in lines if r] == [
        (False, "tdmrep.json: /open/*"),
        (True, "tdmrep.json: /"),
    ]
    assert policies.reservation("https://y.test", "/a") is None


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1, null, {}]", b'[{"location": 1, "tdm-reservation": 1}]', b"[" * 9999]
)
def test_an_invalid_tdmrep_file_reserves_nothing(data: bytes) -> None:
    assert reservations_of(data) == ()


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("HTTPS://Me:pw@X.test:443/a", "https://x.test"),
        ("http://x.test.:81?q", "http://x.test:81"),
        ("http://[::1]:80/a", "http://[::1]"),
        ("ftp://x.test/a", None),
        ("http:///a", None),
        ("x.test/a", None),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str | None) -> None:
    assert origin_of(url) == origin
