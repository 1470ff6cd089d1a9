"""robots.txt as RFC 9309 reads it: groups, longest match, `*` and `$`, percent-encoding.

Where the RFC is silent, Google's parser is followed: names of fields in common misspellings, rules
with neither `/` nor `*` in front never match. Beyond it: what stands behind `/`, `,` or a blank in
a User-agent line is no part of the name, digits are.

Content-Signal lines (https://contentsignals.org, Cloudflare 2025: `search=yes, ai-train=no`) stand
in groups too, and say what a page may be used for once it was fetched. They end no list of agents.
ai.txt (https://site.spawning.ai/spawning-ai-txt) has the form of robots.txt and is read as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

MOST_BYTES = 500 << 10  # of a file; the RFC wants at least so many read
EVERYONE = "*"
_FIELDS = {
    b"user-agent": "agent", b"useragent": "agent", b"user agent": "agent",
    b"allow": "allow",
    b"disallow": "disallow", b"dissallow": "disallow", b"dissalow": "disallow",
    b"disalow": "disallow", b"diasllow": "disallow", b"disallaw": "disallow",
}  # fmt: skip
_SIGNAL = (b"content-signal", b"content-signals")
_LINES = re.compile(rb"[\r\n]+")
_NAME = re.compile(rb"[^\s/,#]+")
_ODD = re.compile(rb"%[0-9A-Fa-f]{2}|[\x00-\x20\x7f-\xff]")
_ODD_IN_URL = re.compile(rb"%[0-9A-Fa-f]{2}|[\x00-\x20\x7f-\xff*$]")
_AFTER_HOST = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)?([^#]*)")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A path pattern. pieces: what stands between the `*`; whole: it ends with `$`."""

    pieces: tuple[bytes, ...]
    whole: bool

    def matches(self, path: bytes) -> bool:
        """Whether a path, as `path_of` gives it, matches from its beginning."""
        first = self.pieces[0]
        if not path.startswith(first):
            return False
        if len(self.pieces) == 1:
            return not self.whole or len(path) == len(first)
        at = len(first)
        for piece in self.pieces[1:-1]:
            at = path.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        last = self.pieces[-1]
        if self.whole:
            return len(path) - len(last) >= at and path.endswith(last)
        return path.find(last, at) >= 0


@dataclass(frozen=True, slots=True)
class Rule:
    """allow or not; size: octets of the pattern, by which the most specific rule is found."""

    allow: bool
    pattern: Pattern
    size: int
    line: str


Rules = tuple[Rule, ...]
Policy = tuple[tuple[str, Rules], ...]
"""For each group that counts: the agent that it names, and its rules, the one that wins first."""


def pattern_of(value: bytes) -> Pattern:
    """The pattern of a rule's value."""
    encoded = _ODD.sub(_encoded, value)
    whole = encoded.endswith(b"$")
    # A `$` inside means itself, and paths have it encoded.
    pieces = encoded.removesuffix(b"$").replace(b"$", b"%24").split(b"*")
    return Pattern(tuple(pieces), whole)


def path_of(url: str) -> bytes:
    """Path and query of a URL in the form that patterns are compared with."""
    found = _AFTER_HOST.match(url.encode("utf-8", "replace"))
    path = found[1] if found else b""
    if not path.startswith(b"/"):
        path = b"/" + path
    return _ODD_IN_URL.sub(_encoded, path)


def _encoded(found: re.Match[bytes]) -> bytes:
    """One octet: as itself where it is unreserved, else as %XX."""
    text = found[0]
    octet = int(text[1:], 16) if len(text) == 3 else text[0]
    return bytes((octet,)) if octet in _UNRESERVED else b"%%%02X" % octet


