"""Names stay inside: nothing that a file or a worker names is used outside of its folder.

An OUT or a HOME may come from somebody else, and so may a list or the answer of a worker. Before a
name of theirs is used as a path, `inside` shows that it lies below the folder it belongs to, links
included. `remove` is how curate removes: only below a folder, and a link rather than what it leads
to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from llmcurate.base.errors import RunFailed


def is_below(name: object) -> bool:
    """Whether a name, of a file or of an object in a store, is relative and never steps up."""
    if not isinstance(name, str) or "\0" in name:
        return False
    return all(piece not in ("", ".", "..") for piece in name.split("/"))


def inside(folder: Path, name: object, source: object = None, follow: bool = True) -> Path:
    """The path of a name below a folder. RunFailed where it does not lie there.

    source: the file or list that names it, for the message; follow: whether the path may be a link
    itself, which must lead to a place below the folder (not for one that is replaced or removed).
    """
    if not isinstance(name, str) or not is_below(name):
        raise RunFailed(
            f"{source or folder} names {str(name)[:100]!r}, which is nothing inside {folder}:"
            " nothing was done with it; see who wrote that, and put back a copy or take it away"
        )
    path = folder / name
    home = folder.resolve()
    real = path.resolve() if follow else path.parent.resolve() / path.name
    if home not in real.parents:
        raise RunFailed(
            f"{path} leads out of {folder} through a link, to {real}: nothing was done with it; put"
            " the folder or file itself there"
        )
    return path


def all_inside(folder: Path, names: object, source: object) -> list[Path]:
    """The paths of a list of names, all checked before any is used; none of them is followed."""
    if not isinstance(names, list):
        raise RunFailed(f"{source} is damaged, it holds no list of names: take it away")
    return [inside(folder, name, source, follow=False) for name in names]


def check_links(folder: Path) -> None:
    """RunFailed for a link anywhere below a folder of ours, which never has one: what is written or
    read there would be elsewhere."""
    for above, folders, files in os.walk(folder):
        for path in (Path(above, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise RunFailed(
                    f"{path} is a link, and runs make none there: nothing was done with it; see who"
                    " made it, and take it away"
                )


def remove(path: Path, *, inside: Path, must: bool = False) -> None:
    """Removes a file, a folder with all that is in it, or a link and not what it leads to; what is
    not there is no error. RunFailed where the path does not lie below the folder `inside`.

    must: whether a folder that cannot be removed whole is an OSError.
    """
    home, above = inside.resolve(), path.parent.resolve()
    if path.name in ("", "..") or (above != home and home not in above.parents):
        raise RunFailed(
            f"{path} is not removed, since it does not lie inside {inside} (links followed): put"
            " the folder itself where the link is"
        )
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not must)
    else:
        path.unlink(missing_ok=True)


def remove_files(paths: Iterable[Path], *, inside: Path) -> None:
    """Removes the files and links among the paths; folders stay."""
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            remove(path, inside=inside)
