"""Conversions are compared beside added tokens, with special tokens matched, and decoded."""

from __future__ import annotations

import io
import json

import pytest
import sentencepiece
from tokenizers import Tokenizer
from typer.testing import CliRunner

from curate.cli.app import whole_app
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import open_source
from tokenize_kit.change.verify import by_llama_cpp, pack_texts, tried
from tokenize_kit.formats.forms import (
    CONTROL,
    FLAGS,
    UNKNOWN,
    USER_DEFINED,
    Added,
    ByteBpe,
    CannotHold,
)
from tokenize_kit.formats.gguf import from_metadata, to_metadata
from tokenize_kit.formats.json_forms import added_of, byte_bpe_tokenizer
from tokenize_kit.formats.tokenizer_json import parts_of
from tokenize_kit.judge.compare import SCRIPTS
from tokenize_kit.lab.prune import prune
from tokenize_kit.learn.training import train_tokenizer

TEXTS = ["the number of numbers, in all", "low lower lowest; new newer newest"] * 9
STRIPS = ("single_word", "lstrip", "rstrip")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    train_tokenizer(iter(TEXTS), folder, vocab=270, pattern="gpt2")
    return folder / "tokenizer.json"


def with_added(plain, folder, *tokens, **changes):
    """A tokenizer.json with more added tokens: (content, special, *flags)."""
    parts = json.loads(plain.read_text())
    for number, (content, special, *flags) in enumerate(tokens, 270):
        token = {flag: flag in flags for flag in FLAGS}
        parts["added_tokens"].append({"id": number, "content": content} | token)
        parts["added_tokens"][-1]["special"] = special
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(parts | changes))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("flag", STRIPS)
@pytest.mark.parametrize("to", ["gguf", "tiktoken"])
def test_a_flag_that_a_format_cannot_hold_is_refused_by_name(plain, tmp_path, flag, to):
    source = with_added(plain, tmp_path / "in", ("NUM", True, flag))
    with pytest.raises(CannotHold, match=rf"{flag}=true of 1 added token: 'NUM'; add --allow-loss"):
        convert(source, tmp_path / "out", to)
    assert not (tmp_path / "out").exists()
    card = convert(source, tmp_path / "out", to, allow_loss=True)
    assert card.lost == [f"{flag}=true of 1 added token: 'NUM'"]
    assert card.compared["explained_texts"] > 0 and card.origin().endswith("'NUM'.")


def test_a_whole_word_token_that_is_text_is_lost_only_by_name(plain, tmp_path):
    source = with_added(plain, tmp_path / "in", ("NUM", False, "single_word"))
    card = convert(source, tmp_path / "x.gguf", "gguf", allow_loss=True)
    texts = pack_texts(["NUMBER of NUM"])
    before = open_source(source).encode(*texts)[0].tolist()
    after = open_source(tmp_path / "x.gguf").encode(*texts)[0].tolist()
    assert before.count(270) == 1 and after.count(270) == 2
    assert json.loads((tmp_path / "x.card.json").read_text())["lost"] == card.lost


def test_text_that_becomes_special_in_tiktoken_is_a_loss(plain, tmp_path):
    source = with_added(plain, tmp_path / "in", ("<tool>", False))
    with pytest.raises(CannotHold, match="special=false of 1 added token: '<tool>'"):
        convert(source, tmp_path / "x.tiktoken", "tiktoken")
    card = convert(source, tmp_path / "x.tiktoken", "tiktoken", allow_loss=True)
    assert card.special_tokens["<tool>"] == 270


@pytest.mark.parametrize(
    ("token", "special", "flag"),
    [("<|im_end|>", False, "special=false"), ("<|channel|>", True, "special=true")],
)
def test_tokens_that_llama_cpp_changes_because_of_their_names_are_noted(
    plain, tmp_path, token, special, flag
):
    source = with_added(plain, tmp_path / "in", (token, special))
    card = convert(source, tmp_path / "x.gguf", "gguf")
    named = (
        f"llama.cpp tells special tokens by their names, not by {flag} of 1 added token: '{token}'"
    )
    assert named in card.notes and card.lost == [] and card.compared["explained_texts"] > 0


