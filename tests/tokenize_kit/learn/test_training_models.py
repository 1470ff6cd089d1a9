"""Models and learners: character BPE, WordPiece, and what other libraries learn of a text."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from llmcurate.base.tokenizer_file import load_tokenizer
from tests.tokenize_kit.learn.peers import learn_sentencepiece, learn_tokenizers
from tokenize_kit.learn.bpe import (
    BYTE_PIECES,
    CharacterWords,
    Words,
    choose_characters,
    count_words,
    lay_out_words,
    learn_merges,
    learn_word_merges,
    number_words,
    split_characters,
    token_names,
    train_char_bpe,
)
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_tokenizer, train_tokenizers
from tokenize_kit.learn.wordpiece import train_wordpiece

TEXTS = [
    "low lower lowest new newer newest wide wider widest, 1234567 times.\n" * 20,
    "the cat sat on the mat; the rat sat on the hat. 2024-11-21\n" * 9,
    "ภาษาไทย ครับ हिन्दी 漢字かな don't WE'LL\n" * 9,
]


def model_of(folder):
    return json.loads((folder / "tokenizer.json").read_text())["model"]


def by_hand(words, bases, most, least=2, longest=99, banned=()):
    """(tokens as tuples of symbols, merges), looking at everything again for each merge."""
    names = [(k,) for k in range(bases)]
    number = {name: k for k, name in enumerate(names)}
    rows = [([*word], count) for word, count in words]
    merges = []
    while len(names) < most:
        pairs = Counter()
        for symbols, count in rows:
            for a, b in itertools.pairwise(symbols):
                if len(names[a] + names[b]) <= longest and names[a] + names[b] not in banned:
                    pairs[a, b] += count
        pairs = {pair: n for pair, n in pairs.items() if n >= least}
        if not pairs:
            break
        a, b = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merged = number.setdefault(names[a] + names[b], len(names))
        if merged == len(names):
            names.append(names[a] + names[b])
        merges.append((a, b, merged))
        for symbols, _ in rows:
            k = 0
            while k < len(symbols) - 1:
                if (symbols[k], symbols[k + 1]) == (a, b):
                    symbols[k : k + 2] = [merged]
                k += 1
    return names, merges


def as_words(rows, bases):
    symbols = np.array([s for word, _ in rows for s in word], np.int32)
    sizes = np.array([len(word) for word, _ in rows], np.int64)
    return Words(symbols, sizes, np.array([n for _, n in rows], np.int64), bases)


ROWS = st.lists(
    st.tuples(st.lists(st.integers(0, 4), min_size=1, max_size=8).map(tuple), st.integers(1, 9)),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(6, 20), st.integers(1, 6), st.integers(2, 5))
def test_merges_of_any_symbols_are_those_of_training_by_hand(rows, most, least, longest):
    banned = [(0, 1), (2, 2, 3)]
    merges = learn_word_merges(as_words(rows, 5), most, least, longest, banned)
    assert merges == by_hand(rows, 5, most, least, longest, banned)[1]


def test_sentencepiece_learns_the_merges_that_are_beyond_doubt():
    """If no two pairs are equally frequent, its pieces are ours, in the same order."""
    rows = [((0, 1), 90), ((2, 3), 50), ((0, 1, 4), 20), ((2, 3, 2, 3), 9)]
    ours, theirs = learn_word_merges(as_words(rows, 5), 9, 1, 99, []), by_hand(rows, 5, 9, 1)[1]
    merges = learn_sentencepiece(as_words(rows, 5), 9, 99, [])
    assert ours == theirs == merges == [(0, 1, 5), (2, 3, 6), (5, 4, 7), (6, 6, 8)]
    assert learn_sentencepiece(as_words(rows, 5), 8, 99, [(2, 3)]) == [(0, 1, 5), (5, 4, 6)]
    assert learn_sentencepiece(as_words([], 5), 9, 99, []) == []


def test_a_word_longer_than_sentencepiece_can_count_is_learned_in_parts():
    rows = [((0, 1) * 50_000, 1), ((1, 2), 5)]
    assert learn_sentencepiece(as_words(rows, 3), 4, 2, []) == [(0, 1, 3)]


# Character BPE


def test_a_vocabulary_of_characters_is_laid_out_as_it_says(tmp_path):
    card = train_tokenizer(TEXTS, tmp_path, model="char-bpe", vocab=380, character_coverage=1.0)
    vocab = model_of(tmp_path)["vocab"]
    tokens = sorted(vocab, key=vocab.__getitem__)
    assert tokens[:257] == ["<|endoftext|>", *BYTE_PIECES]
    characters = tokens[257 : 257 + card.characters]
    assert characters == sorted(set("".join(TEXTS)))
    assert all(len(token) > 1 for token in tokens[257 + card.characters :])
    assert (card.byte_fallback, card.character_coverage) == (True, 1.0)
    assert (card.pattern, card.digits, card.lossless) == ("metaspace", "single", True)
    assert card.algorithm == "character BPE with byte fallback" and card.warnings == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("abก ", max_size=12), max_size=5), st.integers(262, 280))
def test_merges_of_characters_are_those_of_training_by_hand(texts, size):
    options = TrainingOptions(
        model="char-bpe", sizes=(size,), character_coverage=1.0, min_frequency=1
    )
    tokenizer = train_char_bpe([(text, 1) for text in texts], options)[0].tokenizer
    split = tokenizer.pre_tokenizer
    words = Counter(p for text in texts for p, _ in split.pre_tokenize_str(text))
    kept, _ = choose_characters(split_characters(*_words(words)).frequencies(), size - 257, 1.0)
    numbers = {c: k for k, c in enumerate(sorted(kept))}
    rows = []
    for word, count in words.items():
        for inside, part in itertools.groupby(word, numbers.__contains__):
            if inside:
                rows.append((tuple(numbers[c] for c in part), count))
    names, _ = by_hand(rows, len(kept), size - 257, 1)
    spelled = ["".join(sorted(kept)[k] for k in name) for name in names]
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    assert sorted(vocab, key=vocab.__getitem__)[257:] == spelled


def _words(counts):
    raw = [word.encode() for word in counts]
    letters = np.frombuffer(bytearray().join(raw), np.uint8)
    return letters, np.cumsum([0, *map(len, raw)]), np.array(list(counts.values()), np.int64)


def test_a_literal_byte_piece_stays_text(tmp_path):
    text = "<0x41><0xE0><|endoftext|>"
    train_tokenizer([text * 50, *TEXTS], tmp_path, model="char-bpe", vocab=420)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    ids = tokenizer.encode(text).ids
    assert all(i >= 257 for i in ids) and tokenizer.decode(ids) == text
    assert tokenizer.encode("ຂ").tokens == ["<0xE0>", "<0xBA>", "<0x82>"]


def test_characters_beyond_the_coverage_are_bytes_and_merge_with_nothing(tmp_path):
    texts = ["ab " * 98 + "aZb " * 2]
    card = train_tokenizer(texts, tmp_path, model="char-bpe", vocab=300, character_coverage=0.99)
    vocab = model_of(tmp_path)["vocab"]
    assert card.characters == 3 and not any("Z" in t for t in vocab if not t.startswith("<"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("aZb").tokens == ["a", "<0x5A>", "b"]
    assert "300: no other two tokens stand side by side 2 times" in card.warnings[-1]


def test_a_small_vocabulary_says_which_characters_it_spells_in_bytes(tmp_path):
    texts = ["".join(map(chr, range(0x4E00, 0x5800))) * 2]
    card = train_tokenizer(texts, tmp_path, model="char-bpe", vocab=500)
    assert card.character_coverage < 0.1 and "spelled in bytes" in card.warnings[0]


@pytest.mark.parametrize("model", ["char-bpe", "wordpiece"])
def test_sizes_learned_together_are_those_learned_alone(tmp_path, model):
    sizes = (290, 320, 360, 420)
    options = TrainingOptions(model=model, sizes=sizes, pad_to=8, reserved=2)
    train_tokenizers(TEXTS, tmp_path, options)
    for size in sizes:
        train_tokenizer(TEXTS, tmp_path / "alone", model=model, vocab=size, pad_to=8, reserved=2)
        for name in ("tokenizer.json", "tokenizer_card.json"):
            together = (tmp_path / str(size) / name).read_bytes()
            assert together == (tmp_path / "alone" / name).read_bytes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("aé漢😀", min_size=1, max_size=6), max_size=5),
    st.sets(st.sampled_from("aé漢😀")),
)
def test_words_are_cut_at_characters_that_are_not_kept(words, kept):
    counts = {word: k + 1 for k, word in enumerate(words)}
    counted = split_characters(*_words(counts))
    assert counted.frequencies() == sum(
        (Counter({c: w.count(c) * n for c in w}) for w, n in counts.items()), Counter()
    )
    cut = number_words(counted, sorted(map(ord, kept)))
    wanted = [
        ("".join(part), n)
        for word, n in counts.items()
        for inside, part in itertools.groupby(word, kept.__contains__)
        if inside
    ]
    ends = np.append(0, np.cumsum(cut.sizes))
    rows = ["".join(sorted(kept)[k] for k in cut.symbols[a:z]) for a, z in itertools.pairwise(ends)]
    assert list(zip(rows, cut.counts.tolist(), strict=True)) == wanted


def test_counts_of_characters_do_not_round():
    words = CharacterWords(
        np.array([97, 98], np.uint32), np.array([0, 1, 2]), np.array([2**53 + 1, 1])
    )
    assert words.frequencies()["a"] == 2**53 + 1


# WordPiece


def test_wordpiece_learns_the_tokens_of_the_library_if_no_ties_decide(tmp_path):
    """The library numbers ## characters by a hash table: equal pairs are merged in any order."""
    text = "ab " * 31 + "ba " * 29 + "ca " * 23 + "cb " * 19 + "ac " * 17 + "abc " * 13
    train_tokenizer([text], tmp_path, model="wordpiece", vocab=17)
    theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[SEP]", "[UNK]", "[CLS]", "[PAD]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=17, special_tokens=special, show_progress=False)
    theirs.train_from_iterator([text], trainer)
    assert set(model_of(tmp_path)["vocab"]) == set(theirs.get_vocab())


