"""The device that a model runs on, and the precision of its computations."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from llmcurate.base.disk.files import cache_folder
from llmcurate.base.disk.process import peak_bytes
from llmcurate.base.errors import UsageError

_NO_MPS = "a Mac's GPU has no float64, which losses and probabilities need here"


def pick_device(name: str) -> torch.device:
    """Return the device of this name. ``auto`` is CUDA if there is a GPU, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device {name!r}: choose auto, cpu or cuda") from error
    if device.type == "mps":
        raise UsageError(f"device {name!r}: {_NO_MPS}; use cpu")
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device {name!r}: choose auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {name!r}: this PyTorch sees no GPU; use cpu")
    return device


class _WithoutStart(TorchFunctionMode):
    """A context in which functions of torch.nn.init leave weights as they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def on_meta() -> Iterator[None]:
    """Build modules without memory, on the meta device. Their weights get no initial values,
    because drawing random ones would load torch's compiler, which takes seconds."""
    with torch.device("meta"), _WithoutStart():
        yield


def generation(device: torch.device) -> int:
    """Return the first number of a GPU's compute capability (Hopper: 9), or 0 if it is no GPU."""
    seen = device.type == "cuda" and torch.cuda.is_available()
    return torch.cuda.get_device_capability(device)[0] if seen else 0


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Return a context for a precision. With ``bf16``, or with ``auto`` on a GPU, matrix products
    and the residual stream are in bfloat16, but weights, norms and losses in float32. Otherwise
    everything is in float32."""
    dtype = computes_in(device, precision)
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def computes_in(device: torch.device, precision: str) -> torch.dtype:
    """Return the dtype of matrix products."""
    half = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if half else torch.float32


def in_products(x: torch.Tensor) -> torch.dtype:
    """Return the dtype that ``x`` has in matrix products: autocast's if it is on, else its own."""
    kind = x.device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return x.dtype
    return torch.get_autocast_dtype(kind)


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: of tensors on a GPU, or of the process on a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()


def keep_compiled() -> None:
    """Make torch.compile keep compiled code in llmcurate's cache for later runs, unless the user
    has set a folder. A temporary folder does not count as set by the user: PyTorch sets one by
    default when it is imported."""
    name, temporary = "TORCHINDUCTOR_CACHE_DIR", str(Path(gettempdir(), "torchinductor_"))
    with suppress(RuntimeError):  # the user has no home
        if os.environ.get(name, temporary).startswith(temporary):
            os.environ[name] = str(cache_folder() / "torch")


def uncompiled() -> AbstractContextManager[Any]:
    """Return a context in which compiled modules run as if they were not compiled. Otherwise they
    would be compiled again for the shapes of a scored or a generated text."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled; to load the compiler is slow
        return nullcontext()
    stance = getattr(torch.compiler, "set_stance", None)  # not in every PyTorch
    return nullcontext() if stance is None else stance("force_eager")


def device_notices(device: torch.device, deterministic: bool) -> list[str]:
    """Return lines for the log: a line if a Mac's GPU is not used, or a line if a repeated run
    would end with slightly different weights, because kernels of a GPU add numbers in the order in
    which their threads end."""
    if device.type == "cpu" and torch.backends.mps.is_available():
        return [f"on the CPU: {_NO_MPS}"]
    if device.type != "cuda" or deterministic:
        return []
    return [
        "a repeated run on a GPU differs in the last bits; deterministic=true makes it the same"
    ]


@contextmanager
def same_bits(device: torch.device, wanted: bool) -> Iterator[None]:
    """Make a GPU compute the same bits each time, if ``wanted``. A CPU always does. This turns on
    PyTorch's deterministic operations (an operation without a deterministic version raises
    ``RuntimeError``) and a fixed workspace for cuBLAS, and keeps the compiler from choosing kernels
    by their speed. Enter this context before the GPU is first used, because cuBLAS reads its
    setting once."""
    if not wanted or device.type != "cuda":
        yield
        return
    import torch._inductor.config as compiler

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    chooses = getattr(compiler, "deterministic", None)  # not in every PyTorch
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False
    if chooses is not None:
        compiler.deterministic = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filled
        if chooses is not None:
            compiler.deterministic = chooses
