"""The shipped recipes of tokenizers: each is trained, and cuts text as the published one does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceNormalizer, SentencePieceProcessor
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.recipe import load
from curate.steps.shipped import names
from tests.parameters import drawn
from tokenize_kit.change.convert import convert
from tokenize_kit.formats.tiktoken import read_ranks


@dataclass(frozen=True)
class Published:
    """What a recipe has in common with the published tokenizer. small: a size to train here."""

    small: int
    vocab: int
    special: tuple[str, ...]  # the first ids
    pattern: str | None = None
    model: str = "bpe"
    normalize: str = "none"
    reserved: int = 0


T5 = ("<pad>", "</s>", "<unk>", *(f"<extra_id_{number}>" for number in range(99, -1, -1)))
FALCON = "TITLE ABSTRACT INTRODUCTION SUMMARY COMMENT ANSWER QUESTION DOMAIN PREFIX SUFFIX MIDDLE"
FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
SOURCES = {
    # vocab.txt: unused entries up to id 998; tokenization.py: lower case, no accents
    "tokenizer-bert": Published(
        1500, 30_522, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), None, "wordpiece", "bert", 994
    ),
    # tokenizer.json: ids 0 to 3
    "tokenizer-bloom": Published(400, 250_680, ("<unk>", "<s>", "</s>", "<pad>")),
    # tiktoken_ext/openai_public.py: 100,256 ranks and five special tokens
    "tokenizer-cl100k": Published(
        400, 100_256 + 5, ("<|endoftext|>", *FIM, "<|endofprompt|>"), "cl100k"
    ),
    # tokenizer.json: ids 0 to 2 of 128,000, then added tokens
    "tokenizer-deepseek": Published(
        400,
        128_000,
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"),
        "deepseek",
    ),
    # tokenizer.json: ids 0 to 11
    "tokenizer-falcon": Published(
        400, 65_024, (*(f">>{name}<<" for name in FALCON.split()), "<|endoftext|>")
    ),
    # Rae et al. 2021, section 3.1; Hoffmann et al. 2022, section 4.1
    "tokenizer-gopher": Published(500, 32_000, ("<unk>", "</s>"), None, "unigram", "nfkc"),
    # Radford et al. 2019, section 2.3
    "tokenizer-gpt2": Published(400, 50_257, ("<|endoftext|>",), "gpt2"),
    # tokenizer.json: ids 0 and 1
    "tokenizer-gpt-neox": Published(
        400, 50_277, ("<|endoftext|>", "<|padding|>"), "gpt2", "bpe", "nfc"
    ),
    # tokenizer.model: ids 0 to 2
    "tokenizer-llama": Published(400, 32_000, ("<unk>", "<s>", "</s>"), "metaspace", "char-bpe"),
    "tokenizer-llama3": Published(
        600, 128_256, ("<|end_of_text|>", "<|begin_of_text|>"), "llama3", reserved=254
    ),
    # Xue et al. 2021, section 3.2; spiece.model: ids 0 to 2
    "tokenizer-mt5": Published(700, 250_000 + 100, T5, None, "unigram", "nmt_nfkc"),
    # tiktoken_ext/openai_public.py: 199,998 ranks and two special tokens
    "tokenizer-o200k": Published(400, 199_998 + 2, ("<|endoftext|>", "<|endofprompt|>"), "o200k"),
    # Yang et al. 2024, section 2.1; tokenizer.json
    "tokenizer-qwen": Published(
        400, 151_643 + 3, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "qwen2", "bpe", "nfc"
    ),
    # Raffel et al. 2020, sections 3.1.3 and 3.1.4; spiece.model: ids 0 to 2
    "tokenizer-t5": Published(700, 32_000 + 100, T5, None, "unigram", "nmt_nfkc"),
    "tokenizer-wangchanberta": Published(
        500, 25_005, ("</s>", "<s>", "<pad>", "<mask>"), None, "unigram", "nmt_nfkc_cf"
    ),
}
TEXTS = [
    "It's 12345 apples (or 3.14), isn't it?\n    def area(width): return width ** 2  # Œuvre",
    "กินข้าวที่บ้าน แล้วกินข้าว The END of The Story. die neue Straße, 2024!",
    "x = [1, 22, 333]; y = 'ab|cd'…  हिन्दी में लिखो। 你好，世界。 ٢٠٢٤",
] * 8


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a recipe's tokenizer with a small vocabulary, trained once."""
    home = tmp_path_factory.mktemp("tokenizers")
    source = home / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    def train(name: str) -> Path:
        out = home / name
        if not out.exists():
            recipe = load(name, (f"tokenizer.vocab={SOURCES[name].small}",))
            carry_out(recipe, [str(source)], out, Options(1, True))
        return out

    return train


