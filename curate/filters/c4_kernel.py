"""C4's page cleaner: judge each line of a batch, and find the spans to cut.

The rules run in the order of TensorFlow Datasets' `clean_page` (text/c4_utils.py): long words,
citations (removed), end mark, number of words, lorem ipsum, javascript, curly bracket, policy.
Unlike `clean_page`, lines are still judged after a page rule has matched, to record all reasons.
For a language with a profile, the profile's end marks count too. If the profile has no end marks,
no line is cut for its end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from curate.filters.repeats import last_code_points
from curate.text.sentences import count_sentences, sentences_of_words
from curate.text.tables import Segments, segments
from curate.text.unicode import char_bytes, code_point, is_digit, space_bytes
from curate.text.unspaced import more_words, row_sums
from curate.text.words import character_tables
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import matches_at

if TYPE_CHECKING:
    from curate.documents.documents import Documents
    from curate.text.languages import Profile

# Verdicts on a line: kept, or the rule that drops it.
KEPT, BLANK, LONG_WORD, NO_END_MARK, SHORT, LOREM, JAVASCRIPT, CURLY, POLICY = range(9)
LINE_RULES = (
    "kept", "white_space", "long_word", "no_end_mark", "few_words", "lorem_ipsum", "javascript",
    "curly_bracket", "policy",
)  # fmt: skip
CITATION = len(LINE_RULES)  # the rule of spans that are cut within a kept line
SPAN_RULES = (*LINE_RULES, "citation")

_HAS_LOREM, _HAS_JAVASCRIPT, _HAS_POLICY, _HAS_CURLY, _HAS_BRACKET = 1, 2, 4, 8, 16
_BRACKET, _BITS = 128, 7
_ONE = np.uint64(1)
# Letters from the rarest in English to the most frequent; other characters count as rarer.
_RARE = "zqjxkvbpygwfmucldrhsnioate "
_ONE_LENGTH = re.compile(r"[\0-jl-\x7f]*")  # a byte in either case (k: KELVIN SIGN)
_EDIT = np.frombuffer(b"[edit]", np.uint8).copy()
_NEEDED = np.frombuffer(b"[citation needed]", np.uint8).copy()
ENDS, OPEN = 1, 2  # the line ends with an end mark of its language, or does not


@njit(nogil=True)
def citation_bytes(data: np.ndarray, i: int, end: int) -> int:
    r"""Return the number of bytes that match `\[\d*\]|\[edit\]|\[citation needed\]` at data[i]."""
    if data[i] != 91:
        return 0
    k = i + 1
    while k < end:
        b = data[k]
        if b == 93:
            return k + 1 - i
        if b < 0x80:
            if not 48 <= b <= 57:
                break
            k += 1
        else:
            code = code_point(data, k, end)
            if code < 0 or not is_digit(code):
                break
            k += char_bytes(b)
    if matches_at(data, i, end, _EDIT):
        return 6
    if matches_at(data, i, end, _NEEDED):
        return 17
    return 0


@lru_cache(maxsize=8)
def phrase_table(*lists: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Build the nine arrays with which the function find_phrases finds phrases in upper or lower
    case.

    `lists` are the phrases for lorem ipsum, for javascript and for policies. A phrase's anchor is
    the rarest of its first characters. Each phrase is assigned one of seven bits; several phrases
    share a bit. Phrases are compared with the text only at a byte that has a bit in `anchors` which
    the byte before it has in `befores`.

    - `anchors` (uint8[256]): for each byte, the bits of the phrases whose anchor may begin with it.
    - `befores` (uint8[256]): for each byte, the bits of the phrases whose anchor may follow it.
    - `begins` (int64[257]), `numbers` (int64[]): numbers[begins[b]:begins[b + 1]] are the phrases
      whose anchor may begin with byte b.
    - `codes` (int32[]), `at` (int64[phrases + 1]): the code points of all phrases, joined, and
      where each phrase begins in `codes`.
    - `back` (int64[phrases]): the number of bytes of each phrase before its anchor.
    - `flags` (int64[phrases]): 1, 2 or 4 for the list of each phrase.
    - `lower` (int32[0x110000]): the lower case of each code point.
    """
    lower = character_tables()[1]
    phrases = [(text.lower(), 1 << n) for n, listed in enumerate(lists) for text in listed]
    anchors, befores = np.zeros((2, 256), np.uint8)
    by_byte: list[set[int]] = [set() for _ in range(256)]
    back = []
    for number, (text, _) in enumerate(phrases):
        steady = len(_ONE_LENGTH.match(text + "k")[0])  # type: ignore[index]
        anchor = min(range(min(steady + 1, len(text))), key=lambda k: _RARE.find(text[k]))
        back.append(anchor)
        before, bit = text[:anchor][-1:], 1 << number % _BITS
        befores[[*(before + before.upper()).encode()] or slice(None)] |= bit
        for code in np.flatnonzero(lower == ord(text[anchor])).tolist():
            byte = chr(code).encode("utf-8", "surrogatepass")[0]
            anchors[byte] |= bit
            by_byte[byte].add(number)
    anchors[[91, 123]] |= _BRACKET
    befores |= _BRACKET
    return (
        anchors,
        befores,
        np.cumsum([0, *map(len, by_byte)]).astype(np.int64),
        np.array([number for numbers in by_byte for number in sorted(numbers)], np.int64),
        np.array([ord(letter) for text, _ in phrases for letter in text], np.int32),
        np.cumsum([0, *(len(text) for text, _ in phrases)]).astype(np.int64),
        np.array(back, np.int64),
        np.array([flag for _, flag in phrases], np.int64),
        lower,
    )


