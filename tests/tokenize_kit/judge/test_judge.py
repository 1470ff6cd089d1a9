"""Evaluating tokenizers: token positions, unreachable tokens, lossy texts, and the figures."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from llmcurate.base.errors import LlmcurateError
from tests.parameters import drawn
from tests.tokenize_kit.judge.packed_texts import TEXTS, packed, packed_texts
from tokenize_kit.judge.candidate import examine_vocabulary, open_candidate
from tokenize_kit.judge.compare import HARD_TEXTS, compare, cut_text
from tokenize_kit.judge.tally import Tally, renyi_efficiency
from tokenize_kit.learn.training import train_tokenizer

KINDS = ("bpe", "unigram", "spm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """bpe/, unigram/ with its tokenizer.model; words.json: whole words in lower case."""
    folder = tmp_path_factory.mktemp("judged")
    train_tokenizer(TEXTS, folder / "bpe", vocab=330)
    train_tokenizer(TEXTS, folder / "unigram", vocab=400, model="unigram")
    words = Tokenizer(
        models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2, "The": 3}, unk_token="[UNK]")
    )
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "words.json"))
    return folder


@pytest.fixture(scope="module")
def candidates(folder):
    paths = {"bpe": "bpe", "unigram": "unigram", "spm": "unigram/tokenizer.model"}
    return {kind: open_candidate(folder / path) for kind, path in paths.items()}


def test_each_file_is_encoded_by_what_can(candidates, folder):
    assert {candidates[kind].engine for kind in KINDS} == {"llmcurate"}
    assert open_candidate(folder / "words.json").engine == "tokenizers"


@pytest.mark.parametrize("kind", KINDS)
def test_positions_cover_the_text_in_order(candidates, kind):
    candidate = candidates[kind]

    @settings(max_examples=drawn(60), deadline=None)
    @given(st.lists(st.text("ab t'é\u0301ที่ก漢\n\x00\u2581😀", max_size=25), min_size=1, max_size=3))
    def check(texts):
        data, offsets = packed(texts)
        ids, sizes = candidate.encode(data, offsets)
        starts, ends = candidate.spans(data, offsets, ids, sizes)
        assert len(starts) == len(ends) == len(ids) == sizes.sum()
        stop = 0
        for row, size in enumerate(sizes.tolist()):
            first, stop = stop, stop + size
            assert size == 0 or starts[first] == offsets[row]
            reach = np.maximum.accumulate(ends[first:stop])
            assert np.all(starts[first + 1 : stop] <= reach[:-1])  # no hole
            assert size == 0 or reach[-1] == offsets[row + 1]
        for text in texts:
            assert "".join(piece for piece, _ in cut_text(candidate, text)) == text

    check()


def test_two_engines_of_one_model_agree_on_every_figure(candidates):
    results = []
    for kind in ("unigram", "spm"):
        tally = Tally(candidates[kind], ["lang"])
        texts = [*TEXTS, *HARD_TEXTS[:4]]
        tally.add(packed_texts(texts), {"lang": ["en", "th", None] * 10 + ["en"]})
        result = tally.result()
        own = ("tokenizer", "engine", "encode_mb_per_cpu_second", "decode_mb_per_cpu_second")
        results.append({key: value for key, value in result.items() if key not in own})
    assert results[0] == results[1]
    assert results[0]["lost"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_count_every_token(candidates, kind):
    for text in ["the 漢 né", "ที่😀😀", "x"]:
        ids, _ = candidates[kind].encode(*packed([text]))
        cut = cut_text(candidates[kind], text)
        assert sum(n for _, n in cut) == len(ids)
        assert dict(cut).get("漢", 3) == 3  # no token holds it: three bytes


def test_left_out_text_is_a_piece_of_no_token(folder):
    words = open_candidate(folder / "words.json")
    assert cut_text(words, "the  cat") == [("the", 1), ("  ", 0), ("cat", 1)]


def test_real_texts_come_back_and_two_engines_agree_on_them(real_texts, tmp_path):
    texts = [text[:4000] for text in real_texts]
    train_tokenizer(texts, tmp_path, model="unigram", vocab=8000)
    results = []
    for path in (tmp_path / "tokenizer.json", tmp_path / "tokenizer.model"):
        tally = Tally(open_candidate(path))
        tally.add(packed_texts(texts))
        result = tally.result()
        assert result["lost"] == 0
        results.append([result[key] for key in ("tokens", "fertility", "whole", "tokens_a_letter")])
    assert results[0] == results[1]


def test_batches_do_not_change_the_figures(candidates):
    single, many = Tally(candidates["bpe"], ["lang"]), Tally(candidates["bpe"], ["lang"])
    labels = ["en", "th", None] * 9
    single.add(packed_texts(TEXTS), {"lang": labels})
    for text, label in zip(TEXTS, labels, strict=True):
        many.add(packed_texts([text]), {"lang": [label]})
    results = [
        {k: v for k, v in tally.result().items() if "cpu" not in k} for tally in (single, many)
    ]
    assert results[0] == results[1]
    assert [row["label"] for row in results[0]["lang"]] == ["th", "en"]
    english = results[0]["lang"][1]
    assert english["premium_a_character"] == english["premium_a_text"] == 1
    thai = results[0]["lang"][0]
    assert thai["premium_a_byte"] == pytest.approx(
        thai["tokens"] / thai["bytes"] / (english["tokens"] / english["bytes"])
    )


def test_figures_are_those_of_the_library_counted_by_hand(folder, candidates):
    tally = Tally(candidates["bpe"])
    tally.add(packed_texts(TEXTS))
    results = tally.result()
    library = Tokenizer.from_file(str(folder / "bpe" / "tokenizer.json"))
    ids = [n for text in TEXTS for n in library.encode(text).ids]
    assert results["tokens"] == len(ids)
    assert results["bytes_a_token"] == sum(len(t.encode()) for t in TEXTS) / len(ids)
    assert results["characters_a_token"] == sum(map(len, TEXTS)) / len(ids)
    assert results["used"] == len(set(ids))
    size = library.get_vocab_size()
    assert results["vocab"] == size
    assert results["never_used"] == size - 1 - len(set(ids))
    shares = [n / len(ids) for n in Counter(ids).values()]
    entropy = math.log(sum(p**2.5 for p in shares)) / (1 - 2.5)
    assert results["renyi_efficiency"] == pytest.approx(entropy / math.log(size))
    assert results["renyi_efficiency_of_used"] == pytest.approx(entropy / math.log(len(set(ids))))


def test_renyi_efficiency_is_one_where_all_tokens_are_as_frequent():
    assert renyi_efficiency(np.full(64, 7), 64) == pytest.approx(1)
    assert renyi_efficiency(np.array([5, 0, 0, 0]), 4) == 0
    assert renyi_efficiency(np.zeros(4, np.int64), 4) is None
    assert renyi_efficiency(np.array([5]), 1) is None


def test_lossy_texts_are_counted_and_the_first_shown(folder):
    tally = Tally(open_candidate(folder / "words.json"))
    tally.add(packed_texts(["the", "the cat"]))
    tally.add(packed_texts(["The dog", "a"]))
    results = tally.result()
    assert results["lost"] == 2
    assert results["first_lost"]["text"] == 2
    assert results["first_lost"]["was"] == "The dog"
    assert results["first_lost"]["is"] == "the [UNK]"
    assert results["first_lost"]["character"] == 0
    assert results["first_lost"]["code_points"] == ["U+0054", "U+0074"]
    assert results["unknown"] == 2 and results["unknown_share"] == 2 / 6


def test_a_token_that_no_text_gives_is_found(folder):
    """`The` never comes out of a tokenizer that writes everything small."""
    results = examine_vocabulary(open_candidate(folder / "words.json")).dump()
    assert results["unreachable_examples"] == [{"id": 3, "text": " The", "gives": [1]}]


def test_a_merge_that_is_never_made_leaves_a_token_that_no_text_gives(folder):
    parts = json.loads((folder / "bpe" / "tokenizer.json").read_text())
    vocab = parts["model"]["vocab"]
    vocab["zqzq"] = len(vocab)
    path = folder / "stray.json"
    path.write_text(json.dumps(parts))
    results = examine_vocabulary(open_candidate(path))
    assert list(results.unreachable) == [vocab["zqzq"]]
    assert len(results.unreachable[vocab["zqzq"]]) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_trained_tokenizers_have_no_token_that_no_text_gives(candidates, kind):
    results = examine_vocabulary(candidates[kind])
    assert results.unreachable == {}
    assert len(results.parts) >= 128


def test_white_space_digit_and_longest_tokens_are_reported(candidates):
    results = examine_vocabulary(candidates["bpe"])
    shown = results.dump()
    assert shown["white_space"] == sum(
        t.isspace() for n, t in results.texts.items() if n not in results.parts
    )
    assert shown["digits"] >= 10
    sizes = [token["bytes"] for token in shown["longest"]]
    assert sizes == sorted(sizes, reverse=True)
    assert shown["longest"][0]["text"] in TEXTS[1]


def test_empty_texts_and_texts_of_nul_are_counted(candidates):
    for kind in KINDS:
        tally = Tally(candidates[kind])
        tally.add(packed_texts([]))
        tally.add(packed_texts(["", "\x00\x00", ""]))
        assert tally.result()["texts"] == 3
        assert tally.result()["lost"] == 0


def test_later_labels_of_too_many_are_counted_together(candidates):
    tally = Tally(candidates["bpe"], ["source"], most_groups=2)
    tally.add(packed_texts(["a", "b", "c", "d", "a"]), {"source": ["a", "b", "c", "d", "a"]})
    results = {row["label"]: row["texts"] for row in tally.result()["source"]}
    assert results == {"a": 2, "b": 1, "(others)": 2}


def test_compare_shows_the_first_texts_that_hold_anything(folder):
    batches = [(*packed(["", "the " * 200]), {}), (*packed(["x", "y"]), {})]
    results = compare([folder / "bpe", folder / "words.json"], batches, show=2)
    assert [sample["cut"] for sample in results["shown"]] == [True, False]
    assert "".join(piece for piece, _ in results["shown"][0]["pieces"][0]) == "the " * 75
    assert [len(sample["pieces"]) for sample in results["shown"]] == [2, 2]


@pytest.mark.parametrize("size", [0, 1, 40, 2000, 5000], ids=lambda n: f"{n}-bytes")
def test_a_truncated_model_is_refused_in_one_line(folder, tmp_path, size):
    whole = (folder / "unigram" / "tokenizer.model").read_bytes()
    assert size < len(whole)
    path = tmp_path / "cut.model"
    path.write_bytes(whole[:size])
    with pytest.raises(LlmcurateError, match=r"cut\.model") as caught:
        open_candidate(path)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "name", ["none", "none.model", "none/tokenizer.json"], ids=["folder", "model", "json"]
)
def test_a_missing_tokenizer_is_named(tmp_path, name):
    with pytest.raises(LlmcurateError, match="none"):
        open_candidate(tmp_path / name)


def test_ids_that_would_cost_the_memory_are_refused(folder, tmp_path):
    parts = json.loads((folder / "words.json").read_text())
    parts["model"]["vocab"]["far"] = 4_000_000_000
    path = tmp_path / "far.json"
    path.write_text(json.dumps(parts))
    with pytest.raises(LlmcurateError, match="4,000,000,000"):
        open_candidate(path)


def test_a_token_that_texts_gave_is_not_called_unreachable(folder):
    """Trials cannot try every neighbour; a text that was judged may be the one that shows it."""
    tally = Tally(open_candidate(folder / "words.json"))
    assert tally.result()["unreachable"] == 1
    tally.counts[3] = 1
    assert tally.result()["unreachable"] == 0
