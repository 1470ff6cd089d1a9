"""The rules of sites, as archives hold them: robots.txt, ai.txt, /.well-known/tdmrep.json.

Read from the archives that a recipe names, such as Common Crawl's robotstxt files, once for all
workers, and kept by origin. Most sites say one of a few things, and equal
policies are one object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urljoin

from curate.filters.opt_out_robots import (
    MOST_BYTES,
    UNREACHABLE,
    Policy,
    matches,
    path_of,
    policy_of,
    signals_of,
)
from curate.formats.compression import open_input
from curate.formats.dates import parse_date
from curate.formats.events import Corrupt
from curate.formats.heads import Record
from curate.formats.http import decode_body, parse_head
from curate.formats.records import ReadLimits, records

ROBOTS, TDMREP, AI = "/robots.txt", "/.well-known/tdmrep.json", "/ai.txt"
MOST_CORRUPT = 100  # places that are named
MOST_REDIRECTS = 5  # RFC 9309, 2.3.1.2
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
_LIMITS = ReadLimits(record_bytes=8 << 20, payload_bytes=4 << 20)
_USUAL = re.compile(r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)*(?=[/?#]|$)", re.ASCII)
_PORTS = {"http": "80", "https": "443"}
NOTHING: Policy = ()
FORBIDDEN: Policy = (("*", (UNREACHABLE,)),)


@dataclass(frozen=True)
class Reservation:
    """A rule of tdmrep.json; location: a pattern of paths as in robots.txt."""

    location: str
    reserved: bool

    @property
    def line(self) -> str:
        """The rule as reasons name it."""
        return f"tdmrep.json: {self.location}"[:200]


@dataclass(slots=True)
class Site:
    """What one said. robots: its policy, or where it is said to be; dates: of the captures."""

    robots: Policy | str | None = None
    robots_date: datetime = _LONG_AGO
    signal: str | None = None  # what its robots.txt denies by Content-Signal
    tdm: tuple[Reservation, ...] | None = None
    tdm_date: datetime = _LONG_AGO
    ai: Policy = NOTHING
    ai_date: datetime = _LONG_AGO


@dataclass
class Sites:
    """Policies by origin. agents: whose groups count; unreachable: what a 5xx answer means;
    signals: uses that a Content-Signal may deny; places: the first that could not be read."""

    agents: tuple[str, ...]
    unreachable: Policy = NOTHING
    signals: tuple[str, ...] = ()
    corrupt: int = 0
    places: list[tuple[str, int, str]] = field(default_factory=list)  # file, offset, what
    reserve: bool = False  # whether any site has a tdmrep.json
    _sites: dict[str, Site] = field(default_factory=dict)
    _same: dict[Any, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._sites)

    def items(self) -> Iterable[tuple[str, Site]]:
        """All of them, by origin."""
        return self._sites.items()

    def put(self, origin: str, site: Site) -> None:
        """One that was read before."""
        self._sites[origin] = site
        self.reserve = self.reserve or site.tdm is not None

    def read(self, paths: Iterable[str]) -> Sites:
        """Takes up archives, in order; the newest capture of a site counts."""
        for path in paths:
            with open_input(path) as file:
                for record in records(file, 0, None, _LIMITS):
                    if isinstance(record, Corrupt):
                        self.corrupt += 1
                        if len(self.places) < MOST_CORRUPT:
                            self.places.append((path, record.offset, record.what))
                    elif record.type in ("response", "resource"):
                        self._take(record)
        return self

    def _take(self, record: Record) -> None:
        url = (record.get(b"warc-target-uri") or "").strip().strip("<>")
        origin = origin_of(url)
        if origin is None or not url.endswith((".txt", ".json")):
            return
        path = path_of(url)
        if path not in (ROBOTS, TDMREP, AI):
            return
        content = record.content if record.content is not None else record.beginning
        head = parse_head(content) if record.type == "response" else None
        status, body = 200, content
        if head is not None:
            status = head.status or 0
            decoded = decode_body(head, content[head.length :], _LIMITS.payload_bytes)
            body = decoded.data
        date = parse_date(record.get(b"warc-date")) or _LONG_AGO
        site = self._sites.setdefault(origin, Site())
        if path == ROBOTS and date >= site.robots_date:
            location = head.first("location") if head else None
            site.robots, site.robots_date = self._robots(status, body, url, location), date
            denied = signals_of(body, self.agents, self.signals) if status == 200 else None
            site.signal = self._shared(denied) if denied else None
        elif path == AI and date >= site.ai_date and status == 200:
            site.ai, site.ai_date = self._shared(policy_of(body, self.agents)), date
        elif path == TDMREP and date >= site.tdm_date and status == 200:
            site.tdm, site.tdm_date = self._shared(reservations_of(body)), date
            self.reserve = True

    def _robots(
        self, status: int, body: bytes, url: str, location: str | None
    ) -> Policy | str | None:
        """RFC 9309, 2.3.1: what an answer to a request for robots.txt means."""
        if 300 <= status < 400:
            try:
                return urljoin(url, location) if location else NOTHING
            except ValueError:  # it is no URL
                return NOTHING
        if status >= 500 or status == 0:
            return self.unreachable
        if status != 200:
            return NOTHING
        policy: Policy = self._shared(policy_of(body[: MOST_BYTES + 1], self.agents))
        return policy

    def _shared(self, value: Any) -> Any:
        """The value, as the one object that equals it."""
        return self._same.setdefault(value, value)

    def robots(self, origin: str) -> Policy | None:
        """What a site's robots.txt says; None where no archive has it. One that was captured under
        the other of http and https only counts for both."""
        site = self._behind(origin)
        if site is None:
            return None
        return NOTHING if isinstance(site.robots, str) else site.robots

    def signal(self, origin: str) -> str | None:
        """What its Content-Signal lines deny."""
        site = self._behind(origin)
        return None if site is None or isinstance(site.robots, str) else site.signal

    def ai(self, origin: str) -> Policy:
        """What a site's ai.txt says."""
        site = self._sites.get(origin) or self._sites.get(_other_scheme(origin))
        return site.ai if site else NOTHING

    def _behind(self, origin: str) -> Site | None:
        """The site that holds the robots.txt of an origin: behind redirects, of which one more than
        are followed leaves the last."""
        seen = set()
        site: Site | None = None
        for _ in range(MOST_REDIRECTS + 1):
            if origin in seen:
                return None
            seen.add(origin)
            site = self._sites.get(origin)
            if site is None or site.robots is None:
                site = self._sites.get(_other_scheme(origin))
            if site is None or site.robots is None:
                return None
            if not isinstance(site.robots, str):
                return site
            if path_of(site.robots) != ROBOTS:
                return None  # some other page, which is not held
            target = origin_of(site.robots)
            if target is None:
                return None
            origin = target
        return site

    def reservation(self, origin: str, path: str) -> Reservation | None:
        """The rule of tdmrep.json for a path: the first one that matches."""
        site = self._sites.get(origin) or self._sites.get(_other_scheme(origin))
        for rule in (site.tdm or ()) if site else ():
            if matches(rule.location, path):
                return rule
        return None


