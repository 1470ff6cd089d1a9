"""Sources of bytes: HTTP(S) by urllib3, all other URLs by fsspec. A source opens a file at an
offset and reports what it knows of the whole file. For all protocols, a source raises the same
errors: Refused, or Failed with its subclasses NoHost and Changed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.version import __version__

USER_AGENT = f"llmcurate/{__version__}"
CONNECT_SECONDS = 30.0
MOST_REDIRECTS = 10
EARLY = "the connection ended early"
# Status codes worth another try: time-outs, too many requests, temporary server errors.
TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
_RANGE = re.compile(r"bytes\s+(\d+)-(\d+)/(\d+|\*)\s*", re.I | re.ASCII)
# The end of a URL of a byte range that is fetched like a file: `#bytes=OFFSET+LENGTH`.
_SPAN = re.compile(r"#bytes=(\d{1,18})\+(\d{1,18})", re.ASCII)


def span_of(url: str) -> tuple[str, int, int | None]:
    """Split a URL that may end in `#bytes=OFFSET+LENGTH` into (URL, offset, length). Without that
    ending the offset is 0 and the length is None."""
    place, mark, rest = url.rpartition("#bytes=")
    match = _SPAN.fullmatch(f"{mark}{rest}")
    return (place, int(match[1]), int(match[2])) if match else (url, 0, None)


class Refused(LlmcurateError):
    """The file cannot be fetched, and another try would not help."""


class Failed(Exception):
    """A try failed; another try may work. wait: the seconds that the server asks to wait."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class NoHost(Failed):
    """The host name is not known; if the network is only interrupted, another try may work."""


class Changed(Failed):
    """The file has changed since its first bytes were fetched."""


@dataclass
class Answer:
    """An open file, from some offset on."""

    start: int  # the offset; 0 if the source can only send the whole file
    size: int | None  # of the whole file in bytes, None if unknown
    validator: str | None  # identifies the file's version, None if unknown
    read: Callable[[int], bytes]  # at most the given number of bytes; b"" at the end
    close: Callable[[], None]


class Source(Protocol):
    """A source of bytes: the methods that `transfer.py` calls."""

    def open(self, url: str, offset: int, validator: str | None) -> Answer:
        """Open the file at the offset, or at 0 if the source sends only the whole file. Raises
        Refused or Failed; Changed if the file no longer has the version `validator`."""
        ...

    def about(self, url: str) -> tuple[int | None, str | None]:
        """Return the size and validator (see `Answer`) without reading the file. Raises Refused or
        Failed."""
        ...


class Http:
    """Files by HTTP(S). Threads share connections. seconds: how long a server may send nothing."""

    def __init__(self, connections: int = 2, seconds: float = 60.0) -> None:
        import urllib3

        self._connections = connections
        self._timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds)
        self._headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        self._pools: dict[str | None, Any] = {}  # by proxy
        self._lock = threading.Lock()
        # urllib3 follows redirects; other retries are counted in transfer.py alone.
        self._redirects = urllib3.Retry(
            total=None, connect=0, read=0, status=0, other=0, redirect=MOST_REDIRECTS
        )

    def open(self, url: str, offset: int, validator: str | None) -> Answer:
        """Open the file (`Source.open`). validator: ETag or Last-Modified (RFC 9110, 13.1.5)."""
        headers = {**self._headers}
        url, first, length = span_of(url)
        if offset or length is not None:
            last = "" if length is None else first + length - 1
            headers["Range"] = f"bytes={first + offset}-{last}"
            if validator:
                headers["If-Range"] = validator
        response = self._request("GET", url, headers, preload_content=False)
        try:
            answer = self._answer(response, url, first + offset, validator)
            if length is not None:
                if response.status != 206:
                    raise Refused("the server does not support byte ranges")
                answer.start, answer.size = offset, length
            return answer
        except BaseException:
            response.close()
            raise

    def about(self, url: str) -> tuple[int | None, str | None]:
        response = self._request("HEAD", url, self._headers)
        if response.status != 200:
            raise Refused(_status(response))
        return _length(response.headers), _validator(response.headers)

    def post(self, url: str, body: bytes, headers: dict[str, str], most: int) -> tuple[int, bytes]:
        """Send `body` and return the status and content of the answer, of at most `most` bytes. A
        redirect is returned like any other answer and is not followed, because the headers would
        then be sent to another host."""
        how = {"redirect": False, "preload_content": False}
        response = self._request("POST", url, self._headers | headers, body=body, **how)
        try:
            if response.status in TRY_AGAIN:
                raise Failed(_status(response), _retry_after(self._redirects, response))
            read, data = _reading(response), b""
            while block := read(most + 1):
                data += block
                if len(data) > most:
                    raise Refused(f"the server answers with more than {most:,} bytes")
            return response.status, data
        finally:
            response.close()

    def _request(self, method: str, url: str, headers: dict[str, str], **how: Any) -> Any:
        import urllib3

        try:
            return self._pool(url).request(
                method, url, headers=headers, retries=self._redirects, **how
            )
        except urllib3.exceptions.HTTPError as error:
            raise _converted_error(error) from None
        except ValueError as error:  # a redirect to something that is not a URL
            raise Refused(error_line(error)) from None

    def _pool(self, url: str) -> Any:
        from urllib.request import getproxies, proxy_bypass

        import urllib3

        parts = urlsplit(url)
        proxy = getproxies().get(parts.scheme.lower())
        if proxy and proxy_bypass(parts.netloc.rpartition("@")[2]):
            proxy = None
        if proxy and "://" not in proxy:
            proxy = f"http://{proxy}"
        with self._lock:
            if proxy not in self._pools:
                kind = partial(urllib3.ProxyManager, proxy) if proxy else urllib3.PoolManager
                self._pools[proxy] = kind(
                    maxsize=self._connections, timeout=self._timeout, headers=self._headers
                )
            return self._pools[proxy]

    def _answer(self, response: Any, url: str, offset: int, validator: str | None) -> Answer:
        _checked_redirects(response, url)
        status, headers = response.status, response.headers
        if status in TRY_AGAIN:
            raise Failed(_status(response), _retry_after(self._redirects, response))
        if status == 416:
            raise Changed("the file is shorter than the part already fetched")
        if status not in (200, 206):
            raise Refused(_status(response))
        if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            packed = headers["Content-Encoding"]
            if not url.partition("?")[0].lower().endswith((".gz", ".zst", ".br", ".bz2", ".xz")):
                raise Refused(f"the server sends it compressed ({packed}), though asked not to")
        version = _validator(headers)
        start, size = 0, _length(headers)
        if status == 206:
            part = _RANGE.fullmatch(headers.get("Content-Range", ""))
            if part is None or int(part[1]) != offset:
                raise Changed("the server sends another byte range than requested")
            if validator and version and version != validator:
                raise Changed("the file changed on the server")
            start, size = offset, None if part[3] == "*" else int(part[3])
        return Answer(start, size, version, _reading(response), response.close)


