"""Block lists in memory: sorted 64-bit hashes, 8 bytes per entry, to look up normalized URLs. With
a million entries, about one look-up in 10^13 matches another text's hash by chance. The reason that
is recorded for a dropped document names the matching part of its URL."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import numpy as np

from curate.filters.url_kernel import Automaton, Folded, automaton, fold_all, normal_word
from curate.text.decoding import decode
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import copy, hash_bytes, matches_at, sorted_index

_COMMENT = re.compile(r"(^|\s)#.*")
MOST_HOST = 1024  # bytes; a name has 253 characters (RFC 1035)
BLOCK = 16 << 20  # bytes of a list that are processed at once
_TRACKING = tuple(np.frombuffer(b, np.uint8) for b in (b"utm_", b"ref", b"feed"))
_UTM, _REF, _FEED = _TRACKING
# Prefixes of lines in hosts files and Adblock lists.
_NOWHERE = (b"0.0.0.0", b"127.0.0.1", b"local", b"||", b"##")
_ZERO, _LOOP, _LOCAL, _BARS, _ELEMENT = (np.frombuffer(b, np.uint8) for b in _NOWHERE)


@dataclass(frozen=True)
class Words:
    """Words of lists. `banned` (bool[patterns]) is True for a word on a list of banned words,
    `soft` (bool[patterns]) for one on a list of soft words. `automaton` finds them all."""

    patterns: tuple[str, ...]
    banned: np.ndarray
    soft: np.ndarray
    automaton: Automaton


@njit(cache=True, nogil=True)
def _list_lines(data, hosts, signs):
    """Return the entries of a list as (starts, ends, number, odd): byte positions (int64[]), the
    line number from 0 (int64[]), and True if `rule_hosts` must parse the entry (bool[]), for
    example for a byte marked in `signs` (bool[256]). If `hosts` is True, entries are hosts; `*.`, a
    hosts file's address, and Adblock's `||` and `^` are then cut off."""
    lines = 1
    for i in range(len(data)):
        lines += data[i] == 10
    out = np.empty((3, lines), np.int64)
    odd = np.zeros(lines, np.bool_)
    n = 0
    a = 0
    for number in range(lines):
        z = a
        while z < len(data) and data[z] != 10:
            z += 1
        begin, end = a, z
        a = z + 1
        while begin < end and data[begin] <= 32:
            begin += 1
        # `##.ad` is an Adblock rule that hides an element; `# ad` and `## ad` are comments.
        element = hosts and matches_at(data, begin, end - 1, _ELEMENT) and data[begin + 2] > 32
        for k in range(begin, end):
            if data[k] == 35 and (k == begin or data[k - 1] <= 32) and not element:
                end = k
                break
        while end > begin and data[end - 1] <= 32:
            end -= 1
        if hosts:
            first, last = begin, end
            for size in (7, 9):
                nowhere = matches_at(data, begin, end, _ZERO if size == 7 else _LOOP)
                if nowhere and begin + size < end and data[begin + size] <= 32:
                    begin += size
                    while begin < end and data[begin] <= 32:
                        begin += 1
            if matches_at(data, begin, end, _BARS) and data[end - 1] == 94:
                begin, end = begin + 2, end - 1
            if begin + 1 < end and data[begin] == 42 and data[begin + 1] == 46:
                begin += 2
            for k in range(begin, end):
                odd[n] |= signs[data[k]]
            if odd[n] or (begin > first and matches_at(data, begin, end, _LOCAL)):
                begin, end, odd[n] = first, last, True
        if begin < end:
            out[0, n], out[1, n], out[2, n] = begin, end, number
            n += 1
    return out[0, :n], out[1, :n], out[2, :n], odd[:n]


# Bytes that host names never contain: a line with one is a rule, a comment or invalid.
_SIGNS = np.zeros(256, np.bool_)
_SIGNS[list(b'\t |^*!$@=#,;<>"(){}')] = True
_ODD = _SIGNS.copy()
_ODD[ord("[")] = True  # of `[Adblock Plus 2.0]`, and of an address
_COMMENTS = ("!", ";", "[adblock", "[ublock", "[adguard")
_IS_ADBLOCK = re.compile(rb"^\s*(\[(adblock|ublock|adguard)|\|\|)", re.I | re.M)
_ADBLOCK = re.compile(r"\|\|(?:\*\.)?([^\s/^*|$]+)(?:\^?\|?(?:\$(.+))?)?")
# Adblock options that do not limit a rule to parts of pages: the ones that AdGuard's
# HostlistCompiler removes from lists for name servers (RemoveModifiers), and `important`.
_OPTIONS = frozenset("third-party 3p document doc all popup network important".split())
_UNUSED = re.compile(r"@@|\||.*#[@?$%]*##?[\w.[*:+^]")  # exceptions, addresses, elements of pages
_DNSMASQ = re.compile(r"(?:address|server|local)=/(.+)/[^/]*")
# Names of the machine itself in hosts files.
_OWN = re.compile(r"local(host)?(\.\w+)?|broadcasthost|ip6-\w+|0\.0\.0\.0", re.I)


def rule_hosts(line: str) -> list[str] | None:
    """Return the hosts in a line of an Adblock, hosts or dnsmasq list: [] for a comment, None for a
    rule that does not concern whole domains. A line that is no rule is returned as a host."""
    if line.lower().startswith(_COMMENTS):
        return []
    if match := _ADBLOCK.fullmatch(line):
        return [match[1]] if _OPTIONS.issuperset((match[2] or "all").split(",")) else None
    if match := _DNSMASQ.fullmatch(line):
        return [name for name in match[1].split("/") if name != "#"]
    address, *names = line.split()
    try:
        ip_address(address.partition("%")[0])
    except ValueError:
        return None if _UNUSED.match(line) else [line] * (line[0] != "#")
    return [name for name in names if not _OWN.fullmatch(name)] if names else [line]


def _host_entries(
    block: np.ndarray, starts: np.ndarray, ends: np.ndarray, lines: np.ndarray, odd: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    rules = [block[a:z].tobytes() for a, z in zip(starts[odd], ends[odd], strict=True)]
    found = [rule_hosts(rule.decode("utf-8", "surrogateescape")) for rule in rules]
    names = [[name.encode("utf-8", "surrogateescape") for name in of or ()] for of in found]
    data, offsets = _gather(block, starts[~odd], ends[~odd])
    more = [name for of in names for name in of]
    data = np.concatenate([data, np.frombuffer(bytearray().join(more), np.uint8)])
    sizes = np.cumsum([len(name) for name in more], dtype=np.int64)
    offsets = np.concatenate([offsets, offsets[-1] + sizes])
    of_names = np.repeat(lines[odd], [len(of) for of in names])
    return data, offsets, np.concatenate([lines[~odd], of_names]), found.count(None)


@njit(cache=True, nogil=True)
def _gather(data, starts, ends):
    offsets = np.zeros(len(starts) + 1, np.int64)
    for k in range(len(starts)):
        offsets[k + 1] = offsets[k] + ends[k] - starts[k]
    out = np.empty(offsets[-1], np.uint8)
    for k in range(len(starts)):
        copy(data, starts[k], ends[k], out, offsets[k])
    return out, offsets


@njit(cache=True, nogil=True)
def url_keys(data, start, host_end, path_end):
    """Return (first, last: int64[rows]): where the part to compare begins and ends in each folded
    (normalized) URL. Left out are `www.` at the start, a query that begins with `utm_`, `ref` or
    `feed` (as in C4), and slashes at the end."""
    first, last = start.copy(), path_end.copy()
    for r in range(len(start)):
        a, host, z = start[r], host_end[r], path_end[r]
        www = host - a > 4 and data[a] == 119 and data[a + 1] == 119 and data[a + 2] == 119
        if www and data[a + 3] == 46:
            first[r] = a + 4
        for k in range(host, z):
            if data[k] == 63 and (
                matches_at(data, k + 1, z, _UTM)
                or matches_at(data, k + 1, z, _REF)
                or matches_at(data, k + 1, z, _FEED)
            ):
                z = k
                break
        while z > host and data[z - 1] == 47:
            z -= 1
        last[r] = z
    return first, last


@njit(cache=True, nogil=True)
def hashes(data, first, last):
    out = np.empty(len(first), np.uint64)
    for r in range(len(first)):
        out[r] = hash_bytes(data, first[r], last[r])
    return out


@njit(cache=True, nogil=True)
def exact_hits(data, first, last, keys):
    """Return bool[rows]: True if the hash of data[first[r]:last[r]] is among the sorted `keys`."""
    out = np.zeros(len(first), np.bool_)
    for r in range(len(first)):
        if last[r] > first[r]:
            out[r] = sorted_index(keys, hash_bytes(data, first[r], last[r])) >= 0
    return out


@njit(cache=True, nogil=True)
def domain_hits(data, first, last, keys):
    """Return int64[rows]: for each host, the start in data of its longest suffix that is in the
    list, or -1. A suffix begins at a label. `keys` (uint64[]) are the list's sorted hashes."""
    out = np.full(len(first), -1, np.int64)
    for r in range(len(first)):
        a, z = first[r], last[r]
        if z - a > MOST_HOST:  # bounds the number of suffixes to hash
            a = z - MOST_HOST
            while a < z and data[a - 1] != 46:
                a += 1
        while a < z:
            if sorted_index(keys, hash_bytes(data, a, z)) >= 0:
                out[r] = a
                break
            while a < z and data[a] != 46:
                a += 1
            a += 1
    return out


