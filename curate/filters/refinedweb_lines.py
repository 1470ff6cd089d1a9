"""Mark the bytes that RefinedWeb's line rules cut from a batch: whole lines or parts of lines.
`judge_dclm` applies the rules as DCLM's code does, `judge_paper` as we interpret the paper. If the
argument `wild` is True, a period in a pattern matches any character."""

from __future__ import annotations

import numpy as np

from curate.documents.cutting import mark_ends
from curate.filters.refinedweb_kernel import (
    ANYWHERE,
    COUNTER,
    END,
    NUMERIC,
    ONE_WORD,
    SPACE,
    START,
    UPPERCASE,
    count_words,
    drop_line,
    is_counter,
    is_written,
    line_classes,
    small_letter,
    words_left,
    words_of,
    written_ends,
)
from curate.text.lines import longest, strip_space
from curate.text.unicode import char_bytes, space_bytes
from llmcurate.base.kernels import njit


@njit(nogil=True)
def _match(data, i, end, text, first, stop, wild):
    for k in range(first, stop):
        if i >= end:
            return -1
        want = text[k]
        if wild and want == 46:
            i += char_bytes(data[i])
            continue
        letter, n = small_letter(data, i, end, True)
        if letter != want:
            return -1
        i += n
    return i


@njit(nogil=True)
def _space_before(data, i, a):
    k = i - 1
    while k > a and (data[k] & 0xC0) == 0x80:
        k -= 1
    return k if k >= a and space_bytes(data, k, i) == i - k else i


@njit(nogil=True)
def cut_anywhere(data, a, z, patterns, wild, mark, base):
    """Mark all matches of patterns in data[a:z], with a white space before each; return their
    number. mark[i - base] marks data[i]."""
    text, at, begins = patterns
    cuts = 0
    after = a  # where the last cut ended
    i = a
    while i < z:
        if not begins[data[i]]:
            i += 1
            continue
        stop = -1
        for p in range(len(at) - 1):
            stop = _match(data, i, z, text, at[p], at[p + 1], wild)
            if stop > i:
                break
        if stop > i:
            for k in range(_space_before(data, i, after), stop):
                mark[k - base] = ANYWHERE
            cuts += 1
            i = after = stop
        else:
            i += 1
    return cuts


@njit(nogil=True)
def _pattern_at_end(line, first, size, text, at, begins, wild):
    for i in range(max(first, size - 4 * longest(at[:-1], at[1:])), size):
        if begins[line[i]]:
            for p in range(len(at) - 1):
                if _match(line, i, size, text, at[p], at[p + 1], wild) == size:
                    return _space_before(line, i, first), size
    return size, size


@njit(nogil=True)
def _pattern_at_start(line, first, size, text, at, wild):
    for p in range(len(at) - 1):
        stop = _match(line, first, size, text, at[p], at[p + 1], wild)
        if stop > first:
            if stop < size:
                stop += space_bytes(line, stop, size)
            return first, stop
    return first, first


@njit(nogil=True)
def _copy_unmarked(data, a, z, mark, base, line, where):
    n = 0
    for i in range(a, z):
        if mark[i - base] == 0:
            line[n] = data[i]
            where[n] = i
            n += 1
    return n


@njit(nogil=True)
def _pattern_at_edge(rule, line, first, size, patterns, wild, low, high):
    text, at, begins = patterns
    if low or high:
        start, end = strip_space(line, first, size)
        first = start if low else first
        size = end if high else size
    if rule == END:
        return _pattern_at_end(line, first, size, text, at, begins, wild)
    if first < size and begins[line[first]]:
        return _pattern_at_start(line, first, size, text, at, wild)
    return first, first


@njit(nogil=True)
def cut_at_edge(rule, data, a, z, mark, base, edited, line, where, patterns, wild, most, low, high):
    """Mark the match of a pattern at the end (`rule` END) or start (START) of the short line
    data[a:z]; return True if found. If `edited`, only bytes not marked yet are searched, and only
    if these have at most `most` words. `line` and `where` are scratch memory. White space is
    ignored at the line's start if `low`, at its end if `high`."""
    if not edited:
        start, end = _pattern_at_edge(rule, data, a, z, patterns, wild, low, high)
        for i in range(start, end):
            mark[i - base] = rule
        return start < end
    n = _copy_unmarked(data, a, z, mark, base, line, where)
    if n == 0 or count_words(line, np.int64(0), n) > most:
        return False
    start, end = _pattern_at_edge(rule, line, np.int64(0), n, patterns, wild, low, high)
    for i in range(start, end):
        mark[where[i] - base] = rule
    return start < end


