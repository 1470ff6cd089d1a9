"""Faster compilation of kernels, without numba's repeated and useless work.

Two thirds of a kernel's compile time is spent in Python. numba tries a function's signatures in
turn (an addition has twenty), and compares all compilation options with earlier ones. In each of a
dozen passes it searches for live variables, although only generators need the result. It compiles
its own library functions separately. The replacements here remember the signatures, skip the
comparison and the search, and make numba's functions parts of the kernels that call them
(libraries.py). They rely on numba's internals, so they are used only with tested versions of numba
and only while a kernel of llmcurate is compiled or loaded (`patched`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.np import linalg

from llmcurate.base.kernels import libraries

TESTED = "0.68."  # the versions of numba that the tests have run with
ENABLED = numba.__version__.startswith(TESTED)


def _call_type(function: Any, context: Any, arguments: Any, named: Any) -> Any:
    """Replace BaseFunction.get_call_type by a function that remembers its answers."""
    answers = function.__dict__.setdefault("_answers", {})
    question = (context, tuple(arguments), tuple(named.items()))
    answer = answers.get(question)
    if answer is None:
        answer = _numbas_call_type(function, context, arguments, named)
        # Only these answers can be kept: others compile code that depends on the current options.
        built_in = answer and function._impl_keys[answer.args] == function.typing_key
        if built_in and all(kind.is_precise() for kind in arguments):
            answers[question] = answer
    return answer


def _decorator(template: Any) -> Any:
    """Replace numba's _get_jit_decorator, so that numba's own library functions are compiled as
    parts of kernels. Only kernels can call these functions then (see cache.njit)."""

    def decorator(**options: Any) -> Any:
        def decorated(function: Any) -> Any:
            dispatcher = _numbas_decorator(template)(**options, no_cfunc_wrapper=True)(function)

            def compiled(signature: Any) -> Any:
                with libraries.part(function.__qualname__):
                    return type(dispatcher).compile(dispatcher, signature)

            dispatcher.compile = compiled
            dispatcher._insert = lambda *entry: None  # a part has no wrapper for calls from Python
            return dispatcher

        return decorated

    return decorator


def _postpone_blas() -> None:
    """Replace linalg.ensure_blas by a function that does nothing while numba loads its array
    functions. The original would load SciPy, which takes a tenth of a second; numba calls the
    original later if a kernel needs SciPy."""


@contextmanager
def patched() -> Iterator[None]:
    """Within the block, hold numba's compiler lock, and let numba use this module's
    replacements."""
    global _depth
    with global_compiler_lock:
        _depth += 1
        outermost = ENABLED and _depth == 1
        try:
            if outermost:
                _install(_PATCHES)
                if "numba.np.arraymath" not in sys.modules:
                    _linalg.ensure_blas = _postpone_blas
            yield
        finally:
            _depth -= 1
            if outermost:
                _install(_ORIGINALS)


def _install(functions: dict[tuple[Any, str], Any]) -> None:
    for (owner, name), function in functions.items():
        setattr(owner, name, function)


_depth = 0  # number of nested compilations
_linalg: Any = linalg
_PATCHES: dict[tuple[Any, str], Any] = {
    (BaseFunction, "get_call_type"): _call_type,
    (_OverloadFunctionTemplate, "_get_jit_decorator"): _decorator,
    (codegen.JITCPUCodegen, "create_library"): libraries.create_library,
    (linalg, "ensure_blas"): linalg.ensure_blas,
}
_ORIGINALS = {(owner, name): getattr(owner, name) for owner, name in _PATCHES}
_numbas_call_type = _ORIGINALS[BaseFunction, "get_call_type"]
_numbas_decorator = _ORIGINALS[_OverloadFunctionTemplate, "_get_jit_decorator"]
if ENABLED:  # kernels of other packages may call a function that became a part
    codegen.JITCPUCodegen._library_class = libraries.KernelLibrary
