"""The comparison of several tokenizers on the same texts, read once; and built-in texts on which
tokenizers go wrong.

As MorphScore (Arnett and Bergen 2025, "Why do language models perform worse for morphologically
complex languages?"): a word of one token is neither right nor wrong, so only words of several
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.errors import UsageError
from tokenize_kit.encode.parts import pack
from tokenize_kit.formats.forms import read_file
from tokenize_kit.judge.candidate import Candidate, open_candidate, texts_of, token_bytes
from tokenize_kit.judge.tally import ENGLISH, OTHERS, Tally, Texts
from tokenize_kit.judge.words import Segmentation

Lexicon = dict[str, tuple[str, ...]]  # a word and its morphemes, two or more


def read_lexicon(path: Path) -> Lexicon:
    """Lines of a word, a tab, and its morphemes with spaces between; words of one are left out.
    Raises LlmcurateError naming the file, and the line whose morphemes are not its word."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"lexicon {path}: not UTF-8 text") from None
    lexicon: Lexicon = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        word, _, rest = line.strip().partition("\t")
        morphemes = tuple(rest.split())
        if "".join(morphemes) != word:
            raise UsageError(
                f"lexicon {path}: line {number}: write a word, a tab, and its morphemes with"
                " spaces between, which together are the word"
            )
        if len(morphemes) > 1:
            lexicon[word] = morphemes
    if not lexicon:
        raise UsageError(f"lexicon {path}: no word of several morphemes in it")
    return lexicon


def morpheme_figures(candidate: Candidate, lexicon: Lexicon) -> dict[str, float | None]:
    """`morpheme_words`: of the lexicon; `morpheme_words_whole`: of one token; of the others
    `morpheme_recall`, the share of boundaries between morphemes at which a token ends, and
    `morpheme_precision`, the share of boundaries of tokens that lie there; None where there are
    none. Each word stands behind a space, as within a text."""
    raw = [f" {word}".encode() for word in lexicon]
    data, offsets = pack(raw)
    ids, sizes = candidate.encode(data, offsets)
    starts, ends = candidate.spans(data, offsets, ids, sizes)
    bounds = np.cumsum([0, *sizes])
    whole = kept = gold = cuts = 0
    for row, morphemes in enumerate(lexicon.values()):
        tokens = slice(bounds[row], bounds[row + 1])
        first, last = int(offsets[row]) + 1, int(offsets[row + 1])
        positions = {*starts[tokens].tolist(), *ends[tokens].tolist()}
        inner = {k - first for k in positions if first < k < last}
        if not inner:
            whole += 1
            continue
        between = set(accumulate(len(morpheme.encode()) for morpheme in morphemes[:-1]))
        kept += len(inner & between)
        gold += len(between)
        cuts += len(inner)
    return {
        "morpheme_words": len(lexicon),
        "morpheme_words_whole": whole,
        "morpheme_recall": kept / gold if gold else None,
        "morpheme_precision": kept / cuts if cuts else None,
    }


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

UNITS = ("byte", "character", "text")


def gini(values: Sequence[float]) -> float | None:
    """Mean difference of all pairs over twice the mean: 0 where all are equal, towards 1 where one
    has everything. None for less than two values, or of nothing."""
    count, total = len(values), sum(values)
    if count < 2 or not total:
        return None
    ordered = enumerate(sorted(values), 1)
    return sum((2 * position - count - 1) * value for position, value in ordered) / (count * total)


PAGE = 1800  # characters of a standard page


def add_costs(
    results: list[dict[str, Any]], groups: Sequence[str], price: float | None, context: int | None
) -> None:
    """Puts into every result and its rows by group what texts cost and what fits into a context.

    price: of a million tokens; `price_a_million_characters` and `_words`. context: tokens;
    `context_characters`, `_words` and `_pages` of PAGE characters. Words are those of texts that
    are written with spaces, or whose words are known; None of others.
    """
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
    """Of every pair of tokenizers the tokens that are in both, and their share of those in either
    (Jaccard). Tokens are the same where they stand for the same bytes; special ones do not
    count."""
    vocabularies = [
        set(token_bytes(tally.candidate, tally.vocabulary).values()) for tally in tallies
    ]
    pairs = []
    for (first, one), (second, other) in combinations(enumerate(vocabularies), 2):
        shared = len(one & other)
        jaccard = shared / len(one | other)
        pairs.append({"first": first, "second": second, "shared": shared, "jaccard": jaccard})
    return pairs


Piece = tuple[str, int]  # text, tokens: more than one where a character is cut, 0 where none


def cut_text(candidate: Candidate, text: str) -> list[Piece]:
    """The text in the pieces that tokens stand for, joined where a cut is within a character.

    Joined together the pieces are the text. 0 tokens: the tokenizer leaves this out.
    """
    raw = text.encode("utf-8")
    data = np.frombuffer(raw, np.uint8)
    offsets = np.array([0, len(raw)], np.int64)
    ids, sizes = candidate.encode(data, offsets)
    starts, ends = candidate.spans(data, offsets, ids, sizes)
    whole = np.append((data & 0xC0) != 0x80, True)  # whether a character begins at a byte
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


EXCERPT = 300  # characters of a text that is shown
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
    lexicon: Lexicon | None = None,
) -> dict[str, Any]:
    """`tokenizers`: a `Tally.result` of each; `overlaps` of their vocabularies; `shown`: the
    beginnings of the first `show` texts that are not empty, cut by each tokenizer.

    pattern: how files of ranks are cut. baseline: the number of the path against whose tokens every
    sequence is measured. segmentation: how the words of scripts without spaces are known. pivot:
    the language that others are set against; English. price, context: as of `add_costs`.
    lexicon: words and their morphemes.

    batches: (data: uint8[] valid UTF-8, offsets: int64[rows + 1], labels by group). Memory does not
    grow with the texts. Raises LlmcurateError naming a tokenizer that cannot be read.
    """
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
    for result in results:
        # Over languages, each once however much text it has.
        rows = [row for row in result.get("lang", ()) if row["label"] != OTHERS]
        for unit in UNITS:
            costs = [row[f"tokens_a_{unit}"] for row in rows]
            result[f"gini_a_{unit}"] = gini([cost for cost in costs if cost is not None])
    if baseline is not None:  # normalised sequence length, Dagan et al. 2024
        usual = {name: {row["label"]: row for row in results[baseline][name]} for name in groups}
        for result in results:
            pairs = [(result, results[baseline])]
            pairs += [(row, usual[name][row["label"]]) for name in groups for row in result[name]]
            for mine, other in pairs:
                mine["nsl"] = mine["tokens"] / other["tokens"] if other["tokens"] else None
    add_costs(results, groups, price, context)
    if lexicon:
        for result, tally in zip(results, tallies, strict=True):
            result |= morpheme_figures(tally.candidate, lexicon)
    return {"tokenizers": results, "overlaps": overlaps(tallies), "shown": shown}


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
