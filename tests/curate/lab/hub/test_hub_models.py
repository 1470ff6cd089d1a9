"""Models of the Hugging Face hub: downloaded at a commit, and then used without the hub."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from curate.lab.scoring.classifier import Classifier
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench
from tests.curate.lab.hub.hub_server import Hub
from tests.curate.onnx_models import onnx_model, write_model

WORDS = ["[UNK]", "bad", "good"]


def classifier(folder: Path, good: float) -> dict[str, bytes]:
    """The files of a model whose score is the mean of the words' values, and others."""
    write_model(folder, onnx_model(np.array([[0], [0], [good]], np.float32), mean=True), WORDS)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["onnx/model.onnx"] = files.pop("model.onnx")
    return files | {"README.md": b"A card.", "training_args.bin": b"code", "model.safetensors": b""}


def test_a_classifier_is_downloaded_at_its_commit_and_read_without_the_hub_later(
    hub: Hub, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'llmcurate[onnx]'")
    monkeypatch.setitem(sys.modules, "transformers", None)  # or the safetensors would be taken
    first = hub.put("org/edu", classifier(bench.folder / "a", 4), "model")
    source = bench.jsonl("in.jsonl", [{"id": text, "text": text} for text in WORDS[1:]])

    def kept(model: str) -> list[str]:
        bench.run([{"classifier": {"model": model, "threshold": 3}}], source)
        return bench.ids()

    assert kept("org/edu") == ["good"]
    files = {path.partition(f"resolve/{first}/")[2] for _, path in hub.asked if "resolve" in path}
    assert files == {"config.json", "tokenizer.json", "onnx/model.onnx"}
    hub.put("org/edu", classifier(bench.folder / "b", 2), "model")
    assert kept("org/edu") == [] and kept(f"org/edu@{first}") == ["good"]
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")
    before = len(hub.asked)
    assert kept(f"org/edu@{first}") == ["good"] and len(hub.asked) == before
    with pytest.raises(UsageError, match=r"^classifier: model org/other: neither a folder nor in"):
        Classifier(model="org/other").identity()


def test_a_model_that_the_hub_lacks_is_a_one_line_error(hub: Hub) -> None:
    hub.put("org/edu", {"config.json": b"{}"}, "model")
    for model, message in (("org/none", "there is no such repository"), ("org/edu@v9", "revision")):
        with pytest.raises(UsageError, match=message) as caught:
            Classifier(model=model).identity()
        assert str(caught.value).startswith(f"classifier: model {model}: ")
        assert "\n" not in str(caught.value)


def test_a_repository_with_onnx_alone_is_used_also_where_transformers_is_installed(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'llmcurate[onnx]'")
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    sys.modules["transformers"].__spec__ = ModuleSpec("transformers", None)
    files = classifier(tmp_path / "model", 4)
    del files["model.safetensors"]
    hub.put("org/onnx", files, "model")
    used = {Path(path).name for path in Classifier(model="org/onnx").resources()}
    assert used == {"model.onnx", "config.json", "tokenizer.json"}
