"""Cards: what a tokenizer is measured on, what the page says, that no text of it is Markdown."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, replace

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenize_kit.card import MOST_ROWS, PIECE_BYTES, Sample, code_span, table
from tokenize_kit.change.convert import convert
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.judge.compare import compare
from tokenize_kit.lab.extend import extend
from tokenize_kit.lab.prune import prune
from tokenize_kit.learn.mixture import MixtureRead, Share
from tokenize_kit.learn.training import train_tokenizer

TEXTS = [
    "low lower lowest new newer newest wide wider widest, 1234 times.\n" * 20,
    "the cat sat on the mat; the rat sat on the hat. don't\n" * 9,
    "ภาษาไทย ครับ हिन्दी 漢字かな\n" * 9,
]
TABLES = ("scripts", "numbers", "indentation")
VOCAB = {"bpe": 320, "char-bpe": 360, "unigram": 420, "wordpiece": 200}


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    """(folder, card) of a tokenizer of each model."""
    cards_by_model = {}
    for model, vocab in VOCAB.items():
        folder = tmp_path_factory.mktemp(model)
        cards_by_model[model] = folder, train_tokenizer(TEXTS, folder, model=model, vocab=vocab)
    return cards_by_model


def page_of(folder):
    return (folder / "tokenizer_card.md").read_text(encoding="utf-8")


def by_hand(raw_texts, seed, most):
    """The smallest hashes of all pieces, as many as fit."""
    pieces = []
    for raw in raw_texts:
        while raw:
            cut = min(PIECE_BYTES, len(raw))
            while cut < len(raw) and 0x80 <= raw[cut] < 0xC0:
                cut -= 1
            pieces.append(raw[:cut])
            raw = raw[cut:]
    pieces.sort(key=lambda piece: xxhash.xxh3_64_intdigest(piece, seed))
    figures = []
    for piece in pieces:
        most -= len(piece) + 64
        if most < 0:
            break
        figures.append(piece)
    return figures


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.builds(lambda text, n: text * n, st.text(), st.integers(0, 4000))),
    seed=st.integers(0, 2**63 - 1),
    most=st.integers(0, 40_000),
)
def test_a_sample_is_the_smallest_hashes_that_fit_in_any_order(texts, seed, most):
    raw = [text.encode() for text in texts]
    expected = by_hand(raw, seed, most)
    for order in (raw, raw[::-1], random.Random(0).sample(raw, len(raw))):
        sample = Sample(seed, most)
        for document in order:
            sample.add(document)
        assert sample.pieces() == expected
    assert "".join(sample.texts()).encode() == b"".join(expected)  # no character is cut


@pytest.mark.parametrize("model", list(VOCAB))
def test_figures_are_those_of_eval_on_the_same_texts(cards, model):
    folder, card = cards[model]
    figures = compare([folder / "tokenizer.json"], [(*pack_texts(TEXTS), {})])["tokenizers"][0]
    measured = asdict(card.measured)
    assert measured["texts"] == len(TEXTS)
    assert measured["on"] == "a sample of the training text"
    for name in measured.keys() & figures.keys() - {"first_lost", *TABLES}:
        assert measured[name] == (figures[name] and pytest.approx(figures[name], abs=1e-6)), name
    assert [measured[name] for name in TABLES] == [figures[name] for name in TABLES]
    assert measured["lost"] == (len(TEXTS) if model == "wordpiece" else 0)
    assert (measured["byte_share"] is None) == (model in ("bpe", "wordpiece"))


@pytest.mark.parametrize("model", list(VOCAB))
def test_the_page_has_the_facts_of_the_json(cards, model):
    folder, card = cards[model]
    text = page_of(folder)
    assert text.startswith(f"# Tokenizer: {card.algorithm}, {card.vocab:,} tokens\n")
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    assert f"| sha256 of the tokenizer's file | `{digest}` |" in text
    assert f"| bytes per token | {card.measured.bytes_a_token:.3f} |" in text
    assert "Measured on a sample of the training text, drawn by a hash with seed 0: 3 " in text
    assert f"| sum of the texts' xxh3-128 | `{card.texts_xxh3}` |" in text
    for name, value in card.settings.items():
        assert f"| `{name}` | " in text and (value is not None) != (f"| `{name}` | not" in text)
    for token, number in card.special_tokens.items():
        shown = token.replace("|", "\\|")
        assert f"| `{shown}` | {number} |" in text
    assert ("SentencePieceProcessor" in text) == (model == "unigram")
    exact = text.count("Decoding returns the exact text: nothing is normalized, and ")
    assert exact == (model != "wordpiece")


def test_the_card_says_what_the_tokenizer_does_not_keep(tmp_path):
    card = train_tokenizer(TEXTS, tmp_path, vocab=320, normalize="nfc", space_token="<_>")
    text = page_of(tmp_path)
    assert not card.lossless and "the exact text" not in text
    assert "it is normalized (nfc) first, and `<_>` becomes a space" in text


def test_gguf_is_possible_where_convert_writes_it(tmp_path):
    for chosen, pre in (
        ({"pattern": "llama3"}, "llama-bpe"),
        ({"pattern": "llama3", "digits": "single"}, "qwen2"),
        ({"pattern": "llama3", "normalize": "nfc"}, None),
        ({}, None),
    ):
        card = train_tokenizer(TEXTS, tmp_path, vocab=320, **chosen)
        assert card.gguf.get("tokenizer.ggml.pre") == card.gguf_pattern == pre
        assert ("refused" in card.gguf) == (pre is None)
        assert ("cannot use this tokenizer" in page_of(tmp_path)) == (pre is None)
        if pre:
            convert(tmp_path, tmp_path / "tok.gguf", "gguf")


def test_the_same_texts_in_any_order_give_the_same_card_and_page(cards, tmp_path):
    folder, _ = cards["bpe"]
    train_tokenizer(TEXTS[::-1], tmp_path, vocab=VOCAB["bpe"])
    for name in ("tokenizer_card.json", "tokenizer_card.md", "tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_other_texts_have_another_hash(cards, tmp_path):
    card = train_tokenizer([*TEXTS[1:], TEXTS[0][:-1]], tmp_path, vocab=VOCAB["bpe"])
    assert card.texts_xxh3 != cards["bpe"][1].texts_xxh3
    whole = sum(xxhash.xxh3_128_intdigest(text.encode()) for text in TEXTS) % (1 << 128)
    assert cards["bpe"][1].texts_xxh3 == f"{whole:032x}"


def test_tokenizers_that_were_changed_have_a_page_too(cards, tmp_path):
    old = cards["bpe"][0]
    more = ["กินข้าวที่บ้าน แล้วกินข้าว " * 9, "Katze und Matte " * 9]
    changed = [
        extend(old, [pack_texts(more)], tmp_path / "more", 9),
        prune(old, lambda: [pack_texts(TEXTS)], tmp_path / "less"),
        convert(old, tmp_path / "ranks", "tiktoken"),
        convert(cards["unigram"][0] / "tokenizer.model", tmp_path / "spm.model", "sentencepiece"),
    ]
    files = ["more/tokenizer.json", "less/tokenizer.json", "ranks/tokenizer.tiktoken", "spm.model"]
    heads = [" with 9 new tokens", " tokens without ", "Converted to", "Converted to"]
    for card, file, head in zip(changed, files, heads, strict=True):
        path = tmp_path / file
        alone = path.name == "spm.model"
        name = path.with_suffix(".card.json") if alone else path.parent / "tokenizer_card.json"
        assert json.loads(name.read_text()) == json.loads(json.dumps(card.json()))
        text = name.with_suffix(".md").read_text()
        assert card.tokenizer_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert card.tokenizer_sha256 in text and head in text
        assert "`<|endoftext|>` ends a document." in text
    sizes = [card.vocab for card in changed]
    whole = cards["bpe"][1].vocab
    assert sizes == [whole + 9, changed[1].new_tokens, whole, cards["unigram"][1].vocab]
    assert [card.measured and card.measured.on for card in changed] == [
        "the texts learned from",
        "a sample of the texts it was checked on",
        None,
        None,
    ]
    assert "| bytes per token before | " in (tmp_path / "more" / "tokenizer_card.md").read_text()


@settings(max_examples=300, deadline=None)
@given(text=st.text())
def test_any_text_in_code_is_that_text_and_no_markdown(text):
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if not shown.strip():
        shown = json.dumps(shown)
    rows = [token for token in markdown.parse(f"x {code_span(text)} y") if token.type == "inline"]
    assert [(t.type, t.content) for t in rows[0].children] == [
        ("text", "x "),
        ("code_inline", shown),
        ("text", " y"),
    ]
    cells = markdown.parse(table(("a", "b"), [(code_span(text), "z")]))
    inline = [token for token in cells if token.type == "inline"]
    assert [len(inline), inline[-1].content] == [4, "z"]


def test_a_long_mixture_is_cut_and_what_it_names_stays_text(cards):
    values = {
        f"</table>`|{n}": Share(weight=1.0, documents=1, bytes=5, share=0.01)
        for n in range(MOST_ROWS + 7)
    }
    mixture = MixtureRead("a|b", 3.0, values)
    text = replace(cards["bpe"][1], mixture=mixture).page("tokenizer_card.json")
    assert text.count("</table>") == MOST_ROWS and "7 more are in the JSON file." in text
    assert "Mixture by the column `a|b`, temperature 3:" in text
    html = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<table>") == 6 and html.count("</table>") == 6
