"""Standard input as a file: what is piped in is written aside, so that workers read it in parts.

The copy lies in a folder of its own under TMPDIR and goes when the process ends. Its time is fixed:
the same bytes piped again are the same input, and a run over them resumes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from llmcurate.base.errors import UsageError

NAME = "-"  # what stands for it among inputs
PIECE = 1 << 20  # bytes copied at a time


def standard_input() -> str:
    """The path of the copy. UsageError for a terminal, or where nothing comes."""
    return _copied(sys.stdin)


@cache
def _copied(stream: Any) -> str:
    if stream.isatty():
        raise UsageError("input -: standard input is a terminal; pipe documents into it")
    folder = tempfile.mkdtemp(prefix="llmcurate-stdin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "stdin")
    with open(path, "wb") as copy:
        shutil.copyfileobj(stream.buffer, copy, PIECE)
    if path.stat().st_size == 0:
        raise UsageError("input -: standard input is empty")
    os.utime(path, (1, 1))  # 0 stands for no time
    return str(path)
