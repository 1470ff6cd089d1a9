"""Lists of inputs: files with a path or URL a line, such as Common Crawl's *.paths.gz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from curate.errors import RunFailed, UsageError
from curate.formats.compression import open_input

LISTS = (".paths", ".paths.gz")
COMMON_CRAWL = "https://data.commoncrawl.org/"


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """The list's file; one on the web is fetched as files are, with further tries."""
    if not path.lower().startswith(("http://", "https://")):
        with open_input(path) as file:
            yield file
        return
    from curate.fetch.download import fetch_one
    from curate.fetch.transfer import Wanted

    with TemporaryDirectory() as scratch:
        target = Path(scratch) / "list"
        try:
            fetch_one(Wanted(path, target))
        except RunFailed as error:
            raise RunFailed(f"{path}: {error}") from None
        with open(target, "rb") as file:
            yield file


def _lines(path: str) -> list[str]:
    from curate.formats.compression import CorruptData, decompressed_chunks

    try:
        with _opened(path) as f:
            data = b"".join(decompressed_chunks(f))
        text = data.decode("utf-8")
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
