"""Roles of special tokens survive each change of a tokenizer, and each file format."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from tests.tokenize_kit.sentencepiece_models import trained
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import open_source, open_tokenizer
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import CannotHold
from tokenize_kit.lab.extend import extend
from tokenize_kit.lab.prune import prune
from tokenize_kit.learn.training import train_tokenizer

TEXTS = ["the cat sat on the mat", "a dog and a cat", "the end of the story"] * 9
# Spellings that no list has; the last three end a text.
SPECIAL = ("<|endoftext|>", "<|go|>", "<|fill|>", "<|stop|>", "<|over|>", "<|done|>")
GO, FILL, STOP, OVER, DONE = 1, 2, 3, 4, 5


@pytest.fixture(scope="module")
def owned(tmp_path_factory):
    """A byte-level BPE whose owner wrote the roles into the files beside it."""
    folder = tmp_path_factory.mktemp("owned")
    train_tokenizer(iter(TEXTS), folder, vocab=300, special_tokens=SPECIAL, pattern="llama3")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|go|> $A", pair="<|go|> $A <|go|> $B", special_tokens=[("<|go|>", GO)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "special_tokens_map.json").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    names = {"bos_token": "<|go|>", "eos_token": "<|over|>", "pad_token": "<|fill|>"}
    config |= names | {"padding_side": "left", "model_max_length": 512}
    del config["additional_special_tokens"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    generation = {"eos_token_id": [STOP, OVER, DONE], "suppress_tokens": [GO, 299], "top_k": 7}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def model_file(kind):
    """A SentencePiece model with unusual ids and spellings."""
    named = {"bos_piece": "<go>", "eos_piece": "<stop>", "eos_id": 1, "bos_id": 2, "pad_id": 3}
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    options = plain | {"byte_fallback": True} if kind == "bpe" else {}
    return trained(kind, **named, **options)


def roles_of(path):
    return open_source(path, None).form.roles


def test_the_roles_of_a_tokenizer_are_what_its_owner_wrote(owned):
    roles = roles_of(owned)
    assert (roles.begin, roles.ends, roles.pad) == (GO, (STOP, OVER, DONE), FILL)
    assert (
        roles == open_tokenizer(owned).form.roles == open_vocabulary(owned / "tokenizer.json").roles
    )


def test_gguf_has_all_roles_and_gives_them_back(owned, tmp_path):
    gguf = pytest.importorskip("gguf")
    convert(owned, tmp_path / "x.gguf", "gguf")
    fields = gguf.GGUFReader(tmp_path / "x.gguf").fields
    keys = gguf.Keys.Tokenizer
    wanted = {
        keys.BOS_ID: GO, keys.EOS_ID: STOP, keys.EOM_ID: OVER, keys.EOT_ID: DONE, keys.PAD_ID: FILL,
        keys.ADD_BOS: True, keys.ADD_EOS: False,
    }  # fmt: skip
    assert {key: fields[key].contents() for key in wanted} == wanted
    assert keys.UNK_ID not in fields and keys.SEP_ID not in fields
    assert roles_of(tmp_path / "x.gguf") == roles_of(owned)


def test_transformers_sees_the_roles_of_a_converted_gguf(owned, tmp_path):
    pytest.importorskip("gguf")
    transformers = pytest.importorskip("transformers")
    convert(owned, tmp_path / "x.gguf", "gguf")
    convert(tmp_path / "x.gguf", tmp_path / "back", "tokenizer.json")
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (GO, STOP, FILL)
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "back")
    assert generation.eos_token_id == [STOP, OVER, DONE]
    original = transformers.AutoTokenizer.from_pretrained(owned)
    for texts in (("the cat",), ("the cat", "a dog")):
        assert loaded(*texts).input_ids == original(*texts).input_ids
    assert loaded("the cat").input_ids[0] == GO


def test_the_files_beside_a_tokenizer_travel_into_each_folder(owned, tmp_path):
    for to in ("tokenizer.json", "tiktoken", "gguf"):
        if to == "gguf":
            pytest.importorskip("gguf")
        out = tmp_path / f"as-{to.partition('.')[0]}"
        convert(owned, out, to)
        for name in ("chat_template.jinja", "generation_config.json", "tokenizer_config.json"):
            assert (out / name).read_bytes() == (owned / name).read_bytes()
    card = json.loads((tmp_path / "as-tiktoken" / "tokenizer_card.json").read_text())
    assert card["end_of_text"] == "<|stop|>"
    assert "the tokens that the tokenizer puts around a text are not converted" in card["notes"]


def test_extended_and_pruned_tokenizers_keep_the_roles(owned, tmp_path):
    more = [pack_texts([f"{word} zebra zebra quagga {word}" for word in TEXTS] * 9)]
    extend(owned, more, tmp_path / "more", 4)
    assert roles_of(tmp_path / "more") == roles_of(owned)
    # Tokens before the special ones go, so all ids change.
    shutil.copytree(owned, tmp_path / "moved")
    file = tmp_path / "moved" / "tokenizer.json"
    parts = json.loads(file.read_text())
    last = len(parts["model"]["vocab"]) - 1
    swap = lambda n: last - n  # noqa: E731
    parts["model"]["vocab"] = {t: swap(n) for t, n in parts["model"]["vocab"].items()}
    for token in parts["added_tokens"]:
        token["id"] = swap(token["id"])
    parts["added_tokens"].sort(key=lambda token: token["id"])
    for token in parts["post_processor"]["special_tokens"].values():
        token["ids"] = [swap(n) for n in token["ids"]]
    file.write_text(json.dumps(parts))
    for name in ("generation_config.json", "tokenizer_config.json"):
        settings = json.loads((tmp_path / "moved" / name).read_text())
        if "eos_token_id" in settings:
            settings["eos_token_id"] = [swap(n) for n in settings["eos_token_id"]]
            settings["suppress_tokens"] = [swap(n) for n in settings["suppress_tokens"]]
        decoder = settings.pop("added_tokens_decoder", None)
        if decoder:
            settings["added_tokens_decoder"] = {str(swap(int(n))): t for n, t in decoder.items()}
        (tmp_path / "moved" / name).write_text(json.dumps(settings))
    before = open_tokenizer(tmp_path / "moved")
    assert before.form.roles.ends == (swap(STOP), swap(OVER), swap(DONE))
    prune(tmp_path / "moved", lambda: [pack_texts(["the cat", "a dog"])], tmp_path / "less")
    after = open_tokenizer(tmp_path / "less")
    assert after.size < before.size
    ids = after.form.numbers
    assert after.form.roles.ends == tuple(ids[t] for t in ("<|stop|>", "<|over|>", "<|done|>"))
    assert (after.form.roles.begin, after.form.roles.before) == (ids["<|go|>"], (ids["<|go|>"],))
    generation = json.loads((tmp_path / "less" / "generation_config.json").read_text())
    assert generation["suppress_tokens"][0] == ids["<|go|>"] and generation["top_k"] == 7
    decoder = json.loads((tmp_path / "less" / "tokenizer_config.json").read_text())
    decoder = decoder["added_tokens_decoder"]
    assert {t["content"]: int(n) for n, t in decoder.items()} == {t: ids[t] for t in SPECIAL}


def test_roles_that_an_option_named_are_renumbered_too(owned, tmp_path):
    convert(owned, tmp_path / "named", "tokenizer.json", end="<|fill|>")
    assert roles_of(tmp_path / "named").ends == (FILL, STOP, OVER, DONE)
    prune(tmp_path / "named", lambda: [pack_texts(["the cat"])], tmp_path / "less")
    less = open_tokenizer(tmp_path / "less").form
    assert less.roles.end == less.numbers["<|fill|>"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_sentencepiece_model_keeps_its_roles_in_each_format(kind, tmp_path):
    import sentencepiece

    raw = model_file(kind)
    file = tmp_path / "x.model"
    file.write_bytes(raw)
    library = sentencepiece.SentencePieceProcessor(model_proto=raw)
    theirs = library.bos_id(), (library.eos_id(),), library.pad_id()
    roles = roles_of(file)
    assert (roles.begin, roles.ends, roles.pad) == theirs == (2, (1,), 3)
    convert(file, tmp_path / "json", "tokenizer.json")
    assert roles_of(tmp_path / "json") == roles
    convert(tmp_path / "json", tmp_path / "back.model", "sentencepiece")
    back = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "back.model"))
    assert (back.bos_id(), (back.eos_id(),), back.pad_id()) == theirs
    if kind == "bpe":
        pytest.importorskip("gguf")
        convert(file, tmp_path / "x.gguf", "gguf")
        assert roles_of(tmp_path / "x.gguf") == roles


def test_a_model_beside_a_config_begins_texts_as_the_config_says(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "tokenizer.model").write_bytes(model_file("bpe"))
    config = {"add_bos_token": True, "add_eos_token": False, "chat_template": "{{ messages }}"}
    (tmp_path / "old" / "tokenizer_config.json").write_text(json.dumps(config))
    convert(tmp_path / "old", tmp_path / "new", "tokenizer.json")
    ids = Tokenizer.from_file(str(tmp_path / "new" / "tokenizer.json")).encode("the cat").ids
    assert ids[0] == 2 and roles_of(tmp_path / "new").before == (2,)
    assert json.loads((tmp_path / "new" / "tokenizer_config.json").read_text()) == config


def test_a_gguf_without_a_known_end_is_refused_or_says_what_llama_cpp_takes(owned, tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "bare").mkdir()
    parts = json.loads((owned / "tokenizer.json").read_text())
    parts["post_processor"] = None
    text = json.dumps(parts).replace("<|endoftext|>", "<|nothing|>")
    (tmp_path / "bare" / "tokenizer.json").write_text(text)
    with pytest.raises(CannotHold, match=r"\(id 11, .*\): name it \(--eos-token\)"):
        convert(tmp_path / "bare", tmp_path / "x.gguf", "gguf")
    assert not (tmp_path / "x.gguf").exists()
    card = convert(tmp_path / "bare", tmp_path / "x.gguf", "gguf", end="<|stop|>")
    assert roles_of(tmp_path / "x.gguf").ends == (STOP,)
    assert any("which token begins a text" in note for note in card.notes)
    # With special tokens up to id 11, llama.cpp's default id is a special token.
    special = ("<|endoftext|>", *(f"<|special {n}|>".replace(" ", "_") for n in range(12)))
    train_tokenizer(
        iter(TEXTS), tmp_path / "many", vocab=300, special_tokens=special, pattern="gpt2"
    )
    file = tmp_path / "many" / "tokenizer.json"
    shutil.move(file, tmp_path / "alone.json")
    raw = (tmp_path / "alone.json").read_text().replace("<|endoftext|>", "<|nothing|>")
    (tmp_path / "alone.json").write_text(raw)
    card = convert(tmp_path / "alone.json", tmp_path / "y.gguf", "gguf")
    assert any(
        "which token ends a text" in note and "<|special_10|>" in note for note in card.notes
    )


def test_a_role_known_by_its_spelling_is_said(owned, tmp_path):
    shutil.copy(owned / "tokenizer.json", tmp_path / "tokenizer.json")
    card = convert(tmp_path, tmp_path / "out", "tokenizer.json")
    assert card.end_of_text == "<|endoftext|>"
    assert any("'<|endoftext|>' ends a text: known by its spelling" in n for n in card.notes)
    assert not [
        n for n in convert(owned, tmp_path / "known", "tokenizer.json").notes if "spel" in n
    ]


def test_more_ends_than_a_gguf_holds_are_named(owned, tmp_path):
    pytest.importorskip("gguf")
    card = convert(owned, tmp_path / "x.gguf", "gguf", end="<|fill|>")
    assert any("three ends of text at most: '<|stop|>' is left out" in note for note in card.notes)
    assert roles_of(tmp_path / "x.gguf").ends == (FILL, OVER, DONE)


def test_trained_tokenizers_state_the_roles_that_their_options_gave(tmp_path):
    special = ("</s>", "<unk>", "<s>", "<pad>", "<mask>", "<other>")
    train_tokenizer(iter(TEXTS), tmp_path, vocab=300, special_tokens=special)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    names = ("eos", "unk", "bos", "pad", "mask")
    assert [config[f"{name}_token"] for name in names] == list(special[:-1])
    assert config["additional_special_tokens"] == ["<other>"]
    roles = roles_of(tmp_path)
    assert (roles.end, roles.begin, roles.pad, roles.before) == (0, 2, 3, ())
    assert roles.origin["ends"] == "tokenizer_config.json"
    assert np.all(open_vocabulary(tmp_path / "tokenizer.json").forbidden[[0, 2, 3, 4, 5]])
