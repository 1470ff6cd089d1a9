from __future__ import annotations

import sys

import pytest

from curate.products.needs import needs_training
from llmcurate.base.errors import RunFailed, UsageError


def test_an_error_of_ours_is_passed_on_where_pytorch_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "train.model.plugins", None)  # it would load PyTorch
    with pytest.raises(UsageError, match="no such preset"), needs_training():
        raise UsageError("no such preset")


def test_a_missing_package_is_named_with_how_to_install_it():
    says = r"needs torch: run pip install 'llmcurate\[train\]'"
    with pytest.raises(RunFailed, match=says), needs_training():
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
