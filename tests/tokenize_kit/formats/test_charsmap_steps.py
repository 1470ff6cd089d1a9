import json
import unicodedata

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, normalizers

from tokenize_kit.formats.charsmap_steps import charsmap_steps, split_charsmap
from tokenize_kit.formats.forms import NORMAL, SPACE, UNKNOWN, Pieces
from tokenize_kit.formats.sentencepiece_model import write_form
from tokenize_kit.judge.compare import HARD_TEXTS, SCRIPTS
from tokenize_kit.learn.cutting import rules_of

RULES = ("nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
MARKED = (
    "ﻻَ ﷲِ بِسْمِ اللَّهِ الرَّحْمَٰنِ",
    "בְּרֵאשִׁית",
    "E\u0301 B\u0e49 ﬁ\u0301 q\u0307\u0323 ｅ\u0301 e\u0323\u0302 e\u0302\u0323",
    "\u0301\u064e",
    "น้ำ กำ",
    "か\u3099 ﾊﾞ \u1100\u1161\u11a8",
    "a\r\nb\r\u0301\u200b\u0301\x01\u064e",
    "Straße ẞ ΣΊΣΥΦΟΣ",
)


def by_sentencepiece(rule: str) -> sentencepiece.SentencePieceProcessor:
    pieces = (("<unk>", 0.0, UNKNOWN), ("a", -1.0, NORMAL), (SPACE, -1.0, NORMAL))
    form = Pieces("unigram", pieces, rules_of(rule), False, False, False)
    return sentencepiece.SentencePieceProcessor(model_proto=write_form(form))


@pytest.mark.parametrize("rule", RULES)
def test_steps_normalize_as_sentencepiece_does(rule: str) -> None:
    steps = normalizers.Sequence(charsmap_steps(rules_of(rule)))
    library = by_sentencepiece(rule)
    texts = [*MARKED, *HARD_TEXTS, *SCRIPTS]
    for text in [*texts, *(unicodedata.normalize("NFD", text) for text in texts)]:
        assert steps.normalize_str(text).replace(" ", SPACE) == library.Normalize(text)


@pytest.mark.parametrize("mark", ["\u064e", "\u0e49", "\u093e", "\u0301"])
def test_no_mark_is_lost_after_any_letter(mark: str) -> None:
    steps = normalizers.Sequence(charsmap_steps(rules_of("nfkc_cf")))
    for point in [*range(0xA0, 0x3000, 3), *range(0xFB00, 0xFFE0, 3)]:
        decomposed = unicodedata.normalize("NFD", steps.normalize_str(chr(point) + mark))
        assert mark in decomposed, hex(point)


def test_charsmap_is_read_back_from_its_steps() -> None:
    rules = rules_of("nfkc")
    tokenizer = Tokenizer(models.BPE())
    last = normalizers.Prepend(SPACE)
    tokenizer.normalizer = normalizers.Sequence([*charsmap_steps(rules), last])
    steps = json.loads(tokenizer.to_str())["normalizer"]["normalizers"]
    charsmap, rest = split_charsmap(steps)
    assert charsmap == rules
    assert rest == [{"type": "Prepend", "prepend": SPACE}]
    assert split_charsmap(steps[1:]) == (b"", steps[1:])