def test_wordpiece_learns_as_by_hand(tmp_path):
    options = TrainingOptions(model="wordpiece", sizes=(60,), min_frequency=1)
    [card] = train_wordpiece([(TEXTS[0], 1)], options)
    tokenizer = card.tokenizer
    words = Counter(p for p, _ in tokenizer.pre_tokenizer.pre_tokenize_str(TEXTS[0]))
    kept = sorted({c for word in words for c in word})[: 10**6]
    assert card.characters <= len(kept)
    bases = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokens = sorted(bases, key=bases.__getitem__)[5:]
    start = [t for t in tokens if len(t) == 1]
    within = [t for t in tokens if len(t) == 3 and t.startswith("##")]
    assert tokens[: len(start) + len(within)] == [*sorted(start), *sorted(within)]
    number = {t: k for k, t in enumerate([*start, *within])}
    rows = [
        (tuple(number[c if not k else f"##{c}"] for k, c in enumerate(word)), n)
        for word, n in words.items()
        if set(word) <= set(start)
    ]
    names, _ = by_hand(rows, len(number), 55, 1)
    spelled = []
    for name in names:
        parts = [[*start, *within][k] for k in name]
        spelled.append(parts[0] + "".join(part.removeprefix("##") for part in parts[1:]))
    assert tokens == spelled


