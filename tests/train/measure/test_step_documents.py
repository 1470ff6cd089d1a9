"""A step is traced to its documents, from the plan and the shards alone."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from llmcurate.base.errors import LlmcurateError
from tests.train.data.causal_rows import causal
from tests.train.data.feed_settings import MODEL, PLAIN
from train.config import Source, Stage
from train.data.feed import Feed
from train.data.shards import read_shards
from train.loop.pretrain import pretrain
from train.measure.step_documents import documents_of_step


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced")
    shards = shutil.copytree(shard_folder, folder / "web")
    stages = (Stage(steps=4, name="first"), Stage(steps=2, sources=(Source(shards=str(shards)),)))
    plan = dataclasses.replace(PLAIN, stages=stages, eval_every=6)
    pretrain(shards, folder / "out", model=MODEL, train=plan)
    return folder, plan


@pytest.mark.parametrize("step", [1, 4, 5])
def test_a_step_names_the_documents_of_its_batch_and_their_tokens(run, step):
    folder, plan = run
    answer = documents_of_step(folder / "out", step)
    feed = Feed(folder / "web", plan)
    batch = causal(feed.rows, feed.row_numbers(step - 1))
    numbers = [n for n in batch.documents.flatten().tolist() if n >= 0]
    assert answer.tokens == len(numbers) and answer.rows == len(batch.inputs)
    named = {document.id: document.tokens for document in answer.documents}
    assert named == {f"doc-{n}": numbers.count(n) for n in numbers}
    assert answer.stage == ("first" if step < 5 else "stage 2")
    assert {document.shards for document in answer.documents} == {"web"}


@pytest.mark.parametrize("step", [0, 7])
def test_a_step_outside_the_run_is_refused(run, step):
    with pytest.raises(LlmcurateError, match="the run has steps 1 to 6") as caught:
        documents_of_step(run[0] / "out", step)
    assert caught.value.exit_code == 2


def test_shards_may_have_moved_but_must_be_the_same(run, tmp_path):
    folder, _ = run
    out = shutil.copytree(folder / "out", tmp_path / "out")
    moved = shutil.copytree(folder / "web", tmp_path / "elsewhere")
    assert documents_of_step(out, 3, moved) == documents_of_step(folder / "out", 3)
    manifest = json.loads((moved / "manifest.json").read_bytes())
    (moved / "manifest.json").write_text(json.dumps(manifest))
    assert read_shards(moved).documents == 40
    with pytest.raises(LlmcurateError, match="not the shards that"):
        documents_of_step(out, 3, moved)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"version": 1}'])
def test_a_damaged_list_of_folders_is_named(run, tmp_path, damage):
    out = shutil.copytree(run[0] / "out", tmp_path / "out")
    (out / "shards.json").write_bytes(damage)
    with pytest.raises(LlmcurateError, match=r"shards\.json: cannot be read"):
        documents_of_step(out, 1)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(LlmcurateError, match="no finished checkpoint"):
        documents_of_step(tmp_path, 1)
