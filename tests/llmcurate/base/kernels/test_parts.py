"""Parts of kernels: they borrow their arrays, and Python cannot call them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numba
import numpy as np
import pytest

from llmcurate.base.kernels import compilation, njit

Tables = namedtuple("Tables", "first second")
NUMBERS = np.arange(9)
ROOT = Path(__file__).parents[4]


def _largest(tables, n):
    best = np.int64(0)
    for k in range(n):
        table = tables.first if k & 1 else tables.second
        if table[k] > best:
            best = table[k]
    return best


def _half(numbers):
    return numbers[: len(numbers) // 2]


def _halves(numbers):
    return numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]


def _same(numbers):
    return numbers


def _room(numbers):
    return np.empty(len(numbers))


first_half = njit(allocates=True)(_half)


@pytest.mark.parametrize("allocates", [False, True])
def test_a_part_counts_references_if_it_says_that_it_allocates(allocates):
    """numba counts those that a loop takes out of a tuple; that is what costs."""
    part = njit(allocates=allocates)(_largest)
    kernel = numba.njit(lambda tables, n: part(tables, n))
    assert kernel(Tables(NUMBERS, NUMBERS[::-1].copy()), 9) == 8
    (text,) = part.inspect_llvm().values()
    assert ("@NRT_incref" in text.split("define")[1]) == allocates


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (_same, "_same gets arrays from _same: give it njit"),
        (_halves, "_halves gets arrays from _halves"),
        (_half, "Only accept returning of array"),
        (_room, "Only accept returning of array"),
    ],
)
def test_a_part_that_makes_or_returns_arrays_has_to_say_so(function, error):
    borrows, allocates = njit()(function), njit(allocates=True)(function)
    with pytest.raises((TypeError, numba.TypingError), match=error):
        numba.njit(lambda numbers: len(borrows(numbers)))(NUMBERS)
    assert numba.njit(lambda numbers: len(allocates(numbers)))(NUMBERS) in (2, 4, 9)


def test_a_part_that_gets_arrays_from_another_has_to_say_so():
    def length(numbers):
        return len(first_half(numbers))

    borrows, allocates = njit()(length), njit(allocates=True)(length)
    with pytest.raises(TypeError, match="length gets arrays from _half"):
        numba.njit(lambda numbers: borrows(numbers))(NUMBERS)
    assert numba.njit(lambda numbers: allocates(numbers))(NUMBERS) == 4


def test_a_kernel_part_cannot_be_called_from_python():
    part = njit()(_largest)
    tables = Tables(NUMBERS, NUMBERS)
    for _ in range(2):  # before and after it has been compiled into a kernel
        with pytest.raises(TypeError, match="_largest can be called by kernels only"):
            part(tables, 9)
        assert numba.njit(lambda tables, n: part(tables, n))(tables, 9) == 8


def test_a_part_says_what_is_wrong_with_its_arguments():
    def positive(n):
        if n < 0:
            raise ValueError("below 0", n)
        return n

    part = njit(allocates=True)(positive)
    kernel = njit(cache=True)(lambda n: part(n))
    assert kernel(4) == 4
    with pytest.raises(ValueError, match="below 0") as error:
        kernel(-7)
    assert error.value.args == ("below 0", -7)


def test_a_kernel_part_is_compiled_only_into_its_kernel():
    inner = njit()(lambda n: n + 1)
    outer = njit()(lambda n: inner(n) * 2)
    kernel = njit(cache=True)(lambda n: outer(n))
    assert kernel(4) == 10
    for function, defined in ((inner, False), (outer, False), (kernel, True)):
        (compiled,) = function.overloads.values()
        engine = compiled.target_context.codegen()._engine
        assert engine.is_symbol_defined(compiled.fndesc.llvm_func_name) == defined


def test_scipy_is_loaded_by_the_first_kernel_that_uses_linear_algebra():
    """Not by the first one of any kind, which takes a tenth of a second longer."""
    script = """
import sys, numpy as np
from llmcurate.base.kernels import compilation, njit
assert njit(cache=True)(lambda numbers: numbers.sum())(np.ones(3)) == 3.0
assert "scipy.linalg" not in sys.modules
assert njit(cache=True)(lambda numbers: np.dot(numbers, numbers))(np.ones(3)) == 3.0
"""
    subprocess.run([sys.executable, "-c", script], timeout=120, check=True, cwd=ROOT)


def test_kernels_of_other_packages_are_compiled_by_unchanged_numba():
    njit(cache=True)(lambda numbers: np.diff(numbers).sum())(NUMBERS)  # np.diff is a part of it
    for (owner, name), own in compilation._ORIGINALS.items():
        assert getattr(owner, name) is own, name
    library = compilation.libraries.PartLibrary
    kernel = numba.njit(lambda numbers: np.cross(numbers[:3], numbers[3:6]).sum())
    assert kernel(NUMBERS) == 0
    (compiled,) = kernel.overloads.values()
    assert not any(isinstance(other, library) for other in compiled.library._linking_libraries)
    # One that calls what a kernel of ours has made a part takes it with all that it calls.
    assert numba.njit(lambda numbers: np.diff(numbers).sum() + 1)(NUMBERS) == 9


def test_on_another_version_of_numba_kernels_are_compiled_as_it_does(tmp_path):
    script = """
import numba
numba.__version__ = "0.99.0"
from llmcurate.base.kernels import compilation, njit
part = njit()(lambda n: n + 1)
kernel = njit(cache=True)(lambda n: part(n) * 2)
assert kernel(4) == 10 and not compilation.ENABLED
with compilation.patched():
    for (owner, name), own in compilation._ORIGINALS.items():
        assert getattr(owner, name) is own, name
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = [sys.executable, "-c", script]
    subprocess.run(done, timeout=120, check=True, cwd=ROOT, env=environment)
