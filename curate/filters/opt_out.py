"""Drop documents whose publishers do not allow machines to use them (rules: docs/filters.md).

Nothing is downloaded: the files of sites (robots.txt, ai.txt, tdmrep.json) come from archives that
a recipe names, such as Common Crawl's robotstxt files. These archives are read once for all
workers. Policies are stored by origin (scheme and host), and equal policies share an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urljoin

import numpy as np
import orjson
import pyarrow as pa
from pydantic import PrivateAttr

from curate.documents.documents import Documents
from curate.filters.opt_out_robots import (
    MOST_BYTES,
    UNREACHABLE,
    Policy,
    forbidding,
    matches,
    path_of,
    policy_of,
    signals_of,
)
from curate.filters.word_lists import Names
from curate.formats.compression import open_input
from curate.formats.dates import parse_date
from curate.formats.events import Corrupt
from curate.formats.heads import Record
from curate.formats.http import decode_body, parse_head
from curate.formats.records import ReadLimits, records
from curate.steps.contracts import FromFiles, Prepared, step
from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import RunFailed, UsageError

ROBOTS, TDMREP, AI = "/robots.txt", "/.well-known/tdmrep.json", "/ai.txt"
MOST_CORRUPT = 100  # the most unreadable places that a notice lists
MOST_REDIRECTS = 5  # RFC 9309, 2.3.1.2
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
_LIMITS = ReadLimits(record_bytes=8 << 20, payload_bytes=4 << 20)
_USUAL = re.compile(r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)*(?=[/?#]|$)", re.ASCII)
_PORTS = {"http": "80", "https": "443"}
NOTHING: Policy = ()
FORBIDDEN: Policy = (("*", (UNREACHABLE,)),)


@dataclass(frozen=True)
class Reservation:
    """A rule of tdmrep.json. `location` is a path pattern in the syntax of robots.txt."""

    location: str
    reserved: bool

    @property
    def line(self) -> str:
        """Return the rule as it appears in the reason for a dropped document."""
        return f"tdmrep.json: {self.location}"[:200]


@dataclass(slots=True)
class Site:
    """The policies of one origin, with dates of capture. `robots` is robots.txt's policy, or the
    URL to which robots.txt redirects. `tdm` are tdmrep.json's rules, `ai` is ai.txt's policy."""

    robots: Policy | str | None = None
    robots_date: datetime = _LONG_AGO
    signal: str | None = None  # the Content-Signal line of robots.txt that denies a use
    tdm: tuple[Reservation, ...] | None = None
    tdm_date: datetime = _LONG_AGO
    ai: Policy = NOTHING
    ai_date: datetime = _LONG_AGO


@dataclass
class Sites:
    """The policies of all sites, by origin (scheme and host). `agents` are the crawlers whose
    groups in robots.txt apply. `unreachable` is the policy of a site that answers with status 5xx.
    `signals` are the uses that a Content-Signal line may deny. `corrupt` is the number of
    unreadable places in the archives, and `places` lists the first ones."""

    agents: tuple[str, ...]
    unreachable: Policy = NOTHING
    signals: tuple[str, ...] = ()
    corrupt: int = 0
    places: list[tuple[str, int, str]] = field(default_factory=list)  # file, offset, what is wrong
    reserve: bool = False  # True if any site has a tdmrep.json
    _sites: dict[str, Site] = field(default_factory=dict)
    _same: dict[Any, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._sites)

    def items(self) -> Iterable[tuple[str, Site]]:
        return self._sites.items()

    def add(self, origin: str, site: Site) -> None:
        self._sites[origin] = site
        self.reserve = self.reserve or site.tdm is not None

    def read(self, paths: Iterable[str]) -> Sites:
        """Add the sites with a robots.txt, ai.txt or tdmrep.json in these archives; return self.
        The archives are read in the given order. The newest capture of each such file counts."""
        for path in paths:
            with open_input(path) as file:
                for record in records(file, 0, None, _LIMITS):
                    if isinstance(record, Corrupt):
                        self.corrupt += 1
                        if len(self.places) < MOST_CORRUPT:
                            self.places.append((path, record.offset, record.what))
                    elif record.type in ("response", "resource"):
                        self._read_record(record)
        return self

    def _read_record(self, record: Record) -> None:
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
        """Return a robots.txt's policy, or the URL it redirects to (RFC 9309, 2.3.1)."""
        if 300 <= status < 400:
            try:
                return urljoin(url, location) if location else NOTHING
            except ValueError:  # not a URL
                return NOTHING
        if status >= 500 or status == 0:
            return self.unreachable
        if status != 200:
            return NOTHING
        policy: Policy = self._shared(policy_of(body[: MOST_BYTES + 1], self.agents))
        return policy

    def _shared(self, value: Any) -> Any:
        return self._same.setdefault(value, value)

    def robots(self, origin: str) -> Policy | None:
        """Return the policy of a site's robots.txt, or None if no archive has one. If robots.txt
        was captured only for http or only for https, that capture counts for both."""
        site = self._after_redirects(origin)
        if site is None:
            return None
        return NOTHING if isinstance(site.robots, str) else site.robots

    def signal(self, origin: str) -> str | None:
        """Return the Content-Signal line by which a site's robots.txt denies a use, or None."""
        site = self._after_redirects(origin)
        return None if site is None or isinstance(site.robots, str) else site.signal

    def ai(self, origin: str) -> Policy:
        site = self._sites.get(origin) or self._sites.get(_other_scheme(origin))
        return site.ai if site else NOTHING

    def _after_redirects(self, origin: str) -> Site | None:
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
                return None  # a redirect to another page
            target = origin_of(site.robots)
            if target is None:
                return None
            origin = target
        return site

    def reservation(self, origin: str, path: str) -> Reservation | None:
        """Return the first rule of the site's tdmrep.json that matches a path, or None."""
        site = self._sites.get(origin) or self._sites.get(_other_scheme(origin))
        for rule in (site.tdm or ()) if site else ():
            if matches(rule.location, path):
                return rule
        return None


