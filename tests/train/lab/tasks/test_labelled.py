"""Labelled texts: what a line must be, and how samples become windows that lose nothing."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from llmcurate.base.errors import LlmcurateError
from train.lab.tasks.labelled import Encoder, Sample, labels_of, read_samples

WORDS = "the cat sat on a mat and river then".split()


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A tokenizer with [CLS] and [SEP], a token a word."""
    names = ["[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = Tokenizer(models.WordLevel(dict(zip(names, range(99))), unk_token="[UNK]"))  # noqa: B905
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    path = tmp_path_factory.mktemp("bert") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def sample(*texts: str, labels: tuple[str, ...] = (), start: int = 0) -> Sample:
    return Sample(line=1, texts=texts, labels=labels, key=texts[0], start=start)


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("classify", '{"text": "a"', "not JSON"),
        ("classify", "[1]", "not a JSON object"),
        ("classify", '{"text": "a"}', "a label must be a word or a whole number"),
        ("classify", '{"text": "a", "label": 0.5}', "a label must be"),
        ("classify", '{"txt": "a", "label": "x"}', "no key text; the line has txt, label"),
        ("classify", '{"text": " ", "label": "x"}', "text must be a text that is not empty"),
        ("classify", '{"text": "a", "pair": 1, "label": "x"}', "pair must be a text"),
        ("classify", '{"text": "\\ud800", "label": "x"}', "text is not UTF-8"),
        ("token", '{"tokens": ["a"], "labels": []}', "labels must list 1 label, one"),
        ("token", '{"tokens": [], "labels": []}', "tokens must be a list of words"),
        ("span", '{"question": "q", "text": "a b", "answer": "b", "start": 1}', "at character 1"),
        ("span", '{"question": "q", "text": "a b", "answer": "b"}', "start must be a whole"),
        ("choice", '{"context": "a", "choices": ["b"], "label": 0}', "a list of 2 to 64 texts"),
        ("choice", '{"ctx": "a", "endings": ["b", "c"], "label": 2}', "label must .* from 0 to 1"),
        ("choice", '{"context": "a", "choices": ["b", ""], "label": 0}', "a choice must be a text"),
    ],
)
def test_an_invalid_labelled_line_is_named(task, line, message, tmp_path):
    path = tmp_path / "data.jsonl"
    good = {"text": "a", "label": 1} if task == "classify" else {}
    good |= {"tokens": ["a"], "labels": ["x"]} if task == "token" else {}
    good |= {"question": "q", "text": "a", "answer": "a", "start": 0} if task == "span" else {}
    good |= {"context": "a", "choices": ["b", "c"], "label": 0} if task == "choice" else {}
    path.write_text(json.dumps(good) + "\n\n" + line + "\n")
    with pytest.raises(LlmcurateError, match=f"data.jsonl:3: .*{message}"):
        read_samples(path, task)


def test_a_compressed_file_is_refused_with_what_to_give(tmp_path):
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a", "label": 1}\n'))
    with pytest.raises(LlmcurateError, match=r"not JSON: give plain JSONL, not \.gz"):
        read_samples(path, "classify")


