"""Compilation without work that numba does again or in vain.

Two thirds of a kernel's compile time is Python. For each operation numba tries the signatures of a
function in turn, twenty for an addition, and compares all options of the compilation with those of
earlier ones; it analyses which variables live at each of a dozen passes, for generators alone; and
it makes machine code of each of its own functions that a kernel calls. Here an answer is kept,
what nobody reads is neither computed nor loaded, and numba's functions are parts as ours are
(libraries.py). It rests on numba's internals: tests/kernel_cache say when another version breaks
it.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite.binding import ffi
from numba.core import transforms
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import TargetConfig
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.np import linalg

from kernel_cache import libraries


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
    """TargetConfig.__hash__; as numba's, which is of the options' names, it is one for all."""
    return hash(TargetConfig)


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
    """linalg.ensure_blas, the first time: as numba loads its functions on arrays it loads SciPy,
    which takes a tenth of a second, to see whether it is there. It will see when a kernel asks."""
    _linalg.ensure_blas = _numbas_ensure_blas


_linalg: Any = linalg
_function: Any = BaseFunction
_options: Any = TargetConfig
_processor: Any = PostProcessor
_template: Any = _OverloadFunctionTemplate
_numbas_call_type = _function.get_call_type
_numbas_equal = _options.__eq__
_numbas_process = _processor.run
_numbas_ensure_blas = _linalg.ensure_blas
_numbas_decorator = _template._get_jit_decorator
_function.get_call_type = _call_type
_options.__hash__ = _hash
_options.__eq__ = _equal
_processor.run = _process
if "numba.np.arraymath" not in sys.modules:
    _linalg.ensure_blas = _see_later
_template._get_jit_decorator = _decorator
# numba times each call of LLVM, of which a kernel makes ten thousands, for figures of its own.
for callbacks in tuple(getattr(ffi.lib._lock, "_cblist", ())):
    ffi.unregister_lock_callback(*callbacks)
