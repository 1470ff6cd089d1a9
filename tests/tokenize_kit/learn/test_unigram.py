"""Unigram's own learner: its kernels against plain Python, its pieces against SentencePiece's."""

from __future__ import annotations

import math
import random
import unicodedata
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmcurate.base.tokenizer_file import load_tokenizer
from tests.tokenize_kit.learn.peers import SentencePieceLearner
from tokenize_kit.encode.trie import make_alphabet, numbers_of
from tokenize_kit.formats.forms import BYTE_PIECES
from tokenize_kit.learn import unigram_pieces
from tokenize_kit.learn.bpe import choose_characters
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.learn.unigram import PRINTABLE_ASCII, UNKNOWN_PIECE
from tokenize_kit.learn.unigram_em import (
    PENALTY,
    Pieces,
    PieceTrie,
    Texts,
    alternatives,
    best_counts,
    expected_counts,
)
from tokenize_kit.learn.unigram_pieces import (
    PieceLearner,
    Seeds,
    final_scores,
    learn_pieces,
    maximise,
    seed_pieces,
)
from tokenize_kit.learn.unigram_seeds import LONGEST, find_seeds
from tokenize_kit.learn.unigram_segments import character_kinds, count_sentences, cut_segments
from tokenize_kit.pattern.categories import SCRIPTS, scripts


def trie_of(scores: dict[str, float]) -> tuple[PieceTrie, list[str], np.ndarray]:
    names = sorted(scores)
    alphabet, size = make_alphabet([*names, "abc"])
    values = np.array([scores[name] for name in names], np.float32)
    pieces = Pieces(Texts(*numbers_of(alphabet, names)), values, np.arange(len(names)))
    return PieceTrie(pieces, size), names, alphabet


def paths(text: str, scores: dict[str, float], unknown: float):
    """All ways to spell a text: (pieces, None for an unknown character; their sum)."""
    if not text:
        yield [], 0.0
        return
    for end in range(1, len(text) + 1):
        name = text[:end]
        for rest, total in paths(text[end:], scores, unknown):
            if name in scores:
                yield [name, *rest], scores[name] + total
            elif end == 1:
                yield [None, *rest], unknown + total


PIECES = st.dictionaries(
    st.text("abc", min_size=1, max_size=4),
    st.integers(-80, -1).map(lambda n: n / 8),
    min_size=1,
    max_size=12,
)
TEXTS = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=8), st.integers(1, 5)), min_size=1, max_size=5
)


