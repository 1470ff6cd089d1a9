"""Tokenizers in other formats: the same ids as their own libraries give, or a named refusal."""

from __future__ import annotations

import base64
import io
import json
import sys
from dataclasses import replace

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers
from tokenizers.models import BPE

from curate.cli.app import whole_app
from llmcurate.base.errors import LlmcurateError, UsageError
from tests.parameters import drawn
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import open_source
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.formats.forms import ByteBpe, CannotHold
from tokenize_kit.formats.gguf import read_metadata
from tokenize_kit.formats.json_forms import pieces_tokenizer
from tokenize_kit.formats.sentencepiece_model import read_form, write_form
from tokenize_kit.formats.tiktoken import to_ranks
from tokenize_kit.judge.compare import HARD_TEXTS, SCRIPTS
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.pattern.named import PATTERNS

TEXTS = [
    "the cat sat on the mat, then that; can't 'LL \n\t x  12345 ½",
    "กินข้าวที่บ้าน กินที่บ้าน แล้วกิน",
    "漢字とかなの文。Привет, мир! ﬁne ＦＵＬＬ",
    "def f(x):\n    return x[1:]  # the rest",
]
ENGLISH = ["the cat sat on the mat, then that; they ran", "low lower lowest new newer sunk"]
HARD = st.one_of(
    st.text(st.sampled_from("abthe 1'sTกี่็漢é\n\t\u200dﬁ😀\u2581"), max_size=60),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
WORDS = {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"}
MODELS = {
    "unigram": {"model_type": "unigram", "vocab_size": 240},
    "unigram-bytes": {
        "model_type": "unigram",
        "vocab_size": 560,
        "byte_fallback": True,
        "user_defined_symbols": ["<sep>", "the"],
        **WORDS,
    },
    "bpe": {"model_type": "bpe", "vocab_size": 240, "pad_id": 3},
    "llama": {"model_type": "bpe", "vocab_size": 560, "byte_fallback": True, **WORDS},
    "gemma": {
        "model_type": "bpe",
        "vocab_size": 560,
        "byte_fallback": True,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["\n", "\n\n", "\u2581\u2581", "<a>"],
        **WORDS,
    },
}
NO_TOKENS = (
    b'{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,'
    b'"pre_tokenizer":null,"post_processor":null,"decoder":null,'
    b'"model":{"type":"BPE","vocab":{},"merges":[]}}'
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, options in MODELS.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*TEXTS, *SCRIPTS] * 9),
            model_writer=model,
            minloglevel=2,
            hard_vocab_limit=options["model_type"] == "bpe",
            **options,
        )
        (folder / f"{name}.model").write_bytes(model.getvalue())
    return folder


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    """tokenizer.json of byte-level BPE by the pattern that cuts for them."""
    folder = tmp_path_factory.mktemp("bpe")
    for name in ("gpt2", "llama3", "o200k", "deepseek"):
        train_tokenizer(iter([*TEXTS, *SCRIPTS] * 9), folder / name, vocab=420, pattern=name)
    return folder


def ids_of(path, texts, pattern=None):
    ids, sizes = open_source(path, pattern).encode(*pack_texts(texts))
    return ids.tolist(), sizes.tolist()


@pytest.mark.parametrize("name", MODELS)
def test_a_sentencepiece_model_as_json_gives_the_ids_of_sentencepiece(models, name):
    file = models / f"{name}.model"
    library = sentencepiece.SentencePieceProcessor(model_file=str(file))
    tokenizer = pieces_tokenizer(read_form(file.read_bytes()))
    tokenizer.encode_special_tokens = True

    def same(text):
        encoding = tokenizer.encode(text, add_special_tokens=False).ids
        expected = library.encode(text)
        # Where two paths are equally good, float32 sums of SentencePiece decide otherwise.
        tied = name.startswith("unigram") and sorted(encoding) == sorted(expected)
        return encoding == expected or tied

    @settings(max_examples=drawn(80), deadline=None)
    @given(HARD)
    def check(text):
        assert same(text)

    check()
    assert all(same(text) for text in [*HARD_TEXTS, *SCRIPTS, *TEXTS[:4]])
    assert len(tokenizer.get_vocab()) == library.get_piece_size()


@pytest.mark.parametrize("name", ["unigram", "unigram-bytes", "bpe", "llama"])
def test_a_model_comes_back_from_json(models, tmp_path, name):
    source = models / f"{name}.model"
    convert(source, tmp_path / "json", "tokenizer.json")
    convert(tmp_path / "json", tmp_path / "back.model", "sentencepiece")
    back = read_form((tmp_path / "back.model").read_bytes())
    was = read_form(source.read_bytes())
    assert [text for text, _, _ in back.pieces] == [text for text, _, _ in was.pieces]
    assert ids_of(tmp_path / "back.model", TEXTS[:4]) == ids_of(source, TEXTS[:4])