def origin_of(url: str) -> str | None:
    """Return `scheme://host` of an http(s) URL, else None. A non-default port is kept."""
    if usual := _USUAL.match(url):
        return usual[0]
    scheme, separator, authority = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _PORTS:
        return None
    for end in "/?#":
        authority = authority.partition(end)[0]
    host = authority.rpartition("@")[2].lower()
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
    """Return the rules of a tdmrep.json in the order of the file. Invalid rules are skipped."""
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


VERSION = 2  # the format of the file of sites
CORRUPT = pa.schema([("file", pa.string()), ("offset", pa.int64()), ("what", pa.string())])


def write(sites: Sites, file: Path) -> None:
    """Write the sites to the JSON file that each worker loads. Equal values are stored once, and
    sites refer to them by number. A site is the list [robots.txt or the URL it redirects to,
    signals, tdmrep.json, ai.txt]."""
    numbers: dict[Any, int] = {}

    def number(value: Any) -> int | None:
        return None if value is None else numbers.setdefault(value, len(numbers))

    rows = {
        origin: [
            site.robots if isinstance(site.robots, str) else number(site.robots),
            number(site.signal),
            number(None if site.tdm is None else tuple((r.location, r.reserved) for r in site.tdm)),
            number(site.ai or None),
        ]
        for origin, site in sites.items()
    }
    data = {"version": VERSION, "values": [*numbers], "sites": rows}
    with replacing(file) as aside:
        aside.write_bytes(orjson.dumps(data))


def read(file: Path) -> Sites:
    """Read the sites from a file that `write` made. Raises RunFailed if the file is damaged."""
    try:
        data = orjson.loads(file.read_bytes())
        if data["version"] != VERSION:
            raise ValueError("another version")
        values = data["values"]
        cache: dict[tuple[str, int], Any] = {}

        def value(kind: str, number: int | None, make: Callable[[Any], Any]) -> Any:
            if number is None:
                return None
            if (kind, number) not in cache:
                cache[kind, number] = make(values[number])
            return cache[kind, number]

        sites = Sites(())
        for origin, (robots, signal, tdm, ai) in data["sites"].items():
            site = Site(
                robots if isinstance(robots, str) else value("policy", robots, _policy),
                signal=value("signal", signal, str),
                tdm=value("tdm", tdm, lambda rows: tuple(starmap(Reservation, rows))),
                ai=value("policy", ai, _policy) or (),
            )
            sites.add(origin, site)
        return sites
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise RunFailed(f"{file} is damaged ({error}); remove it and run again") from None


def _policy(rows: list[Any]) -> Policy:
    return tuple((agent, tuple(rules)) for agent, rules in rows)


# Names of crawlers whose operators say that they train models on pages allowed to the name.
AGENTS = (
    "AI2Bot", "Amazonbot", "anthropic-ai", "Applebot-Extended", "Bytespider", "CCBot", "ClaudeBot",
    "cohere-training-data-crawler", "Diffbot", "FacebookBot", "Google-Extended", "GPTBot",
    "img2dataset", "meta-externalagent", "omgili", "PanguBot", "Timpibot", "Webzio-Extended",
)  # fmt: skip
PAGES = (None, "text/html", "application/xhtml+xml")
# Per row: (True if reserved, the statement), None without one. A later statement replaces it.
Stated = list[tuple[bool, str] | None]
_EQUIV, _ROBOTS, _TDM = 0, 1, 2  # the first names in the table, by number


