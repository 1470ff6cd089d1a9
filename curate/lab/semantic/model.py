"""Embeddings from a model in a local folder: ONNX, sentence-transformers or transformers.

Nothing is downloaded, and no code in the folder is run: weights must be ONNX or safetensors.
transformers runs a folder of sentence-transformers, if its modules are a transformer and pooling.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.text.onnx import TOKENIZER, OnnxText, onnx_file, onnx_files
from llmcurate.base.errors import UsageError

POOLING = "1_Pooling/config.json"
MODULES = "modules.json"
PLAIN_MODULES = ["Transformer", "Pooling", "Normalize"]  # modules that transformers can replace
CONFIG = "config.json"
# Names of poolings, before version 6 of sentence-transformers and since, and the position of the
# token whose vector is used; None: the mean of all tokens.
POOLS = {
    **{"pooling_mode_mean_tokens": None, "mean": None},
    **{"pooling_mode_cls_token": 0, "cls": 0},
    **{"pooling_mode_lasttoken": -1, "lasttoken": -1},
}


class Embedder:
    """A model that turns texts into vectors. `size` is their number of dimensions."""

    size: int

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return float32[texts, size]."""
        raise NotImplementedError

    def column(self, text: pa.LargeStringArray) -> pa.FixedSizeListArray:
        """Return float32 vectors; null for a text that is null, empty or white space."""
        texts = text.to_pylist()
        mask = np.array([bool(t and t.strip()) for t in texts], np.bool_)
        flat = np.zeros((len(mask), self.size), np.float32)
        if mask.any():
            flat[mask] = self.vectors([texts[row] for row in np.flatnonzero(mask)])
        values = pa.array(flat.reshape(-1))
        return pa.FixedSizeListArray.from_arrays(values, self.size, mask=pa.array(~mask))


def model_files(folder: Path, label: str) -> list[Path]:
    """Return a model's files that determine its vectors. Raises UsageError if the model is
    unusable."""
    if not folder.is_dir():
        raise UsageError(
            f"{label}: embedding {folder}: no such folder; give a model's folder, or `hashed`"
        )
    if onnx_file(folder) is not None:
        files = onnx_files(folder, f"{label}: embedding {folder}")
        return [*files, *(p for p in (folder / POOLING,) if p.is_file())]
    if not (folder / CONFIG).is_file() and not (folder / MODULES).is_file():
        raise UsageError(
            f"{label}: embedding {folder}: has neither model.onnx nor {MODULES} nor {CONFIG}"
        )
    if (folder / MODULES).is_file():
        _check_modules(folder, label)
    if find_spec("transformers") is None:
        raise UsageError(
            f"{label}: embedding from this model needs transformers: pip install 'llmcurate[embed]'"
        )
    if not (folder / TOKENIZER).is_file():
        raise UsageError(f"{label}: embedding {folder}: {TOKENIZER} is missing")
    if not any(folder.rglob("*.safetensors")):
        raise UsageError(f"{label}: embedding {folder}: no weights in safetensors format")
    return sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".safetensors", ".txt"))


def _check_modules(folder: Path, label: str) -> None:
    """Raise UsageError if transformers cannot run the modules of a sentence-transformers model."""
    try:
        modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
        types = [module["type"].rsplit(".", 1)[-1] for module in modules]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(f"{label}: embedding {folder}: {MODULES} cannot be read") from None
    if types not in (PLAIN_MODULES, PLAIN_MODULES[:2]):
        raise UsageError(
            f"{label}: embedding {folder}: {MODULES} names {', '.join(types)}; only a Transformer,"
            " Pooling and Normalize can be used"
        )
    for file, name in (
        ("config_sentence_transformers.json", "default_prompt_name"),
        ("sentence_bert_config.json", "do_lower_case"),
    ):
        if _settings(folder / file).get(name):
            raise UsageError(f"{label}: embedding {folder}: {file}: {name} is not supported")


def _settings(file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def load(folder: Path, max_tokens: int, label: str) -> Embedder:
    """Return the model in a folder. Raises UsageError if it cannot be used."""
    model_files(folder, label)
    if onnx_file(folder) is not None:
        return OnnxModel(folder, max_tokens, label)
    return TransformersModel(folder, max_tokens, label)


class OnnxModel(Embedder):
    """A model in ONNX format. If its first output has one vector per token, these are pooled: to
    their mean over the attention mask, or to the token that 1_Pooling/config.json selects."""

    def __init__(self, folder: Path, max_tokens: int, label: str) -> None:
        self._model = OnnxText(folder, max_tokens, f"{label}: embedding {folder}")
        self._token = _pooled_token(folder, label)
        self.size = len(self._vector("a"))

    def _vector(self, text: str) -> np.ndarray:
        out, mask = self._model.run(text)
        if out.ndim == 2:
            return out[0]
        if self._token is not None:
            return out[0, self._token]
        weights = mask[0].astype(np.float32)
        pooled: np.ndarray = (out[0] * weights[:, None]).sum(axis=0) / max(weights.sum(), 1.0)
        return pooled

    def vectors(self, texts: list[str]) -> np.ndarray:
        return np.array([self._vector(text) for text in texts], np.float32)


def _pooled_token(folder: Path, label: str, default: int | None = None) -> int | None:
    settings = _settings(folder / POOLING)
    modes = [name for name in settings if name[:13] == "pooling_mode_" and settings[name] is True]
    modes = settings.get("pooling_mode", modes)
    modes = [modes] if isinstance(modes, str) else modes
    if not modes:
        return default
    if len(modes) > 1 or modes[0] not in POOLS:
        raise UsageError(
            f"{label}: embedding {folder}: {POOLING} asks for {' and '.join(map(str, modes))}, but"
            " only the mean, the first or the last token is supported"
        )
    return POOLS[modes[0]]


class TransformersModel(Embedder):
    """A transformers folder, such as `llmcurate export --format hf` writes. The vector of a text is
    the mean over its tokens or, for a decoder, that of the last token (as SemDeDup does for OPT);
    1_Pooling/config.json can change this. Texts run one at a time on one thread, so no vector
    depends on another text."""

    def __init__(self, folder: Path, max_tokens: int, label: str) -> None:
        import torch

        from curate.lab.pretrained import Pretrained

        limits = (
            _settings(folder / "sentence_bert_config.json").get("max_seq_length"),
            _settings(folder / "tokenizer_config.json").get("model_max_length"),
        )
        least = [int(limit) for limit in limits if limit and (folder / MODULES).is_file()]
        what = f"{label}: embedding {folder}"
        self._pretrained = Pretrained(folder, "AutoModel", min([max_tokens, *least]), what)
        config, model = self._pretrained.model.config, self._pretrained.model
        self._torch = torch
        self._model = model.get_encoder() if config.is_encoder_decoder else model
        decoder = any("CausalLM" in name or "LMHead" in name for name in config.architectures or ())
        self._token = _pooled_token(folder, label, -1 if decoder else None)
        self.size = len(self.vectors(["a"])[0])

    def vectors(self, texts: list[str]) -> np.ndarray:
        vectors = []
        with self._pretrained.inference():
            for text in texts:
                ids = self._torch.tensor([self._pretrained.starts.ids(text)])
                out = self._model(input_ids=ids).last_hidden_state[0]
                vector = out.mean(dim=0) if self._token is None else out[self._token]
                vectors.append(vector.numpy())
        return np.array(vectors, np.float32)