@njit(cache=True, nogil=True)
def judge_dclm(
    data, offsets, rows, start, end, more, flags, limits, most, any_, ends, starts, counted, mark
):
    """Mark in `mark` (one entry per byte) the bytes that DCLM's modifiers cut.

    `more` (int64[lines]) counts the words in scripts without spaces, `flags` is
    `character_flags()`, and `limits` is (max_uppercase, max_numeric). A short line has at most
    `most` words. `any_`, `ends` and `starts` are the patterns to match anywhere, at the end and at
    the start of a line. `counted` are nouns that follow a number, such as `likes`. The function
    refinedweb._patterns makes `any_`, `ends`, `starts` and `counted`.

    Returns int64[rows, 5]: lines dropped, lines edited, words before, words removed, bytes left.
    """
    base = offsets[0]
    n_rows = len(offsets) - 1
    out = np.zeros((n_rows, 5), np.int64)
    verdict = np.zeros(len(start), np.uint8)
    edited = np.zeros(len(start), np.bool_)
    line = np.empty(longest(start, end), np.uint8)
    where = np.empty(len(line), np.int64)
    short = np.empty(len(start), np.int64)
    for r in range(n_rows):
        first, stop = rows[r], rows[r + 1]
        top, bottom = offsets[r], offsets[r + 1]
        maybe_numeric = False
        for k in range(first, stop):
            chars, upper, digits, _ = line_classes(data, start[k], end[k], flags)
            if chars and upper / chars > limits[0]:
                verdict[k] = UPPERCASE
            maybe_numeric |= digits > 0
        if maybe_numeric:
            low, high = written_ends(data, first, stop, start, end, verdict, mark, base)
            for k in range(first, stop):
                a, z = start[k], end[k]
                if verdict[k] or a == z:
                    continue
                # DCLM has stripped the page before this rule runs.
                if k == low or k == high:
                    inner_start, inner_end = strip_space(data, a, z)
                    a = inner_start if k == low else a
                    z = inner_end if k == high else z
                chars, _, digits, _ = line_classes(data, a, z, flags)
                if chars and digits / chars > limits[1]:
                    verdict[k] = NUMERIC
                elif digits and is_counter(data, a, z, flags, counted, np.bool_(False)):
                    verdict[k] = COUNTER
        for k in range(first, stop):
            short[k] = most + 1
            if verdict[k] == 0 and end[k] > start[k]:
                short[k] = count_words(data, start[k], end[k]) + more[k]
                if short[k] < 2:
                    verdict[k] = ONE_WORD if short[k] else SPACE
            if verdict[k]:
                drop_line(k, start, end, bottom, mark, base, verdict[k])
                short[k] = most + 1
        for k in range(first, stop):
            if short[k] <= most:
                a, z = start[k], end[k]
                if cut_anywhere(data, a, z, any_, np.bool_(True), mark, base):
                    edited[k] = True
                    if not is_written(data, a, z, mark, base):
                        verdict[k] = ANYWHERE
                        drop_line(k, start, end, bottom, mark, base, ANYWHERE)
        for rule in (END, START):
            low, high = written_ends(data, first, stop, start, end, verdict, mark, base)
            patterns = ends if rule == END else starts
            for k in range(first, stop):
                if verdict[k] or short[k] > most:
                    continue
                a, z = start[k], end[k]
                hit = cut_at_edge(
                    rule,
                    data,
                    a,
                    z,
                    mark,
                    base,
                    edited[k],
                    line,
                    where,
                    patterns,
                    np.bool_(True),
                    most,
                    k == low,
                    k == high,
                )
                if hit:
                    edited[k] = True
                    if not is_written(data, a, z, mark, base):
                        verdict[k] = rule
                        drop_line(k, start, end, bottom, mark, base, rule)
        for k in range(first, stop):
            out[r, 0] += verdict[k] > 0
            out[r, 1] += edited[k] and verdict[k] == 0
        out[r, 4] = mark_ends(data, top, bottom, mark, base, SPACE)
        out[r, 2] = words_of(data, top, bottom, flags)
        if out[r, 4] < bottom - top:
            out[r, 3] = out[r, 2] - words_left(data, top, bottom, mark, base, flags)
        for k in range(first, stop):
            out[r, 2] += more[k]
            out[r, 3] += more[k] * (verdict[k] > 0)
    return out


@njit(cache=True, nogil=True)
def judge_paper(
    data, offsets, rows, start, end, more, flags, limits, most, any_, ends, starts, counted, mark
):
    """Mark the bytes that RefinedWeb's rules cut, as we interpret its paper. Arguments and result
    are those of the function judge_dclm. Each line is judged once, by its characters without white
    space. If a line is to be cut, all its words count as removed."""
    base = offsets[0]
    n_rows = len(offsets) - 1
    out = np.zeros((n_rows, 5), np.int64)
    line = np.empty(longest(start, end), np.uint8)
    where = np.empty(len(line), np.int64)
    for r in range(n_rows):
        bottom = offsets[r + 1]
        for k in range(rows[r], rows[r + 1]):
            a, z = strip_space(data, start[k], end[k])
            if a == z:
                continue
            words = count_words(data, a, z) + more[k]
            out[r, 2] += words
            chars, upper, digits, spaces = line_classes(data, a, z, flags)
            written = chars - spaces
            rule = 0
            if upper / written > limits[0]:
                rule = UPPERCASE
            elif digits / written > limits[1]:
                rule = NUMERIC
            elif digits and is_counter(data, a, z, flags, counted, np.bool_(True)):
                rule = COUNTER
            elif words == 1:
                rule = ONE_WORD
            cuts = 0
            if rule == 0 and words <= most:
                # Begin at the unstripped start: white space before a leading pattern is cut too.
                cuts = cut_anywhere(data, start[k], z, any_, np.bool_(False), mark, base)
                last = ANYWHERE
                for edge in (END, START):
                    hit = cut_at_edge(
                        edge,
                        data,
                        a,
                        z,
                        mark,
                        base,
                        cuts > 0,
                        line,
                        where,
                        ends if edge == END else starts,
                        np.bool_(False),
                        most,
                        np.bool_(True),
                        np.bool_(True),
                    )
                    cuts += hit
                    last = edge if hit else last
                if cuts and not is_written(data, a, z, mark, base):
                    rule = last
            if rule:
                drop_line(k, start, end, bottom, mark, base, rule)
                out[r, 0] += 1
            elif cuts:
                out[r, 1] += 1
            if rule or cuts:
                out[r, 3] += words
        out[r, 4] = bottom - offsets[r]
        if out[r, 0] or out[r, 1]:
            out[r, 4] = mark_ends(data, offsets[r], bottom, mark, base, SPACE)
    return out