@settings(deadline=None, max_examples=60)
@given(PIECES, TEXTS)
def test_expectations_are_those_of_all_ways_to_spell_the_texts(scores, texts):
    trie, names, alphabet = trie_of(scores)
    unknown = min(scores.values()) - PENALTY
    numbers = Texts(*numbers_of(alphabet, [text for text, _ in texts]))
    counts = np.array([count for _, count in texts])
    expected: Counter[str] = Counter()
    for text, count in texts:
        ways = [(path, math.exp(total)) for path, total in paths(text, scores, unknown)]
        whole = sum(share for _, share in ways)
        for path, share in ways:
            for name in path:  # an unknown character counts as the first piece
                expected[names[0] if name is None else name] += count * share / whole
    found = trie.piece_counts(expected_counts(trie.probabilities(), numbers, counts))
    assert found == pytest.approx([expected[name] for name in names], abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(PIECES, TEXTS)
def test_best_paths_have_the_greatest_sums(scores, texts):
    trie, _, alphabet = trie_of(scores)
    unknown = min(scores.values()) - PENALTY
    for text, count in texts:
        numbers = Texts(*numbers_of(alphabet, [text]))
        slots = best_counts(trie.scores(), numbers, np.array([count]))
        total = slots[0] * unknown + slots[trie.slot_of] @ trie.pieces.scores
        assert total / count == max(total for _, total in paths(text, scores, unknown))
    sums, _, _ = alternatives(trie.scores(), trie.pieces.texts)
    for name, found in zip(sorted(scores), sums.tolist(), strict=True):
        ways = [total for path, total in paths(name, scores, unknown) if path != [name]]
        assert found == max(ways, default=-math.inf)


def test_every_character_is_expected_once_in_a_text_of_any_length():
    """Sums of 20,000 characters are 10 ** -40,000, beyond any float."""
    trie, names, alphabet = trie_of({"a": -9.0, "b": -2.5, "ab": -14.0, "ba": -11.0, "bbb": -700.0})
    text = "".join(random.Random(3).choices("ab", k=20_000)) + "b" * 500
    numbers = Texts(*numbers_of(alphabet, [text]))
    found = trie.piece_counts(expected_counts(trie.probabilities(), numbers, np.array([1])))
    assert sum(n * len(name) for n, name in zip(found, names, strict=True)) == pytest.approx(
        len(text), rel=1e-9
    )


def may_be_a_piece(text: str) -> bool:
    """IsValidSentencePiece of trainer_interface.cc, with whitespace-only pieces, and digits
    split."""
    if not 2 <= len(text) <= LONGEST or any(c in "0123456789" for c in text):
        return False
    if " " in text[1:] and text.strip(" "):
        return False
    before = None
    for character in text.replace(" ", ""):
        script = SCRIPTS[scripts()[ord(character)]]
        if script in ("Hiragana", "Katakana") or character == "ー":
            script = "Han"
        if script == "Inherited":
            continue
        if before not in (None, script):
            return False
        before = script
    return True


def plain_seeds(document: str, kept: str, characters: bool = False) -> dict[str, float]:
    """Seeds from every substring of every sentence, as bytes, or characters, follow it."""
    lines = "".join(c if c in kept else "\n" for c in document).split("\n")
    lines = [line.replace(" ", "\u2581") for line in lines if line]
    inside: dict[str, list[bytes]] = {}
    at_end: dict[str, list[bytes]] = {}
    for line, following in pairwise([*lines, *lines[:1]]):
        for a in range(len(line)):
            for z in range(a + 1, min(len(line), a + LONGEST) + 1):
                inside.setdefault(line[a:z], []).append(
                    line[z : z + 1].encode() if characters else line[z:].encode()[:1]
                )
                if z == len(line):
                    at_end.setdefault(line[a:z], []).append(following.encode()[:1])
    scores: dict[str, float] = {}
    for table in (inside, at_end):
        for text, behind in table.items():
            if may_be_a_piece(text.replace("\u2581", " ")) and len(set(behind)) > 1:
                name = text.replace("\u2581", " ")
                scores[name] = scores.get(name, 0) + len(behind) * len(text)
    return scores


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(
        st.text("ab ab1,กขe\u0301あア漢ー\n☃", max_size=60),
        st.text("กข\n", min_size=8, max_size=40),
    ),
    st.booleans(),
)
@example("กขก\nกขข\nกขก", True)
@example("\n bbbbbee\n\ne a ab a a\n", False)  # of one score, three bytes for a space
def test_seeds_are_the_substrings_that_different_bytes_or_characters_follow(document, characters):
    kept = sorted(set(document) & set("ab 1,กขe\u0301あア漢ー"))
    words = count_sentences([(document, 1)])
    segments = cut_segments(words, kept)
    alphabet, _ = make_alphabet(kept)
    begins, sizes, scores = find_seeds(
        segments, alphabet, character_kinds(kept), characters_differ=characters
    )
    raw = segments.letters.tobytes()
    found = {
        raw[a : a + n].decode(): score
        for a, n, score in zip(begins.tolist(), sizes.tolist(), scores.tolist(), strict=True)
    }
    assert found == plain_seeds(document, "".join(kept), characters)
    # By score, then by the bytes that SentencePiece has of it, the most first, then by ours.
    assert list(found) == sorted(
        found, key=lambda s: (-found[s], -len(s.replace(" ", "\u2581").encode()), s.encode())
    )


@settings(deadline=None, max_examples=150)
@given(st.text("ab ab1,กขe\u0301あア漢ー\n☃", max_size=60))
def test_with_ends_differ_a_seed_may_end_sentences_whatever_follows(document):
    kept = sorted(set(document) & set("ab 1,กขe\u0301あア漢ー"))
    segments = cut_segments(count_sentences([(document, 1)]), kept)
    raw, behind = segments.letters.tobytes(), {}
    for k, (a, z) in enumerate(pairwise(segments.ends.tolist())):
        text = raw[a : a + segments.sizes[k]].decode()
        after = [*text, object() if raw[a + segments.sizes[k]] == 0 else raw[z - 1 : z]]
        for i in range(len(text)):
            for j in range(i + 1, len(text) + 1):
                follows = after[j].encode()[:1] if isinstance(after[j], str) else after[j]
                behind.setdefault(text[i:j], []).append((follows, segments.counts[k]))
    alphabet, _ = make_alphabet(kept)
    seeds = find_seeds(segments, alphabet, character_kinds(kept), ends_differ=True)
    assert {raw[a : a + n].decode(): s for a, n, s in zip(*seeds, strict=True)} == {
        text: sum(count for _, count in places) * len(text)
        for text, places in behind.items()
        if may_be_a_piece(text) and len({follows for follows, _ in places}) > 1
    }


