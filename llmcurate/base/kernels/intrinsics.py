"""Small functions for use in kernels: prefetch, loads of eight bytes, hashes, search and copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from llmcurate.base.kernels import njit

_READ, _ALL_CACHES, _DATA = 0, 3, 1  # arguments of LLVM's llvm.prefetch


def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Load array.flat[at] into the processor's caches; kernels call `prefetch(array, at)`. The
    array is contiguous, and any index is allowed. Code that looks up many keys in a table larger
    than the caches prefetches the entries of all keys first. The processor then loads a dozen
    entries at the same time, whereas each plain load would delay the code after it."""

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
    """Return the bytes data[i : i + 8] (i: uint64) as a little-endian uint64, by a single load."""
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
    """Return the n < 8 bytes data[i : i + n] (i: uint64) as a little-endian uint64."""
    value = np.uint64(0)
    for k in range(n):
        value |= np.uint64(data[i + np.uint64(k)]) << np.uint64(8 * k)
    return value


@njit(nogil=True)
def lower_bound(values, value):
    """Return the index of the first of the ascending `values` that is not below `value`.
    np.searchsorted does the same, but takes ten times as long to compile."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True)
def sorted_index(values, value):
    """Return the index of a value in ascending values, or -1."""
    k = lower_bound(values, value)
    return k if k < len(values) and values[k] == value else -1


@njit(nogil=True)
def matches_at(data, at, end, word):
    """Return True if data[at:end] begins with the bytes of a word."""
    if at + len(word) > end:
        return False
    for k in range(len(word)):
        if data[at + k] != word[k]:
            return False
    return True


@njit(nogil=True)
def copy(source, a, z, out, at):
    """Copy source[a:z] to `out` from index `at` on (both 1-dimensional); return the next index."""
    for k in range(z - a):
        out[at + k] = source[a + k]
    return at + z - a


@njit(nogil=True, forceinline=True)
def mix_bits(value):
    """Return a uint64 whose bits each depend on many bits of `value`: one round of a hash."""
    value *= _K1
    value ^= value >> _SHIFT
    value *= _K2
    return value ^ (value >> _SHIFT)


@njit(nogil=True)
def hash_bytes(data, start, end):
    """Return a 64-bit hash of data[start:end]. Equal bytes have equal hashes."""
    value = np.uint64(end - start)
    i, stop = np.uint64(start), np.uint64(end)
    while i + np.uint64(8) <= stop:
        value = mix_bits(value ^ load8(data, i))
        i += np.uint64(8)
    if i < stop:
        value = mix_bits(value ^ load_few(data, i, stop - i))
    return mix_bits(value)
