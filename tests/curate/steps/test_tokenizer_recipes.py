"""The shipped recipes of tokenizers: each is trained, and cuts text as the published one does."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers

from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.recipe import load
from curate.steps.shipped import names
from tests.parameters import drawn

# Small vocabularies, and the sizes of the published ones.
SIZES = {
    "tokenizer-bloom": (400, 250_680),
    "tokenizer-falcon": (400, 65_024),
    "tokenizer-gpt-neox": (400, 50_277),
    "tokenizer-llama": (400, 32_000),
    "tokenizer-llama3": (600, 128_256),
    "tokenizer-o200k": (400, 200_000),
    "tokenizer-wangchanberta": (500, 25_005),
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
            recipe = load(name, (f"tokenizer.vocab={SIZES[name][0]}",))
            carry_out(recipe, [str(source)], out, Options(1, True))
        return out

    return train


def opened(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_every_recipe_of_a_tokenizer_is_known_here() -> None:
    assert set(SIZES) == {name for name in names() if name.startswith("tokenizer-")}


@pytest.mark.parametrize("name", SIZES)
def test_a_recipe_trains_a_tokenizer_and_has_the_published_size(name: str, trained: Any) -> None:
    (step,) = load(name).steps
    assert step.vocab == SIZES[name][1]  # type: ignore[attr-defined]
    tokenizer = opened(trained(name))
    assert 300 < tokenizer.get_vocab_size() <= SIZES[name][0]
    for text in TEXTS[:3] if name != "tokenizer-wangchanberta" else ():
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
}


def pieces(cut: Any, text: str) -> list[tuple[int, int]]:
    return [span for _, span in cut.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_text_is_cut_as_by_the_published_file(name: str, trained: Any) -> None:
    """But for GPT-NeoX's runs of spaces, and bytes whose letters Falcon's takes for digits."""
    own = opened(trained(name)).pre_tokenizer

    @settings(max_examples=drawn(300), deadline=None)
    @given(HARD)
    def check(text: str) -> None:
        if name == "tokenizer-gpt-neox":
            text = text.replace("  ", " ")
            text = text if "  " not in text else ""
        if name == "tokenizer-falcon" and set(text.encode()) & {*b"\xb2\xb3\xb9\xbc\xbd\xbe"}:
            return
        assert pieces(own, text) == pieces(PUBLISHED[name], text)

    check()


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