def test_with_a_dictionary_the_expected_count_must_be_two_if_enough_pieces_reach_it():
    words = count_sentences([("abc abd abe abf " * 9 + "xyz xyw", 1)])
    seeds = seed_pieces(words, [*" abcdefwxyz"], [], ends_differ=True)
    trie = PieceTrie(seeds.pieces, seeds.alphabet)
    expected = trie.piece_counts(expected_counts(trie.probabilities(), seeds.texts, seeds.counts))
    twice, half = int((expected >= 2).sum()), int((expected >= 0.5).sum())
    assert twice < half
    assert len(maximise(trie, seeds, twice).pieces) == twice
    assert len(maximise(trie, seeds, twice + 1).pieces) == half


def seeds_of(scores: dict[str, float], texts: dict[str, int], least: float = 0.5) -> Seeds:
    trie, _, alphabet = trie_of(scores)
    numbers = Texts(*numbers_of(alphabet, [*texts]))
    counts = np.array([*texts.values()])
    return Seeds(trie.pieces, numbers, counts, 3, np.float32(least), 1)


def names_in(pieces: Pieces) -> list[str]:
    spelled = np.split(pieces.texts.numbers, pieces.texts.ends[1:-1])
    return ["".join("abc"[n - 1] for n in numbers) for numbers in spelled]


def test_pruning_drops_a_piece_only_if_others_spell_it_better(monkeypatch):
    scores = {"a": -1.0, "b": -1.0, "c": -1.0, "ab": -2.0, "bc": -2.0625}
    seeds = seeds_of(scores, {"abc": 3})
    trie = PieceTrie(seeds.pieces, seeds.alphabet)
    pruned = unigram_pieces._prune(trie, seeds, 9).pieces
    assert "ab" in names_in(pruned) and "bc" not in names_in(pruned)
    monkeypatch.setattr(unigram_pieces, "maximise", lambda trie, *_: trie)
    monkeypatch.setattr(unigram_pieces, "_prune", lambda trie, *_: trie)
    assert names_in(learn_pieces(seeds, 9)) == ["a", "ab", "b", "c"]


def test_a_piece_expected_exactly_so_often_is_often_enough():
    seeds = seeds_of({"a": -1.0, "b": -1.0, "c": -1.0}, {"a": 2, "b": 3, "c": 1}, least=2.0)
    trie = PieceTrie(seeds.pieces, seeds.alphabet)
    assert names_in(maximise(trie, seeds, 2).pieces) == ["a", "b"]
    assert names_in(maximise(trie, seeds, 3).pieces) == ["a", "b", "c"]


def test_equal_scores_are_sorted_as_sentencepiece_spells_them():
    """A space is U+2581 there, behind all letters of ASCII."""
    names = ["ab", "b a", " b", "ba", "b"]
    alphabet, _ = make_alphabet([" ", "a", "b"])
    pieces = Pieces(Texts(*numbers_of(alphabet, names)), np.full(5, -1, np.float32), np.arange(5))
    required = Counter({"b": 2, " ": 2, "a": 2})
    final = final_scores(pieces, [" ", "a", "b"], required, 6)
    assert [name for name, _ in final] == [" ", "a", "ab", "b", "ba", "b a"]
    assert [score for _, score in final] == pytest.approx([-0.9999, -1, -1, -1, -1, -1])


def test_characters_of_one_frequency_begin_in_their_order():
    seeds = seed_pieces(count_sentences([("cab bcaa", 1)]), [*" abc"], [])
    first = seeds.pieces.order[:4]
    numbers = [seeds.pieces.texts.numbers[seeds.pieces.texts.ends[k]] for k in first]
    assert "".join(" abc"[n - 1] for n in numbers) == "abc "


@pytest.mark.parametrize(
    ("available", "coverage", "kept"),
    [(99, 1.0, "abcd"), (8, 1.0, "abcd"), (6, 1.0, "abc"), (5, 1.0, "ab"), (1, 1.0, "a"),
     (99, 4 / 7, "ab"), (99, 0.58, "abc"), (99, 0.0, "")],
)  # fmt: skip
def test_characters_are_the_commonest_of_equal_ones_by_code_point(available, coverage, kept):
    characters = Counter({"d": 1, "c": 2, "b": 2, "a": 2})
    found, share = choose_characters(characters, available, coverage)
    assert "".join(found) == kept and share == sum(characters[c] for c in kept) / 7


def test_characters_and_words_are_counted_with_their_weights():
    words = count_sentences([("a  bé\nbé bé", 3), ("\u2581x\u2585", 1)])
    spelled = [words.letters[a:z].tobytes().decode() for a, z in pairwise(words.ends.tolist())]
    found = list(zip(spelled, words.counts.tolist(), map(chr, words.following), strict=True))
    assert found == [
        ("a", 3, "\0"), ("  bé", 3, "b"), ("bé", 3, "\0"), (" bé", 3, "a"), ("x", 1, "x"),
    ]  # fmt: skip
    assert words.frequencies() == {"a": 3, " ": 9, "b": 9, "é": 9, "x": 1}


