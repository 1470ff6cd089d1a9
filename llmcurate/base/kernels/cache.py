"""The cache of compiled kernels: machine code, with a key made from its source code.

The machine code of a kernel includes the kernels that it calls and the constants that it reads,
most of them from other modules. So its key covers the sources of its module and of all llmcurate
modules imported there, and the compiler's versions. The key has no path and no time, so clones,
worktrees, branches and wheels can share the folder. Of several processes, one compiles a kernel and
the others wait (locks.py). A file of machine code is

    KERNELS / module / digest of sources and versions / function-digest of types and processor.nbc

KERNELS is NUMBA_CACHE_DIR, else `kernels` in LLMCURATE_CACHE, else `llmcurate/kernels` in
XDG_CACHE_HOME or ~/.cache. Like __pycache__, the folder is trusted and may be deleted. If it cannot
be written, kernels are not kept. A wheel made by `make wheel` contains a second such folder for
x86-64-v3 (processors since 2013 to 2015). It is searched second, if the processor supports it.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import pickle
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import llvmlite
import numba
import numpy as np
from numba.core import config, types
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from llmcurate.base.kernels import compilation, compile_time, libraries, locks
from llmcurate.base.kernels.folder import kernels_folder

Function = TypeVar("Function", bound=Callable[..., Any])
PACKAGES = ("curate", "llmcurate", "tokenize_kit", "train")
VERSIONS = 8  # newest versions of a module's machine code to keep

compile_time.listen()
STARTED = time.time()
_COMPILER = (
    f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')} numba {numba.__version__}"
    f" llvmlite {llvmlite.__version__} numpy {np.__version__.split('.')[0]}"
    f" bounds {config.BOUNDSCHECK}"
)
SHIPPED = Path(__file__).parents[2] / "machine_code"  # in a wheel, compiled for LEVEL
LEVEL = "x86-64-v3"
# The features of LEVEL beyond x86-64, as LLVM names them (System V psABI for AMD64, 3.1.1).
HAS = {
    *("+cx16", "+popcnt", "+sahf", "+sse3", "+sse4.1", "+sse4.2", "+ssse3"),
    *("+avx", "+avx2", "+bmi", "+bmi2", "+f16c", "+fma", "+lzcnt", "+movbe", "+xsave"),
}
# This also matches in functions and docstrings. A module too many costs a compilation; a module too
# few would leave stale machine code.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\((?:[^)#]|#.*)*\)|.*)|import[ \t]+(.*))",
    re.MULTILINE,
)
_COMMENT = re.compile(r"#.*")


def prepare() -> None:
    """Load the modules that numba loads with its first kernel. This takes a fifth of a second."""
    with compilation.patched():
        cpu_target.target_context.refresh()


def njit(
    *, cache: bool = False, allocates: bool = False, **options: Any
) -> Callable[[Function], Function]:
    """Compile a function with numba, as a kernel (with `cache`) or as a part of kernels (without).

    A kernel is called from Python, and its machine code is kept on disk. A part is called only by
    kernels and other parts; a call from Python raises TypeError. No C wrappers are compiled.

    A part does not count references to arrays, because counting makes parts take 1.5 times as long;
    the kernel that calls it keeps the arrays alive. So only a part with `allocates` may create or
    return arrays, or call a function that returns arrays.
    """
    options.update(no_cfunc_wrapper=True, no_cpython_wrapper=not cache, _nrt=cache or allocates)

    def compiled(function: Function) -> Function:
        kernel: Any = numba.njit(**options)(function)
        if not isinstance(kernel, Dispatcher):  # if NUMBA_DISABLE_JIT is set
            return cast(Function, kernel)
        kernel.compile = functools.partial(  # type: ignore[method-assign]
            _compile, kernel, not (cache or allocates), not cache
        )
        if cache:
            kernel._cache = KernelCache(function)
            kernel._compile_for_args = functools.partial(_without_collector, kernel)
        else:
            kernel._compile_for_args = functools.partial(_refuse, function)
            kernel.get_call_template = functools.partial(  # type: ignore[method-assign]
                _call_template, kernel
            )
            kernel._insert = lambda *entry: None  # a part has no wrapper for calls from Python
        return cast(Function, kernel)

    return compiled


def _without_collector(kernel: Dispatcher, *args: Any, **named: Any) -> Any:
    """Compile a kernel when it is called, with the garbage collector off: numba creates millions of
    lasting objects, which the collector would scan again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return type(kernel)._compile_for_args(kernel, *args, **named)
    finally:
        if collecting:
            gc.enable()


