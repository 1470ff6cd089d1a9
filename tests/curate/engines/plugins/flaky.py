"""A store of local folders that answers late and fails at one request in twenty."""

from __future__ import annotations

import time
from typing import Any

from fsspec.implementations.local import LocalFileSystem

EVERY = 20
LATE_SECONDS = 0.001

requests: list[str] = []  # of this process
failed: list[str] = []


def request(name: str) -> Any:
    """A request of LocalFileSystem, through a network."""
    real = getattr(LocalFileSystem, name)

    def method(self: Any, path: str, *args: Any, **options: Any) -> Any:
        time.sleep(LATE_SECONDS)
        requests.append(f"{name} {path}")
        if len(requests) % EVERY == 0:
            failed.append(requests[-1])
            raise OSError("the store is away")
        return real(self, path, *args, **options)

    return method


class Flaky(LocalFileSystem):
    """`flaky:///a/folder`."""

    protocol = "flaky"

    def __init__(self, **options: Any) -> None:
        super().__init__(auto_mkdir=True, **options)

    put_file = request("put_file")
    get_file = request("get_file")
    cp_file = request("cp_file")
    cat_file = request("cat_file")
    pipe_file = request("pipe_file")
    rm_file = request("rm_file")
    rm = request("rm")
    find = request("find")
