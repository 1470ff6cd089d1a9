"""Drop Linux capabilities, so that file permissions apply to root too."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3 of linux/capability.h
_READ_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextmanager
def permissions_count() -> Iterator[None]:
    """Within, this thread and those that it starts read what their user may read, nothing more."""
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("this user may read every file")
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, then their upper halves
    if libc.capget(header, sets) != 0:
        pytest.skip("capabilities cannot be read here")
    before = sets[0]
    sets[0] = before & ~_READ_ALL
    libc.capset(header, sets)
    try:
        yield
    finally:
        sets[0] = before
        libc.capset(header, sets)
