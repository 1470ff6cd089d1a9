"""Compute the columns for Gopher's rules as in the paper, DataTrove, Dolma or DCLM (variants)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from curate.documents.documents import Documents
from curate.filters.language_words import estimated_counts, stop_words, unspaced_tokens
from curate.filters.repeats import (
    EVERY,
    GREEDY,
    N_GRAMS,
    TOP,
    UNION,
    all_n_gram_chars,
    duplicates,
    n_gram_chars,
    piece_chars,
    ratio,
)
from curate.filters.tokens import (
    ALPHA,
    FIRST_ALNUM,
    HASH_OR_ELLIPSIS,
    PLAIN,
    STOP_SHIFT,
    Tokens,
    joined_tokens,
    split_tokens,
    symbol_tokens,
)
from curate.text.lines import Extents, filled_lines, newline_lines, paragraphs, written_lines
from curate.text.tables import segments
from curate.text.unicode import row_chars
from curate.text.unspaced import row_sums
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.text.languages import Profile

# Bits for the signs that begin a bullet line, and for the signs that end an ellipsis line.
_BULLET, _HYPHEN, _STAR, _CIRCLE = 1, 2, 4, 8  # • - * ●
_THREE, _ONE_SIGN, _SPACED = 1, 2, 4  # ... … . . .
BULLETS = {
    "paper": _BULLET | _HYPHEN | _STAR | _CIRCLE,
    "datatrove": _BULLET | _HYPHEN,
    "dolma": _HYPHEN | _STAR,
    "dclm": _BULLET | _HYPHEN | _STAR | _CIRCLE,
}
ELLIPSES = {
    "paper": _THREE | _ONE_SIGN,
    "datatrove": _THREE | _ONE_SIGN,
    "dolma": _ONE_SIGN,
    "dclm": _THREE | _ONE_SIGN | _SPACED,
}
_LETTERS = np.zeros(256, np.uint8)
_LETTERS[35] = 1
_LETTERS[46] = 2
_LETTERS[0xE2] = 3


@njit(cache=True, nogil=True)
def _sums(rows, chars, flags):
    """Return int64[rows, 7], seven counts per row: tokens with a non-punctuation character, the
    code points of those tokens, tokens that begin with a letter or digit, tokens with a letter,
    tokens with # or an ellipsis, stop words, distinct stop words."""
    out = np.zeros((len(rows) - 1, 7), np.int64)
    for r in range(len(rows) - 1):
        plain = plain_chars = firsts = alphas = symbols = stops = np.int64(0)
        seen = np.int64(0)
        for t in range(rows[r], rows[r + 1]):
            flag = np.int64(flags[t])
            is_plain = (flag & PLAIN) >> 1
            plain += is_plain
            plain_chars += chars[t] * is_plain
            firsts += (flag & FIRST_ALNUM) >> 2
            alphas += flag & ALPHA
            symbols += (flag & HASH_OR_ELLIPSIS) >> 3
            stop = flag >> STOP_SHIFT
            stops += stop > 0
            seen |= np.int64(1) << stop
        distinct = np.int64(0)
        for k in range(1, 9):
            distinct += (seen >> k) & 1
        out[r] = (plain, plain_chars, firsts, alphas, symbols, stops, distinct)
    return out


@njit(cache=True, nogil=True)
def _token_chars(rows, chars):
    total = np.zeros(len(rows) - 1, np.int64)
    median = np.zeros(len(rows) - 1, np.float64)
    for r in range(len(rows) - 1):
        part = chars[rows[r] : rows[r + 1]]
        if len(part):
            total[r] = part.sum()
            median[r] = np.median(part)
    return total, median


@njit(cache=True, nogil=True)
def _symbols(data, offsets):
    out = np.zeros((len(offsets) - 1, 4), np.int64)
    for r in range(len(out)):
        stop = offsets[r + 1]
        dots_end = spaced_end = offsets[r]
        for at in range(np.uint64(offsets[r]), np.uint64(stop)):
            kind = _LETTERS[data[at]]
            if kind == 0:
                continue
            i = np.int64(at)
            if kind == 1:
                out[r, 0] += 1
            elif kind == 3:
                if i + 2 < stop and data[i + 1] == 0x80 and data[i + 2] == 0xA6:
                    out[r, 3] += 1
            elif i + 2 < stop:
                if i >= dots_end and data[i + 1] == 46 and data[i + 2] == 46:
                    out[r, 1] += 1
                    dots_end = i + 3
                elif i >= spaced_end and i + 4 < stop and data[i + 1] == 32 and data[i + 3] == 32:
                    hit = data[i + 2] == 46 and data[i + 4] == 46
                    out[r, 2] += hit
                    spaced_end = i + 5 if hit else spaced_end
    return out