@settings(max_examples=drawn(80), deadline=None)
@given(text=st.text(st.sampled_from("<>/sunkthe \u00e9"), max_size=20))
def test_a_special_token_is_no_text_where_its_characters_are_unknown(plain, text):
    """T5's vocabulary has no `<`: an unknown character must not cost more than the token."""
    library, tokenizer = plain
    for sample in (text, f"{text}<unk>", f"the</s>{text}"):
        assert tokenizer.encode(sample, add_special_tokens=False).ids == library.encode(sample)


@pytest.fixture(scope="module")
def plain():
    """A Unigram of letters, by its library and as a tokenizer.json."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*ENGLISH] * 9), model_writer=model, vocab_size=40,
        model_type="unigram", hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    tokenizer = pieces_tokenizer(read_form(model.getvalue()))
    tokenizer.encode_special_tokens = True
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), tokenizer


def test_a_model_file_is_written_as_it_was_read(models):
    for file in models.iterdir():
        raw = file.read_bytes()
        assert read_form(write_form(read_form(raw))) == read_form(raw)


@pytest.mark.parametrize("name", ["gpt2", "llama3", "o200k"])
def test_ranks_of_a_tokenizer_json_are_tiktokens(byte_level, tmp_path, name):
    tiktoken = pytest.importorskip("tiktoken")
    card = convert(byte_level / name, tmp_path / "x.tiktoken", "tiktoken")
    lines = (tmp_path / "x.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in lines)}
    library = tiktoken.Encoding(
        "test",
        pat_str=card.pat_str,
        mergeable_ranks=ranks,
        special_tokens=card.special_tokens,
    )
    own = Tokenizer.from_file(str(byte_level / name / "tokenizer.json"))
    own.encode_special_tokens = True
    for text in [*SCRIPTS, *TEXTS[:4]]:
        assert library.encode_ordinary(text) == own.encode(text).ids
    assert card.pattern == name
    assert json.loads((tmp_path / "x.card.json").read_text())["special_tokens"] == {
        "<|endoftext|>": 0
    }
    convert(tmp_path / "x.tiktoken", tmp_path / "again", "tokenizer.json", pattern=name)
    assert ids_of(tmp_path / "again", TEXTS[:4]) == ids_of(byte_level / name, TEXTS[:4])


def test_a_unigram_gguf_keeps_its_rules_of_normalisation(models, tmp_path):
    convert(models / "unigram.model", tmp_path / "x.gguf", "gguf")
    assert open_source(tmp_path / "x.gguf").form == open_source(models / "unigram.model").form


@pytest.mark.parametrize("name", ["gpt2", "llama3", "deepseek", "llama"])
def test_a_tokenizer_comes_back_from_gguf(models, byte_level, tmp_path, name):
    pieces = models / f"{name}.model"
    source = pieces if pieces.is_file() else byte_level / name
    convert(source, tmp_path / "x.gguf", "gguf")
    convert(tmp_path / "x.gguf", tmp_path / "back", "tokenizer.json")
    assert ids_of(tmp_path / "back", TEXTS[:4]) == ids_of(source, TEXTS[:4])


def test_a_gguf_has_the_keys_that_llama_cpp_reads_in_its_types(models, tmp_path):
    gguf = pytest.importorskip("gguf")
    convert(models / "unigram.model", tmp_path / "x.gguf", "gguf")
    fields = gguf.GGUFReader(tmp_path / "x.gguf").fields
    types = {key: [kind.name for kind in field.types] for key, field in fields.items()}
    assert types["general.architecture"] == types["tokenizer.ggml.model"] == ["STRING"]
    assert types["tokenizer.ggml.tokens"] == ["ARRAY", "STRING"]
    assert types["tokenizer.ggml.token_type"] == ["ARRAY", "INT32"]
    assert types["tokenizer.ggml.scores"] == ["ARRAY", "FLOAT32"]
    assert types["tokenizer.ggml.precompiled_charsmap"] == ["ARRAY", "UINT8"]
    assert types["tokenizer.ggml.eos_token_id"] == ["UINT32"]
    assert types["tokenizer.ggml.add_bos_token"] == ["BOOL"]


def test_without_the_package_one_line_says_how_to_get_it(byte_level, tmp_path, monkeypatch):
    convert(byte_level / "gpt2", tmp_path / "x.gguf", "gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    for source, to in ((byte_level / "gpt2", "gguf"), (tmp_path / "x.gguf", "tiktoken")):
        with pytest.raises(UsageError, match=r"pip install 'llmcurate\[gguf\]'"):
            convert(source, tmp_path / "y", to)


@pytest.mark.parametrize(
    ("name", "to", "names"),
    [
        ("o200k", "gguf", "gpt-4o is not o200k: marks are not letters"),
        ("o200k", "sentencepiece", "SentencePiece has no pattern"),
        ("deepseek", "tiktoken", "one pattern, and this tokenizer has 3"),
        ("unigram", "tiktoken", "this is SentencePiece's Unigram"),
        ("llama", "tiktoken", "SentencePiece's BPE of characters"),
        ("unigram-bytes", "gguf", r"Unigram \(t5\) has no byte fallback"),
        ("bpe", "gguf", "needs pieces for all bytes"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else value,
)
def test_what_a_format_cannot_hold_is_named(models, byte_level, tmp_path, name, to, names):
    pieces = models / f"{name}.model"
    source = pieces if pieces.is_file() else byte_level / name
    with pytest.raises(CannotHold, match=names) as error:
        convert(source, tmp_path / "out", to)
    assert str(source) in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_pattern_is_known_however_it_is_written(byte_level, tmp_path):
    """DeepSeek's own file does not escape what ours does."""

    def rewrite(parts):
        for split in parts["pre_tokenizer"]["pretokenizers"][:3]:
            regex = split["pattern"]["Regex"]
            split["pattern"]["Regex"] = regex.replace("\\r\\n", "\r\n").replace('\\"', '"')
        parts["normalizer"] = {"type": "Sequence", "normalizers": []}

    source = changed(byte_level, tmp_path, rewrite, "deepseek")
    card = convert(source, tmp_path / "x.gguf", "gguf")
    assert card.terms["tokenizer.ggml.pre"] == "deepseek-v3"


