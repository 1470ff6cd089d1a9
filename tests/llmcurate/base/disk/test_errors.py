"""Errors of the system, as one line that says what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from llmcurate.base.errors import disk_error, set_error_file
from tests.curate.file_limit import file_limit

# numpy's tofile on a full disk, and pyarrow's writers: a message, but no number.
WITHOUT_NUMBER = [
    "1048576 requested and 4096 written",
    "Not enough free space to write 8388608 bytes",
    "[Errno 28] x: No space left on device",
]


@pytest.mark.parametrize("message", WITHOUT_NUMBER, ids=["tofile", "tofile-ahead", "pyarrow"])
def test_a_message_without_a_number_is_kept_and_understood(message):
    error = OSError(message)
    set_error_file(error, "OUT")
    assert str(error) == message
    assert str(disk_error(error)).startswith("disk full")


def test_a_full_disk_is_said_once():
    first = disk_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "OUT/part"))
    assert first is not None and disk_error(first) is first


def test_the_file_is_named_where_the_error_has_none():
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    set_error_file(error, "OUT/part")
    assert "while writing OUT/part" in str(disk_error(error))


def test_the_full_disk_message_of_numpy_is_recognised(tmp_path):
    """A limit of the size of files stands in for the disk."""
    code = "import sys, numpy as np; np.zeros(1 << 20, np.uint8).tofile(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x")],
        **file_limit(4096), capture_output=True, text=True,
    )  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("OSError: ") and disk_error(OSError(last.removeprefix("OSError: ")))


def test_a_limit_of_the_size_of_files_cuts_no_bytecode(tmp_path):
    (tmp_path / "long.py").write_text("x = 1\n" * 1000)
    limited = file_limit(64)
    subprocess.run([sys.executable, "-c", "import long"], cwd=tmp_path, check=True, **limited)
    assert not [*tmp_path.rglob("*.pyc")]


def test_other_errors_are_not_taken_for_a_full_disk():
    assert disk_error(OSError(errno.EACCES, os.strerror(errno.EACCES))) is None