@njit(nogil=True)
def _phrase_at(data, i, end, codes, first, stop, lower):
    for k in range(first, stop):
        if i >= end:
            return False
        b = data[i]
        want = codes[k]
        if b < 0x80:
            if b != want and not (65 <= b <= 90 and b + 32 == want):
                return False
            i += 1
        else:
            code = code_point(data, i, end)
            if code < 0 or lower[code] != want:
                return False
            i += char_bytes(b)
    return True


@njit(nogil=True)
def _next_hit(data, i, stop, before, anchors, befores):
    while i < stop:  # a separate loop is twice as fast
        b = data[i]
        if anchors[b] & befores[before]:
            break
        before = b
        i += _ONE
    return i


@njit(nogil=True)
def find_phrases(data: np.ndarray, start: int, end: int, table: tuple[np.ndarray, ...]) -> int:
    """Return the kinds of phrases in data[start:end], as the sum of 1 for lorem ipsum, 2 for
    javascript, 4 for a policy, 8 for `{` and 16 for `[`. `table` comes from `phrase_table`."""
    anchors, befores, begins, numbers, codes, at, back, flags, lower = table
    bits = 0
    i, stop, b = np.uint64(start), np.uint64(end), np.uint8(0)  # unsigned: text/tables.py says why
    while True:
        i = _next_hit(data, i, stop, b, anchors, befores)
        if i >= stop:
            return bits
        b = data[i]
        if b == 91 or b == 123:
            bits |= _HAS_BRACKET if b == 91 else _HAS_CURLY
        for n in range(begins[b], begins[b + 1]):
            p = numbers[n]
            a = np.int64(i) - back[p]
            if a >= start and _phrase_at(data, a, end, codes, at[p], at[p + 1], lower):
                bits |= flags[p]
        i += _ONE


@njit(nogil=True)
def _count_words(data, start, end):
    words = 0
    inside = False
    i = start
    while i < end:
        n = space_bytes(data, i, end)
        if n:
            inside = False
            i += n
        else:
            if not inside:
                words += 1
                inside = True
            i += 1
    return words


@njit(nogil=True)
def _ends_well(data, start, end):
    if end == start:
        return False
    b = data[end - 1]
    if b != 46 and b != 63 and b != 33 and b != 34:
        return False
    return not (end - start >= 3 and b == 46 and data[end - 2] == 46 and data[end - 3] == 46)


@njit(nogil=True)
def _judge_text(text, b, e, words, phrases, min_words, require_end_mark, mark):
    if require_end_mark and mark != ENDS and (mark == OPEN or not _ends_well(text, b, e)):
        return NO_END_MARK
    if words < min_words:
        return SHORT
    if phrases & _HAS_LOREM:
        return LOREM
    if phrases & _HAS_JAVASCRIPT:
        return JAVASCRIPT
    if phrases & _HAS_CURLY:
        return CURLY
    if phrases & _HAS_POLICY:
        return POLICY
    return KEPT


@njit(nogil=True)
def _without_citations(data, a, z, scratch):
    n = 0
    citations = 0
    i = a
    while i < z:
        c = citation_bytes(data, i, z)
        if c:
            citations += 1
            i += c
        else:
            scratch[n] = data[i]
            n += 1
            i += 1
    return n, citations


