"""Inputs that are URLs, fetched into a folder and read there (in a recipe: `read: {fetch: DIR}`).

A file lies under host and path of its URL, so what is there is of that URL; beside it stands
`.NAME.json`, which says of which version. Like all that is fetched it is gone on with after a cut
or a kill, and is not fetched again.
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
from curate.fetch.file_lists import COMMON_CRAWL, listed_files, place_of
from curate.fetch.hub import pinned
from curate.fetch.sources import Failed, Http, Refused, Source, Store
from curate.fetch.transfer import Wanted, is_there
from curate.formats.compression import open_input
from curate.formats.data_sets import Choice
from curate.formats.kinds import format_by_name
from curate.formats.listing import in_data_sets
from llmcurate.base.disk.files import inside
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import Progress, say

LISTS = (".paths", ".paths.gz")  # files with a path or URL a line, as Common Crawl has them


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """The list's file; one on the web is fetched as files are, with further tries."""
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
        text = data.decode("utf-8").replace("\ufeff", "")  # of joined lists
    except (OSError, ImportError) as error:
        raise UsageError(f"input {path}: {getattr(error, 'strerror', None) or error}") from None
    except CorruptData as error:
        raise UsageError(f"input {path} is damaged ({error}); fetch it again") from None
    except UnicodeDecodeError:
        raise UsageError(f"input {path}: a list of inputs is UTF-8 text, a path a line") from None
    if "\0" in text:
        raise UsageError(f"input {path}: a list of inputs is text, a path a line")
    return [line.strip() for line in text.splitlines()]


def listed(path: str, base: str = "") -> list[str]:
    """The paths in a list, one a line; relative ones begin at `base`, by default Common Crawl's
    server where they begin as its lists do, else the folder of the list."""
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
    """The inputs with the content of lists in their place."""
    paths: list[str] = []
    for path_or_list in inputs:
        paths += listed(path_or_list, base) if path_or_list.endswith(LISTS) else [path_or_list]
    for path in lists:
        paths += listed(path, base)
    return paths


SUMS = (".sha256", ".md5")  # lists with checksums
AT_ONCE = 8  # servers are asked about so many files at a time


def is_url(path: str) -> bool:
    """Return whether an input is elsewhere."""
    return "://" in path and not path.lower().startswith("file://")


def is_web(path: str) -> bool:
    """Return whether it is a URL of HTTP(S)."""
    return path.lower().startswith(("http://", "https://"))


def wanted_inputs(
    path: str, folder: Path, choice: Choice = Choice(), lines: list[str] | None = None
) -> list[Wanted]:
    """The files that a URL means: itself, those of a list, of a pattern or a folder in a store.
    choice, lines: as of `in_data_sets`."""
    if path.lower().endswith(SUMS):
        home = path.rpartition("/")[0] if is_url(path) else None
        pairs = listed_files(path, home, _get)
    elif is_web(path):
        pairs = [(path, None)]
    else:
        pairs = [(url, None) for url in _stored(path, choice, [] if lines is None else lines)]
    return [place(url, folder, checksum) for url, checksum in pairs]


def place(url: str, folder: Path, checksum: str | None = None) -> Wanted:
    """The file that a URL is in the folder; RunFailed where a link there leads out of it."""
    target = folder / place_of(url)
    query = urlsplit(url).query
    if query:  # which may mean another file
        target = target.parent / xxhash.xxh3_64_hexdigest(query.encode()) / target.name
    inside(folder, target.relative_to(folder).as_posix(), url, follow=False)
    return Wanted(url, target, checksum, note=target.with_name(f".{target.name}.json"))


def _get(url: str, path: Path) -> None:
    from curate.fetch.download import fetch_one

    try:
        fetch_one(Wanted(url, path))
    except RunFailed as error:
        raise RunFailed(f"{url}: {error}") from None


def _stored(path: str, choice: Choice, lines: list[str]) -> list[str]:
    """A file, or those of known formats that a pattern or folder of a store means, by name. choice,
    lines: as of `in_data_sets`."""
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(path)
        if fs.isfile(root):
            return [path]
        pattern = any(c in root for c in "*?[")
        names = sorted(fs.glob(root) if pattern else fs.find(root))
    except ImportError as error:
        raise UsageError(f"input {path}: {error}") from None
    except Exception as error:  # each store has errors of its own
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


def fetch_all(wanted: Sequence[Wanted], quiet: bool) -> None:
    """Fetches what is not there; RunFailed names the first that did not come, all others did."""
    missing = [w for w in wanted if not is_there(w)]
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
            f"input {url}: {reason}{more}; what came is kept, the same command goes on from there"
        )


def local_inputs(
    paths: Iterable[str],
    folder: str | None,
    quiet: bool,
    dry: bool,
    choice: Choice = Choice(),
) -> list[str]:
    """The inputs with URLs as the files that they are in the folder, fetched where they are not
    there. dry: UsageError where one would have to be fetched. choice: of data sets."""
    if folder is None:
        return list(paths)
    names, _ = pinned(expanded(paths))
    lines: list[str] = []
    files = [file for name in names for file in _either(name, folder, choice, lines)]
    for line in lines:
        say(line, quiet)
    wanted = [file for file in files if isinstance(file, Wanted)]
    if dry and (missing := [w for w in wanted if not is_there(w)]):
        raise UsageError(
            f"--dry-run: {counted(len(missing), 'input')} not in {folder} yet ({missing[0].url} is"
            " the first); a run fetches what is missing"
        )
    fetch_all(wanted, quiet)
    return [str(file.target) if isinstance(file, Wanted) else file for file in files]


def _either(path: str, folder: str, choice: Choice, lines: list[str]) -> Sequence[str | Wanted]:
    elsewhere = is_url(path) or path.lower().endswith(SUMS)
    return wanted_inputs(path, Path(folder), choice, lines) if elsewhere else [path]


def version(wanted: Wanted) -> str | None:
    """Of which version the file that is there is, as `SIZE@TAG` (what the server called it); None
    where nothing is on record."""
    assert wanted.note is not None
    try:
        note = json.loads(wanted.note.read_text(encoding="utf-8"))
        return f"{note['size']}@{note['validator'] or ''}" if note["url"] == wanted.url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def versions_now(earlier: Mapping[str, str]) -> dict[str, str | None]:
    """The versions as the servers have them. earlier: URL -> an earlier version, which
    fills in what a server does not say; None where it says nothing at all."""
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
