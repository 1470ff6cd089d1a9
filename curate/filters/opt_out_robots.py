"""Read robots.txt by RFC 9309: groups are parsed here, the rules of a group by the library protego.

An agent's name must equal the name of a group. protego compares names in another way, so it gets
one group at a time. Content-Signal lines (https://contentsignals.org, Cloudflare 2025: `search=yes,
ai-train=no`) also belong to groups. They state what a fetched page may be used for, and do not end
a list of agents. ai.txt (https://site.spawning.ai/spawning-ai-txt) has the syntax of robots.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from string import punctuation
from urllib.parse import quote

from protego import Protego

MOST_BYTES = 500 << 10  # the most that is read of a file: the minimum of the RFC
EVERYONE = "*"
UNREACHABLE = "robots.txt unreachable"  # stored as a rule that forbids every page
_FIELDS = {
    b"user-agent": "agent", b"useragent": "agent", b"user agent": "agent",
    b"allow": "Allow",
    b"disallow": "Disallow", b"dissallow": "Disallow", b"dissalow": "Disallow",
    b"disalow": "Disallow", b"diasllow": "Disallow", b"disallaw": "Disallow",
    b"content-signal": "signal", b"content-signals": "signal",
}  # fmt: skip
_LINES = re.compile(rb"[\r\n]+")
_NAME = re.compile(rb"[^\s/,#]+")
_AFTER_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)?([^#]*)")
# Percent-escapes of unreserved characters, which are letters, digits, and -._~
_ESCAPED = re.compile("%(?:2[DE]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)", re.IGNORECASE)
_ODD = re.compile("[\x00-\x20#\x7f-\U0010ffff]")  # some are line ends for protego

Policy = tuple[tuple[str, tuple[str, ...]], ...]
"""For each group that counts: the agent that it names, and its rules as `Disallow: /path`."""


def path_of(url: str) -> str:
    """Return the path and query of a URL as written, without decoding."""
    match = _AFTER_HOST.match(url)
    path = match[1] if match else ""
    return path if path.startswith("/") else "/" + path


@lru_cache(maxsize=1 << 16)  # many sites have the same rules
def _parser(rules: tuple[str, ...]) -> Protego:
    if rules == (UNREACHABLE,):
        rules = ("Disallow: /",)
    lines = []
    for rule in rules:
        field, _, value = rule.partition(": ")
        value = _ODD.sub(lambda m: quote(m[0].encode("utf-8", "replace")), value)
        if field == "Allow" and value.endswith("/index.html"):
            value += "*"  # otherwise protego would allow the folder too
        lines.append(f"{field}: {value}")
    return Protego.parse("\n".join(["User-agent: *", *lines]))


def matches(location: str, path: str) -> bool:
    """Return True if a pattern of robots.txt matches the path from its start."""
    return not allowed((f"Disallow: {location or '/'}",), path)


def allowed(rules: tuple[str, ...], path: str) -> bool:
    """Return True if the rules of a group allow a path. The longest matching rule decides. Of two
    equally long ones, the rule that allows the path decides (RFC 9309, 2.2.2)."""
    # The host is needed: protego would read a path that begins with two slashes as a host.
    answer: bool = _parser(rules).can_fetch(f"https://x{path}", EVERYONE)
    return answer


def forbidding(policy: Policy, path: str) -> tuple[str, str] | None:
    """Return the first agent that may not use the path, and the rule; None if all may use it."""
    for agent, rules in policy:
        if not allowed(rules, path):
            return agent, next(r for r in rules if not allowed((r,), path))[:200]
    return None


def _statements(data: bytes) -> Iterator[tuple[str, bytes, list[str]]]:
    """Yield (field, value, agents of its group) for the lines of a robots.txt that count, by the
    names in _FIELDS. For the field `agent`, yield the new agent alone."""
    agents: list[str] = []
    ruled = False  # True after the first rule of a group
    for line in _LINES.split(data.removeprefix(b"\xef\xbb\xbf")):
        name, colon, value = line.partition(b"#")[0].partition(b":")
        field = _FIELDS.get(b" ".join(name.lower().split())) if colon else None
        if field == "agent":
            if ruled:
                agents, ruled = [], False
            if agent := _NAME.match(value.strip()):
                agents.append(agent[0].decode("utf-8", "replace").lower())
                yield field, b"", agents[-1:]
        elif field is not None:
            ruled = ruled or field != "signal"
            yield field, value.strip(), agents


def groups_of(data: bytes) -> dict[str, list[str]]:
    """Return {agent in lower case: rules} in a robots.txt. Groups of the same agent are merged. An
    agent's name ends at `/`, `,` or white space."""
    groups: dict[str, list[str]] = {}
    if len(data) > MOST_BYTES:
        data = data[: MOST_BYTES + 1]
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]  # whole lines only
    for field, value, agents in _statements(data):
        if field == "agent":
            groups.setdefault(agents[0], [])
        elif field != "signal" and value:
            for agent in dict.fromkeys(agents):
                groups[agent].append(f"{field}: {_text(value)}")
    return groups


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 128 else f"%{b:02X}" for b in value)


def signals_of(data: bytes, agents: Iterable[str], wanted: Iterable[str]) -> str | None:
    """Return `AGENT: LINE` for a Content-Signal line that denies a wanted use (such as `ai-train`),
    or None. Each agent follows its own group, or the group of everyone (`*`) if it has none. Lines
    before all groups apply to everyone. `no` wins over `yes`; other values are ignored."""
    lines_of: dict[str, list[bytes]] = {}
    groups: set[str] = set()
    for field, value, of_group in _statements(data[:MOST_BYTES]):
        if field == "agent":
            groups.add(of_group[0])
        elif field == "signal":
            for name in of_group or [""]:
                lines_of.setdefault(name, []).append(value)
    uses = {use.lower() for use in wanted}
    for agent_ in agents:
        lowered = agent_.lower()
        group = lowered if lowered in groups else EVERYONE
        named = agent_ if group == lowered else EVERYONE
        for who, lines in ((EVERYONE, lines_of.get("", ())), (named, lines_of.get(group, ()))):
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
    """Return the rules of a robots.txt for these agents. Each agent follows the group with its
    name, or the group of everyone (`*`) if there is no such group."""
    groups = groups_of(data)
    chosen: dict[str, str] = {}
    for agent in agents:
        name = agent.lower()
        if name in groups:
            chosen[name] = agent
        elif EVERYONE in groups:
            chosen[EVERYONE] = EVERYONE
    ranked = ((a, tuple(sorted(groups[name], key=_rank))) for name, a in sorted(chosen.items()))
    # A group without a Disallow rule forbids nothing.
    return tuple((a, rules) for a, rules in ranked if any(r[0] == "D" for r in rules))


def _rank(rule: str) -> int:
    pattern = _ESCAPED.sub(lambda m: chr(int(m[0][1:], 16)), rule.partition(": ")[2])
    return -len(quote(pattern.encode("utf-8", "replace"), safe=punctuation))
