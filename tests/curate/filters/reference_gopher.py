"""Gopher's rules in plain Python, each variant as its source counts: what the kernels must find.

Rae et al. 2021 (appendix A1.1, table A1); DataTrove 0.10 gopher_quality_filter.py and
gopher_repetition_filter.py; Dolma taggers/gopher.py; DCLM content_filters.py. Words are those of
curate/filters/tokens.py, written here a second time on strings.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from statistics import median

from curate.filters.tokens import PUNCTUATION
from curate.text.words import UNSPACED

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
ABBREVIATIONS = set(
    "Mr Mrs Ms Dr St Jr Prof Rev Gen Gov Sen Rep Messrs Co Corp Inc Ltd Bros vs e.g i.e a.m p.m "
    "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec".split()
)
TOP = {2: 0.20, 3: 0.18, 4: 0.16}
DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}


def is_word_character(c: str) -> bool:
    return c.isalnum() or c == "_" or unicodedata.category(c)[0] == "M"


def symbol_words(text: str) -> list[str]:
    """Runs of \\w and marks, and other characters, with some marks part of words."""

    def is_capital(c: str) -> bool:
        return unicodedata.category(c) in ("Lu", "Lt") and len(c.lower()) == 1

    def inside(i: int) -> bool | str:
        """Whether the mark at i is part of a word, "begins" where one begins with it."""
        previous = text[i - 1 : i] or " "
        after = text[i + 1 : i + 2] or " "
        kinds = (kind_of(previous), kind_of(after))
        if text[i] == ",":
            return kinds == ("digit", "digit")
        if text[i] in "'’":
            return "begins" if kinds == ("letter", "letter") else False
        if "other" not in kinds:
            return not (kinds[0] == "letter" and not is_capital(previous) and is_capital(after))
        if is_capital(previous) and not is_word_character(text[i - 2 : i - 1] or " "):
            return True
        before = re.search(r"(?:^|[^\w.'\u0080-\U0010ffff])([A-Za-z.]+)$", text[max(i - 9, 0) : i])
        return before is not None and before[1] in ABBREVIATIONS

    words: list[str] = []
    last = ""  # what the word before is of: "word", a symbol, or "" behind white space
    for i, c in enumerate(text):
        joins = c in "'’.," and inside(i)
        if c.isspace():
            last = ""
            continue
        kind = "word" if joins or is_word_character(c) else c
        if kind != last or joins == "begins" or kind not in ("word", "-", "."):
            words.append("")
        words[-1] += c
        last = kind
    return words


def unspaced(c: str) -> bool:
    return c.isalpha() and any(first <= ord(c) <= last for first, last in UNSPACED)


def kind_of(c: str) -> str:
    if unspaced(c):
        return "unspaced"
    return "letter" if c.isalpha() else "digit" if c.isalnum() else "other"


def joined_words(text: str) -> list[str]:
    """Words with the single marks between two letters or digits that join them (UAX 29)."""
    words: list[tuple[int, int]] = []
    cluster = False  # the open word is of a script without spaces
    inside = False
    for i, c in enumerate(text):
        mark = unicodedata.category(c)[0] == "M"
        if not is_word_character(c):
            inside = False
            continue
        if not inside or unspaced(c) or (cluster and not mark):
            words.append((i, i))
            cluster = unspaced(c)
            inside = True
        words[-1] = (words[-1][0], i + 1)
    joined: list[tuple[int, int]] = []
    for start, end in words:
        if joined and start - joined[-1][1] == 1:
            before, mark, after = text[start - 2], text[start - 1], text[start]
            kinds = (kind_of(before), kind_of(after))
            if (kinds == ("letter", "letter") and mark in "'.‘’:·") or (
                kinds == ("digit", "digit") and mark in "'.‘’,;"
            ):
                joined[-1] = (joined[-1][0], end)
                continue
        joined.append((start, end))
    return [text[a:z] for a, z in joined if text[a].isalnum()]


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def has_letter(word: str) -> bool:
    return any(c.isalpha() for c in word)


def quality(text: str, variant: str) -> dict[str, float]:
    """The measured values by column."""
    words = symbol_words(text) if variant == "datatrove" else text.split()
    lengths = [len(w) for w in words]
    out: dict[str, float] = {"words": len(words), "word_length": share(sum(lengths), len(words))}
    folded = [w.lower() for w in words]
    dots, sign = text.count("..."), text.count("…")
    if variant == "datatrove":
        plain = [w for w in words if not all(PUNCTUATION[ord(c)] for c in w)]
        out["words"] = len(plain)
        out["word_length"] = share(sum(map(len, plain)), len(plain))
        lines = [line.strip() for line in text.splitlines()]
        bullets, ellipses = ("•", "-"), ("...", "…")
        out["stop_words"] = len(STOP_WORDS.intersection(words))
    elif variant == "dolma":
        out["word_length"] = float(median(lengths)) if lengths else 0.0
        symbols = sum("#" in w or "…" in w for w in words)
        lines = text.split("\n")
        bullets, ellipses = ("*", "-"), ("…",)
        out["stop_words"] = sum(w in STOP_WORDS for w in words)
    elif variant == "dclm":
        out["words"] = sum(w[0].isalnum() for w in words)
        symbols = text.count("#") + dots + text.count(". . .") + sign
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        bullets, ellipses = ("●", "•", "*", "-"), ("...", ". . .", "…")
        out["stop_words"] = sum(w in STOP_WORDS for w in folded)
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        bullets, ellipses = ("●", "•", "*", "-"), ("...", "…")
        out["stop_words"] = len(STOP_WORDS.intersection(folded))
    if variant in ("dolma", "dclm"):
        out["symbol_ratio"] = share(symbols, len(words))
    else:
        out["hash_ratio"] = share(text.count("#"), len(words))
        out["ellipsis_ratio"] = share(dots + sign, len(words))
    out["bullet_lines"] = share(sum(line.startswith(bullets) for line in lines), len(lines))
    out["ellipsis_lines"] = share(sum(line.endswith(ellipses) for line in lines), len(lines))
    out["alpha_words"] = share(sum(map(has_letter, words)), len(words))
    return out


def quality_rules(m: dict[str, float]) -> set[str]:
    """The rules that drop a document with these values."""
    most = {"hash_ratio": 0.1, "ellipsis_ratio": 0.1, "symbol_ratio": 0.1}
    most |= {"bullet_lines": 0.9, "ellipsis_lines": 0.3}
    rules = {rule for rule, limit in most.items() if m.get(rule, 0) > limit}
    tests = {
        "few_words": m["words"] < 50,
        "many_words": m["words"] > 100_000,
        "short_words": m["word_length"] < 3,
        "long_words": m["word_length"] > 10,
        "alpha_words": m["alpha_words"] < 0.8,
        "stop_words": m["stop_words"] < 2,
    }
    return rules | {rule for rule, fires in tests.items() if fires}


def copies(pieces: list[str], every: bool) -> tuple[int, int]:
    """(pieces, characters) that stand more than once; every: the first of them, too."""
    counts = Counter(pieces)
    again = [(p, c if every else c - 1) for p, c in counts.items() if c > 1]
    return sum(c for _, c in again), sum(len(p) * c for p, c in again)


def top_chars(words: list[str], n: int, variant: str) -> int:
    grams = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
    if not grams:
        return 0
    gram, count = grams.most_common(1)[0]
    if variant == "datatrove":
        return len(" ".join(gram)) * count
    if variant == "dolma":
        return len("".join(gram)) * count
    if count == 1:
        return 0
    return max(len("".join(g)) for g, c in grams.items() if c == count) * count


def duplicate_chars(words: list[str], n: int, variant: str) -> int:
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    if variant == "datatrove":
        seen, i, total = set(), 0, 0
        while i < len(grams):
            if grams[i] in seen:
                total += len("".join(grams[i]))
                i += n
            else:
                seen.add(grams[i])
                i += 1
        return total
    counts = Counter(grams)
    again = [i for i, gram in enumerate(grams) if counts[gram] > 1]
    if variant == "dolma":
        return sum(len("".join(grams[i])) for i in again)
    return sum(len(words[k]) for k in {i + j for i in again for j in range(n)})


def repetition(text: str, variant: str) -> dict[str, float]:
    """The measured values by column."""
    out: dict[str, float] = {}
    every = variant in ("dolma", "dclm")
    words = text.split()
    if variant == "datatrove":
        words = symbol_words(text)
        parts = re.split(r"\n{2,}", text.strip()) if text else []
        lines = re.split(r"\n+", text) if text else []
        part_chars = line_chars = word_chars = len(text)
    else:
        words = joined_words(text) if variant == "dclm" else words
        word_chars = sum(map(len, words))
        parts = [p.strip() for p in re.split(r"\n{2,}", text.strip()) if p.strip()]
        part_chars = sum(map(len, parts))
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        line_chars = sum(map(len, lines))
    if variant == "dolma":
        lines, line_chars = text.split("\n"), max(word_chars, 1)
    else:
        n, chars = copies(parts, every)
        out["duplicate_paragraphs"] = share(n, len(parts))
        out["duplicate_paragraph_chars"] = share(chars, part_chars)
    n, chars = copies(lines, every)
    out["duplicate_lines"] = share(n, len(lines))
    out["duplicate_line_chars"] = share(chars, line_chars)
    for n in TOP:
        out[f"top_{n}_gram_chars"] = share(top_chars(words, n, variant), word_chars)
    for n in DUPLICATE:
        whole = word_chars
        if variant == "dolma":
            whole = sum(len("".join(words[i : i + n])) for i in range(len(words) - n + 1))
        out[f"duplicate_{n}_gram_chars"] = share(duplicate_chars(words, n, variant), whole)
    return out


def repetition_rules(text: str, m: dict[str, float], variant: str) -> set[str]:
    """The rules that drop a document with these values."""
    limits = {"duplicate_lines": 0.30, "duplicate_line_chars": 0.30 if variant == "dolma" else 0.20}
    limits |= {"duplicate_paragraphs": 0.30, "duplicate_paragraph_chars": 0.20}
    limits |= {f"top_{n}_gram_chars": v for n, v in TOP.items()}
    limits |= {f"duplicate_{n}_gram_chars": v for n, v in DUPLICATE.items()}
    rules = {rule for rule, limit in limits.items() if m.get(rule, 0) > limit}
    if (variant == "datatrove" and not text) or (variant == "dclm" and not text.strip()):
        rules.add("empty")
    return rules
