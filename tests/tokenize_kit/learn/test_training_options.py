"""Options of training: sizes from one learning, limits of merges, patterns, special tokens."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Tokenizer

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.card import PIECE_BYTES
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.tokenizer_json import ORDER, from_letters
from tokenize_kit.judge.compare import HARD_TEXTS
from tokenize_kit.learn.bpe import lay_out_words, learn_merges, train_byte_bpe
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_tokenizer, train_tokenizers
from tokenize_kit.pattern.named import DIGITS, PATTERNS

TEXTS = [
    "low lower lowest new newer newest wide wider widest, 1234567 times.\n" * 20,
    "the cat sat on the mat; the rat sat on the hat. 2024-11-21\n" * 9,
    "ภาษาไทย ครับ हिन्दी 漢字かな don't WE'LL\n" * 9,
]


def trained(texts, **options):
    """to_str of the tokenizer of every size."""
    trained = train_byte_bpe([(text, 1) for text in texts], TrainingOptions(**options))
    return [one.tokenizer.to_str() for one in trained]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pattern": "gpt2", "min_frequency": 3},
        {"max_token_length": 4, "pad_to": 64},
        {"special_tokens": ("</s>", "<|user|>"), "reserved": 5, "digits": "triples-right"},
    ],
    ids=["default", "gpt2", "short-padded", "special"],
)
def test_one_of_several_sizes_equals_a_tokenizer_trained_for_that_size_only(options):
    sizes = (264, 270, 300, 350, 2000)
    together = trained(TEXTS, sizes=sizes, **options)
    assert together == [trained(TEXTS, sizes=(size,), **options)[0] for size in sizes]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab c"), max_size=30), max_size=12))
def test_merges_of_a_smaller_vocabulary_begin_those_of_a_larger_one(texts):
    sizes = (258, 259, 262, 400)
    together = [json.loads(t)["model"] for t in trained(texts, sizes=sizes)]
    assert together == [json.loads(trained(texts, sizes=(s,))[0])["model"] for s in sizes]
    for small, large in itertools.pairwise(together):
        assert large["merges"][: len(small["merges"])] == small["merges"]
        assert small["vocab"].items() <= large["vocab"].items()


def test_sizes_learned_together_on_real_texts_are_those_learned_alone(real_texts):
    texts = real_texts[::4]
    together = trained(texts, sizes=(1000, 4000))
    assert together == [trained(texts, sizes=(size,))[0] for size in (1000, 4000)]


def by_hand(words, tokens, least, longest):
    """Merges as (bytes, bytes), by looking at everything again for each of them."""
    names = [bytes([byte]) for byte in ORDER]
    number = {name: k for k, name in enumerate(names)}
    spelled = {word: [number[bytes([b])] for b in word.encode()] for word in words}
    merges = []
    while len(names) < tokens:
        pairs = Counter()
        for word, symbols in spelled.items():
            for a, b in itertools.pairwise(symbols):
                if len(names[a]) + len(names[b]) <= longest:
                    pairs[a, b] += words[word]
        pairs = {pair: n for pair, n in pairs.items() if n >= least}
        if not pairs:
            break
        a, b = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if names[a] + names[b] not in number:
            number[names[a] + names[b]] = len(names)
            names.append(names[a] + names[b])
        merges.append((a, b))
        for symbols in spelled.values():
            k = 0
            while k < len(symbols) - 1:
                if (symbols[k], symbols[k + 1]) == (a, b):
                    symbols[k : k + 2] = [number[names[a] + names[b]]]
                k += 1
    return names, merges


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 9), max_size=8),
    st.integers(1, 12),
    st.integers(2, 6),
)
def test_limits_of_frequency_and_length_are_those_of_training_by_hand(words, least, longest):
    raw = [word.encode() for word in words]
    letters = np.frombuffer(bytearray().join(raw), np.uint8)
    ends = np.cumsum([0, *map(len, raw)])
    counts = np.array(list(words.values()), np.int64)
    learned = learn_merges(lay_out_words(letters, ends, counts), 280, [], least, longest)
    assert learned == by_hand(words, 280, least, longest)


def test_no_token_is_longer_than_asked(tmp_path):
    train_tokenizer(TEXTS, tmp_path, vocab=600, max_token_length=5)
    vocab = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    sizes = [len(from_letters(t)) for t in vocab if not t.startswith("<|")]
    assert max(sizes) == 5


def test_a_pair_under_the_least_frequency_is_not_merged(tmp_path):
    cards = [
        train_tokenizer(["ab " * 3 + "cd " * 2], tmp_path / str(n), vocab=900, min_frequency=n)
        for n in (1, 2, 3, 4)
    ]
    assert [card.merges for card in cards] == [4, 4, 1, 0]
    assert [card.min_frequency for card in cards] == [1, 2, 3, 4]


@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "bert"])
def test_every_pattern_trains_a_tokenizer_that_both_engines_encode_alike(pattern, digits):
    if (pattern, digits) == ("graphemes", "triples-right"):
        pytest.skip("refused: groups from the right would cut clusters")
    [text] = trained(TEXTS, sizes=(500,), pattern=pattern, digits=digits)
    tokenizer = Tokenizer.from_str(text)
    ours = Encoder(tokenizer)
    assert ours.reason is None
    texts = [*TEXTS, "7 77 777 7777 77777 1,234,567.89 ٣٣٣٣", "a  1  b\n\n 2  "]
    raw = [t.encode() for t in texts]
    data = np.frombuffer(bytearray().join(raw), np.uint8)
    ids, _ = ours.encode(data, np.cumsum([0, *map(len, raw)]))
    assert ids.tolist() == [i for t in texts for i in tokenizer.encode(t).ids]
    assert tokenizer.decode(tokenizer.encode(texts[-1]).ids) == texts[-1]


def test_digits_from_the_right_are_tokens_that_line_up(tmp_path):
    train_tokenizer(
        ["1234567 234567 34 234 567 1 " * 9], tmp_path, vocab=400, digits="triples-right"
    )
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    ids = tokenizer.encode("1234567").ids
    assert [tokenizer.decode([i]) for i in ids] == ["1", "234", "567"]


def test_a_document_of_one_long_number_is_checked_in_parts(tmp_path):
    texts = ["1" * 45_000, "12"]
    right, free = (
        train_tokenizer(texts, tmp_path, vocab=300, digits=digits)
        for digits in ("triples-right", "free")
    )
    pieces = -(-45_000 // PIECE_BYTES) + 1
    assert right.round_trip_checked == free.round_trip_checked == len(HARD_TEXTS) + pieces
    assert not any("round-trip" in line for line in right.warnings)


def test_the_card_says_pattern_digits_and_whether_gguf_knows_them(tmp_path):
    cards = [
        train_tokenizer(TEXTS, tmp_path, vocab=300, **settings)
        for settings in (
            {},
            {"pattern": "llama3"},
            {"pattern": "llama3", "digits": "single"},
            {"pattern": "cl100k"},
        )
    ]
    assert [(c.pattern, c.digits, c.gguf_pattern) for c in cards] == [
        ("o200k", "single", None),
        ("llama3", "triples", "llama-bpe"),
        ("llama3", "single", "qwen2"),
        ("cl100k", "triples", None),
    ]
    assert [len(c.notes) for c in cards] == [1, 0, 0, 1]
    assert all(
        cards[k].notes[0].endswith("use --pattern gpt2, llama3, qwen2 or deepseek") for k in (0, 3)
    )


def test_special_reserved_and_padding_tokens_have_their_positions(tmp_path):
    card = train_tokenizer(
        [*TEXTS, "<|reserved_0|><|reserved_3|><|user|>" * 50],
        tmp_path,
        vocab=300,
        special_tokens=("</s>", "<|user|>"),
        reserved=2,
        pad_to=128,
    )
    assert card.vocab == 384 and card.padding == 84 and card.warnings == []
    numbers = card.special_tokens
    assert list(numbers)[:4] == ["</s>", "<|user|>", "<|reserved_0|>", "<|reserved_1|>"]
    assert list(numbers.values()) == [*range(4), *range(300, 384)]
    assert list(numbers)[4] == "<|reserved_2|>"
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.get_vocab_size() == 384
    text = "<|reserved_0|><|reserved_3|><|user|></s>"
    ids = tokenizer.encode(text).ids
    assert not set(ids) & set(numbers.values()) and tokenizer.decode(ids) == text


def test_a_vocabulary_that_is_a_multiple_already_is_not_padded(tmp_path):
    card = train_tokenizer(TEXTS, tmp_path, vocab=320, pad_to=64)
    assert (card.vocab, card.padding) == (320, 0)


def test_several_sizes_go_into_a_folder_each_with_a_card(tmp_path):
    options = TrainingOptions(sizes=(300, 340), pad_to=8)
    cards = train_tokenizers(TEXTS, tmp_path, options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["300", "340"]
    for size, card in zip((300, 340), cards, strict=True):
        folder = tmp_path / str(size)
        assert json.loads((folder / "tokenizer_card.json").read_text()) == card.json()
        assert card.vocab_asked == size and card.vocab == -(-size // 8) * 8
        assert load_tokenizer(folder / "tokenizer.json").get_vocab_size() == card.vocab


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_the_files_beside_it_say_what_transformers_asks_for(tmp_path, model):
    special = ("<|endoftext|>", "<s>", "<pad>", "<|user|>")
    train_tokenizer(TEXTS, tmp_path, model=model, vocab=420, special_tokens=special, reserved=1)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    roles = json.loads((tmp_path / "special_tokens_map.json").read_text())
    assert roles == {
        "eos_token": "<|endoftext|>",
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "additional_special_tokens": ["<|user|>", "<|reserved_0|>"],
    }
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["clean_up_tokenization_spaces"] is False
    assert roles.items() <= config.items()
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    ids = {t["content"]: int(n) for n, t in config["added_tokens_decoder"].items()}
    assert ids == {t: tokenizer.token_to_id(t) for t in [*special, "<|reserved_0|>"]}
    assert {int(n): AddedToken(**t) for n, t in config["added_tokens_decoder"].items()} == (
        tokenizer.get_added_tokens_decoder()
    )


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"pattern": "gpt5"}, "pattern is 'gpt5': choose one of gpt2, cl100k"),
        ({"digits": "pairs"}, "choose one of single, triples, triples-right, free"),
        ({"sizes": ()}, "at least one size"),
        ({"sizes": (300, 300)}, "each size once"),
        ({"sizes": (300, 20)}, "vocab 20: ask for 258 or more"),
        ({"sizes": (300,), "reserved": 43}, "vocab 300: ask for 301 or more"),
        ({"reserved": -1}, "reserved is -1: give 0 or more"),
        ({"pad_to": 0}, "pad_to is 0"),
        ({"pad_to": 10**6}, "pad_to is 1000000"),
        ({"min_frequency": 0}, "min_frequency is 0"),
        ({"max_token_length": 1}, "max_token_length is 1: give 2 or more"),
        ({"special_tokens": ("</s>", "<|reserved_1|>")}, "use reserved"),
        ({"special_tokens": ("</s>", "a b")}, "printable ASCII"),
        ({"model": "unigram", "pattern": "whitespace"}, "pattern: not for unigram"),
        ({"character_seeds": True}, "character-seeds: only for the model unigram"),
        (
            {"model": "unigram", "character_seeds": True, "dictionary": "words.txt"},
            "dictionary: not with character-seeds",
        ),
        ({"model": "unigram", "max_token_length": 9}, "max-token-length: not"),
        ({"model": "unigram", "min_frequency": 3}, "min-frequency: not"),
        ({"model": "unigram", "digits": "free"}, "use digits single"),
        ({"model": "unigram", "normalize": "nfc"}, "SentencePiece has no such rule"),
        ({"normalize": "nfd"}, "choose one of none, nfc, nfkc, nmt_nfkc, nfkc_cf, nmt_nfkc_cf"),
        ({"space_token": "<_>", "space_runs": 4}, "space-token and space-runs: give one"),
        ({"space_token": "<|endoftext|>"}, "give each once"),
        ({"space_token": " "}, "two or more printable ASCII"),
        ({"model": "wordpiece", "space_token": "<_>"}, "space-token: wordpiece"),
        ({"character_coverage": 0.99}, "character-coverage: bpe merges bytes; leave it out"),
        ({"model": "char-bpe", "character_coverage": 1.5}, "give 1 or less"),
        ({"model": "char-bpe", "special_tokens": ("</s>", "<0x41>")}, "the token of a byte"),
        ({"model": "char-bpe", "pattern": "bert"}, "only for wordpiece"),
        ({"model": "wordpiece", "pattern": "gpt2"}, "cut by BERT's pattern"),
        ({"model": "wordpiece", "special_tokens": ("</s>",)}, "wordpiece needs [UNK]"),
    ],
    ids=lambda value: "" if isinstance(value, str) else ",".join(f"{k}" for k in value),
)
def test_wrong_options_are_one_line_that_says_what_to_do(wrong, message):
    with pytest.raises(LlmcurateError) as caught:
        TrainingOptions(**wrong)
    assert caught.value.exit_code == 2
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_unigram_takes_the_name_of_the_pattern_that_it_has(tmp_path):
    for name in (None, "metaspace"):
        train_tokenizer(TEXTS, tmp_path / str(name), model="unigram", vocab=420, pattern=name)
    unnamed, named = ((tmp_path / n / "tokenizer.json").read_bytes() for n in ("None", "metaspace"))
    assert unnamed == named


def test_every_option_is_described_in_a_sentence_and_every_number_has_a_limit():
    for name, option in TrainingOptions.__pydantic_fields__.items():
        assert re.fullmatch(r"[A-Z].*\.", option.description), name
        default = getattr(TrainingOptions(), name)
        if isinstance(default, (int, float)) and not isinstance(default, bool):
            assert "Ge" in {type(limit).__name__ for limit in option.metadata}, name


def test_special_tokens_have_ids_in_the_order_given_and_any_of_them_ends_documents(tmp_path):
    deepseek = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>")
    for model, special, roles in (
        ("bpe", deepseek, ("bos_token", "eos_token", "pad_token")),
        ("bpe", ("<s>", "<|im_start|>", "</s>"), ("bos_token", None, "eos_token")),
        ("wordpiece", ("[PAD]", "[UNK]", "[SEP]"), ("pad_token", "unk_token", "eos_token")),
        ("char-bpe", ("<unk>", "<s>", "</s>"), ("unk_token", "bos_token", "eos_token")),
        ("unigram", ("<pad>", "</s>", "<unk>"), ("pad_token", "eos_token", None)),
    ):
        out = tmp_path / model / special[0]
        card = train_tokenizer(TEXTS, out, model=model, vocab=430, special_tokens=special)
        vocabulary = open_vocabulary(out / "tokenizer.json")
        config = json.loads((out / "tokenizer_config.json").read_text())
        for number, (token, role) in enumerate(zip(special, roles, strict=True)):
            assert Tokenizer.from_file(str(out / "tokenizer.json")).id_to_token(number) == token
            assert role is None or config[role] == token
        assert card.end_of_text == special[roles.index("eos_token")]
        assert vocabulary.roles.end == roles.index("eos_token") and card.padding == 0
        ids = set(vocabulary.encode(*pack_texts(list(special)))[0].tolist())
        assert not ids & {number for number in range(3) if special[number] != "[UNK]"}


def test_unigram_has_one_unknown_piece_wherever_it_is_named(tmp_path):
    for special, unknown in ((("</s>",), 0), (("<pad>", "</s>", "<unk>"), 2)):
        out = tmp_path / str(unknown)
        train_tokenizer(TEXTS, out, model="unigram", vocab=430, special_tokens=special)
        model = SentencePieceProcessor(model_file=str(out / "tokenizer.model"))
        pieces = [model.id_to_piece(number) for number in range(model.get_piece_size())]
        assert pieces.count("<unk>") == 1 and pieces.index("<unk>") == model.unk_id() == unknown


def test_letters_that_stand_for_bytes_are_no_special_token():
    for token in ("Ġthe", "Ġé"):
        with pytest.raises(LlmcurateError, match="printable ASCII"):
            TrainingOptions(special_tokens=("</s>", token))
    with pytest.raises(LlmcurateError, match="printable ASCII"):
        TrainingOptions(model="char-bpe", special_tokens=("</s>", "<｜User｜>"))
