"""Vocabularies made smaller: what a corpus uses is encoded as before, ids close up."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from curate.cli.app import whole_app
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.change.original import open_tokenizer
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.formats.forms import NORMAL, UNKNOWN, ByteBpe, Pieces
from tokenize_kit.judge.compare import SCRIPTS
from tokenize_kit.lab.addition import Rows
from tokenize_kit.lab.embeddings import Checkpoint, write_tensors
from tokenize_kit.lab.extend import extend
from tokenize_kit.lab.prune import choose_tokens, prune
from tokenize_kit.learn.training import train_tokenizer

ENGLISH = ["the cat sat on the mat, then that; they ran", "low lower lowest new newer"] * 9
OTHERS = ["กินข้าวที่บ้าน กินที่บ้าน แล้วกินข้าว", "die Katze saß auf der Matte, der neuen Matte"] * 9


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Byte-level BPE with special tokens: one is added before the text, another was added later."""
    folder = tmp_path_factory.mktemp("old")
    texts = [*ENGLISH, *OTHERS]
    special = ("<|endoftext|>", "<s>", "<pad>")
    train_tokenizer(
        iter(texts), folder, vocab=380, pattern="llama3", pad_to=8, special_tokens=special
    )
    parts = json.loads((folder / "tokenizer.json").read_text())
    begin = {"id": "<s>", "ids": [1], "tokens": ["<s>"]}
    parts["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": begin},
    }
    last = max(parts["model"]["vocab"].values())
    parts["added_tokens"].append(parts["added_tokens"][0] | {"id": last + 9, "content": "<|far|>"})
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    return folder


@pytest.fixture(scope="module")
def pruned(old, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruned")
    return folder, prune(old, lambda: [pack_texts(ENGLISH)], folder)


def map_of(folder):
    """Return the new id of every old id, None for removed tokens."""
    table = pq.read_table(folder / "token_map.parquet")
    assert table.column("old_id").to_pylist() == list(range(len(table)))
    return table.column("new_id").to_pylist()


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_the_corpus_has_its_old_ids_through_the_map(old, pruned):
    folder, card = pruned
    former, latter = (
        load_tokenizer(old / "tokenizer.json"),
        load_tokenizer(folder / "tokenizer.json"),
    )
    id_map = map_of(folder)
    for text in ENGLISH:
        assert [id_map[n] for n in ids_of(former, text)] == ids_of(latter, text)
    assert card.texts_without_dropped_tokens == card.measured_texts == len(ENGLISH)
    assert card.bytes_a_token_before == card.bytes_a_token_after
    assert 0 < card.dropped == card.old_tokens - card.new_tokens


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("theworn catsกินที่ß,"), max_size=40))
def test_any_text_whose_tokens_all_stay_has_its_old_ids(old, pruned, text):
    folder = pruned[0]
    former, latter = (
        load_tokenizer(old / "tokenizer.json"),
        load_tokenizer(folder / "tokenizer.json"),
    )
    id_map = map_of(folder)
    mapped = [id_map[n] for n in ids_of(former, text)]
    assert None in mapped or mapped == ids_of(latter, text)
    assert latter.decode(ids_of(latter, text)) == text


def test_ids_close_up_and_bytes_and_special_tokens_stay(pruned):
    folder, card = pruned
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    assert sorted(vocab.values()) == list(range(card.new_tokens))
    assert {"<|endoftext|>", "<s>", "<pad>", "<|far|>"} <= vocab.keys()
    assert ids_of(tokenizer, SCRIPTS[3]) and tokenizer.decode(ids_of(tokenizer, SCRIPTS[3]))
    stay = [new for new in map_of(folder) if new is not None]
    assert stay == list(range(card.new_tokens))


def test_special_tokens_have_their_new_ids_everywhere(pruned):
    folder, _ = pruned
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    begin = tokenizer.token_to_id("<s>")
    assert tokenizer.encode("cat").ids[0] == begin
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for number, token in config["added_tokens_decoder"].items():
        assert tokenizer.token_to_id(token["content"]) == int(number)


def test_a_folder_opens_with_transformers(pruned):
    transformers = pytest.importorskip("transformers")
    id_map = transformers.AutoTokenizer.from_pretrained(pruned[0])
    assert id_map.pad_token_id == load_tokenizer(pruned[0] / "tokenizer.json").token_to_id("<pad>")


def form_of(words):
    """Byte-level BPE whose merges make the words, letter by letter from the left."""
    tokens = {bytes([byte]): byte for byte in range(256)}
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                tokens[word[:end]] = len(tokens)
                merges.append((word[: end - 1], word[end - 1 : end]))
    return ByteBpe(tokens, tuple(merges), (".",))