def _refuse(function: Callable[..., Any], *args: Any, **named: Any) -> None:
    raise TypeError(
        f"{function.__module__}.{function.__qualname__} can be called by kernels only: decorate a"
        " function that Python calls with njit(cache=True)"
    )


def _compile(kernel: Dispatcher, borrows: bool, part: bool, signature: Any) -> Any:
    """Replace Dispatcher.compile: compile a kernel or a part (a function that only kernels call).
    A part with `borrows` does not count references to arrays. Raises TypeError if it returns an
    array or calls a function that returns one: the array would be freed too early or never."""
    function = kernel.py_func
    kinds = tuple(normalize_signature(signature)[0])
    if kinds in kernel.overloads:
        return kernel.overloads[kinds].entry_point
    inside = libraries.part(function.__qualname__) if part else _compile_lock(kernel, kinds)
    with compilation.patched(), inside:
        entry = type(kernel).compile(kernel, signature)
    if not part and compilation.ENABLED:
        # Link the code with the Python objects that called functions need to raise errors. numba
        # itself sets such links only in code that it loads from its cache.
        compiled = kernel.overloads[kinds]
        for environment in compiled._find_referenced_environments():
            compiled.library.codegen.set_env(environment.env_name, environment)
    called = map(function.__globals__.get, function.__code__.co_names)
    for other in (kernel, *(other for other in called if isinstance(other, Dispatcher))):
        if borrows and any(_has_array(known.return_type) for known in other.nopython_signatures):
            name = f"{function.__module__}.{function.__qualname__}"
            raise TypeError(
                f"{name} gets arrays from {other.__name__}: give it njit(allocates=True)"
            )
    return entry


def _call_template(
    kernel: Dispatcher, args: tuple[types.Type, ...], named: dict[str, types.Type]
) -> Any:
    """Replace Dispatcher.get_call_template for a function that only kernels call, so that it is
    compiled once per combination of types. numba would compile it again for each constant argument,
    which is of no use, because LLVM sees the constants when it inlines the function."""
    named = {name: types.unliteral(kind) for name, kind in named.items()}
    return type(kernel).get_call_template(kernel, tuple(map(types.unliteral, args)), named)


def _compile_lock(
    kernel: Dispatcher, kinds: tuple[types.Type, ...]
) -> AbstractContextManager[None]:
    codegen = kernel.targetctx.codegen()
    path = kernel._cache.path(kinds, codegen)
    known = path is None or any(p.exists() for p in kernel._cache.places(kinds, codegen))
    return nullcontext() if path is None or known else locks.exclusive(path)


def _has_array(kind: types.Type) -> bool:
    return isinstance(kind, types.Array) or (
        isinstance(kind, types.BaseTuple) and any(map(_has_array, kind.types))
    )


