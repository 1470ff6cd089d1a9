"""An S3 server on this machine (moto's), with the list of the requests that it got."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class Server:
    def __init__(self, log: Path) -> None:
        self.log = log

    def requests(self) -> list[tuple[str, str]]:
        """(method, path) of each request so far, without queries."""
        found = re.findall(r'"([A-Z]+) (/\S*?)(?:\?\S*)? HTTP', self.log.read_text())
        return [(method, path) for method, path in found]


@contextmanager
def s3_server() -> Iterator[Server]:
    """Starts the server, with a bucket called `bucket`; all processes started meanwhile find it."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        log = Path(folder, "log")
        with log.open("w") as file:
            line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            process = subprocess.Popen(line, stdout=file, stderr=file)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        try:
            for _ in range(300):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            s3fs.S3FileSystem.clear_instance_cache()
            s3fs.S3FileSystem().mkdir("bucket")
            yield Server(log)
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
            process.kill()
            process.wait()
