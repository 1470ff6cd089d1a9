"""Sources of bytes: HTTP(S) by urllib3, everything else that has a URL by fsspec.

A source opens a file at an offset and says what it knows of the whole. What went wrong comes as
one of three errors, so that who fetches need not know the protocol.
"""

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
# Worth another try: time-outs, too many requests, and what a server says of itself.
TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
_RANGE = re.compile(r"bytes\s+(\d+)-(\d+)/(\d+|\*)\s*", re.I | re.ASCII)


# Behind a URL: `#bytes=OFFSET+LENGTH`, a part of a file that is fetched as a file of its own.
_SPAN = re.compile(r"#bytes=(\d{1,18})\+(\d{1,18})", re.ASCII)


def span_of(url: str) -> tuple[str, int, int | None]:
    """(URL, offset, length) of a URL that may end in a span; length None: up to the end."""
    place, mark, rest = url.rpartition("#bytes=")
    match = _SPAN.fullmatch(f"{mark}{rest}")
    return (place, int(match[1]), int(match[2])) if match else (url, 0, None)


class Refused(LlmcurateError):
    """No further try will help; the message says why."""


class Failed(Exception):
    """Another try may help. wait: seconds that the server asks for, None where it asks nothing."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class NoHost(Failed):
    """The name of the host is not known. During a long fetch the network may come back."""


class Changed(Failed):
    """What was fetched so far belongs to another version of the file."""


@dataclass
class Answer:
    """An open file. start: the offset of its first byte (0 where the source cannot skip); size: of
    the whole file, None where nothing tells; validator: what names this version, None for none."""

    start: int
    size: int | None
    validator: str | None
    read: Callable[[int], bytes]  # up to so many bytes; b"" at the end
    close: Callable[[], None]


class Source(Protocol):
    """What `transfer.py` fetches from."""

    def open(self, url: str, offset: int, validator: str | None) -> Answer:
        """The file from offset on, or from 0. Refused, Failed or Changed where that is not."""
        ...

    def about(self, url: str) -> tuple[int | None, str | None]:
        """(size, validator) without the file. Refused or Failed where the source does not say."""
        ...


class Http:
    """HTTP(S). Connections are shared by threads; seconds: how long a server may be silent."""

    def __init__(self, connections: int = 2, seconds: float = 60.0) -> None:
        import urllib3

        self._connections = connections
        self._timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds)
        self._headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        self._pools: dict[str | None, Any] = {}  # by proxy
        self._lock = threading.Lock()
        # Redirects are urllib3's; other tries are counted in one place, transfer.py.
        self._redirects = urllib3.Retry(
            total=None, connect=0, read=0, status=0, other=0, redirect=MOST_REDIRECTS
        )

    def open(self, url: str, offset: int, validator: str | None) -> Answer:
        """See Source. A validator is an ETag or a Last-Modified (If-Range, RFC 9110, 13.1.5)."""
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
                    raise Refused("the server sends whole files, no ranges")
                answer.start, answer.size = offset, length
            return answer
        except BaseException:
            response.close()
            raise

    def about(self, url: str) -> tuple[int | None, str | None]:
        """See Source."""
        response = self._request("HEAD", url, self._headers)
        if response.status != 200:
            raise Refused(_status(response))
        return _length(response.headers), _validator(response.headers)

    def _request(self, method: str, url: str, headers: dict[str, str], **how: bool) -> Any:
        import urllib3

        try:
            return self._pool(url).request(
                method, url, headers=headers, retries=self._redirects, **how
            )
        except urllib3.exceptions.HTTPError as error:
            raise _trouble(error) from None
        except ValueError as error:  # a redirect to something that is no URL
            raise Refused(_line(error)) from None

    def _pool(self, url: str) -> Any:
        """Connections to where the URL is, through the proxy that the environment names for it."""
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
            raise Changed("the file is shorter than what was fetched of it")
        if status not in (200, 206):
            raise Refused(_status(response))
        if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            packed = headers["Content-Encoding"]
            if not url.partition("?")[0].lower().endswith((".gz", ".zst", ".br", ".bz2", ".xz")):
                raise Refused(f"the server sends it packed ({packed}), though asked not to")
        version = _validator(headers)
        start, size = 0, _length(headers)
        if status == 206:
            part = _RANGE.fullmatch(headers.get("Content-Range", ""))
            if part is None or int(part[1]) != offset:
                raise Changed("the server sends another part than was asked for")
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
            raise _trouble(error) from None

    return read


def _checked_redirects(response: Any, url: str) -> None:
    """Refuses a way from https to http: anyone on it could put another file in place."""
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
    """A strong ETag, else Last-Modified; a weak ETag promises too little to go on in the middle."""
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


def _trouble(error: Exception) -> Exception:
    """An error of urllib3 as one of ours, in words."""
    from urllib3 import exceptions as known

    while isinstance(error, known.MaxRetryError) and error.reason is not None:
        error = error.reason
    if isinstance(error, known.ResponseError):
        return Refused(f"more than {MOST_REDIRECTS} redirects")
    if isinstance(error, known.SSLError):
        return Refused(f"no safe connection: {_line(error)}")
    if isinstance(error, known.LocationValueError):
        return Refused(f"it is, or leads to, what is no web address: {_line(error)}")
    if isinstance(error, known.NameResolutionError):
        return NoHost("no such host, or no network")
    if isinstance(error, known.NewConnectionError):
        cause = error.__cause__ or error.__context__
        return Failed(f"no connection: {getattr(cause, 'strerror', None) or _line(error)}")
    if isinstance(error, known.TimeoutError):
        return Failed("the server was silent for too long")
    if isinstance(error, known.ProtocolError):
        return Failed(EARLY)
    return Failed(_line(error))


def _line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:200]


class Store:
    """What fsspec opens: `s3://bucket/key` and others, each by its own package."""

    def open(self, url: str, offset: int, validator: str | None) -> Answer:
        """See Source. A validator is the store's ETag or checksum, else time of change and size."""
        import fsspec

        url, first, length = span_of(url)
        try:
            fs, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{url}: {_line(error)}") from None
        with _in_words():
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
            with _in_words():
                return bytes(file.read(size if end is None else min(size, end - file.tell())))

        size = info.get("size") if length is None else length
        return Answer(offset, None if size is None else int(size), version, read, file.close)

    def about(self, url: str) -> tuple[int | None, str | None]:
        """See Source."""
        answer = self.open(url, 0, None)  # which reads nothing yet
        answer.close()
        return answer.size, answer.validator


@contextmanager
def _in_words() -> Iterator[None]:
    """Errors of a store, each of which has its own, as ours."""
    try:
        yield
    except FileNotFoundError:
        raise Refused("there is no such file") from None
    except PermissionError as error:
        raise Refused(f"no access: {_line(error)}") from None
    except (Failed, LlmcurateError, MemoryError):
        raise
    except Exception as error:
        raise Failed(_line(error)) from None


def _version(info: dict[str, Any]) -> str | None:
    for key in ("ETag", "etag", "md5Hash", "content_md5", "sha256", "blob_id"):
        if info.get(key):
            return str(info[key])
    when = info.get("mtime") or info.get("LastModified") or info.get("created")
    return f"{when}/{info.get('size')}" if when else None