@pytest.mark.parametrize(("name", "alike"), [("gpt2", "phi-2"), ("llama3", "llama-v3")])
def test_other_names_of_a_pattern_of_llama_cpp_are_read(byte_level, tmp_path, name, alike):
    convert(byte_level / name, tmp_path / "x.gguf", "gguf")
    raw = (tmp_path / "x.gguf").read_bytes()
    pre = read_metadata(tmp_path / "x.gguf")["tokenizer.ggml.pre"].encode()
    assert raw.count(len(pre).to_bytes(8, "little") + pre) == 1
    other = alike.encode()
    raw = raw.replace(
        len(pre).to_bytes(8, "little") + pre, len(other).to_bytes(8, "little") + other
    )
    (tmp_path / "y.gguf").write_bytes(raw)
    assert ids_of(tmp_path / "y.gguf", TEXTS) == ids_of(byte_level / name, TEXTS)


def test_a_special_token_that_text_would_produce_blocks_the_conversion_to_gguf(
    byte_level, tmp_path
):
    """Under llama-bpe a piece of text is any token of the vocabulary, special ones too."""

    def forge(parts):
        parts["model"]["ignore_merges"] = True
        token = parts["added_tokens"][0]
        parts["added_tokens"].append(token | {"id": 420, "content": "hello"})

    with pytest.raises(CannotHold, match="ids would differ: in 'hello'"):
        convert(changed(byte_level, tmp_path, forge, "llama3"), tmp_path / "x.gguf", "gguf")


def test_a_token_without_a_merge_is_refused_for_most_patterns_of_llama_cpp(byte_level, tmp_path):
    def without_merge(parts):
        parts["model"]["ignore_merges"] = True
        parts["model"]["merges"].pop()

    with pytest.raises(CannotHold, match="some have none"):
        convert(changed(byte_level, tmp_path, without_merge), tmp_path / "x.gguf", "gguf")


def test_only_two_part_words_without_a_merge_become_tiktoken_ranks():
    tokens = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"xyz": 257}
    merges, cut_by = ((b"a", b"b"),), PATTERNS["cl100k"].parts
    assert b"257" in to_ranks(ByteBpe(tokens, merges, cut_by, (), True))
    with pytest.raises(CannotHold, match="tiktoken merges 'abc' from other parts"):
        to_ranks(ByteBpe(tokens | {b"abc": 258}, merges, cut_by, (), True))


