"""Clusters for a terminal, and as JSON values: who stays, who went, and in what they differ."""

from __future__ import annotations

import os
import textwrap
from typing import Any, TextIO

from curate.inspect.report.clusters import Browsed, Cluster, Member
from curate.pages.diff import Diff
from curate.pages.html import plain

AROUND = 10  # equal words shown on each side of a difference
WORD = 100  # characters of a word: one may be a megabyte long
NAME = 100
EXCERPT = 300
INDENT = " " * 11
RED, GREEN, BOLD, OFF = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"
MARKS = "[-only in the copy that stays-] {+only in the copy that went+}"


def coloured(stream: TextIO) -> bool:
    """Whether the stream is a terminal that wants colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def text(found: Browsed, width: int, colours: bool) -> str:
    """The clusters, largest first, in lines of at most `width` columns."""
    lines = []
    for method, n in found.unknown.items():
        lines.append(
            f"{method}: {n:,} that went had been seen before; it does not know where, so they"
            " belong to no cluster"
        )
    if not found.clusters:
        return "\n".join([*lines, "no cluster fits"])
    shown = len(found.clusters)
    of = "1 cluster" if found.total == 1 else f"{found.total:,} clusters"
    which = "the largest" if shown == 1 else f"the {shown:,} largest"
    lines.append(f"{of}:" if found.total == shown else f"{of}; {which}:")
    if any(m.difference and not m.difference.equal for c in found.clusters for m in c.members):
        lines.append(f"marks: {_mark_colours(MARKS) if colours else MARKS}")
    for nth, cluster in enumerate(found.clusters, 1):
        lines += ["", *_cluster(nth, cluster, width, colours)]
    return "\n".join(lines)


def _mark_colours(marks: str) -> str:
    first, _, second = marks.partition("] ")
    return f"{RED}{first}]{OFF} {GREEN}{second}{OFF}"


def _cluster(nth: int, cluster: Cluster, width: int, colours: bool) -> list[str]:
    of = "passages" if cluster.passages else "documents"
    gone = "cut" if cluster.passages else "dropped"
    head = f"{nth}. {cluster.size:,} {of}, {cluster.gone:,} {gone}, by {cluster.method}"
    if cluster.similarity and cluster.similarity[0] < 1:
        least, middle, most = cluster.similarity
        head += f"; similarity {least:.3f} to {most:.3f}, median {middle:.3f}"
    lines = [f"{BOLD}{head}{OFF}" if colours else head]
    if cluster.stays is not None:
        lines += _wrap(f"stays    {_about(cluster.stays)}", width, "  ", 9)
        if cluster.stays.text is None:
            lines.append(f"{INDENT}(its text is not in this run's files)")
        elif cluster.passages or all(_same(m) for m in cluster.members):
            lines += _wrap(_excerpt(cluster.stays.text), width, INDENT)
    elif cluster.kept_id is None:
        lines.append("  no copy stays")
    else:
        lines += _wrap(f"stays    {_name(cluster.kept_id)}, which this run does not hold", width)
    for member in cluster.members:
        lines += _wrap(f"{gone:<9}{_about(member)}", width, "  ", 9)
        lines += _compared(member, cluster, width, colours)
    rest = cluster.gone - len(cluster.members)
    if rest > 0:
        lines.append(f"  and {rest:,} more")
    return lines


def _same(member: Member) -> bool:
    return member.difference is None or member.difference.equal


def _compared(member: Member, cluster: Cluster, width: int, colours: bool) -> list[str]:
    if member.difference is not None and not member.difference.equal:
        return _wrap_marked(_marked(member.difference, colours), width, INDENT)
    if member.difference is not None:
        return [] if cluster.passages else [f"{INDENT}the same words"]
    if member.text is None:
        return [] if cluster.passages else [f"{INDENT}(its text is not in this run's files)"]
    return _wrap(_excerpt(member.text), width, INDENT)


def _about(member: Member) -> str:
    parts = [_name(member.id)]
    if member.span is not None:
        parts.append(f"bytes {member.span[0]:,} to {member.span[1]:,}")
    if member.gone and member.similarity is not None and member.similarity < 1:
        parts.append(f"similarity {member.similarity:.3f}")
    if member.corpus:
        parts.append(f"copy of {_name(member.partner or '')} in {_name(member.corpus)}")
    for key in ("url", "source"):
        value = member.about.get(key)
        if value and value != member.id:
            parts.append(_name(value))
    if member.about.get("date") is not None:
        parts.append(str(member.about["date"])[:10])
    return ", ".join(parts)


def _name(value: object) -> str:
    return plain(str(value), NAME).replace("\n", " ").replace("\t", " ")


def _excerpt(text: str) -> str:
    return '"' + " ".join(plain(text, EXCERPT).split()) + '"'


def _wrap(text: str, width: int, indent: str = "  ", hang: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        max(40, width),
        initial_indent=indent,
        subsequent_indent=indent + " " * hang,
        break_on_hyphens=False,
    )


def _marked(found: Diff, colours: bool) -> list[tuple[str, str]]:
    """(word, colour) of both texts as one, with what is equal shortened between differences."""
    words: list[tuple[str, str]] = [("\u2026", "")] if found.begun else []
    last = len(found.runs) - 1
    for nth, (left, right, same) in enumerate(found.runs):
        if same:
            bare = [plain(w.strip(), WORD) for w in left]
            before = bare[:AROUND] if nth else []
            if nth == 0 and found.begun:
                words.clear()
            after = bare[-AROUND:] if nth < last else []
            if len(bare) > len(before) + len(after):
                bare = [*before, "\u2026", *after]
            elif nth == 0 and found.begun:
                bare = ["\u2026", *bare]
            words += [(w, "") for w in bare]
            continue
        for side, opening, closing, colour in ((left, "[-", "-]", RED), (right, "{+", "+}", GREEN)):
            if side:
                bare = [plain(w.strip(), WORD) for w in side]
                bare[0] = opening + bare[0]
                bare[-1] += closing
                words += [(w, colour if colours else "") for w in bare]
    if any(found.more) and words[-1][0] != "\u2026":
        words.append(("\u2026", ""))
    return words


def _wrap_marked(words: list[tuple[str, str]], width: int, indent: str) -> list[str]:
    """Lines of words; the codes of colours take no room."""
    lines: list[str] = []
    line, used, now = indent, len(indent), ""
    room = max(40, width)
    for word, colour in words:
        if used + len(word) > room and used > len(indent):
            lines.append(line + (OFF if now else ""))
            line, used, now = indent, len(indent), ""
        if colour != now:
            line += (OFF if now else "") + (" " if used > len(indent) else "") + colour
        elif used > len(indent):
            line += " "
        line += word
        used += len(word) + 1
        now = colour
    return [*lines, line + (OFF if now else "")]


def dump(found: Browsed) -> dict[str, Any]:
    """As JSON values."""
    return {
        "total": found.total,
        "unknown": found.unknown,
        "clusters": [
            {
                "method": c.method,
                "cluster": c.number,
                "size": c.size,
                "gone": c.gone,
                "of": "passages" if c.passages else "documents",
                "kept_id": c.kept_id,
                "similarity": list(c.similarity) if c.similarity else None,
                "stays": _dump(c.stays) if c.stays else None,
                "members": [_dump(m) for m in c.members],
            }
            for c in found.clusters
        ],
    }


def _dump(member: Member) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": member.id,
        "partner_id": member.partner,
        "partner_corpus": member.corpus,
        "similarity": member.similarity,
        "span": list(member.span) if member.span else None,
        **{k: str(v) for k, v in member.about.items()},
    }
    if member.difference is None:
        found["text"] = None if member.text is None else member.text[:EXCERPT]
    else:
        found["same_words"] = member.difference.equal
        found["diff"] = [
            {"stays": "".join(left), "went": "".join(right), "equal": same}
            for left, right, same in member.difference.runs
        ]
    return found
