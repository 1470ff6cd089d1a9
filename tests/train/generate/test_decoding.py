"""Decoding in batches with a cache equals decoding one text at a time without one."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.settings import change as changed
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.parameters import few
from tests.train.generate.streams import continue_ids
from tests.train.loop.small_runs import build
from train.data.vocabulary import roles_of_run
from train.device import autocast
from train.generate import GREEDY, Chooser, Sampling, Texts, complete, unbounded
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Dense
from train.model.position_settings import POSITIONS

SHAPE = ModelConfig(
    vocab=61,
    layers=2,
    hidden=32,
    context=24,
    attention=Grouped(heads=4, kv_heads=2, head_dim=8),
    feed_forward=Dense(width=48),
)
KINDS: dict[str, dict] = {
    **{f"position {value}": {"position": value} for value in POSITIONS},
    "MQA": {"attention.kv_heads": 1},
    "MHA, qk norm": {"attention.kv_heads": 4, "attention.qk_norm": True},
    "parallel": {
        "residual": "parallel",
        "norm.kind": "layer",
        "attention.bias": "all",
        "feed_forward.bias": True,
        "feed_forward.activation": "gelu",
    },
    "post": {"norm.place": "post"},
    "sandwich": {"norm.place": "sandwich", "embedding.norm": True},
    "attention.window": {"attention.window": 5},
    "window in every other layer": {"attention.window": 5, "attention.window_pattern": "WF"},
    "window and sinks": {"attention.window": 5, "attention.sinks": 3},
    "window, sinks, alibi": {"attention.window": 5, "attention.sinks": 2, "position": "alibi"},
    "window, sinks, t5": {"attention.window": 6, "attention.sinks": 1, "position": "t5"},
    "window, learned": {"attention.window": 5, "attention.sinks": 2, "position": "learned"},
}
SLOW = ("MQA", "sandwich", "attention.window")  # others have the like
PROMPTS = [[5], [7, 8, 9, 10, 11, 12], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]]


def make(change: dict) -> Decoder:
    return build(changed(SHAPE, change, "model"))


@torch.no_grad()
def without_cache(model: Decoder, prompt: list[int], count: int, chooser: Chooser) -> list[int]:
    """Read the whole text for each token; past the context, from the last half on."""
    tokens, start, context = list(prompt), 0, model.config.context
    if not unbounded(model.config):
        start = max(0, len(tokens) - context)
    for _ in range(count):
        if not unbounded(model.config) and len(tokens) - start > context:
            start = len(tokens) - context // 2
        logits = model(torch.tensor([tokens[start:]]))[:, -1]
        tokens += chooser.choose(logits, [tokens])
    return tokens


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name, change in KINDS.items()
    ],
)
def test_a_batch_with_a_cache_is_each_text_without(change):
    """Greedy and drawn, 27 tokens, past a context of 24."""
    model = make(change)
    drawn = Sampling(temperature=0.9, top_k=20, top_p=0.95, min_p=0.01, repetition_penalty=1.2)
    for sampling in (GREEDY, drawn):
        texts, chooser = Texts(model, PROMPTS), Chooser(sampling, 4, [0, 1, 2])
        for _ in range(27):
            texts.append(chooser.choose(texts.logits(), texts.known))
        for number, prompt in enumerate(PROMPTS):
            alone = Chooser(sampling, 4, [number])
            assert texts.known[number] == without_cache(model, prompt, 27, alone)


@pytest.mark.parametrize("length", [23, 24, 25, 70])
@pytest.mark.parametrize(
    "change", [{}, {"attention.window": 5, "attention.sinks": 2}], ids=["full", "window, sinks"]
)
def test_a_prompt_longer_than_the_context_is_read_as_without_a_cache(change, length):
    model = make(change)
    prompts = [[token % 61 for token in range(length)], [9, 8, 7]]
    texts, chooser = Texts(model, prompts), Chooser(GREEDY, 0, [0, 1])
    for _ in range(6):
        texts.append(chooser.choose(texts.logits(), texts.known))
    for tokens, prompt in zip(texts.known, prompts, strict=True):
        assert tokens == without_cache(model, prompt, 6, Chooser(GREEDY, 0, [0]))


def test_a_windowed_model_continues_for_hundreds_of_tokens_in_the_same_memory():
    model = make({"layers": 1, "attention.window": 8, "attention.sinks": 2})
    texts, chooser, sizes = Texts(model, [[1, 2], [3]]), Chooser(GREEDY, 0, [0, 1]), set()
    for step in range(500):
        texts.append(chooser.choose(texts.logits(), texts.known))
        if step > 10:
            sizes.add(texts.cache_bytes)
    assert sizes == {2 * 2 * 2 * 10 * 8 * 4}  # k, v; texts; heads; window and sinks; size; float32


def test_a_full_model_keeps_no_more_than_its_context():
    model = make({"layers": 1})
    texts, sizes = Texts(model, [[1]]), []
    for _ in range(100):
        texts.logits()
        texts.append([2])
        sizes.append(texts.cache_bytes)
    assert max(sizes) <= 2 * 2 * 64 * 8 * 4  # room for 64 tokens


@pytest.mark.parametrize(
    "name",
    few(["position rope", "window and sinks", "position t5"], "window and sinks"),
)
def test_the_step_is_compiled_once_for_all_lengths(name, monkeypatch):
    """And whole, without a break of the graph."""
    compilations, compiler = [], torch.compile

    def backend(graph, _):
        compilations.append(graph)
        return graph

    def whole(function, **how):
        return compiler(function, **how, fullgraph=True, backend=backend)

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", whole)
    model = make(KINDS[name])
    plain, compiled = Texts(model, PROMPTS), Texts(model, PROMPTS, compiled=True)
    for token in range(11):
        expected = plain.logits()
        torch.testing.assert_close(compiled.logits(), expected, rtol=1e-4, atol=1e-4)
        for texts in (plain, compiled):
            texts.append([token, 3, 5])
    assert len(compilations) == 1


def test_a_cache_in_bfloat16_is_half_as_large():
    model, sizes, logits = make({}), [], []
    for precision in ("fp32", "bf16"):
        texts = Texts(model, PROMPTS)
        with autocast(torch.device("cpu"), precision):
            logits.append(texts.logits())
        sizes.append(texts.cache_bytes)
    assert sizes[0] == 2 * sizes[1] > 0
    torch.testing.assert_close(*logits, rtol=0.1, atol=0.3)
    assert not torch.equal(*logits)


@pytest.fixture(scope="module")
def writer(small_tokenizer):
    model, tokenizer = build(dataclasses.replace(SHAPE, vocab=270)), load_tokenizer(small_tokenizer)
    model.special = roles_of_run(small_tokenizer, tokenizer)
    return model, tokenizer


def completed(writer, prompts, **more):
    settings = {"max_tokens": 12, "sampling": Sampling(temperature=1.0), "seed": 2} | more
    return complete(*writer, prompts, **settings)


def test_a_prompt_is_continued_the_same_whatever_the_batch(writer):
    prompts = ["the cat", "", "sat on the mat the cat", "the"]
    alone = completed(writer, prompts, batch=1)
    assert alone == completed(writer, prompts, batch=3) == completed(writer, prompts, batch=9)
    assert [completion.prompt for completion in alone] == prompts
    assert alone[0] == completed(writer, prompts[:1])[0]
    same = completed(writer, ["the cat"] * 4)
    assert len({completion.text for completion in same}) == 4


def test_a_text_stops_at_the_end_of_text_token_and_the_others_go_on(writer):
    model, tokenizer = writer
    end = tokenizer.token_to_id("<|endoftext|>")
    completions = completed(writer, ["the cat sat"] * 60, max_tokens=60, batch=60)
    ended = [completion for completion in completions if completion.stopped == "end"]
    assert 0 < len(ended) < 60
    assert {completion.tokens for completion in completions if completion.stopped == "length"} == {
        60
    }
    assert all(completion.tokens < 60 for completion in ended)
    stream = continue_ids(
        model, [end, *tokenizer.encode("the cat sat").ids], temperature=1.0, top_k=50, seed=2
    )
    first = []
    for token in stream:
        if token == end or len(first) == 60:
            break
        first.append(token)
    assert completions[0].text == tokenizer.decode(first)
    assert completions[0].tokens == len(first)


def test_texts_that_ended_leave_the_batch_and_change_no_other(writer, monkeypatch):
    """A quarter of the vocabulary ends a text."""
    model, sizes, choose = writer[0], [], Chooser.choose
    monkeypatch.setattr(model, "special", dataclasses.replace(model.special, ends=tuple(range(68))))

    def counted(self, logits, seen):
        sizes.append(len(logits))
        return choose(self, logits, seen)

    prompts = ["the cat sat", "mat", "on the mat the"] * 4
    alone = completed(writer, prompts, batch=1)
    monkeypatch.setattr(Chooser, "choose", counted)
    assert completed(writer, prompts, batch=12) == alone
    assert sizes[0] == 12
    assert len(set(sizes)) > 2
    assert sizes == sorted(sizes, reverse=True)


def test_a_repetition_penalty_leaves_fewer_repetitions(writer):
    greedy = completed(writer, ["the"], sampling=GREEDY, max_tokens=20)[0]
    strong = Sampling(temperature=0.0, top_k=0, repetition_penalty=50.0)
    varied = completed(writer, ["the"], sampling=strong, max_tokens=20)[0]
    tokenizer = writer[1]
    counts = [len(set(tokenizer.encode(completion.text).ids)) for completion in (greedy, varied)]
    assert counts[0] < counts[1]


def test_a_model_that_has_learned_prefixes_reads_a_prompt_both_ways():
    model = make({})
    causal = Texts(model, PROMPTS).logits()
    model.both_ways = True
    both = Texts(model, PROMPTS).logits()
    for number, prompt in enumerate(PROMPTS):
        tokens = torch.tensor([prompt])
        alone = model(tokens, prefix=torch.ones_like(tokens, dtype=torch.bool))[0, -1]
        torch.testing.assert_close(both[number], alone, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(both[1], causal[1])
