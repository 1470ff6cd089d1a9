"""Parts of kernels: a prefetch instruction, loads of eight bytes at once, a hash of bytes; a search
and a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from llmcurate.base.kernels import njit

_READ, _ALL_CACHES, _DATA = 0, 3, 1  # of LLVM's llvm.prefetch


def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    """prefetch(array, at) in kernels: has array.flat[at] brought into the caches; array:
    contiguous. An address that is not there does no harm.

    Code that looks up many keys of a table larger than the caches asks for all of them first: the
    processor has a dozen loads on their way at once, where plain loads hold up what comes after.
    """

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

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


@njit(nogil=True, forceinline=True)
def load8(data, i):
    """Eight bytes from i (uint64), the first one lowest; the compiler makes it one load."""
    return (
        np.uint64(data[i])
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[i + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[i + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[i + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[i + np.uint64(7)]) << np.uint64(56))
    )


@njit(nogil=True)
def load_few(data, i, n):
    """The n < 8 bytes from i as `load8` places them."""
    value = np.uint64(0)
    for k in range(n):
        value |= np.uint64(data[i + np.uint64(k)]) << np.uint64(8 * k)
    return value


@njit(nogil=True)
def first_from(values, value):
    """Where the first of ascending values stands that is not below `value`: np.searchsorted, which
    takes ten times as long to compile."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True)
def place_of(values, value):
    """Where a value stands in ascending values, -1 if it is not there."""
    k = first_from(values, value)
    return k if k < len(values) and values[k] == value else -1


@njit(nogil=True)
def stands_at(data, at, end, word):
    """Whether the bytes of a word stand in data[:end] at that place."""
    if at + len(word) > end:
        return False
    for k in range(len(word)):
        if data[at + k] != word[k]:
            return False
    return True


@njit(nogil=True)
def copy(source, a, z, out, at):
    """Copies source[a:z] to `at` of out, of one dimension both; the place behind it."""
    for k in range(z - a):
        out[at + k] = source[a + k]
    return at + z - a


@njit(nogil=True, forceinline=True)
def stir(value):
    """A round of mixing that moves every bit of the value."""
    value *= _K1
    value ^= value >> _SHIFT
    value *= _K2
    return value ^ (value >> _SHIFT)


@njit(nogil=True)
def hash_bytes(data, start, end):
    """A 64-bit hash of data[start:end]; equal bytes, equal hash."""
    value = np.uint64(end - start)
    i, stop = np.uint64(start), np.uint64(end)
    while i + np.uint64(8) <= stop:
        value = stir(value ^ load8(data, i))
        i += np.uint64(8)
    if i < stop:
        value = stir(value ^ load_few(data, i, stop - i))
    return stir(value)
