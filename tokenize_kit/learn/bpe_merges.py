"""Learning of merges from word counts: the most frequent pair is merged again and again.

The merges are those of `tokenizers`' BpeTrainer with 64-bit counts. Of equally frequent pairs, the
smaller pair of ids comes first, as in `tokenizers`. A pair waits in a heap with the positions where
it was found; its count in the heap may be out of date and is checked when the pair reaches the top.

Speed comes from one fact: a pair's count is highest when the later of its two tokens is made, and
only falls afterwards. So a pair is forgotten if its highest count is below a threshold. When no
pair is left, the threshold is lowered and the text is scanned for the forgotten pairs
(bpe_pairs.py). Thus the table of pairs stays small, and the neighbours of a new token are counted
in an array indexed by the neighbour's id. There is one exception: two merges may make the same
token, and the second merge then raises counts of that token's pairs. So all pairs with such a token
are kept."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import mix_bits
from tokenize_kit.learn.bpe_pairs import (
    COUNTERS,
    EVENTS,
    FREE,
    LIVE,
    PAIRS,
    TOUCHED,
    add_pair,
    add_pair_entry,
    empty_entries,
    empty_pairs,
    enlarged,
    find_slot,
    pop_entry,
    room_for_entries,
    room_for_pairs,
    scan,
)
from tokenize_kit.learn.words import weight_at

LEAST = 2  # the fewest occurrences of a merged pair
LONGEST = 1 << 40  # the most bytes of a token: no limit

# The first threshold is all occurrences of pairs / (SHARE * tokens wanted). Each scan of the text
# divides it by STEP. The merges depend on neither number.
SHARE, STEP = 8, 4
_GONE = np.int32(-2)
# Typed, because numba compiles a function again for every literal number passed to it.
_ALL, _ONCE = np.int64(-1), np.int64(1)

# The neighbours of the tokens made by one merge. The code of a left neighbour is its id; that of a
# right one is its id + half the number of codes. The new token is always a left one. sums:
# int64[codes, 2]: weights and number of positions; less: weights to subtract, later a code's pair
# or heap entry; touched: codes in use; event, position: code and first cell of every pair.
Neighbours = namedtuple("Neighbours", "sums less touched event position")


def learn(
    text, bases, most, least, longest, banned, banned_ends, share=SHARE, step=STEP, initial=None
):
    """Learn merges. Return int64[n, 3]: left id, right id and merged id.

    text: the result of words.lay_out for symbols 0 to bases - 1, whose arrays are changed in place;
    most: the largest number of tokens, bases included; least: the smallest count of a merged pair;
    longest: the largest number of symbols of a token, 2 or more; banned: int32[], banned_ends:
    int64[n + 1]: spellings that no merge may make; share, step: see SHARE; initial: the tokens that
    the text consists of, by default the symbols. A merge that spells a token made by an earlier
    merge gives that token; it counts as a merge but not as a new token."""
    least = max(1, least)
    threshold = max(least, int(text.pairs / (share * max(1, most))))
    width = max(bases, most) + 1
    text = text._replace(lengths=np.ones(width, np.int32))
    initial = initial or InitialTokens(
        np.arange(bases, dtype=np.int32), np.arange(bases + 1), np.zeros(0, np.bool_), 0
    )
    letters = np.concatenate([initial.letters, np.zeros(16 * width, np.int32)])
    ends = np.concatenate([initial.ends, np.zeros(width - bases, np.int64)])
    return _learn(
        text, bases, most, least, threshold, step, longest, banned, banned_ends, letters, ends,
        initial.gaps, initial.words,
    )  # fmt: skip


# Tokens that the text consists of at the beginning. letters: int32[], their symbols joined; ends:
# int64[tokens + 1]; gaps: bool[symbols]: symbols between words; words: the most words in a token.
# In the text, each of these tokens is one cell. With gaps, no merge may spell an existing token.
InitialTokens = namedtuple("InitialTokens", "letters ends gaps words")


@njit(nogil=True)
def _is_banned(letters, start, end, banned, banned_ends):
    for t in range(len(banned_ends) - 1):
        first = banned_ends[t]
        if banned_ends[t + 1] - first == end - start:
            equal = True
            for k in range(end - start):
                if letters[start + k] != banned[first + k]:
                    equal = False
                    break
            if equal:
                return True
    return False


@njit(nogil=True)
def _words_in(letters, start, end, gaps):
    count, before = 0, True
    for k in range(start, end):
        gap = gaps[letters[k]]
        count += before and not gap
        before = gap
    return count


@njit(nogil=True)
def _token_slot(letters, ends, names, token):
    start, size = ends[token], ends[token + 1] - ends[token]
    value = np.uint64(size)
    for k in range(size):
        value = mix_bits(value ^ np.uint64(letters[start + k]))
    mask = np.uint64(len(names) - 1)
    slot = value & mask
    while names[slot] >= 0:
        first = ends[names[slot]]
        equal = ends[names[slot] + 1] - first == size
        for k in range(size if equal else 0):
            if letters[first + k] != letters[start + k]:
                equal = False
                break
        if equal:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(nogil=True, allocates=True)
def _spell_token(letters, ends, a, b, new):
    at = ends[new]
    letters = enlarged(letters, at + ends[a + 1] - ends[a] + ends[b + 1] - ends[b])
    for t in (a, b):
        for k in range(ends[t], ends[t + 1]):
            letters[at] = letters[k]
            at += 1
    ends[new + 1] = at
    return letters


@njit(nogil=True, allocates=True)
def _all_in_words(cells, lengths, positions, a, b):
    matches, done = [np.int32(0) for _ in range(0)], 0
    for position in positions:
        at = np.int64(position)
        if at < done:
            continue
        while cells[at - 1] != -1:
            at -= 1
        while cells[at] >= 0:
            if cells[at] == a and cells[at + lengths[a]] == b:
                matches.append(np.int32(at))
            at += lengths[cells[at]]
        done = int(at)
    return np.array(matches, np.int32)


@njit(nogil=True)
def _subtract(sums, less, touched, touches, code, weight):
    if sums[code, 1] == 0:
        touched[touches] = code
        touches += 1
    less[code] = weight
    return touches


@njit(nogil=True)
def _merge_pair(
    cells,
    lengths,
    blocks,
    bounds,
    values,
    sums,
    less,
    touched,
    event,
    position,
    where,
    n,
    a,
    b,
    new,
):
    first, second, width = lengths[a], lengths[b], len(less) // 2
    touches, left_again, right_again, events = np.int64(0), np.int64(0), np.int64(0), 0
    for k in range(len(where)):
        at = np.int64(where[k])
        if cells[at] != a or cells[at + first] != b:
            continue
        weight = weight_at(blocks, bounds, values, at)
        after = at + first + second
        left, right = np.int64(cells[at - 1]), np.int64(cells[after])
        cells[at + first] = _GONE
        cells[at] = cells[after - 1] = new
        if left >= 0:
            if sums[left, 1] == 0:
                touched[touches] = left
                touches += 1
            sums[left, 0] += weight
            sums[left, 1] += 1
            event[events], position[events] = left, at - lengths[left]
            events += 1
            if left == new:
                left_again += weight
        if right >= 0:
            code = new if right == new else width + right
            if sums[code, 1] == 0:
                touched[touches] = code
                touches += 1
            sums[code, 0] += weight
            sums[code, 1] += 1
            event[events], position[events] = code, at
            events += 1
            if right == new:
                right_again += weight
    # Adjacent new tokens: the left one was counted next to this a, the right one next to this b.
    if left_again:
        touches = _subtract(sums, less, touched, touches, width + a, left_again)
    if right_again:
        touches = _subtract(sums, less, touched, touches, b, right_again)
    n[TOUCHED], n[EVENTS] = touches, events


@njit(nogil=True)
def _count_neighbours(
    touched, sums, less, lengths, repeated, table, keys, count, waiting, n, pair, new, threshold,
    longest,
):  # fmt: skip
    a, b, width = pair >> 32, pair & 0xFFFFFFFF, len(less) // 2
    new_entries, positions = 0, 0
    for k in range(n[TOUCHED]):
        code = np.int64(touched[k])
        other = code if code < width else code - width
        if other != new:  # subtract its old pair
            slot = find_slot(table, other << 32 | a if code < width else b << 32 | other)
            if table[slot, 0] != FREE:
                count[table[slot, 1]] -= sums[code, 0]
        fits = lengths[other] + lengths[new] <= longest
        gain = (sums[code, 0] if fits else 0) - less[code]
        key = other << 32 | new if code < width else new << 32 | other
        p = np.int64(-1)
        if repeated[new]:  # otherwise no such pair is kept
            slot = find_slot(table, key)
            if table[slot, 0] != FREE:
                p = table[slot, 1]
                count[p] += gain
        if p < 0 and (gain >= threshold or repeated[new] or repeated[other]):
            p = add_pair(table, keys, count, waiting, n, key, gain)
        less[code] = -1
        if p >= 0 and fits and sums[code, 1] and count[p] > 0:
            less[code] = p
            new_entries += 1
            positions += sums[code, 1]
    return new_entries, positions


@njit(nogil=True)
def _fill_positions(event, position, less, starts, sizes, where, n):
    for k in range(n[EVENTS]):
        e = less[event[k]]
        if e >= 0:
            where[starts[e] + sizes[e]] = position[k]
            sizes[e] += 1


@njit(nogil=True, allocates=True)
def _merge_entry(text, pairs, entries, neighbours, n, entry, new, repeated, threshold, longest):
    cells, lengths, blocks, bounds, values, _ = text
    sums, less, touched, event, position = neighbours
    pair, start, size = entries.key[entry], entries.start[entry], entries.size[entry]
    a, b = pair >> 32, pair & 0xFFFFFFFF
    where = entries.where[start : start + size]
    if pairs.waiting[entries.pair[entry]] > 1:
        # The pair has another entry in the heap; its positions in these words are merged now, too.
        where = _all_in_words(cells, lengths, where, a, b)
    event, position = enlarged(event, 2 * len(where)), enlarged(position, 2 * len(where))
    _merge_pair(
        cells, lengths, blocks, bounds, values, sums, less, touched, event, position, where, n,
        a, b, new,
    )  # fmt: skip
    _drop_entry(entries, pairs, n, entry)
    pairs = room_for_pairs(pairs, n[PAIRS] + n[TOUCHED])
    new_entries, positions = _count_neighbours(
        touched, sums, less, lengths, repeated, pairs.table, pairs.key, pairs.count, pairs.waiting,
        n, pair, new, threshold, longest,
    )  # fmt: skip
    if new_entries:
        entries = room_for_entries(entries, n, new_entries, positions)
        for k in range(n[TOUCHED]):
            code = touched[k]
            if less[code] >= 0:
                less[code] = add_pair_entry(entries, pairs, n, less[code], sums[code, 1])
        _fill_positions(event, position, less, entries.start, entries.size, entries.where, n)
    for k in range(n[TOUCHED]):
        code = touched[k]
        sums[code, 0] = sums[code, 1] = less[code] = 0
    return pairs, entries, Neighbours(sums, less, touched, event, position)


@njit(nogil=True)
def _drop_entry(entries, pairs, n, entry):
    pairs.waiting[entries.pair[entry]] -= 1
    n[LIVE] -= entries.size[entry]
    entries.size[entry] = 0


@njit(nogil=True)
def _is_refused(letters, start, end, longest, banned, banned_ends, gaps, words):
    if end - start > longest or _is_banned(letters, start, end, banned, banned_ends):
        return True
    return len(gaps) > 0 and _words_in(letters, start, end, gaps) > words


@njit(cache=True, nogil=True)
def _learn(
    text, bases, most, least, threshold, step, longest, banned, banned_ends, letters, ends, gaps,
    words,
):  # fmt: skip
    width = len(text.lengths)
    pairs, entries, n = empty_pairs(), empty_entries(), np.zeros(COUNTERS, np.int64)
    neighbours = Neighbours(
        np.zeros((2 * width, 2), np.int64), np.zeros(2 * width, np.int64),
        np.zeros(2 * width, np.int32), np.zeros(1 << 10, np.int32), np.zeros(1 << 10, np.int32),
    )  # fmt: skip
    names = np.full(1 << (np.int64(np.log2(width)) + 2), -1, np.int64)
    for t in range(bases):
        if ends[t + 1] - ends[t] > 1:
            names[_token_slot(letters, ends, names, t)] = t
    repeated = np.zeros(width, np.bool_)  # tokens made by several merges
    merges = np.empty((3 * (most + 16)), np.int64)
    merged, tokens = 0, bases
    pairs, entries = scan(text, pairs, entries, n, threshold, _ALL, longest)
    while tokens < most:
        entry = pop_entry(
            entries.pair, entries.key, entries.count, entries.heap, pairs.count, n, threshold
        )
        if entry < 0:
            if threshold == least:
                break
            threshold = max(least, threshold // step)
            pairs, entries = scan(text, pairs, entries, n, threshold, _ALL, longest)
            continue
        a, b = entries.key[entry] >> 32, entries.key[entry] & 0xFFFFFFFF
        letters = _spell_token(letters, ends, a, b, tokens)
        refused = _is_refused(
            letters, ends[tokens], ends[tokens + 1], longest, banned, banned_ends, gaps, words
        )
        slot = _token_slot(letters, ends, names, tokens)
        new = names[slot]
        if refused or (len(gaps) > 0 and new >= 0):
            _drop_entry(entries, pairs, n, entry)
            continue
        if new < 0:
            new = tokens
            names[slot] = new
            text.lengths[new] = text.lengths[a] + text.lengths[b]
            tokens += 1
        elif not repeated[new]:
            pairs, entries = scan(text, pairs, entries, n, _ONCE, new, longest)
            repeated[new] = True
        merges = enlarged(merges, 3 * merged + 3)
        merges[3 * merged], merges[3 * merged + 1], merges[3 * merged + 2] = a, b, new
        merged += 1
        pairs, entries, neighbours = _merge_entry(
            text, pairs, entries, neighbours, n, entry, new, repeated, threshold, longest
        )
    return merges[: 3 * merged].reshape(-1, 3)
