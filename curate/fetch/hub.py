"""Repositories of the Hugging Face hub: the commit that a URL means now, and errors as one line.

fsspec reads `hf://` through huggingface_hub, with that library's own login. A branch moves while a
run is under way or stopped, so every URL is given its commit before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from yaml import YAMLError

from curate.fetch.download import forbid_offline
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
    """Whether it is a URL of the hub."""
    return url.lower().startswith("hf://")


def is_repository(url: str) -> bool:
    """Whether it is a whole data set of the hub."""
    parts = _URL.fullmatch(url) if is_hub(url) else None
    return parts is not None and not (parts["path"] or "").strip("/")


def pinned(urls: Iterable[str]) -> tuple[list[str], list[str]]:
    """(the URLs, those of the hub with the commit that their revision is now; a line for each
    revision that was asked for). UsageError where there is none, RunFailed where no hub answers."""
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


def unpinned(url: str) -> str:
    """The URL without its commit: the same file of another commit has the same one."""
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


def hub_error(what: str, error: Exception) -> LlmcurateError:
    """An error of huggingface_hub as the user sees it; it never holds the token."""
    if isinstance(error, ImportError):
        return UsageError(f"{what}: {INSTALL}")
    from huggingface_hub import constants, errors

    if isinstance(error, errors.RevisionNotFoundError):
        return UsageError(f"{what}: the repository has no such revision")
    if isinstance(error, errors.RepositoryNotFoundError):
        return UsageError(f"{what}: there is no such repository, or it is not open to you: {LOGIN}")
    if isinstance(error, ValueError | YAMLError) and not isinstance(error, errors.HfHubHTTPError):
        return UsageError(f"{what}: {_line(error)}")  # a name, or metadata, that the hub refuses
    if isinstance(error, errors.HfHubHTTPError):
        code = error.response.status_code
        if code in (401, 403):
            return RunFailed(f"{what}: the hub refuses access ({code}): {LOGIN}")
        return RunFailed(f"{what}: the hub answers {code} ({_line(error)})")
    return RunFailed(f"{what}: no connection to {constants.ENDPOINT} ({_line(error)})")


def _line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:200]
