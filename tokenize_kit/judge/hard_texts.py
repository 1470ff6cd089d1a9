"""Built-in texts on which tokenizers go wrong, and a test of round trips."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer

# Control characters, both line ends, runs of spaces, marks without a
# base, joined emoji, the space symbol of SentencePiece, spellings of byte and control tokens.
HARD_TEXTS = (
    "a\x00b\x1f\x7f",
    "one\ntwo\r\nthree\rfour\n\n\n",
    " lead  and   trail    ",
    "\t\tif x:\n\t\t\treturn",
    " " * 5000 + "x",
    "\u0e48\u0301\u093f",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\u2581a\u2581\u2581 \u2581",
    "<0x41><0x0A><unk><|endoftext|>",
    "\ufeff\ufffd\U0010fffd",
)


def round_trip_failures(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The texts that do not come back exactly from encode and decode."""
    before = tokenizer.encode_special_tokens
    tokenizer.encode_special_tokens = True
    try:
        return [
            text
            for text in texts
            if tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) != text
        ]
    finally:
        tokenizer.encode_special_tokens = before


# Beside HARD_TEXTS: what patterns and normalisers treat apart.
SCRIPTS = (
    "It's THEY'LL we'Re 'tis; don't e-mail naïve façade Straße ISO-8859-1, iPhone 3.14159 v2.0\n",
    "12345678 1,234,567.89 ٣٤٥ ४५६ Ⅻ ½ 2024-11-21T10:20:30Z 0xDEADBEEF",
    "def f(x):\n    return x[1:] + {'a': \"b\"} != None  # ok\n\n\n<a href='//x.org/?q=1'>\t</a>",
    "กินข้าวที่บ้านแล้วค่ะ น้ำตก เก่ง ๑๒๓ ဗမာစာ ខ្មែរ ພາສາລາວ",
    "हिन्दी में लिखा हुआ பாடல் తెలుగు ಕನ್ನಡ বাংলা",
    "漢字とかなの文。中文也是，他說：「好」！한국어 문장입니다 ﾊﾝｶｸ ＦＵＬＬ １２３",
    "Привет, МИР! Ελληνικά ΏΡΑ עִבְרִית العَرَبِيَّة نص",
    "ﬁne ① Å Å e\u0301 é ㎏ … ™ ｆ \u00a0\u2003\u200b\u200d\u00ad x",
)
