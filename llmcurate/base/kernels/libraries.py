"""Machine code for whole kernels only, not for their parts (functions that only kernels call).

numba optimises and compiles each function together with copies of all functions that it calls. So a
function is compiled again in each of its callers. With five levels of calls, this takes most of the
compile time. Here the code of a part is kept unoptimised and linked into each kernel that calls the
part. This relies on numba.core.codegen, which is not numba's public interface, so compilation.py
restricts it to tested versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import codegen

_parts: list[str] = []  # names of the parts that are being compiled


class _WithoutEnvironments:
    """numba's code generator for a part (a function that only kernels call). It sets no
    environments (links from the code to Python objects), because a part has none."""

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
    """The code of a kernel, linked with all parts (functions that only kernels call) that it calls,
    directly or indirectly. Without parts, this class does the same as numba's own class."""

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
    """Within the block, compile the function with the qualified name `function` as a part: a
    function that only kernels call. Its code is linked into these kernels. Functions with other
    names are compiled as usual."""
    _parts.append(function)
    try:
        yield
    finally:
        _parts.pop()


def create_library(self: Any, name: str, **options: Any) -> Any:
    """Replace JITCPUCodegen.create_library, which returns the object that holds a function's code.
    Within a block `with part("f")`, return for the function `f` a PartLibrary, whose code is not
    compiled. For all other functions, return numba's own library."""
    if _parts and _parts[-1] == name:
        _parts[-1] = ""
        return PartLibrary(self, name, **options)
    return _original(self, name, **options)


_original = codegen.JITCPUCodegen.create_library
