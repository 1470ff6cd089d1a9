"""Rows whose tokens are shared out: each process's queries see what they see in whole rows."""

from __future__ import annotations

import pytest
import torch

from tests.train.attention.cases import MASKS, case, mask, untraced
from train.attention import ContextParallel, SharedMask, attend, positions_of
from train.config import TrainConfig
from train.loop.backends import layer_backends
from train.model.presets import preset
from train.objective_settings import Causal, Prefix

DOCUMENTS = torch.tensor([[0] * 5 + [1] * 9 + [2] * 10, [3] * 21 + [-1] * 3])
PREFIX = torch.zeros(2, 24, dtype=torch.bool)
PREFIX[:, [0, 1, 5, 6, 7, 8, 9, 14, 20]] = True


class Whole(ContextParallel):
    """A process that has the keys and values of all."""

    def gathered(self, k, v):
        return k, v


def parallel(rank, count=3):
    return Whole(group=None, rank=rank, count=count)


def test_each_token_is_one_processs_and_causal_work_is_the_same_for_all():
    tokens = torch.arange(24)[None]
    shares = [parallel(rank).own(tokens) for rank in range(3)]
    assert shares[1].tolist() == [[4, 5, 6, 7, 16, 17, 18, 19]]
    assert torch.cat(shares, dim=1).sort().values.equal(tokens)
    assert len({int((share + 1).sum()) for share in shares}) == 1  # keys that its queries see


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flex"])
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["one document", "documents"])
@pytest.mark.parametrize("kind", MASKS.values(), ids=MASKS)
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_queries_of_chunks_see_what_they_see_in_whole_rows(monkeypatch, backend, documents, kind):
    untraced(monkeypatch)
    q, k, v = case(queries=24, keys=24)
    positions = None if documents is None else positions_of(documents)
    kind = kind | ({"prefix": PREFIX} if "prefix" in kind else {})
    rows = mask(queries=24, keys=24, documents=documents, positions=positions, **kind)
    expected = attend(q, k, v, rows, "eager").transpose(1, 2)
    for rank in range(3):
        share = parallel(rank)
        own = share.own(q.transpose(1, 2)).transpose(1, 2)
        out = attend(own, k, v, SharedMask(parallel=share, rows=rows), backend).transpose(1, 2)
        torch.testing.assert_close(out, share.own(expected), rtol=1e-5, atol=1e-5)


def test_keys_that_no_query_of_a_chunk_sees_are_left_out():
    early, late = SharedMask(parallel=parallel(0), rows=mask(queries=24, keys=24)).chunks
    assert [(m.queries, m.keys, m.offset) for m in (early, late)] == [(4, 4, 0), (4, 24, 20)]
    rows = mask(queries=24, keys=24, prefix=PREFIX)
    early, _ = SharedMask(parallel=parallel(0), rows=rows).chunks
    assert (early.keys, early.offset, early.ahead) == (24, 0, 20)
    assert "ahead" in early.features


@pytest.mark.parametrize(("objective", "more"), [(Causal, set()), (Prefix, {"prefix", "ahead"})])
def test_back_ends_are_chosen_before_training_by_the_masks_of_chunks(objective, more):
    train = TrainConfig(objective=objective(), context_parallel=2)
    (row,) = layer_backends(preset("tiny"), train, torch.device("cpu"))
    assert set(row.mask) == {"causal", "documents", "offset"} | more
