"""Record the calls that make files durable, in order. Here syncs are real."""

from __future__ import annotations

import os
import posix
import re
from pathlib import Path

import pytest

Deeds = list[tuple[str, str, int]]


def deeds(monkeypatch: pytest.MonkeyPatch) -> Deeds:
    """("sync", name, bytes) of what is synced, ("rename", new name, bytes) of what is renamed and
    ("remove", name, 0), as they are done from now on; names aside without their random part."""
    done: Deeds = []

    def note(deed: str, path: str | Path, size: int) -> None:
        done.append((deed, re.sub(r"^\.part-\d+-[0-9a-f]{16}-", "aside ", Path(path).name), size))

    def sync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        note("sync", path, path.stat().st_size if path.is_file() else 0)
        posix.fsync(handle)

    def renaming(rename):
        def renamed(path: Path, target: Path) -> Path:
            note("rename", target, path.stat().st_size if path.is_file() else 0)
            return rename(path, target)

        return renamed

    def unlink(path: Path, missing_ok: bool = False, remove=Path.unlink) -> None:
        if path.exists():
            note("remove", path, 0)
        remove(path, missing_ok)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", renaming(Path.replace))
    monkeypatch.setattr(Path, "rename", renaming(Path.rename))
    monkeypatch.setattr(Path, "unlink", unlink)
    return done