def _blocks(data: bytes) -> list[tuple[int, int]]:
    blocks, at = [], 0
    while at < len(data):
        end = data.find(b"\n", at + BLOCK)
        end = len(data) if end < 0 else end + 1
        blocks.append((at, end))
        at = end
    return blocks


@njit(cache=True, nogil=True)
def _no_host(data, start, host_end, end, signs, dotted):
    out = np.zeros(len(start), np.bool_)
    for r in range(len(start)):
        host, behind = host_end[r], end[r] - host_end[r]
        dots = 0
        out[r] = host == start[r] or behind > 1 or (behind == 1 and data[host] != 47)
        for k in range(start[r], host):
            out[r] = out[r] or data[k] <= 32 or signs[data[k]]
            dots += data[k] == 46
        out[r] = out[r] or (dotted and dots == 0)
    return out


def _check_hosts(
    folded: Folded, wrong: np.ndarray, lines: np.ndarray, location: str, label: str
) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[np.argmin(lines[wrong])])
        entry = folded.text(folded.start[row], folded.end[row])
        raise UsageError(
            f"{label}: {location}:{lines[row] + 1}: {entry[:80]!r} is not a host;"
            " page addresses belong in `urls`"
        )


def keys_of(
    data: bytes, location: str, label: str, hosts: bool, notices: list[str] | None = None
) -> list[np.ndarray]:
    """Return the hashes of a list's entries in parts. The arguments are those of list_keys()."""
    parts = []
    before = entries = unused = 0
    adblock = hosts and _IS_ADBLOCK.search(data[:BLOCK]) is not None
    for a, z in _blocks(data):
        block = np.frombuffer(data, np.uint8)[a:z]
        starts, ends, lines, odd = _list_lines(block, hosts, _ODD)
        if hosts:
            joined, offsets, lines, others = _host_entries(block, starts, ends, lines, odd)
            folded = fold_all(joined, offsets)
            extents = folded.start, folded.host_end, folded.end
            wrong = _no_host(folded.data, *extents, _SIGNS, adblock)
            if not adblock:  # in an Adblock list such a line matches parts of addresses
                _check_hosts(folded, wrong, lines + before, location, label)
            unused += others + int(np.count_nonzero(wrong))
            parts.append(hashes(folded.data, folded.start[~wrong], folded.host_end[~wrong]))
        else:
            folded = fold_all(*_gather(block, starts, ends))
            parts.append(hashes(folded.data, *url_keys(*_address_parts(folded))))
        entries += len(parts[-1])
        before += int(np.count_nonzero(block == 10))
    if notices is not None and unused:
        not_used = f"{counted(unused, 'rule')} ignored (not about whole domains)"
        notices.append(f"{label}: {location}: {counted(entries, 'domain')} used, {not_used}")
    elif notices is not None and not entries:
        notices.append(f"{label}: {location} has no entries, so it has no effect")
    return parts