def opened(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_every_recipe_of_a_tokenizer_is_known_here() -> None:
    assert set(SOURCES) == {name for name in names() if name.startswith("tokenizer-")}


@pytest.mark.parametrize("name", SOURCES)
def test_a_recipe_has_the_published_size_pattern_and_special_tokens(
    name: str, trained: Any
) -> None:
    (step,) = load(name).steps
    found = {field.name: getattr(step, field.name, None) for field in fields(Published)[3:]}
    published = SOURCES[name]
    assert step.vocab == published.vocab  # type: ignore[attr-defined]
    assert found == {k: v for k, v in asdict(published).items() if k in found}
    tokenizer = opened(trained(name))
    assert 300 < tokenizer.get_vocab_size() <= published.small
    first = 1 if name == "tokenizer-wangchanberta" else 0  # <unk> is before them
    ids = range(first, first + len(published.special))
    assert tuple(tokenizer.id_to_token(number) for number in ids) == published.special
    if published.normalize == "none":
        for text in TEXTS[:3]:
            assert tokenizer.decode(tokenizer.encode(text).ids) == text


HARD = st.text(st.sampled_from("ab Zé'st12345٣ก็  \n\t.,!?()|-+=$…。，क़।\u00a0_`²🙂"), max_size=30)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
PUBLISHED = {
    "tokenizer-bloom": pre_tokenizers.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"),
    "tokenizer-falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            GPT2,
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    "tokenizer-gpt-neox": GPT2,
    "tokenizer-gpt2": GPT2,
    "tokenizer-bert": pre_tokenizers.BertPreTokenizer(),
    # transformers, models/qwen2/tokenization_qwen2.py
    "tokenizer-qwen": pre_tokenizers.Split(
        Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        "isolated",
    ),
}
NORMALIZED = {
    "tokenizer-bert": normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
    ),
    "tokenizer-qwen": normalizers.NFC(),
    "tokenizer-gpt-neox": normalizers.NFC(),
}


