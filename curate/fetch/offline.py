"""LLMCURATE_OFFLINE: nothing is fetched."""

from __future__ import annotations

import os

from curate.errors import UsageError

OFFLINE = "LLMCURATE_OFFLINE"


def forbid_offline(url: str) -> None:
    """UsageError where the environment forbids the network."""
    if os.environ.get(OFFLINE):
        raise UsageError(f"{OFFLINE} is set and forbids fetching {url}")