def test_wordpiece_gives_the_words_and_what_it_cannot_spell_is_unknown(tmp_path):
    card = train_tokenizer([TEXTS[0]], tmp_path, model="wordpiece", vocab=200)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("lowest  newer,").tokens == ["lowest", "newer", ","]
    assert tokenizer.encode("low ไทย").tokens == ["low", "[UNK]"]
    assert tokenizer.decode(tokenizer.encode("lowest wider").ids) == "lowest wider"
    assert card.lossless is False and card.round_trip_checked == 0
    assert list(card.special_tokens) == ["[SEP]", "[UNK]", "[CLS]", "[PAD]", "[MASK]"]
    roles = json.loads((tmp_path / "special_tokens_map.json").read_text())
    assert roles["unk_token"] == "[UNK]" and roles["mask_token"] == "[MASK]"


def test_what_wordpiece_loses_of_its_own_corpus_is_a_warning(tmp_path):
    card = train_tokenizer(
        ["low lower " * 40 + "zed"], tmp_path, model="wordpiece", vocab=60, character_coverage=0.99
    )
    assert any(line.endswith("of the tokens of its own corpus are [UNK]") for line in card.warnings)


# Learners


@pytest.mark.parametrize("texts", [TEXTS, [t.replace("e", "<|endoftext|>") for t in TEXTS]])
def test_tokenizers_learns_the_merges_that_we_learn(texts):
    parts, banned = TrainingOptions().counted_parts, [b"<|endoftext|>"]
    documents = [(text, 1) for text in texts]
    counted = count_words(documents, parts).words()
    ours = learn_merges(lay_out_words(*counted), 379, banned)
    theirs = learn_tokenizers(documents, parts, 379, 2, 99, banned)
    if texts is TEXTS:
        assert ours == theirs
    else:  # it makes the spelling of the special token, which is taken out again
        assert banned[0] not in ours[0] and banned[0] not in theirs[0]


def test_sentencepiece_shares_most_merges_with_ours(real_texts):
    parts = TrainingOptions(model="char-bpe").counted_parts
    words = split_characters(*count_words([(t, 1) for t in real_texts[::9]], parts).words())
    bases = sorted(choose_characters(words.frequencies(), 1700)[0])
    numbered = number_words(words, [*map(ord, bases)])
    ours = token_names(bases, learn_word_merges(numbered, 1700, 2, 99, []))
    theirs = token_names(bases, learn_sentencepiece(numbered, 1700, 99, []))
    assert len(ours) == len(theirs) == 1700
    assert len({*ours} & {*theirs}) > 0.9 * len(ours)


@pytest.mark.parametrize("model, most", [("char-bpe", 400), ("wordpiece", 90)])
def test_a_pair_under_the_least_frequency_is_not_merged(tmp_path, model, most):
    results = []
    for least in (1, 2, 3, 4):
        card = train_tokenizer(
            ["ab " * 3 + "cd " * 2], tmp_path, model=model, vocab=most, min_frequency=least
        )
        results.append(card.merges)
        assert card.min_frequency == least
        assert f"{card.vocab} tokens instead of {most}" in card.warnings[-1]
    assert results == ([4, 4, 1, 0] if model == "char-bpe" else [2, 2, 1, 0])


def test_no_token_has_more_characters_than_asked(tmp_path):
    train_tokenizer(TEXTS, tmp_path, model="char-bpe", vocab=420, max_token_length=3)
    tokens = [t for t in model_of(tmp_path)["vocab"] if not t.startswith("<")]
    assert max(map(len, tokens)) == 3
