"""Roles of special tokens: read as transformers reads them, in the stated order, from any file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import (
    FILE,
    SPELLING,
    TOKEN_NAMES,
    Roles,
    copy_beside,
    read_roles,
    with_tokens,
)

LLAMA, BERT = ["<unk>", "<s>", "</s>"], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# Name: (special tokens, class in transformers, tokens by role, tokens around a text, settings)
SHAPES = {
    "llama": (LLAMA, "LlamaTokenizer", "unk=<unk> bos=<s> eos=</s>", ("<s>", None), {}),
    "llama-bos-off": (
        LLAMA, "LlamaTokenizer", "unk=<unk> bos=<s> eos=</s>", (None, None),
        {"add_bos_token": False, "add_eos_token": False},
    ),
    "llama-flags-against-the-file": (
        LLAMA, "PreTrainedTokenizerFast", "unk=<unk> bos=<s> eos=</s>", ("<s>", None),
        {"add_bos_token": False, "add_eos_token": True},
    ),
    "flags-alone": (
        LLAMA, "PreTrainedTokenizerFast", "unk=<unk> bos=<s> eos=</s>", (None, None),
        {"add_bos_token": True, "add_eos_token": True},
    ),
    "gpt2": (
        ["<|endoftext|>"], "GPT2Tokenizer",
        "unk=<|endoftext|> bos=<|endoftext|> eos=<|endoftext|>", (None, None), {},
    ),
    "roberta": (
        ROBERTA, "RobertaTokenizer",
        "bos=<s> eos=</s> cls=<s> sep=</s> pad=<pad> unk=<unk> mask=<mask>", ("<s>", "</s>"), {},
    ),
    "t5": (
        ["<pad>", "</s>", "<unk>"], "T5Tokenizer", "eos=</s> pad=<pad> unk=<unk>",
        (None, "</s>"), {"extra_ids": 0},
    ),
    "qwen": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "Qwen2Tokenizer",
        "eos=<|im_end|> pad=<|endoftext|> unk=<|endoftext|>", (None, None),
        {"extra_special_tokens": {"turn": "<|im_start|>"}},
    ),
    "gemma": (
        ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"], "GemmaTokenizer",
        "bos=<bos> eos=<eos> pad=<pad> unk=<unk> mask=<mask>", ("<bos>", None), {},
    ),
    "deepseek": (
        ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], "PreTrainedTokenizerFast",
        "bos=<｜begin▁of▁sentence｜> eos=<｜end▁of▁sentence｜>",
        ("<｜begin▁of▁sentence｜>", None), {},
    ),
}  # fmt: skip


def tokenizer_of(special, kind="BPE"):
    vocab = {token: number for number, token in enumerate(special)}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab.setdefault(letter, len(vocab))
    if kind == "T5Tokenizer":
        model = models.Unigram([(token, -float(n)) for token, n in vocab.items()], 2)
    elif kind == "BertTokenizer":
        model = models.WordPiece(vocab, unk_token="[UNK]")
    else:
        model = models.BPE(vocab, [])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def template(tokenizer, before, behind):
    names = [name for name in (before, behind) if name]
    single = [name for name in (before, "$A", behind) if name]
    ids = [(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(names)]
    return TemplateProcessing(single=single, pair=[*single, "$B:1"], special_tokens=ids)


def write(folder: Path, **files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in files.items():
        (folder / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")


def read(folder: Path, tokenizer) -> Roles:
    special = {t.content: n for n, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    return read_roles(folder / "tokenizer.json", tokenizer.get_vocab(), special)


def folder_of(shape, folder):
    special, kind, named, (before, behind), settings = SHAPES[shape]
    tokenizer = tokenizer_of(special, kind)
    if before or behind:
        tokenizer.post_processor = template(tokenizer, before, behind)
    tokens = {f"{key}_token": token for key, token in (each.split("=") for each in named.split())}
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder, tokenizer_config={"tokenizer_class": kind, **tokens, **settings})
    return tokenizer


@pytest.mark.parametrize("saved", [False, True], ids=["written-by-hand", "saved-by-transformers"])
@pytest.mark.parametrize("shape", SHAPES)
def test_roles_are_those_that_transformers_finds(shape, saved, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "hand"
    folder_of(shape, folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if saved:
        folder = tmp_path / "saved"
        theirs.save_pretrained(folder)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = read(folder, Tokenizer.from_file(str(folder / "tokenizer.json")))
    for role, name in TOKEN_NAMES.items():
        number = ours.end if role == "ends" else getattr(ours, role)
        assert number == getattr(theirs, f"{name}_id"), name
    assert SPELLING not in ours.origin.values()
    text = theirs("x", add_special_tokens=False).input_ids
    assert theirs("x").input_ids == [*ours.before, *text, *ours.behind]


def test_berts_own_post_processor_is_read(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer_of(BERT, "BertTokenizer").save(str(tmp_path / "tokenizer.json"))
    names = ("pad", "unk", "cls", "sep", "mask")
    tokens = {f"{name}_token": token for name, token in zip(names, BERT, strict=True)}
    write(tmp_path, tokenizer_config={"tokenizer_class": "BertTokenizer", **tokens})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "saved")
    file = tmp_path / "saved" / "tokenizer.json"
    roles = read(file.parent, Tokenizer.from_file(str(file)))
    assert theirs("x").input_ids[:1] == list(roles.before) == [roles.cls] == [roles.begin]
    assert theirs("x").input_ids[-1:] == list(roles.behind) == [roles.sep] == list(roles.ends)


def test_the_first_file_that_states_a_role_decides(tmp_path):
    names = ["</s>", "a", "b", "c", "d", "e", "f"]
    ids = {name: number for number, name in enumerate(names)}
    tokenizer = tokenizer_of(names)
    tokenizer.post_processor = template(tokenizer, None, "a")
    sources = {
        "special_tokens_map": {"eos_token": {"content": "b", "special": True}},
        "tokenizer_config": {"eos_token": {"__type": "AddedToken", "content": "c"}},
        "config": {"eos_token_id": ids["d"]},
        "generation_config": {"eos_token_id": [ids["e"], ids["c"]]},
        "token_roles": {"ends": [ids["f"]], "origin": {"ends": "--eos-token"}},
    }
    assert read(tmp_path, tokenizer).ends == (ids["</s>"],)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = [read(tmp_path, tokenizer)]
    for name, values in sources.items():
        write(tmp_path, **{name: values})
        found.append(read(tmp_path, tokenizer))
    ends = ["a", "b", "c", "d", "ec", "f"]
    assert [roles.ends for roles in found] == [tuple(ids[t] for t in each) for each in ends]
    origins = ["tokenizer.json", *(f"{name}.json" for name in sources)]
    assert [roles.origin["ends"] for roles in found] == [*origins[:-1], "--eos-token"]


@pytest.mark.parametrize(
    "stated",
    [
        {"generation_config": {"eos_token_id": 9999}},
        {"config": {"eos_token_id": [-1, 10**30, "<x>", None, True, 1.5, {"content": []}]}},
        {"tokenizer_config": {"eos_token": "<not-there>"}},
        {"tokenizer_config": {"eos_token": {"content": 7}}, "special_tokens_map": {}},
        {"token_roles": {"ends": [4711], "origin": 3}},
    ],
)
def test_statements_about_tokens_that_are_not_there_do_not_count(stated, tmp_path):
    write(tmp_path, **stated)
    roles = read(tmp_path, tokenizer_of(LLAMA))
    assert (roles.ends, roles.origin["ends"]) == ((2,), SPELLING)


def test_a_file_with_a_byte_order_mark_is_read_and_one_that_is_no_object_is_named(tmp_path):
    config = tmp_path / "tokenizer_config.json"
    config.write_bytes(b"\xef\xbb\xbf" + json.dumps({"eos_token": "<unk>"}).encode())
    assert read(tmp_path, tokenizer_of(LLAMA)).ends == (0,)
    for text in ("[]", "{", '"eos"'):
        config.write_text(text)
        with pytest.raises(UsageError, match=r"tokenizer_config\.json"):
            read(tmp_path, tokenizer_of(LLAMA))


def test_a_template_in_a_sequence_counts(tmp_path):
    tokenizer = tokenizer_of(["a", "b", "c", "d"])
    tokenizer.post_processor = Sequence([ByteLevel(), template(tokenizer, "c", "d")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    roles, text = read(tmp_path, tokenizer), tokenizer.encode("x", add_special_tokens=False).ids
    assert tokenizer.encode("x").ids == [*roles.before, *text, *roles.behind]
    assert (roles.begin, roles.ends) == (2, (3,))


def test_without_a_tokenizer_json_the_flags_say_what_stands_around_a_text(tmp_path):
    ids = {token: number for number, token in enumerate(LLAMA)}
    file, own = tmp_path / "tokenizer.model", Roles(begin=1, ends=(2,))
    write(tmp_path, tokenizer_config={"add_bos_token": True, "add_eos_token": False})
    roles = read_roles(file, ids, {}, own)
    assert (roles.before, roles.behind, roles.ends) == ((1,), (), (2,))
    write(tmp_path, tokenizer_config={"add_bos_token": True, "add_eos_token": True})
    assert read_roles(file, ids, {}).before == read_roles(file, ids, {}).behind == ()
    assert read_roles(file, ids, {}, own).behind == (2,)


IDS = st.integers(0, 9)
ROLES = st.builds(
    Roles,
    **{role: st.none() | IDS for role in TOKEN_NAMES if role != "ends"},
    ends=st.lists(IDS, unique=True, max_size=4).map(tuple),
    before=st.lists(IDS, max_size=3).map(tuple),
    behind=st.lists(IDS, max_size=3).map(tuple),
)
TOKENS = {f"token {number}": number for number in range(10)}


@given(roles=ROLES)
def test_written_roles_come_back(roles, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    roles.write(folder)
    back = read_roles(folder / "tokenizer.model", TOKENS)
    stated = {name: value for name, value in vars(roles).items() if value not in (None, {})}
    assert stated.items() <= vars(back).items()


@given(roles=ROLES, order=st.permutations(range(10)), gone=st.sets(IDS))
def test_renumbered_roles_name_the_same_tokens(roles, order, gone):
    new = roles.renumbered(lambda number: None if number in gone else order[number])
    back = new.renumbered(order.index)
    assert back == roles.renumbered(lambda number: None if number in gone else number)
    assert roles.renumbered(lambda number: None).ends == ()


def test_options_name_tokens_and_the_other_ends_stay():
    roles = with_tokens(Roles(begin=1, ends=(2, 3)), TOKENS, begin="token 0", end="token 5")
    assert (roles.begin, roles.ends) == (0, (5, 2, 3))
    assert roles.origin == {"begin": "--bos-token", "ends": "--eos-token"}
    assert with_tokens(roles, TOKENS, end="token 3").ends == (3, 5, 2)
    with pytest.raises(UsageError, match="--eos-token <end>: the tokenizer has no such token"):
        with_tokens(roles, TOKENS, end="<end>")


def test_roles_that_stand_in_no_file_beside_a_tokenizer_travel_with_it(tmp_path):
    tokenizer = folder_of("llama", tmp_path / "old")
    (tmp_path / "old" / "chat_template.jinja").write_text("{{ messages }}")
    (tmp_path / "new").mkdir()
    file = tmp_path / "old" / "tokenizer.json"
    names = copy_beside(file, tmp_path / "new", read(file.parent, tokenizer))
    assert names == ["tokenizer_config.json", "chat_template.jinja"]
    write(file.parent, config={"eos_token_id": 0})
    roles = read(file.parent, tokenizer)
    assert FILE in copy_beside(file, tmp_path / "new", roles)
    (tmp_path / "new" / "tokenizer.json").write_bytes(file.read_bytes())
    assert read(tmp_path / "new", tokenizer) == roles and roles.ends == (0,)
