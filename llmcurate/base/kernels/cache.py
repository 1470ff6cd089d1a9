"""The cache of compiled kernels: machine code, kept under the content of what it is compiled from.

A kernel is compiled together with the kernels that it calls and the constants that it reads, and
most of them stand in other modules. So its key is the source of its own module and of all modules
of ours that this one imports, directly or through others, with the versions of the compiler. No
path, place or time is in the key: another clone, a worktree and an installed wheel with the same
sources share their machine code, and what another branch has compiled stays beside it.

    KERNELS / module / digest of sources and versions / function-digest of types and processor.nbc

A wheel that `make wheel` built carries such a folder, compiled for x86-64-v3: processors since 2013
to 2015. It is looked into after the cache, where the processor has these instructions.

KERNELS is NUMBA_CACHE_DIR where it is set, else `kernels` in LLMCURATE_CACHE, else
`llmcurate/kernels` in XDG_CACHE_HOME or ~/.cache. Like __pycache__, the folder is trusted and may
be deleted. Where it cannot be written, kernels are compiled and not kept.

Processes share the work: a kernel that one compiles is locked, and others take it from the cache
when it is there (locks.py).
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
VERSIONS = 8  # of a module's machine code that are kept, the last written ones

compile_time.listen()
_STARTED = time.time()
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
# Also in functions and in docstrings: a module too many costs a compilation, one too few is stale.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\((?:[^)#]|#.*)*\)|.*)|import[ \t]+(.*))",
    re.MULTILINE,
)
_COMMENT = re.compile(r"#.*")


def prepare() -> None:
    """Loads what numba loads with its first kernel, a fifth of a second."""
    with compilation.ours():
        cpu_target.target_context.refresh()


def njit(
    *, cache: bool = False, allocates: bool = False, **options: Any
) -> Callable[[Function], Function]:
    """numba's `njit`. With `cache`, machine code comes from our cache and goes there; without, the
    function is a part of kernels: compiled without a wrapper for calls from Python, which raise
    TypeError. Neither has numba's wrapper for calls from C.

    A part borrows its arrays, which whoever called it holds: no references are counted, an atomic
    addition each, which took as long as half of the parts' work. A part that makes arrays or
    returns some has to count, and says `allocates`. One that says nothing cannot make any, and may
    neither return arrays nor call what returns some.
    """
    options.update(no_cfunc_wrapper=True, no_cpython_wrapper=not cache, _nrt=cache or allocates)

    def compiled(function: Function) -> Function:
        kernel: Any = numba.njit(**options)(function)
        if not isinstance(kernel, Dispatcher):  # where NUMBA_DISABLE_JIT is set
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
            kernel._insert = _no_entry
        return cast(Function, kernel)

    return compiled


def _without_collector(kernel: Dispatcher, *args: Any, **named: Any) -> Any:
    """Compiles a kernel for a call, with the garbage collector off: numba makes millions of objects
    that stay, which it would look through again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return type(kernel)._compile_for_args(kernel, *args, **named)
    finally:
        if collecting:
            gc.enable()


def _refuse(function: Callable[..., Any], *args: Any, **named: Any) -> None:
    raise TypeError(
        f"{function.__module__}.{function.__qualname__} is a part of kernels; what Python calls is"
        " decorated with njit(cache=True)"
    )


def _compile(kernel: Dispatcher, borrows: bool, part: bool, signature: Any) -> Any:
    """Dispatcher.compile. What counts no references may have no arrays from others: one that it
    returns would be freed early, one that something returns to it never."""
    function = kernel.py_func
    kinds = tuple(normalize_signature(signature)[0])
    if kinds in kernel.overloads:
        return kernel.overloads[kinds].entry_point
    inside = libraries.part(function.__qualname__) if part else _alone(kernel, kinds)
    with compilation.ours(), inside:
        entry = type(kernel).compile(kernel, signature)
    if not part and compilation.ACTS:
        libraries.know_environments(kernel.overloads[kinds])
    called = map(function.__globals__.get, function.__code__.co_names)
    for other in (kernel, *(other for other in called if isinstance(other, Dispatcher))):
        if borrows and any(_has_array(known.return_type) for known in other.nopython_signatures):
            name = f"{function.__module__}.{function.__qualname__}"
            raise TypeError(f"{name} has arrays from {other.__name__}: decorate it with allocates")
    return entry


