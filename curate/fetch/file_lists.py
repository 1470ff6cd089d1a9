"""Read lists of files to fetch, and lists of words or hosts that a setting names. A list is a local
file or a URL, plain or .gz. Each line holds a URL, or a path below a base URL, as in Common Crawl's
*.paths.gz. A sha256 or md5 may come before or after the URL, as sha256sum writes it."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import SplitResult, urljoin, urlsplit

from curate.fetch.transfer import PART, FileToFetch
from curate.text.decoding import decode
from llmcurate.base.disk.files import check_regular, path_inside
from llmcurate.base.errors import UsageError

_LISTS = (".paths", ".paths.gz", ".txt", ".txt.gz", ".sha256", ".md5", "sums")
_SUM = re.compile(r"(?:(sha256|md5):)?([0-9a-f]{64}|[0-9a-f]{32})", re.I | re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.I | re.ASCII)
COMMON_CRAWL = "https://data.commoncrawl.org/"  # the base of paths that begin with crawl-data/
MOST_LIST = 1 << 30  # bytes of a list, unpacked
# Protocols that a remote list may name besides its own; none of them reads files of this machine.
_ELSEWHERE = frozenset(
    "http https s3 s3a gs gcs az abfs abfss adl oss oci hf hdfs webhdfs ftp sftp".split()
)
_HERE = frozenset("file local".split())


def is_list(argument: str) -> bool:
    """Return True if an argument names a list: a local path, or a URL with the ending of a list."""
    if not _SCHEME.match(argument):
        return True
    return _parts(argument).path.lower().endswith(_LISTS)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url[:200]} is not a URL: {error}") from None


def wanted_files(
    arguments: Iterable[str],
    folder: Path,
    base: str | None = None,
    keep_paths: bool = False,
    limit: int | None = None,
    get: Callable[[str, Path], None] | None = None,
) -> list[FileToFetch]:
    """Return the files to fetch, each once, in the order given, and at most `limit` of them.

    base: the URL that paths in lists are relative to. keep_paths: place files in folders by host
    and path. get(url, path): a function that fetches a list given by URL to a path. Raises
    UsageError for a line without a URL, and if two files get the same name.
    """
    pairs: list[tuple[str, str | None]] = []
    for argument in arguments:
        if is_list(argument):
            pairs += listed_files(argument, base, get)
        else:
            pairs.append((argument, None))
    chosen: dict[str, str | None] = {}
    for url, checksum in pairs:
        before = chosen.setdefault(url, checksum)
        if before and checksum and before != checksum:
            raise UsageError(f"{url} is given twice, with different checksums")
        chosen[url] = before or checksum
    files: list[FileToFetch] = []
    names: dict[str, str] = {}
    for url, checksum in list(chosen.items())[:limit]:
        name = path_below(url, keep_paths)
        if (other := names.setdefault(name.lower(), url)) != url:
            hint = "" if keep_paths else "; --keep-paths keeps their folders apart"
            raise UsageError(f"{other} and {url} would both be called {name}{hint}")
        target = path_inside(folder, name, url, follow=False)
        files.append(FileToFetch(url, target, checksum))
    for file in files:
        for ending in (PART, f"{PART}.json"):
            taken = file.target.relative_to(folder).as_posix() + ending
            if holder := names.get(taken.lower()):
                raise UsageError(
                    f"{holder} would be called {taken}, the temporary name of {file.url}: fetch"
                    " them into two folders"
                )
    if not files:
        raise UsageError("nothing to fetch: no URL was given, or the lists are empty")
    return files


def listed_files(
    source: str, base: str | None, get: Callable[[str, Path], None] | None
) -> list[tuple[str, str | None]]:
    """Return (URL, checksum or None) per line of a list. Arguments: see `wanted_files`."""
    if _SCHEME.match(source):
        if get is None:
            raise UsageError(f"{source}: give the list as a file")
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "list"
            get(source, path)
            data = path.read_bytes()
    else:
        try:
            with Path(source).expanduser().open("rb") as file:
                data = file.read(MOST_LIST + 1)
        except OSError as error:
            raise UsageError(
                f"{source}: {error.strerror}; give a URL (https://...) or a file that lists them"
            ) from None
    text = decode(_unpacked(data, source), html=False).text
    lines = text.replace("\ufeff", "").splitlines()  # U+FEFF is also inside joined lists
    entries = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            entry = _entry(line.strip(), f"{source}:{number}", base)
            check_elsewhere(entry[0], source, f"{source}:{number}")
            entries.append(entry)
    return entries


def read_list(location: str, sha256: str | None, label: str, key: str) -> bytes:
    """Return the unpacked content of the list at a path or URL. Raises UsageError if the list
    cannot be read, if its sha256 (before unpacking) differs, and for a URL without sha256. In
    messages, `label` names the step and `key` its setting for the sha256."""
    if "://" in location and not sha256:
        raise UsageError(f"{label}: {location} is a URL; also give {key}")
    import fsspec

    try:
        if "://" not in location:
            check_regular(location)
            data = Path(location).read_bytes()
        else:
            with fsspec.open(location, "rb") as f:
                data = f.read()
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(f"{label}: cannot read {location}: {error}") from None
    if sha256 and (digest := hashlib.sha256(data).hexdigest()) != sha256.lower():
        raise UsageError(f"{label}: {location} has sha256 {digest}, expected {sha256}")
    data = _unpacked(data, f"{label}: {location}")
    return data.replace(b"\xef\xbb\xbf", b"")  # drop byte order marks, also between joined lists


def check_elsewhere(url: str, source: str, where: str) -> None:
    """Raise UsageError if a remote list names a file of this machine, under any protocol."""
    scheme = scheme_of(source)
    if scheme is None or scheme in _HERE:
        return
    if "::" in url or scheme_of(url) not in {scheme, *_ELSEWHERE}:
        raise UsageError(
            f"{where}: a remote list may name only http(s) and object stores, not {url[:80]!r};"
            " to use it anyway, download the list, check it, and give the local file"
        )


def scheme_of(url: str) -> str | None:
    """Return the scheme of a URL in lower case, such as `https`; None if the text has no scheme."""
    match = _SCHEME.match(url)
    return match[0].removesuffix("://").lower() if match else None


def _unpacked(data: bytes, source: str) -> bytes:
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(data)) as f:
                data = f.read(MOST_LIST + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"{source}: a damaged .gz file ({error})") from None
    if len(data) > MOST_LIST:
        raise UsageError(f"{source}: too large for a list, more than {MOST_LIST >> 20} MiB")
    return data


def _entry(line: str, where: str, base: str | None) -> tuple[str, str | None]:
    words = line.split()
    sums = [w for w in words if _SUM.fullmatch(w)]
    urls = [w.removeprefix("*") for w in words if not _SUM.fullmatch(w)]
    if len(urls) != 1 or len(sums) > 1 or "\0" in line or "\ufffd" in line:
        raise UsageError(f"{where}: give one URL per line, with or without a sha256 or md5")
    checksum = None
    if sums and (match := _SUM.fullmatch(sums[0])):
        kind = "sha256" if len(match[2]) == 64 else "md5"
        if match[1] and match[1].lower() != kind:
            raise UsageError(f"{where}: {sums[0][:80]} is not a {match[1].lower()}")
        checksum = f"{kind}:{match[2].lower()}"
    if _SCHEME.match(urls[0]):
        return urls[0], checksum
    if base is None:
        raise UsageError(
            f"{where}: {urls[0][:80]!r} is not a URL; for paths give the URL they are relative to,"
            " such as --base https://data.commoncrawl.org/"
        )
    _parts(base)
    return urljoin(base if base.endswith("/") else f"{base}/", urls[0].lstrip("/")), checksum


def path_below(url: str, keep_paths: bool = True) -> str:
    """Return the relative path at which to store a URL's file: HOST/PATH, or only the file's name
    if `keep_paths` is False. Raises UsageError if the URL names no file."""
    parts = _parts(url)
    pieces = [p for p in PurePosixPath(parts.path).parts if p != "/"]
    if any(p in ("..", ".") or "\0" in p or "\\" in p or len(p) > 200 for p in pieces):
        raise UsageError(f"{url[:200]}: its path is not a valid file name")
    if not pieces or parts.path.endswith("/"):
        raise UsageError(f"{url[:200]} names no file")
    if not keep_paths:
        return pieces[-1].lstrip(".") or "file"
    host = re.sub(r"[^A-Za-z0-9._-]", "_", parts.netloc.rpartition("@")[2]).lstrip(".")
    return str(PurePosixPath(host or "files", *pieces))
