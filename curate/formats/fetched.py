"""Inputs that are URLs, fetched into a folder and read from it (in a recipe: `read: {fetch: DIR}`).

The path of a fetched file in the folder is the host and path of its URL; the file `.NAME.json` in
the same subfolder records its version. An interrupted fetch continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from urllib.parse import urlsplit

import xxhash

from curate.fetch.download import download
from curate.fetch.file_lists import COMMON_CRAWL, listed_files, path_below
from curate.fetch.hub import with_commits
from curate.fetch.sources import Failed, Http, Refused, Source, Store
from curate.fetch.transfer import FileToFetch, is_complete
from curate.formats.compression import open_input
from curate.formats.data_sets import Choice
from curate.formats.kinds import format_by_name
from curate.formats.listing import in_data_sets
from llmcurate.base.disk.files import path_inside
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import Progress, say

LISTS = (".paths", ".paths.gz")  # lists with one path or URL per line, as Common Crawl has them


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if not is_web(path):
        with open_input(path) as file:
            yield file
        return
    with TemporaryDirectory() as scratch:
        target = Path(scratch) / "list"
        _get(path, target)
        with open(target, "rb") as file:
            yield file


def _lines(path: str) -> list[str]:
    from curate.formats.compression import CorruptData, decompressed_chunks

    try:
        with _opened(path) as f:
            data = b"".join(decompressed_chunks(f))
        text = data.decode("utf-8").replace("\ufeff", "")  # joined lists
    except (OSError, ImportError) as error:
        raise UsageError(f"input {path}: {getattr(error, 'strerror', None) or error}") from None
    except CorruptData as error:
        raise UsageError(f"input {path} is damaged ({error}); fetch it again") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"input {path}: a list of inputs must be UTF-8 text, one path per line"
        ) from None
    if "\0" in text:
        raise UsageError(f"input {path}: a list of inputs must be text, one path per line")
    return [line.strip() for line in text.splitlines()]


def listed(path: str, base: str = "") -> list[str]:
    """Return the inputs in a file with one path or URL per line. Relative paths begin at `base` or,
    if it is "", at that file's folder (`crawl-data/...`: on Common Crawl's server)."""
    from curate.fetch.file_lists import check_elsewhere

    paths = []
    for number, line in enumerate(_lines(path), 1):
        if not line:
            continue
        if "://" in line or line.startswith("/"):
            check_elsewhere(line, path, f"{path}:{number}")
            paths.append(line)
            continue
        home = base or (COMMON_CRAWL if line.startswith("crawl-data/") else "")
        if not home:
            folder, slash, _ = path.rpartition("/")
            home = folder + slash
        paths.append(f"{home.rstrip('/')}/{line}" if home else line)
    return paths


def expanded(inputs: Iterable[str], lists: Iterable[str] = (), base: str = "") -> list[str]:
    """Return the inputs, with each file that lists paths replaced by the paths in it."""
    paths: list[str] = []
    for path_or_list in inputs:
        paths += listed(path_or_list, base) if path_or_list.endswith(LISTS) else [path_or_list]
    for path in lists:
        paths += listed(path, base)
    return paths


SUMS = (".sha256", ".md5")  # lists with checksums
AT_ONCE = 8  # requests sent to servers in parallel


def is_url(path: str) -> bool:
    """Return True if an input is a URL of another machine, not a local path."""
    return "://" in path and not path.lower().startswith("file://")


def is_web(path: str) -> bool:
    return path.lower().startswith(("http://", "https://"))


def wanted_inputs(
    path: str, folder: Path, choice: Choice = Choice(), lines: list[str] | None = None
) -> list[FileToFetch]:
    """Return the files to fetch for the URL of a file, a list, a pattern or a folder in a store."""
    if path.lower().endswith(SUMS):
        home = path.rpartition("/")[0] if is_url(path) else None
        pairs = listed_files(path, home, _get)
    elif is_web(path):
        pairs = [(path, None)]
    else:
        pairs = [
            (url, None) for url in _files_in_store(path, choice, [] if lines is None else lines)
        ]
    return [place(url, folder, checksum) for url, checksum in pairs]


def place(url: str, folder: Path, checksum: str | None = None) -> FileToFetch:
    """Return the file to fetch for a URL, with its path in the folder. Raises RunFailed if a
    symbolic link in the folder leads out of the folder."""
    target = folder / path_below(url)
    query = urlsplit(url).query
    if query:  # may select another file
        target = target.parent / xxhash.xxh3_64_hexdigest(query.encode()) / target.name
    path_inside(folder, target.relative_to(folder).as_posix(), url, follow=False)
    return FileToFetch(url, target, checksum, note=target.with_name(f".{target.name}.json"))


def _get(url: str, path: Path) -> None:
    from curate.fetch.download import fetch_one

    try:
        fetch_one(FileToFetch(url, path))
    except RunFailed as error:
        raise RunFailed(f"{url}: {error}") from None


def _files_in_store(path: str, choice: Choice, lines: list[str]) -> list[str]:
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(path)
        if fs.isfile(root):
            return [path]
        pattern = any(c in root for c in "*?[")
        names = sorted(fs.glob(root) if pattern else fs.find(root))
    except ImportError as error:
        raise UsageError(f"input {path}: {error}") from None
    except Exception as error:  # stores raise errors of many types
        raise RunFailed(f"input {path}: {' '.join(str(error).split())[:200]}") from None
    urls = []
    for name in names if pattern else in_data_sets(fs, root, path, names, choice, lines):
        below = name[len(root) :] if not pattern else name.rpartition("/")[2]
        hidden = any(piece.startswith((".", "_")) for piece in below.split("/") if piece)
        if not hidden and format_by_name(name) and (not pattern or fs.isfile(name)):
            urls.append(fs.unstrip_protocol(name))
    if not urls:
        raise UsageError(
            f"input {path} matches no file" if pattern else f"input {path} holds no file"
        )
    return urls


def fetch_all(wanted: Sequence[FileToFetch], quiet: bool) -> None:
    """Fetch the missing files. Raises RunFailed at the end, naming the first file that failed."""
    missing = [w for w in wanted if not is_complete(w)]
    if not missing:
        return
    with Progress("fetch", len(missing), quiet) as progress:
        outcome = download(
            missing,
            watch=lambda done, came: progress.update(done, f"{came / 1e6:,.0f} MB"),
            say=say,
        )
    if outcome.failed:
        url, reason = next(iter(outcome.failed.items()))
        more = f" (and {len(outcome.failed) - 1} others)" if len(outcome.failed) > 1 else ""
        raise RunFailed(
            f"input {url}: {reason}{more}; fetched files are kept: run the same command to continue"
        )


def local_inputs(
    paths: Iterable[str],
    folder: str | None,
    quiet: bool,
    dry: bool,
    choice: Choice = Choice(),
) -> list[str]:
    """Return the inputs, with each URL replaced by its file in the folder; missing files are
    fetched. Raises UsageError if `dry` is True and a file is missing."""
    if folder is None:
        return list(paths)
    names, _ = with_commits(expanded(paths))
    lines: list[str] = []
    files: list[str | FileToFetch] = []
    for name in names:
        elsewhere = is_url(name) or name.lower().endswith(SUMS)
        files += wanted_inputs(name, Path(folder), choice, lines) if elsewhere else [name]
    for line in lines:
        say(line, quiet)
    wanted = [file for file in files if isinstance(file, FileToFetch)]
    if dry and (missing := [w for w in wanted if not is_complete(w)]):
        raise UsageError(
            f"--dry-run: {counted(len(missing), 'input')} not in {folder} yet (first:"
            f" {missing[0].url}); a run without --dry-run fetches what is missing"
        )
    fetch_all(wanted, quiet)
    return [str(file.target) if isinstance(file, FileToFetch) else file for file in files]


def version(wanted: FileToFetch) -> str | None:
    """Return the recorded version of a fetched file as `SIZE@TAG` (the server's tag), or None."""
    assert wanted.note is not None
    try:
        note = json.loads(wanted.note.read_text(encoding="utf-8"))
        return f"{note['size']}@{note['validator'] or ''}" if note["url"] == wanted.url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def versions_now(earlier: Mapping[str, str]) -> dict[str, str | None]:
    """Return each URL's current version on its server (SIZE@TAG), or None if the server fails or
    states none. If the server states only size or tag, the other is that in `earlier` (by URL)."""
    sources: dict[bool, Source] = {}
    if any(is_web(url) for url in earlier):
        sources[True] = Http(AT_ONCE)
    if not all(is_web(url) for url in earlier):
        sources[False] = Store()

    def ask(url: str) -> str | None:
        try:
            size, tag = sources[is_web(url)].about(url)
        except (Failed, Refused):
            return None
        if size is None and tag is None:
            return None
        before, _, tagged = earlier[url].partition("@")
        return f"{before if size is None else size}@{tag or tagged}"

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ask") as threads:
        return dict(zip(earlier, threads.map(ask, earlier), strict=True))
