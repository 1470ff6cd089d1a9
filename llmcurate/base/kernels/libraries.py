"""Machine code for whole kernels only, not for their parts (functions that only kernels call).

numba optimises each function together with all functions that it calls, and makes machine code of
it. It does the same again with the function's copy in each caller. With five levels of calls this
takes most of the compile time. Here the code of a part is kept unoptimised and linked into each
kernel that calls the part. This relies on numba.core.codegen, which is not numba's public
interface, so compilation.py restricts it to tested versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import codegen

_parts: list[str] = []  # names of the parts that are being compiled


class _WithoutEnvironments:
    """A code generator that skips environments (links to Python objects): parts have none."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass


class PartLibrary(codegen.JITCodeLibrary):
    """The code of a part (a function that only kernels call), not yet optimised or compiled."""

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironments(self._codegen)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class KernelLibrary(codegen.JITCodeLibrary):
    """The code of a function that is not a part, linked with all parts that it calls, directly or
    indirectly. If it calls no parts, this does the same as numba's own class."""

    def finalize(self) -> None:
        linked: dict[Any, None] = {}
        waiting = list(self._linking_libraries)
        if any(isinstance(library, PartLibrary) for library in waiting):
            while waiting:
                library = waiting.pop()
                if library not in linked:
                    linked[library] = None
                    if isinstance(library, PartLibrary):
                        waiting += library._linking_libraries
            self._linking_libraries = list(linked)
        super().finalize()


@contextmanager
def part(function: str) -> Iterator[None]:
    """Within the block, the function with this qualified name is compiled as a part of kernels.
    Functions of numba that are compiled within the block do not become parts."""
    _parts.append(function)
    try:
        yield
    finally:
        _parts.pop()


def set_environments(kernel: Any) -> None:
    """Link a kernel's code (numba's CompileResult) with the Python objects (environments) with
    which its parts raise errors. numba does this only for code from its cache."""
    for environment in kernel._find_referenced_environments():
        kernel.library.codegen.set_env(environment.env_name, environment)


def create_library(self: Any, name: str, **options: Any) -> Any:
    """Replace JITCPUCodegen.create_library: functions named by `part` get a `PartLibrary`."""
    if _parts and _parts[-1] == name:
        _parts[-1] = ""
        return PartLibrary(self, name, **options)
    return _original(self, name, **options)


_original = codegen.JITCPUCodegen.create_library
