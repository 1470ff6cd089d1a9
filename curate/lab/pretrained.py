"""Models of transformers in local folders. Nothing is downloaded, weights must be in safetensors
format, and no code in a folder is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from curate.text.onnx import TextStarts
from llmcurate.base.errors import UsageError, first_line


def most_tokens(config: Any, max_tokens: int) -> int:
    """Return `max_tokens`, or the model's own limit on tokens (by its config) if that is lower."""
    most = getattr(config, "max_position_embeddings", None) or max_tokens
    # RoBERTa's positions begin after that of the padding.
    roberta = config.model_type in ("roberta", "xlm-roberta")
    return min(max_tokens, most - (config.pad_token_id or 0) - 1 if roberta else most)


class Pretrained:
    """A model of transformers in 32-bit floats, loaded from a folder. `missing` names weights that
    the folder lacks. With `gpu`, the model runs on a GPU if there is one. On a CPU, the model uses
    one thread, since other workers use the other cores."""

    def __init__(
        self, folder: Path, auto_class: str, max_tokens: int, what: str, gpu: bool = False
    ) -> None:
        import torch
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self._torch, self.on_gpu = torch, gpu and torch.cuda.is_available()
        try:
            model, info = getattr(transformers, auto_class).from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, use_safetensors=True,
                dtype=torch.float32, output_loading_info=True,
            )  # fmt: skip
        except Exception as error:  # the library raises many kinds
            raise UsageError(f"{what} cannot be loaded: {first_line(error)}") from None
        self.missing: list[str] = sorted(info["missing_keys"])
        self.model: Any = model.eval().to("cuda" if self.on_gpu else "cpu")
        self.starts = TextStarts(folder, most_tokens(model.config, max_tokens), what)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Run models without gradients and, on a CPU, on one thread."""
        threads = self._torch.get_num_threads()
        self._torch.set_num_threads(1)
        try:
            with self._torch.inference_mode():
                yield
        finally:
            self._torch.set_num_threads(threads)

    def run_batch(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the `logits`, float32[rows, ...], of `ids` and `mask`: int64[rows, tokens]."""
        with self.inference():
            on_device = [self._torch.from_numpy(v).to(self.model.device) for v in (ids, mask)]
            logits = self.model(input_ids=on_device[0], attention_mask=on_device[1]).logits
            return np.asarray(logits.cpu().numpy())