def test_choices_in_the_words_of_hellaswag_and_swag_are_read(tmp_path):
    lines = [
        {"context": "the cat", "choices": ["sat", "then"], "label": 1},
        {"ctx": "the cat", "endings": ["sat", "then"], "label": "1"},
        {"sent1": "the cat", "sent2": "", "ending0": "sat", "ending1": "then", "label": 1},
        {"sent1": "the cat", "sent2": "it", "ending0": "sat", "ending1": "then", "label": 1},
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    samples = read_samples(path, "choice")
    assert [one.texts for one in samples[:3]] == [("the cat", "sat", "then")] * 3
    assert samples[3].texts == ("the cat", "it sat", "it then")
    assert {one.labels for one in samples} == {("1",)}


def test_each_choice_follows_the_context_and_all_fit_a_row(bert):
    encoder = Encoder(bert, 18, read_last=False)
    one = sample("the cat sat", "on a mat", "then and river on a mat", labels=("1",))
    (window,) = encoder.windows("choice", [one], ())
    ids = [encoder.tokenizer.id_to_token(int(token)) for token in window.tokens]
    texts = [
        "[CLS] the cat sat [SEP] on a mat [SEP]",
        "[CLS] the cat sat [SEP] then and river [SEP]",
    ]
    assert " ".join(ids) == " ".join(texts) and encoder.cut == 1
    assert window.places.tolist() == [0, 9] and window.choices.tolist() == [0] * 9 + [1] * 9
    assert window.segments.tolist() == ([0] * 5 + [1] * 4) * 2 and window.labels.tolist() == [1]
    with pytest.raises(LlmcurateError, match="context is 9: too short for texts"):
        Encoder(bert, 9, read_last=False).windows("choice", [one], ())


def test_one_label_and_no_lines_are_too_few(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "a", "label": 7}\n')
    samples = read_samples(path, "classify")
    assert samples[0].labels == ("7",)
    assert not read_samples(path, "classify", labelled=False)[0].labels
    with pytest.raises(LlmcurateError, match="1 label; at least two different"):
        labels_of(samples, path)
    path.write_text("\n")
    with pytest.raises(LlmcurateError, match="no lines"):
        read_samples(path, "classify")


def test_two_texts_are_laid_out_as_bert_reads_them(bert):
    encoder = Encoder(bert, 9, read_last=False)
    (window,) = encoder.windows("classify", [sample("the cat", "sat", labels=("b",))], "ab")
    assert window.tokens.tolist() == [1, 3, 4, 2, 5, 2]  # [CLS] the cat [SEP] sat [SEP]
    assert window.segments.tolist() == [0, 0, 0, 0, 1, 1]
    assert window.places.tolist() == [0] and window.labels.tolist() == [1]
    (last,) = Encoder(bert, 9, read_last=True).windows("classify", [sample("the cat")], "ab")
    assert last.tokens.tolist() == [1, 3, 4, 2] and last.places.tolist() == [3]


def test_of_two_long_texts_each_has_half_of_a_row(bert):
    encoder = Encoder(bert, 13, read_last=False)
    for first, second, tokens in ((20, 20, (5, 5)), (2, 20, (2, 8)), (20, 3, (7, 3)), (9, 0, (9,))):
        texts = [" ".join(["cat"] * first), " ".join(["mat"] * second)][: 1 + bool(second)]
        (window,) = encoder.windows("classify", [sample(*texts)], "ab")
        counts = [
            int((window.tokens == encoder.tokenizer.token_to_id(word)).sum())
            for word in ("cat", "mat")
        ]
        assert tuple(counts[: len(texts)]) == tokens and len(window.tokens) <= 13


def test_without_special_tokens_a_text_follows_the_end_token_of_the_previous_one(shard_folder):
    encoder = Encoder(shard_folder / "tokenizer.json", 20, read_last=False)
    end = encoder.tokenizer.token_to_id("<|endoftext|>")
    (window,) = encoder.windows("classify", [sample("the cat", "a mat")], "ab")
    ids = [encoder.tokenizer.encode(text).ids for text in ("the cat", "a mat")]
    assert window.tokens.tolist() == [end, *ids[0], end, *ids[1]]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([*WORDS, "<|endoftext|>", "unheard", "ä"]), min_size=1),
    st.integers(4, 30),
)
def test_each_word_is_judged_once_by_its_own_first_token(shard_folder, words, context):
    encoder = Encoder(shard_folder / "tokenizer.json", context, read_last=False)
    labels = tuple("abc"[number % 3] for number in range(len(words)))
    windows = encoder.windows("token", [sample(*words, labels=labels)], "abc")
    assert np.concatenate([w.words for w in windows]).tolist() == list(range(len(words)))
    for window in windows:
        assert len(window.tokens) <= context
        for word, place, label in zip(window.words, window.places, window.labels, strict=True):
            token = encoder.tokenizer.id_to_token(int(window.tokens[place]))
            assert token.removeprefix("Ġ")[:1] in {words[word][0], "Ã"} or token == "Ġ"
            assert "abc"[label] == labels[word]


def test_words_of_one_token_each_stand_in_full_windows(bert):
    encoder = Encoder(bert, 6, read_last=False)
    windows = encoder.windows("token", [sample(*WORDS)], ())
    assert [w.words.tolist() for w in windows] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert [len(w.tokens) for w in windows] == [6, 6, 5]


def test_some_window_has_the_whole_answer_and_says_where_it_is(shard_folder):
    draw = random.Random(0)
    encoder = Encoder(shard_folder / "tokenizer.json", 40, read_last=False)
    for _ in range(40):
        words = draw.choices(WORDS, k=draw.randint(3, 80))
        begin = draw.randrange(len(words) - 1)
        answer = " ".join(words[begin : begin + 2])
        text, start = " ".join(words), len(" ".join([*words[:begin], ""]))
        one = sample("where is the cat", text, labels=(answer,), start=start)
        windows = encoder.windows("span", [one], ())
        seen = np.zeros(len(text), bool)
        whole = 0
        for window in windows:
            assert len(window.tokens) <= 40 and window.characters is not None
            for first, last in window.characters[window.characters[:, 0] >= 0]:
                seen[first:last] = True
            if window.labels[1]:
                whole += 1
                first, last = window.characters[window.labels]
                assert text[first[0] : last[1]].strip() == answer
        assert seen.all() and whole
        assert all(w.segments[w.characters[:, 0] >= 0].all() for w in windows)


def test_a_row_that_is_too_short_is_refused(bert):
    with pytest.raises(LlmcurateError, match="context is 4: too short"):
        Encoder(bert, 4, read_last=False).windows("span", [sample("the", "cat")], ())
