"""Data sets as stored on the Hugging Face hub: a card, and files by configuration and split.

The rules are those of the library `datasets` (data_files.py of version 5.2). Splits come from the
card, else from names such as train-00000-of-00002.parquet, else from words in the names of folders
or files. A folder without a card has splits only if files have names such as
train-00000-of-00002.parquet, at least one of them with `train`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from curate.formats.kinds import FORMATS, format_by_name
from llmcurate.base.disk.units import counted
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError

CARD, INFOS = "README.md", "dataset_infos.json"
MOST_CARD = 4 << 20  # bytes read of a card: 300 configurations take 100 kB
TRAIN, DEFAULT = "train", "default"
_KEYS = {"configs", "dataset_info", "task_categories", "size_categories", "pretty_name"}
_BESIDE = {CARD, INFOS, "config.json", "dataset_info.json", "dataset_dict.json"}
_SHARD = re.compile(r"(?:.*/)?(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*", re.S)
_WORDS = {
    split: re.compile(rf"(?:^|[-._ 0-9])(?:{words})(?:[-._ 0-9]|$)")
    for split, words in (
        (TRAIN, "train|training"),
        ("validation", "validation|valid|dev|val"),
        ("test", "test|testing|eval|evaluation"),
    )
}
Splits = dict[str, list[str]]  # files by split


@dataclass(frozen=True)
class Choice:
    """The splits and the configurations to read from data sets, as names or patterns separated by
    commas. By default, these are the split `train` and the default configuration."""

    split: str | None = None
    config: str | None = None


def chosen_files(
    place: str,
    files: Sequence[str],
    is_repository: bool,
    read: Callable[[str], bytes],
    choice: Choice,
) -> tuple[list[str], list[str]]:
    """Return the files to read in a folder, and a message for each data set with files left out.
    `files` are paths below `place`. `read` returns the first bytes of the file with a given name.
    `is_repository` is True for a folder of the Hugging Face hub. Raises UsageError if a data set
    does not have the split or configuration of the `choice`."""
    rest, kept, lines = list(files), [], []
    marks = [name for name in files if name.rpartition("/")[2] in (CARD, INFOS)]
    for folder in dict.fromkeys(["", *(name.rpartition("/")[0] for name in marks)]):
        below = f"{folder}/" if folder else ""
        inner = [name.removeprefix(below) for name in rest if name.startswith(below)]
        card = _card(inner, lambda name, below=below: read(below + name))  # type: ignore[misc]
        if inner and (card is not None or (is_repository and not folder)):
            names, line = _of_data_set(f"{place}/{folder}".rstrip("/"), inner, card or [], choice)
            kept += [below + name for name in names]
            # No line for a repository that has only its card left out.
            lines += line if not is_repository or {*inner} - {*names} != {CARD} else []
            rest = [name for name in rest if not name.startswith(below)]
    shards = {name: match[1] for name in rest if (match := _SHARD.fullmatch(name))}
    if TRAIN in shards.values() or (rest and not kept and choice != Choice()):
        there = {*rest}
        above = (PurePosixPath(name).parents for name in shards)
        near = {next((c for p in of if (c := str(p / CARD)) in there), "") for of in above}
        cards = [name for name in rest if name in near or (name == CARD and not shards)]
        names, line = _of_data_set(place, [*shards, *cards] if shards else rest, [], choice)
        rest = [*names, *(n for n in rest if shards and n not in shards and n not in cards)]
        lines += line
    return sorted([*kept, *rest]), lines


def _card(files: list[str], read: Callable[[str], bytes]) -> list[Any] | None:
    """Return the configurations in a folder's card; None if the folder is no hub data set."""
    metadata: Any = None
    if CARD in files:
        text = read(CARD).decode("utf-8", "replace").removeprefix("\ufeff")
        match = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", text, re.S | re.M)
        with suppress(UsageError):
            metadata = read_yaml(match[1], CARD, lines=False)[0] if match else None
    metadata = metadata if isinstance(metadata, dict) else {}
    if not _KEYS & metadata.keys():
        is_data_set = (
            metadata or INFOS in files or b"*.parquet filter=lfs" in read(".gitattributes")
        )
        if not is_data_set or not any(map(_holds_rows, files)):
            return None
    stated = metadata.get("configs")
    return stated if isinstance(stated, list) else []


def _holds_rows(name: str) -> bool:
    kind = format_by_name(name)
    beside = name.rpartition("/")[2] in _BESIDE
    return kind is not None and FORMATS[kind].module != "curate.formats.whole" and not beside


