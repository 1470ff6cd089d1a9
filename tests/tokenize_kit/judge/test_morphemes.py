"""Boundaries of tokens at those of morphemes, against the cuts of `tokenizers`."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from llmcurate.base.errors import LlmcurateError
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.judge.compare import morpheme_figures, read_lexicon
from tokenize_kit.learn.training import train_tokenizer

LINES = "walked\twalk ed\nwalking\twalk ing\nunhappily\tun happi ly\ncat\tcat\n\nที่อยู่\tที่ อยู่\n"


def test_words_of_several_tokens_are_compared_with_the_lexicon(tmp_path):
    (tmp_path / "words.tsv").write_text(LINES, encoding="utf-8")
    lexicon = read_lexicon(tmp_path / "words.tsv")
    assert list(lexicon) == ["walked", "walking", "unhappily", "ที่อยู่"]
    texts = ["the walk walks, walker walked ing walked " * 9, "happy un ly happi ที่ อยู่ " * 9]
    train_tokenizer(texts, tmp_path, vocab=300)
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    kept = gold = cuts = whole = 0
    for word, morphemes in lexicon.items():
        pieces = [len(t) for t in library.encode(f" {word}").tokens]  # a letter a byte
        inner = {sum(pieces[: k + 1]) - 1 for k in range(len(pieces) - 1)} - {0}
        sizes = [len(morpheme.encode()) for morpheme in morphemes]
        between = {sum(sizes[: k + 1]) for k in range(len(sizes) - 1)}
        whole += not inner
        if inner:
            kept, gold, cuts = kept + len(inner & between), gold + len(between), cuts + len(inner)
    figures = morpheme_figures(open_candidate(tmp_path), lexicon)
    assert whole == figures["morpheme_words_whole"] == 1  # walked
    assert figures["morpheme_recall"] == kept / gold
    assert figures["morpheme_precision"] == kept / cuts


@pytest.mark.parametrize("content", ["walked walk ed", "walked\twalk d", "cat\tcat\n", ""])
def test_an_invalid_lexicon_is_refused(tmp_path, content):
    path = tmp_path / "words.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(LlmcurateError, match=r"words\.tsv"):
        read_lexicon(path)