def test_a_token_with_a_merge_for_each_of_its_splits_becomes_a_rank():
    """Converters of tiktoken's files list all splits of a token, as in Llama 3's tokenizer.json."""
    tokens = {bytes([byte]): byte for byte in range(256)} | {b"  ": 256, b"   ": 257, b"    ": 258}
    merges = [(b" ", b" "), (b" ", b"  "), (b"  ", b" ")]
    merges += [(b" ", b"   "), (b"  ", b"  "), (b"   ", b" ")]
    form = ByteBpe(tokens, tuple(merges), PATTERNS["cl100k"].parts, (), True)
    assert b"ICAgIA== 258" in to_ranks(form)
    with pytest.raises(CannotHold, match="from other parts"):
        to_ranks(replace(form, merges=(*merges[:4], merges[5])))


def changed(byte_level, tmp_path, change, name="gpt2"):
    parts = json.loads((byte_level / name / "tokenizer.json").read_text())
    change(parts)
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    return tmp_path / "tokenizer.json"


def test_merges_that_ids_do_not_give_are_no_ranks(byte_level, tmp_path):
    def swap(parts):
        merges = parts["model"]["merges"]
        merges[0], merges[20] = merges[20], merges[0]

    with pytest.raises(CannotHold, match="ranks cannot express its merges"):
        convert(changed(byte_level, tmp_path, swap), tmp_path / "x.tiktoken", "tiktoken")


def test_the_space_symbol_of_sentencepiece_is_named_if_its_ids_differ(tmp_path):
    train_tokenizer(iter([*TEXTS, *SCRIPTS] * 9), tmp_path, vocab=560, model="unigram")
    (tmp_path / "tokenizer.model").unlink()
    card = convert(tmp_path, tmp_path / "x.model", "sentencepiece")
    assert card.notes[-1].startswith("texts with '\u2581' may have other ids")
    assert card.compared["explained_texts"] == 1
    assert ids_of(tmp_path / "x.model", TEXTS) == ids_of(tmp_path, TEXTS)
    convert(tmp_path, tmp_path / "copy", "tokenizer.json")
    own = (tmp_path / "tokenizer.json").read_bytes()
    assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == own


def test_a_token_without_a_merge_is_no_rank(byte_level, tmp_path):
    def drop(parts):
        del parts["model"]["merges"][0]

    with pytest.raises(CannotHold, match=r"tiktoken merges .* from other parts"):
        convert(changed(byte_level, tmp_path, drop), tmp_path / "x.tiktoken", "tiktoken")


@pytest.mark.parametrize("to", ["tiktoken", "gguf"])
def test_a_normaliser_is_named(byte_level, tmp_path, to):
    source = changed(byte_level, tmp_path, lambda p: p.update(normalizer={"type": "NFC"}))
    with pytest.raises(CannotHold, match=r"normalizes text \(NFC\)"):
        convert(source, tmp_path / "out", to)


def test_ids_that_differ_on_the_given_texts_are_refused(byte_level, tmp_path):
    """On texts where llama.cpp's pattern cuts as this one, the same tokenizer is taken."""
    source = byte_level / "o200k"
    card = convert(
        source, tmp_path / "x.gguf", "gguf", batches=[pack_texts(["plain words, 12 of them"])]
    )
    assert card.verified_texts == 1 and card.terms["tokenizer.ggml.pre"] == "gpt-4o"
    with pytest.raises(CannotHold, match="its ids would differ: in 'กี่'"):
        convert(source, tmp_path / "y.gguf", "gguf", batches=[pack_texts(["a", "กี่"])])
    assert not (tmp_path / "y.gguf").exists()


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("x.gguf", b""),
        ("x.gguf", b"GGUF\x03\0\0\0"),
        ("x.gguf", b"GGML" + bytes(60)),
        ("x.gguf", b"GGUF\x03\0\0\0" + bytes(8) + b"\xff" * 8),
        ("x.gguf", b"GGUF\x03\0\0\0" + bytes(16)),
        ("x.model", b""),
        ("x.model", b"\x0a\xff\xff\xff\xff\x0f"),
        ("x.tiktoken", b"YQ== 0\n"),
        ("x.json", b"{}"),
        ("x.json", NO_TOKENS),
        ("x.json", NO_TOKENS.replace(b"{}", b'{"a":4000000000}')),
        ("x.bin", b"\0"),
    ],
    ids="empty cut magic keys no-vocabulary no-model cut-model ranks json no-tokens huge-ids"
    " unknown".split(),
)
def test_a_file_that_is_no_tokenizer_is_refused_in_one_line(tmp_path, name, raw):
    (tmp_path / name).write_bytes(raw)
    pattern = "gpt2" if name == "x.tiktoken" else None
    with pytest.raises(LlmcurateError, match=name) as error:
        open_source(tmp_path / name, pattern)
    assert error.value.exit_code == 2 and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["gguf", "model"])
