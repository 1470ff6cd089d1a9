"""An encoder-decoder writes what transformers' class writes, and a cache changes no token."""

from __future__ import annotations

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.train.hf.encoder_decoder_cases import CASES, spread
from tests.train.loop.small_runs import trained
from train.data.vocabulary import roles_of_run
from train.generate import GREEDY, Chooser, Sampling, Texts, complete
from train.hf.export import export

SOURCES = [[5], [7, 8, 9, 10, 11, 12], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]]


@torch.no_grad()
def without_cache(model, start: int, source: list[int], count: int, chooser: Chooser):
    tokens = [start]
    for _ in range(count):
        logits = model(torch.tensor([tokens]), source=torch.tensor([source]))[:, -1]
        tokens += chooser.choose(logits, [tokens])
    return tokens[1:]


@pytest.mark.lab
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_a_batch_with_a_cache_is_each_text_without(config, sampling):
    model = spread(config)
    texts = Texts(model, [[0]] * 3, sources=SOURCES)
    chooser = Chooser(sampling, 1, [0, 1, 2])
    for _ in range(12):
        texts.append(chooser.choose(texts.logits(), texts.known))
    for number, source in enumerate(SOURCES):
        alone = Chooser(sampling, 1, [number])
        assert texts.known[number][1:] == without_cache(model, 0, source, 12, alone)


@pytest.mark.lab
@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
@torch.no_grad()
def test_the_likeliest_text_is_that_of_transformers(config, tmp_path, small_tokenizer):
    transformers = pytest.importorskip("transformers")
    model = spread(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    architecture = export(run, tmp_path / "hf").architecture
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "hf").eval()
    tokenizer = load_tokenizer(small_tokenizer)
    model.special = roles_of_run(small_tokenizer, tokenizer)
    end = tokenizer.token_to_id("<|endoftext|>")
    prompts = ["the cat sat", "on the mat the cat"]
    ours = complete(model, tokenizer, prompts, max_tokens=12, sampling=GREEDY, seed=0)
    for prompt, completion in zip(prompts, ours, strict=True):
        source = torch.tensor([[*tokenizer.encode(prompt).ids, end]])
        mask = torch.ones_like(source)
        wrote = theirs.generate(source, attention_mask=mask, max_new_tokens=12, do_sample=False)
        tokens = wrote[0, 1:].tolist()
        tokens = tokens[: tokens.index(end)] if end in tokens else tokens
        assert tokenizer.decode(tokens, skip_special_tokens=False) == completion.text
        assert completion.tokens == len(tokens)


@pytest.mark.lab
def test_special_tokens_of_a_source_are_read_and_those_of_the_text_written(
    small_tokenizer, monkeypatch
):
    model, tokenizer = spread(CASES["t5"]), load_tokenizer(small_tokenizer)
    model.special = roles_of_run(small_tokenizer, tokenizer)
    tokenizer.add_special_tokens(["<extra_id_0>"])
    sentinel, end = map(tokenizer.token_to_id, ("<extra_id_0>", "<|endoftext|>"))
    read = []
    plain = model.encode
    monkeypatch.setattr(model, "encode", lambda s, *more: read.append(s) or plain(s, *more))
    complete(model, tokenizer, ["<extra_id_0>"], max_tokens=1, sampling=GREEDY, seed=0)
    assert read[0].tolist() == [[sentinel, end]]
    drawn = iter([[sentinel], [end]])
    monkeypatch.setattr(Chooser, "choose", lambda *_: next(drawn))
    wrote = complete(model, tokenizer, [""], max_tokens=3, sampling=GREEDY, seed=0)
    assert [(one.text, one.stopped) for one in wrote] == [("<extra_id_0>", "end")]


@pytest.mark.lab
def test_a_source_longer_than_the_positions_is_refused(small_tokenizer):
    words, tokenizer = ["the cat sat " * 60], load_tokenizer(small_tokenizer)
    bart, t5 = spread(CASES["bart"]), spread(CASES["t5"])
    bart.special = t5.special = roles_of_run(small_tokenizer, tokenizer)
    with pytest.raises(
        LlmcurateError, match="tokens, but the model's context is 64: give a shorter one"
    ):
        complete(bart, tokenizer, words, max_tokens=1, sampling=GREEDY, seed=0)
    complete(t5, tokenizer, words, max_tokens=1, sampling=GREEDY, seed=0)