def test_overlapping_tokens_are_cut_by_llama_cpp_longest_first(plain, tmp_path):
    """`tokenizers` takes the leftmost one, and so a text with both has other ids."""
    source = with_added(plain, tmp_path / "in", ("<a>", False), ("><bc>", False))
    form = open_source(source).form
    texts = pack_texts(["<a><bc>"])
    own = Tokenizer.from_file(str(source)).encode("<a><bc>").ids
    assert open_source(source).encode(*texts)[0].tolist() == own and own[0] == 270
    assert by_llama_cpp(form).encode(*texts)[0].tolist()[-1] == 271
    with pytest.raises(CannotHold, match=r"its ids would differ: in '.*<a><bc>"):
        convert(source, tmp_path / "x.gguf", "gguf", allow_loss=True)


def test_loss_is_allowed_for_what_is_named_and_for_nothing_else(plain, tmp_path):
    o200k = tmp_path / "o200k"
    train_tokenizer(iter([*SCRIPTS] * 9), o200k, vocab=420, pattern="o200k")
    with pytest.raises(CannotHold, match="its ids would differ"):
        convert(o200k, tmp_path / "x.gguf", "gguf", allow_loss=True)


@pytest.mark.parametrize("to", ["gguf", "tiktoken"])
def test_decoded_text_that_another_library_does_not_give_is_refused(plain, tmp_path, to):
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoder = {"type": "Sequence", "decoders": [byte_level | {"use_regex": True}, strip]}
    source = with_added(plain, tmp_path / "in", decoder=decoder)
    with pytest.raises(CannotHold, match="cannot hold its decoder, which gives"):
        convert(source, tmp_path / "out", to)
    card = convert(source, tmp_path / "out", to, allow_loss=True)
    assert [sentence[:11] for sentence in card.lost] == ["its decoder"]


def test_special_tokens_are_matched_where_both_libraries_can(plain, tmp_path):
    pytest.importorskip("tiktoken")
    source = with_added(plain, tmp_path / "in", ("<tool>", True))
    for to in ("gguf", "tiktoken"):
        compared = convert(source, tmp_path / to, to).compared
        assert compared["parsed_texts"] == compared["added_texts"] > 40
        assert compared["added_tokens"] == 2


def model(tmp_path, **options):
    raw = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=raw, model_type="bpe", vocab_size=300,
        byte_fallback=True, normalization_rule_name="identity", minloglevel=2,
        remove_extra_whitespaces=False, hard_vocab_limit=False, **options,
    )  # fmt: skip
    (tmp_path / "x.model").write_bytes(raw.getvalue())
    return tmp_path / "x.model"


def test_llama_cpp_puts_no_space_before_a_user_defined_piece_but_one_after(tmp_path):
    source = model(tmp_path, user_defined_symbols=["<sep>"])
    with pytest.raises(CannotHold, match="normalized=true of 1 added token: '<sep>'"):
        convert(source, tmp_path / "x.gguf", "gguf")
    convert(source, tmp_path / "x.gguf", "gguf", allow_loss=True)
    form = open_source(tmp_path / "x.gguf").form
    ids = open_source(tmp_path / "x.gguf").encode(*pack_texts(["<sep>low"]))[0]
    pieces = [form.pieces[number][0] for number in ids]
    assert pieces[0] == "<sep>" and "".join(pieces[1:]) == "▁low"
    same = model(tmp_path, user_defined_symbols=["<sep>"], add_dummy_prefix=False)
    assert convert(same, tmp_path / "y.gguf", "gguf").lost == []


