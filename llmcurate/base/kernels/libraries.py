"""Machine code for whole kernels, not for each part: a function that only kernels call.

numba optimises every function with all that it calls and makes machine code of it, before its
caller does the same with a copy; with five levels of calls that is most of the time. Here a part's
code is kept as it was lowered and linked whole into the kernels that call it. This relies on
numba.core.codegen, which is not numba's public interface; compilation.py says when it acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import codegen

_parts: list[str] = []  # names of those that are being compiled


class _WithoutEnvironments:
    """A code generator that skips environments (links to Python objects): parts have none."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass


class PartLibrary(codegen.JITCodeLibrary):
    """The code of a part (a function for kernels alone), neither optimised nor machine code yet."""

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironments(self._codegen)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class KernelLibrary(codegen.JITCodeLibrary):
    """The code of any other function, linked with all parts that it calls, directly or indirectly.
    If it calls no parts, this does what numba's own class does."""

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
    """Within the block, the code of the function with this qualified name becomes that of a part.
    Functions of numba that are compiled within the block do not become parts."""
    _parts.append(function)
    try:
        yield
    finally:
        _parts.pop()


def set_environments(kernel: Any) -> None:
    """Tell a kernel's code (numba's CompileResult) where its parts find the Python objects
    (environments) that their errors need. numba does this for code from its own cache only."""
    for environment in kernel._find_referenced_environments():
        kernel.library.codegen.set_env(environment.env_name, environment)


def create_library(self: Any, name: str, **options: Any) -> Any:
    """Replace JITCPUCodegen.create_library: functions named by `part` get a `PartLibrary`."""
    if _parts and _parts[-1] == name:
        _parts[-1] = ""
        return PartLibrary(self, name, **options)
    return _original(self, name, **options)


_original = codegen.JITCPUCodegen.create_library
