"""The weights of a finished training."""

from __future__ import annotations

from safetensors.torch import load_file

from train.runs.checkpoint import complete


def weights(folder):
    return load_file(complete(folder / "checkpoints")[-1] / "model.safetensors")
