"""A folder pushed to the hub: one commit of what differs, so that nothing is there by half."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

from curate.fetch.download import forbid_offline
from curate.fetch.hub import hub_error
from curate.hub.contents import CARD, Contents, contents_of
from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.safe_paths import inside
from llmcurate.base.errors import UsageError

_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
PREFIXES = {"dataset": "datasets/", "model": ""}  # in front of a name in a URL


@dataclass(frozen=True)
class Pushed:
    """url: of the repository; commit: its newest one; files: that it holds of the folder; pushed,
    removed: how many of them the commit wrote and took away; bytes: of those that it wrote."""

    url: str
    commit: str
    files: int
    pushed: int
    removed: int
    bytes: int

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def push(
    out: Path,
    name: str,
    kind: str | None = None,
    public: bool = False,
    license: str | None = None,
    quiet: bool = False,
) -> Pushed:
    """Pushes what `out` holds to the repository ORG/NAME, which is made where it is not there.

    kind: one of `contents.KINDS`, where the folder is several things; public: whether a new
    repository is. UsageError where there is nothing to push, RunFailed where the hub refuses or
    does not answer.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"REPO {name}: write ORG/NAME, with a user or an organisation in front")
    contents = contents_of(out, name, kind, license)
    for path in contents.files.values():
        inside(out, path.relative_to(out).as_posix(), out)  # no link leads to a file elsewhere
    forbid_offline(f"hf://{PREFIXES[contents.type]}{name}")
    try:
        return _push(contents, name, public, quiet)
    except Exception as error:
        raise hub_error(f"push to {name}", error) from None


def _push(contents: Contents, name: str, public: bool, quiet: bool) -> Pushed:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import disable_progress_bars

    if quiet or not sys.stderr.isatty():
        disable_progress_bars()
    api, kind = HfApi(), contents.type
    url = str(api.create_repo(name, repo_type=kind, private=not public, exist_ok=True))
    head = str(api.repo_info(name, repo_type=kind).sha)
    listed = api.list_repo_tree(name, recursive=True, revision=head, repo_type=kind)
    entries = {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}
    files: dict[str, Path | bytes] = {CARD: contents.card.encode(), **contents.files}
    changed = {path: file for path, file in files.items() if _differs(file, entries.get(path))}
    gone = [p for p in entries if p not in files and p.partition("/")[0] in contents.own]
    if changed or gone:
        operations: list[Any] = [
            CommitOperationAdd(path, str(file) if isinstance(file, Path) else file)
            for path, file in changed.items()
        ]
        operations += [CommitOperationDelete(path) for path in gone]
        done = api.create_commit(
            name,
            operations,
            commit_message="Push by llmcurate",
            repo_type=kind,
            parent_commit=head,
        )
        head = str(done.oid)
    size = sum(_size(file) for file in changed.values())
    return Pushed(url, head, len(files), len(changed), len(gone), size)


def _size(file: Path | bytes) -> int:
    return len(file) if isinstance(file, bytes) else file.stat().st_size


def _differs(file: Path | bytes, entry: Any) -> bool:
    """Whether a file is not what the repository has under its name. there: as the hub lists it, by
    sha256 where LFS keeps it, else by its id in git."""
    if entry is None or entry.size != _size(file):
        return True
    if entry.lfs is not None:
        digest = sha256(file).hexdigest() if isinstance(file, bytes) else file_digest(file)
        return bool(digest != entry.lfs.sha256)
    data = file if isinstance(file, bytes) else file.read_bytes()
    return bool(sha1(b"blob %d\0" % len(data) + data).hexdigest() != entry.blob_id)
