"""Embeddings from a model in a local folder: ONNX, sentence-transformers or transformers.

Nothing is downloaded, and no code in the folder is run: weights must be ONNX or safetensors, and
modules and classes must be those of sentence-transformers and transformers.
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

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
BATCH = 32  # texts per batch of sentence-transformers


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    def column(self, text: pa.LargeStringArray) -> pa.FixedSizeListArray:
        """Return float32 vectors; null for a text that is null, empty or white space."""
        ...


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
    if (folder / MODULES).is_file():
        try:
            modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
            types = [module["type"] for module in modules]
            foreign = [kind for kind in types if not kind.startswith("sentence_transformers.")]
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise UsageError(f"{label}: embedding {folder}: {MODULES} cannot be read") from None
        if foreign:
            raise UsageError(
                f"{label}: embedding {folder}: {MODULES} needs foreign code: {foreign[0]}"
            )
    elif not (folder / CONFIG).is_file():
        raise UsageError(
            f"{label}: embedding {folder}: has neither model.onnx nor {MODULES} nor {CONFIG}"
        )
    library = "sentence_transformers" if _needs_sentence_transformers(folder) else "transformers"
    if find_spec(library) is None:
        raise UsageError(
            f"{label}: embedding from this model needs {library}: pip install 'llmcurate[embed]'"
        )
    if library == "transformers" and not (folder / TOKENIZER).is_file():
        raise UsageError(f"{label}: embedding {folder}: {TOKENIZER} is missing")
    if not any(folder.rglob("*.safetensors")):
        raise UsageError(f"{label}: embedding {folder}: no weights in safetensors format")
    return sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".safetensors", ".txt"))


def _needs_sentence_transformers(folder: Path) -> bool:
    """Return True to use sentence-transformers: if it is installed, or if transformers cannot run
    the folder's modules because they are more than a transformer, pooling and normalisation."""
    if not (folder / MODULES).is_file():
        return False
    modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
    types = [module["type"].rsplit(".", 1)[-1] for module in modules]
    extras = (
        _settings(folder / "config_sentence_transformers.json").get("default_prompt_name"),
        _settings(folder / "sentence_bert_config.json").get("do_lower_case"),
    )
    plain = (
        types in (PLAIN_MODULES, PLAIN_MODULES[:2])
        and (folder / CONFIG).is_file()
        and not any(extras)
    )
    return not plain or find_spec("sentence_transformers") is not None


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
    if _needs_sentence_transformers(folder):
        return SentenceModel(folder, max_tokens)
    return TransformersModel(folder, max_tokens, label)


def _nonempty_texts(text: pa.LargeStringArray) -> tuple[list[str], np.ndarray]:
    texts = text.to_pylist()
    mask = np.array([bool(t and t.strip()) for t in texts], np.bool_)
    return [t for t, present in zip(texts, mask.tolist(), strict=True) if present], mask


def _column(vectors: np.ndarray, mask: np.ndarray, size: int) -> pa.FixedSizeListArray:
    flat = np.zeros((len(mask), size), np.float32)
    flat[mask] = vectors
    values = pa.array(flat.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, size, mask=pa.array(~mask))


class OnnxModel:
    """A model in ONNX format. If its first output has one vector per token, these are pooled: to
    their mean over the attention mask, or to the token that 1_Pooling/config.json selects."""

    def __init__(self, folder: Path, max_tokens: int, label: str) -> None:
        self._model = OnnxText(folder, max_tokens, f"{label}: embedding {folder}")
        self._token = _pooled_token(folder, label)
        self._size = len(self._vector("a"))

    def _vector(self, text: str) -> np.ndarray:
        out, mask = self._model.run(text)
        if out.ndim == 2:
            return out[0]
        if self._token is not None:
            return out[0, self._token]
        weights = mask[0].astype(np.float32)
        pooled: np.ndarray = (out[0] * weights[:, None]).sum(axis=0) / max(weights.sum(), 1.0)
        return pooled

    def column(self, text: pa.LargeStringArray) -> pa.FixedSizeListArray:
        texts, mask = _nonempty_texts(text)
        vectors = np.array([self._vector(t) for t in texts], np.float32)
        return _column(vectors.reshape(-1, self._size), mask, self._size)


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


class SentenceModel:
    """A sentence-transformers folder, run by that package. The package pads the texts of a batch to
    one length, so the last bits of a vector may depend on the other texts."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        from sentence_transformers import SentenceTransformer

        self._model: Any = SentenceTransformer(
            str(folder), local_files_only=True, trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )  # fmt: skip
        most = self._model.max_seq_length
        if most is None or most > max_tokens:
            with suppress(AttributeError):  # static embeddings have no limit
                self._model.max_seq_length = max_tokens
        self._characters = 16 * max_tokens
        self._size = len(self._model.encode(["a"], show_progress_bar=False)[0])

    def column(self, text: pa.LargeStringArray) -> pa.FixedSizeListArray:
        texts, mask = _nonempty_texts(text)
        vectors = np.zeros((0, self._size), np.float32)
        if texts:
            cut = [t[: self._characters] for t in texts]
            vectors = self._model.encode(
                cut, batch_size=BATCH, convert_to_numpy=True, show_progress_bar=False
            )
        return _column(np.asarray(vectors, np.float32), mask, self._size)


class TransformersModel:
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
        self._size = len(self._vectors(["a"])[0])

    def _vectors(self, texts: list[str]) -> np.ndarray:
        vectors = []
        with self._pretrained.inference():
            for text in texts:
                ids = self._torch.tensor([self._pretrained.starts.ids(text)])
                out = self._model(input_ids=ids).last_hidden_state[0]
                vector = out.mean(dim=0) if self._token is None else out[self._token]
                vectors.append(vector.numpy())
        return np.array(vectors, np.float32)

    def column(self, text: pa.LargeStringArray) -> pa.FixedSizeListArray:
        texts, mask = _nonempty_texts(text)
        return _column(self._vectors(texts).reshape(-1, self._size), mask, self._size)
