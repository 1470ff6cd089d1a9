"""The union of two tokenizers: sets of tokens, ids that stay, tokens that texts give."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from llmcurate.base.errors import LlmcurateError
from tests.parameters import drawn
from tests.tokenize_kit.sentencepiece_models import trained
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import open_tokenizer, token_texts
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.formats.forms import CannotHold
from tokenize_kit.lab.addition import Rows
from tokenize_kit.lab.embeddings import Checkpoint, write_tensors
from tokenize_kit.lab.join import join
from tokenize_kit.learn.training import train_tokenizer

OLD = ["the cat sat on the mat, then that; they ran", "low lower lowest new newer"] * 20
NEW = ["กินข้าวที่บ้าน กินที่บ้าน แล้วกินข้าว", "die Katze saß auf der Matte, der neuen Matte"] * 20
MODELS = {"bpe": (290, 340), "char-bpe": (330, 380), "unigram": (480, 520)}
TEXTS = st.text(st.sampled_from("thecatrMloweัKsßกินที่บ้ \n1"), max_size=40)


@pytest.fixture(scope="module", params=MODELS)
def pair(request, tmp_path_factory):
    """(folder of a tokenizer, of another one, of both together, the card of that)."""
    folder = tmp_path_factory.mktemp(request.param)
    for name, texts, vocab in zip("ab", (OLD, NEW), MODELS[request.param], strict=True):
        train_tokenizer(iter(texts), folder / name, vocab=vocab, model=request.param)
    card = join(folder / "a", folder / "b", folder / "both")
    return folder / "a", folder / "b", folder / "both", card


def of_words(folder, words):
    """A Unigram of these pieces, spaces as U+2581, their letters and nothing else."""
    letters = sorted({letter for word in words for letter in word})
    pieces = dict.fromkeys(letters, -8.0) | dict.fromkeys(words, -4.0)
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *pieces.items()], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<unk>"])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))


def ids_of(tokenizer, text):
    return tokenizer.encode(*pack_texts([text]))[0].tolist()


def test_the_tokens_are_the_union_and_old_ids_stay(pair):
    a, b, both = (open_tokenizer(folder) for folder in pair[:3])
    own, theirs, union = (token_texts(each.form) for each in (a, b, both))
    assert set(union) == set(own) | set(theirs)
    assert list(union)[: len(own)] == list(own)
    card = pair[3]
    assert card.left_out == 0 and card.common_tokens == len(set(own) & set(theirs))
    assert card.new_tokens == len(set(theirs) - set(own)) == both.size - a.size
    for text in (*OLD[:2], "x1 \t\n", "<|endoftext|>"):
        assert ids_of(both, text) == ids_of(a, text) or max(ids_of(both, text)) >= a.size


def test_every_new_token_is_given_by_its_text_or_is_part_of_one(pair):
    a, both = open_tokenizer(pair[0]), open_tokenizer(pair[2])
    merges = getattr(both.form, "merges", ())
    parts = {part for merge in merges[len(getattr(a.form, "merges", ())) :] for part in merge}
    texts = token_texts(both.form)
    new = list(texts)[len(token_texts(a.form)) :]
    given_by_text = 0
    for number, token in enumerate(new, a.size):
        text = token.decode("utf-8", "replace")
        if "\ufffd" in text:
            assert token in parts
        else:
            given_by_text += 1
            assert number in ids_of(both, text) + ids_of(both, f"\u2603{text}")
    assert given_by_text > 10


def test_text_is_encoded_as_before_and_then_merged_further(pair):
    a, both = open_tokenizer(pair[0]), open_tokenizer(pair[2])

    @settings(max_examples=drawn(150), deadline=None)
    @given(TEXTS)
    def check(text):
        before, after = ids_of(a, text), ids_of(both, text)
        if max(after, default=0) < a.size:
            assert after == before
        elif hasattr(both.form, "merges") and not set("ßM\u0e31") & set(text):
            spelled = {n: t for t, n in both.form.tokens.items()}
            old = {t: n for n, t in spelled.items() if n < a.size}
            made = {left + right: (left, right) for left, right in both.form.merges}

            def taken_apart(token):
                if token in old or token not in made:
                    return [old.get(token, token)]
                return [n for part in made[token] for n in taken_apart(part)]

            numbers = [n for i in after for n in (taken_apart(spelled[i]) if i in spelled else [i])]
            assert numbers == before or any(isinstance(n, str) for n in numbers)

    check()


def test_scripts_say_which_tokens_are_taken(pair, tmp_path):
    a, b = pair[:2]
    own, theirs = (set(token_texts(open_tokenizer(folder).form)) for folder in (a, b))
    thai = {
        t for t in theirs - own if any("\u0e00" <= c < "\u0e80" for c in t.decode(errors="ignore"))
    }
    whole = {t for t in theirs - own if "\ufffd" not in t.decode(errors="replace")}
    for scripts, expected in (("-Thai", whole - thai), ("Thai", whole & thai), ("Greek", set())):
        if expected:
            join(a, b, tmp_path / scripts, scripts=scripts)
            union = set(token_texts(open_tokenizer(tmp_path / scripts).form))
            assert {
                t for t in union - own if "\ufffd" not in t.decode(errors="replace")
            } == expected
        else:
            with pytest.raises(LlmcurateError, match=r"has no token to add to"):
                join(a, b, tmp_path / scripts, scripts=scripts)


def test_tokens_that_the_pattern_cuts_are_left_out(tmp_path):
    train_tokenizer(iter(OLD), tmp_path / "a", vocab=270, digits="single")
    train_tokenizer(iter(["12345 12345 word"] * 9), tmp_path / "b", vocab=270, pattern="gpt2")
    card = join(tmp_path / "a", tmp_path / "b", tmp_path / "both")
    new = set(token_texts(open_tokenizer(tmp_path / "both").form))
    assert b" word" in new and not any(token.strip().isdigit() and len(token) > 1 for token in new)
    assert card.left_out == 5  # 12, 34, 1234, 12345 and that with a space


def test_merges_that_old_merges_make_unreachable_are_replaced(tmp_path):
    """`ab`, `cd` make `abcd` there; here `bc` is merged first, then `a` and `bc`, then `d`."""
    train_tokenizer(iter(["bc bc abc abc x"] * 9), tmp_path / "a", vocab=260, pattern="gpt2")
    train_tokenizer(iter(["ab ab ab cd cd cd abcd"] * 9), tmp_path / "b", vocab=262, pattern="gpt2")
    join(tmp_path / "a", tmp_path / "b", tmp_path / "both")
    a, both = open_tokenizer(tmp_path / "a"), open_tokenizer(tmp_path / "both")
    assert b"abc" in a.form.tokens and b" abcd" not in a.form.tokens
    assert (b" abc", b"d") in both.form.merges
    assert ids_of(both, " abcd") == [both.form.tokens[b" abcd"]]


def test_words_are_taken_without_their_space_where_spaces_are_a_token(tmp_path):
    settings_of_a = {"space_token": "<_>", "normalize": "nmt_nfkc"}
    train_tokenizer(iter(NEW), tmp_path / "a", vocab=480, model="unigram", **settings_of_a)
    of_words(tmp_path / "b", ["\u2581at", "\u2581newer", "lower"])
    join(tmp_path / "a", tmp_path / "b", tmp_path / "both", scripts="-Thai")
    both = open_tokenizer(tmp_path / "both")
    union = token_texts(both.form)
    assert b"newer" in union and not any(b" " in token for token in union)
    pieces = [both.form.pieces[n][0] for n in ids_of(both, "at newer")]
    assert pieces == ["at", "<_>", "newer"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_sentencepiece_model_takes_pieces_of_a_tokenizer_json(tmp_path, kind):
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "a.model").write_bytes(trained(kind, byte_fallback=True))
    model = "char-bpe" if kind == "bpe" else kind
    train_tokenizer(iter(NEW), tmp_path / "b", vocab=520, model=model)
    card = join(tmp_path / "a.model", tmp_path / "b", tmp_path / "both")
    library = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "both/tokenizer.model")
    )
    old = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "a.model"))
    assert library.get_piece_size() == old.get_piece_size() + card.new_tokens
    assert [library.id_to_piece(n) for n in range(old.get_piece_size())] == [
        old.id_to_piece(n) for n in range(old.get_piece_size())
    ]
    assert "Matte" in library.encode("die Matte", out_type=str)[-1]


@pytest.mark.parametrize("pair", ["unigram"], indirect=True)
def test_only_scores_of_pieces_that_would_not_be_used_are_raised(pair):
    theirs, union = (token_texts(open_tokenizer(pair[k]).form) for k in (1, 2))
    own = token_texts(open_tokenizer(pair[0]).form)
    new = [token for token in union if token not in own]
    raised = [token for token in new if union[token] != theirs[token]]
    assert len(raised) == pair[3].scores_raised < len(new)
    assert all(union[token] > theirs[token] for token in raised)


def test_a_new_row_is_the_mean_of_the_rows_of_its_old_tokens(pair, tmp_path):
    a, both = open_tokenizer(pair[0]), open_tokenizer(pair[2])
    rows = np.random.default_rng(0).normal(size=(a.size, 4)).astype(np.float32)
    write_tensors(tmp_path / "x.safetensors", {"wte.weight": (rows, "F32")})
    join(pair[0], pair[1], tmp_path / "out", rows=Rows(tmp_path / "x.safetensors"))
    table = Checkpoint(tmp_path / "out/embeddings.safetensors").matrix("wte.weight")
    assert np.array_equal(table[: a.size], rows) and len(table) == both.size
    whole = 0
    for number, token in enumerate(list(token_texts(both.form))[-5:], both.size - 5):
        text = token.decode("utf-8", "replace")
        if ids_of(both, text) == [number]:
            whole += 1
            mean = rows[ids_of(a, text)].mean(0, dtype=np.float64)
            assert np.allclose(table[number], mean, atol=1e-6)
    assert whole


def test_tokenizers_that_cannot_be_joined_are_refused(pair, tmp_path):
    a, b = pair[:2]
    with pytest.raises(LlmcurateError, match="has no token to add to"):
        join(a, a, tmp_path / "x")
    for scripts, says in (("Thai,-Latin", "with a minus"), ("Tai", "not a Unicode script")):
        with pytest.raises(LlmcurateError, match=says):
            join(a, b, tmp_path / "x", scripts=scripts)
    assert not (tmp_path / "x").exists()


def test_a_normaliser_that_no_other_format_has_stays(tmp_path):
    train_tokenizer(iter(OLD), tmp_path / "a", vocab=480, model="unigram")
    parts = json.loads((tmp_path / "a/tokenizer.json").read_text())
    parts["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "a/tokenizer.json").write_text(json.dumps(parts))
    of_words(tmp_path / "b", ["\u2581neue", "\u2581Matte"])
    join(tmp_path / "a", tmp_path / "b", tmp_path / "both")
    union = token_texts(open_tokenizer(tmp_path / "both").form)
    assert b" neue" in union and b" Matte" not in union
    with pytest.raises(CannotHold, match="Lowercase"):
        convert(tmp_path / "both", tmp_path / "x.model", "sentencepiece")


def test_a_file_as_transformers_writes_xlm_rs_is_joined_and_joins(tmp_path):
    """White space splits, each word gets a U+2581 before it, and `<mask>` comes after the
    pieces."""
    rows = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    rows += [(piece, -2.0 - k / 8) for k, piece in enumerate(["\u2581", *"acdehtsw", "\u2581the"])]
    tokenizer = Tokenizer(models.Unigram(rows, 3, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    (tmp_path / "x").mkdir()
    tokenizer.save(str(tmp_path / "x/tokenizer.json"))
    train_tokenizer(iter(["that hats  seat"] * 9), tmp_path / "b", vocab=420, model="unigram")
    card = join(tmp_path / "x", tmp_path / "b", tmp_path / "both")
    both = open_tokenizer(tmp_path / "both")
    assert card.first_new_id == len(rows) + 1 and both.form.pieces[len(rows)][0] == "<mask>"
    ids = ids_of(both, "the  hats seat")
    assert ids[0] == len(rows) - 1 and max(ids[1:]) >= card.first_new_id
    back = join(tmp_path / "b", tmp_path / "x", tmp_path / "other")
    assert "\u2581the" in back.examples
