"""Machine code for kernels alone, not for the parts that they are made of.

numba optimises every function with all that it calls, and makes machine code of it, before its
caller does the same again with a copy; through five levels of calls that is most of the time. A
part's code is kept as it was lowered and goes whole into the kernels that call it, which are
optimised and made machine code once. It rests on numba.core.codegen, which is not numba's public
interface; compilation.py says when it acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import codegen

_parts: list[str] = []  # that are being compiled, by name


class _Unset:
    """A codegen that does not set environments: a part has no address where they would go."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass


class PartLibrary(codegen.JITCodeLibrary):
    """Code of a part alone, neither optimised nor known to the processor."""

    @property
    def codegen(self) -> Any:
        return _Unset(self._codegen)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class KernelLibrary(codegen.JITCodeLibrary):
    """Code of any other function, with all parts that it calls, directly or through others; as
    numba's own where it calls none.
    """

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
    """The code of the function of that qualified name, which is compiled inside, is a part's; not
    that of numba's own functions, which it makes compile others."""
    _parts.append(function)
    try:
        yield
    finally:
        _parts.pop()


def know_environments(kernel: Any) -> None:
    """Tells a kernel's code (numba's CompileResult) where its parts' environments are, which their
    errors are made from; numba does so with code out of its cache."""
    for environment in kernel._find_referenced_environments():
        kernel.library.codegen.set_env(environment.env_name, environment)


def create_library(self: Any, name: str, **options: Any) -> Any:
    """JITCPUCodegen.create_library."""
    if _parts and _parts[-1] == name:
        _parts[-1] = ""
        return PartLibrary(self, name, **options)
    return _numbas(self, name, **options)


_numbas = codegen.JITCPUCodegen.create_library