@njit(cache=True, nogil=True)
def _marked_lines(data, rows, start, end, bullets, ellipses):
    out = np.zeros((len(rows) - 1, 2), np.int64)
    for r in range(len(out)):
        for k in range(rows[r], rows[r + 1]):
            a, z = start[k], end[k]
            if a == z:
                continue
            b, e = data[a], data[z - 1]
            is_marked = (b == 45 and bullets & _HYPHEN) or (b == 42 and bullets & _STAR)
            if b == 0xE2 and z - a >= 3:
                is_marked = bullets & _BULLET and data[a + 1] == 0x80 and data[a + 2] == 0xA2
                if bullets & _CIRCLE and data[a + 1] == 0x97 and data[a + 2] == 0x8F:
                    is_marked = True
            out[r, 0] += 1 if is_marked else 0
            is_marked = False
            if e == 46 and z - a >= 3:
                is_marked = ellipses & _THREE and data[z - 2] == 46 and data[z - 3] == 46
                if ellipses & _SPACED and z - a >= 5 and data[z - 2] == 32 and data[z - 3] == 46:
                    is_marked = is_marked or (data[z - 4] == 32 and data[z - 5] == 46)
            elif e == 0xA6 and z - a >= 3 and ellipses & _ONE_SIGN:
                is_marked = data[z - 2] == 0x80 and data[z - 3] == 0xE2
            out[r, 1] += 1 if is_marked else 0
    return out


def quality_measures(
    docs: Documents, variant: str, profile: Profile | None = None, own: Sequence[str] | None = None
) -> Documents:
    """Return the batch with the columns that the quality rules compare with their limits. `profile`
    is the batch's language profile, None for English. `own` stop words replace the profile's."""
    data, offsets = docs.buffers()
    tokens = _quality_tokens(docs, variant)
    number = np.diff(tokens.rows)
    plain, plain_chars, firsts, alphas, symbols, stops, distinct = _sums(
        tokens.rows, tokens.chars, tokens.flags
    ).T
    lines = _lines(docs, variant)
    marked = _marked_lines(
        data, lines.rows, lines.start, lines.end, BULLETS[variant], ELLIPSES[variant]
    )
    n_lines = np.diff(lines.rows)
    if variant == "datatrove":
        count, length = plain, ratio(plain_chars, plain)
    else:
        total, median = _token_chars(tokens.rows, tokens.chars)
        count = firsts if variant == "dclm" else number
        length = median if variant == "dolma" else ratio(total, number)
    if profile is not None and profile.clusters:
        number, plain, firsts, alphas = estimated_counts(docs, tokens, profile)
        count = {"datatrove": plain, "dclm": firsts}.get(variant, number)
        total = plain_chars if variant == "datatrove" else row_sums(tokens.rows, tokens.chars)
        length = ratio(total, count)
    docs = docs.annotate("words", np.round(count).astype(np.int32))
    docs = docs.annotate("word_length", length)
    if variant == "dolma":
        docs = docs.annotate("symbol_ratio", ratio(symbols, number))
    else:
        marks = _symbols(data, offsets).T
        if variant == "dclm":
            docs = docs.annotate("symbol_ratio", ratio(marks.sum(axis=0), number))
        else:
            docs = docs.annotate("hash_ratio", ratio(marks[0], number))
            docs = docs.annotate("ellipsis_ratio", ratio(marks[1] + marks[3], number))
    docs = docs.annotate("bullet_lines", ratio(marked[:, 0], n_lines))
    docs = docs.annotate("ellipsis_lines", ratio(marked[:, 1], n_lines))
    docs = docs.annotate("alpha_words", ratio(alphas, number))
    listed = profile.stop_words if own is None and profile is not None else own
    if listed is not None:
        unspaced = profile is not None and profile.clusters > 0
        fold = variant in ("paper", "dclm")
        stops, distinct = stop_words(docs, tokens, listed, unspaced, fold).T
    counted = distinct if variant in ("datatrove", "paper") else stops
    docs = docs.annotate("stop_words", counted.astype(np.int32))
    return docs


def _quality_tokens(docs: Documents, variant: str) -> Tokens:
    if variant == "datatrove":
        return symbol_tokens(docs)
    return split_tokens(docs, fold=variant != "dolma")


