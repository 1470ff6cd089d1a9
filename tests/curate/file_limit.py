"""Run a process with a file size limit, as if the disk were full."""

from __future__ import annotations

import resource
from typing import Any

from tests.curate.command_line import environment


def file_limit(size: int) -> dict[str, Any]:
    """Options of a process. It writes no bytecode, which Python would cut at the limit without a
    word, for every later process to stumble over."""
    return {
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        "env": environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
    }