def _call_template(
    kernel: Dispatcher, args: tuple[types.Type, ...], named: dict[str, types.Type]
) -> Any:
    """Dispatcher.get_call_template, with constants as any values of their types: a part is compiled
    once for all of them, and optimised for each where it is inlined."""
    named = {name: types.unliteral(kind) for name, kind in named.items()}
    return type(kernel).get_call_template(kernel, tuple(map(types.unliteral, args)), named)


def _alone(kernel: Dispatcher, kinds: tuple[types.Type, ...]) -> AbstractContextManager[None]:
    """Within, no other process compiles the kernel for these types."""
    codegen = kernel.targetctx.codegen()
    path = kernel._cache.path(kinds, codegen)
    known = path is None or any(p.exists() for p in kernel._cache.places(kinds, codegen))
    return nullcontext() if path is None or known else locks.alone(path)


def _has_array(kind: types.Type) -> bool:
    return isinstance(kind, types.Array) or (
        isinstance(kind, types.BaseTuple) and any(map(_has_array, kind.types))
    )


def _no_entry(*entry: Any) -> None:
    """A part of kernels has no wrapper that numba could call."""


class KernelCache(_Cache):
    """The machine code of a kernel, a file for each combination of types and processor.

    numba's own cache numbers these files in an index, and two processes that compile for different
    types at once may give both the same number; here a file is named for what it holds.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._enabled = not function.__closure__  # what a closure holds is in no source
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
            # Not there, or cut off by a crash.
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                return CompileResult._rebuild(target_context, *pickle.loads(path.read_bytes()))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        path = self.path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals:
            return
        code = dumps(data._reduce())
        with suppress(OSError):  # a full disk, a folder of somebody else
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
            try:
                beside.write_bytes(code)
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
            _prune(path.parents[1])

    def _folder(self) -> Path | None:
        return self._below(self._root) if self._root else None

    def _below(self, root: Path) -> Path | None:
        module = self._function.__module__
        stamp = source_stamp(module, self._function.__code__.co_filename)
        return root / module / stamp if self._enabled and stamp else None

    def path(self, sig: Any, codegen: Any) -> Path | None:
        """Where the machine code for these types goes; None where it is not kept."""
        folder = self._folder()
        return folder / self._file(sig, codegen.magic_tuple()) if folder else None

    def places(self, sig: Any, codegen: Any) -> Iterator[Path]:
        """Where the machine code for these types may lie, the best place first."""
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
    """A type in words. Of a named tuple numba says neither where it is from nor its fields, and
    kernels are called with tuples that stand in modules which they do not import."""
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
    """A module's source. imports: (module, the names taken from it), of our packages only."""

    digest: bytes
    changed: float  # when, in seconds since 1970
    package: bool
    imports: tuple[tuple[str, tuple[str, ...]], ...]


@functools.cache
def read_source(root: str, module: str) -> Source | None:
    """None: there is no such module below the folder `root`."""
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
    """The sources of a module and of all modules of ours that it imports, by name, sorted."""
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
    """What a module's kernels are compiled from and with, as a digest.

    None where that is not sure: the module is none of ours, or a file has changed while this
    process ran, which may hold its old content.
    """
    if module.split(".")[0] not in PACKAGES:
        return None
    up = module.count(".") + (Path(file).name == "__init__.py")
    closure = import_closure(str(Path(file).absolute().parents[up]), module)
    if module not in closure or any(s.changed > _STARTED for s in closure.values()):
        return None
    stamp = hashlib.sha256(_COMPILER.encode())
    for name, source in closure.items():
        stamp.update(name.encode() + b"\0" + source.digest)
    return stamp.hexdigest()[:24]