def pieces(cut: Any, text: str) -> list[tuple[int, int]]:
    return [span for _, span in cut.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_text_is_cut_as_by_the_published_file(name: str, trained: Any) -> None:
    """But for GPT-NeoX's runs of spaces, and bytes whose letters Falcon's takes for digits. Before
    it, text is normalized as there."""
    tokenizer = opened(trained(name))
    own, normal = tokenizer.pre_tokenizer, NORMALIZED.get(name)
    assert (tokenizer.normalizer is None) == (normal is None)

    @settings(max_examples=drawn(300), deadline=None)
    @given(HARD)
    def check(text: str) -> None:
        if name == "tokenizer-gpt-neox":
            text = text.replace("  ", " ")
            text = text if "  " not in text else ""
        if name == "tokenizer-falcon" and set(text.encode()) & {*b"\xb2\xb3\xb9\xbc\xbd\xbe"}:
            return
        if normal:
            before, text = text, normal.normalize_str(text)
            assert tokenizer.normalizer.normalize_str(before) == text
        assert pieces(own, text) == pieces(PUBLISHED[name], text)

    check()


@pytest.mark.parametrize("name", ["cl100k", "gpt2", "o200k"])
def test_tiktoken_with_its_own_pattern_gives_the_ids_of_the_recipe(
    name: str, trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tiktoken's package has pattern and special tokens; the ranks are those learned here."""
    tiktoken = pytest.importorskip("tiktoken")
    from tiktoken_ext import openai_public

    for load_ranks in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        monkeypatch.setattr(openai_public, load_ranks, lambda *_, **__: {})
    settings_of = openai_public.ENCODING_CONSTRUCTORS
    published = settings_of[name if name == "gpt2" else f"{name}_base"]()
    assert set(published["special_tokens"]) == set(SOURCES[f"tokenizer-{name}"].special)
    folder = trained(f"tokenizer-{name}")
    convert(folder, tmp_path / "file.tiktoken", "tiktoken")
    ranks = read_ranks((tmp_path / "file.tiktoken").read_bytes())
    encoding = tiktoken.Encoding(
        name, pat_str=published["pat_str"], mergeable_ranks=ranks, special_tokens={}
    )
    tokenizer = opened(folder)

    @settings(max_examples=drawn(300), deadline=None)
    @given(st.one_of(HARD, st.sampled_from(TEXTS)))
    def check(text: str) -> None:
        assert encoding.encode_ordinary(text) == tokenizer.encode(text).ids

    check()


@pytest.mark.parametrize("name", ["tokenizer-t5", "tokenizer-mt5", "tokenizer-gopher"])
def test_sentencepiece_opens_the_recipe_and_normalizes_as_its_rule(name: str, trained: Any) -> None:
    """But for signs that the rule replaces before a mark, which `tokenizers` replaces with it."""
    folder = trained(name)
    model = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    tokenizer, rule = opened(folder), SOURCES[name].normalize
    off = {"add_dummy_prefix": False, "remove_extra_whitespaces": False}
    by_rule = SentencePieceNormalizer(rule_name=rule, escape_whitespaces=False, **off)

    @settings(max_examples=drawn(300), deadline=None)
    @given(st.one_of(HARD, st.sampled_from(TEXTS)))
    def check(text: str) -> None:
        text = text.translate({0xA0: "-", 0xB2: "2"})
        assert tokenizer.normalizer.normalize_str(text) == by_rule.Normalize(text)
        assert tokenizer.encode(text).ids == model.encode(text)

    check()
    unknown = SOURCES[name].special.index("<unk>")
    assert model.unk_id() == unknown and model.id_to_piece(unknown) == "<unk>"
    assert model.is_byte(model.piece_to_id("<0x41>"))


def test_llamas_cut_digits_one_by_one_and_in_threes(trained: Any) -> None:
    one, three = (opened(trained(name)) for name in ("tokenizer-llama", "tokenizer-llama3"))
    assert one.encode("12345").tokens == [*"12345"]
    cut = three.pre_tokenizer.pre_tokenize_str("I'LL 12345")
    assert [piece for piece, _ in cut] == ["I", "'LL", "Ġ", "123", "45"]
    assert one.encode("\U0001f984").tokens == ["<0xF0>", "<0x9F>", "<0xA6>", "<0x84>"]
    special = three.get_added_tokens_decoder()
    assert len(special) == 256 and special[0].content == "<|end_of_text|>"


def test_every_run_of_2_to_24_spaces_is_a_token_of_gpt_neox(trained: Any) -> None:
    tokenizer = opened(trained("tokenizer-gpt-neox"))
    assert all(len(tokenizer.encode(" " * n).ids) == 1 for n in range(1, 25))
    assert len(tokenizer.encode(" " * 25).ids) == 2
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("é").ids


def test_wangchanberta_folds_case_and_makes_spaces_a_token(trained: Any) -> None:
    tokenizer = opened(trained("tokenizer-wangchanberta"))
    encode = partial(tokenizer.encode, add_special_tokens=False)
    assert encode("The END").tokens == encode("the end").tokens
    assert encode("a b").tokens.count("<_>") == 1
    assert tokenizer.decode(encode("The END").ids) == "the end"
    assert encode("STRA\u1e9eE").ids == encode("straße").ids
