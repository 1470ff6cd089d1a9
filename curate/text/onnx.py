"""Models of texts in ONNX: a session, a tokenizer, and the first output for a text.

Nothing is fetched, and nothing in the folder is run as code.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from llmcurate.base.errors import UsageError

# An export stands in the folder itself or, as sentence-transformers and the hub have it, in onnx/.
ONNX = ("model.onnx", "onnx/model.onnx")
TOKENIZER = "tokenizer.json"


def onnx_file(folder: Path) -> Path | None:
    """The model's file in a folder; None where there is none."""
    return next((folder / name for name in ONNX if (folder / name).is_file()), None)


def onnx_files(folder: Path, what: str) -> list[Path]:
    """All files that a model's output depends on; UsageError, which begins with `what`, where one
    or the library is absent."""
    model = onnx_file(folder)
    if model is None:
        raise UsageError(f"{what}: neither {ONNX[0]} nor {ONNX[1]} is there")
    if not (folder / TOKENIZER).is_file():
        raise UsageError(f"{what}: {TOKENIZER} is missing")
    if find_spec("onnxruntime") is None:
        raise UsageError(f"{what}: it needs onnxruntime: pip install 'llmcurate[onnx]'")
    beside = sorted(p for p in model.parent.glob("*.onnx*") if p.name.startswith("model.onnx"))
    return [*beside, folder / TOKENIZER]


class OnnxText:
    """A model with inputs input_ids, attention_mask and perhaps token_type_ids.

    One text at a time, on one thread, so that an output does not depend on its neighbours; workers
    are what makes use of more cores.
    """

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
        except Exception as error:  # both raise plain Exceptions of their own
            first = str(error).splitlines()[0][:200]
            raise UsageError(f"{what} cannot be loaded: {first}") from None
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        # About 16 bytes a token are looked at: tokenizers would cut a whole book first.
        self._characters = 16 * max_tokens
        self._inputs = {i.name for i in self._session.get_inputs()}

    def run(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(first output: float32[1, ...], attention mask: int64[1, tokens]) of a text."""
        encoding = self._tokenizer.encode(text[: self._characters])
        ids = np.array([encoding.ids or [0]], np.int64)
        mask = np.array([encoding.attention_mask or [1]], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        taken_inputs = {name: value for name, value in inputs.items() if name in self._inputs}
        return np.asarray(self._session.run(None, taken_inputs)[0], np.float32), mask
