"""Around a pattern: forbidden strings, newlines, runs of spaces, scripts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.learn.cutting import compose, literal, run_merges
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.pattern.categories import SCRIPTS, scripts
from tokenize_kit.pattern.named import PATTERNS

CODE = "def f(x):\n    if x:\n        return 1\n\n\n    else:\n        pass  # done\n" * 30
MIXED = "the Киевkiev of ไทยthai, аnd so漢字kanji1.\n" * 40


def tokens_of(folder):
    """Return the text of every token that is neither special nor a byte, decoded if it is valid
    UTF-8."""
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    special = set(tokenizer.get_added_tokens_decoder())
    return [tokenizer.decode([i]) for i in vocab.values() if i not in special]


@pytest.mark.parametrize("model", ["bpe", "char-bpe"])
def test_every_run_of_spaces_up_to_the_limit_is_one_token(tmp_path, model):
    card = train_tokenizer([CODE], tmp_path, model=model, vocab=400, space_runs=24)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    for n in range(2, 25):
        for text in (" " * n, f"x{' ' * n}y\n{' ' * n}"):
            encoding = tokenizer.encode(text)
            assert tokenizer.decode(encoding.ids) == text
            assert [tokenizer.decode([i]) for i in encoding.ids].count(" " * n) == text.count(
                " " * n
            )
    assert [tokenizer.decode([i]) for i in tokenizer.encode(" " * 53).ids] == [
        " " * 24, " " * 24, " " * 5,
    ]  # fmt: skip
    assert not any("  " in t and t.strip(" ") for t in tokens_of(tmp_path))
    assert card.space_runs == 24 and not any("trip" in line for line in card.warnings)


def test_runs_of_spaces_are_encoded_alike_by_both_engines(tmp_path):
    train_tokenizer([CODE], tmp_path, vocab=400, space_runs=9, newlines="runs")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = Encoder(tokenizer)
    assert ours.reason is None
    texts = [CODE, *(" " * n + "a" + "\n" * n for n in range(40))]
    raw = [t.encode() for t in texts]
    ids, _ = ours.encode(
        np.frombuffer(bytearray().join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
    )
    assert ids.tolist() == [i for t in texts for i in tokenizer.encode(t).ids]


@pytest.mark.parametrize("most", [2, 3, 7, 24, 100])
def test_merges_of_runs_reach_every_length(most):
    """By rank, the leftmost first, as any BPE does it."""
    rank = {pair: n for n, pair in enumerate(run_merges(most))}
    assert len(rank) == most - 1
    for n in range(1, most + 1):
        run = [1] * n
        while len(run) > 1:
            k = min(range(len(run) - 1), key=lambda k: rank.get((run[k], run[k + 1]), 10**6))
            assert (run[k], run[k + 1]) in rank, (n, run)
            run[k : k + 2] = [run[k] + run[k + 1]]


@pytest.mark.parametrize("rule, inside", [("single", {"\n"}), ("runs", {"\n", "\n\n\n"})])
def test_newlines_stand_alone_or_in_a_row(tmp_path, rule, inside):
    train_tokenizer([CODE], tmp_path, vocab=500, newlines=rule)
    assert {t for t in tokens_of(tmp_path) if "\n" in t} >= inside
    assert all(set(t) <= {"\n", "\r"} for t in tokens_of(tmp_path) if "\n" in t)
    if rule == "single":
        assert "\n\n" not in tokens_of(tmp_path)


@pytest.mark.parametrize("model", ["bpe", "char-bpe", "wordpiece"])
def test_no_token_spans_two_scripts(tmp_path, model):
    train_tokenizer([MIXED], tmp_path / "with", model=model, vocab=430, script_boundaries=True)
    train_tokenizer([MIXED], tmp_path / "without", model=model, vocab=430)
    shared = {SCRIPTS.index("Common"), SCRIPTS.index("Inherited")}

    def spanning(folder):
        return [
            t for t in tokens_of(folder)
            if "\ufffd" not in t and len({int(scripts()[ord(c)]) for c in t} - shared) > 1
        ]  # fmt: skip

    assert spanning(tmp_path / "with") == [] != spanning(tmp_path / "without")


@pytest.mark.parametrize("model", ["bpe", "char-bpe", "wordpiece"])
def test_no_token_holds_or_spans_a_forbidden_string(tmp_path, model):
    forbidden = ("return", "ss", "(x")
    settings = {"model": model, "vocab": 420, "forbid": forbidden}
    card = train_tokenizer([CODE], tmp_path, **settings)
    assert not any(string in token for token in tokens_of(tmp_path) for string in forbidden)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    text = "xreturny f(x)pass"
    ends = {z for _, z in tokenizer.encode(text).offsets} | {0}
    bounds = [(1, 7), (10, 12), (15, 17)]
    if model != "wordpiece":  # whose words may be unknown as a whole
        assert all(a in ends and z in ends for a, z in bounds)
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert card.forbidden == list(forbidden)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8))
def test_a_forbidden_string_is_itself_as_a_regular_expression(text):
    split = pre_tokenizers.Split(Regex(literal(text)), "isolated")
    assert text in [p for p, _ in split.pre_tokenize_str(f"{text}\x01\x02")]


def test_a_pattern_without_surroundings_is_the_named_one():
    pattern = PATTERNS["llama3"]
    assert compose(pattern) is pattern
    assert compose(pattern, newlines="single").gguf is None


def test_own_regular_expressions_cut_one_after_the_other(tmp_path):
    regex = (r"[a-z]+|\s+", r"q")
    card = train_tokenizer(["aqua aqua 12\n" * 20], tmp_path, vocab=300, regex=regex)
    assert (card.pattern, card.regex, card.digits) == ("own", list(regex), None)
    assert card.gguf_pattern is None and "llama.cpp" in card.notes[0]
    assert set(tokens_of(tmp_path)) >= {"ua", "12"} and "aqua" not in tokens_of(tmp_path)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"regex": (r"(?<!a)b",)}, "regex: not supported: this kind of group"),
        ({"regex": ("a",), "pattern": "gpt2"}, "pattern and regex: give one of them"),
        ({"graphemes": True, "pattern": "gpt2"}, "pattern and graphemes: give one"),
        ({"regex": ("a",), "digits": "single"}, "digits: regex says how"),
        ({"graphemes": True, "script_boundaries": True}, "a cluster may hold two scripts"),
        ({"graphemes": True, "digits": "triples-right"}, "not with graphemes"),
        ({"newlines": "none"}, "choose one of single, runs"),
        ({"space_runs": 1}, "a number from 2 to 512"),
        ({"space_runs": 100, "sizes": (300,)}, "vocab 300: ask for 357 or more"),
        ({"forbid": ("",)}, "no empty string"),
        ({"model": "unigram", "forbid": ("a",)}, "forbid: not for unigram"),
        ({"model": "wordpiece", "space_runs": 9}, "space-runs: wordpiece is cut by BERT"),
    ],
    ids=lambda value: "" if isinstance(value, str) else ",".join(value),
)
def test_rules_that_do_not_go_together_are_a_one_line_error(wrong, message):
    with pytest.raises(LlmcurateError) as caught:
        TrainingOptions(**wrong)
    assert caught.value.exit_code == 2
    assert message in str(caught.value) and "\n" not in str(caught.value)


RULES = {
    "runs": {"space_runs": 9, "newlines": "runs", "forbid": ("\n", "if", "  r")},
    "scripts": {"script_boundaries": True, "newlines": "single", "pattern": "llama3"},
    "graphemes": {"graphemes": True, "digits": "triples"},
    "own": {"regex": (r"[a-z]+", r"\s")},
}


@pytest.fixture(scope="module", params=[f"{m}-{r}" for m in ("bpe", "char-bpe") for r in RULES])
def ruled(request, tmp_path_factory):
    """A tokenizer of each model with each set of rules."""
    model, _, rules = request.param.rpartition("-")
    out = tmp_path_factory.mktemp("ruled")
    card = train_tokenizer([CODE, MIXED], out, model=model, vocab=420, **RULES[rules])
    assert card.lossless is True
    return load_tokenizer(out / "tokenizer.json")


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("  \n\tifr<0x4A>ก่1\u200d"))
)
def test_any_text_comes_back_exactly_whatever_the_rules(ruled, text):
    assert ruled.decode(ruled.encode(text).ids) == text
