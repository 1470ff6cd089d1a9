"""BoundlessBPE: the merges of the paper's one pass, by looking at everything again for each."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.tokenize_kit.learn.reference_bpe import cut, go_on, merged, symbols
from tests.tokenize_kit.learn.test_superwords import LETTERS, MANY_WORDS, PROSE, ids_of, too_long
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.errors import TokenizerError
from tokenize_kit.formats.tokenizer_json import ORDER, from_letters, load_tokenizer
from tokenize_kit.learn.boundless import learn_boundless
from tokenize_kit.learn.byte_words import count_cuttings
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_tokenizer, train_tokenizers

OPTIONS = TrainingOptions(sizes=(600,), superwords="auto")
LINES = OPTIONS.cutting.parts
WORDS = OPTIONS.counted_parts[len(LINES) :]
TEXTS = st.lists(st.one_of(LETTERS, MANY_WORDS, st.sampled_from(PROSE)), max_size=5)
BYTES = {byte: number for number, byte in enumerate(ORDER)}


def pieces(text, parts):
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    return [piece for piece, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


def lines_of(texts):
    """Lines as words as bytes, with their counts."""
    return Counter(
        tuple(tuple(BYTES[byte] for byte in word.encode()) for word in pieces(line, WORDS))
        for text in texts
        for line in pieces(text, LINES)
    )


def pairs_of(line, across):
    """Pairs that may merge: within words, or of two words that are one token each."""
    if not across:
        return [pair for word in line for pair in pairwise(word)]
    return [(a[0], b[0]) for a, b in pairwise(line) if len(a) == len(b) == 1]


def with_merge(line, pair, token, across):
    if not across:
        return tuple(merged(word, pair, token) for word in line)
    left, right = (pair[0],), (pair[1],)
    return merged(line, (left, right), (token,))


def by_the_paper(texts, size):
    """(spelled merges, whether each is over words), in the order in which they are learned.

    Tokens over words have ids behind all others, for ties."""
    plain, lines = [bytes([byte]) for byte in ORDER], lines_of(texts)
    go_on(symbols(cut(texts, [*LINES, *WORDS])), plain, [], size)
    names, ids, learned = {k: plain[k] for k in range(256)}, {}, []
    while len(names) < size:
        counts = Counter()
        for line, count in lines.items():
            for across in (False, True):
                for pair in pairs_of(line, across):
                    counts[(across, *pair)] += count
        spelled = {key: names[key[1]] + names[key[2]] for key in counts}
        taken = {*plain, *(names[k] for k in names if k >= size)}
        allowed = [
            key
            for key, count in counts.items()
            if count >= 2 and not (key[0] and (spelled[key] in taken or too_long(spelled[key])))
        ]
        if not allowed:
            break
        across, *pair = key = min(allowed, key=lambda key: (-counts[key], key))
        fresh = size + len(names) if across else len(ids) + 256
        token = fresh if across else ids.setdefault(spelled[key], fresh)
        learned.append((names[pair[0]], names[pair[1]], across))
        names[token] = spelled[key]
        changed = Counter()
        for line, count in lines.items():
            changed[with_merge(line, tuple(pair), token, across)] += count
        lines = changed
    return learned


def learn(texts, size):
    counted = count_cuttings(((text, 1) for text in texts), [OPTIONS.counted_parts, LINES])
    names, merges, over = learn_boundless(*counted, WORDS, size, [], 2, 1 << 40)
    return [(names[a], names[b], k >= len(merges) - over) for k, (a, b) in enumerate(merges)]


@settings(max_examples=20, deadline=None)
@given(TEXTS, st.integers(257, 290))
def test_merges_are_those_of_one_pass_with_those_within_words_first(texts, size):
    assert learn(texts, size) == sorted(by_the_paper(texts, size), key=lambda merge: merge[2])


def paper_tokens(text, merges):
    """A text encoded by the paper's rule, merge after merge."""
    tokens = []
    for line in pieces(text, LINES):
        words = tuple(tuple(bytes([b]) for b in word.encode()) for word in pieces(line, WORDS))
        for left, right, across in merges:
            words = with_merge(words, (left, right), left + right, across)
        tokens += [token for word in words for token in word]
    return tokens


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(257, 300), st.one_of(LETTERS, st.sampled_from([t[:99] for t in PROSE])))
def test_by_the_papers_rule_the_order_of_the_two_lists_changes_no_token(texts, size, text):
    merges = by_the_paper(texts, size)
    first = sorted(merges, key=lambda merge: merge[2])
    assert paper_tokens(text, merges) == paper_tokens(text, first)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boundless")
    card = train_tokenizer(PROSE, folder, vocab=420, superwords="auto", space_runs=4)
    return Encoder(load_tokenizer(folder / "tokenizer.json")), card


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(LETTERS, st.text(max_size=30), st.sampled_from(PROSE)), max_size=6))
def test_both_encoders_give_the_same_ids_and_texts_come_back(trained, texts):
    ours, theirs, back = ids_of(trained[0], texts)
    assert ours == theirs and back == texts


def test_the_card_counts_the_tokens_over_words(trained):
    encoder, card = trained
    vocab = [from_letters(t) for t in encoder.tokenizer.get_vocab() if not t.startswith("<|")]
    over = [token for token in vocab if len(pieces(token.decode("utf-8", "ignore"), WORDS)) > 1]
    assert card["superwords"] == len(over) > 10 and card["settings"]["superwords"] == "auto"
    assert card["algorithm"].startswith(f"BoundlessBPE: byte-level BPE with {len(over)} tokens")


def test_part_of_a_word_may_join_its_neighbour_in_the_file(tmp_path):
    train_tokenizer(["of the\n"] * 9 + ["theory\n"], tmp_path, vocab=271, superwords="auto")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    tokens = [tokenizer.id_to_token(k) for k in tokenizer.encode("of theory").ids]
    assert tokens[0] == "ofĠthe" and len(tokens) > 1


def test_indentation_stands_apart_from_the_word_behind_it(tmp_path):
    train_tokenizer(["    return x\n", "a        b\n"] * 9, tmp_path, vocab=300, superwords="auto")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("    return x\n").tokens == ["ĠĠĠ", "ĠreturnĠxĊ"]


def test_each_of_several_sizes_is_the_one_that_it_gives_alone(tmp_path):
    train_tokenizers(PROSE, tmp_path, TrainingOptions(sizes=(400, 300), superwords="auto"))
    for size in (300, 400):
        train_tokenizer(PROSE, tmp_path / "alone", vocab=size, superwords="auto")
        files = [tmp_path / name / "tokenizer.json" for name in (str(size), "alone")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_the_order_of_texts_decides_nothing(tmp_path):
    for name, texts in (("a", PROSE), ("b", PROSE[::-1])):
        train_tokenizer(texts, tmp_path / name, vocab=400, superwords="auto")
    files = [(tmp_path / name / "tokenizer.json").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_words_on_both_sides_of_one_that_is_no_token_are_no_neighbours(tmp_path):
    texts = ["of theory and\n"] * 9
    train_tokenizer(texts, tmp_path, vocab=300, superwords="auto", max_token_length=6)
    vocab = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert {"of", "Ġand", "ĠandĊ"} <= set(vocab) and not {"Ġtheory", "ofĠand"} & set(vocab)


def test_other_words_for_the_number_are_refused():
    with pytest.raises(TokenizerError, match="superwords most: give 258 to 499, or auto"):
        TrainingOptions(sizes=(500,), superwords="most")