def origin_of(url: str) -> str | None:
    """`https://host` of a URL, with its port where that is not the scheme's; None for others."""
    if usual := _USUAL.match(url):
        return usual[0]
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _PORTS:
        return None
    for end in "/?#":
        rest = rest.partition(end)[0]
    host = rest.rpartition("@")[2].lower()
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name, port = host, ""
    port = "" if port == _PORTS[scheme] else port
    name = name.rstrip(".")
    return f"{scheme}://{name}{':' if port else ''}{port}" if name else None


def _other_scheme(origin: str) -> str:
    scheme, _, host = origin.partition("://")
    return f"{'http' if scheme == 'https' else 'https'}://{host}"


def reservations_of(data: bytes) -> tuple[Reservation, ...]:
    """The rules of a tdmrep.json, in order; those that are none are passed over."""
    try:
        listed = json.loads(data.removeprefix(b"\xef\xbb\xbf")) if len(data) < 1 << 20 else None
    except (ValueError, RecursionError):
        return ()
    rules = []
    for entry in listed if isinstance(listed, list) else ():
        location = entry.get("location") if isinstance(entry, dict) else None
        value = str(entry.get("tdm-reservation")) if isinstance(entry, dict) else ""
        if isinstance(location, str) and value in ("0", "1"):
            location = location.encode("utf-8", "replace").decode()
            rules.append(Reservation(location, value == "1"))
    return tuple(rules)
