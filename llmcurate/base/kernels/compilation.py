"""Compilation without work that numba does again or in vain.

Two thirds of a kernel's compile time is Python. For each operation numba tries the signatures of a
function in turn, twenty for an addition, and compares all options of the compilation with those of
earlier ones; it analyses which variables live at each of a dozen passes, for generators alone; and
it makes machine code of each of its own functions that a kernel calls. Here an answer is kept,
what nobody reads is neither computed nor loaded, and numba's functions are parts as ours are
(libraries.py). It rests on numba's internals, so it acts on the versions alone that the tests have
run with, and only while a kernel of ours is compiled or loaded (`ours`): others in the same
process are compiled by numba as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
from llvmlite.binding import ffi
from numba.core import codegen, transforms
from numba.core.compiler_lock import global_compiler_lock
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import TargetConfig
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.np import linalg

from llmcurate.base.kernels import libraries

TESTED = "0.68."  # the versions of numba that the tests have run with
ACTS = numba.__version__.startswith(TESTED)


def _call_type(function: Any, context: Any, arguments: Any, named: Any) -> Any:
    """BaseFunction.get_call_type: the signature for these types."""
    answers = function.__dict__.setdefault("_answers", {})
    question = (context, tuple(arguments), tuple(named.items()))
    answer = answers.get(question)
    if answer is None:
        answer = _numbas_call_type(function, context, arguments, named)
        # Others compile an implementation, which depends on the options of this compilation.
        built_in = answer and function._impl_keys[answer.args] == function.typing_key
        if built_in and all(kind.is_precise() for kind in arguments):
            answers[question] = answer
    return answer


def _hash(options: Any) -> int:
    """TargetConfig.__hash__: numba's, which is of the options' names, so one for all of a class."""
    return _hashes.get(kind := type(options)) or _hashes.setdefault(kind, _numbas_hash(options))


def _equal(options: Any, others: Any) -> Any:
    """TargetConfig.__eq__: what was set alike is equal without a look at what was not set."""
    if type(options) is type(others) and options._values == others._values:
        return True
    return _numbas_equal(options, others)


def _process(processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """PostProcessor.run, without the variables that live at each block's entry where no generator
    needs them."""
    code = processor.func_ir
    if emit_dels or code.is_generator:
        _numbas_process(processor, emit_dels, extend_lifetimes)
        return
    code.blocks = transforms.canonicalize_cfg(code.blocks)
    code.variable_lifetime = VariableLifetime(code.blocks)  # computed when it is asked for
    code.generator_info = None


def _decorator(template: Any) -> Any:
    """_OverloadFunctionTemplate._get_jit_decorator: numba's implementation of a function is a part
    of the kernels that call it."""

    def decorator(**options: Any) -> Any:
        def decorated(function: Any) -> Any:
            dispatcher = _numbas_decorator(template)(**options, no_cfunc_wrapper=True)(function)

            def compiled(signature: Any) -> Any:
                with libraries.part(function.__qualname__):
                    return type(dispatcher).compile(dispatcher, signature)

            dispatcher.compile = compiled
            dispatcher._insert = lambda *entry: None  # it has no wrapper that Python could call
            return dispatcher

        return decorated

    return decorator


def _see_later() -> None:
    """linalg.ensure_blas, as numba loads its functions on arrays: it would load SciPy, a tenth of a
    second, to see whether it is there. It will see when a kernel asks."""


@contextmanager
def ours() -> Iterator[None]:
    """Within, numba compiles and loads as this module says, for the thread that has its lock."""
    global _depth
    with global_compiler_lock:
        _depth += 1
        outermost = ACTS and _depth == 1
        # numba times each call of LLVM, ten thousands a kernel, for figures of its own.
        timers = tuple(getattr(ffi.lib._lock, "_cblist", ())) if outermost else ()
        try:
            if outermost:
                _put(_OURS)
                for timer in timers:
                    ffi.unregister_lock_callback(*timer)
                if "numba.np.arraymath" not in sys.modules:
                    _linalg.ensure_blas = _see_later
            yield
        finally:
            _depth -= 1
            if outermost:
                _put(_NUMBAS)
                for timer in timers:
                    ffi.register_lock_callback(*timer)


def _put(functions: dict[tuple[Any, str], Any]) -> None:
    for (owner, name), function in functions.items():
        setattr(owner, name, function)


_depth = 0  # of kernels, each compiled for another
_linalg: Any = linalg
_hashes: dict[type, int] = {}
_OURS: dict[tuple[Any, str], Any] = {
    (BaseFunction, "get_call_type"): _call_type,
    (TargetConfig, "__hash__"): _hash,
    (TargetConfig, "__eq__"): _equal,
    (PostProcessor, "run"): _process,
    (_OverloadFunctionTemplate, "_get_jit_decorator"): _decorator,
    (codegen.JITCPUCodegen, "create_library"): libraries.create_library,
    (linalg, "ensure_blas"): linalg.ensure_blas,
}
_NUMBAS = {(owner, name): getattr(owner, name) for owner, name in _OURS}
_numbas_call_type = _NUMBAS[BaseFunction, "get_call_type"]
_numbas_hash = _NUMBAS[TargetConfig, "__hash__"]
_numbas_equal = _NUMBAS[TargetConfig, "__eq__"]
_numbas_process = _NUMBAS[PostProcessor, "run"]
_numbas_decorator = _NUMBAS[_OverloadFunctionTemplate, "_get_jit_decorator"]
if ACTS:  # a kernel of others may call what one of ours made a part
    codegen.JITCPUCodegen._library_class = libraries.KernelLibrary
