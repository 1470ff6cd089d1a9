"""Extended tokenizers: old ids stay, new merges come after old ones, and a model gets new rows."""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from curate.cli.app import whole_app
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.parameters import drawn
from tokenize_kit.change.bpe import learn_byte_tokens
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import open_tokenizer
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.formats.forms import Pieces
from tokenize_kit.formats.tokenizer_json import from_letters, to_letters
from tokenize_kit.judge.compare import SCRIPTS
from tokenize_kit.lab.addition import Rows
from tokenize_kit.lab.embeddings import Checkpoint, as_float32, as_stored, write_tensors
from tokenize_kit.lab.extend import extend
from tokenize_kit.lab.unigram import _with_characters
from tokenize_kit.learn.training import train_tokenizer

OLD = ["the cat sat on the mat, then that; they ran", "low lower lowest new newer"] * 20
NEW = ["กินข้าวที่บ้าน กินที่บ้าน แล้วกินข้าว", "die Katze saß auf der Matte, der neuen Matte"] * 20
HARD = st.text(st.sampled_from("ekatwr sกินที่บ้าß \n"), max_size=40)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    train_tokenizer(iter(OLD), folder, vocab=280, pattern="llama3")
    return folder


@pytest.fixture(scope="module")
def extended(old, tmp_path_factory):
    folder = tmp_path_factory.mktemp("extended")
    return folder, extend(old, [pack_texts(NEW)], folder, 40)


def model_of(folder):
    return json.loads((folder / "tokenizer.json").read_text())["model"]


def test_old_ids_stay_and_new_merges_follow_the_old(old, extended):
    folder, card = extended
    before, after = model_of(old), model_of(folder)
    assert before["vocab"].items() <= after["vocab"].items()
    assert after["merges"][: len(before["merges"])] == before["merges"]
    new = set(after["vocab"].values()) - set(before["vocab"].values())
    assert new == set(range(280, 320)) and card.new_tokens == 40 and card.first_new_id == 280
    assert card.bytes_a_token_after > 1.5 * card.bytes_a_token_before


def test_text_is_encoded_as_before_and_then_merged_further(old, extended):
    former, latter = (
        load_tokenizer(old / "tokenizer.json"),
        load_tokenizer(extended[0] / "tokenizer.json"),
    )
    more = model_of(extended[0])["merges"][len(model_of(old)["merges"]) :]
    assert more

    @settings(max_examples=drawn(120), deadline=None)
    @given(HARD)
    def check(text):
        expected = []
        for piece, _ in former.pre_tokenizer.pre_tokenize_str(text):
            tokens = former.model.tokenize(piece)
            words = [token.value for token in tokens]
            for first, second in more:
                k = 0
                while k < len(words) - 1:
                    if words[k : k + 2] == [first, second]:
                        words[k : k + 2] = [first + second]
                    k += 1
            expected += words
        assert latter.encode(text).tokens == expected

    check()


def by_hand(opened, texts, tokens):
    """(new tokens, merges), by looking at everything again for each of them."""
    form, encoder = opened.form, Tokenizer.from_str(json.dumps(opened.parts))
    names = {number: token for token, number in form.tokens.items()}
    words = Counter()
    for text in texts:
        for piece, _ in encoder.pre_tokenizer.pre_tokenize_str(text):
            words[tuple((t.id,) for t in encoder.model.tokenize(piece))] += 1
    numbers = {(number,): number for number in range(form.size)}  # of a symbol: its old tokens
    new, merges, vocab = [], [], set(form.tokens)
    words = [[list(word), count] for word, count in words.items()]
    while True:
        pairs = Counter()
        for word, count in words:
            for a, b in itertools.pairwise(word):
                pairs[a, b] += count
        pairs = {pair: n for pair, n in pairs.items() if n >= 2}
        if not pairs:
            return new, merges
        a, b = min(pairs, key=lambda p: (-pairs[p], numbers[p[0]], numbers[p[1]]))
        numbers.setdefault(a + b, len(numbers))
        first, second = (b"".join(names[n] for n in part) for part in (a, b))
        if first + second not in vocab:
            if len(new) == tokens:
                return new, merges
            vocab.add(first + second)
            new.append(first + second)
        if (first, second) not in merges:
            merges.append((first, second))
        for word, _ in words:
            k = 0
            while k < len(word) - 1:
                if (word[k], word[k + 1]) == (a, b):
                    word[k : k + 2] = [a + b]
                k += 1


