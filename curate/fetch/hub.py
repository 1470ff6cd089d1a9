"""Read repositories of the Hugging Face hub: resolve revisions to commits, and report errors in one
line. fsspec reads `hf://` through huggingface_hub, with that library's own login. A branch may move
while a run works or is stopped, so the commit is added to every URL before anything is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from yaml import YAMLError

from curate.fetch.download import OFFLINE, forbid_offline
from curate.fetch.sources import error_line
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError

INSTALL = "pip install 'llmcurate[hf]'"
LOGIN = "`hf auth login` or the variable HF_TOKEN gives access"
TYPES = {"datasets/": "dataset", "spaces/": "space", "models/": "model", "": "model"}
_URL = re.compile(
    r"hf://(?P<type>(?:datasets|spaces|models)/)?"
    r"(?P<id>(?!(?:datasets|spaces|models)/)[^/@]+/[^/@]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?(?P<path>/.*)?",
    re.I | re.S,
)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


def is_hub(url: str) -> bool:
    return url.lower().startswith("hf://")


def is_repository(url: str) -> bool:
    """Return True if a URL names a whole repository of the Hugging Face hub, without a path."""
    parts = _URL.fullmatch(url) if is_hub(url) else None
    return parts is not None and not (parts["path"] or "").strip("/")


def with_commits(urls: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return (urls, lines). In each URL of the Hugging Face hub, the revision (a branch or tag) is
    replaced by its current commit; `lines` has a line of text per replaced revision. Raises
    UsageError if a repository or revision does not exist, RunFailed if the hub fails."""
    commits: dict[tuple[str, str], str] = {}
    paths, notices = [], []
    for url in urls:
        parts = _URL.fullmatch(url) if is_hub(url) else None
        if parts is None or url.startswith("hf://buckets/"):  # a bucket has no commits
            if is_hub(url) and parts is None:
                raise UsageError(f"input {url}: write hf://datasets/ORG/NAME[@REVISION]/PATH")
            paths.append(url)
            continue
        repository = f"{(parts['type'] or '').lower()}{parts['id']}"
        revision = parts["revision"]
        if not _COMMIT.fullmatch(revision or ""):
            key = (repository, revision or "main")
            if key not in commits:
                commits[key] = _commit_of(url, parts)
                notices.append(f"hf://{repository}@{key[1]} is commit {commits[key]}")
            revision = commits[key]
        paths.append(f"hf://{repository}@{revision}{parts['path'] or ''}")
    return paths, notices


def without_commits(url: str) -> str:
    """Return a Hugging Face URL without its commit, so that it is the same at every commit."""
    parts = _URL.fullmatch(url) if is_hub(url) else None
    if parts is None or not _COMMIT.fullmatch(parts["revision"] or ""):
        return url
    return f"hf://{parts['type'] or ''}{parts['id']}{parts['path'] or ''}"


def _commit_of(url: str, parts: re.Match[str]) -> str:
    forbid_offline(url)
    kind, revision = TYPES[(parts["type"] or "").lower()], parts["revision"]
    try:
        from huggingface_hub import HfApi

        about = HfApi().repo_info(
            parts["id"], revision=unquote(revision) if revision else None, repo_type=kind
        )
    except Exception as error:
        raise hub_error(f"input {url}", error) from None
    return str(about.sha)


def model_folder(model: str, what: str, patterns: list[str]) -> Path:
    """Return the folder of a model: a local folder or, for ORG/NAME[@REVISION] of the Hugging Face
    hub, one in the cache of huggingface_hub. Files that match the patterns are downloaded if they
    are not cached. Raises UsageError or RunFailed, which begin with `what`."""
    folder = Path(model).expanduser()
    parts = _URL.fullmatch(f"hf://{model}")
    if folder.is_dir():
        return folder
    if parts is None or parts["path"]:
        raise UsageError(f"{what}: no such folder")
    offline = bool(os.environ.get(OFFLINE))
    try:
        from huggingface_hub import errors, snapshot_download

        return Path(
            snapshot_download(
                parts["id"],
                revision=parts["revision"],
                allow_patterns=patterns,
                local_files_only=offline,
            )
        )
    except Exception as error:
        if offline and isinstance(error, errors.LocalEntryNotFoundError):
            where = "neither a folder nor in the cache of the hub"
            raise UsageError(f"{what}: {where}, and {OFFLINE} is set") from None
        raise hub_error(what, error) from None


def hub_error(what: str, error: Exception) -> LlmcurateError:
    """Turn an error of huggingface_hub into one line for the user that does not show the login
    token."""
    if isinstance(error, ImportError):
        return UsageError(f"{what}: {INSTALL}")
    from huggingface_hub import constants, errors

    if isinstance(error, errors.RevisionNotFoundError):
        return UsageError(f"{what}: the repository has no such revision")
    if isinstance(error, errors.RepositoryNotFoundError):
        return UsageError(f"{what}: there is no such repository, or you have no access: {LOGIN}")
    if isinstance(error, ValueError | YAMLError) and not isinstance(error, errors.HfHubHTTPError):
        return UsageError(f"{what}: {error_line(error)}")  # an invalid name or metadata
    if isinstance(error, errors.HfHubHTTPError):
        code = error.response.status_code
        if code in (401, 403):
            return RunFailed(f"{what}: the hub refuses access ({code}): {LOGIN}")
        return RunFailed(f"{what}: the hub answers {code} ({error_line(error)})")
    return RunFailed(f"{what}: no connection to {constants.ENDPOINT} ({error_line(error)})")
