"""SentencePiece models and tiktoken's ranks: the ids of their own libraries, and nothing else."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from tests.parameters import drawn
from tests.tokenize_kit.byte_bpe import train_bpe
from tokenize_kit.change.convert import convert
from tokenize_kit.encode.byte_bpe import ByteEncoder, plan_of
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.tiktoken import PATTERN_NAMES, read_ranks, special_of
from tokenize_kit.formats.tokenizer_json import from_letters
from tokenize_kit.judge.compare import HARD_TEXTS
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.shards.writer import Layout, encode_shards
from tokenize_kit.tokenizer import Tokenizer
from train.data.shards import read_shards

TEXTS = ["the cat sat on the mat, then that", "กินข้าวที่บ้าน กินที่บ้าน", "a1b22 can't 'LL \n\t x  ", ""]
HARD = st.one_of(
    st.text(st.sampled_from("ab 1'sTกี่็漢é\n\t\u200d😀"), max_size=120),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
BYTES = {bytes([byte]): byte for byte in range(256)}


def packed(texts):
    raw = [text.encode() for text in texts]
    return np.frombuffer(bytearray().join(raw), np.uint8), np.cumsum([0, *map(len, raw)])


def lists(ids, sizes):
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])]


def file_of(ranks):
    lines = [b"%s %d" % (base64.b64encode(token), rank) for token, rank in ranks.items()]
    return b"\n".join(lines) + b"\n"


def theirs(ranks, pattern):
    tiktoken = pytest.importorskip("tiktoken")
    return tiktoken.Encoding(
        "test",
        pat_str=PATTERNS[pattern].parts[0],
        mergeable_ranks=ranks,
        special_tokens=special_of(pattern, max(ranks.values())),
    )


@pytest.fixture(scope="module")
def learned():
    """Ranks in the order in which a trainer merged."""
    tokenizer = train_bpe(
        iter(TEXTS * 9), vocab=380, digits="single", special_tokens=["<|endoftext|>"]
    )
    words = sorted(tokenizer.get_vocab().items(), key=lambda word: word[1])
    tokens = [from_letters(word) for word, _ in words if word != "<|endoftext|>"]
    return {token: rank for rank, token in enumerate(tokens)}


@pytest.mark.parametrize("pattern", PATTERN_NAMES)
def test_ranks_give_the_ids_of_tiktoken(learned, pattern):
    library = theirs(learned, pattern)
    encoder = ByteEncoder(plan_of(learned, PATTERNS[pattern].parts[0]))

    @settings(max_examples=drawn(60), deadline=None)
    @given(st.lists(HARD, min_size=1, max_size=4))
    def check(texts):
        assert lists(*encoder.encode(*packed(texts))) == [
            library.encode_ordinary(text) for text in texts
        ]

    check()
    check = lists(*encoder.encode(*packed(TEXTS)))
    assert check == [library.encode_ordinary(text) for text in TEXTS]


@settings(max_examples=drawn(150), deadline=None)
@given(
    st.lists(st.text("ab", min_size=2, max_size=6), unique=True, max_size=14),
    st.lists(st.text("ab", max_size=60), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_ranks_in_any_order_give_the_ids_of_tiktoken(tokens, texts, draw):
    """Includes orders that no trainer makes: a token before its parts, or without any."""
    numbers = [*range(256, 256 + len(tokens))]
    draw.shuffle(numbers)
    ranks = BYTES | {token.encode(): rank for token, rank in zip(tokens, numbers, strict=True)}
    ids = lists(*ByteEncoder(plan_of(ranks, PATTERNS["gpt2"].parts[0])).encode(*packed(texts)))
    assert ids == [theirs(ranks, "gpt2").encode_ordinary(text) for text in texts]


def test_ranks_of_real_texts(real_texts):
    part = [text[:3000] for text in real_texts[::7]]
    tokenizer = train_bpe(
        iter(part), vocab=3000, digits="triples", special_tokens=["<|endoftext|>"]
    )
    words = sorted(tokenizer.get_vocab().items(), key=lambda word: word[1])
    ranks = {
        from_letters(word): rank for rank, (word, _) in enumerate(words) if word != "<|endoftext|>"
    }
    ids = lists(*ByteEncoder(plan_of(ranks, PATTERNS["o200k"].parts[0])).encode(*packed(part)))
    assert ids == [theirs(ranks, "o200k").encode_ordinary(text) for text in part]


def test_a_file_of_ranks_makes_shards(batch_of, learned, tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(file_of(learned))
    rows = [(str(k), text + "<|endoftext|>") for k, text in enumerate(TEXTS)]
    layout = Layout(pattern="cl100k", form="olmo")
    manifest = encode_shards([batch_of(*rows)], tmp_path / "x.tiktoken", tmp_path / "out", layout)
    tokens = np.fromfile(tmp_path / "out/tokens-00000.npy", "<u2").tolist()
    end = len(learned)
    assert manifest["special_ids"] == {"<|endoftext|>": end}
    assert (manifest["tokenizer"], manifest["pattern"]) == ("tokenizer.tiktoken", "cl100k")
    library = theirs(learned, "cl100k")
    assert tokens == [t for _, text in rows for t in [*library.encode_ordinary(text), end]]
    assert (tmp_path / "out/tokenizer.tiktoken").read_bytes() == file_of(learned)


def test_published_files_have_their_special_tokens():
    assert special_of("cl100k", 100_255)["<|endoftext|>"] == 100_257
    assert special_of("gpt2", 50_255) == {"<|endoftext|>": 50_256}
    assert special_of("cl100k", 999) == {"<|endoftext|>": 1000}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "all 256 bytes"),
        (b"YQ== 0\n???? 1\n", "line 2 is not"),
        (b"YQ== 0 1\n", "line 1 is not"),
        (b"YQ== x\n", "line 1 is not"),
        (b"YQ== 0\nYQ== 1\n", "line 2: a repeated token or rank"),
        (b"YQ== 0\nYg== 0\n", "line 2: a repeated token or rank"),
        (b"YQ== 99999999999\n", "line 1: a rank outside"),
        (b"YQ== -1\n", "line 1: a rank outside"),
        (b"\x00\xff\n", "line 1 is not"),
    ],
    ids="empty base64 three-fields no-number token-twice rank-twice huge negative binary".split(),
)
def test_a_file_that_holds_no_ranks_is_refused_in_one_line(tmp_path, raw, says):
    (tmp_path / "x.tiktoken").write_bytes(raw)
    with pytest.raises(LlmcurateError, match=says) as error:
        open_vocabulary(tmp_path / "x.tiktoken", "gpt2")
    assert error.value.exit_code == 2 and "\n" not in str(error.value)


def test_a_file_of_ranks_cut_short_is_refused(learned, tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(file_of(learned)[:1000])
    with pytest.raises(LlmcurateError, match=r"not a \.tiktoken file"):
        open_vocabulary(tmp_path / "x.tiktoken", "gpt2")


@pytest.mark.parametrize("pattern", [None, "deepseek", "magic", "bert"])
def test_ranks_need_a_pattern_that_tiktoken_could_take(learned, tmp_path, pattern):
    (tmp_path / "x.tiktoken").write_bytes(file_of(learned))
    with pytest.raises(LlmcurateError, match="give --pattern, one of gpt2, cl100k") as error:
        open_vocabulary(tmp_path / "x.tiktoken", pattern)
    assert "bert" not in str(error.value) and "deepseek" not in str(error.value)


def test_read_ranks_keeps_the_numbers_of_the_file():
    gaps = {token: 3 * rank for token, rank in BYTES.items()}
    assert read_ranks(file_of(gaps)) == gaps


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    import sentencepiece

    path = tmp_path_factory.mktemp("pieces") / "p.model"
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:3] * 9),
        model_writer=model,
        vocab_size=340,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    return path


def test_a_sentencepiece_model_gives_its_own_ids(batch_of, pieces, tmp_path):
    import sentencepiece

    rows = [(str(k), text) for k, text in enumerate([*TEXTS, "a</s>b", "<s>", "nul \x00 漢"])]
    manifest = encode_shards([batch_of(*rows)], pieces, tmp_path, Layout(prepend_bos=True))
    library = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    begin, end = library.bos_id(), library.eos_id()
    expected = [t for _, text in rows for t in [begin, *library.Encode(text), end]]
    assert np.fromfile(tmp_path / "tokens-00000.bin", "<u2").tolist() == expected
    assert manifest["special_ids"] == {"<s>": begin, "</s>": end}
    assert (tmp_path / "tokenizer.model").read_bytes() == pieces.read_bytes()
    with pytest.raises(LlmcurateError, match=r"training needs a tokenizer\.json"):
        read_shards(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 100], ids=["empty", "byte", "cut-short"])
def test_a_file_that_is_no_sentencepiece_model_is_refused(pieces, tmp_path, size):
    (tmp_path / "x.model").write_bytes(pieces.read_bytes()[:size])
    with pytest.raises(LlmcurateError, match="not a SentencePiece model"):
        open_vocabulary(tmp_path / "x.model")


def test_only_ranks_take_a_pattern(pieces):
    with pytest.raises(LlmcurateError, match=r"for \.tiktoken files"):
        open_vocabulary(pieces, "gpt2")


def test_an_empty_token_and_gaps_in_ranks_are_read_as_tiktoken_reads_them(learned, tmp_path):
    """Whisper's multilingual.tiktoken ends in an empty token, whose id no text gives."""
    load = pytest.importorskip("tiktoken.load")
    apart = {token: rank + 7 * (rank >= 256) for token, rank in learned.items()}
    free = max(apart.values()) + 5
    (tmp_path / "x.tiktoken").write_bytes(file_of(apart) + b"= %d\n" % free)
    ranks = load.load_tiktoken_bpe(str(tmp_path / "x.tiktoken"))
    assert ranks == apart | {b"": free}
    library = theirs(ranks, "gpt2")
    vocabulary = open_vocabulary(tmp_path / "x.tiktoken", "gpt2")
    assert vocabulary.special == {"<|endoftext|>": free + 1} and vocabulary.size == free + 2
    convert(tmp_path / "x.tiktoken", tmp_path / "json", "tokenizer.json", pattern="gpt2")
    both = [Tokenizer(tmp_path / "x.tiktoken", "gpt2"), Tokenizer(tmp_path / "json")]
    for text in [*TEXTS, *HARD_TEXTS]:
        expected = library.encode_ordinary(text)
        assert free not in expected
        assert [tokenizer.encode(text) for tokenizer in both] == [expected] * 2
