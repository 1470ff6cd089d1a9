"""What training needs beside this package: its absence, and failures of plug-ins, as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llmcurate.base.errors import LlmcurateError, RunFailed


@contextmanager
def needs_training() -> Iterator[None]:
    """Turns the absence of what `train` needs, and failures of a model's plug-ins, into
    RunFailed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors", "tokenizers", "sklearn"):
            raise
        raise RunFailed(f"a model needs {error.name}: pip install 'llmcurate[train]'") from None
    except LlmcurateError:  # before PyTorch is loaded to look at it
        raise
    except Exception as error:
        from train.model.plugins import failure_of

        if (failure := failure_of(error)) is None:
            raise
        raise failure from None