def by_hand(form, counts, most, least):
    counts = dict(enumerate(counts.tolist()))
    alive = dict(form.tokens)
    while True:
        parts = {part for a, b in form.merges if a + b in alive for part in (a, b)}
        leaves = [t for t in alive if t not in parts and len(t) > 1]
        if not leaves:
            return sorted(alive.values())
        first = min(leaves, key=lambda t: (counts[alive[t]], -alive[t]))
        count = counts[alive[first]]
        if count >= least and (most is None or len(alive) <= most):
            return sorted(alive.values())
        for a, b in form.merges:
            if a + b == first:
                counts[form.tokens[a]] += count
                counts[form.tokens[b]] += count
        del alive[first]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.binary(min_size=2, max_size=5).map(lambda b: bytes(97 + x % 3 for x in b)), max_size=8
    ),
    st.lists(st.integers(0, 4), min_size=40, max_size=40),
    st.one_of(st.none(), st.integers(256, 270)),
    st.integers(1, 4),
)
def test_leaves_go_in_the_order_of_doing_it_by_hand(words, uses, most, least):
    form = form_of(words)
    counts = np.zeros(form.size, np.int64)
    counts[256:] = uses[: form.size - 256]
    assert choose_tokens(form, counts, most, least) == by_hand(form, counts, most, least)


def test_a_token_that_a_kept_merge_needs_stays():
    form = form_of([b"abcd"])
    counts = np.zeros(form.size, np.int64)
    counts[form.tokens[b"abcd"]] = 5
    assert choose_tokens(form, counts, None, 5) == list(range(form.size))
    # Its uses become those of its parts.
    assert choose_tokens(form, counts, form.size - 1, 1) == list(range(form.size - 1))
    assert choose_tokens(form, counts, None, 6) == list(range(256))


def test_pruning_keeps_the_requested_number_of_tokens(old, tmp_path):
    card = prune(old, lambda: [pack_texts([*ENGLISH, *OTHERS])], tmp_path, most=300)
    assert card.new_tokens == 300
    assert card.bytes_a_token_after < card.bytes_a_token_before
    with pytest.raises(LlmcurateError, match=r"vocab 9: .* must be kept") as error:
        prune(old, lambda: [pack_texts(ENGLISH)], tmp_path / "out", most=9)
    assert error.value.exit_code == 2 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_embeddings_are_cut_as_the_ids_are(old, tmp_path, kind):
    size = open_tokenizer(old).form.size
    rows = np.arange(size * 4).reshape(size, 4)
    stored = rows.astype(np.float32 if kind == "F32" else np.uint16)
    names = ("wte.weight", "lm_head.weight")
    tables = dict.fromkeys(names, (stored, kind))
    write_tensors(tmp_path / "x.safetensors", tables)
    file = tmp_path / "x.safetensors"
    card = prune(old, lambda: [pack_texts(ENGLISH)], tmp_path / "out", embeddings=file)
    id_map = Checkpoint(tmp_path / "out/embeddings.safetensors")
    for name in names:
        for before, after in enumerate(map_of(tmp_path / "out")):
            if after is not None:
                assert np.array_equal(id_map.matrix(name)[after], stored[before])
        assert len(id_map.matrix(name)) == card.new_tokens
    assert card.embeddings.tied


@pytest.mark.parametrize(
    "names",
    [
        ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"),
        ("transformer.wte.weight", "lm_head.bias"),
        ("model.shared.weight", "final_logits_bias"),
        ("distilbert.embeddings.word_embeddings.weight", "vocab_projector.bias"),
        ("electra.embeddings.word_embeddings.weight", "generator_lm_head.bias"),
    ],
)
def test_the_bias_of_the_output_is_cut_and_extended_with_its_tables(old, tmp_path, names):
    size = open_tokenizer(old).form.size
    table, bias = names
    shape = (1, size) if bias == "final_logits_bias" else (size,)
    values = np.arange(size, dtype=np.float32)
    tensors = {
        table: (np.stack([values, values], 1), "F32"),
        bias: (values.reshape(shape), "F32"),
        "layer.3.mlp.bias": (values, "F32"),  # as long, but of a layer
        "cls.transform.dense.bias": (values, "F32"),
    }
    write_tensors(tmp_path / "x.safetensors", tensors)
    file = tmp_path / "x.safetensors"
    card = prune(old, lambda: [pack_texts(ENGLISH)], tmp_path / "out", embeddings=file)
    kept = [before for before, after in enumerate(map_of(tmp_path / "out")) if after is not None]
    written = load_file(tmp_path / "out/embeddings.safetensors")
    assert written.keys() == {table, bias} == card.embeddings.rows.keys()
    assert written[bias].shape == (*shape[:-1], len(kept))
    assert written[bias].reshape(-1).tolist() == written[table][:, 1].tolist() == kept
    texts = [pack_texts(["zyx zyxw zyx wvu"] * 9)]
    extended = extend(old, texts, tmp_path / "more", 3, rows=Rows(file))
    written = load_file(tmp_path / "more/embeddings.safetensors")
    assert written[bias].shape == (*shape[:-1], size + extended.new_tokens)
    assert written[bias].reshape(-1).tolist() == written[table][:, 0].tolist()
    assert extended.embeddings.tied


