"""Folders of every model open with transformers.AutoTokenizer, where transformers is installed."""

from __future__ import annotations

import pytest

from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.learn.training import train_tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = ["the cat sat on the mat low lower lowest newer\n" * 30, "ภาษาไทย ครับ don't\n" * 9]
OPTIONS = {
    "bpe": {},
    "bpe-rules": {"space_runs": 8, "script_boundaries": True, "newlines": "runs", "forbid": ("x",)},
    "graphemes": {"graphemes": True},
    "spaces": {"space_token": "<_>"},
    "char-bpe": {"model": "char-bpe"},
    "wordpiece": {"model": "wordpiece"},
    "unigram": {"model": "unigram", "pad_to": 64},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_folder_opens_and_gives_the_ids_and_the_text(tmp_path, name):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}")
    out = tmp_path / "out"
    card = train_tokenizer(TEXTS, out, vocab=430, chat_template=str(template), **OPTIONS[name])
    theirs = transformers.AutoTokenizer.from_pretrained(str(out))
    text = "the cat  sat\n\n   x ภาษาไทย don't é <0x41> 12"
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    assert ids == load_tokenizer(out / "tokenizer.json").encode(text).ids
    assert theirs.decode(ids) == text or name == "wordpiece"
    assert (len(theirs), theirs.eos_token) == (card.vocab, card.end_of_text)
    assert theirs.unk_token == ("[UNK]" if name == "wordpiece" else None)
    chat = theirs.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert chat == f"hi{card.end_of_text}"