@step("opt_out")
class OptOut(Prepared, FromFiles):
    """Drops documents by robots.txt, ai.txt, X-Robots-Tag, robots `meta` and TDM reservations."""

    paper: ClassVar[str] = "RFC 9309; X-Robots-Tag; the TDM Reservation Protocol"

    robots: bool = True
    """Drop pages that a robots.txt in the archives forbids to one of the agents."""
    robots_txt: Names = ()
    """Archives that contain robots.txt, ai.txt and tdmrep.json: files, folders or patterns. Without
    a value the rules of sites are not applied."""
    agents: Names = AGENTS
    """Names of crawlers. A page is dropped if its publisher forbids it to one of them."""
    signals: Names = ("ai-train",)
    """Uses such as ai-train. A page is dropped if the robots.txt of its site says USE=no in a
    Content-Signal line (contentsignals.org)."""
    ai_txt: bool = True
    """Drop pages that an ai.txt in the archives forbids to one of the agents."""
    unreachable: Literal["allow", "disallow"] = "allow"
    """How to read a robots.txt that the server answered with an error 5xx: allow keeps the site's
    pages, disallow drops them (RFC 9309, 2.3.1.4)."""
    headers: bool = True
    """Apply the HTTP header X-Robots-Tag of the page's response."""
    meta: bool = True
    """Apply the meta elements in the page's head whose name is robots or one of the agents."""
    directives: Names = ("noai", "noimageai")
    """Words in X-Robots-Tag and meta that drop a page. The words none and noindex are about search
    engines; add them to drop these pages too."""
    tdm: bool = True
    """Drop pages with a reservation of the TDM Reservation Protocol (W3C)."""

    _sites: object = PrivateAttr(default=None)

    @property
    def before_extract(self) -> bool:
        return self.headers or self.meta or self.tdm

    @cached_property
    def _files(self) -> list[str]:
        from curate.formats.listing import find_files

        if not self.robots_txt:
            return []
        try:
            files = find_files(self.robots_txt).files
        except UsageError as error:
            raise UsageError(f"{self.label}.robots_txt: {error}") from None
        for file in files:
            if file.format != "archive":
                raise UsageError(
                    f"{self.label}.robots_txt: {file.path} is not an archive (WARC or ARC)"
                )
        return [f.path for f in files]

    def resources(self) -> list[str]:
        return self._files

    def notes(self) -> list[str]:
        idle = self.robots and not self.robots_txt
        return [f"{self.label}: no robots_txt was given, so no robots.txt is applied"] * idle

    def prepared(self, folder: Path) -> Path | None:
        return folder / f"{self.label.replace('#', '_')}.sites" if self.robots_txt else None

    def prepare(self, file: Path) -> tuple[int, list[dict[str, int | str | None]]]:
        """Read the archives and write their sites to the workers' file. Return the number of
        unreadable records, and table rows that describe the first ones."""
        import pyarrow.parquet as pq

        sites = self._read()
        rows = [dict(zip(CORRUPT.names, place, strict=True)) for place in sites.places]
        if rows:
            with replacing(file.with_name(f"part-{file.stem}.corrupt.parquet")) as aside:
                pq.write_table(pa.Table.from_pylist(rows, CORRUPT), aside)
        write(sites, file)
        return sites.corrupt, rows

    def open_in(self, folder: Path) -> None:
        file = self.prepared(folder)
        if self._sites is None and file is not None and file.is_file():
            self._sites = read(file)
        self.open()

    def _read(self) -> Sites:
        unreachable = FORBIDDEN if self.unreachable == "disallow" else NOTHING
        return Sites(self.agents, unreachable, self.signals).read(self._files)

    def open(self) -> None:
        if self._sites is None:
            self._sites = self._read()

    def apply(self, docs: Documents) -> Documents:
        self.open()
        stated: Stated = [None] * len(docs)
        docs = self._drop_by_site(docs, stated)
        headers: list[str | None] = [None] * len(docs)
        if "opt_out_headers" in docs.table.column_names:
            headers = docs.table["opt_out_headers"].to_pylist()
        if self.headers:
            docs = self._drop_by_headers(docs, headers)
        return self._drop_by_page(docs, headers, stated)

    def _drop_by_site(self, docs: Documents, stated: Stated) -> Documents:
        sites = self._sites
        assert isinstance(sites, Sites)
        robots_known = np.zeros(len(docs), np.bool_)
        details: list[str | None] = [None] * len(docs)
        denied: list[str | None] = [None] * len(docs)
        by_ai: list[str | None] = [None] * len(docs)
        for row, url in enumerate(docs.table["url"].to_pylist() if len(sites) else ()):
            origin = origin_of(url) if url else None
            if origin is None:
                continue
            path = path_of(url)
            if self.robots:
                policy = sites.robots(origin)
                robots_known[row] = policy is not None
                if policy and (rule := forbidding(policy, path)):
                    details[row] = f"{rule[0]}: {rule[1]}"
            if self.signals:
                denied[row] = sites.signal(origin)
            if self.ai_txt and (policy := sites.ai(origin)):
                rule = forbidding(policy, path)
                by_ai[row] = f"{rule[0]}: {rule[1]}" if rule else None
            if self.tdm and sites.reserve and (site_rule := sites.reservation(origin, path)):
                stated[row] = site_rule.reserved, site_rule.line
        docs = docs.annotate("robots_known", robots_known)
        docs = docs.drop(_has_value(details), "robots_txt", detail=details)
        docs = docs.drop(_has_value(denied), "content_signal", detail=denied)
        return docs.drop(_has_value(by_ai), "ai_txt", detail=by_ai)

    def _drop_by_headers(self, docs: Documents, headers: list[str | None]) -> Documents:
        from curate.filters.opt_out_meta import tag_forbids

        agents = {a.lower() for a in self.agents}
        forbid = {d.lower() for d in self.directives}
        details: list[str | None] = [None] * len(docs)
        for row, text in enumerate(headers):
            for line in (text or "").split("\n"):
                name, _, value = line.partition(": ")
                if name == "x-robots-tag" and details[row] is None:
                    details[row] = tag_forbids(value, forbid, agents)
        return docs.drop(_has_value(details), "x_robots_tag", detail=details)

    def _drop_by_page(
        self, docs: Documents, headers: list[str | None], stated: Stated
    ) -> Documents:
        details: list[str | None] = [None] * len(docs)
        if self.tdm:
            for row, text in enumerate(headers):
                for line in (text or "").split("\n"):
                    if line.startswith("tdm-reservation: "):
                        _set_tdm(stated, row, line.partition(": ")[2], "header tdm-reservation")
        if (self.meta or self.tdm) and "payload" in docs.table.column_names:
            self._read_metas(docs, details, stated)
        if self.meta:
            docs = docs.drop(_has_value(details), "meta_robots", detail=details)
        if self.tdm:
            reserved = [s[1] if s and s[0] else None for s in stated]
            docs = docs.drop(_has_value(reserved), "tdm_reservation", detail=reserved)
        return docs

    def _read_metas(self, docs: Documents, details: list[str | None], stated: Stated) -> None:
        from curate.filters import opt_out_meta as page
        from curate.text.buffers import text_buffers
        from llmcurate.base.disk.parquet_writer import one_array

        names = ("x-robots-tag", "robots", "tdm-reservation", *(a.lower() for a in self.agents))
        table, ends = page.names_table(names)
        agents = set(names[3:])
        forbid = {d.lower() for d in self.directives}
        data, offsets = text_buffers(_as_utf8(one_array(docs.table["payload"])))
        places = page.find_metas(data, offsets, table, ends)
        mimes = docs.table["mime"].to_pylist() if len(places) else []
        for row, which, start, end in places.tolist():
            if mimes[row] not in PAGES:
                continue
            text = page.content_text(data, start, end)
            if which == _TDM:
                _set_tdm(stated, row, text, "meta tdm-reservation")
            elif details[row] is None and which == _EQUIV:
                details[row] = page.tag_forbids(text, forbid, agents)
            elif details[row] is None:
                words = forbid if which == _ROBOTS else {*forbid, *page.TO_NAMED}
                if word := page.first_forbidden(text, words):
                    details[row] = f"{names[which]}: {word}"


def _has_value(details: list[str | None]) -> np.ndarray:
    return np.array([d is not None for d in details], np.bool_)


def _set_tdm(stated: Stated, row: int, value: str, where: str) -> None:
    value = value.strip()
    if value in ("0", "1"):
        stated[row] = value == "1", f"{where}: {value}"


def _as_utf8(pages: pa.Array) -> pa.Array:
    from curate.text.buffers import text_buffers
    from curate.text.decoding import decode, utf_16_in

    data, offsets = text_buffers(pages)
    first = offsets[:-1][np.diff(offsets) > 1]
    if not len(first):
        return pages
    pairs = data[first].astype(np.int64) << 8 | data[first + 1]
    if not ((pairs == 0xFFFE) | (pairs == 0xFEFF) | (pairs % 256 == 0) | (pairs < 256)).any():
        return pages
    values = pages.to_pylist()
    for row, value in enumerate(values):
        if value and utf_16_in(value):
            values[row] = decode(value).text.encode()
    return pa.array(values, pa.large_binary())
