"""An input file, and how its store shows that it has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curate.formats.compression import path_of
from curate.formats.kinds import FORMATS


@dataclass(frozen=True)
class InputFile:
    """path: as fsspec opens it; rel: below the input as given; stamp: what reuse depends on;
    state: size and time or tag, which a listing shows without opening the file; url: where it was
    fetched from."""

    path: str
    rel: str
    format: str
    codec: str
    size: int
    stamp: str
    state: str = ""
    url: str = ""

    @property
    def holds_pages(self) -> bool:
        """Whether its documents are web pages, of which `extract` makes text."""
        is_text = self.format == "archive" and ".wet" in self.rel
        return FORMATS[self.format].pages and not is_text

    def now(self) -> tuple[str, str]:
        """(state, stamp) as they are now. What takes more than a request is left as it was: the
        stamp of a URL, and all but the size at a web server, whose machines may give tags of their
        own. OSError where the file is gone."""
        fs, path = file_system(self.path)
        info = fs.info(path)
        if self.url:  # fetched: on record is what the server called it, and its content
            same = info["size"] == self.size
            state = self.state if same else f"{info['size']}@"
            return state, stamp_of(fs, info).rpartition("@")[0]
        if "://" not in self.path:
            return state_of(info), stamp_of(fs, info)
        if self.path.startswith(("http://", "https://")):
            return f"{info.get('size')}@{self.state.partition('@')[2]}", self.stamp
        return state_of(info), self.stamp


def file_system(path: str) -> tuple[Any, str]:
    """(fsspec's file system of a path or URL, the path within it). Without :// it is a path of this
    machine, whatever other colons it has. ValueError, ImportError: as of fsspec."""
    import fsspec

    if "://" in path:
        fs, root = fsspec.core.url_to_fs(path)
        return fs, root
    fs = fsspec.filesystem("file")
    return fs, fs._strip_protocol(path_of(path))


# blob_id: of the Hugging Face hub; it names a file's content, whatever the commit.
_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "sha256", "blob_id")


def _when(info: dict[str, Any]) -> Any:
    keys = ("mtime", "LastModified", "Last-Modified", "created")
    return next((info[key] for key in keys if info.get(key)), "")


def state_of(info: dict[str, Any]) -> str:
    """Size and tag or time of change, as a listing has them."""
    tag = next((info[key] for key in _TAGS if info.get(key)), None)
    return f"{info.get('size')}@{tag or _when(info)}"


def stamp_of(fs: Any, info: dict[str, Any]) -> str:
    """Time of change and the first and last 64 KiB; remote stores give an etag or a checksum."""
    for key in _TAGS:
        if info.get(key):
            return str(info[key])
    import xxhash

    digest = xxhash.xxh3_128()
    with fs.open(info["name"], "rb") as f:
        digest.update(f.read(1 << 16))
        if info["size"] > 1 << 17:
            f.seek(-(1 << 16), 2)
            digest.update(f.read(1 << 16))
    return f"{digest.hexdigest()}@{_when(info)}"