def _lines(docs: Documents, variant: str) -> Extents:
    if variant == "dolma":
        return newline_lines(docs)
    if variant == "dclm":
        return written_lines(docs, strip=True)
    lines = segments(docs).lines
    if variant == "datatrove":
        return Extents(lines.rows, lines.start, lines.end)
    filled = lines.end > lines.start
    before = np.concatenate(([0], np.cumsum(filled)))
    return Extents(before[lines.rows], lines.start[filled], lines.end[filled])


def without_text(docs: Documents, variant: str) -> np.ndarray:
    """Return bool[rows], True for a document without text. If `variant` is "dclm", a document that
    has only blank lines counts as one without text."""
    if variant == "dclm":
        return np.diff(written_lines(docs, strip=True).rows) == 0
    mask: np.ndarray = np.diff(docs.buffers()[1]) == 0
    return mask


def repetition_measures(docs: Documents, variant: str, profile: Profile | None = None) -> Documents:
    """Return the batch with the columns that the repetition rules compare with their limits. The
    arguments are those of the function quality_measures."""
    return _repeated_n_grams(_repeated_pieces(docs, variant), variant, profile)


def _repeated_pieces(docs: Documents, variant: str) -> Documents:
    firsts = variant in ("dolma", "dclm")
    data, offsets = docs.buffers()
    chars = row_chars(data, offsets)
    if variant != "dolma":
        pieces = paragraphs(docs, strip=variant != "datatrove")
        n, n_chars = duplicates(docs, pieces, firsts)
        number = np.diff(pieces.rows)
        docs = docs.annotate("duplicate_paragraphs", ratio(n, number))
        whole = chars if variant == "datatrove" else _chars(docs, pieces)
        docs = docs.annotate("duplicate_paragraph_chars", ratio(n_chars, whole))
    if variant == "datatrove":
        pieces = filled_lines(docs)
        n, n_chars = duplicates(docs, pieces, firsts)
        # If the text ends with a newline, `re.split(r"\n+", text)` returns an empty last line.
        lines = newline_lines(docs)
        filled = lines.end > lines.start
        opens = ~_at(filled, lines.rows[:-1]) & (np.diff(offsets) > 0)
        closes = ~_at(filled, lines.rows[1:] - 1) & (np.diff(offsets) > 0)
        number = np.diff(pieces.rows) + opens + closes
        n = n + (opens & closes)
        whole = chars
    else:
        pieces = newline_lines(docs) if variant == "dolma" else written_lines(docs, strip=True)
        n, n_chars = duplicates(docs, pieces, firsts)
        number = np.diff(pieces.rows)
        if variant == "dolma":
            tokens = _repetition_tokens(docs, variant)
            whole = np.maximum(row_sums(tokens.rows, tokens.chars), 1)
        else:
            whole = _chars(docs, pieces)
    docs = docs.annotate("duplicate_lines", ratio(n, number))
    return docs.annotate("duplicate_line_chars", ratio(n_chars, whole))


def _repeated_n_grams(docs: Documents, variant: str, profile: Profile | None) -> Documents:
    unspaced, per_word = profile is not None and profile.clusters > 0, 1.0
    if profile is not None and unspaced:
        tokens, _, per_word = unspaced_tokens(docs, profile)
    else:
        tokens = _repetition_tokens(docs, variant)
    way = {"datatrove": GREEDY, "dolma": EVERY}.get(variant, UNION)
    counts = variant in ("datatrove", "dolma")  # an n-gram that occurs once counts too
    spaces = variant == "datatrove" and not unspaced
    n_chars = n_gram_chars(tokens, way, not counts, spaces, counts, per_word)
    if variant == "datatrove":
        whole = row_chars(*docs.buffers())
    else:
        whole = row_sums(tokens.rows, tokens.chars)
    all_chars = all_n_gram_chars(tokens.rows, tokens.chars) if variant == "dolma" else None
    for n in N_GRAMS:
        k = n - N_GRAMS[0]
        top = n <= TOP
        share = ratio(n_chars[:, k], whole if top or all_chars is None else all_chars[:, k])
        rule = f"{'top' if top else 'duplicate'}_{n}_gram_chars"
        docs = docs.annotate(rule, share)
    return docs


def _repetition_tokens(docs: Documents, variant: str) -> Tokens:
    if variant == "datatrove":
        return symbol_tokens(docs)
    if variant == "dclm":
        return joined_tokens(docs)
    return split_tokens(docs, fold=variant != "dolma")


def _chars(docs: Documents, pieces: Extents) -> np.ndarray:
    data, _ = docs.buffers()
    sizes: np.ndarray = piece_chars(data, pieces.rows, pieces.start, pieces.end)
    return sizes


def _at(flags: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return flags[positions] if len(flags) else np.zeros(len(positions), np.bool_)
