"""Dropout of a row's tokens does not depend on the batch or on the part computed."""

from __future__ import annotations

import numpy as np
import torch

from train.data.packing import mix64
from train.model.layers import Dropout, random_numbers, token_seeds

SEEDS = torch.tensor([5, -3, 2**62])


def seeds(length: int, hidden: int) -> torch.Tensor:
    return token_seeds(SEEDS, torch.arange(length)[None], hidden)


def test_the_numbers_are_splitmix64s():
    index = np.arange(1000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for site, seed in ((0, 5), (7, 2**62)):
        start = np.uint64((seed + site * 0x632BE59BD9B4E019) % 2**64)
        expected = mix64(start + index - np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
        ours = random_numbers(torch.tensor([seed]), Dropout(0.1, site).key, 1000)[0].numpy()
        assert (ours == expected.astype(np.int64)).all()


def test_so_many_are_dropped_as_asked_and_no_two_places_alike():
    x = torch.ones(3, 40, 500)
    parts = [Dropout(0.3, site)(x, seeds(40, 500)) for site in (0, 1)]
    for part in parts:
        shares = (part == 0).float().mean(dim=(1, 2))
        assert (shares - 0.3).abs().max() < 0.01
        assert part.max() == 1 / torch.tensor(0.7)
    for one, other in ((parts[0][0], parts[0][1]), (parts[0][0], parts[1][0])):
        both = ((one == 0) & (other == 0)).float().mean()
        assert abs(both - 0.09) < 0.01


def test_token_after_token_draws_what_the_row_draws():
    for row, whole in zip(
        random_numbers(seeds(4, 6), 7, 6), random_numbers(SEEDS, 7, 24), strict=True
    ):
        assert torch.equal(row.flatten(), whole)


def test_tokens_are_dropped_alike_in_any_batch_and_any_part_of_a_row():
    x = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(0))
    drop = Dropout(0.5, 4)
    draws = seeds(8, 16)
    whole = drop(x, draws)
    for part in ((slice(1, 2), slice(None)), (slice(None), slice(3, 5))):
        assert torch.equal(drop(x[part], draws[part]), whole[part])


def test_nothing_is_dropped_outside_training():
    x = torch.ones(1, 2, 3)
    assert Dropout(0.5, 0).eval()(x, None) is x
