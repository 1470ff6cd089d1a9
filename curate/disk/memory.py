"""The most memory that this process has held."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_bytes() -> int:
    """Bytes; on Linux of this program alone, where getrusage would count what started it too."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
