"""BPE of characters extended and pruned: tokenizer.json as we and converters write it, .model."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.tokenizer_file import load_tokenizer
from tests.parameters import drawn
from tests.tokenize_kit.sentencepiece_models import trained
from tokenize_kit.change.bpe import learn_character_tokens
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import open_tokenizer
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.lab.addition import Rows
from tokenize_kit.lab.embeddings import Checkpoint, as_float32, as_stored, write_tensors
from tokenize_kit.lab.extend import extend
from tokenize_kit.lab.prune import prune
from tokenize_kit.learn.bpe import choose_characters
from tokenize_kit.learn.training import train_tokenizer

ENGLISH = ["the cat sat on the mat, then that cat sat on that mat"] * 9
NEW = ["tosca cantos ocean toast shame", "hasten to a monsoon of tones <0x41> กินตา"] * 9
PARTS = ["tosca", " ocean", "toast", "monsoon", "tones", "<0x41>", "\u2581", *"etah scโmกิß\n"]
HARD = st.lists(st.sampled_from(PARTS), max_size=20).map("".join)
LLAMA = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "byte_fallback": True,
    "vocab_size": 400,
}
BYTE = re.compile("<0x[0-9A-F]{2}>")
KINDS = ["llama-model", "llama-json", "plain-model", "plain-json", "ours", "ours-spaces"]


@pytest.fixture(scope="module", params=KINDS)
def old(request, tmp_path_factory):
    """The file of a tokenizer: SentencePiece's with bytes and without, what these become, ours."""
    folder = tmp_path_factory.mktemp(request.param)
    kind, _, form = request.param.partition("-")
    if kind == "ours":
        more = {"space_token": "<_>"} if form else {}
        train_tokenizer([*ENGLISH, "กิน"], folder, model="char-bpe", vocab=310, **more)
        return folder / "tokenizer.json"
    model = folder / "tokenizer.model"
    model.write_bytes(trained("bpe", **(LLAMA if kind == "llama" else {"vocab_size": 160})))
    if form == "model":
        return model
    convert(model, folder / "json", "tokenizer.json")
    return folder / "json" / "tokenizer.json"


@pytest.fixture(scope="module")
def extended(old, tmp_path_factory):
    folder = tmp_path_factory.mktemp("extended")
    return folder / old.name, extend(old, [pack_texts(NEW)], folder, 12)


def ids_of(opened, text):
    return opened.encode(*pack_texts([text]))[0].tolist()


def names_of(form):
    return {number: text for text, number in form.tokens.items()} | form.others


def units_of(form, ids, vocab):
    """The texts of ids, and of bytes that are a known character (none: any), that character."""
    names = names_of(form)
    units, waiting = [], []
    for text in [*(names[number] for number in ids), None]:
        if text is not None and form.byte_fallback and BYTE.fullmatch(text):
            waiting.append(text)
            continue
        for letter in bytes(int(byte[3:5], 16) for byte in waiting).decode():
            spelled = [f"<0x{byte:02X}>" for byte in letter.encode()]
            units += [letter] if vocab is None or letter in vocab else spelled
        waiting = []
        units += [] if text is None else [text]
    return units


def test_old_ids_stay_and_new_tokens_shorten_text(old, extended):
    file, card = extended
    before, after = open_tokenizer(old).form, open_tokenizer(file).form
    assert before.tokens.items() <= after.tokens.items() and before.others == after.others
    new = set(after.tokens.values()) - set(before.tokens.values())
    assert new == set(range(before.size, before.size + card.new_tokens))
    assert card.new_tokens == 12 and card.algorithm == "BPE of characters"
    assert card.bytes_a_token_after > 1.2 * card.bytes_a_token_before
    assert card.measured.bytes == card.measured_bytes


