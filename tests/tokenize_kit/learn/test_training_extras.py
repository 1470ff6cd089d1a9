"""Normal forms, a token for spaces, chat templates, and Unigram's sizes, weights and padding."""

from __future__ import annotations

import json
import unicodedata

import pyarrow as pa
import pytest
import sentencepiece

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_on_corpus, train_tokenizer, train_tokenizers

TEXTS = [
    "low lower lowest new newer newest wide wider widest, 1234567 times.\n" * 20,
    "the cat sat on the mat; the rat sat on the hat. 2024-11-21\n" * 9,
    "ภาษาไทย ครับ हिन्दी 漢字かな don't WE'LL ﬁne e\u0301tude ＡＢＣ\n" * 9,
]


@pytest.mark.parametrize("model", ["bpe", "char-bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("form", ["nfc", "nfkc", "nmt_nfkc", "nmt_nfkc_cf"])
def test_a_normal_form_is_in_the_card_the_file_and_what_is_learned(tmp_path, model, form):
    if (model, form) == ("unigram", "nfc"):
        pytest.skip("SentencePiece has no NFC")
    card = train_tokenizer(TEXTS, tmp_path, model=model, vocab=430, normalize=form)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert card.normalisation == form and card.lossless is False
    assert not any("round-trip" in line for line in card.warnings)
    composed = "étude"
    wanted = composed + " ABC fine" if form != "nfc" else composed + " ＡＢＣ ﬁne"
    wanted = wanted.lower() if form.endswith("_cf") else wanted
    assert tokenizer.normalizer.normalize_str("e\u0301tude ＡＢＣ ﬁne") == wanted
    if model != "wordpiece":
        assert tokenizer.decode(tokenizer.encode("e\u0301tude").ids) == composed
    ids = tokenizer.encode("e\u0301tude").ids
    assert ids == tokenizer.encode(unicodedata.normalize("NFC", "étude")).ids
    if model == "unigram":
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
        for text in ("e\u0301tude ＡＢＣ", *TEXTS):
            assert theirs.encode(text) == tokenizer.encode(text).ids


@pytest.mark.parametrize("model", ["bpe", "char-bpe", "unigram"])
def test_every_space_is_the_token_that_was_named_for_it(tmp_path, model):
    card = train_tokenizer(TEXTS, tmp_path, model=model, vocab=430, space_token="<_>")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    results = tokenizer.encode("the  cat ไทย")
    assert [tokenizer.id_to_token(i) for i in results.ids].count("<_>") == 3
    assert tokenizer.decode(results.ids) == "the  cat ไทย"
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    spaced = [t for t in vocab if (" " in t or "Ġ" in t) and len(t) > 1]
    assert spaced == [] and "<_>" not in card.special_tokens
    assert card.space_token == "<_>" and card.lossless is False
    assert not any("round-trip" in line for line in card.warnings)
    assert tokenizer.decode(tokenizer.encode("a<_>b").ids) == "a b"
    if model == "unigram":
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
        assert theirs.encode("the<_><_>cat<_>ไทย") == results.ids


def test_a_chat_template_goes_into_the_configuration(tmp_path):
    path = tmp_path / "chat.jinja"
    template = (
        "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}"
    )
    path.write_text(template)
    train_tokenizer(TEXTS, tmp_path / "out", vocab=300, chat_template=str(path))
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert config["chat_template"] == template


@pytest.mark.parametrize(
    "data, message",
    [
        (b"a\n{% for x %}", "line 2: "),
        (b"{{ x", "line 1: "),
        (b" \n", "it is empty"),
        (b"\xff", "not UTF-8"),
        (None, "No such file"),
    ],
    ids=["for", "open", "empty", "not-utf8", "missing"],
)
def test_a_template_that_does_not_parse_is_a_one_line_error(tmp_path, data, message):
    path = tmp_path / "chat.jinja"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(LlmcurateError, match=message) as caught:
        train_tokenizer(["text"], tmp_path / "out", vocab=300, chat_template=str(path))
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    assert not list((tmp_path / "out").glob("*.json"))


def test_unigram_of_several_sizes_is_each_of_them_alone(tmp_path):
    options = TrainingOptions(model="unigram", sizes=(400, 440), pad_to=64)
    cards = train_tokenizers(TEXTS, tmp_path, options)
    for size, card in zip((400, 440), cards, strict=True):
        train_tokenizer(TEXTS, tmp_path / "alone", model="unigram", vocab=size, pad_to=64)
        for name in ("tokenizer.json", "tokenizer.model", "tokenizer_card.json"):
            together = (tmp_path / str(size) / name).read_bytes()
            assert together == (tmp_path / "alone" / name).read_bytes()
        assert card.vocab % 64 == 0 and 0 < card.padding < 64
        theirs = sentencepiece.SentencePieceProcessor(
            model_file=str(tmp_path / str(size) / "tokenizer.model")
        )
        last = card.vocab - 1
        assert theirs.get_piece_size() == card.vocab and theirs.is_control(last)
        assert theirs.id_to_piece(last) == f"<|reserved_{card.padding - 1}|>"
        text = "the newest <|reserved_0|>"
        ours = load_tokenizer(tmp_path / str(size) / "tokenizer.json")
        assert ours.encode(text).ids == theirs.encode(text)


def test_unigram_weights_count_as_repetitions(tmp_path):
    """Scores are sums of floats, so equal in pieces and in their order, near in value."""

    def corpus(rows):
        batch = pa.RecordBatch.from_pylist(
            [{"text": text, "lang": lang} for text, lang in rows],
            schema=pa.schema([("text", pa.string()), ("lang", pa.string())]),
        )
        return lambda: iter([batch])

    english, other = (TEXTS[0], "en"), (TEXTS[2], "th")
    options = {"model": "unigram", "sizes": (420,)}
    weighed = TrainingOptions(**options, weights="lang=th:3")
    train_on_corpus(corpus([english, other]), tmp_path / "weights", weighed)
    train_on_corpus(
        corpus([english, *[other] * 3]), tmp_path / "copies", TrainingOptions(**options)
    )
    results = [
        dict(json.loads((tmp_path / n / "tokenizer.json").read_text())["model"]["vocab"])
        for n in ("weights", "copies")
    ]
    assert results[0].keys() == results[1].keys()
    assert all(abs(results[0][piece] - score) < 0.1 for piece, score in results[1].items())


def test_stages_are_reported_in_order_and_long_reading_on_the_way(tmp_path, monkeypatch):
    clock = iter(range(0, 10_000, 7))
    monkeypatch.setattr("tokenize_kit.learn.training.time.monotonic", lambda: float(next(clock)))
    batch = pa.RecordBatch.from_pylist([{"text": text} for text in TEXTS])
    message = []
    options = TrainingOptions(sizes=(300,))
    train_on_corpus(lambda: iter([batch]), tmp_path, options, lambda *line: message.append(line))
    begins = [what.split()[0] for what, seconds in message if seconds is not None]
    assert begins == ["read", "learned", "checked"]
    assert any(what.endswith("so far") and seconds is None for what, seconds in message)
