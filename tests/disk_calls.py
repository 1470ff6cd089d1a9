"""Record file operations in order, to check that a power loss leaves no half-written result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def disk_calls(folder: Path) -> Iterator[list[str]]:
    """`sync NAME`, `rename NAME` (to that name) and `remove NAME` of files and folders below a
    folder, named as from there, and of itself, `.`. One that was written aside is called what it
    becomes."""
    calls: list[Any] = []
    names: dict[int, str] = {}

    def below(path: Any) -> bool:
        return folder in (Path(path), *Path(path).parents)

    def name_of(path: Any) -> str:
        return Path(path).relative_to(folder).as_posix()

    def fsync(file: Any) -> None:
        calls.append(("sync", os.fstat(file if isinstance(file, int) else file.fileno()).st_ino))

    def renaming(really: Any) -> Any:
        def rename(source: Any, target: Any, **more: Any) -> None:
            number = os.lstat(source).st_ino
            really(source, target, **more)
            if below(target):
                names[number] = name_of(target)
                calls.append(("rename", number))

        return rename

    def removing(really: Any) -> Any:
        def remove(path: Any, **more: Any) -> None:
            really(path, **more)
            if not more and below(path):
                calls.append(f"remove {name_of(path)}")

        return remove

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        for name in ("rename", "replace"):
            patch.setattr(os, name, renaming(getattr(os, name)))
        for name in ("unlink", "remove"):
            patch.setattr(os, name, removing(getattr(os, name)))
        said: list[str] = []
        yield said
    names |= {path.lstat().st_ino: name_of(path) for path in (folder, *folder.rglob("*"))}
    for call in calls:
        if isinstance(call, str):
            said.append(call)
        elif call[1] in names:
            said.append(f"{call[0]} {names[call[1]]}")
