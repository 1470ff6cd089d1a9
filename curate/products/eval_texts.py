"""Texts on which a model is scored: any documents, encoded as token shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from curate.formats.read_settings import ReadSettings
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError

_NAME = re.compile(r"\w[\w.-]*")
_SHARDS = re.compile(r".*\.(bin|npy|ds|mds)(\.zstd)?")


def named_paths(arguments: Iterable[str]) -> dict[str, str]:
    """Parse arguments of the form PATH or NAME=PATH. A path alone is named after its file. Raise
    UsageError for other forms and repeated names."""
    paths: dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if Path(argument).exists():
            name, path = name_of_path(argument), argument
        elif not equals or not path:
            raise UsageError(f"{argument}: no such path: give PATH or NAME=PATH of the texts")
        if name in paths:
            raise UsageError(f"two texts are called {name}: write NAME={path} for one of them")
        paths[name] = path
    check_names(paths)
    return paths


def name_of_path(path: str) -> str:
    """Return the name of a file or folder without extensions, in characters that suit a folder."""
    name = Path(path.rstrip("/")).name
    stem = name if Path(path).is_dir() else name.partition(".")[0]
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "texts"


def check_names(names: Iterable[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a text: use letters, digits, '.', '-' and '_'")


def are_shards(path: str) -> bool:
    """Return True if the path is a folder or file of token shards, in any supported format."""
    place = Path(path)
    if place.is_dir():
        names = [file.name for below in (place, place / "train") for file in below.glob("*")]
        return (place / "manifest.json").is_file() or any(map(_SHARDS.fullmatch, names))
    return _SHARDS.fullmatch(place.name) is not None


def texts_of(path: str, read: ReadSettings | None = None) -> Iterator[str]:
    """Yield the texts of the documents of a path."""
    from curate.corpus.direct_input import DirectInput

    for batch in DirectInput.of_texts([path], read, quiet=True).batches(["text"]):
        yield from (text or "" for text in batch["text"].to_pylist())


def words_and_lines(text: str) -> int:
    """Return the number of words (split at white space) plus the number of lines."""
    return len(text.split()) + text.count("\n") + (not text.endswith("\n"))


def as_shards(
    path: str,
    tokenizer: Path,
    out: Path,
    say: Callable[[str], None],
    workers: int = 1,
    read: ReadSettings | None = None,
) -> Path:
    """Return the path if it holds token shards. Otherwise encode its documents into token shards in
    the folder `out`, and return `out`."""
    if are_shards(path):
        return Path(path)
    from curate.corpus.direct_input import DirectInput
    from llmcurate.base.tokenizer_file import load_tokenizer, roles_of
    from tokenize_kit.shards.writer import Layout, encode_shards

    documents = DirectInput.of_texts([path], read, quiet=True)
    for notice in documents.inputs.notices:
        say(notice)
    columns = ["id", "source", "lang", "text"]
    layout = Layout(append_eos=roles_of(tokenizer, load_tokenizer(tokenizer)).end is not None)
    encode_shards(documents.batches(columns), tokenizer, out, layout, workers=workers)
    if refused := documents.tally["rejected"] + documents.tally["corrupt"]:
        say(f"{path}: {counted(refused, 'record')} could not be read and have no score")
    return out