def _address_parts(folded: Folded) -> tuple[np.ndarray, ...]:
    return folded.data, folded.start, folded.host_end, folded.path_end


def key_places(folded: Folded) -> tuple[np.ndarray, np.ndarray]:
    """Return where the compared part of every URL begins and ends (see the function url_keys)."""
    first, last = url_keys(*_address_parts(folded))
    return first, last


def list_keys(
    locations: Sequence[str],
    sha256: dict[str, str],
    label: str,
    hosts: bool,
    notices: list[str] | None = None,
) -> np.ndarray:
    """Return uint64[entries]: the sorted hashes of the domains or hosts on lists or, if not
    `hosts`, of the URLs. Raises UsageError for an invalid host. `notices` gets a line per list that
    is empty or has unused rules."""
    parts = [np.empty(0, np.uint64)]
    for location in locations:
        data = _content(location, sha256, label, "domains" if hosts else "urls")
        parts += keys_of(data, location, label, hosts, notices)
    return np.sort(np.concatenate(parts))


def _content(location: str, sha256: dict[str, str], label: str, member: str = "") -> bytes:
    from curate.fetch.file_lists import read_list

    if member and location.endswith(".tar.gz") and "://" not in location:
        with tarfile.open(location) as archive:
            file = archive.extractfile(member)
            return file.read() if file else b""
    return read_list(location, sha256.get(location), label, f"its sha256 in {label}.sha256")


def words(
    banned: Sequence[str],
    soft: Sequence[str],
    sha256: dict[str, str],
    label: str,
    between: str = " ",
) -> Words:
    """Read word lists and build their automaton. `between` joins the words of an entry."""
    sets: list[set[str]] = []
    for locations in (banned, soft):
        entries_of_lists: set[str] = set()
        for location in locations:
            data = _content(location, sha256, label)
            kept = {normal_word(e, between) for e in _entries(data)} - {""}
            if not kept:
                raise UsageError(f"{label}: {location} contains no words")
            entries_of_lists |= kept
        sets.append(entries_of_lists)
    patterns = tuple(sorted(sets[0] | sets[1]))
    marks = [np.array([p in s for p in patterns], np.bool_) for s in sets]
    return Words(patterns, marks[0], marks[1], automaton(patterns))


def _entries(data: bytes) -> list[str]:
    text = decode(data, html=False).text
    lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
    return [line for line in lines if line]