@njit(cache=True, nogil=True)
def judge_lines(
    data,
    row_lines,
    start,
    end,
    line_words,
    word_start,
    word_end,
    word_chars,
    max_word,
    min_words,
    require_end_mark,
    marks,
    more_words,
    phrases,
):
    """Judge every line of a batch, and count what the lines of each row contain.

    `marks` (uint8[lines]) is ENDS if the line ends with an end mark of its language profile, OPEN
    if it does not, 0 without a profile. `more_words` (int64[lines]) is the number of words in
    scripts without spaces; a line with such words is not checked for long words. `phrases` comes
    from `phrase_table`. Returns (verdict, cited, hits, sentences, citations):

    - `verdict` (uint8[lines]): BLANK, KEPT, or the rule that drops the line.
    - `cited` (bool[lines]): True for a kept line with citations to cut.
    - `hits` (int64[rows, 3]): lines dropped for lorem ipsum, for a curly bracket, and lines kept.
    - `sentences` (int64[rows]): the sentences in kept lines.
    - `citations`: the number of citations in all kept lines.
    """
    rows = len(row_lines) - 1
    verdict = np.zeros(len(start), np.uint8)
    cited = np.zeros(len(start), np.bool_)
    hits = np.zeros((rows, 3), np.int64)
    sentences = np.zeros(rows, np.int64)
    citations = 0
    longest = begin = np.int64(0)  # a literal 0 has another type, so numba would compile again
    for k in range(len(start)):
        longest = max(longest, end[k] - start[k])
    scratch = np.empty(longest, np.uint8)
    for r in range(rows):
        for k in range(row_lines[r], row_lines[r + 1]):
            a, z = start[k], end[k]
            if a == z:
                verdict[k] = BLANK
                continue
            first, stop = line_words[k], line_words[k + 1]
            too_long = False
            if z - a > max_word and more_words[k] == 0:
                for w in range(first, stop):
                    too_long = too_long or word_chars[w] > max_word
            if too_long:
                verdict[k] = LONG_WORD
                continue
            bits = find_phrases(data, a, z, phrases)
            removed = 0
            if bits & _HAS_BRACKET:
                n, removed = _without_citations(data, a, z, scratch)
            if removed:
                bits = find_phrases(scratch, begin, n, phrases)
                words = _count_words(scratch, begin, n) + more_words[k]
                judged = _judge_text(
                    scratch, begin, n, words, bits, min_words, require_end_mark, marks[k]
                )
            else:
                words = stop - first + more_words[k]
                judged = _judge_text(data, a, z, words, bits, min_words, require_end_mark, marks[k])
            verdict[k] = judged
            if judged == KEPT:
                hits[r, 2] += 1
                if removed:
                    cited[k] = True
                    citations += removed
                    sentences[r] += count_sentences(scratch, begin, n)
                else:
                    sentences[r] += sentences_of_words(
                        data, word_start, word_end, word_chars, first, stop
                    )
            elif judged == LOREM:
                hits[r, 0] += 1
            elif judged == CURLY:
                hits[r, 1] += 1
    return verdict, cited, hits, sentences, citations


@njit(nogil=True)
def _citations(data, a, z, rows, starts, ends, rules, swaps, spans, row, base):
    i = a
    while i < z:
        c = citation_bytes(data, i, z)
        if c:
            rows[spans], starts[spans], ends[spans] = row, i - base, i + c - base
            rules[spans], swaps[spans] = CITATION, 0
            spans += 1
            i += c
        else:
            i += 1
    return spans


@njit(nogil=True)
def _last_character(data, a, z):
    end = a
    i = a
    while i < z:
        n = citation_bytes(data, i, z)
        if n == 0:
            n = space_bytes(data, i, z)
        if n == 0:
            n = char_bytes(data[i])
            end = min(i + n, z)
        i += n
    return end