def test_text_is_encoded_as_before_and_then_merged_further(old, extended):
    former, latter = open_tokenizer(old), open_tokenizer(extended[0])
    names, new = names_of(former.form), names_of(latter.form)
    vocab = set(latter.form.tokens)
    seen = []

    @settings(max_examples=drawn(60), deadline=None)
    @given(HARD)
    def check(text):
        before, after = units_of(former.form, ids_of(former, text), vocab), ids_of(latter, text)
        at = 0
        for number in after:  # each is an old token, or so many old ones as it spells
            word = ""
            first = at
            while at < len(before) and (at == first or len(word) < len(new[number])):
                word += before[at]
                at += 1
            assert word == new[number]
            assert (at - first == 1) == (number in names or len(word) == 1)
            seen.append(number not in names)
        assert at == len(before)

    check()
    assert any(seen)


def test_no_text_gives_a_special_token_for_its_spelling(old, extended):
    opened = open_tokenizer(extended[0])
    special = {token.number for token in opened.form.added if token.special}
    special.discard(opened.form.unknown)  # an honest answer to `<` where there is no such letter
    for text in ("<s>", "</s>", "<|endoftext|>", "<unk>", "a</s>b"):
        assert not special.intersection(ids_of(opened, text))


def by_hand(form, words, texts, tokens):
    """(new tokens, merges), by looking at everything again for each of them; words: of ids."""
    cut = []  # units of each word
    for text in texts:
        ids, of_word = words(text)
        bounds = [0, *(np.flatnonzero(np.diff(of_word)) + 1).tolist(), len(ids)]
        cut += [units_of(form, ids[a:z].tolist(), None) for a, z in pairwise(bounds)]
    lacking = Counter(u for word in cut for u in word if len(u) == 1 and u not in form.tokens)
    lacking = Counter({c: n for c, n in lacking.items() if n > 1 and c.isprintable() and c != " "})
    first = sorted(choose_characters(lacking, tokens)[0])
    numbers = dict(form.tokens) | {letter: form.size + k for k, letter in enumerate(first)}
    counted = Counter()
    for units in cut:
        word = []
        for unit in units:
            if unit in numbers:
                word.append(((numbers[unit],), unit))
            else:
                counted[tuple(word)] += 1
                word = []
        counted[tuple(word)] += 1
    all_words = [[list(word), count] for word, count in counted.items()]
    numbers = {(number,): number for number in range(form.size + len(first))}
    new, merges, vocab = list(first), [], {*form.tokens, *first}
    while True:
        pairs = Counter()
        for word, count in all_words:
            for a, b in pairwise(word):
                pairs[a, b] += count
        pairs = {pair: n for pair, n in pairs.items() if n >= 2}
        if not pairs:
            return new, merges
        a, b = min(pairs, key=lambda p: (-pairs[p], numbers[p[0][0]], numbers[p[1][0]]))
        merged = (a[0] + b[0], a[1] + b[1])
        numbers.setdefault(merged[0], len(numbers))
        if merged[1] not in vocab:
            if len(new) == tokens:
                return new, merges
            vocab.add(merged[1])
            new.append(merged[1])
        if (a[1], b[1]) not in merges:
            merges.append((a[1], b[1]))
        for word, _ in all_words:
            k = 0
            while k < len(word) - 1:
                if (word[k], word[k + 1]) == (a, b):
                    word[k : k + 2] = [merged]
                k += 1


def test_new_merges_are_those_of_learning_by_hand(old):
    opened = open_tokenizer(old)

    @settings(max_examples=drawn(15), deadline=None)
    @given(st.lists(st.text("thewornก ", max_size=12), max_size=8), st.integers(1, 12))
    def check(texts, tokens):
        new, merges, parts = learn_character_tokens(opened.form, opened.words(), texts, tokens)
        names = names_of(opened.form)
        assert (new, merges) == by_hand(opened.form, opened.words(), texts, tokens)
        spelled = ["".join(units_of(opened.form, own, set(new))) for own in parts]
        assert spelled == new and all(number in names for own in parts for number in own)

    check()


