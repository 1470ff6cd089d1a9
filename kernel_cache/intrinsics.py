"""Decorators of kernels that kernels call, and a prefetch instruction for them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernel_cache import njit

# Decorators of kernels that kernels call: without counted references to arrays, or with them.
#
# numba counts a reference wherever an array comes to a name, in loops and at calls, and an atomic
# addition costs more than a look-up in a table. A function that makes no array needs none:
# whoever called it holds them all. What it calls is compiled in the same way, so a function that
# makes arrays says so where a bare one calls it.

_BARE: dict[str, Any] = {"nogil": True, "_nrt": False}
_COUNTED: dict[str, Any] = {"nogil": True, "_nrt": True}

njit_bare = njit(**_BARE)
njit_within = njit(**_BARE, forceinline=True)  # a part of its caller: it takes whole tables
njit_counted = njit(**_COUNTED)


# A load from memory that nothing waits for.
#
# Compiled code that looks up many keys of a table larger than the caches asks for all of them
# first: the processor has a dozen loads on their way at once, where plain loads hold up what
# comes after.

_READ, _ALL_CACHES, _DATA = 0, 3, 1  # of LLVM's llvm.prefetch


def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    """prefetch(array, at) in kernels: has array.flat[at] brought into the caches; array:
    contiguous. An address that is not there does no harm."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, args[0])
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(held.data, [args[1]]), byte)
        builder.call(call, [place, *(ir.Constant(number, k) for k in (_READ, _ALL_CACHES, _DATA))])
        return context.get_dummy_value()

    return types.void(array, at), code


prefetch: Any = intrinsic(_prefetch)
