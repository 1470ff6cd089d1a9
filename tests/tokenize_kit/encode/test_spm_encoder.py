"""SentencePiece models by our kernels: the ids of sentencepiece, whatever the text and model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parameters import drawn
from tests.tokenize_kit.formats.pieces import with_pieces
from tests.tokenize_kit.sentencepiece_models import HARD, LINES, ODD, encoded, trained
from tokenize_kit.encode.normalize import read_charsmap
from tokenize_kit.encode.spm import SpmEncoder
from tokenize_kit.formats.forms import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from tokenize_kit.formats.sentencepiece_model import read_model
from tokenize_kit.formats.tokenizer_json import Unsupported

sentencepiece = pytest.importorskip("sentencepiece")

MODELS = {
    "unigram-nfkc": ("unigram", {}),
    "unigram-identity-bytes": (
        "unigram",
        {
            "normalization_rule_name": "identity",
            "byte_fallback": True,
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "allow_whitespace_only_pieces": True,
        },
    ),
    "unigram-symbols": (
        "unigram",
        {"user_defined_symbols": ["<x>", "é", "\u2581the"], "byte_fallback": True},
    ),
    "unigram-over-spaces": ("unigram", {"split_by_whitespace": False, "vocab_size": 200}),
    "bpe-nfkc-suffix": ("bpe", {"treat_whitespace_as_suffix": True, "vocab_size": 200}),
    "bpe-llama": (
        "bpe",
        {
            "normalization_rule_name": "identity",
            "byte_fallback": True,
            "split_digits": True,
            "remove_extra_whitespaces": False,
            "allow_whitespace_only_pieces": True,
        },
    ),
    "bpe-symbols": (
        "bpe",
        {"user_defined_symbols": ["<x>", "é", "th"], "normalization_rule_name": "nfkc_cf"},
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def raw(request):
    kind, options = MODELS[request.param]
    return trained(kind, **options)


def opened(raw):
    library = sentencepiece.SentencePieceProcessor(model_proto=raw)
    return SpmEncoder(raw, library), library


def test_any_text_has_the_ids_of_the_library(raw):
    encoder, library = opened(raw)
    assert encoder.reason is None

    @settings(max_examples=drawn(60), deadline=None)
    @given(st.lists(HARD, min_size=1, max_size=5))
    def check(texts):
        assert encoded(encoder, texts) == library.Encode(texts)

    check()
    assert encoded(encoder, ["", *LINES, "", ODD]) == library.Encode(["", *LINES, "", ODD])


def test_long_texts_have_the_ids_of_the_library_though_float32_rounds(raw):
    """Sums pass 100,000, where the library begins anew, and half of a score is rounded away."""
    encoder, library = opened(raw)
    texts = ["".join(LINES) * 150, "我们在这里กิน" * 3000, "the cat 漢 " * 9000]
    assert encoded(encoder, texts) == library.Encode(texts)


SCORES = st.sampled_from([-1.0, -1.5, -2.0, -2.7, -3.1, -7.3, 0.0, 0.3, 1e-3])


@settings(max_examples=drawn(70), deadline=None)
@given(
    st.dictionaries(
        st.text("ab\u2581我们", min_size=1, max_size=5),
        st.tuples(SCORES, st.sampled_from([NORMAL, NORMAL, NORMAL, UNUSED, USER_DEFINED])),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["unigram", "bpe"]),
    st.lists(st.text("ab c\u2581我们", max_size=60), min_size=1, max_size=4),
)
def test_any_vocabulary_gives_the_ids_of_the_library(pieces, kind, texts):
    """Equal scores, unused pieces, symbols, characters without a piece, spaces anywhere."""
    model = BARE[kind]
    own = [(text, score, sort) for text, (score, sort) in pieces.items()]
    encoder, library = opened(with_pieces(model, [("<unk>", 0.0, UNKNOWN), *own]))
    if encoder.reason:
        assert "unused" in encoder.reason
    assert encoded(encoder, texts) == library.Encode(texts)


BARE = {kind: trained(kind, vocab_size=60) for kind in ("unigram", "bpe")}


def test_a_token_over_two_scripts_is_found():
    """One that begins with a space and goes on in characters of which most pairs are rare."""
    names = ["a", "\u2581", "臣", "闻", "之", "闻之", "\u2581臣", "\u2581臣闻之"]
    own = [(name, -float(k), NORMAL) for k, name in enumerate(sorted(names, key=len))]
    encoder, library = opened(with_pieces(BARE["bpe"], [("<unk>", 0.0, UNKNOWN), *own]))
    texts = ["a 臣闻之", "臣闻之 臣闻 a", "之 臣闻之闻之 之"]
    assert encoder.reason is None
    assert encoded(encoder, texts) == library.Encode(texts)


def test_real_texts_have_the_ids_of_the_library(real_texts):
    part = [text[:2000] for text in real_texts[::9]]
    for kind, options in (("unigram", {"byte_fallback": True}), ("bpe", {})):
        encoder, library = opened(trained(kind, character_coverage=1.0, **options))
        assert encoder.reason is None
        assert encoded(encoder, part) == library.Encode(part)


def test_ids_do_not_depend_on_what_came_before():
    encoder, _ = opened(BARE["bpe"])
    texts = [f"word{k} the{k * 7919:x} cat" for k in range(70_000)]  # more than is kept
    first = encoded(encoder, texts)
    assert encoded(encoder, texts[-300:]) == first[-300:]


@pytest.mark.parametrize("kind", ["word", "char"])
def test_other_kinds_of_models_go_to_the_library_and_are_named(kind):
    encoder, library = opened(trained(kind, vocab_size=60))
    assert encoder.reason == "a model of words or characters"
    assert encoded(encoder, LINES) == library.Encode(LINES)


def test_control_and_byte_pieces_never_come_out_of_their_spelling():
    pieces = [("<unk>", 0, UNKNOWN), ("</s>", 0, CONTROL), ("a", -1, NORMAL)]
    encoder, library = opened(with_pieces(BARE["unigram"], pieces))
    assert encoded(encoder, ["a</s>a"]) == library.Encode(["a</s>a"]) == [[0, 2, 0, 2]]
    encoder, library = opened(trained("bpe", byte_fallback=True))
    assert library.is_byte(byte := library.piece_to_id("<0x41>"))
    assert byte not in encoded(encoder, ["<0x41>"])[0]
    assert byte in encoded(encoder, ["A"])[0]


@pytest.mark.parametrize(
    "damage",
    ["short", "astray", "cut"],
)
def test_a_damaged_normaliser_is_left_to_the_library(damage):
    blob = read_model(BARE["unigram"]).charsmap
    size = int.from_bytes(blob[:4], "little")
    units = np.frombuffer(blob, np.uint32, size // 4, 4).copy()
    tail = blob[4 + size :]
    if damage == "short":
        tail = tail[:-1]
    elif damage == "astray":
        units[0] = 0x7FFFFC00
    else:
        tail = b"\x80" * (len(tail) - 1) + b"\0"
    with pytest.raises(Unsupported):
        read_charsmap(blob[:4] + units.tobytes() + tail)
