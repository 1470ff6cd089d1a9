"""The files of an input, how a store shows that one has changed, and partitions of them.

A plan has both as columns, in Arrow files that whoever needs one partition maps: no worker holds a
plan.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from curate.formats.compression import path_of
from curate.formats.kinds import FORMATS
from llmcurate.base.disk.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa


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


FILES, PARTITIONS = "plan-files.arrow", "plan-partitions.arrow"  # in the first stage's folder
ROWS = 1 << 16  # of a record batch of these files
_FIELDS = tuple(f.name for f in fields(InputFile))


@dataclass(frozen=True)
class Slice:
    """A part of a file: bytes [start, end) of an archive or of lines, row groups of parquet."""

    file: int
    start: int
    end: int | None


class Partitions(Sequence[tuple[Slice, ...]]):
    """Tuples of slices over `rows`, a column of lists of (file, start, end)."""

    def __init__(self, rows: pa.ChunkedArray) -> None:
        self.rows = rows

    @classmethod
    def of(cls, partitions: Iterable[Iterable[Slice]]) -> Partitions:
        """The same partitions; each is held as numbers alone once it has been given."""
        import numpy as np
        import pyarrow as pa

        if isinstance(partitions, Partitions):
            return partitions
        bounds, numbers = array("i", [0]), {k: array("q") for k in ("file", "start", "end")}
        for partition in partitions:
            for s in partition:
                numbers["file"].append(s.file)
                numbers["start"].append(s.start)
                numbers["end"].append(-1 if s.end is None else s.end)
            bounds.append(len(numbers["file"]))
        columns = {k: np.frombuffer(v, np.int64) for k, v in numbers.items()}
        slices = pa.StructArray.from_arrays(
            [
                pa.array(columns["file"]),
                pa.array(columns["start"]),
                pa.array(columns["end"], mask=columns["end"] < 0),
            ],
            names=list(columns),
        )
        lists = pa.ListArray.from_arrays(pa.array(np.frombuffer(bounds, np.int32)), slices)
        return cls(pa.chunked_array([lists]))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> tuple[Slice, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> Partitions: ...

    def __getitem__(self, index: int | slice) -> tuple[Slice, ...] | Partitions:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1
            return Partitions(self.rows.slice(start, max(0, stop - start)))
        return tuple(Slice(**s) for s in self.rows[index].as_py())

    def __iter__(self) -> Iterator[tuple[Slice, ...]]:
        for partition in self.numbers():
            yield tuple(Slice(*numbers) for numbers in partition)

    def numbers(self) -> Iterator[list[list[Any]]]:
        """[[file, start, end], ...] of each partition, ROWS of them in memory at a time."""
        for first in range(0, len(self), ROWS):
            for chunk in self.rows.slice(first, ROWS).chunks:
                flat = chunk.flatten()
                columns = (flat.field(name).to_pylist() for name in ("file", "start", "end"))
                slices = [*map(list, zip(*columns, strict=True))]
                ends = (chunk.offsets.to_numpy() - chunk.offsets[0].as_py()).tolist()
                for begin, end in pairwise(ends):
                    yield slices[begin:end]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitions) and bool(self.rows.equals(other.rows))

    def __hash__(self) -> int:
        return len(self)

    def table(self) -> pa.Table:
        """A row a slice: part, slice (in the partition), file, start."""
        import numpy as np
        import pyarrow as pa

        rows = pa.concat_arrays(self.rows.chunks)
        counts = rows.value_lengths().to_numpy(zero_copy_only=False)
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        flat = rows.flatten()
        return pa.table(
            {
                "part": np.repeat(np.arange(len(rows), dtype=np.int32), counts),
                "slice": (np.arange(len(flat)) - begins).astype(np.int32),
                "file": flat.field("file"),
                "start": flat.field("start"),
            }
        )


class Files(Sequence[InputFile]):
    """The files of a plan over a table with a column of bytes or numbers a field."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int) -> InputFile: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[InputFile]: ...

    def __getitem__(self, index: int | slice) -> InputFile | Sequence[InputFile]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        values: dict[str, Any] = {name: self._table[name][index].as_py() for name in _FIELDS}
        # Names of files may hold bytes that are no UTF-8.
        texts = {k: v.decode("utf-8", "surrogateescape") for k, v in values.items() if k != "size"}
        return InputFile(**{**values, **texts})


def _write(table: pa.Table, path: Path) -> None:
    import pyarrow as pa

    with (
        replacing(path, if_other=True) as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=ROWS)


def _map(path: Path) -> pa.Table:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def write_plan(
    folder: Path, files: Sequence[InputFile], partitions: Iterable[Iterable[Slice]]
) -> None:
    """Writes both into a folder."""
    import pyarrow as pa

    columns = {}
    for name in _FIELDS:
        values = [getattr(f, name) for f in files]
        if name == "size":
            columns[name] = pa.array(values, pa.int64())
        else:
            encoded = (v.encode("utf-8", "surrogateescape") for v in values)
            columns[name] = pa.array(encoded, pa.binary(), size=len(values))
    _write(pa.table(columns), folder / FILES)
    _write(pa.table({"slices": Partitions.of(partitions).rows}), folder / PARTITIONS)


def map_plan(folder: Path) -> tuple[Files, Partitions]:
    """What was written, mapped."""
    return Files(_map(folder / FILES)), Partitions(_map(folder / PARTITIONS)["slices"])