class KernelCache(_Cache):
    """The machine code of a kernel, in one file per combination of types and processor. numba's own
    cache numbers these files in an index, and two processes that compile for different types at
    once may use the same number. Here a file is named after its types and processor."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._enabled = not function.__closure__  # values of a closure are not in the source
        self._root = kernels_folder()

    @property
    def cache_path(self) -> str | None:
        folder = self._folder()
        return str(folder) if folder else None

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        folder = self._folder()
        for path in folder.glob(f"{self._function.__qualname__}-*.nbc") if folder else ():
            path.unlink(missing_ok=True)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        for path in self.places(sig, target_context.codegen()):
            # The file may be missing, or truncated by a crash.
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                return CompileResult._rebuild(target_context, *pickle.loads(path.read_bytes()))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        path = self.path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals:
            return
        code = dumps(data._reduce())
        with suppress(OSError):  # a full disk, another user's folder
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
            try:
                aside.write_bytes(code)
                aside.replace(path)
            finally:
                aside.unlink(missing_ok=True)
            _prune(path.parents[1])

    def _folder(self) -> Path | None:
        return self._below(self._root) if self._root else None

    def _below(self, root: Path) -> Path | None:
        module = self._function.__module__
        stamp = source_stamp(module, self._function.__code__.co_filename)
        return root / module / stamp if self._enabled and stamp else None

    def path(self, sig: Any, codegen: Any) -> Path | None:
        """Return the file for machine code for the types `sig`, or None if the code is not kept."""
        folder = self._folder()
        return folder / self._file(sig, codegen.magic_tuple()) if folder else None

    def places(self, sig: Any, codegen: Any) -> Iterator[Path]:
        """Yield files that may have the machine code for the types `sig`: one in the user's cache,
        then one that the installed package brings, if this processor can run its code."""
        if own := self.path(sig, codegen):
            yield own
        triple, _, features = codegen.magic_tuple()
        has_level = config.CPU_NAME is None and HAS.issubset(features.split(","))
        if has_level and (shipped := self._below(SHIPPED)):
            yield shipped / self._file(sig, (triple, LEVEL, ""))

    def _file(self, sig: Any, processor: tuple[str, str, str]) -> str:
        name, line = self._function.__qualname__, self._function.__code__.co_firstlineno
        key = repr((line, [_described(kind) for kind in sig], processor))
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.nbc"


def _described(kind: types.Type) -> str:
    """Return a text that identifies a type in the key of a cached kernel. numba's text for a named
    tuple lacks the tuple's module and fields. Both are added here, because the tuple may be defined
    in a module whose source is not part of the key."""
    if not isinstance(kind, types.BaseTuple):
        return repr(kind)
    parts = ", ".join(_described(part) for part in kind.types)
    if not isinstance(kind, types.BaseNamedTuple):
        return f"({parts})"
    name = kind.instance_class
    return f"{name.__module__}.{name.__qualname__}{kind.fields}({parts})"


def _prune(folder: Path) -> None:
    versions = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for version in versions[VERSIONS:]:
        shutil.rmtree(version, ignore_errors=True)


class Source(NamedTuple):
    """The facts about a module's source from which cache keys are made."""

    digest: bytes  # sha256 of the source
    changed: float  # time of the last change, in seconds since 1970
    package: bool  # True for an `__init__.py`
    imports: tuple[tuple[str, tuple[str, ...]], ...]  # (llmcurate module, names imported from it)


@functools.cache
def read_source(root: str, module: str) -> Source | None:
    """Return the source of a module below the folder `root`, or None if it does not exist."""
    base = Path(root, *module.split("."))
    for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
        with suppress(FileNotFoundError, NotADirectoryError), path.open("rb") as file:
            source, changed = file.read(), os.fstat(file.fileno()).st_mtime
            digest = hashlib.sha256(source).digest()
            return Source(digest, changed, path.parent == base, tuple(_imports(source.decode())))
    return None


def _imports(source: str) -> list[tuple[str, tuple[str, ...]]]:
    imports: list[tuple[str, tuple[str, ...]]] = []
    for module, names, modules in _IMPORT.findall(source):
        if module:
            imports.append((module, tuple(re.findall(r"\w+", _COMMENT.sub("", names)))))
        else:
            imports += [(name, ()) for name in re.findall(r"[\w.]+", _COMMENT.sub("", modules))]
    return [entry for entry in imports if entry[0].split(".")[0] in PACKAGES]


@functools.cache
def import_closure(root: str, module: str) -> dict[str, Source]:
    """Return the sources of a module and, recursively, of the llmcurate modules that it imports."""
    closure: dict[str, Source] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        source = None if name in closure else read_source(root, name)
        if source is None:
            continue
        closure[name] = source
        for imported, names in source.imports:
            waiting.append(imported)
            if (package := read_source(root, imported)) and package.package:
                waiting += [f"{imported}.{name}" for name in names]
    return dict(sorted(closure.items()))


@functools.cache
def source_stamp(module: str, file: str) -> str | None:
    """Return a digest of the sources and compiler versions of a module's kernels. Return None if
    the module is not llmcurate's, or if a source changed after this process started. The process
    may have loaded the old content then, and the digest may be wrong."""
    if module.split(".")[0] not in PACKAGES:
        return None
    up = module.count(".") + (Path(file).name == "__init__.py")
    closure = import_closure(str(Path(file).absolute().parents[up]), module)
    if module not in closure or any(s.changed > STARTED for s in closure.values()):
        return None
    stamp = hashlib.sha256(_COMPILER.encode())
    for name, source in closure.items():
        stamp.update(name.encode() + b"\0" + source.digest)
    return stamp.hexdigest()[:24]