def test_a_file_cut_anywhere_is_refused_or_read(models, tmp_path, kind):
    source = models / "llama.model"
    convert(source, tmp_path / "whole.gguf", "gguf")
    raw = (tmp_path / "whole.gguf" if kind == "gguf" else source).read_bytes()
    for size in range(1, len(raw) - 40, len(raw) // 37):
        (tmp_path / f"x.{kind}").write_bytes(raw[:size])
        with pytest.raises(LlmcurateError, match=f"x.{kind}"):
            open_source(tmp_path / f"x.{kind}")


def test_a_folder_opens_with_transformers(models, byte_level, tmp_path):
    transformers = pytest.importorskip("transformers")
    convert(models / "llama.model", tmp_path / "llama", "tokenizer.json")
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama")
    assert loaded.eos_token == "</s>" and loaded.decode(loaded.encode(TEXTS[0])) == TEXTS[0]


def test_the_command_says_what_was_verified(models, tmp_path):
    from typer.testing import CliRunner

    (tmp_path / "docs.jsonl").write_text('{"text": "the cat"}\n{"text": "sat on it"}\n')
    out = tmp_path / "tok"
    arguments = ["tokenizer", "convert", str(models / "llama.model"), "-o", str(out)]
    arguments += ["--to", "tokenizer.json", "--on", str(tmp_path / "docs.jsonl"), "--json"]
    result = CliRunner().invoke(whole_app(), arguments)
    card = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0 and card["verified_texts"] == 2
    # The figures are those of the source, too: the ids are the same.
    assert (card["measured"]["texts"], card["measured"]["bytes"]) == (2, 16)
    assert card["measured"]["lost"] == 0
    assert convert(models / "llama.model", tmp_path / "x.gguf", "gguf").measured is None
    result = CliRunner().invoke(whole_app(), arguments[:-1])
    assert "same ids as llama.model in 2 of 2 texts (16 bytes)" in result.output
    assert {file.name for file in out.iterdir()} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "tokenizer_card.json",
        "tokenizer_card.md",
    }


def test_special_tokens_of_a_tiktoken_file_are_those_of_its_card(tmp_path):
    train_tokenizer(ENGLISH, tmp_path / "own", vocab=300)
    ranks = tmp_path / "ranks.tiktoken"
    convert(tmp_path / "own", ranks, "tiktoken")
    card = convert(ranks, tmp_path / "back", "tokenizer.json", pattern="o200k")
    assert card.special_tokens == {"<|endoftext|>": 0}
    (tmp_path / "ranks.card.json").unlink()
    card = convert(ranks, tmp_path / "bare", "tokenizer.json", pattern="o200k")
    added = card.special_tokens["<|endoftext|>"]
    assert added > 0 and f"added <|endoftext|> with id {added}" in card.notes[0]


def test_a_byte_order_mark_is_left_out_of_the_new_file(tmp_path):
    train_tokenizer(ENGLISH, tmp_path / "own", vocab=300)
    whole = (tmp_path / "own" / "tokenizer.json").read_bytes()
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + whole)
    convert(tmp_path / "marked.json", tmp_path / "new", "tokenizer.json")
    assert (tmp_path / "new" / "tokenizer.json").read_bytes() == whole


@pytest.mark.parametrize("normalize", ["nfkc", "nmt_nfkc_cf"])
def test_a_conversion_keeps_the_marks_that_a_model_keeps(tmp_path, normalize):
    text = "ﻻَ ﷲِ E\u0301cole B\u0e49 fox"
    train_tokenizer([text] * 9, tmp_path, model="unigram", vocab=420, normalize=normalize)
    model = tmp_path / "tokenizer.model"
    convert(model, tmp_path / "new", "tokenizer.json")
    new = Tokenizer.from_file(str(tmp_path / "new" / "tokenizer.json"))
    library = sentencepiece.SentencePieceProcessor(model_file=str(model))
    assert new.encode(text).ids == library.Encode(text)
    lossy = json.loads(new.to_str())
    steps = lossy["normalizer"]["normalizers"]
    at = next(k for k, step in enumerate(steps) if step["type"] == "Precompiled")
    lossy["normalizer"]["normalizers"] = [steps[at], *steps[at + 2 :]]
    (tmp_path / "lossy.json").write_text(json.dumps(lossy))
    with pytest.raises(CannotHold, match="drops marks"):
        convert(tmp_path / "lossy.json", tmp_path / "again", "sentencepiece")


def test_byte_tokens_that_are_special_are_named(tmp_path):
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "a"]
    vocab = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.add_special_tokens(names[:-1])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CannotHold, match="byte tokens, such as <0x00>, are added tokens"):
        convert(tmp_path / "tokenizer.json", tmp_path / "new", "sentencepiece")
