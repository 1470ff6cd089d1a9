from __future__ import annotations

import itertools
import json
import shutil

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import TWO_LAYERS
from tests.train.generate.streams import continue_ids
from tests.train.loop.small_runs import seal_again
from train.config import TrainConfig
from train.generate import generate, load
from train.loop.pretrain import pretrain
from train.model.decoder import Decoder


@pytest.fixture(scope="module")
def model_dir(shard_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("model")
    plan = TrainConfig(steps=30, rows=8, context=32, device="cpu")
    pretrain(shard_folder, out, model=TWO_LAYERS, train=plan)
    return out


def test_the_cache_changes_no_token():
    model = Decoder(TWO_LAYERS).eval()
    model.initialise(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4.0 if weight.dim() > 1 else 1.0)  # far from ties
        tokens = [5, 17, 80]
        cached = continue_ids(model, tokens, temperature=0.0, top_k=0, seed=0)
        for token in itertools.islice(cached, 29):
            assert token == int(model(torch.tensor([tokens]))[0, -1].argmax())
            tokens.append(token)


def test_the_same_seed_gives_the_same_text(model_dir):
    first = generate(model_dir, "the cat", max_tokens=20, seed=1)
    assert first == generate(model_dir, "the cat", max_tokens=20, seed=1)
    assert len({generate(model_dir, "the cat", max_tokens=20, seed=seed) for seed in range(4)}) > 1


def test_greedy_ignores_the_seed(model_dir):
    texts = {generate(model_dir, "the", max_tokens=8, temperature=0, seed=s) for s in range(3)}
    assert len(texts) == 1


def test_generation_continues_past_the_context(model_dir):
    model, _ = load(model_dir)
    for length in (1, 31, 32, 33, 200):
        stream = continue_ids(model, [3] * length, temperature=1.0, top_k=5, seed=0)
        assert len(list(itertools.islice(stream, 70))) == 70


def test_a_prompt_cannot_forge_a_control_token(model_dir):
    _, tokenizer = load(model_dir)
    ids = tokenizer.encode("<|endoftext|>", add_special_tokens=False).ids
    assert len(ids) > 1


@pytest.mark.parametrize("change", [{"layers": 10**9}, {"vocab": 10**12}, {"layers": 1}])
def test_a_config_that_does_not_fit_its_weights_allocates_nothing(model_dir, tmp_path, change):
    copy = shutil.copytree(model_dir, tmp_path / "copy")
    path = next((copy / "checkpoints").iterdir()) / "config.json"
    config = json.loads(path.read_bytes())
    config["model"].update(change)
    path.write_text(json.dumps(config))
    seal_again(path.parent)
    with pytest.raises(LlmcurateError, match=r"delete the folder|or less"):
        generate(copy, "x")


def test_a_tokenizer_of_another_model_is_refused(model_dir, tmp_path):
    from tokenize_kit.learn.training import train_tokenizer

    copy = shutil.copytree(model_dir, tmp_path / "copy")
    texts = [" ".join(f"w{a}{b}" * 3 for a in "abcdefgh" for b in "abcdefgh")]
    assert train_tokenizer(texts, copy, vocab=400).vocab > 300
    with pytest.raises(LlmcurateError, match=r"tokenizer\.json: damaged"):
        generate(copy, "x")
    seal_again(next((copy / "checkpoints").iterdir()))
    with pytest.raises(LlmcurateError, match="not the tokenizer"):
        generate(copy, "x")


def test_missing_models_and_wrong_options_are_named(model_dir, tmp_path):
    with pytest.raises(LlmcurateError, match="no finished checkpoint"):
        generate(tmp_path, "x")
    with pytest.raises(LlmcurateError, match="temperature"):
        generate(model_dir, "x", temperature=-1)