def _reading(response: Any) -> Callable[[int], bytes]:
    import urllib3

    def read(size: int) -> bytes:
        try:
            data: bytes = response.read1(size, decode_content=False)
            return data
        except urllib3.exceptions.HTTPError as error:
            raise _converted_error(error) from None

    return read


def _checked_redirects(response: Any, url: str) -> None:
    secure = url.lower().startswith("https:")
    for step in response.retries.history if response.retries else ():
        if step.redirect_location:
            url = urljoin(url, step.redirect_location)
            if secure and not url.lower().startswith("https:"):
                raise Refused(f"it is redirected from https to {url[:200]}")


def _length(headers: Any) -> int | None:
    length = headers.get("Content-Length", "")
    return int(length) if length.isdigit() and length.isascii() else None


def _validator(headers: Any) -> str | None:
    etag = headers.get("ETag", "").strip()
    if etag.startswith('"'):
        return str(etag)
    return str(headers.get("Last-Modified", "")).strip() or None


def _status(response: Any) -> str:
    reason = " ".join((response.reason or "").split())[:80]
    return f"the server answers {response.status} {reason}".rstrip()


def _retry_after(retry: Any, response: Any) -> float | None:
    from urllib3.exceptions import InvalidHeader

    try:
        wait: float | None = retry.get_retry_after(response)
        return wait
    except (InvalidHeader, ValueError, OverflowError):
        return None


def _converted_error(error: Exception) -> Exception:
    from urllib3 import exceptions as known

    while isinstance(error, known.MaxRetryError) and error.reason is not None:
        error = error.reason
    if isinstance(error, known.ResponseError):
        return Refused(f"more than {MOST_REDIRECTS} redirects")
    if isinstance(error, known.SSLError):
        return Refused(f"no secure connection: {error_line(error)}")
    if isinstance(error, known.LocationValueError):
        return Refused(
            f"the URL, or one it redirects to, is not a web address: {error_line(error)}"
        )
    if isinstance(error, known.NameResolutionError):
        return NoHost("no such host, or no network")
    if isinstance(error, known.NewConnectionError):
        cause = error.__cause__ or error.__context__
        return Failed(f"no connection: {getattr(cause, 'strerror', None) or error_line(error)}")
    if isinstance(error, known.TimeoutError):
        return Failed("the server was silent for too long")
    if isinstance(error, known.ProtocolError):
        return Failed(EARLY)
    return Failed(error_line(error))


def error_line(error: Exception) -> str:
    """Return the message of an error on one line, at most 200 characters long."""
    return " ".join((str(error) or type(error).__name__).split())[:200]


class Store:
    """Any store that fsspec opens, such as `s3://bucket/key`; most need another package."""

    def open(self, url: str, offset: int, validator: str | None) -> Answer:
        """Open the file (`Source.open`). validator: ETag, checksum, or time of change and size."""
        import fsspec

        url, first, length = span_of(url)
        try:
            fs, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{url}: {error_line(error)}") from None
        with _store_errors():
            fs.invalidate_cache()
            info = fs.info(path)
            version = _version(info)
            if validator and version != validator and offset:
                raise Changed("the file changed in the store")
            if info.get("type") == "directory":
                raise Refused("it is a folder; name its files")
            file = fs.open(path, "rb")
            file.seek(first + offset)
        end = None if length is None else first + length

        def read(size: int) -> bytes:
            with _store_errors():
                return bytes(file.read(size if end is None else min(size, end - file.tell())))

        size = info.get("size") if length is None else length
        return Answer(offset, None if size is None else int(size), version, read, file.close)

    def about(self, url: str) -> tuple[int | None, str | None]:
        answer = self.open(url, 0, None)  # reads no content yet
        answer.close()
        return answer.size, answer.validator


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Refused("there is no such file") from None
    except PermissionError as error:
        raise Refused(f"no access: {error_line(error)}") from None
    except (Failed, LlmcurateError, MemoryError):
        raise
    except Exception as error:
        raise Failed(error_line(error)) from None


def _version(info: dict[str, Any]) -> str | None:
    for key in ("ETag", "etag", "md5Hash", "content_md5", "sha256", "blob_id"):
        if info.get(key):
            return str(info[key])
    when = info.get("mtime") or info.get("LastModified") or info.get("created")
    return f"{when}/{info.get('size')}" if when else None
