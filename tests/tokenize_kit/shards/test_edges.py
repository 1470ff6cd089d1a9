"""The tokens that begin and end documents in shards come from what the tokenizer's owner wrote."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, processors
from typer.testing import CliRunner

from curate.cli.app import whole_app
from llmcurate.base.errors import UsageError
from llmcurate.base.roles import FILE
from tests.tokenize_kit.sentencepiece_models import trained
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.writer import Layout, encode_shards

SPECIAL = ("<|endoftext|>", "<|go|>", "<|stop|>")
TEXTS = ("the cat", "", "sat on <|stop|> the mat")


@pytest.fixture
def folder(tmp_path):
    """A byte-level BPE that puts <|go|> before a text and whose owner ends texts by <|stop|>."""
    out = tmp_path / "tokenizer"
    train_tokenizer(["the cat sat on the mat " * 20], out, vocab=300, special_tokens=SPECIAL)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|go|> $A", special_tokens=[("<|go|>", 1)]
    )
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "special_tokens_map.json").unlink()
    config = {"bos_token": "<|go|>", "eos_token": "<|stop|>", "chat_template": "{{ messages }}"}
    (out / "tokenizer_config.json").write_text(json.dumps(config))
    return out


def encoded(batch_of, file, out, **settings):
    """The manifest, each document's tokens, and the lines said."""
    lines = []
    rows = [(str(number), text) for number, text in enumerate(TEXTS)]
    manifest = encode_shards([batch_of(*rows)], file, out, Layout(**settings), say=lines.append)
    tokens = np.fromfile(out / "tokens-00000.bin", manifest["dtype"])
    ends = np.fromfile(out / "tokens-00000.idx", "<u8").astype(np.int64)
    return manifest, [part.tolist() for part in np.split(tokens, ends)[:-1]], lines


@pytest.mark.parametrize(
    ("settings", "begin", "end", "said"),
    [
        ({}, 1, 2, ["<|go|> begins each document (as the tokenizer puts it before a text; "]),
        ({"prepend_bos": True}, 1, 2, []),
        ({"prepend_bos": False}, None, 2, []),
        ({"prepend_bos": False, "append_eos": False}, None, None, []),
        ({"prepend_bos": False, "eos_token": "<|endoftext|>"}, None, 0, []),
        ({"bos_token": "<|endoftext|>", "eos_token": "<|go|>"}, 0, 1, []),
    ],
)
def test_documents_stand_between_the_tokens_of_their_roles(
    settings, begin, end, said, folder, batch_of, tmp_path
):
    file = folder / "tokenizer.json"
    manifest, documents, lines = encoded(batch_of, file, tmp_path / "out", **settings)
    library = Tokenizer.from_file(str(file))
    library.encode_special_tokens = True
    around = [n for n in (begin,) if n is not None], [n for n in (end,) if n is not None]
    texts = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert documents == [[*around[0], *text, *around[1]] for text in texts]
    assert (manifest["bos_token_id"], manifest["eos_token_id"]) == (begin, end)
    assert [line.startswith(start) for line, start in zip(lines, said, strict=True)] == [
        True
    ] * len(said)


def test_what_lies_beside_a_tokenizer_lies_beside_its_shards(folder, batch_of, tmp_path):
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    file, out = folder / "tokenizer.json", tmp_path / "out"
    manifest, documents, _ = encoded(batch_of, file, out, val_fraction=0.4)
    for side in (out, out / "val"):
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            assert (side / name).read_bytes() == (folder / name).read_bytes()
        assert json.loads((side / FILE).read_text())["ends"] == [0, 2]
    assert {FILE, "chat_template.jinja"} <= manifest["files"].keys()
    # The shards' own tokenizer has the same roles, and other shards leave no file of these.
    _, again, _ = encoded(batch_of, out / "tokenizer.json", tmp_path / "again", val_fraction=0.4)
    assert again == documents
    train_tokenizer(["the cat sat on the mat " * 20], tmp_path / "other", vocab=300)
    manifest, *_ = encoded(batch_of, tmp_path / "other" / "tokenizer.json", out)
    assert not (out / FILE).exists() and not (out / "chat_template.jinja").exists()
    assert manifest["files"].keys() | {"manifest.json"} == {path.name for path in out.iterdir()}


def test_an_option_is_kept_beside_the_shards(folder, batch_of, tmp_path):
    file, out = folder / "tokenizer.json", tmp_path / "out"
    encoded(batch_of, file, out, eos_token="<|endoftext|>")
    manifest, *_ = encoded(batch_of, out / "tokenizer.json", tmp_path / "again")
    assert manifest["eos_token_id"] == 0


@pytest.mark.parametrize("kind", ["json", "model"])
def test_a_role_known_by_its_spelling_alone_is_said(kind, folder, batch_of, tmp_path):
    file = folder / f"tokenizer.{kind}"
    (folder / "tokenizer_config.json").unlink()
    if kind == "model":
        file.write_bytes(trained("unigram"))
    _, _, lines = encoded(batch_of, file, tmp_path / "out", prepend_bos=False)
    said = "<|endoftext|> ends each document (known by its spelling; --eos-token names another)"
    assert lines == ([said] if kind == "json" else [])  # the model states its own


def test_a_tokenizer_without_a_known_end_names_the_options(folder, batch_of, tmp_path):
    file = folder / "tokenizer.json"
    (folder / "tokenizer_config.json").unlink()
    file.write_text(file.read_text().replace("<|endoftext|>", "<|nothing|>"))
    with pytest.raises(UsageError, match=r"no end-of-text token is known.*--eos-token.*--no-eos"):
        encoded(batch_of, file, tmp_path / "out")
    with pytest.raises(UsageError, match=r"--eos-token <\|end\|>: the tokenizer has no such"):
        encoded(batch_of, file, tmp_path / "out", eos_token="<|end|>")
    assert encoded(batch_of, file, tmp_path / "out", eos_token="<|stop|>")[0]["eos_token_id"] == 2


def test_a_token_that_ends_documents_does_not_begin_them_by_default(folder, batch_of, tmp_path):
    file = folder / "tokenizer.json"
    (folder / FILE).write_text(json.dumps({"begin": 2, "ends": [2], "before": [2]}))
    manifest, _, lines = encoded(batch_of, file, tmp_path / "out")
    assert (manifest["bos_token_id"], manifest["eos_token_id"], lines) == (None, 2, [])


def test_the_command_takes_the_tokens_and_encodes_anew_where_a_file_beside_changed(
    folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text('{"id": "a", "text": "the cat"}\n')

    def encode(out, *more):
        words = ["tokenizer", "encode", "texts.jsonl", "--tokenizer", str(folder), "-o", out]
        result = CliRunner().invoke(whole_app(), [*words, *more])
        assert result.exit_code == 0, result.output
        return json.loads((tmp_path / out / "manifest.json").read_text()), result.output

    manifest, output = encode("out")
    assert (manifest["bos_token_id"], manifest["eos_token_id"]) == (1, 2)
    assert "<|go|> begins each document" in output
    named, _ = encode("named", "--bos-token", "<|endoftext|>", "--eos-token", "<|go|>")
    assert (named["bos_token_id"], named["eos_token_id"]) == (0, 1)
    config = {"bos_token": "<|go|>", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    manifest, _ = encode("out", "--restart")
    assert manifest["eos_token_id"] == 0
