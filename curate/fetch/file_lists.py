"""Lists: files to fetch, as files of a folder, and lists of words or hosts that a setting names.

A list is a local file or one behind a URL, plain or .gz: a URL or a path below `base` a line, as in
Common Crawl's *.paths.gz, or beside its sha256 or md5 in either order, as sha256sum writes it.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import SplitResult, urljoin, urlsplit

from curate.fetch.transfer import PART, Wanted
from curate.text.decoding import decode
from llmcurate.base.disk.files import check_regular, inside
from llmcurate.base.errors import UsageError

_LISTS = (".paths", ".paths.gz", ".txt", ".txt.gz", ".sha256", ".md5", "sums")
_SUM = re.compile(r"(?:(sha256|md5):)?([0-9a-f]{64}|[0-9a-f]{32})", re.I | re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.I | re.ASCII)
COMMON_CRAWL = "https://data.commoncrawl.org/"  # where paths begin that begin with crawl-data/
MOST_LIST = 1 << 30  # bytes of a list, unpacked
# What a list from elsewhere may name besides its own store: nothing that fsspec reads from this
# machine.
_ELSEWHERE = frozenset(
    "http https s3 s3a gs gcs az abfs abfss adl oss oci hf hdfs webhdfs ftp sftp".split()
)
_HERE = frozenset("file local".split())


def is_list(argument: str) -> bool:
    """Whether an argument is a list of files rather than a file: what is no URL, and a URL that
    ends as lists do."""
    if not _SCHEME.match(argument):
        return True
    return _parts(argument).path.lower().endswith(_LISTS)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url[:200]} is no URL: {error}") from None


def wanted_files(
    arguments: Iterable[str],
    folder: Path,
    base: str | None = None,
    keep_paths: bool = False,
    limit: int | None = None,
    get: Callable[[str, Path], None] | None = None,
) -> list[Wanted]:
    """The files, in the order given, each once; limit: the first so many.

    get(url, path) fetches a list that is a URL. keep_paths: below host and path of the URL, rather
    than all in one folder. UsageError for a line that is no URL, and where two have one name.
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
    files: list[Wanted] = []
    names: dict[str, str] = {}
    for url, checksum in list(chosen.items())[:limit]:
        name = place_of(url, keep_paths)
        if (other := names.setdefault(name.lower(), url)) != url:
            hint = "" if keep_paths else "; --keep-paths keeps their folders apart"
            raise UsageError(f"{other} and {url} would both be called {name}{hint}")
        target = inside(folder, name, url, follow=False)
        files.append(Wanted(url, target, checksum))
    for file in files:
        for ending in (PART, f"{PART}.json"):
            taken = file.target.relative_to(folder).as_posix() + ending
            if holder := names.get(taken.lower()):
                raise UsageError(
                    f"{holder} would be called {taken}, as {file.url} is while it comes: fetch them"
                    " into two folders"
                )
    if not files:
        raise UsageError("nothing to fetch: no URL was given, or the lists are empty")
    return files


def listed_files(
    source: str, base: str | None, get: Callable[[str, Path], None] | None
) -> list[tuple[str, str | None]]:
    """(URL, checksum or None) of the lines of a list; arguments as of `wanted_files`."""
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
    if data[:2] == b"\x1f\x8b":
        data = _unpacked(data, source)
    if len(data) > MOST_LIST:
        raise _too_long(source)
    lines = decode(data, html=False).text.replace("\ufeff", "").splitlines()  # of joined lists
    entries = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            entry = _entry(line.strip(), f"{source}:{number}", base)
            check_elsewhere(entry[0], source, f"{source}:{number}")
            entries.append(entry)
    return entries


def read_list(location: str, sha256: str | None, label: str, key: str) -> bytes:
    """The unpacked content of a list that a setting names: a path, or a URL with the sha256 of what
    it holds. UsageError where it cannot be read, is not what sha256 says, or is a URL without one;
    `label` and `key` name the setting in messages."""
    if "://" in location and not sha256:
        raise UsageError(f"{label}: {location} is a URL; give {key} beside it")
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
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise UsageError(f"{label}: {location} has another sha256 than the one given")
    if data[:2] == b"\x1f\x8b":
        data = _unpacked(data, f"{label}: {location}")
    return data.replace(b"\xef\xbb\xbf", b"")  # joined lists have them within


def check_elsewhere(url: str, source: str, where: str) -> None:
    """UsageError where a list from elsewhere names a file of this machine, under any protocol."""
    scheme = scheme_of(source)
    if scheme is None or scheme in _HERE:
        return
    if "::" in url or scheme_of(url) not in {scheme, *_ELSEWHERE}:
        raise UsageError(
            f"{where}: a list from elsewhere may name http(s) and object stores, not {url[:80]!r};"
            " to take it all the same, fetch the list, look at it, and give the file"
        )


def scheme_of(url: str) -> str | None:
    """`https` of a URL, None for what is none."""
    match = _SCHEME.match(url)
    return match[0].removesuffix("://").lower() if match else None


def _unpacked(data: bytes, source: str) -> bytes:
    import io

    try:
        with gzip.open(io.BytesIO(data)) as f:
            plain = f.read(MOST_LIST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{source}: a damaged .gz file ({error})") from None
    if len(plain) > MOST_LIST:
        raise _too_long(source)
    return plain


def _too_long(source: str) -> UsageError:
    return UsageError(f"{source}: no list, it has more than {MOST_LIST >> 20} MiB")


def _entry(line: str, where: str, base: str | None) -> tuple[str, str | None]:
    """(URL, checksum) of a line; where: its place, for messages."""
    words = line.split()
    sums = [w for w in words if _SUM.fullmatch(w)]
    rest = [w.removeprefix("*") for w in words if not _SUM.fullmatch(w)]
    if len(rest) != 1 or len(sums) > 1 or "\0" in line or "\ufffd" in line:
        raise UsageError(f"{where}: give one URL a line, and a sha256 or md5 beside it or none")
    checksum = None
    if sums and (match := _SUM.fullmatch(sums[0])):
        kind = "sha256" if len(match[2]) == 64 else "md5"
        if match[1] and match[1].lower() != kind:
            raise UsageError(f"{where}: {sums[0][:80]} is no {match[1].lower()}")
        checksum = f"{kind}:{match[2].lower()}"
    if _SCHEME.match(rest[0]):
        return rest[0], checksum
    if base is None:
        raise UsageError(
            f"{where}: {rest[0][:80]!r} is no URL; for paths give what stands before them, such as"
            " --base https://data.commoncrawl.org/"
        )
    _parts(base)
    return urljoin(base if base.endswith("/") else f"{base}/", rest[0].lstrip("/")), checksum


def place_of(url: str, keep_paths: bool = True) -> str:
    """Return where the file goes, below the folder. UsageError where the URL names none."""
    parts = _parts(url)
    pieces = [p for p in PurePosixPath(parts.path).parts if p != "/"]
    if any(p in ("..", ".") or "\0" in p or "\\" in p or len(p) > 200 for p in pieces):
        raise UsageError(f"{url[:200]}: its path is no name for a file")
    if not pieces or parts.path.endswith("/"):
        raise UsageError(f"{url[:200]} names no file")
    if not keep_paths:
        return pieces[-1].lstrip(".") or "file"
    host = re.sub(r"[^A-Za-z0-9._-]", "_", parts.netloc.rpartition("@")[2]).lstrip(".")
    return str(PurePosixPath(host or "files", *pieces))
