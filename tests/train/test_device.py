from __future__ import annotations

import torch

from train.device import same_bits


def test_deterministic_mode_is_set_only_on_a_gpu_and_only_while_requested(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # a user's own stays
    asked = torch.are_deterministic_algorithms_enabled
    for name, wanted, expected in (
        ("cpu", True, False),
        ("cuda", False, False),
        ("cuda", True, True),
    ):
        with same_bits(torch.device(name), wanted):
            assert asked() is expected
        assert not asked()


def test_deterministic_mode_is_restored_after_an_error():
    filled = torch.utils.deterministic.fill_uninitialized_memory
    try:
        with same_bits(torch.device("cuda"), True):
            raise KeyError
    except KeyError:
        pass
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory == filled