def generated(seed: int, sentences: int) -> list[str]:
    """Sentences of words by Zipf's law, in several scripts."""
    draw = random.Random(seed)
    words = []
    for letters in ("etaoinshrdlu", "กขคงจฉชซนมรา", "अआकखगतनमरे", "的一是不了在人有", "オーあい"):
        for _ in range(250):
            words.append("".join(draw.choices(letters, k=draw.randint(1, 7))))
    draw.shuffle(words)
    weights = [1 / (k + 2) for k in range(len(words))]
    texts = []
    for _ in range(sentences):
        drawn = draw.choices(words, weights, k=draw.randint(4, 16))
        drawn.insert(draw.randrange(len(drawn)), draw.choice(["12.5", "ok...", "(e\u0301a)"]))
        texts.append(" ".join(drawn) + draw.choice(["", ".", "  ", "\n"]))
    return texts


def test_weights_of_a_common_scale_change_no_piece():
    learned = []
    for scale in (1, 1000):
        learner = PieceLearner(((text, scale) for text in generated(3, 300)), scale=scale)
        kept, _ = choose_characters(learner.characters, 400)
        learned.append(learner.learn(sorted(kept), PRINTABLE_ASCII, [UNKNOWN_PIECE], 400))
    assert learned[0] == learned[1]


def compare_learners(texts: list[str], vocab: int) -> tuple[float, float]:
    """(the share of SentencePiece's pieces that ours has, the largest difference of scores)."""
    learned = []
    for learner in (PieceLearner, SentencePieceLearner):
        reader = learner((text, 1) for text in ["\n".join(texts)])
        kept, _ = choose_characters(reader.characters, vocab)
        symbols = [UNKNOWN_PIECE, "<|endoftext|>", *BYTE_PIECES]
        learned.append(dict(reader.learn(sorted(kept), PRINTABLE_ASCII, symbols, vocab)))
    own, other = learned
    both = own.keys() & other.keys()
    return len(both) / len(other), max(abs(own[name] - other[name]) for name in both)


@pytest.mark.parametrize("seed", [1, 2])
def test_pieces_and_scores_are_those_of_sentencepiece(seed):
    same, gap = compare_learners(generated(seed, 1500), 700)
    assert same >= 0.99 and gap < 1e-3


@pytest.mark.slow
def test_pieces_of_real_texts_are_those_of_sentencepiece(real_texts):
    same, gap = compare_learners(real_texts, 6000)
    assert same >= 0.995 and gap < 1e-2


def test_no_piece_holds_a_part_of_a_special_token(tmp_path):
    texts = [f"ab<|endoftext|>{letter}<unk>ab" for letter in "abcdefgh" * 30]
    train_tokenizer(texts, tmp_path, model="unigram", vocab=400)
    tokens = load_tokenizer(tmp_path / "tokenizer.json").get_vocab()
    learned = [token for token in tokens if len(token) > 1 and not token.startswith("<")]
    assert "ab" in learned and not any("end" in token or "un" in token for token in learned)


def test_texts_of_a_few_characters_have_pieces():
    learner = PieceLearner([("a" * 16, 1)])
    pieces = learner.learn(["a"], "!", [], 16)
    assert {"a", "!"} <= {name for name, _ in pieces}
    assert all(math.isfinite(score) for _, score in pieces)


def test_the_order_of_documents_changes_nothing(tmp_path):
    texts = generated(5, 300)
    for name in ("one", "other"):
        train_tokenizer(texts, tmp_path / name, model="unigram", vocab=600)
        texts = texts[::-1]
    for file in ("tokenizer.json", "tokenizer.model"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


@pytest.mark.parametrize("normalize", ["nfkc", "nmt_nfkc_cf"])
def test_both_files_of_a_normalizing_training_keep_every_mark(tmp_path, normalize):
    text = unicodedata.normalize("NFD", "ﻻَ ﷲِ بِسْمِ École B\u0e49 Việt")
    train_tokenizer(
        [f"{text} {n} fox" for n in range(30)],
        tmp_path,
        model="unigram",
        vocab=420,
        normalize=normalize,
    )
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    ids = ours.encode(text).ids
    assert ids == library.Encode(text)
    assert ours.decode(ids) == library.Decode(ids)
    assert "\u064e" in ours.decode(ids) and "\u0e49" in ours.decode(ids)