def test_new_tokens_do_not_span_spaces(old, extended):
    form, size = open_tokenizer(extended[0]).form, open_tokenizer(old).form.size
    new = [text for text, number in form.tokens.items() if number >= size]
    assert not [t for t in new if "\u2581" in t.lstrip("\u2581") or " " in t.lstrip(" ")]


def test_the_order_of_texts_changes_nothing(old, extended, tmp_path):
    extend(old, [pack_texts([text]) for text in reversed(NEW)], tmp_path, 12)
    for name in (old.name, "tokenizer_card.json"):
        assert (tmp_path / name).read_bytes() == (extended[0].parent / name).read_bytes()


def test_a_new_row_is_the_mean_of_the_rows_of_its_old_tokens(old, tmp_path):
    opened = open_tokenizer(old)
    size = opened.form.size
    rows = np.arange(size * 2, dtype=np.float32).reshape(size, 2)
    file = tmp_path / "model.safetensors"
    write_tensors(file, {"model.embed_tokens.weight": (as_stored(rows, "F32"), "F32")})
    extend(old, [pack_texts(NEW)], tmp_path / "out", 5, rows=Rows(file))
    checkpoint = Checkpoint(tmp_path / "out" / "embeddings.safetensors")
    table = as_float32(checkpoint.matrix("model.embed_tokens.weight"))
    _, _, parts = learn_character_tokens(opened.form, opened.words(), NEW, 5)
    assert np.array_equal(table[:size], rows)
    assert np.allclose(table[size:], [rows[own].mean(axis=0) for own in parts])


@pytest.fixture(scope="module")
def pruned(old, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruned")
    return folder / old.name, prune(old, lambda: [pack_texts(ENGLISH)], folder)


def test_any_text_whose_tokens_all_stay_has_its_old_ids(old, pruned):
    file, card = pruned
    former, latter = open_tokenizer(old), open_tokenizer(file)
    table = pq.read_table(file.parent / "token_map.parquet")
    new = table["new_id"].to_pylist()
    assert card.dropped >= 3 and card.texts_without_dropped_tokens == len(ENGLISH)
    kept = {number for number, n in enumerate(new) if n is not None}
    assert set(former.form.others) <= kept and latter.form.size == len(kept) == card.new_tokens
    names, shown = names_of(former.form), table["token"].to_pylist()
    assert shown == [names[number] for number in range(former.form.size)]
    tried = []

    @settings(max_examples=60, deadline=None)
    @given(st.text(st.sampled_from("the cat sonm,ไก้กé漢<0x41>"), max_size=30))
    def check(text):
        before = ids_of(former, text)
        if kept.issuperset(before):
            assert ids_of(latter, text) == [new[number] for number in before]
            tried.append(text)

    check()
    assert len(tried) > 5


def test_pruning_keeps_the_requested_number_of_tokens_and_text_round_trips(old, pruned, tmp_path):
    most = pruned[1].new_tokens - 4  # so that some go that are used
    card = prune(old, lambda: [pack_texts(ENGLISH)], tmp_path, most=most)
    assert card.new_tokens == most
    assert card.texts_without_dropped_tokens < len(ENGLISH)
    smaller = open_tokenizer(tmp_path / old.name)
    unknown = smaller.form.unknown
    assert smaller.form.byte_fallback or unknown not in ids_of(smaller, ENGLISH[0])
    if old.name == "tokenizer.json":
        tokenizer = load_tokenizer(tmp_path / old.name)
        assert tokenizer.decode(ids_of(smaller, ENGLISH[0])).strip() == ENGLISH[0]


def test_bpe_with_dropout_in_its_file_is_pruned_as_without(old, pruned, tmp_path):
    if old.name != "tokenizer.json":
        pytest.skip("a setting of tokenizer.json")
    parts = json.loads(old.read_text())
    parts["model"]["dropout"] = 0.9
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    card = prune(tmp_path, lambda: [pack_texts(ENGLISH)], tmp_path / "out")
    assert card.new_tokens == pruned[1].new_tokens
    assert card.tokenizer_sha256 == pruned[1].tokenizer_sha256
