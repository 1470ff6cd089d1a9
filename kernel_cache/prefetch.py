"""Prefetching: a load from memory that nothing waits for.

Compiled code that looks up many keys of a table larger than the caches asks for all of them first:
the processor has a dozen loads on their way at once, where plain loads hold up what comes after.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

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
