"""ONNX models of texts. Nothing is downloaded, and no file of a model is run as code."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from llmcurate.base.errors import UsageError, first_line

# An export is in the folder itself or, from sentence-transformers and the hub, in onnx/.
ONNX = ("model.onnx", "onnx/model.onnx")
TOKENIZER = "tokenizer.json"
CUDA = "CUDAExecutionProvider"


def onnx_file(folder: Path) -> Path | None:
    """Return the ONNX file in a folder, or None."""
    return next((folder / name for name in ONNX if (folder / name).is_file()), None)


def onnx_files(folder: Path, what: str) -> list[Path]:
    """Return all files in a folder that a model's output depends on. Raises UsageError, which
    begins with `what`, if one of these files or the onnxruntime library is missing."""
    model = onnx_file(folder)
    if model is None:
        raise UsageError(f"{what}: neither {ONNX[0]} nor {ONNX[1]} exists")
    if not (folder / TOKENIZER).is_file():
        raise UsageError(f"{what}: {TOKENIZER} is missing")
    if find_spec("onnxruntime") is None:
        raise UsageError(f"{what}: it needs onnxruntime: pip install 'llmcurate[onnx]'")
    beside = sorted(p for p in model.parent.glob("*.onnx*") if p.name.startswith("model.onnx"))
    return [*beside, folder / TOKENIZER]


class TextStarts:
    """The first tokens of texts, by the tokenizer.json in a model's folder."""

    def __init__(self, folder: Path, max_tokens: int, what: str) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # a plain Exception
            raise UsageError(f"{what}: {TOKENIZER} cannot be loaded: {first_line(error)}") from None
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self.max_tokens = max_tokens

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text's first tokens, at least one. Only the first 16 * max_tokens
        characters are tokenized, and the whole text (perhaps a book) only if these give too few
        tokens."""
        characters = 16 * self.max_tokens
        ids: list[int] = self._tokenizer.encode(text[:characters]).ids
        if len(ids) < self.max_tokens and len(text) > characters:
            ids = self._tokenizer.encode(text).ids
        return ids or [0]


class OnnxText:
    """A model with inputs input_ids, attention_mask and perhaps token_type_ids. It runs on one
    thread, since several workers share the cores; if `gpu` is True, on a GPU if there is one."""

    def __init__(self, folder: Path, max_tokens: int, what: str, gpu: bool = False) -> None:
        import onnxruntime

        self.starts = TextStarts(folder, max_tokens, what)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.on_gpu = gpu and CUDA in onnxruntime.get_available_providers()
        providers = [CUDA] * self.on_gpu + ["CPUExecutionProvider"]
        try:
            self._session = onnxruntime.InferenceSession(
                str(onnx_file(folder)), options, providers=providers
            )
        except Exception as error:  # a plain Exception
            raise UsageError(f"{what} cannot be loaded: {first_line(error)}") from None
        self._inputs = {i.name for i in self._session.get_inputs()}

    def run(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return (first output: float32[1, ...], attention mask: int64[1, tokens]) of a text. The
        output depends on no other text."""
        ids = np.array([self.starts.ids(text)], np.int64)
        mask = np.ones_like(ids)
        return self.run_batch(ids, mask), mask

    def run_batch(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the first output, float32[rows, ...]. ids, mask: int64[rows, tokens]."""
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        taken_inputs = {name: value for name, value in inputs.items() if name in self._inputs}
        return np.asarray(self._session.run(None, taken_inputs)[0], np.float32)
