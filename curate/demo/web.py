"""The demonstration web as WARC files, and a truth file that says what was planted where.

Same bytes on every build: dates are fixed, record ids are UUIDs of URL and date, and chance is a
hash of a page's key.
"""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from io import BytesIO
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from curate.demo.plan import Page, codec, plan_pages
from curate.demo.texts import load_hosts
from curate.text.near_copies import drawn_number

_SOFTWARE = "llmcurate demonstration web"
_CRAWL = datetime(2025, 3, 1, 6, 0, tzinfo=timezone.utc)
_STEP = timedelta(seconds=41)
_FILES = 2
_PIXEL = bytes.fromhex(  # a transparent GIF of one pixel
    "47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b"
)


@dataclass(frozen=True)
class DemoWeb:
    """What `build_web` wrote."""

    paths: list[Path]
    truth: Path
    documents: int
    others: int  # images, style sheets, redirects, errors, robots.txt


def build_web(out_dir: Path) -> DemoWeb:
    """Write ``web-00000.warc.gz``, ``web-00001.warc.gz`` and ``truth.jsonl`` into `out_dir`.

    The truth has one JSON object a document: id, url, kind, lang, expect (a list), warc, charset,
    declared, and, null where they do not apply, source_id, cluster, similarity and planted.
    Records that are not documents (images, redirects, errors) are not in it.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    pages = sorted(plan_pages(), key=lambda p: drawn_number(p.key, "order"))
    answers = [(page, _response(page, n)) for n, page in enumerate(pages)]
    ids = {page.key: response.record_id for page, response in answers}
    others = list(_other_responses(pages))

    paths = []
    truth: dict[str, str] = {}
    for n in range(_FILES):
        path = out_dir / f"web-{n:05d}.warc.gz"
        share = answers[n * len(answers) // _FILES : (n + 1) * len(answers) // _FILES]
        write_warc(path, _in_time([r for _, r in share], others[n::_FILES]))
        paths.append(path)
        for page, response in share:
            truth[page.key] = json.dumps(_truth(page, response, ids, path.name), ensure_ascii=False)
    truth_path = out_dir / "truth.jsonl"
    # Bytes, not text: the line ends must not depend on the system.
    truth_path.write_bytes("".join(f"{truth[p.key]}\n" for p in pages).encode())
    return DemoWeb(paths, truth_path, len(pages), len(others))


def _response(page: Page, ordinal: int) -> Response:
    date = _CRAWL + ordinal * _STEP - timedelta(days=page.age)
    label = f"; charset={page.charset}" if page.declared == "header" else ""
    return Response(
        url=page.url,
        date=_stamp(date),
        body=page.html.encode(codec(page.charset), "xmlcharrefreplace"),
        content_type=f"text/html{label}",
        coding=page.coding,
    )


def _stamp(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")


def _in_time(documents: Sequence[Response], others: Sequence[Response]) -> list[Response]:
    """Documents in their order, with the other answers spread among them."""
    out = list(documents)
    for n, other in enumerate(others):
        out.insert((2 * n * len(documents)) // (len(others) or 1) // 2 + n, other)
    return out


def _truth(page: Page, response: Response, ids: dict[str, str], warc: str) -> dict[str, object]:
    return {
        "id": response.record_id,
        "url": page.url,
        "kind": page.kind,
        "lang": page.lang,
        "expect": [page.expect],
        "source_id": ids[page.source] if page.source else None,
        "cluster": page.cluster or None,
        "similarity": page.similarity,
        "planted": dict(page.planted) or None,
        "charset": page.charset,
        "declared": page.declared,
        "warc": warc,
    }


def _other_responses(pages: Sequence[Page]) -> Iterator[Response]:
    """What a crawl fetches besides documents."""
    date = _stamp(_CRAWL + timedelta(hours=7))
    for n, host in enumerate(load_hosts()):
        root = f"https://{host.host}"
        rules = b"User-agent: *\nDisallow: /search\n"
        yield Response(f"{root}/robots.txt", date, rules, "text/plain")
        if n % 2:
            yield Response(f"{root}/static/site.css", date, b"body{margin:0}\n", "text/css")
        if n % 3 == 0:
            yield Response(f"{root}/img/dot.gif", date, _PIXEL, "image/gif")
        if n % 4 == 0:
            lost = b"<html><head><title>404</title></head><body><h1>Not Found</h1></body></html>"
            yield Response(f"{root}/lost/{n}", date, lost, "text/html", "404 Not Found")
    for page in pages[::25]:
        if page.url.startswith("https://"):
            yield Response(
                page.url.replace("https://", "http://"),
                date,
                b"",
                "text/html",
                "301 Moved Permanently",
                headers=(("Location", page.url),),
            )


# Responses as they came over the wire, and the WARC files that hold them.


@dataclass(frozen=True)
class Response:
    """One answer of a server, with what is needed to write it as it was sent."""

    url: str
    date: str  # 2025-03-01T10:00:00Z
    body: bytes
    content_type: str = "text/html"
    status: str = "200 OK"
    coding: str = ""  # "gzip", "chunked" or "gzip chunked"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def record_id(self) -> str:
        """The WARC-Record-ID without angle brackets."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.url} {self.date}").urn

    def wire(self) -> tuple[list[tuple[str, str]], bytes]:
        """Headers and body as sent, content and transfer codings applied."""
        body = self.body
        headers = [("Date", _http_date(self.date)), ("Server", "nginx"), *self.headers]
        if self.content_type:
            headers.append(("Content-Type", self.content_type))
        if "gzip" in self.coding:
            body = gzip.compress(body, 9, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        if "chunked" in self.coding:
            body = chunked(body)
            headers.append(("Transfer-Encoding", "chunked"))
        else:
            headers.append(("Content-Length", str(len(body))))
        return headers, body


def chunked(body: bytes, size: int = 1500) -> bytes:
    """HTTP/1.1 chunked transfer coding."""
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def _http_date(date: str) -> str:
    stamp = datetime.fromisoformat(date.replace("Z", "+00:00"))
    return format_datetime(stamp).replace("+0000", "GMT")


def write_warc(path: Path, responses: Sequence[Response]) -> None:
    """A WARC file: warcinfo, then a request and a response for each answer, a gzip member each."""
    with path.open("wb") as stream:
        writer = WARCWriter(stream, gzip=True)
        first = responses[0].date
        info = f"software: {_SOFTWARE}\r\nformat: WARC File Format 1.0\r\n".encode()
        _write(writer, "warcinfo", "", first, f"warcinfo {path.name}", info, None, path.name)
        for response in responses:
            _write_exchange(writer, response)


def _write_exchange(writer: WARCWriter, response: Response) -> None:
    host, _, path = response.url.partition("://")[2].partition("/")
    asked = StatusAndHeaders(
        f"GET /{path} HTTP/1.1",
        [("Host", host), ("User-Agent", "demo-crawler/1.0"), ("Accept-Encoding", "gzip")],
        is_http_request=True,
    )
    name = f"request {response.url} {response.date}"
    _write(writer, "request", response.url, response.date, name, b"", asked)
    headers, body = response.wire()
    answer = StatusAndHeaders(response.status, headers, protocol="HTTP/1.1")
    _write(writer, "response", response.url, response.date, response.record_id, body, answer)


def _write(
    writer: WARCWriter,
    kind: str,
    url: str,
    date: str,
    name: str,
    body: bytes,
    http: StatusAndHeaders | None,
    filename: str = "",
) -> None:
    urn = name if name.startswith("urn:") else uuid.uuid5(uuid.NAMESPACE_URL, name).urn
    headers = {"WARC-Record-ID": f"<{urn}>", "WARC-Date": date}
    if filename:
        headers["WARC-Filename"] = filename
    record = writer.create_warc_record(
        url,
        kind,
        payload=BytesIO(body),
        length=len(body),
        warc_headers_dict=headers,
        http_headers=http,
    )
    writer.write_record(record)
