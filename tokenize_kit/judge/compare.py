"""Compare several tokenizers on the same texts, which are read once.

`HARD_TEXTS` has unusual texts, for checks in other
modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokenize_kit.judge.candidate import Candidate, open_candidate, texts_of, token_bytes
from tokenize_kit.judge.tally import ENGLISH, Tally, Texts
from tokenize_kit.judge.words import Segmentation

# Control characters, line ends, runs of spaces, marks without a base, joined emoji, SentencePiece's
# space symbol, spellings of byte and control tokens.
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

# More texts: characters that patterns and normalizers treat specially.
SCRIPTS = (
    "It's THEY'LL we'Re 'tis; don't e-mail naïve façade Straße ISO-8859-1, iPhone 3.14159 v2.0\n",
    "12345678 1,234,567.89 ٣٤٥ ४५६ Ⅻ ½ 2024-11-21T10:20:30Z 0xDEADBEEF",
    "def f(x):\n    return x[1:] + {'a': \"b\"} != None  # ok\n\n\n<a href='//x.org/?q=1'>\t</a>",
    "กินข้าวที่บ้านแล้วค่ะ น้ำตก เก่ง ๑๒๓ ဗမာစာ ខ្មែរ ພາສາລາວ",
    "हिन्दी में लिखा हुआ பாடல் తెలుగు ಕನ್ನಡ বাংলা",
    "漢字とかなの文。中文也是，他說：「好」！한국어 문장입니다 ﾊﾝｶｸ ＦＵＬＬ １２３",
    "Привет, МИР! Ελληνικά ΏΡΑ עִבְרִית العَرَبِيَّة نص",
    "ﬁne ① Å Å e\u0301 é ㎏ … ™ ｆ \u00a0\u2003\u200b\u200d\u00ad x"
    " ﻻَ ﷲِ اللَّهِ E\u0301 ﬁ\u0301 B\u0e49 Vie\u0323\u0302t ﾊﾞ",
)

PAGE = 1800  # characters of a standard page


def add_costs(
    results: list[dict[str, Any]], groups: Sequence[str], price: float | None, context: int | None
) -> None:
    """Add costs to every result and to its rows by group: the price of text, and how much text fits
    into a context. price: of a million tokens, for the figures `price_a_million_characters` and
    `price_a_million_words`; context: a number of tokens, for `context_characters`, `context_words`
    and `context_pages` (of PAGE characters). Figures on words are None for texts in scripts without
    spaces whose words are not known."""
    for result in results:
        for row in (result, *(row for name in groups for row in result[name])):
            tokens = row["tokens"]
            units = {"characters": row["characters"], "words": row["words"]}
            if row["letters"] > row["words"]:
                units["words"] = 0
            for unit, count in units.items():
                if price is not None:
                    row[f"price_a_million_{unit}"] = price * tokens / count if count else None
                if context is not None:
                    fitting = round(context * count / tokens) if tokens and count else None
                    row[f"context_{unit}"] = fitting
            if context is not None:
                characters = row["context_characters"]
                row["context_pages"] = characters / PAGE if characters else None


def overlaps(tallies: Sequence[Tally]) -> list[dict[str, float]]:
    """Return for each pair of tokenizers the number of shared tokens and their share of all tokens
    (Jaccard). Tokens are equal if they stand for the same bytes; special tokens do not count."""
    vocabularies = [
        set(token_bytes(tally.candidate, tally.vocabulary).values()) for tally in tallies
    ]
    pairs = []
    for (first, one), (second, other) in combinations(enumerate(vocabularies), 2):
        shared = len(one & other)
        jaccard = shared / len(one | other)
        pairs.append({"first": first, "second": second, "shared": shared, "jaccard": jaccard})
    return pairs


Piece = tuple[str, int]  # text, tokens: several if a character is split, 0 if it is dropped


def cut_text(candidate: Candidate, text: str) -> list[Piece]:
    """Split the text into (piece, number of tokens that spell it). The pieces joined are the text.
    Tokens that end within a character form one piece. Text that a tokenizer drops has 0 tokens."""
    raw = text.encode("utf-8")
    data = np.frombuffer(raw, np.uint8)
    offsets = np.array([0, len(raw)], np.int64)
    ids, sizes = candidate.encode(data, offsets)
    starts, ends = candidate.spans(data, offsets, ids, sizes)
    whole = np.append((data & 0xC0) != 0x80, True)  # a character begins at this byte
    cut: list[Piece] = []
    at = waiting = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end <= at and start < at and not waiting and cut:  # another part of the same character
            cut[-1] = (cut[-1][0], cut[-1][1] + 1)
            continue
        if start > at and not waiting and whole[start]:
            cut.append((raw[at:start].decode("utf-8"), 0))
            at = start
        waiting += 1
        if end > at and whole[end]:
            cut.append((raw[at:end].decode("utf-8"), waiting))
            at, waiting = end, 0
    if at < len(raw):
        cut.append((raw[at:].decode("utf-8"), waiting))
    elif waiting and cut:
        cut[-1] = (cut[-1][0], cut[-1][1] + waiting)
    return cut


EXCERPT = 300  # characters shown of a text
Batch = tuple[np.ndarray, np.ndarray, Mapping[str, Sequence[str | None]]]


def compare(
    paths: Sequence[Path],
    batches: Iterable[Batch],
    groups: Sequence[str] = (),
    show: int = 0,
    pattern: str | None = None,
    baseline: int | None = None,
    segmentation: Segmentation | None = None,
    pivot: str | None = None,
    price: float | None = None,
    context: int | None = None,
) -> dict[str, Any]:
    """Compare tokenizers on the same texts. Return a dict: `tokenizers` has each one's
    `Tally.result`; `overlaps` compares their vocabularies in pairs; `shown` has the beginnings of
    the first `show` non-empty texts, split by each tokenizer.

    pattern: the pattern of .tiktoken files. baseline: index of the tokenizer whose token counts the
    others are compared with. segmentation: the way to find words in scripts without spaces. pivot:
    the language that other languages are compared with (default English). price, context: see
    `add_costs`.

    batches: the texts, as (data: uint8[] valid UTF-8, offsets: int64[rows + 1], labels by group).
    Memory does not grow with the texts. Raises LlmcurateError naming an unreadable tokenizer."""
    labels_of_pivot = ENGLISH if pivot is None else (pivot,)
    tallies = [
        Tally(open_candidate(path, pattern), groups, pivot=labels_of_pivot) for path in paths
    ]
    shown: list[dict[str, bool | list[list[Piece]]]] = []
    for data, offsets, labels in batches:
        texts = Texts.of(data, offsets, segmentation)
        for tally in tallies:
            tally.add(texts, labels)
        for row in range(len(offsets) - 1):
            if len(shown) >= show:
                break
            text = texts_of(texts.data, texts.offsets[row : row + 2])[0]
            if text:
                cut = [cut_text(tally.candidate, text[:EXCERPT]) for tally in tallies]
                shown.append({"cut": len(text) > EXCERPT, "pieces": cut})
    results = [tally.result() for tally in tallies]
    if baseline is not None:  # normalized sequence length, Dagan et al. 2024
        usual = {name: {row["label"]: row for row in results[baseline][name]} for name in groups}
        for result in results:
            pairs = [(result, results[baseline])]
            pairs += [(row, usual[name][row["label"]]) for name in groups for row in result[name]]
            for mine, other in pairs:
                mine["nsl"] = mine["tokens"] / other["tokens"] if other["tokens"] else None
    add_costs(results, groups, price, context)
    return {"tokenizers": results, "overlaps": overlaps(tallies), "shown": shown}


def round_trip_failures(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Return the texts that the tokenizer does not decode exactly."""
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