@settings(max_examples=drawn(60), deadline=None)
@given(texts=st.lists(st.text("theworn ก", max_size=12), max_size=8), tokens=st.integers(1, 12))
def test_new_merges_are_those_of_learning_by_hand(old, texts, tokens):
    opened = open_tokenizer(old)
    learned = learn_byte_tokens(opened.form, opened.plan(), [pack_texts(texts)], tokens)
    assert learned == by_hand(opened, texts, tokens)


def test_the_order_of_texts_changes_nothing(old, extended, tmp_path):
    extend(old, [pack_texts([text]) for text in reversed(NEW)], tmp_path, 40)
    for name in ("tokenizer.json", "tokenizer_card.json"):
        assert (tmp_path / name).read_bytes() == (extended[0] / name).read_bytes()


def test_no_new_token_is_spelled_as_a_special_one(old, tmp_path):
    extend(old, [pack_texts(["x<|endoftext|>y <|endoftext|>z"] * 50)], tmp_path, 40)
    new = [from_letters(word) for word, n in model_of(tmp_path)["vocab"].items() if n >= 280]
    assert new and b"<|endoftext|>" not in new
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("<|endoftext|>").tokens != ["<|endoftext|>"]


def test_added_tokens_outside_the_vocabulary_keep_their_ids(old, tmp_path):
    """Llama 3's special tokens are such tokens: the library would number them after the new
    ones."""
    parts = json.loads((old / "tokenizer.json").read_text())
    token = parts["added_tokens"][0]
    parts["added_tokens"] += [token | {"id": 280 + k, "content": f"<|x{k}|>"} for k in range(3)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    card = extend(tmp_path, [pack_texts(NEW)], tmp_path / "out", 20)
    tokenizer = load_tokenizer(tmp_path / "out" / "tokenizer.json")
    assert [tokenizer.token_to_id(f"<|x{k}|>") for k in range(3)] == [280, 281, 282]
    assert card.first_new_id == 283 and tokenizer.get_vocab_size() == 303


def test_no_text_gives_a_special_token_for_its_spelling(old, tmp_path):
    parts = json.loads((old / "tokenizer.json").read_text())
    parts["model"]["ignore_merges"] = True
    parts["added_tokens"].append(parts["added_tokens"][0] | {"id": 280, "content": "hello"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(LlmcurateError, match="its text would give special tokens"):
        extend(tmp_path, [pack_texts(NEW)], tmp_path / "out", 20)
    assert not (tmp_path / "out").exists()


def test_a_normaliser_is_kept_and_applied_before_learning(old, tmp_path):
    parts = json.loads((old / "tokenizer.json").read_text()) | {"normalizer": {"type": "NFC"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    out = tmp_path / "out"
    extend(tmp_path, [pack_texts(["cafe\u0301 cafe\u0301"] * 30)], out, 5)
    assert json.loads((out / "tokenizer.json").read_text())["normalizer"] == {"type": "NFC"}
    assert to_letters("é".encode()) in model_of(out)["vocab"]


def test_a_folder_opens_with_transformers(extended):
    transformers = pytest.importorskip("transformers")
    loaded = transformers.AutoTokenizer.from_pretrained(extended[0])
    assert len(loaded) == 320 and loaded.decode(loaded.encode(NEW[0])) == NEW[0]


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """A SentencePiece model with its usual normaliser, and a tokenizer.json of training here."""
    folder = tmp_path_factory.mktemp("unigram")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(OLD), model_writer=model, vocab_size=60, minloglevel=2,
        hard_vocab_limit=False, byte_fallback=False,
    )  # fmt: skip
    (folder / "x.model").write_bytes(model.getvalue())
    train_tokenizer(iter([*OLD, *SCRIPTS]), folder / "json", vocab=480, model="unigram")
    (folder / "json" / "tokenizer.model").unlink()
    return folder


@pytest.mark.parametrize("name", ["x.model", "json"])
def test_every_new_piece_of_a_unigram_is_used(unigram, tmp_path, name):
    before = open_tokenizer(unigram / name)
    card = extend(unigram / name, [pack_texts(NEW)], tmp_path, 30)
    after = open_tokenizer(tmp_path)
    pieces, size = after.form.pieces, len(before.form.pieces)
    assert pieces[:size] == before.form.pieces
    assert len(pieces) == size + card.new_tokens and 5 < card.new_tokens <= 30
    for number in range(size, len(pieces)):
        text = pieces[number][0].replace("\u2581", " ").strip()
        ids, _ = after.encode(*pack_texts([f"{text} {text}"]))
        assert number in ids.tolist() or not pieces[number][0].startswith("\u2581")
    was, now = card.unknown_before_and_after
    if name == "x.model":  # without bytes: unknown tokens are what becomes pieces
        assert now < was
    else:
        assert card.bytes_a_token_after > card.bytes_a_token_before and was == now == 0


def test_a_corpus_of_one_text_is_learned_from(old, tmp_path):
    for number in range(20):
        card = extend(old, [pack_texts([f"Matte {number} " * 20])], tmp_path, 5)
        assert card.documents == card.measured_texts == 1
        assert card.notes[0].startswith("measured on the texts learned from")


def test_the_pieces_of_a_model_are_those_that_sentencepiece_reads(unigram, tmp_path):
    card = extend(unigram / "x.model", [pack_texts(NEW)], tmp_path, 30)
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    assert library.get_piece_size() == card.old_tokens + card.new_tokens
    assert [library.id_to_piece(card.old_tokens)] == card.examples[:1]


@pytest.mark.parametrize(("tokens", "chosen"), [(1, "a"), (2, "a b"), (3, "a b ab"), (4, "a b ab")])
def test_a_piece_is_taken_with_its_new_characters_if_all_fit(tokens, chosen):
    new = [("ab", -1.0, []), ("a", -2.0, []), ("b", -2.0, [])]
    found = _with_characters(Pieces("unigram", ()), new, tokens)
    assert " ".join(text for text, _, _ in found) == chosen


def test_formerly_unknown_characters_become_known(unigram, tmp_path):
    """If `<` is unknown, unknown characters are single tokens: new characters must not be."""
    convert(unigram / "x.model", tmp_path / "json", "tokenizer.json")
    extend(unigram / "x.model", [pack_texts(NEW)], tmp_path / "model", 30)
    extend(tmp_path / "json", [pack_texts(NEW)], tmp_path / "out", 30)
    latter, former = open_tokenizer(tmp_path / "out"), open_tokenizer(tmp_path / "model")
    for text in [*NEW[:2], *OLD[:2], "<unk>ก</s>"]:
        assert np.array_equal(
            latter.encode(*pack_texts([text]))[0], former.encode(*pack_texts([text]))[0]
        )


def checkpoint(path, size, kind="F32", **more):
    """Tables of `size` rows, as float32: input, and what else is given."""
    rows = np.random.default_rng(1).normal(2, 3, (size, 8)).astype(np.float32)
    tensors = {"model.embed_tokens.weight": (as_stored(rows, kind), kind), **more}
    write_tensors(path, tensors)
    return path


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_new_row_is_the_mean_of_the_rows_of_its_old_tokens(old, tmp_path, kind):
    file = checkpoint(tmp_path / "x.safetensors", 280, kind)
    card = extend(old, [pack_texts(NEW)], tmp_path / "out", 40, rows=Rows(file))
    was = Checkpoint(file).matrix("model.embed_tokens.weight")
    now = Checkpoint(tmp_path / "out/embeddings.safetensors").matrix("model.embed_tokens.weight")
    assert np.array_equal(now[:280], was) and now.shape == (320, 8)
    tokenizer = load_tokenizer(old / "tokenizer.json")
    for word, number in model_of(tmp_path / "out")["vocab"].items():
        if number >= 280:
            parts = [token.id for token in tokenizer.model.tokenize(word)]
            mean = as_float32(was)[parts].mean(0, dtype=np.float64).astype(np.float32)
            assert np.array_equal(now[number], as_stored(mean, kind))
    assert card.embeddings.tied and card.embeddings.rows == {"model.embed_tokens.weight": 320}


def test_rows_beyond_the_vocabulary_are_taken_first(old, tmp_path):
    file = checkpoint(tmp_path / "x.safetensors", 305)
    extend(old, [pack_texts(NEW)], tmp_path / "out", 10, rows=Rows(file))
    was = Checkpoint(file).matrix("model.embed_tokens.weight")
    now = Checkpoint(tmp_path / "out/embeddings.safetensors").matrix("model.embed_tokens.weight")
    assert now.shape == was.shape
    assert np.array_equal(now[290:], was[290:]) and not np.array_equal(now[:290], was[:290])


def test_the_file_of_embeddings_is_one_of_safetensors(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_tensors(tmp_path / "x.safetensors", {"a": (rows, "F32"), "b": (rows[:2], "F32")})
    theirs = library.load_file(tmp_path / "x.safetensors")
    assert np.array_equal(theirs["a"], rows) and np.array_equal(theirs["b"], rows[:2])
    library.save_file({"c": rows}, tmp_path / "y.safetensors")
    assert np.array_equal(Checkpoint(tmp_path / "y.safetensors").matrix("c"), rows)


@settings(deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9))
def test_bfloat16_is_rounded_to_the_nearest(values):
    torch = pytest.importorskip("torch")
    rounded = as_float32(as_stored(np.array([values], np.float32), "BF16"))
    expected = torch.tensor([values], dtype=torch.float32).bfloat16().float().numpy()
    assert np.array_equal(rounded, expected)


@pytest.mark.parametrize(
    ("rows", "names", "says"),
    [
        (279, (), "279 rows, but the tokenizer has ids up to 279"),
        (280, ("nothing",), "no tensor 'nothing'"),
    ],
    ids=["short", "unknown"],
)
def test_tables_of_another_tokenizer_are_refused(old, tmp_path, rows, names, says):
    file = checkpoint(tmp_path / "x.safetensors", rows)
    with pytest.raises(LlmcurateError, match=says):
        extend(old, [pack_texts(NEW)], tmp_path / "out", 9, rows=Rows(file, names))
    assert not (tmp_path / "out").exists()


def test_tables_that_may_be_two_are_asked_for(old, tmp_path):
    more = {"decoder.embed_tokens.weight": (np.zeros((280, 8), np.float32), "F32")}
    file = checkpoint(tmp_path / "x.safetensors", 280, **more)
    with pytest.raises(LlmcurateError, match=r"may be input embeddings: name them \(--tensor\)"):
        extend(old, [pack_texts(NEW)], tmp_path / "out", 9, rows=Rows(file))


@pytest.mark.parametrize("size", [0, 7, 40, 500], ids=["empty", "length", "header", "data"])
def test_a_checkpoint_cut_short_is_refused(old, tmp_path, size):
    file = checkpoint(tmp_path / "x.safetensors", 280)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(LlmcurateError, match=r"x\.safetensors: not a whole") as error:
        extend(old, [pack_texts(NEW)], tmp_path / "out", 9, rows=Rows(file))
    assert "\n" not in str(error.value)


def test_a_corpus_without_text_is_refused(old, tmp_path):
    with pytest.raises(LlmcurateError, match="no new token"):
        extend(old, [pack_texts(["", ""])], tmp_path / "out", 9)


def test_the_command_prints_bytes_a_token_before_and_after(old, tmp_path):
    from typer.testing import CliRunner

    lines = [json.dumps({"text": text + str(k)}) for k, text in enumerate(NEW)]
    (tmp_path / "new.jsonl").write_text("\n".join(lines) + "\n")
    arguments = ["tokenizer", "extend", str(old), "--on", str(tmp_path / "new.jsonl")]
    result = CliRunner().invoke(
        whole_app(), [*arguments, "--vocab", "300", "-o", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    assert "20 new tokens, ids 280 to 299" in result.output and "bytes per token: " in result.output