@njit(cache=True, nogil=True)
def spans_of_lines(data, offsets, row_lines, raw, start, end, verdict, cited, clean, citations):
    """Return the spans to cut from kept rows (`clean`: bool[rows]), in text order: (rows, starts,
    ends: int64[spans], rules, swaps: uint8[spans]). Starts and ends count bytes from the row's
    start. `rules` has each span's rule. `swaps` is 1 where a newline replaces the span."""
    n_rows = len(offsets) - 1
    limit = 2 * len(start) + citations + n_rows + 1
    rows = np.empty(limit, np.int64)
    starts = np.empty(limit, np.int64)
    ends = np.empty(limit, np.int64)
    rules = np.empty(limit, np.uint8)
    swaps = np.empty(limit, np.uint8)
    spans = 0
    for r in range(n_rows):
        if not clean[r]:
            continue
        base = offsets[r]
        last = -1  # the last kept line with text besides citations
        for k in range(row_lines[r], row_lines[r + 1]):
            if verdict[k] == KEPT and (
                not cited[k] or _last_character(data, start[k], end[k]) > start[k]
            ):
                last = k
        open_piece = False
        for k in range(row_lines[r], row_lines[r + 1]):
            close = raw[k + 1] if k + 1 < row_lines[r + 1] else offsets[r + 1]
            if verdict[k] != KEPT:
                same = (
                    spans > 0
                    and rows[spans - 1] == r
                    and rules[spans - 1] == verdict[k]
                    and ends[spans - 1] == raw[k] - base
                    and swaps[spans - 1] == 0
                )
                if same:
                    ends[spans - 1] = close - base
                elif close > raw[k]:
                    rows[spans], starts[spans], ends[spans] = r, raw[k] - base, close - base
                    rules[spans], swaps[spans] = verdict[k], 0
                    spans += 1
                continue
            # The page is stripped at both ends after its citations are removed.
            a, z = start[k], end[k]
            if not open_piece and cited[k]:
                while a < z:
                    c = citation_bytes(data, a, z)
                    n = space_bytes(data, a, z)
                    if c == 0 and n == 0:
                        break
                    a += c if c else n
            if k > last or a == z:
                rows[spans], starts[spans], ends[spans] = r, raw[k] - base, close - base
                rules[spans], swaps[spans] = CITATION, 0
                spans += 1
                continue
            if k == last and cited[k]:
                z = _last_character(data, a, z)
            if a > raw[k]:
                rows[spans], starts[spans], ends[spans] = r, raw[k] - base, a - base
                rules[spans], swaps[spans] = BLANK if a == start[k] else CITATION, 0
                spans += 1
            if cited[k]:
                spans = _citations(data, a, z, rows, starts, ends, rules, swaps, spans, r, base)
            open_piece = True
            if k != last:
                if close - z != 1 or data[z] != 10:
                    rows[spans], starts[spans], ends[spans] = r, z - base, close - base
                    rules[spans], swaps[spans] = BLANK, 1
                    spans += 1
            elif close > z:
                rows[spans], starts[spans], ends[spans] = r, z - base, close - base
                rules[spans], swaps[spans] = BLANK if z == end[k] else CITATION, 0
                spans += 1
    return (
        rows[:spans].copy(),
        starts[:spans].copy(),
        ends[:spans].copy(),
        rules[:spans].copy(),
        swaps[:spans].copy(),
    )


ENGLISH_MARKS = '.?!"'
# Estimated words per sentence. English sentences of NTREX-128 have 21.8 on average.
SENTENCE_WORDS = 20


@dataclass(frozen=True)
class LineFacts:
    """Corrections of C4's English line rules for lines in other languages."""

    # uint8[lines]: ENDS if the rule for end marks keeps the line, OPEN if it drops it, 0 for a line
    # without a language profile, for which the English rule decides.
    marks: np.ndarray
    more_words: np.ndarray  # int64[lines]: estimated words to add, which no spaces separate
    more_sentences: np.ndarray  # int64[lines]: estimated sentences in languages without end marks

    def sentences(self, rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
        return row_sums(rows, self.more_sentences * kept)


def line_facts(
    docs: Documents, parts: list[tuple[Profile | None, object, np.ndarray]]
) -> LineFacts:
    """Return the `LineFacts` of a batch. Each of `parts` is (language profile, step, bool[rows]:
    True for the rows to which this profile applies)."""
    tables = segments(docs)
    n = len(tables.lines.start)
    facts = LineFacts(np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
    for profile, _, mask in parts:
        if profile is not None:
            row = np.repeat(np.arange(len(docs)), np.diff(tables.lines.rows))
            _add(facts, docs, tables, profile, np.flatnonzero(mask[row]))
    return facts


def _add(
    facts: LineFacts, docs: Documents, tables: Segments, profile: Profile, at: np.ndarray
) -> None:
    data, _ = docs.buffers()
    start, end = tables.lines.start[at], tables.lines.end[at]
    if profile.end_marks:
        marks = np.array([*map(ord, profile.end_marks + ENGLISH_MARKS)], np.int32)
        ends = np.isin(last_code_points(data, start, end), marks)
        facts.marks[at] = np.where(ends, ENDS, OPEN)
    else:
        facts.marks[at] = ENDS
    spaced = np.diff(tables.words.lines)[at]
    more = np.zeros(len(at), np.int64)
    if profile.clusters:
        facts.more_words[at] = more = more_words(docs, profile, start, end)
    if not profile.end_marks:
        facts.more_sentences[at] = (spaced + more) // SENTENCE_WORDS
