"""ONNX models of texts. Nothing is downloaded, and no file of a model is run as code."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from llmcurate.base.errors import UsageError

# An export is in the folder itself or, from sentence-transformers and the hub, in onnx/.
ONNX = ("model.onnx", "onnx/model.onnx")
TOKENIZER = "tokenizer.json"


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


class OnnxText:
    """A model with inputs input_ids, attention_mask and perhaps token_type_ids. It runs one text at
    a time on one thread, so an output depends on no other text; several workers use more cores."""

    def __init__(self, folder: Path, max_tokens: int, what: str) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            self._session = onnxruntime.InferenceSession(
                str(onnx_file(folder)), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both raise plain Exceptions
            first = str(error).splitlines()[0][:200]
            raise UsageError(f"{what} cannot be loaded: {first}") from None
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        # Only 16 characters per token are read: a tokenizer would cut a whole book first.
        self._characters = 16 * max_tokens
        self._inputs = {i.name for i in self._session.get_inputs()}

    def run(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return (first output: float32[1, ...], attention mask: int64[1, tokens]) of a text."""
        encoding = self._tokenizer.encode(text[: self._characters])
        ids = np.array([encoding.ids or [0]], np.int64)
        mask = np.array([encoding.attention_mask or [1]], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        taken_inputs = {name: value for name, value in inputs.items() if name in self._inputs}
        return np.asarray(self._session.run(None, taken_inputs)[0], np.float32), mask