@pytest.mark.parametrize("prefix", [False, True])
def test_user_defined_pieces_become_a_tokenizer_json_in_which_no_text_is_special(tmp_path, prefix):
    symbols = ["<sep>", "\u2581\u2581", "low"]
    source = model(tmp_path, user_defined_symbols=symbols, add_dummy_prefix=prefix)
    convert(source, tmp_path / "json", "tokenizer.json")
    own = Tokenizer.from_file(str(tmp_path / "json" / "tokenizer.json"))
    own.encode_special_tokens = True
    library = sentencepiece.SentencePieceProcessor(model_file=str(source))
    texts = ["a<sep>b", "<sep> low", "slower  <sep><sep>"]
    for text in (*texts, *(a + z for a in ("", "low") for z in ("<s>", "<unk>", "<0x41>"))):
        assert own.encode(text, add_special_tokens=False).ids == library.encode(text)


def test_only_one_token_is_unknown_in_a_gguf_that_marks_several(tmp_path):
    """Phi-3's file marks 53 tokens, but its unknown token is another one."""
    metadata = to_metadata(open_source(model(tmp_path)).form)
    types = metadata["tokenizer.ggml.token_type"]
    types[0], types[-1], types[-2] = CONTROL, UNKNOWN, USER_DEFINED
    form = from_metadata(metadata)
    assert form.unknown == 0
    assert [kind for _, _, kind in form.pieces[-2:]] == [USER_DEFINED, CONTROL]
    by_llama_cpp(form).encode(*pack_texts(["low"]))


def test_a_tokenizer_json_keeps_the_flags_of_added_tokens(plain, tmp_path):
    tokens = [(flag.upper(), False, flag) for flag in STRIPS] + [("<x>", True, *STRIPS)]
    source = with_added(plain, tmp_path / "in", *tokens)
    form = open_source(source).form
    assert isinstance(form, ByteBpe)
    kept = byte_bpe_tokenizer(form)
    assert added_of(parts_of(kept)) == form.added
    assert {getattr(form.added[k], flag) for k, flag in enumerate(STRIPS, 1)} == {True}
    convert(source, tmp_path / "copy", "tokenizer.json")
    assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == source.read_bytes()
    prune(source, lambda: iter([pack_texts(TEXTS)]), tmp_path / "pruned", most=265)
    pruned = Tokenizer.from_file(str(tmp_path / "pruned" / "tokenizer.json"))
    flags = [tuple(getattr(token, flag) for flag in FLAGS[:4]) for token in form.added]
    assert [
        tuple(getattr(token, flag) for flag in FLAGS[:4])
        for _, token in sorted(pruned.get_added_tokens_decoder().items())
    ] == flags


def test_of_many_added_tokens_a_sample_and_all_with_flags_are_tried():
    added = [Added(f"<{number}>", number, True) for number in range(1000)]
    added[7] = Added("<7>", 7, True, lstrip=True)
    chosen = tried(tuple(added))
    assert added[7] in chosen and 200 < len(chosen) < 300 and chosen == tried(tuple(added))


def test_settings_that_are_not_converted_are_named(plain, tmp_path):
    truncation = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    source = with_added(plain, tmp_path / "in", truncation=truncation)
    card = convert(source, tmp_path / "x.gguf", "gguf")
    assert card.notes[0] == "truncation stays in an unchanged tokenizer.json only"


def test_the_command_prints_what_was_compared_and_lost(plain, tmp_path):
    source = with_added(plain, tmp_path / "in", ("NUM", False, "single_word"))
    arguments = [
        "tokenizer",
        "convert",
        str(source),
        "--to",
        "gguf",
        "-o",
        str(tmp_path / "x.gguf"),
    ]
    result = CliRunner().invoke(whole_app(), arguments)
    assert result.exit_code == 1 and not (tmp_path / "x.gguf").exists()
    result = CliRunner().invoke(whole_app(), [*arguments, "--allow-loss"])
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "with 2 added tokens; in 46 with special tokens matched, too" in words
    assert "lost: single_word=true of 1 added token: 'NUM'" in words