def groups_of(data: bytes) -> dict[str, list[Rule]]:
    """Rules by agent (lower case) of a file; groups of the same agent are one."""
    found: dict[str, list[Rule]] = {}
    if len(data) > MOST_BYTES:
        data = data[: MOST_BYTES + 1]
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]  # no rule cut in two
    agents: list[str] = []
    ruled = False  # whether a rule has ended the names of this group
    for line in _LINES.split(data.removeprefix(b"\xef\xbb\xbf")):
        name, colon, value = line.partition(b"#")[0].partition(b":")
        field = _FIELDS.get(b" ".join(name.lower().split())) if colon else None
        if field is None:
            continue
        value = value.strip()
        if field == "agent":
            if ruled:
                agents, ruled = [], False
            agent = _NAME.match(value)
            if agent:
                agents.append(agent[0].decode("utf-8", "replace").lower())
                found.setdefault(agents[-1], [])
            continue
        ruled = True
        if value:
            rule = _rule(field, value)
            for agent_name in dict.fromkeys(agents):
                found[agent_name].append(rule)
    return found


@lru_cache(maxsize=1 << 16)  # sites say much the same
def _rule(field: str, value: bytes) -> Rule:
    line = f"{field.capitalize()}: {value.decode('utf-8', 'replace')}"[:200]
    return Rule(field == "allow", pattern_of(value), len(_ODD.sub(_encoded, value)), line)


def signals_of(data: bytes, agents: Iterable[str], wanted: Iterable[str]) -> str | None:
    """What a file's Content-Signal lines deny of the wanted uses (`ai-train`), to one of these
    agents: `AGENT: LINE`; None where nothing. Each agent goes by its own group, else by everyone's;
    a line before all groups is for everyone. `no` counts before `yes`; other values say nothing."""
    said: dict[str, list[bytes]] = {}
    known: set[str] = set()
    here: list[str] = []
    ruled = False
    for line in _LINES.split(data[:MOST_BYTES].removeprefix(b"\xef\xbb\xbf")):
        name, colon, value = line.partition(b"#")[0].partition(b":")
        name = b" ".join(name.lower().split())
        field = _FIELDS.get(name) if colon else None
        if field == "agent":
            if ruled:
                here, ruled = [], False
            if agent := _NAME.match(value.strip()):
                here.append(agent[0].decode("utf-8", "replace").lower())
                known.add(here[-1])
        elif field is not None:
            ruled = True
        elif colon and name in _SIGNAL:
            for agent_name in here or [""]:
                said.setdefault(agent_name, []).append(value.strip())
    uses = {use.lower() for use in wanted}
    for agent_ in agents:
        own = agent_.lower()
        group = own if own in known else EVERYONE
        named = agent_ if group == own else EVERYONE
        for who, lines in ((EVERYONE, said.get("", ())), (named, said.get(group, ()))):
            for line in lines:
                if _denied(line, uses):
                    return f"{who}: Content-Signal: {line.decode('utf-8', 'replace')}"[:200]
    return None


def _denied(line: bytes, uses: set[str]) -> bool:
    pairs = (part.partition(b"=") for part in line.lower().split(b","))
    return any(
        name.strip().decode("utf-8", "replace") in uses and value.strip() == b"no"
        for name, _, value in pairs
    )


def policy_of(data: bytes, agents: Iterable[str]) -> Policy:
    """What a file says to these agents: each to its own group, else to everyone's."""
    groups = groups_of(data)
    chosen: dict[str, str] = {}
    for agent in agents:
        own = agent.lower()
        if own in groups:
            chosen[own] = agent
        elif EVERYONE in groups:
            chosen[EVERYONE] = EVERYONE
    ranked = ((a, sorted(groups[own], key=_rank)) for own, a in sorted(chosen.items()))
    # Without a rule that forbids, a group forbids nothing.
    return tuple((a, tuple(rules)) for a, rules in ranked if not all(r.allow for r in rules))


def _rank(rule: Rule) -> tuple[int, bool]:
    """The longest pattern first, of equals the one that allows (RFC 9309, 2.2.2)."""
    return -rule.size, not rule.allow


def forbidding(policy: Policy, path: bytes) -> tuple[str, Rule] | None:
    """The first agent that may not have the path, and by which rule."""
    if path == b"/robots.txt":
        return None
    for agent, rules in policy:
        for rule in rules:
            if rule.pattern.matches(path):
                if not rule.allow:
                    return agent, rule
                break
    return None