def _of_data_set(
    place: str, files: list[str], card: list[Any], choice: Choice
) -> tuple[list[str], list[str]]:
    configs, default = _stated(files, card)
    if not any(configs.values()):
        configs = _by_folders(files)
        default = list(configs)
    names = _picked(place, "config", choice.config, list(configs), default)
    splits = list(dict.fromkeys(split for name in names for split in configs[name]))
    alone = splits if len(splits) == 1 else [split for split in splits if split == TRAIN]
    wanted = _picked(place, "split", choice.split, splits, alone)
    read = {file for name in names for split in wanted for file in configs[name].get(split, ())}
    left, known = [], set()
    for config, of_config in configs.items():
        for split, inner in of_config.items():
            known |= {*inner}
            if count := len({*inner} - read):
                label = split if len(configs) == 1 else f"{config}/{split}"
                left.append(f"{label} ({counted(count, 'file')})")
    others = sorted({*files} - known)
    left += others if len(others) < 4 else [f"{len(others)} other files, first {others[0]}"]
    of = f" of {', '.join(names[:8])}" if len(configs) > 1 else ""
    if not left and len(names) < 2:
        return [*read], []
    more = f" and {len(left) - 8} more" if len(left) > 8 else ""
    line = f"{place} is a data set: reading its split {', '.join(wanted)}{of}; left out:"
    line += f" {', '.join(left[:8]) or 'nothing'}{more}; choose with --split and --config"
    return [*read], [line]


def _picked(
    place: str, what: str, given: str | None, names: list[str], default: list[str]
) -> list[str]:
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    if given is None:
        if not default and names:
            raise UsageError(f"input {place} has the {what}s {shown}: choose with --{what} NAME")
        return default
    for pattern in given.split(","):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(f"input {place}: no {what} {pattern}; it has {shown or 'none'}")
    return [n for n in names if any(fnmatchcase(n, pattern) for pattern in given.split(","))]


def _stated(files: list[str], card: list[Any]) -> tuple[dict[str, Splits], list[str]]:
    from fsspec.utils import glob_translate

    configs: dict[str, Splits] = {}
    entries = [e for e in card if isinstance(e, dict)]
    for entry in entries:
        splits = configs.setdefault(str(entry.get("config_name", DEFAULT)), {})
        folder = str(entry.get("data_dir") or "").strip("/.")
        below = f"{folder}/" if folder else ""
        for split, pattern in _patterns(entry.get("data_files")):
            match = re.compile(glob_translate(below + pattern.removeprefix("./"))).match
            splits.setdefault(split, []).extend(filter(match, files))
        if entry.get("data_files") is None:
            inner = [file.removeprefix(below) for file in files if file.startswith(below)]
            splits |= {s: [below + file for file in f] for s, f in _by_names(inner).items()}
    default = [str(e.get("config_name", DEFAULT)) for e in entries if e.get("default") is True]
    alone = [name for name in configs if name == DEFAULT or len(configs) == 1]
    return configs, (default or alone)[:1]


def _patterns(data_files: Any) -> Iterator[tuple[str, str]]:
    if isinstance(data_files, dict):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    for item in data_files if isinstance(data_files, list) else [data_files]:
        entry = item if isinstance(item, dict) else {"split": TRAIN, "path": item}
        paths = entry.get("path")
        for path in paths if isinstance(paths, list) else [paths] if paths else []:
            yield str(entry.get("split")), str(path)


def _by_folders(files: list[str]) -> dict[str, Splits]:
    configs: dict[str, Splits] = {}
    for split, names in _by_names(files).items():
        for name in names:
            folder = name.rpartition("/")[0].rpartition("/")[2] if _SHARD.fullmatch(name) else ""
            config = DEFAULT if folder in ("", "data") else folder
            configs.setdefault(config, {}).setdefault(split, []).append(name)
    return configs


def _by_names(files: list[str]) -> Splits:
    def of_words(parts: list[str]) -> str | None:
        return next((s for s, w in _WORDS.items() if any(map(w.search, parts))), None)

    data = [file for file in files if file.rpartition("/")[2] not in _BESIDE]
    data = [*filter(_holds_rows, data)] or data  # a licence next to tables is not a document
    ways: list[Callable[[str], str | None]] = [
        lambda file: match[1] if (match := _SHARD.fullmatch(file)) else None,
        lambda file: of_words(file.split("/")[:-1]),
        lambda file: of_words(file.split("/")[-1:]),
    ]
    for way in ways:
        splits: Splits = {}
        for file in data:
            if (split := way(file)) is not None:
                splits.setdefault(split, []).append(file)
        if splits:
            return splits
    return {TRAIN: data} if data else {}