@pytest.mark.parametrize(
    ("most", "least", "kept"),
    [
        (None, 2, "abcde"),  # used just so often
        (None, 3, "abd"),
        (7, 1, "abcd"),  # of equally used ones the first
        (5, 1, "ab"),
        (3, 1, ""),
    ],
)
def test_of_a_unigrams_pieces_the_most_used_stay_of_equal_ones_the_first(most, least, kept):
    names = ["<unk>", "▁", *"abcdef", "z"]
    scores = [0.0, -1.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -9.0]  # the ends stay
    pieces = [
        (n, s, UNKNOWN if n == "<unk>" else NORMAL) for n, s in zip(names, scores, strict=True)
    ]
    form = Pieces("unigram", tuple(pieces), byte_fallback=True)
    counts = np.array([0, 0, 9, 3, 2, 3, 2, 1, 0])
    found = "".join(names[n] for n in choose_tokens(form, counts, most, least))
    assert found == f"<unk>▁{kept}z"


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unigram")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*ENGLISH, *OTHERS]), model_writer=model, vocab_size=110,
        hard_vocab_limit=False, minloglevel=2, user_defined_symbols=["<a>"], pad_id=3,
    )  # fmt: skip
    (folder / "x.model").write_bytes(model.getvalue())
    train_tokenizer(iter([*ENGLISH, *OTHERS]), folder / "json", vocab=480, model="unigram")
    (folder / "json" / "tokenizer.model").unlink()
    return folder


@pytest.mark.parametrize("name", ["x.model", "json"])
def test_a_unigram_keeps_the_ids_of_its_corpus(unigram, tmp_path, name):
    card = prune(unigram / name, lambda: [pack_texts(ENGLISH)], tmp_path)
    id_map = map_of(tmp_path)
    before, after = open_tokenizer(unigram / name), open_tokenizer(tmp_path)
    ids, sizes = before.encode(*pack_texts(ENGLISH))
    new, lengths = after.encode(*pack_texts(ENGLISH))
    assert [id_map[n] for n in ids.tolist()] == new.tolist() and np.array_equal(sizes, lengths)
    assert card.dropped > 20 and card.texts_without_dropped_tokens == len(ENGLISH)
    # Of other texts, too: what is unknown costs what it did.
    for text in ["the กา 漢 lower", *SCRIPTS[:2]]:
        ids, new = (
            tokenizer.encode(*pack_texts([text]))[0].tolist() for tokenizer in (before, after)
        )
        mapped = [id_map[n] for n in ids]
        assert None in mapped or mapped == new


def test_sentencepiece_reads_a_pruned_model(unigram, tmp_path):
    card = prune(unigram / "x.model", lambda: [pack_texts(ENGLISH)], tmp_path, least=2)
    was = sentencepiece.SentencePieceProcessor(model_file=str(unigram / "x.model"))
    now = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    assert now.get_piece_size() == card.new_tokens < was.get_piece_size()
    id_map = map_of(tmp_path)
    for role in ("unk_id", "bos_id", "eos_id", "pad_id"):
        assert getattr(now, role)() == id_map[getattr(was, role)()]
    assert now.piece_to_id("<a>") == id_map[was.piece_to_id("<a>")]


def test_a_corpus_without_text_is_refused(old, tmp_path):
    with pytest.raises(LlmcurateError, match="no document with text"):
        prune(old, lambda: [pack_texts(["", ""])], tmp_path / "out")


@pytest.mark.parametrize(
    "arguments", [[], ["--vocab", "300", "--min-count", "2"]], ids=["none", "both"]
)
def test_the_command_takes_one_of_two_measures(old, tmp_path, arguments, capsys):
    from curate.cli.app import invoke

    line = ["tokenizer", "prune", str(old), "--on", "x", "-o", str(tmp_path), *arguments]
    assert invoke(line) == 2
    assert "give one of --vocab N and --min-count K" in capsys.readouterr().err


def test_the_command_says_how_many_stay(old, tmp_path):
    from typer.testing import CliRunner

    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in ENGLISH) + "\n")
    arguments = ["tokenizer", "prune", str(old), "--on", str(tmp_path / "x.jsonl"), "--json"]
    result = CliRunner().invoke(
        whole_app(), [*arguments, "--min-count", "1", "-o", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    card = json.loads(result.stdout.splitlines()[-1])
    assert card["texts_without_dropped_tokens"] == len(ENGLISH) and card["dropped"] > 0
