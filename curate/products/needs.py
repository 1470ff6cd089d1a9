"""Errors of training as a message of one line: missing packages and failures of plug-ins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llmcurate.base.errors import LlmcurateError, RunFailed


@contextmanager
def needs_training() -> Iterator[None]:
    """Raise RunFailed if a package that training needs is missing or a model's plug-in fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        extras = {"gguf": "gguf", "onnx": "onnx-export", "onnxscript": "onnx-export"}
        extras |= dict.fromkeys(("torch", "safetensors", "tokenizers", "sklearn"), "train")
        if error.name not in extras:
            raise
        fix = f"run pip install 'llmcurate[{extras[error.name]}]'"
        raise RunFailed(f"a model needs {error.name}: {fix}") from None
    except LlmcurateError:  # raised before PyTorch is imported below
        raise
    except Exception as error:
        from train.model.plugins import failure_of

        if (failure := failure_of(error)) is None:
            raise
        raise failure from None


@contextmanager
def needs_harness() -> Iterator[None]:
    """Raise RunFailed if a package of lm-evaluation-harness is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        fix = "run pip install 'llmcurate[lm-eval]'"
        raise RunFailed(f"tasks of lm-evaluation-harness need {error.name}: {fix}") from None
